"""GPU logs that other programs write, as a samples table: nvidia-smi, amd-smi, gpustat, W&B."""

from __future__ import annotations

import codecs
import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from marey.model.errors import InvalidInput, shown
from marey.model.metrics import catalogue, exporter_names
from marey.model.times import parse_time
from marey.sources.foreign.amd_log import is_amd_log, list_unread_columns, read_amd_log
from marey.sources.foreign.gpustat_log import (
    is_gpustat_log,
    read_gpustat_log,
    refuse_gpustat_text,
)
from marey.sources.foreign.monitor_text import (
    is_monitor_text,
    list_unknown_columns,
    read_monitor_text,
)
from marey.sources.foreign.refusals import ASK_SMI, refuse_known_output
from marey.sources.samples_file import FACTS, REMARKS

# Columns of nvidia-smi --query-gpu → our metric; units in brackets are cut off first.
SMI_METRICS = {
    "utilization.gpu": "util",
    "utilization.memory": "mem_copy",
    "memory.used": "mem_used",
    "memory.free": "mem_free",
    "memory.total": "mem_total",
    "power.draw": "power",
    "power.draw.average": "power",
    "power.draw.instant": "power",
    "power.limit": "power_limit",
    "enforced.power.limit": "power_limit",
    "temperature.gpu": "temp",
    "temperature.memory": "mem_temp",
    "clocks.sm": "sm_clock",
    "clocks.current.sm": "sm_clock",
    "clocks.mem": "mem_clock",
    "clocks.current.memory": "mem_clock",
    "fan.speed": "fan",
    "memory.reserved": "mem_reserved",
    "clocks_throttle_reasons.active": "throttle",
    "clocks_event_reasons.active": "throttle",
    "utilization.encoder": "enc_util",
    "utilization.decoder": "dec_util",
    "ecc.errors.corrected.volatile.total": "ecc_correctable",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrectable",
    # Gaudi's hl-smi calls the device so.
    "utilization.aip": "util",
    "temperature.aip": "temp",
}
# Columns that say which GPU, when and what for.
SMI_FACTS = frozenset(
    {
        *("timestamp", "index", "name", "gpu_name", "uuid", "gpu_uuid", "serial", "gpu_serial"),
        *(
            "pci.bus_id",
            "gpu_bus_id",
            "pci.bus",
            "bus_id",
            "count",
            "driver_version",
            "vbios_version",
        ),
    }
)
UNKNOWN_KEPT = 100
# What W&B calls system metrics of a GPU → our metric and the factor to its unit.
WANDB_METRICS = {
    "gpu": ("util", 1.0),
    "memory": ("mem_copy", 1.0),
    "memoryAllocated": ("mem_share", 1.0),
    "memoryAllocatedBytes": ("mem_used", 1.0 / 2**20),
    "temp": ("temp", 1.0),
    "powerWatts": ("power", 1.0),
    "enforcedPowerLimitWatts": ("power_limit", 1.0),
    "smClock": ("sm_clock", 1.0),
    "memoryClock": ("mem_clock", 1.0),
}
WANDB_HOST_METRICS = {
    "cpu": "host_cpu",
    "memory_percent": "host_mem_share",
    "memory": "host_mem_share",
}
_WANDB = re.compile(r"^(?:system[./])?gpu\.(\d{1,4})\.(\w+)(?:/l:(.+))?$")
_WANDB_HOST = re.compile(r"^(?:system[./])(cpu|memory_percent|memory)(?:/l:(.+))?$")
_SMI_TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S %Y")
# hl-smi names a zone in the middle.
_ZONE_WORD = re.compile(r"(?<=:\d\d) [A-Z]{2,5}(?= \d{4}$)")
# A spreadsheet of another language writes a comma for the point. Before three digits it parts
# thousands, for none of these programs writes three decimals.
_NUMBER = re.compile(r"^(-?\d+(?:[.,]\d+)?)\s*(\S*)")
_BITS = re.compile(r"^0[xX][0-9a-fA-F]{1,16}$")
_THOUSANDS = re.compile(r",\d{3}$")
# nvidia-smi writes MiB; programs that imitate it write these too.
_TO_MIB = {"KiB": 2.0**-10, "GiB": 2.0**10, "MB": 1e6 / 2**20, "GB": 1e9 / 2**20}
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SMI_ROW = re.compile(r"^\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d+\s*,")
_ASK_SMI = f"ask for: {ASK_SMI}."
_WANDB_CHART = re.compile(r" - (?:system[./])?gpu\.\d+\.\w+$")
# Rows of one round of nvidia-smi are written within this time; rounds are further apart.
_TOGETHER_S = 0.1
FIELD_LIMIT = 1 << 20
ADDRESS_COLUMNS = ("pci.bus_id", "gpu_bus_id")
# As seconds this would be in the year 5138.
FIRST_MILLISECOND = 1e11
LARGEST_ARRAY = 1 << 30

Row = dict[str, object]


def read_foreign_samples(path: Path, host: str) -> pa.Table | None:
    """Return a foreign log as a table of time, host, gpu and metrics; None for our own form.

    ``host`` is the machine that the log is of: neither program writes it down.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.readline(1 << 20)
    if start.startswith(_UTF16_MARKS):
        raise InvalidInput(
            f"{path.name} is UTF-16, as PowerShell's > writes it; write it again as UTF-8: "
            "… | Out-File -Encoding utf8, or iconv -f utf-16 -t utf-8."
        )
    head = start.decode("utf-8", "replace").lstrip("\ufeff").strip()
    mark = _find_delimiter(head)
    names = [name.strip().strip('"') for name in head.split(mark)]
    if "timestamp" in names and any(_cut_unit(name) in SMI_METRICS for name in names):
        broken = BrokenLines()
        rows = list(_read_smi(path, host, mark, broken))
        unknown = [n for n in names if _cut_unit(n) not in SMI_METRICS.keys() | SMI_FACTS]
        return _make_table(_check_apart(rows, names, path), path, unknown, broken)
    if is_monitor_text(head):
        return _make_table(read_monitor_text(path, host), path, list_unknown_columns(head))
    if is_amd_log(names):
        return _make_table(read_amd_log(path, host), path, list_unread_columns(names))
    if head.startswith(("{", "[")) and is_gpustat_log(path):
        return _make_table(read_gpustat_log(path, host), path)
    if head.startswith(("{", "[")) and "_timestamp" in head:
        return _make_table(_read_wandb(_read_json(path, head), host), path)
    if "_timestamp" in names and any(_WANDB.match(name) for name in names):
        found = (_WANDB.match(name) for name in names)
        unknown = [m[0] for m in found if m is not None and m[2] not in WANDB_METRICS]
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as text:
            return _make_table(_read_wandb(csv.DictReader(text), host), path, unknown)
    _refuse_unusable(path, head, names)
    refuse_gpustat_text(path, head)
    refuse_known_output(path)
    return None


def _refuse_unusable(path: Path, head: str, names: Sequence[str]) -> None:
    """Say what to ask for where a log is recognised and lacks what makes it usable."""
    if any(_cut_unit(name) in SMI_METRICS for name in names):
        raise InvalidInput(f"{path.name} is a log of nvidia-smi without times; {_ASK_SMI}")
    if _SMI_ROW.match(head) and len(names) > 1:
        raise InvalidInput(f"{path.name} is a log of nvidia-smi without its header; {_ASK_SMI}")
    if any(_WANDB_CHART.search(name) for name in names):
        raise InvalidInput(
            f"{path.name} is a chart exported from W&B, without absolute times for each GPU; "
            'export the run: api.run(…).history(stream="system").to_csv(…), or give its '
            "wandb-events.jsonl."
        )


def _find_delimiter(head: str) -> str:
    """Return the delimiter of the columns: a comma, or a spreadsheet's substitute."""
    return max(",;\t", key=head.count)


def _check_apart(listed: list[Row], names: Sequence[str], path: Path) -> list[Row]:
    """Return the rows; refuse a log of several GPUs that says nowhere which row is whose."""
    if {"index", "pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid"} & set(names):
        return listed
    times = [float(str(row["time"])) for row in listed]
    steps = sorted(b - a for a, b in pairwise(times))
    if len(steps) > 2 and steps[len(steps) // 4] < _TOGETHER_S < steps[-1]:
        raise InvalidInput(
            f"{path.name} mixes several GPUs and does not tell them apart; {_ASK_SMI}"
        )
    return listed


def _cut_unit(name: str) -> str:
    return name.partition("[")[0].strip()


@dataclass(slots=True)
class BrokenLines:
    """Lines of a log that are no rows: messages in between, or a row that was cut."""

    count: int = 0
    first: str = ""

    def note(self, number: int, fields: Sequence[str]) -> None:
        """Count a line, and keep the first."""
        self.count += 1
        self.first = self.first or f"line {number}: '{shown(', '.join(fields)[:80])}'"

    def describe(self) -> str:
        """Return what to tell of them; empty where there are none."""
        if self.count < 2:
            return f"{self.first} is no row and was left out" if self.count else ""
        return f"{self.count} lines are no rows and were left out, the first is {self.first}"


def _make_table(
    rows: Iterable[Row],
    path: Path,
    unknown: Sequence[str] = (),
    broken: BrokenLines | None = None,
) -> pa.Table:
    """Return the rows as a table; unread columns stay in it, empty, to be reported."""
    listed = list(rows)
    if not listed:
        raise InvalidInput(f"{path.name} has a header but no rows with a GPU's values.")
    names = sorted({name for row in listed for name in row} - {"time", "host", "gpu"})
    if not set(names) - {*FACTS}:
        raise InvalidInput(f"{path.name} has {len(listed)} rows, and no value of a GPU in them.")
    order = ["time", "host", "gpu", *names]
    taken = {*order, *FACTS, *catalogue(), *exporter_names()}
    empty = {
        name: pa.nulls(len(listed), pa.string())
        for name in unknown[:UNKNOWN_KEPT]
        if name and name not in taken
    }
    found = {name: pa.array([row.get(name) for row in listed]) for name in order}
    remarks = broken.describe() if broken is not None else ""
    table = pa.table({**found, **empty})
    return table.replace_schema_metadata({REMARKS: remarks.encode()}) if remarks else table


# nvidia-smi


def _read_smi(path: Path, host: str, mark: str, broken: BrokenLines) -> Iterator[Row]:
    csv.field_size_limit(FIELD_LIMIT)
    known = _number_addresses(path, mark)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, skipinitialspace=True, delimiter=mark)
        names = [_cut_unit(name) for name in next(reader)]
        for fields in reader:
            # A log that was appended to repeats its header.
            if fields and len(fields) != len(names):
                broken.note(reader.line_num, fields)
            if len(fields) != len(names) or fields[names.index("timestamp")] == "timestamp":
                continue
            found = dict(zip(names, fields, strict=True))
            yield _make_smi_row(found, host, known, f"{path.name}, line {reader.line_num}")


def _number_addresses(path: Path, mark: str) -> dict[str, int]:
    """Return the GPUs' PCI addresses in their order, which is that of nvidia-smi's numbers."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, skipinitialspace=True, delimiter=mark)
        names = [_cut_unit(name) for name in next(reader)]
        column = next((names.index(n) for n in ADDRESS_COLUMNS if n in names), None)
        if column is None or "index" in names:
            return {}
        found = {row[column].strip() for row in reader if len(row) == len(names)}
    return {address: at for at, address in enumerate(sorted(found - {*ADDRESS_COLUMNS}))}


def _make_smi_row(found: Mapping[str, str], host: str, known: dict[str, int], place: str) -> Row:
    row: Row = {
        "time": _parse_smi_time(found["timestamp"], place),
        "host": host,
        "gpu": str(_find_index(found, known)),
    }
    if model := found.get("name") or found.get("gpu_name"):
        row["model"] = model
    for name, text in found.items():
        metric = SMI_METRICS.get(name)
        value = None if metric is None else _parse_smi_number(text)
        if metric is not None and value is not None:
            row[metric] = value
    return row


def _parse_smi_number(text: str) -> float | None:
    """Return a value without its unit; None for ``[N/A]`` and ``ERR!``."""
    if _BITS.match(text.strip()):
        return float(int(text, 16))
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    point = "" if _THOUSANDS.search(found[1]) else "."
    return float(found[1].replace(",", point)) * _TO_MIB.get(found[2], 1.0)


def _find_index(found: Mapping[str, str], known: dict[str, int]) -> int:
    """Return the GPU's number: as given, or in the order in which its address first appears."""
    if found.get("index", "").isdecimal():
        return int(found["index"])
    columns = (*ADDRESS_COLUMNS, "uuid", "gpu_uuid")
    name = next((found[column] for column in columns if found.get(column)), "")
    return known.setdefault(name, len(known))


def _parse_smi_time(text: str, place: str) -> float:
    """Return Unix seconds; nvidia-smi writes local time without a zone, taken as UTC."""
    plain = _ZONE_WORD.sub("", text.strip())
    for form in _SMI_TIMES:
        with suppress(ValueError):
            return parse_time(datetime.strptime(plain, form).isoformat()) / 1000
    if plain.isdecimal() and len(plain) <= 16 and int(plain) >= FIRST_MILLISECOND:
        return int(plain) / 1000
    try:
        return parse_time(plain) / 1000
    except InvalidInput:
        raise InvalidInput(
            f"{place}: timestamp is '{shown(text)}'; allowed: 2026/03/01 12:00:00.000 as "
            "nvidia-smi writes it, ISO-8601, or Unix seconds."
        ) from None


# W&B


def _read_json(path: Path, head: str) -> Iterable[Mapping[str, object]]:
    """Return the documents of a file with one per line, or of one array."""
    if head.startswith("{"):
        return _read_json_lines(path)
    if path.stat().st_size > LARGEST_ARRAY:
        raise InvalidInput(f"{path.name} is one array of more than 1 GB; write one row per line.")
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except ValueError as error:
        raise InvalidInput(f"{path.name} is not whole JSON: {error}.") from None
    return [document for document in found if isinstance(document, dict)]


def _read_json_lines(path: Path) -> Iterator[Mapping[str, object]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                document = json.loads(line) if line.strip() else None
            except ValueError:
                # The last line of a run that was killed.
                continue
            if isinstance(document, dict):
                yield document


def _read_wandb(documents: Iterable[Mapping[str, object]], host: str) -> Iterator[Row]:
    columns: dict[Sequence[str], list[tuple[str, str, str, str, float]]] = {}
    for document in documents:
        names = tuple(document)
        if names not in columns:
            columns[names] = list(_find_wandb_columns(names, host))
        rows: dict[tuple[str, str], Row] = {}
        of_host: dict[str, Row] = {}
        time_s = _parse_wandb_time(document.get("_timestamp"))
        if time_s is None:
            continue
        for name, place, gpu, metric, factor in columns[names]:
            value = _parse_number(document.get(name))
            if value is None:
                continue
            kept = rows.setdefault((place, gpu), {}) if gpu else of_host.setdefault(place, {})
            kept[metric] = value * factor
        for (place, gpu), row in rows.items():
            yield {"time": time_s, "host": place, "gpu": gpu, **row, **of_host.get(place, {})}


def _find_wandb_columns(
    names: Iterable[str], host: str
) -> Iterator[tuple[str, str, str, str, float]]:
    """Yield column, host, GPU (empty for the host's own), metric and factor."""
    for name in names:
        match = _WANDB.match(name)
        if match and match[2] in WANDB_METRICS:
            yield name, match[3] or host, match[1], *WANDB_METRICS[match[2]]
        beside = _WANDB_HOST.match(name)
        if beside:
            yield name, beside[2] or host, "", WANDB_HOST_METRICS[beside[1]], 1.0


def _parse_wandb_time(value: object) -> float | None:
    """Return Unix seconds of seconds, of milliseconds or of an ISO text."""
    number = _parse_number(value)
    if number is not None:
        return number / 1000 if number >= FIRST_MILLISECOND else number
    try:
        return parse_time(value) / 1000 if isinstance(value, str) and value else None
    except InvalidInput:
        return None


def _parse_number(value: object) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) and value != "" else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None

"""What amd-smi (``metric`` or ``monitor``) prints with ``--csv -w``: a line per GPU and round.

Written after headers that others published; never tried on a log of ours.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from marey.model.errors import InvalidInput, shown
from marey.model.times import parse_time
from marey.sources.foreign.refusals import ASK_AMD

# Columns of amd-smi metric → our metric; of several for one metric the first that has a value.
METRIC_COLUMNS = {
    "gfx_activity": "util",
    "umc_activity": "mem_copy",
    "socket_power": "power",
    "gfx_0_clk": "sm_clock",
    "mem_0_clk": "mem_clock",
    "hotspot": "temp",
    "edge": "temp",
    "mem": "mem_temp",
    "used_vram": "mem_used",
    "total_vram": "mem_total",
    "free_vram": "mem_free",
}
# Columns of amd-smi monitor, in which "mem" is the memory's utilization.
MONITOR_COLUMNS = {
    "gfx": "util",
    "gfx_util": "util",
    "mem": "mem_copy",
    "mem_util": "mem_copy",
    "power_usage": "power",
    "hotspot_temperature": "temp",
    "memory_temperature": "mem_temp",
    "gfx_clk": "sm_clock",
    "gfx_clock": "sm_clock",
    "mem_clock": "mem_clock",
    "vram_used": "mem_used",
    "vram_total": "mem_total",
    "vram_free": "mem_free",
}
# More of a watched CSV is not one GPU's line.
FIELD_LIMIT = 1 << 20
ASK = f"ask for: {ASK_AMD}"

# Where a row's partition stands until it is known which GPUs are divided.
_PARTITION = "xcp"

_FACTS = frozenset({"timestamp", "gpu", "xcp"})

Row = dict[str, object]


def is_amd_log(names: Sequence[str]) -> bool:
    """Return whether a header is one of amd-smi."""
    known = {"gfx_activity", "socket_power", "power_usage", "hotspot_temperature", "vram_used"}
    return "gpu" in names and bool(known & set(names))


def list_unread_columns(names: Sequence[str]) -> list[str]:
    """Return the columns of a header that are not read."""
    known = METRIC_COLUMNS if "gfx_activity" in names else MONITOR_COLUMNS
    return [name for name in names if name not in known and name not in _FACTS]


def read_amd_log(path: Path, host: str) -> list[Row]:
    """Return a row per GPU or partition and round; partition 0 of an undivided GPU is the GPU."""
    rows = list(_read_rows(path, host))
    divided = {row["gpu"] for row in rows if row[_PARTITION] not in ("", "0")}
    for row in rows:
        partition = row.pop(_PARTITION)
        if row["gpu"] in divided:
            row["gpu"] = f"{row['gpu']}.{partition or 0}"
    return rows


def _read_rows(path: Path, host: str) -> Iterator[Row]:
    csv.field_size_limit(FIELD_LIMIT)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, skipinitialspace=True)
        names = [name.strip() for name in next(reader)]
        if "timestamp" not in names:
            raise InvalidInput(f"{path.name} is a log of amd-smi without times; {ASK}.")
        known = METRIC_COLUMNS if "gfx_activity" in names else MONITOR_COLUMNS
        for fields in reader:
            if len(fields) == len(names) and fields[names.index("timestamp")] != "timestamp":
                found = dict(zip(names, fields, strict=True))
                yield _make_row(found, known, host, f"{path.name}, line {reader.line_num}")


def _make_row(found: Mapping[str, str], known: Mapping[str, str], host: str, place: str) -> Row:
    row: Row = {"time": _read_time(found["timestamp"].strip(), place), "host": host}
    row["gpu"] = found["gpu"].strip()
    partition = found.get("xcp", "").strip()
    row[_PARTITION] = partition if partition.isdecimal() else ""
    for column, metric in known.items():
        # What a GPU does not tell is "N/A"; some versions write units.
        text = found.get(column, "").strip().partition(" ")[0]
        if metric not in row and text.replace(".", "", 1).isdecimal():
            row[metric] = float(text)
    return row


def _read_time(text: str, place: str) -> float:
    """Return Unix seconds, as amd-smi writes them, or of a written date."""
    if text.replace(".", "", 1).isdecimal() and len(text) < 20:
        return float(text)
    try:
        return parse_time(text) / 1000
    except InvalidInput:
        raise InvalidInput(f"{place}: the timestamp is '{shown(text)}'.") from None

"""Prometheus text exposition → values of the catalogue's metrics, and nothing else of it.

A series of an exporter keeps its labels from scrape to scrape, and all metrics of a GPU share
them: each set of labels is understood once and then found again as text, so that a line costs two
look-ups and one conversion of a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from statistics import fmean
from typing import NamedTuple

from marey.model.inventory import Gpu
from marey.model.metrics import Entity, MetricKind, catalogue
from marey.model.names import bounded
from marey.sources.exporter_labels import (
    ADDRESS_LABEL,
    DIVIDED,
    HARDWARE_LABEL,
    PARTITION_LABEL,
    SMI_INDEX,
    SMI_INFO,
    SMI_PREFIX,
    TILE_LABEL,
    XPUMD_INFO,
    GpuLabels,
    are_partitions_numbered,
    number_by_address,
    parse_host_name,
    parse_labels,
    read_gpu_labels,
    read_whole_gpu,
    shorten_name,
)
from marey.sources.gpu_capacity import CAPACITY_METRICS, keep_capacity, measure_capacity

LINE_LIMIT = 8_192
HEAD_LENGTH = 32_768
ROWS_LIMIT = 1_024
LABELS_KEPT = 8_192
HOST_SERIES_LIMIT = 4_096
EXAMPLES_KEPT = 16
# An exporter that stamps its lines with an older time than this has stopped measuring; one whose
# times are so far ahead has another clock than ours.
OLDEST_MS = 5 * 60_000

GPU_METRICS = tuple(m.metric for m in catalogue().values() if m.entity is Entity.GPU)
WIDTH = len(GPU_METRICS)
NAN = float("nan")
LIMIT_COLUMN = GPU_METRICS.index("power_limit")
CAPACITY_COLUMNS = tuple((metric, GPU_METRICS.index(metric)) for metric in CAPACITY_METRICS)

# "No value" as DCGM writes it, per type: 64-bit and 32-bit integers, and floating point.
_BLANK_FROM = 0x7FFFFFF0
_BLANKS = frozenset(
    float(base + offset) for base in (0x7FFFFFF0, 1 << 47) for offset in range(4)
)  # fmt: skip
_BLANK_INT64 = 9.2233720368547e18
# AMD counts the data of each link since start, in kB (amdsmi: xgmi_read_data_acc); the rest of
# the GPU metrics are levels already.
ACCUMULATED = frozenset(
    f"{prefix}gpu_xgmi_link_{way}" for prefix in ("", "amd_") for way in ("rx", "tx")
)


# Prometheus 3 may put the name between the braces.
_QUOTED_NAME = re.compile(r'^\{"([a-zA-Z_:][a-zA-Z0-9_:]*)"\s*,?\s*')


# How the values of a GPU's tiles make its own; those of other metrics are averaged.
TILES_JOINED: Mapping[str, Callable[[list[float]], float]] = {
    "mem_used": sum,
    "power": sum,
    "temp": max,
}


class Target(NamedTuple):
    """Where an exporter's name goes: column, factor, how many better names the metric has."""

    column: int
    factor: float
    rank: int
    accumulated: bool


@cache
def list_gpu_targets() -> Mapping[str, Target]:
    """Return exporter's name → where its values go; the catalogue lists the best name first."""
    targets = {
        name: Target(GPU_METRICS.index(metric.metric), factor, rank, name in ACCUMULATED)
        for metric in catalogue().values()
        if metric.entity is Entity.GPU
        for rank, (name, factor) in enumerate(metric.exporters.items())
    }
    # OpenMetrics, and what collects through OpenTelemetry, name counters so.
    totals = {f"{n}_total": t for n, t in targets.items() if _is_counter(t)}
    return {**targets, **totals}


def _is_counter(target: Target) -> bool:
    return catalogue()[GPU_METRICS[target.column]].kind is MetricKind.COUNTER


@cache
def list_host_names() -> frozenset[str]:
    """Return the exporter's names that host metrics are made of."""
    return frozenset(
        name
        for metric in catalogue().values()
        if metric.entity is Entity.HOST
        for name in metric.exporters
    )


@dataclass(slots=True)
class Counts:
    """How an exposition's lines were used; each after ``used`` is a reason to look at it."""

    lines: int = 0
    used: int = 0
    bad: int = 0
    old: int = 0
    ahead: int = 0
    beyond_limit: int = 0


@dataclass(slots=True)
class Exposition:
    """What one exposition says: a value per GPU and metric, NaN where it says nothing.

    ``names`` are the ids of ``gpus``; ``values`` has ``WIDTH`` numbers per GPU, in the order of
    ``GPU_METRICS``; ``totals`` counts what accumulates, by place in ``values``; ``host`` keeps raw
    series by name and labels.
    """

    gpus: list[Gpu]
    names: list[str]
    values: list[float]
    jobs: dict[int, set[str]] = field(default_factory=dict)
    totals: dict[int, float] = field(default_factory=dict)
    host: dict[str, dict[str, float]] = field(default_factory=dict)
    # Values of tiles, by the place of their GPU's.
    tiles: dict[int, list[float]] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)


class ExpositionReader:
    """Reads one endpoint's expositions, scrape after scrape; never raises, whatever the text."""

    def __init__(self, host: str, *, trust_labels: bool = True, short_hosts: bool = False) -> None:
        self.host = parse_host_name(host, short=short_hosts)
        self._trust_labels = trust_labels
        self._short = short_hosts
        self._numbered = False
        self._rows: dict[str, tuple[int, str]] = {}
        self._gpus: dict[tuple[str, int, int | None], int] = {}
        self._facts: list[Gpu] = []
        self._names: list[str] = []
        self._uuids: dict[str, tuple[str, int]] = {}
        self._models: dict[str, str] = {}
        # One name of each exporter seen here: by it doctor knows whose it is.
        self.example_names: set[str] = set()

    def read(self, body: bytes, now_ms: int = 0) -> Exposition:
        """Return every value that the catalogue knows.

        What cannot be used is counted and left out.
        """
        if len(self._rows) > LABELS_KEPT or len(self._facts) > ROWS_LIMIT // 2:
            self._forget()
        text = body.decode("utf-8", "replace")
        lines = text.split("\n")
        # Such labels stand near the beginning, after what the program says of itself.
        if text.find(SMI_PREFIX, 0, HEAD_LENGTH) >= 0:
            self._learn_numbers(lines)
        if text.find(ADDRESS_LABEL, 0, HEAD_LENGTH) >= 0 and HARDWARE_LABEL in text:
            self._learn_addresses(lines)
        if text.find(PARTITION_LABEL, 0, HEAD_LENGTH) >= 0 and DIVIDED.search(text):
            self._learn_partitions(lines)
        reading = Exposition(self._facts, self._names, [NAN] * (WIDTH * len(self._facts)))
        self._read_lines(lines, reading, now_ms)
        _join_tiles(reading)
        self._measure_capacities(reading)
        seen = [any(v == v for v in _add_row(reading, at)) for at in range(len(self._facts))]
        return _keep_only(reading, seen) if not all(seen) else _copy_reading(reading)

    def _learn_numbers(self, lines: list[str]) -> None:
        """Take the number and the model of each UUID from the series that give only these."""
        for line in lines:
            name, _, rest = line[:LINE_LIMIT].partition("{")
            if name not in (SMI_INDEX, SMI_INFO) or len(self._uuids) >= ROWS_LIMIT:
                continue
            labels, _, tail = rest.rpartition("}")
            parsed = parse_labels(labels) or {}
            found = read_gpu_labels({k: v for k, v in parsed.items() if k in ("uuid", "name")})
            if found is None or not found.uuid:
                continue
            if name == SMI_INFO:
                self._models[found.uuid] = found.model
            number = parsed.get("index", "") if name == SMI_INFO else tail.strip()
            if number.isdecimal() and len(number) <= 4:
                self._uuids[found.uuid] = (self.host, int(number))

    def _learn_addresses(self, lines: list[str]) -> None:
        """Number the GPUs that have an id and a PCI address alone, and take their models."""
        told = (line for line in lines if line[:1] != "#" and ADDRESS_LABEL in line[:LINE_LIMIT])
        found = [
            (line.startswith(XPUMD_INFO), labels)
            for line in islice(told, ROWS_LIMIT)
            if (labels := parse_labels(line[:LINE_LIMIT].partition("{")[2].rpartition("}")[0]))
        ]
        numbers = number_by_address(labels for _, labels in found)
        self._uuids.update({uuid: (self.host, number) for uuid, number in numbers.items()})
        for is_info, labels in found:
            if is_info and labels.get("hw_model") and labels.get(HARDWARE_LABEL):
                self._models[bounded(labels[HARDWARE_LABEL])] = bounded(labels["hw_model"])

    def _learn_partitions(self, lines: list[str]) -> None:
        """Learn whether AMD partitions have numbers of their own; look at one metric of them."""
        first = next((line for line in lines if line[:1] != "#" and PARTITION_LABEL in line), "")
        name = first.partition("{")[0]
        same = (line for line in lines if line.startswith(f"{name}{{"))
        found = [
            parse_labels(line[:LINE_LIMIT].partition("{")[2].rpartition("}")[0]) or {}
            for line in islice(same, ROWS_LIMIT)
        ]
        numbered = are_partitions_numbered(found)
        if numbered is not self._numbered:
            self._numbered = numbered
            self._forget()

    def _read_lines(self, lines: list[str], reading: Exposition, now_ms: int) -> None:
        targets, hosts, rows = list_gpu_targets(), list_host_names(), self._rows
        values, counts = reading.values, reading.counts
        held_rank: dict[int, int] = {}
        for line in lines:
            if not line or line[0] == "#":
                continue
            counts.lines += 1
            head, _, tail = line.rpartition("}")
            name, _, labels = head.partition("{")
            target = targets.get(name)
            if target is None:
                if line[0] == "{" and _QUOTED_NAME.match(line):
                    self._read_lines([_QUOTED_NAME.sub(r"\1{", line)], reading, now_ms)
                else:
                    self._read_other_line(line, hosts, reading, now_ms)
                continue
            row = rows.get(labels)
            if row is None:
                if "} " in labels and " # {" in line:
                    self._read_lines([line.partition(" # {")[0]], reading, now_ms)
                    continue
                if TILE_LABEL in labels and self._take_tile(labels, line, target, reading):
                    continue
                row = self._add_new_row(labels, line, reading)
                if row is None:
                    continue
            try:
                value = float(tail)
            except ValueError:
                value = _parse_slow_value(tail, now_ms, counts)
            if value != value or (
                value >= _BLANK_FROM and (value >= _BLANK_INT64 or value in _BLANKS)
            ):
                continue
            place = row[0] + target.column
            if target.accumulated:
                reading.totals[place] = reading.totals.get(place, 0.0) + value * target.factor
            elif not target.rank or _is_best(values[place], held_rank.get(place, 0), target):
                values[place] = value * target.factor
                held_rank[place] = target.rank
            if row[1]:
                reading.jobs.setdefault(row[0] // WIDTH, set()).add(row[1])
            counts.used += 1

    def _measure_capacities(self, reading: Exposition) -> None:
        """Add to each GPU's facts how much memory it has and how much power it may draw."""
        for at, gpu in enumerate(self._facts):
            row = at * WIDTH
            limit = reading.values[row + LIMIT_COLUMN]
            if gpu.memory_mib is not None and (limit != limit or limit == gpu.power_limit_w):
                continue
            measured = measure_capacity(
                gpu, {metric: reading.values[row + column] for metric, column in CAPACITY_COLUMNS}
            )
            if measured is not gpu:
                self._facts[at] = measured

    def _take_tile(self, labels: str, line: str, target: Target, reading: Exposition) -> bool:
        """Keep an Intel exporter's value of one tile; return whether it was of a tile."""
        parsed = parse_labels(labels) if len(line) <= LINE_LIMIT else None
        found = read_whole_gpu(parsed) if parsed is not None else None
        row = self._place_row(found, reading) if found is not None else None
        if row is None:
            return False
        value = _parse_slow_value(line.rpartition("}")[2], 0, reading.counts)
        if value == value and not target.accumulated:
            place = row * WIDTH + target.column
            reading.tiles.setdefault(place, []).append(value * target.factor)
            reading.counts.used += 1
        return True

    def _add_new_row(self, labels: str, line: str, reading: Exposition) -> tuple[int, str] | None:
        """Return the row of labels not seen before.

        None where they name no GPU that can be kept.
        """
        if len(self.example_names) < EXAMPLES_KEPT:
            self.example_names.add(line.partition("{")[0])
        parsed = parse_labels(labels) if len(line) <= LINE_LIMIT else None
        found = read_gpu_labels(parsed, numbered=self._numbered) if parsed is not None else None
        row = self._place_row(found, reading) if found is not None else None
        if found is None or row is None:
            reading.counts.bad += found is None or self._find_name(found) is None
            return None
        if len(self._rows) <= 2 * LABELS_KEPT:
            self._rows[labels] = (row * WIDTH, found.job)
        return (row * WIDTH, found.job)

    def _place_row(self, found: GpuLabels, reading: Exposition) -> int | None:
        """Return the row of a GPU, new or known; None where it cannot be kept."""
        named = self._find_name(found)
        if named is None:
            return None
        if not found.model and found.uuid in self._models:
            found = replace(found, model=self._models[found.uuid])
        host, index = named
        key = (host, index, found.instance)
        row = self._gpus.get(key)
        if row is None:
            if len(self._facts) >= ROWS_LIMIT:
                reading.counts.beyond_limit += 1
                return None
            row = self._gpus[key] = len(self._facts)
            gpu = found.gpu(host, index)
            self._facts.append(gpu)
            self._names.append(gpu.gpu)
            reading.values.extend([NAN] * WIDTH)
        elif _is_better_known(found, self._facts[row]):
            self._facts[row] = keep_capacity(found.gpu(host, index), self._facts[row])
        return row

    def _find_name(self, found: GpuLabels) -> tuple[str, int] | None:
        """Return host and index.

        A series with a UUID alone is placed by an earlier one that had both.
        """
        if found.index is None:
            return self._uuids.get(found.uuid)
        host = found.host if self._trust_labels and found.host else self.host
        host = shorten_name(host) if self._short else host
        if found.uuid and len(self._uuids) < ROWS_LIMIT:
            self._uuids[found.uuid] = (host, found.index)
        return host, found.index

    def _read_other_line(
        self, line: str, hosts: frozenset[str], reading: Exposition, now_ms: int
    ) -> None:
        """Keep a line that is no GPU metric where host metrics are made of it."""
        name = line[:128].partition("{")[0].partition(" ")[0]
        if name not in hosts or len(line) > LINE_LIMIT:
            return
        head, brace, tail = line.rpartition("}")
        labels = head.partition("{")[2] if brace else ""
        value = _parse_slow_value(tail if brace else line[len(name) :], now_ms, reading.counts)
        series = reading.host.setdefault(name, {})
        if value == value and len(series) < HOST_SERIES_LIMIT:
            series[labels] = value
            reading.counts.used += 1

    def _forget(self) -> None:
        """Forget labels that keep changing (pods come and go): they must not fill the memory."""
        self._rows, self._gpus, self._uuids, self._models = {}, {}, {}, {}
        self._facts, self._names = [], []


def _is_better_known(found: GpuLabels, known: Gpu) -> bool:
    """Return whether labels tell the model at last, or name another GPU in the same place."""
    if found.uuid and found.uuid != known.uuid:
        return bool(found.model or not known.model)
    return bool(found.model and not known.model)


def _join_tiles(reading: Exposition) -> None:
    """Make a GPU's value of its tiles', where the exporter states none for the whole."""
    for place, values in reading.tiles.items():
        if reading.values[place] != reading.values[place]:
            join = TILES_JOINED.get(GPU_METRICS[place % WIDTH], fmean)
            reading.values[place] = join(values)


def is_blank(value: float) -> bool:
    """Return whether this is one of the numbers by which DCGM says that it has no value."""
    return value >= _BLANK_FROM and (value >= _BLANK_INT64 or value in _BLANKS)


def _is_best(held: float, rank: int, target: Target) -> bool:
    return held != held or target.rank <= rank


def _parse_slow_value(tail: str, now_ms: int, counts: Counts) -> float:
    """Return value of ``value [time] [# exemplar]``.

    NaN, and counted, where it is none or too old.
    """
    parts = tail.partition("#")[0].split()
    try:
        value = float(parts[0])
        if len(parts) > 1:
            stamp = float(parts[1])
            # OpenMetrics writes seconds, the older format milliseconds.
            time_ms = stamp if abs(stamp) > 1e11 else stamp * 1000
            if abs(now_ms - time_ms) > OLDEST_MS:
                if now_ms > time_ms:
                    counts.old += 1
                else:
                    counts.ahead += 1
                return NAN
    except (ValueError, IndexError, OverflowError):
        counts.bad += 1
        return NAN
    return value


def _add_row(reading: Exposition, at: int) -> list[float]:
    return reading.values[at * WIDTH : (at + 1) * WIDTH]


def _copy_reading(reading: Exposition) -> Exposition:
    reading.gpus, reading.names = list(reading.gpus), list(reading.names)
    return reading


def _keep_only(reading: Exposition, seen: list[bool]) -> Exposition:
    """Return the reading without GPUs that this exposition no longer names."""
    totals = {place // WIDTH for place in reading.totals}
    kept = [at for at, has in enumerate(seen) if has or at in totals]
    new_at = {old: new for new, old in enumerate(kept)}
    return Exposition(
        gpus=[reading.gpus[at] for at in kept],
        names=[reading.names[at] for at in kept],
        values=[value for at in kept for value in _add_row(reading, at)],
        jobs={new_at[at]: jobs for at, jobs in reading.jobs.items() if at in new_at},
        totals={
            new_at[place // WIDTH] * WIDTH + place % WIDTH: total
            for place, total in reading.totals.items()
        },
        host=reading.host,
        counts=reading.counts,
    )

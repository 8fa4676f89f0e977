"""Samples as one table with every moment of an entity once: joined from series and from batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.metrics import Entity
from marey.model.samples import NO_WORKLOAD, SampleBatch

# Milliseconds up to the year 2109; the bits above number the entity.
TIME_BITS = 42
LATEST_MS = (1 << TIME_BITS) - 1
# The server's windows fail where they reach back to 1970 itself; no clock that is set says so.
EARLIEST_MS = 3_600_000

Keys = NDArray[np.int64]


def make_keys(entity: NDArray[np.int32], time_ms: NDArray[np.int64]) -> Keys:
    """Return entity and time as one number that sorts by both."""
    keys: Keys = (entity.astype(np.int64) << TIME_BITS) | time_ms
    return keys


def make_empty_batch(kind: Entity, cluster: str, metrics: Iterable[str] = ()) -> SampleBatch:
    """Return a batch without rows."""
    columns = {metric: np.zeros(0, np.float32) for metric in metrics}
    none = np.zeros(0, np.int32)
    return SampleBatch(
        np.zeros(0, np.int64),
        none,
        (),
        columns=columns,
        kind=kind,
        cluster=cluster,
        workload=none,
        workloads=(),
    )


def take_rows(batch: SampleBatch, rows: NDArray[Any]) -> SampleBatch:
    """Return some rows of a batch, by number or by mask."""
    return replace(
        batch,
        time_ms=batch.time_ms[rows],
        entity=batch.entity[rows],
        columns={name: values[rows] for name, values in batch.columns.items()},
        workload=None if batch.workload is None else batch.workload[rows],
    )


def drop_empty_rows(batch: SampleBatch) -> SampleBatch:
    """Return the rows that have a value at a time that can be kept."""
    filled = np.zeros(len(batch), bool)
    for values in batch.columns.values():
        filled |= ~np.isnan(values)
    filled &= (batch.time_ms >= EARLIEST_MS) & (batch.time_ms <= LATEST_MS)
    return batch if filled.all() else take_rows(batch, filled)


def overlay_batches(batches: Sequence[SampleBatch], kind: Entity, cluster: str) -> SampleBatch:
    """Return batches as one, by entity and time.

    Of several values of a moment the last one counts.
    """
    filled = [batch for batch in batches if len(batch)]
    if not filled:
        metrics = dict.fromkeys(name for batch in batches for name in batch.columns)
        return make_empty_batch(kind, cluster, metrics)
    entities, entity = _join_names([b.entities for b in filled], [b.entity for b in filled])
    held = [np.full(len(b), -1, np.int32) if b.workload is None else b.workload for b in filled]
    workloads, workload = _join_names([b.workloads for b in filled], held)
    time_ms = np.concatenate([batch.time_ms for batch in filled])
    metrics = dict.fromkeys(name for batch in filled for name in batch.columns)
    columns = {name: _collect_column(filled, name) for name in metrics}
    keys = make_keys(entity, time_ms)
    if bool((np.diff(keys) > 0).all()):
        return SampleBatch(
            time_ms,
            entity,
            entities,
            columns=columns,
            kind=kind,
            cluster=cluster,
            workload=workload,
            workloads=workloads,
        )
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    first = np.append(True, last[:-1])
    at, begins = np.flatnonzero(last), np.flatnonzero(first)
    chosen = order[at]
    if len(at) < len(order):
        columns = {n: _find_last_values(v[order], at, begins) for n, v in columns.items()}
    else:
        columns = {name: values[chosen] for name, values in columns.items()}
    return SampleBatch(
        time_ms[chosen],
        entity[chosen],
        entities,
        columns=columns,
        kind=kind,
        cluster=cluster,
        workload=workload[chosen],
        workloads=workloads,
    )


def _find_last_values(
    values: NDArray[np.float32], at: NDArray[np.int64], begins: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return of each run of rows, the last value that is one."""
    numbers = np.where(np.isnan(values), -1, np.arange(len(values)))
    newest = np.maximum.accumulate(numbers)[at]
    found = values[np.maximum(newest, 0)]
    found[newest < begins] = np.nan
    return found


def _collect_column(batches: Sequence[SampleBatch], name: str) -> NDArray[np.float32]:
    parts = [
        batch.columns[name] if name in batch.columns else np.full(len(batch), np.nan, np.float32)
        for batch in batches
    ]
    return np.concatenate(parts)


def _join_names(
    names: Sequence[Sequence[str]], codes: Sequence[NDArray[np.int32]]
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return codes into one tuple of names, each name once."""
    if len(names) == 1 and len(set(names[0])) == len(names[0]):
        return tuple(names[0]), codes[0]
    numbers: dict[str, int] = {}
    parts = []
    for own, code in zip(names, codes, strict=True):
        renamed = np.array([numbers.setdefault(name, len(numbers)) for name in own], np.int32)
        # The last place stands for "none", which is -1.
        parts.append(np.append(renamed, np.int32(NO_WORKLOAD))[code])
    return tuple(numbers), np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class SeriesPart:
    """A stretch of one series as the server gave it."""

    metric: str
    entity: str
    # Which one counts where several have a sample at a moment.
    revision: int
    time_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    workload: str | None = None


@dataclass(frozen=True, slots=True)
class KeyedColumn:
    """The samples of one metric: sorted by key, each key once, with the revision that counts."""

    keys: Keys
    values: NDArray[np.float64]
    revisions: NDArray[np.int64]


def join_column(parts: Sequence[SeriesPart], numbers: dict[str, int]) -> KeyedColumn:
    """Return stretches of one metric joined; the highest revision of a moment counts."""
    placed = sorted(parts, key=lambda part: (numbers[part.entity], part.revision))
    sizes = [len(part.time_ms) for part in placed]
    codes = np.repeat([numbers[part.entity] for part in placed], sizes).astype(np.int32)
    time_ms = np.concatenate([part.time_ms for part in placed])
    values = np.concatenate([part.values for part in placed])
    revisions = np.repeat(np.array([part.revision for part in placed], np.int64), sizes)
    return sort_column(make_keys(codes, time_ms), values, revisions)


def sort_column(
    keys: Keys, values: NDArray[np.float64], revisions: NDArray[np.int64]
) -> KeyedColumn:
    """Return samples in order of key; of several the one with the highest revision."""
    if not bool((np.diff(keys) > 0).all()):
        order = np.lexsort((revisions, keys))
        keys, values, revisions = keys[order], values[order], revisions[order]
        last = np.append(keys[1:] != keys[:-1], True)
        keys, values, revisions = keys[last], values[last], revisions[last]
    return KeyedColumn(keys, values, revisions)


def make_batch_of_series(
    parts: Iterable[SeriesPart], rows_metric: str, kind: Entity, cluster: str
) -> SampleBatch:
    """Return series of metrics and of rows as one batch, by entity and time."""
    by_metric: dict[str, list[SeriesPart]] = {}
    for part in parts:
        by_metric.setdefault(part.metric, []).append(part)
    rows = by_metric.pop(rows_metric, [])
    every = [part for own in (rows, *by_metric.values()) for part in own]
    if not every:
        return make_empty_batch(kind, cluster)
    entities = tuple(sorted({part.entity for part in every}))
    numbers = {name: number for number, name in enumerate(entities)}
    found = {metric: join_column(own, numbers) for metric, own in by_metric.items()}
    workloads = tuple(sorted({part.workload for part in rows if part.workload}))
    held = _find_holders(rows, numbers, workloads)
    return make_batch_of_columns(found, held, Names(entities, workloads, kind, cluster))


@dataclass(frozen=True, slots=True)
class Names:
    """What the codes of columns stand for."""

    entities: tuple[str, ...]
    workloads: tuple[str, ...]
    kind: Entity
    cluster: str


def make_batch_of_columns(
    found: dict[str, KeyedColumn], held: KeyedColumn, names: Names
) -> SampleBatch:
    """Return columns of metrics and of holders as one batch, by entity and time."""
    keys = held.keys
    if any(not _is_within(column.keys, keys) for column in found.values()):
        # A row whose own mark is not visible yet.
        keys = np.unique(np.concatenate([keys, *(column.keys for column in found.values())]))
    columns = {metric: _spread_column(column, keys) for metric, column in found.items()}
    workload = _spread_column(held, keys)
    workload[np.isnan(workload)] = NO_WORKLOAD
    return SampleBatch(
        keys & LATEST_MS,
        (keys >> TIME_BITS).astype(np.int32),
        names.entities,
        columns={metric: values.astype(np.float32) for metric, values in columns.items()},
        kind=names.kind,
        cluster=names.cluster,
        workload=workload.astype(np.int32),
        workloads=names.workloads,
    )


def _find_holders(
    rows: Sequence[SeriesPart], numbers: dict[str, int], workloads: Sequence[str]
) -> KeyedColumn:
    """Return who held the entity at each moment; a row's value is its revision."""
    codes = {name: code for code, name in enumerate(workloads)}
    if not rows:
        none = np.zeros(0, np.int64)
        return KeyedColumn(none, np.zeros(0), none)
    sizes = [len(part.time_ms) for part in rows]
    entity = np.repeat([numbers[part.entity] for part in rows], sizes).astype(np.int32)
    time_ms = np.concatenate([part.time_ms for part in rows])
    revisions = np.concatenate([part.values for part in rows]).astype(np.int64)
    holder = np.repeat([codes.get(part.workload or "", NO_WORKLOAD) for part in rows], sizes)
    return sort_column(make_keys(entity, time_ms), holder.astype(np.float64), revisions)


def _is_within(keys: Keys, among: Keys) -> bool:
    if len(keys) == len(among):
        return bool(np.array_equal(keys, among))
    at = np.searchsorted(among, keys)
    return bool((at < len(among)).all()) and bool((among[at] == keys).all())


def _spread_column(column: KeyedColumn, keys: Keys) -> NDArray[np.float64]:
    if len(column.keys) == len(keys):
        return column.values
    values = np.full(len(keys), np.nan)
    values[np.searchsorted(keys, column.keys)] = column.values
    return values

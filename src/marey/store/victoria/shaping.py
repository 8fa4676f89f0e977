"""Batches on their way in and out: cleaned, cut to a question, laid out for the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.metrics import Entity, catalogue, metric_named
from marey.model.names import NAME_LIMIT, bounded
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.store.columns import Column
from marey.store.queries import Rows
from marey.store.victoria import labels
from marey.store.victoria.grids import empty_batch, rows_of, without_empty


def cleaned(batch: SampleBatch) -> SampleBatch:
    """A batch as it is kept: checked, its names bounded, its rows with a value."""
    batch = batch.checked()
    for codes, names, least in (
        (batch.entity, batch.entities, 0),
        (batch.workload, batch.workloads, -1),
    ):
        if codes is not None and len(codes) and (codes.min() < least or codes.max() >= len(names)):
            raise InvalidInput(
                f"A batch names {int(codes.min())} to {int(codes.max())}; "
                f"it carries names 0 to {len(names) - 1}."
            )
    return without_empty(
        replace(
            batch,
            time_ms=np.ascontiguousarray(batch.time_ms, np.int64),
            entities=_bounded_names(batch.entities, labels.clean_entity),
            workloads=_bounded_names(batch.workloads, bounded),
            cluster=bounded(batch.cluster),
        )
    )


def _bounded_names(names: Sequence[str], clean: Callable[[str], str]) -> tuple[str, ...]:
    kept = tuple(names)
    if all(name.isascii() and len(name) <= NAME_LIMIT and "\x00" not in name for name in kept):
        # The very tuple of the tick before, so that its labels need not be made again.
        return names if isinstance(names, tuple) else kept
    return tuple(clean(name) for name in kept)


def checked_metrics(selection: Selection) -> list[str]:
    """The metrics asked for, or all of this kind; refuses what is not in the catalogue."""
    for name in selection.metrics:
        if metric_named(name).entity is not selection.kind:
            raise InvalidInput(f"'{name}' is not a metric of a {selection.kind}.")
    return list(dict.fromkeys(selection.metrics)) or metrics_of(selection.kind)


def metrics_of(kind: Entity) -> list[str]:
    """Every metric of the catalogue of this kind."""
    return [name for name, metric in catalogue().items() if metric.entity is kind]


def rows_metric_of(kind: Entity) -> str:
    """What the series of rows are called as a metric."""
    return labels.rows_name(kind).removeprefix(labels.PREFIX)


def of_workload(batch: SampleBatch, workload: str | None) -> SampleBatch:
    """The rows that a workload held; None: all."""
    if workload is None:
        return batch
    if batch.workload is None or workload not in batch.workloads:
        return rows_of(batch, np.zeros(len(batch), bool))
    return rows_of(batch, batch.workload == list(batch.workloads).index(workload))


def cut(
    batch: SampleBatch,
    metrics: Sequence[str],
    span: tuple[int, int],
    entities: Sequence[str] | None,
) -> SampleBatch:
    """The part of a batch that a question is about."""
    kept = (batch.time_ms >= span[0]) & (batch.time_ms < span[1])
    if entities is not None:
        wanted = set(entities)
        named = np.array([name in wanted for name in batch.entities], bool)
        kept &= named[batch.entity]
    columns = {name: batch.columns[name] for name in metrics if name in batch.columns}
    return rows_of(replace(batch, columns=columns), kept)


def by_time(batch: SampleBatch) -> SampleBatch:
    """The rows in order of time, then of entity."""
    return rows_of(batch, np.lexsort((batch.entity, batch.time_ms)))


def as_asked(batch: SampleBatch, selection: Selection) -> SampleBatch:
    """The columns that were asked for, in their order, and the cluster by its own name."""
    none = np.full(len(batch), np.nan, np.float32)
    columns = batch.columns
    if selection.metrics:
        columns = {name: batch.columns.get(name, none) for name in dict.fromkeys(selection.metrics)}
    return replace(batch, columns=columns, cluster=selection.cluster)


def laid_out(batch: SampleBatch, columns: list[Column]) -> Rows:
    """The rows as the answers of both stores take them."""
    codes, series = np.unique(batch.entity, return_inverse=True)
    values: dict[str, NDArray[Any]] = {}
    full = set()
    for column in columns:
        stored = pa.chunked_array([column.encode(batch.columns[column.name])])
        values[column.name] = column.stored(stored)
        if not stored.null_count:
            full.add(column.name)
    return Rows(
        series.astype(np.int32),
        np.require(batch.time_ms, requirements="W"),
        codes.astype(np.int32),
        values,
        frozenset(full),
    )


def entity_names(batch: SampleBatch) -> list[str]:
    """The names of the entities that have rows."""
    return [batch.entities[code] for code in np.unique(batch.entity).tolist()]


def newest_rows(batch: SampleBatch) -> SampleBatch:
    """One row per entity: the newest value of each metric, at the time of the newest row."""
    if not len(batch):
        return empty_batch(batch.kind, batch.cluster)
    last = np.append(batch.entity[1:] != batch.entity[:-1], True)
    at = np.flatnonzero(last)
    begins = np.append(0, at[:-1] + 1)
    columns = {}
    for name, values in batch.columns.items():
        numbers = np.where(np.isnan(values), -1, np.arange(len(values)))
        newest = np.maximum.accumulate(numbers)[at]
        found = values[np.maximum(newest, 0)]
        found[newest < begins] = np.nan
        columns[name] = found
    rows = rows_of(replace(batch, columns={}), at)
    return replace(rows, columns=columns)

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
from marey.store.samples.columns import Column
from marey.store.samples.sample_queries import Rows
from marey.store.victoria import labels
from marey.store.victoria.grids import drop_empty_rows, make_empty_batch, take_rows


def clean_batch(batch: SampleBatch) -> SampleBatch:
    """Return a batch as it is kept: checked, its names bounded, its rows with a value."""
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
    return drop_empty_rows(
        replace(
            batch,
            time_ms=np.ascontiguousarray(batch.time_ms, np.int64),
            entities=_limit_names(batch.entities, labels.clean_entity),
            workloads=_limit_names(batch.workloads, bounded),
            cluster=bounded(batch.cluster),
        )
    )


def _limit_names(names: Sequence[str], clean: Callable[[str], str]) -> tuple[str, ...]:
    kept = tuple(names)
    if all(name.isascii() and len(name) <= NAME_LIMIT and "\x00" not in name for name in kept):
        # The very tuple of the tick before, so that its labels need not be made again.
        return names if isinstance(names, tuple) else kept
    return tuple(clean(name) for name in kept)


def check_metrics(selection: Selection) -> list[str]:
    """Return the metrics asked for, or all of this kind; refuses what is not in the catalogue."""
    for name in selection.metrics:
        if metric_named(name).entity is not selection.kind:
            raise InvalidInput(f"'{name}' is not a metric of a {selection.kind}.")
    return list(dict.fromkeys(selection.metrics)) or list_metrics(selection.kind)


def list_metrics(kind: Entity) -> list[str]:
    """Return every metric of the catalogue of this kind."""
    return [name for name, metric in catalogue().items() if metric.entity is kind]


def get_rows_metric(kind: Entity) -> str:
    """Return the metric name of the series of rows."""
    return labels.get_rows_name(kind).removeprefix(labels.PREFIX)


def keep_workload(batch: SampleBatch, workload: str | None) -> SampleBatch:
    """Return the rows that a workload held; None: all."""
    if workload is None:
        return batch
    if batch.workload is None or workload not in batch.workloads:
        return take_rows(batch, np.zeros(len(batch), bool))
    return take_rows(batch, batch.workload == list(batch.workloads).index(workload))


def clip_batch(
    batch: SampleBatch,
    metrics: Sequence[str],
    span: tuple[int, int],
    entities: Sequence[str] | None,
) -> SampleBatch:
    """Return the part of a batch that a question is about."""
    kept = (batch.time_ms >= span[0]) & (batch.time_ms < span[1])
    if entities is not None:
        wanted = set(entities)
        named = np.array([name in wanted for name in batch.entities], bool)
        kept &= named[batch.entity]
    columns = {name: batch.columns[name] for name in metrics if name in batch.columns}
    return take_rows(replace(batch, columns=columns), kept)


def sort_by_time(batch: SampleBatch) -> SampleBatch:
    """Return the rows in order of time, then of entity."""
    return take_rows(batch, np.lexsort((batch.entity, batch.time_ms)))


def select_columns(batch: SampleBatch, selection: Selection) -> SampleBatch:
    """Return the columns that were asked for, in their order, and the cluster by its own name."""
    none = np.full(len(batch), np.nan, np.float32)
    columns = batch.columns
    if selection.metrics:
        columns = {name: batch.columns.get(name, none) for name in dict.fromkeys(selection.metrics)}
    return replace(batch, columns=columns, cluster=selection.cluster)


def make_rows(batch: SampleBatch, columns: list[Column]) -> Rows:
    """Return the rows as the answers of both stores take them."""
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


def list_entities(batch: SampleBatch) -> list[str]:
    """Return the names of the entities that have rows."""
    return [batch.entities[code] for code in np.unique(batch.entity).tolist()]


def find_newest_rows(batch: SampleBatch) -> SampleBatch:
    """Return one row per entity: the newest value of each metric, at the time of the newest row."""
    if not len(batch):
        return make_empty_batch(batch.kind, batch.cluster)
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
    rows = take_rows(replace(batch, columns={}), at)
    return replace(rows, columns=columns)

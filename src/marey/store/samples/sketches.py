"""Old samples as hourly sketches: figures that stay exact, and 101 bins over the metric's range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.answers import SERIES as SERIES_SCHEMA
from marey.model.metrics import Entity, metric_named
from marey.model.times import HOUR_MS
from marey.store.samples import kernels
from marey.store.samples.answers import (
    concatenate_tables,
    count_bins,
    find_whole_runs,
    make_histogram_table,
    make_series,
    make_statistics_table,
)
from marey.store.samples.columns import Column, make_writable
from marey.store.samples.sample_queries import Rows
from marey.store.samples.sample_tables import SampleTables

BINS = 101


def get_bin_range(metric: str) -> tuple[float, float, bool]:
    """Return the outer edges of the bins.

    Their centres are the hundredths of the metric's range.
    """
    known = metric_named(metric)
    half = (known.maximum - known.minimum) / (BINS - 1) / 2
    return known.minimum - half, known.maximum + half, True


def compute_bin_centres(metric: str) -> NDArray[np.float64]:
    """Return the value that each bin stands for."""
    known = metric_named(metric)
    return np.linspace(known.minimum, known.maximum, BINS)


def reduce_span(
    connection: duckdb.DuckDBPyConnection,
    tables: SampleTables,
    kind: Entity,
    span: tuple[int, int],
) -> None:
    """Put sketches in the place of the raw samples of ``[from, to)``, whole hours."""
    where = f"WHERE time_ms >= {span[0]} AND time_ms < {span[1]}"
    columns = list(tables.columns[kind].values())
    names = "".join(f', "{column.name}"' for column in columns)
    table = connection.sql(
        f"SELECT workload, entity, time_ms{names} FROM {kind}_cold {where}"
    ).to_arrow_table()
    if table.num_rows:
        for column in columns:
            sketched = _make_hour_sketches(table, column)
            connection.register("sketched", sketched)
            connection.execute(f"INSERT INTO {kind}_sketches SELECT * FROM sketched")
            connection.unregister("sketched")
    connection.execute(f"DELETE FROM {kind}_cold {where}")
    tables.note_reduced(connection, kind)


def _make_hour_sketches(table: pa.Table, column: Column) -> pa.Table:
    """Return one row per hour, workload and entity that has a value."""
    time_ms = make_writable(table.column("time_ms"))
    workload = table.column("workload").to_numpy()
    entity = table.column("entity").to_numpy()
    series, first = _group_rows(time_ms // HOUR_MS, workload, entity)
    rows = Rows(series, time_ms, entity[first], {column.name: column.stored(table[column.name])})
    runs = find_whole_runs(rows)
    numbers, at = kernels.compute_summary(
        runs, time_ms, rows.values[column.name], column.none, len(first)
    )
    bins, _ = count_bins(rows, column, len(first), bins=BINS, asked=get_bin_range(column.name))
    kept = np.flatnonzero(numbers[:, 1] > 0)
    at, first = at[kept], first[kept]
    values = column.decode(rows.values[column.name])
    hour_ms = time_ms[first] // HOUR_MS * HOUR_MS
    unit = 1.0 if column.type == "FLOAT" else column.resolution
    offsets, packed = kernels.pack_bins(bins[kept])
    return pa.table(
        {
            "hour_ms": hour_ms,
            "workload": workload[first],
            "entity": entity[first],
            "metric": np.full(len(kept), column.code, np.int32),
            "count": numbers[kept, 1].astype(np.int32),
            "missing": (numbers[kept, 0] - numbers[kept, 1]).astype(np.int32),
            "least": values[at[:, 0]],
            "greatest": values[at[:, 1]],
            "sum": numbers[kept, 2] * unit,
            "sum_squares": numbers[kept, 3] * unit * unit,
            "first": values[at[:, 2]],
            "last": values[at[:, 3]],
            **{
                name: (time_ms[at[:, i]] - hour_ms).astype(np.int32)
                for i, name in enumerate(("least_at", "greatest_at", "first_at", "last_at"))
            },
            "bins": pa.Array.from_buffers(
                pa.binary(), len(kept), [None, pa.py_buffer(offsets), pa.py_buffer(packed)]
            ),
        }
    )


def _group_rows(
    hour: NDArray[np.int64], workload: NDArray[np.int32], entity: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the number of each row's (hour, workload, entity), and a row of each."""
    hours = hour - hour.min()
    key = (hours * (int(workload.max()) + 2) + workload + 1) * (int(entity.max()) + 1) + entity
    _, first, series = np.unique(key, return_index=True, return_inverse=True)
    return series.astype(np.int32), first


@dataclass(frozen=True, slots=True)
class Figures:
    """One metric of some entities: exact figures, and counts in 101 bins."""

    codes: NDArray[np.int32]
    # count, missing, sum, sum of squares
    sums: NDArray[np.float64]
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    first_ms: NDArray[np.int64]
    last_ms: NDArray[np.int64]
    last: NDArray[np.float64]
    bins: NDArray[np.int64]


def compute_row_figures(rows: Rows, column: Column) -> Figures:
    """Return figures of raw samples."""
    many = len(rows.codes)
    stored = rows.values[column.name]
    numbers, at = kernels.compute_summary(
        find_whole_runs(rows), rows.time_ms, stored, column.none, many
    )
    bins, _ = count_bins(rows, column, many, bins=BINS, asked=get_bin_range(column.name))
    kept = numbers[:, 1] > 0
    at, numbers = at[kept], numbers[kept]
    values = column.decode(stored).astype(np.float64)
    unit = 1.0 if column.type == "FLOAT" else column.resolution
    sums = np.column_stack(
        [
            numbers[:, 1],
            numbers[:, 0] - numbers[:, 1],
            numbers[:, 2] * unit,
            numbers[:, 3] * unit**2,
        ]
    )
    return Figures(
        rows.codes[kept],
        sums,
        values[at[:, 0]],
        greatest=values[at[:, 1]],
        first_ms=rows.time_ms[at[:, 2]],
        last_ms=rows.time_ms[at[:, 3]],
        last=values[at[:, 3]],
        bins=bins[kept],
    )


def read_sketch_figures(
    connection: duckdb.DuckDBPyConnection, kind: Entity, column: Column, where: str
) -> Figures:
    """Return figures of the sketches that a condition selects."""
    chosen = f"FROM {kind}_sketches WHERE metric = {column.code} AND {where}"
    table = connection.sql(
        "SELECT entity, sum(count)::DOUBLE, sum(missing)::DOUBLE, sum(sum), sum(sum_squares), "
        "min(least)::DOUBLE, max(greatest)::DOUBLE, min(hour_ms + first_at), "
        f"max(hour_ms + last_at), arg_max(last, hour_ms + last_at)::DOUBLE {chosen} "
        "GROUP BY entity ORDER BY entity"
    ).to_arrow_table()
    columns = [c.to_numpy() for c in table.columns]
    codes = columns[0].astype(np.int32)
    packed = connection.sql(f"SELECT entity, bins {chosen}").to_arrow_table()
    bins = np.zeros((len(codes), BINS), np.int64)
    for chunk in packed.to_batches():
        blobs = chunk.column("bins")
        offsets = np.frombuffer(blobs.buffers()[1], np.int32)[blobs.offset :][: len(blobs) + 1]
        data = np.frombuffer(blobs.buffers()[2] or b"", np.uint8)
        series = np.searchsorted(codes, chunk.column("entity").to_numpy())
        kernels.unpack_bins(series, offsets, data, bins)
    sums = np.column_stack(columns[1:5]) if len(codes) else np.zeros((0, 4))
    least, greatest, first_ms, last_ms, last = columns[5:]
    return Figures(
        codes,
        sums,
        least,
        greatest=greatest,
        first_ms=first_ms,
        last_ms=last_ms,
        last=last,
        bins=bins,
    )


def merge_figures(parts: Sequence[Figures]) -> Figures:
    """Return figures of the same metric put together, entity by entity."""
    codes, index = np.unique(np.concatenate([p.codes for p in parts]), return_inverse=True)
    many = len(codes)
    sums, bins = np.zeros((many, 4)), np.zeros((many, BINS), np.int64)
    least, greatest = np.full(many, np.inf), np.full(many, -np.inf)
    first_ms = np.full(many, np.iinfo(np.int64).max)
    last_ms, last = np.full(many, -1, np.int64), np.zeros(many)
    start = 0
    for part in parts:
        at = index[start : start + len(part.codes)]
        start += len(part.codes)
        np.add.at(sums, at, part.sums)
        np.add.at(bins, at, part.bins)
        np.minimum.at(least, at, part.least)
        np.maximum.at(greatest, at, part.greatest)
        np.minimum.at(first_ms, at, part.first_ms)
        newer = part.last_ms >= last_ms[at]
        last_ms[at[newer]], last[at[newer]] = part.last_ms[newer], part.last[newer]
    return Figures(
        codes,
        sums,
        least,
        greatest=greatest,
        first_ms=first_ms,
        last_ms=last_ms,
        last=last,
        bins=bins,
    )


def compute_statistics_from_figures(
    figures: Figures, metric: str, names: list[str], quantiles: NDArray[np.float64]
) -> pa.Table:
    """Return statistics.

    All exact but the quantiles, which are right to a hundredth of the range.
    """
    count = figures.sums[:, 0]
    mean = figures.sums[:, 2] / count
    variance = np.maximum(figures.sums[:, 3] / count - mean**2, 0.0)
    found = _estimate_quantiles(figures, metric, quantiles)
    return make_statistics_table(
        names,
        metric,
        {
            "count": count.astype(np.int64),
            "min": figures.least,
            "max": figures.greatest,
            "mean": mean,
            "std": np.sqrt(variance),
            "first_ms": figures.first_ms,
            "last_ms": figures.last_ms,
            "last": figures.last,
        },
        found,
    )


def _estimate_quantiles(
    figures: Figures, metric: str, quantiles: NDArray[np.float64]
) -> NDArray[np.float64]:
    centres = compute_bin_centres(metric)
    counted: NDArray[np.float64] = kernels.compute_quantiles_of_steps(
        figures.bins.astype(np.int32), 0, quantiles
    )
    values = centres[0] + counted * (centres[1] - centres[0])
    clipped: NDArray[np.float64] = np.clip(
        values, figures.least[:, None], figures.greatest[:, None]
    )
    return clipped


def make_histograms_from_figures(
    figures: Figures, metric: str, names: list[str], *, bins: int, asked: tuple[float, float, bool]
) -> pa.Table:
    """Return histograms in which each of the 101 bins counts where its centre lies."""
    low, high, clip = asked
    edges = np.linspace(low, high, bins + 1)
    centres = compute_bin_centres(metric)
    place = np.searchsorted(edges, centres, side="right") - 1
    place[centres == high] = bins - 1
    if clip:
        place = np.clip(place, 0, bins - 1)
    counts = np.zeros((len(names), bins), np.int64)
    for source, target in enumerate(place):
        if 0 <= target < bins:
            counts[:, target] += figures.bins[:, source]
    return make_histogram_table(
        names, metric, asked, counts=counts, missing=figures.sums[:, 1].astype(np.int64)
    )


def read_reduced_series(
    connection: duckdb.DuckDBPyConnection,
    kind: Entity,
    column: Column,
    *,
    where: str,
    raw: Sequence[Rows],
    names: Any,
    points: int,
) -> pa.Table:
    """Return the first, least, greatest and last sample of each hour, with the raw ones that
    follow.
    """
    pieces = [
        f"SELECT entity, hour_ms + {name}_at AS time_ms, {name} AS value FROM chosen"
        for name in ("first", "least", "greatest", "last")
    ]
    table = connection.sql(
        f"WITH chosen AS (SELECT * FROM {kind}_sketches WHERE metric = {column.code} AND {where}) "
        f"SELECT DISTINCT * FROM ({' UNION ALL '.join(pieces)})"
    ).to_arrow_table()
    entity = [table["entity"].to_numpy(), *(rows.codes[rows.series] for rows in raw)]
    time_ms = np.concatenate([table["time_ms"].to_numpy(), *(rows.time_ms for rows in raw)])
    values = [table["value"].to_numpy(), *(column.decode(r.values[column.name]) for r in raw)]
    codes = np.concatenate(entity).astype(np.int32)
    if not len(codes):
        return concatenate_tables((), SERIES_SCHEMA)
    series, dense = kernels.make_dense_codes(codes, int(codes.max()) + 1)
    plain = Column(column.name, column.code, "FLOAT", 1.0)
    rows = Rows(series, time_ms, dense, {column.name: np.concatenate(values)})
    return make_series(rows, [plain], names(dense), points)

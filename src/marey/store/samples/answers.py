"""The three questions of charts: downsampled series, histograms, exact statistics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.answers import HISTOGRAMS, SERIES, STATISTICS
from marey.model.errors import InvalidInput
from marey.model.metrics import metric_named
from marey.store.samples import kernels
from marey.store.samples.columns import Column
from marey.store.samples.sample_queries import Rows

# Cells (series × steps) up to which quantiles are found by counting instead of sorting.
_COUNTED_CELLS = 8_000_000
BINS_LIMIT = 10_000


def concatenate_tables(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return parts of an answer as one table."""
    parts = [part for part in tables if part.num_rows]
    if len(parts) <= 1:
        return parts[0] if parts else schema.empty_table()
    return pa.concat_tables(parts).unify_dictionaries()


def make_series(rows: Rows, columns: list[Column], names: list[str], points: int) -> pa.Table:
    """Return per entity and metric at most ``points`` of its samples, extremes among them."""
    span = np.array([rows.time_ms.min(), rows.time_ms.max() + 1], np.int64)
    runs = kernels.find_segments(rows.series, rows.time_ms, span, points // 4, len(names))
    each = np.bincount(rows.series, minlength=len(names))

    def downsample(column: Column) -> NDArray[np.int64]:
        values = rows.values[column.name]
        counts = each
        if column.name not in rows.full:
            counts = kernels.count_values(rows.series, values, column.none, len(names))
        kept: NDArray[np.int64] = kernels.downsample(
            runs, rows.series, rows.time_ms, values, column.none, counts, points
        )
        return kept if (counts > points).all() else _sort_rows(rows, kept)

    kept = list(_run_side_by_side(downsample, columns))
    ends = np.cumsum([len(own) for own in kept])
    out = (
        np.empty(ends[-1], np.int32),
        np.empty(ends[-1], np.int64),
        np.empty(ends[-1], np.float32),
    )
    for column, own, end in zip(columns, kept, ends, strict=True):
        part = tuple(array[end - len(own) : end] for array in out)
        unit = 1.0 if column.type == "FLOAT" else column.resolution
        kernels.gather(own, rows.series, rows.time_ms, rows.values[column.name], unit, part)
    metric = np.repeat(np.arange(len(columns), dtype=np.int32), [len(own) for own in kept])
    return pa.table(
        [
            pa.DictionaryArray.from_arrays(out[0], pa.array(names), safe=False),
            pa.DictionaryArray.from_arrays(metric, pa.array([c.name for c in columns]), safe=False),
            pa.array(out[1]),
            pa.array(out[2]),
        ],
        schema=SERIES,
    )


def _sort_rows(rows: Rows, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    return kept[np.lexsort((rows.time_ms[kept], rows.series[kept]))]


def _run_side_by_side(
    work: Callable[[Column], NDArray[np.int64]], columns: list[Column]
) -> Iterable[NDArray[np.int64]]:
    """Return the work of every column, on as many cores as there are.

    The kernels let go of the GIL.
    """
    if len(columns) == 1:
        return [work(columns[0])]
    return _get_workers().map(work, columns)


@cache
def _get_workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1)), "marey-charts")


def check_ranges(
    columns: list[Column], bins: int, ranges: Sequence[tuple[float, float]]
) -> dict[str, tuple[float, float, bool]]:
    """Return low, high and whether values outside belong to the outermost bins, by metric."""
    if not 1 <= bins <= BINS_LIMIT:
        raise InvalidInput(f"A histogram has {bins} bins; allowed: 1 to {BINS_LIMIT}.")
    if ranges and len(ranges) != len(columns):
        raise InvalidInput(
            f"{len(ranges)} ranges for {len(columns)} metrics; give one for each, or none."
        )
    checked = {}
    for index, column in enumerate(columns):
        metric = metric_named(column.name)
        # Sensors err a little beyond a metric's own range; a range that was asked for is meant.
        low, high = ranges[index] if ranges else (metric.minimum, metric.maximum)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise InvalidInput(f"The range of {column.name} is {low} to {high}; low must be less.")
        checked[column.name] = (float(low), float(high), not ranges)
    return checked


def make_histograms(
    rows: Rows,
    columns: list[Column],
    names: list[str],
    *,
    bins: int,
    ranges: dict[str, tuple[float, float, bool]],
) -> pa.Table:
    """Return counts per entity and metric over equal bins."""
    parts = []
    for column in columns:
        counts, missing = count_bins(rows, column, len(names), bins=bins, asked=ranges[column.name])
        parts.append(
            make_histogram_table(
                names, column.name, ranges[column.name], counts=counts, missing=missing
            )
        )
    return pa.concat_tables(parts)


def count_bins(
    rows: Rows, column: Column, many: int, *, bins: int, asked: tuple[float, float, bool]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return counts per series and bin, and rows without a value."""
    low, high, clip = asked
    values = rows.values[column.name]
    edges = np.linspace(low, high, bins + 1)
    if column.type == "FLOAT":
        counts, missing = kernels.count_bins_of_values(rows.series, values, edges, clip, many)
        return counts, missing
    bounds = _find_bounds(values, column.none)
    if bounds is None:
        return np.zeros((many, bins), np.int64), np.bincount(rows.series, minlength=many)
    steps = np.arange(bounds[0], bounds[1] + 1)
    exact = steps * column.resolution
    # A step whose product falls a rounding error below an edge belongs above it.
    place = np.searchsorted(edges, exact + 1e-9 * column.resolution, side="right") - 1
    place[np.isclose(exact, high, rtol=0, atol=1e-9 * column.resolution)] = bins - 1
    place = np.clip(place, 0, bins - 1) if clip else place
    place[(place < 0) | (place >= bins)] = -1
    counts, missing = kernels.count_bins_of_steps(
        rows.series, values, column.none, bounds[0], place, (many, bins)
    )
    return counts, missing


def make_histogram_table(
    names: list[str],
    metric: str,
    asked: tuple[float, float, bool],
    *,
    counts: NDArray[np.int64],
    missing: NDArray[np.int64],
) -> pa.Table:
    """Return one metric's histograms as a table."""
    many, bins = counts.shape
    offsets = pa.array(np.arange(0, many * bins + 1, bins, dtype=np.int32))
    return pa.table(
        [
            pa.array(names, pa.string()),
            pa.array([metric] * many, pa.string()),
            pa.array(np.full(many, asked[0])),
            pa.array(np.full(many, asked[1])),
            pa.ListArray.from_arrays(offsets, pa.array(counts.ravel())),
            pa.array(missing),
        ],
        schema=HISTOGRAMS,
    )


def _find_bounds(values: NDArray[Any], none: Any) -> tuple[int, int] | None:
    if not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    if low == none:
        there = values[values != none]
        if not len(there):
            return None
        low = int(there.min())
    return low, high


def compute_statistics(
    rows: Rows, columns: list[Column], names: list[str], quantiles: NDArray[np.float64]
) -> pa.Table:
    """Return exact statistics per entity and metric; a metric without a value has no row."""
    runs = find_whole_runs(rows)
    return pa.concat_tables(
        [
            _compute_column_statistics(rows, runs, c, names=names, quantiles=quantiles)
            for c in columns
        ]
    )


def find_whole_runs(rows: Rows) -> Any:
    """Return runs of rows of one series in order of time."""
    span = np.array([0, np.iinfo(np.int64).max // 2], np.int64)
    return kernels.find_segments(rows.series, rows.time_ms, span, 1, len(rows.codes))


def _compute_column_statistics(
    rows: Rows, runs: Any, column: Column, *, names: list[str], quantiles: NDArray[np.float64]
) -> pa.Table:
    values = rows.values[column.name]
    numbers, at = kernels.compute_summary(runs, rows.time_ms, values, column.none, len(names))
    there = numbers[:, 1] > 0
    quantile = _compute_quantiles(rows, column, numbers[:, 1].astype(np.int64), quantiles)
    unit = 1.0 if column.type == "FLOAT" else column.resolution
    at = at[there]
    count, total, squares = numbers[there, 1], numbers[there, 2], numbers[there, 3]
    mean = total / count
    variance = np.maximum(squares / count - mean * mean, 0.0)
    return make_statistics_table(
        [name for name, kept in zip(names, there, strict=True) if kept],
        column.name,
        {
            "count": count.astype(np.int64),
            "min": values[at[:, 0]] * unit,
            "max": values[at[:, 1]] * unit,
            "mean": mean * unit,
            "std": np.sqrt(variance) * unit,
            "first_ms": rows.time_ms[at[:, 2]],
            "last_ms": rows.time_ms[at[:, 3]],
            "last": values[at[:, 3]] * unit,
        },
        quantile[there] * unit,
    )


def make_statistics_table(
    names: list[str],
    metric: str,
    figures: dict[str, NDArray[Any]],
    quantiles: NDArray[np.float64],
) -> pa.Table:
    """Return one metric's statistics as a table."""
    many, each = quantiles.shape
    offsets = pa.array(np.arange(many + 1, dtype=np.int32) * each)
    arrays = {
        "entity": pa.array(names, pa.string()),
        "metric": pa.array([metric] * many, pa.string()),
        "quantiles": pa.ListArray.from_arrays(offsets, pa.array(quantiles.ravel(), pa.float64())),
    }
    arrays |= {name: pa.array(figure) for name, figure in figures.items()}
    return pa.table([arrays[f.name].cast(f.type) for f in STATISTICS], schema=STATISTICS)


def _compute_quantiles(
    rows: Rows, column: Column, counts: NDArray[np.int64], quantiles: NDArray[np.float64]
) -> NDArray[np.float64]:
    values = rows.values[column.name]
    found: NDArray[np.float64]
    if not len(quantiles):
        return np.zeros((len(counts), 0))
    if column.type != "FLOAT":
        bounds = _find_bounds(values, column.none)
        if bounds is not None and (bounds[1] - bounds[0] + 1) * len(counts) <= _COUNTED_CELLS:
            steps = kernels.count_steps(
                rows.series, values, column.none, bounds[0], bounds[1] - bounds[0] + 1, len(counts)
            )
            found = kernels.compute_quantiles_of_steps(steps, bounds[0], quantiles)
            return found
    starts, together = kernels.group_values(rows.series, values, column.none, counts)
    found = np.full((len(counts), len(quantiles)), np.nan)
    for one in np.flatnonzero(counts):
        found[one] = np.quantile(
            together[starts[one] : starts[one + 1]].astype(np.float64), quantiles
        )
    return found

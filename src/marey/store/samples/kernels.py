"""One pass over stored values: extremes per bucket, counts per bin, statistics, exact quantiles.

``series`` numbers the entity of each row; ``none`` (or NaN) stands for no value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def make_dense_codes(codes: NDArray[np.int32], top: int) -> tuple[Any, Any]:
    """Return codes renumbered 0, 1, 2, … and the code of each number."""
    number = np.full(top, -1, np.int32)
    for code in codes:
        number[code] = 0
    names = np.empty(top, np.int32)
    count = 0
    for code in range(top):
        if number[code] == 0:
            number[code] = count
            names[count] = code
            count += 1
    series = np.empty(len(codes), np.int32)
    for row in range(len(codes)):
        series[row] = number[codes[row]]
    return series, names[:count]


@njit(cache=True, nogil=True)
def count_values(series: Any, values: Any, none: Any, many: int) -> Any:
    """Return how many values each series has."""
    counts = np.zeros(many, np.int64)
    for row in range(len(values)):
        value = values[row]
        if value == value and value != none:
            counts[series[row]] += 1
    return counts


@njit(cache=True, nogil=True)
def find_segments(series: Any, time_ms: Any, span: Any, buckets: int, many: int) -> Any:
    """Find runs of rows of one series and bucket in order of time: where each starts, and its cell.

    The third answer is whether the rows of every series lie in order of time.

    Rows lie in the file by entity and time, so runs are long, and what is found once per run
    need not be found for every row and metric.
    """
    from_ms, width = span[0], span[1] - span[0]
    starts = np.empty(len(series) + 1, np.int64)
    cells = np.empty(len(series), np.int64)
    size = 0
    ordered = True
    newest = np.full(many, np.iinfo(np.int64).min, np.int64)
    one, last, until = -1, np.int64(0), np.int64(0)
    for row in range(len(series)):
        now = time_ms[row]
        if series[row] == one and last <= now < until:
            last = now
            continue
        if one >= 0:
            newest[one] = max(newest[one], last)
        one, last = series[row], now
        ordered = ordered and now >= newest[one]
        bucket = (now - from_ms) * buckets // width
        # The first time of the next bucket: its exact quotient, rounded up.
        until = from_ms + ((bucket + 1) * width + buckets - 1) // buckets
        starts[size] = row
        cells[size] = one * buckets + bucket
        size += 1
    starts[size] = len(series)
    return starts[: size + 1], cells[:size], ordered


@njit(cache=True, nogil=True)
def _find_bucket_rows(
    runs: Any, time_ms: Any, values: Any, none: Any, counts: Any, points: int
) -> Any:
    """Return rows of the first, least, greatest and last value per series and bucket.

    -1 for none.
    """
    starts, cells, _ = runs
    buckets = points // 4
    kept = np.full((len(counts), buckets, 4), -1, np.int32)
    for run in range(len(cells)):
        one, bucket = cells[run] // buckets, cells[run] % buckets
        if counts[one] <= points:
            continue
        first, least, greatest, last = _run_extremes(values, none, starts[run], starts[run + 1])
        if first < 0:
            continue
        cell = kept[one, bucket]
        if cell[0] < 0:
            cell[0], cell[1], cell[2], cell[3] = first, least, greatest, last
            continue
        if time_ms[first] < time_ms[cell[0]]:
            cell[0] = first
        if values[least] < values[cell[1]]:
            cell[1] = least
        if values[greatest] > values[cell[2]]:
            cell[2] = greatest
        if time_ms[last] > time_ms[cell[3]]:
            cell[3] = last
    return kept


@njit(cache=True, nogil=True)
def _run_extremes(values: Any, none: Any, start: int, stop: int) -> Any:
    """Return rows of the first, least, greatest and last value of a run; -1 where it has none."""
    first = start
    while first < stop and (values[first] == none or values[first] != values[first]):
        first += 1
    if first == stop:
        return -1, -1, -1, -1
    least = greatest = last = first
    low = high = values[first]
    for row in range(first + 1, stop):
        value = values[row]
        if value == none or value != value:
            continue
        last = row
        if value < low:
            low, least = value, row
        elif value > high:
            high, greatest = value, row
    return first, least, greatest, last


@njit(cache=True, nogil=True)
def _list_few_rows(series: Any, values: Any, none: Any, counts: Any, points: int) -> Any:
    """Return rows of the series that have no more values than points, series by series."""
    starts = np.zeros(len(counts) + 1, np.int64)
    for one in range(len(counts)):
        starts[one + 1] = starts[one] + (counts[one] if counts[one] <= points else 0)
    at = starts[:-1].copy()
    rows = np.empty(starts[-1], np.int64)
    for row in range(len(values)):
        value = values[row]
        one = series[row]
        if value == value and value != none and counts[one] <= points:
            rows[at[one]] = row
            at[one] += 1
    return starts, rows


@njit(cache=True, nogil=True)
def downsample(
    runs: Any, series: Any, time_ms: Any, values: Any, none: Any, counts: Any, points: int
) -> Any:
    """Return the rows to keep: all of a series where they are few, else each bucket's extremes.

    By series, and within it in order of time, except that few rows come as they lie.
    """
    kept = _find_bucket_rows(runs, time_ms, values, none, counts, points)
    starts = np.zeros(len(counts) + 1, np.int64)
    few = np.empty(0, np.int64)
    if (counts <= points).any():
        starts, few = _list_few_rows(series, values, none, counts, points)
    out = np.empty(starts[-1] + kept.size, np.int64)
    size = 0
    for one in range(len(counts)):
        for index in range(starts[one], starts[one + 1]):
            out[size] = few[index]
            size += 1
        if counts[one] > points:
            size = _emit(out, size, kept[one], time_ms, runs[2])
    return out[:size]


@njit(cache=True, nogil=True)
def _emit(out: Any, size: int, cells: Any, time_ms: Any, ordered: bool) -> int:
    """Add the distinct rows of a series' cells in order of time."""
    for bucket in range(len(cells)):
        first, low = cells[bucket, 0], cells[bucket, 1]
        high, last = cells[bucket, 2], cells[bucket, 3]
        if first < 0:
            continue
        # Where rows lie in order of time, their numbers tell it without a look at the times.
        if (low > high) if ordered else (time_ms[low] > time_ms[high]):
            low, high = high, low
        out[size] = first
        size += 1
        if low != first and low != last:
            out[size] = low
            size += 1
        if high != first and high != last and high != low:
            out[size] = high
            size += 1
        if last != first:
            out[size] = last
            size += 1
    return size


@njit(cache=True, nogil=True)
def gather(rows: Any, series: Any, time_ms: Any, values: Any, unit: float, out: Any) -> None:
    """Gather series, time and value of the rows into the three columns of an answer."""
    for index in range(len(rows)):
        row = rows[index]
        out[0][index] = series[row]
        out[1][index] = time_ms[row]
        out[2][index] = np.float32(values[row]) * np.float32(unit)


@njit(cache=True, nogil=True)
def compute_summary(runs: Any, time_ms: Any, values: Any, none: Any, many: int) -> Any:
    """Return per series.

    Rows, count, sums, and the rows of least, greatest, first and last value.
    """
    starts, cells, _ = runs
    numbers = np.zeros((many, 4), np.float64)
    rows = np.full((many, 4), -1, np.int64)
    for run in range(len(cells)):
        start, stop = starts[run], starts[run + 1]
        number = numbers[cells[run]]
        number[0] += stop - start
        first, least, greatest, last = _run_extremes(values, none, start, stop)
        if first < 0:
            continue
        count, total, squares = 0, 0.0, 0.0
        for row in range(first, last + 1):
            value = values[row]
            if value == none or value != value:
                continue
            exact = np.float64(value)
            count += 1
            total += exact
            squares += exact * exact
        number[1] += count
        number[2] += total
        number[3] += squares
        at = rows[cells[run]]
        if at[0] < 0:
            at[0], at[1], at[2], at[3] = least, greatest, first, last
            continue
        if values[least] < values[at[0]]:
            at[0] = least
        if values[greatest] > values[at[1]]:
            at[1] = greatest
        if time_ms[first] < time_ms[at[2]]:
            at[2] = first
        if time_ms[last] > time_ms[at[3]]:
            at[3] = last
    return numbers, rows


@njit(cache=True, nogil=True)
def count_steps(series: Any, values: Any, none: Any, low: int, steps: int, many: int) -> Any:
    """Return how often each series has each stored integer from ``low`` on."""
    counts = np.zeros((many, steps), np.int32)
    for row in range(len(values)):
        value = values[row]
        if value != none:
            counts[series[row], value - low] += 1
    return counts


@njit(cache=True, nogil=True)
def compute_quantiles_of_steps(counts: Any, low: int, quantiles: Any) -> Any:
    """Return exact quantiles (linear between neighbours) of integers that were counted."""
    found = np.full((counts.shape[0], len(quantiles)), np.nan)
    for one in range(counts.shape[0]):
        total = counts[one].sum()
        if total == 0:
            continue
        for index in range(len(quantiles)):
            place = (total - 1) * quantiles[index]
            below: Any = np.int64(np.floor(place))
            seen, step = 0, -1
            while seen <= below:
                step += 1
                seen += counts[one, step]
            left = step
            while seen <= below + 1 and step + 1 < counts.shape[1] and below + 1 < total:
                if seen > below + 1:
                    break
                step += 1
                seen += counts[one, step]
            found[one, index] = low + left + (step - left) * (place - below)
    return found


@njit(cache=True, nogil=True)
def group_values(series: Any, values: Any, none: Any, counts: Any) -> Any:
    """Return the values series after series, and where each series starts."""
    starts = np.zeros(len(counts) + 1, np.int64)
    starts[1:] = np.cumsum(counts)
    at = starts[:-1].copy()
    together = np.empty(starts[-1], values.dtype)
    for row in range(len(values)):
        value = values[row]
        if value == value and value != none:
            together[at[series[row]]] = value
            at[series[row]] += 1
    return starts, together


@njit(cache=True, nogil=True)
def count_bins_of_steps(
    series: Any, values: Any, none: Any, low: int, bin_of: Any, shape: Any
) -> Any:
    """Return counts per series and bin of stored integers, by a table from integer to bin."""
    counts = np.zeros(shape, np.int64)
    missing = np.zeros(shape[0], np.int64)
    for row in range(len(values)):
        value = values[row]
        if value == none:
            missing[series[row]] += 1
            continue
        place = bin_of[value - low]
        if place >= 0:
            counts[series[row], place] += 1
    return counts, missing


@njit(cache=True, nogil=True)
def count_bins_of_values(series: Any, values: Any, edges: Any, clip: bool, many: int) -> Any:
    """Return counts per series and bin of floats; the last bin holds its upper edge too."""
    bins = len(edges) - 1
    counts = np.zeros((many, bins), np.int64)
    missing = np.zeros(many, np.int64)
    for row in range(len(values)):
        value = np.float64(values[row])
        if value != value:
            missing[series[row]] += 1
            continue
        place: Any = np.searchsorted(edges, value, side="right") - 1
        if value == edges[bins]:
            place = bins - 1
        if clip:
            place = min(max(place, 0), bins - 1)
        if 0 <= place < bins:
            counts[series[row], place] += 1
    return counts, missing


@njit(cache=True, nogil=True)
def pack_bins(bins: Any) -> Any:
    """Return counts as bytes: for each filled bin its number, then its count in two bytes."""
    filled = 0
    for one in range(bins.shape[0]):
        for place in range(bins.shape[1]):
            if bins[one, place] > 0:
                filled += 1
    offsets = np.zeros(bins.shape[0] + 1, np.int32)
    data = np.empty(filled * 3, np.uint8)
    size = 0
    for one in range(bins.shape[0]):
        for place in range(bins.shape[1]):
            # An hour has no more than 65,535 samples unless they come faster than 18 a second.
            count = min(bins[one, place], 65_535)
            if count > 0:
                data[size] = place
                data[size + 1] = count & 255
                data[size + 2] = count >> 8
                size += 3
        offsets[one + 1] = size
    return offsets, data


@njit(cache=True, nogil=True)
def unpack_bins(series: Any, offsets: Any, data: Any, bins: Any) -> None:
    """Add packed counts to the bins of their series."""
    for row in range(len(series)):
        for at in range(offsets[row], offsets[row + 1] - 2, 3):
            bins[series[row], data[at]] += np.int64(data[at + 1]) + 256 * np.int64(data[at + 2])

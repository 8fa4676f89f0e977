"""Pictures of many ranks: each cell holds the kind that fills it, and how far its ranks deviate.

A cell covers some ranks and a stretch of time. Its kind is the one that fills most of it, its level
how much (0 to 15), its deviation the largest share of the stretch, over the ranks it covers, in
which a rank shows something else than most ranks of its stage. A deviation is never averaged away:
merging takes the largest.

Windows of many intervals come from a pyramid: shares of the kinds on a fixed grid of rows and
times, halved in time from level to level. A window from the pyramid is aligned to its grid, so that
cells are sums of whole bins and as exact as those from the intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.trace.views.surfaces import Surface
from marey.trace.views.view_kinds import FIRST_IDLE, KIND_COUNT

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
LEVELS = 15
MAGIC = b"MCEL"
VERSION = 1
FROM_PYRAMID = 1
HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u2"),
        ("planes", "<u2"),
        ("rows", "<u4"),
        ("columns", "<u4"),
        ("from_ns", "<i8"),
        ("to_ns", "<i8"),
        ("ranks", "<u4"),
        ("flags", "<u4"),
    ]
)
# Rows and bins of the finest level of a pyramid.
PYRAMID_ROWS = 1024
PYRAMID_BINS = 16384


@dataclass(frozen=True)
class StepSurfaces:
    """The surfaces of every rank of a step, and what most ranks of each stage show."""

    # Rank i has pieces[offsets[i]:offsets[i+1]]; its reference is
    # references[of_rank[i]:of_rank[i]+1].
    pieces: Surface
    offsets: Ints
    reference_pieces: Surface
    reference_offsets: Ints
    reference_of: Ints
    # Ticks of the whole step.
    span: int


@dataclass(frozen=True)
class CellWindow:
    """What a picture shows, in ticks of the step, and its size in cells."""

    start: int
    end: int
    columns: int
    rows: int


@dataclass(frozen=True)
class Cells:
    """A picture: two planes of rows × columns, and which ranks each row covers."""

    window: CellWindow
    kinds: Bytes
    deviation: Bytes
    # Positions in the order asked for: row r covers bounds[r] … bounds[r + 1] - 1.
    bounds: NDArray[np.uint32]
    from_pyramid: bool

    def encode(self, unit_ns: int) -> bytes:
        """Return the picture as it travels; docs/traces-api.md describes the layout."""
        rows, columns = self.kinds.shape
        window = self.window
        covered = int(self.bounds[-1]) if len(self.bounds) else 0
        flags = FROM_PYRAMID if self.from_pyramid else 0
        span = (window.start * unit_ns, window.end * unit_ns)
        facts = (MAGIC, VERSION, 2, rows, columns, *span, covered, flags)
        head = np.array([facts], HEADER).tobytes()
        planes = (self.bounds.astype("<u4"), self.kinds, self.deviation)
        return head + b"".join(np.ascontiguousarray(plane).tobytes() for plane in planes)


def row_bounds(count: int, rows: int) -> Ints:
    """Return where each of ``rows`` rows begins among ``count`` ranks, and where the last ends."""
    rows = max(1, min(rows, count))
    return np.arange(rows + 1, dtype=np.int64) * count // rows


def _fill_rows(
    surfaces: StepSurfaces,
    members: Ints,
    grid: tuple[Ints, NDArray[np.float64]],
    *,
    kinds: Bytes,
    deviation: Bytes,
    shares: Bytes,
) -> None:
    """Fill a grid, given by the bounds of its rows and the edges of its columns."""
    pieces, references = surfaces.pieces, surfaces.reference_pieces
    _fill(
        pieces["start"],
        pieces["end"],
        pieces["kind"],
        surfaces.offsets,
        references["start"],
        references["end"],
        references["kind"],
        surfaces.reference_offsets,
        surfaces.reference_of,
        members,
        *grid,
        kinds,
        deviation,
        shares,
        FIRST_IDLE,
    )


def draw_cells(surfaces: StepSurfaces, members: Ints, window: CellWindow) -> Cells:
    """Return the picture of these ranks (numbers of surfaces, in order) straight from intervals."""
    bounds = row_bounds(len(members), window.rows)
    edges = np.linspace(window.start, window.end, window.columns + 1)
    kinds = np.zeros((len(bounds) - 1, window.columns), np.uint8)
    deviation = np.zeros_like(kinds)
    shares = np.zeros((1, 1, KIND_COUNT), np.uint8)
    _fill_rows(surfaces, members, (bounds, edges), kinds=kinds, deviation=deviation, shares=shares)
    return Cells(window, kinds, deviation, bounds.astype(np.uint32), False)


@dataclass(frozen=True)
class Pyramid:
    """Shares of kinds (0 to 255) and deviations on a grid, in one order of ranks; level 0
    finest.
    """

    bounds: Ints
    shares: tuple[Bytes, ...]
    deviations: tuple[Bytes, ...]
    span: int


def build_pyramid(surfaces: StepSurfaces, members: Ints, *, bins: int = PYRAMID_BINS) -> Pyramid:
    """Return the pyramid of these ranks in this order."""
    bounds = row_bounds(len(members), PYRAMID_ROWS)
    edges = np.linspace(0, surfaces.span, bins + 1)
    rows = len(bounds) - 1
    shares = np.zeros((rows, bins, KIND_COUNT), np.uint8)
    deviation = np.zeros((rows, bins), np.uint8)
    nothing = np.zeros((0, 0), np.uint8)
    _fill_rows(
        surfaces, members, (bounds, edges), kinds=nothing, deviation=deviation, shares=shares
    )
    levels, deviations = [shares], [deviation]
    while levels[-1].shape[1] > 1024:
        levels.append(_halve(levels[-1]))
        deviations.append(_halve_deviation(deviations[-1]))
    return Pyramid(bounds, tuple(levels), tuple(deviations), surfaces.span)


def draw_from_pyramid(pyramid: Pyramid, window: CellWindow, first: int, last: int) -> Cells | None:
    """Return the picture of positions ``first … last - 1``; None where the grid is too coarse for
    it.
    """
    level = _choose_level(pyramid, window)
    low = int(np.searchsorted(pyramid.bounds, first, side="right")) - 1
    high = int(np.searchsorted(pyramid.bounds, last, side="left"))
    if level is None or (high - low) < min(window.rows, last - first) // 2:
        return None
    bins = pyramid.shares[level].shape[1]
    width = pyramid.span / bins
    begin = max(0, int(window.start / width))
    end = min(bins, int(np.ceil(window.end / width)))
    joined = max(1, -(-(high - low) // max(window.rows, 1)))
    rows = np.append(np.arange(low, high, joined), high)
    kinds = np.zeros((len(rows) - 1, end - begin), np.uint8)
    deviation = np.zeros_like(kinds)
    _merge_rows(
        pyramid.shares[level],
        pyramid.deviations[level],
        rows,
        begin,
        pyramid.bounds,
        kinds,
        deviation,
    )
    shown = CellWindow(round(begin * width), round(end * width), end - begin, len(rows) - 1)
    bounds = (pyramid.bounds[rows] - pyramid.bounds[low]).astype(np.uint32)
    return Cells(shown, kinds, deviation, bounds, True)


def _choose_level(pyramid: Pyramid, window: CellWindow) -> int | None:
    """Return the coarsest level with at least a bin per column, or None."""
    share = max(window.end - window.start, 1) / max(pyramid.span, 1)
    fine = [n for n, s in enumerate(pyramid.shares) if s.shape[1] * share >= window.columns]
    return max(fine) if fine else None


@njit(cache=True, nogil=True)
def _fill(
    start: NDArray[np.uint32],
    end: NDArray[np.uint32],
    kind: NDArray[np.uint32],
    offsets: Ints,
    reference_start: NDArray[np.uint32],
    reference_end: NDArray[np.uint32],
    reference_kind: NDArray[np.uint32],
    reference_offsets: Ints,
    reference_of: Ints,
    members: Ints,
    bounds: Ints,
    edges: NDArray[np.float64],
    kinds_out: Bytes,
    deviation_out: Bytes,
    shares_out: Bytes,
    first_idle: int,
) -> None:
    """Add up, row by row, the time of each kind in each column, and each rank's deviation."""
    columns = len(edges) - 1
    count = KIND_COUNT
    lowest, highest = edges[0], edges[columns]
    width = (highest - lowest) / columns
    time = np.zeros((columns, count))
    # What covers columns whole is added where it begins and taken away where it ends.
    whole_columns = np.zeros((columns + 1, count))
    covered = np.zeros(count)
    own = np.zeros(columns)
    touched = np.zeros(columns, np.int64)
    most = np.zeros(columns)
    for row in range(len(bounds) - 1):
        time[:, :] = 0.0
        whole_columns[:, :] = 0.0
        most[:] = 0.0
        ranks = bounds[row + 1] - bounds[row]
        for member in range(bounds[row], bounds[row + 1]):
            rank = members[member]
            if rank < 0:
                continue
            changed = 0
            low, high = offsets[rank], offsets[rank + 1]
            reference = reference_of[rank]
            at_reference = reference_offsets[reference]
            last_reference = reference_offsets[reference + 1]
            # The first piece that ends inside the window.
            a, b = low, high
            while a < b:
                middle = (a + b) // 2
                if end[middle] <= lowest:
                    a = middle + 1
                else:
                    b = middle
            at = a
            a, b = at_reference, last_reference
            while a < b:
                middle = (a + b) // 2
                if reference_end[middle] <= lowest:
                    a = middle + 1
                else:
                    b = middle
            at_reference = a
            now = lowest
            while now < highest:
                # The rank's own kind from now on, and how long it lasts.
                while at < high and end[at] <= now:
                    at += 1
                mine, until = 0, highest
                if at < high:
                    if start[at] > now:
                        until = min(until, float(start[at]))
                    else:
                        mine = kind[at]
                        until = min(until, float(end[at]))
                while at_reference < last_reference and reference_end[at_reference] <= now:
                    at_reference += 1
                theirs = 0
                if at_reference < last_reference:
                    if reference_start[at_reference] > now:
                        until = min(until, float(reference_start[at_reference]))
                    else:
                        theirs = reference_kind[at_reference]
                        until = min(until, float(reference_end[at_reference]))
                same = mine == theirs or (
                    (mine >= first_idle or mine == 0) and (theirs >= first_idle or theirs == 0)
                )
                column = min(int((now - lowest) / width), columns - 1)
                last = min(int((until - lowest) / width), columns - 1)
                if column == last:
                    time[column, mine] += until - now
                else:
                    time[column, mine] += edges[column + 1] - now
                    time[last, mine] += until - edges[last]
                    whole_columns[column + 1, mine] += width
                    whole_columns[last, mine] -= width
                if not same:
                    for at_column in range(column, last + 1):
                        begin = now if at_column == column else edges[at_column]
                        stop = until if at_column == last else edges[at_column + 1]
                        if stop > begin:
                            if own[at_column] == 0.0:
                                touched[changed] = at_column
                                changed += 1
                            own[at_column] += stop - begin
                now = until
            for n in range(changed):
                column = touched[n]
                if own[column] > most[column]:
                    most[column] = own[column]
                own[column] = 0.0
        covered[:] = 0.0
        for column in range(columns):
            for k in range(count):
                covered[k] += whole_columns[column, k]
                time[column, k] += covered[k]
            whole = width * ranks
            deviation_out[row, column] = int(min(1.0, most[column] / width) * 255.0 + 0.5)
            if kinds_out.shape[0] == 0:
                for k in range(count):
                    shares_out[row, column, k] = int(time[column, k] / whole * 255.0 + 0.5)
            else:
                # Less than that is rounding, not time.
                best, largest = 0, whole * 1e-9
                for k in range(1, count):
                    if time[column, k] > largest:
                        best, largest = k, time[column, k]
                level = int(largest / whole * 15.0 + 0.5)
                kinds_out[row, column] = (best << 4) | level if best > 0 else 0


@njit(cache=True, nogil=True)
def _halve(shares: Bytes) -> Bytes:
    rows, bins, count = shares.shape
    out = np.empty((rows, bins // 2, count), np.uint8)
    for row in range(rows):
        for column in range(bins // 2):
            for k in range(count):
                pair = int(shares[row, 2 * column, k]) + int(shares[row, 2 * column + 1, k])
                out[row, column, k] = (pair + 1) // 2
    return out


@njit(cache=True, nogil=True)
def _halve_deviation(deviation: Bytes) -> Bytes:
    """Make one bin of two; a deviation keeps its width, so its share halves unless both have it."""
    rows, bins = deviation.shape
    out = np.empty((rows, bins // 2), np.uint8)
    for row in range(rows):
        for column in range(bins // 2):
            pair = int(deviation[row, 2 * column]) + int(deviation[row, 2 * column + 1])
            out[row, column] = (pair + 1) // 2
    return out


@njit(cache=True, nogil=True)
def _merge_rows(
    shares: Bytes,
    deviations: Bytes,
    rows: Ints,
    begin: int,
    bounds: Ints,
    kinds_out: Bytes,
    deviation_out: Bytes,
) -> None:
    """Join neighbouring rows of the grid: shares weighed by their ranks, the largest deviation."""
    # A constant, so that the loops over kinds are unrolled.
    count = KIND_COUNT
    total = np.zeros(count, np.int32)
    for row in range(len(rows) - 1):
        ranks = bounds[rows[row + 1]] - bounds[rows[row]]
        for column in range(kinds_out.shape[1]):
            total[:] = 0
            most = 0
            for group in range(rows[row], rows[row + 1]):
                weight = bounds[group + 1] - bounds[group]
                for k in range(1, count):
                    total[k] += np.int32(weight) * np.int32(shares[group, begin + column, k])
                most = max(most, int(deviations[group, begin + column]))
            best, largest = 0, 0
            for k in range(1, count):
                if total[k] > largest:
                    best, largest = k, total[k]
            level = int(largest / (ranks * 255.0) * 15.0 + 0.5)
            kinds_out[row, column] = (best << 4) | level if best > 0 else 0
            deviation_out[row, column] = most

"""Tables of sketches: one for whole lives (rows × metrics), and rings of 5-minute ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.stats.sketches.sketch import (
    BINS,
    COUNT,
    FIELDS,
    Floats,
    add_run,
    empty_agg,
    empty_bins,
    merge_agg,
    update_rows,
)

SLOT_MS = 300_000
# Room is added by a sixteenth: what ten thousand GPUs do not use yet is memory all the same.
GROWTH = 1.0625
LEAST_ROWS = 64


@dataclass(frozen=True, slots=True)
class Span:
    """The range that a metric's bins cover."""

    low: float
    high: float

    @property
    def step(self) -> float:
        """Distance between the centres of two bins."""
        return (self.high - self.low) / (BINS - 1)


@dataclass(frozen=True, slots=True)
class EntityRows:
    """Which rows belong to each entity of a batch, and when each row is valid."""

    first_row: NDArray[np.int64]
    rows: NDArray[np.int64]
    from_ms: NDArray[np.int64]
    to_ms: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ticks:
    """Columns of a batch ready for the kernels: ``values[k, i]`` at ``time_ms[i]``."""

    time_ms: NDArray[np.int64]
    entity: NDArray[np.int32]
    values: NDArray[np.float32]


def room_for(rows: int, have: int) -> int:
    """Return the capacity to allocate so that ``rows`` fit."""
    return have if rows <= have else max(rows, LEAST_ROWS, int(have * GROWTH))


class _Rows:
    """What a table and a ring share: rows of summaries and of bins, with room for more."""

    agg: Floats
    bins: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Memory of the sketches."""
        return int(self.agg.nbytes + self.bins.nbytes)

    def reserve(self, rows: int) -> None:
        """Make room for this many rows."""
        room = room_for(rows, len(self.agg))
        if room > len(self.agg):
            self._grow("agg", room)
            self._grow("bins", room)

    def _grow(self, name: str, room: int) -> None:
        """Add empty rows in place, so that old and new need not stand side by side."""
        shape = (room, *getattr(self, name).shape[1:])
        # The first rows are made anew: numpy asks for large pages for them, which then stay.
        if len(getattr(self, name)):
            # It is refused while somebody looks at the array, or it is part of a larger one.
            with suppress(ValueError):
                getattr(self, name).resize(shape)
                return
        old = getattr(self, name)
        larger = np.zeros(shape, old.dtype)
        larger[: len(old)] = old
        setattr(self, name, larger)

    def clear(self, row: int) -> None:
        """Forget a row, so that another can have its place."""
        self.agg[row] = 0
        self.bins[row] = 0


class SketchTable(_Rows):
    """Whole-life sketches of rows × metrics, in two arrays.

    A bin is two bytes until some life has more samples than that counts (eleven days of 15 s);
    then all bins widen, so no count is ever cut off.
    """

    def __init__(self, spans: Sequence[Span], rows: int = 0) -> None:
        self.low = np.array([span.low for span in spans])
        self.step = np.array([span.step for span in spans])
        self.agg = empty_agg(rows, len(spans))
        self.bins = empty_bins(rows, len(spans), dtype=np.uint16)
        # No sketch has more samples than this.
        self._most = 0

    def add_metrics(self, spans: Sequence[Span]) -> None:
        """Make room for more metrics, after those there are."""
        rows = len(self.agg)
        self.low = np.append(self.low, [span.low for span in spans])
        self.step = np.append(self.step, [span.step for span in spans])
        self.agg = np.concatenate([self.agg, empty_agg(rows, len(spans))], axis=1)
        more = empty_bins(rows, len(spans), dtype=self.bins.dtype.type)
        self.bins = np.concatenate([self.bins, more], axis=1)

    def restore(self, agg: Floats, bins: NDArray[Any]) -> None:
        """Take back what was kept of a table of the same metrics."""
        self._most = int(agg[..., COUNT].max(initial=0))
        narrow = self._most <= np.iinfo(np.uint16).max
        self.agg, self.bins = agg, bins.astype(np.uint16, copy=False) if narrow else bins

    def _widen(self, coming: int) -> None:
        """Make every bin wide enough for the most that any sketch can hold after this batch."""
        widest = np.iinfo(self.bins.dtype).max
        self._most += coming
        if self._most > widest:
            # Rows are given back and begin anew: what there is may be far less.
            self._most = coming + int(self.agg[..., COUNT].max(initial=0))
            if self._most > widest:
                self.bins = self.bins.astype(np.uint32)

    def update(self, ticks: Ticks, slots: NDArray[np.int64], entity_rows: EntityRows) -> int:
        """Take a batch: column ``k`` into metric ``slots[k]``; returns the samples taken."""
        self._widen(_count_most_of_one(ticks.entity))
        return int(
            update_rows(
                self.agg,
                self.bins,
                self.low,
                self.step,
                slots,
                ticks.values,
                ticks.time_ms,
                ticks.entity,
                entity_rows.first_row,
                entity_rows.rows,
                entity_rows.from_ms,
                entity_rows.to_ms,
            )
        )


def _count_most_of_one(entity: NDArray[np.int32]) -> int:
    """Return the most samples that one entity has in a batch."""
    return int(np.bincount(entity[entity >= 0]).max(initial=0))


@njit(cache=True, nogil=True)
def _update_ring(  # type: ignore[no-untyped-def]  # numba infers the types
    agg, bins, held, low, step, values, time_ms, entity, first_row, rows, from_ms, to_ms
):
    slots, binned = len(held), bins.shape[1]
    newest = held.max()
    end = 0
    while end < len(time_ms):
        begin, code, number = end, entity[end], time_ms[end] // SLOT_MS
        # Samples of one entity in one slot that stand together are taken together.
        later_ms = (number + 1) * SLOT_MS
        while (
            end < len(time_ms)
            and entity[end] == code
            and later_ms - SLOT_MS <= time_ms[end] < later_ms
        ):
            end += 1
        slot = number % slots
        if code < 0 or code + 1 >= len(first_row) or held[slot] != number:
            continue
        binned_at = number % binned if number > newest - binned else -1
        for place in range(first_row[code], first_row[code + 1]):
            row = rows[place]
            add_run(
                agg[row, slot], bins[row], binned_at, values, time_ms, begin, end,
                from_ms[row], to_ms[row], low, step,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def _merge_agg(agg, wanted, out):  # type: ignore[no-untyped-def]  # numba infers the types
    for row in range(len(agg)):
        for slot in range(agg.shape[1]):
            if wanted[slot]:
                merge_agg(out[row], agg[row, slot])


@njit(cache=True, nogil=True)
def _merge_bins(bins, held, wanted, out):  # type: ignore[no-untyped-def]  # numba infers the types
    binned = bins.shape[1]
    newest = held.max()
    for row in range(len(bins)):
        for slot in range(len(held)):
            if wanted[slot] and held[slot] > newest - binned:
                own = bins[row, held[slot] % binned]
                for b in range(BINS):
                    out[row, b] += own[b]


@dataclass(frozen=True, slots=True)
class WindowNeed:
    """The longest trailing window of a metric, and the longest of which its bins are asked."""

    window_ms: int
    binned_ms: int = 0

    def __or__(self, other: WindowNeed) -> WindowNeed:
        return WindowNeed(
            max(self.window_ms, other.window_ms), max(self.binned_ms, other.binned_ms)
        )


class WindowRing(_Rows):
    """Sketches of one metric per 5 minutes of the clock, for trailing windows.

    Only the newest slots that quantiles and shares reach have bins. A bin is one byte until a slot
    could hold more samples than that; then all bins widen, so no count is ever cut off.
    """

    def __init__(self, span: Span, need: WindowNeed, rows: int = 0) -> None:
        self.span = span
        self.slots = slots_of(need.window_ms)
        self.binned = slots_of(need.binned_ms) if need.binned_ms else 0
        self.held = np.full(self.slots, -1, np.int64)
        # No row has more samples in a slot than this.
        self.most = np.zeros(self.slots, np.int64)
        self.agg = empty_agg(rows, self.slots)
        self.bins = empty_bins(rows, self.binned, dtype=np.uint8)

    def holds(self, other: WindowRing) -> bool:
        """Return whether it reaches as far back as the other."""
        return self.slots >= other.slots and self.binned >= other.binned

    def advance(self, now_ms: int) -> None:
        """Let go of the slots that the clock has left behind."""
        newest = now_ms // SLOT_MS
        # Slots are let go of in order: what the newest one held has left is already gone.
        oldest = max(newest - self.slots, int(self.held.max()))
        for number in range(oldest + 1, newest + 1):
            slot = number % self.slots
            if self.held[slot] < number:
                self.agg[:, slot] = 0
                self.most[slot] = 0
                if number > newest - self.binned:
                    self.bins[:, number % self.binned] = 0
                self.held[slot] = number

    def update(
        self,
        ticks: Ticks,
        column: int,
        entity_rows: EntityRows,
        coming: TouchedSlots | None = None,
    ) -> None:
        """Take one column of a batch; samples older than the ring are left out."""
        self._widen(coming or read_coming(ticks))
        _update_ring(
            self.agg,
            self.bins,
            self.held,
            self.span.low,
            self.span.step,
            ticks.values[column],
            ticks.time_ms,
            ticks.entity,
            entity_rows.first_row,
            entity_rows.rows,
            entity_rows.from_ms,
            entity_rows.to_ms,
        )

    def _widen(self, coming: TouchedSlots) -> None:
        """Make every bin wide enough for the most that any slot can hold after this batch."""
        if len(coming.slots):
            first, last = coming.slots[0], coming.slots[-1]
            self.most[(self.held >= first) & (self.held <= last)] += coming.most
        for width in (np.uint16, np.uint32):
            if self.most.max() > np.iinfo(self.bins.dtype).max:
                self.bins = self.bins.astype(width)

    def restore(self, agg: Floats, bins: NDArray[Any], held: NDArray[np.int64]) -> None:
        """Take back what was kept of a ring of the same shape."""
        same = agg.shape[1:] == self.agg.shape[1:] and bins.shape[1:] == self.bins.shape[1:]
        if not same or len(agg) != len(bins) or held.shape != self.held.shape:
            raise ValueError("the kept windows have another shape than their metric needs")
        self.agg, self.bins, self.held = agg, bins, held
        self.most = agg[:, :, COUNT].max(axis=0, initial=0).astype(np.int64)

    def wanted(self, now_ms: int, window_ms: int) -> NDArray[np.bool_]:
        """Return the slots that a trailing window touches: it covers up to 5 minutes more."""
        end_ms = (self.held + 1) * SLOT_MS
        return (self.held >= 0) & (end_ms > now_ms - window_ms) & (self.held <= now_ms // SLOT_MS)

    def summary(self, now_ms: int, window_ms: int, rows: int | None = None) -> Floats:
        """Return the exact part of the trailing window's sketches, of the first rows or all."""
        agg = self.agg[:rows]
        out = np.zeros((len(agg), FIELDS))
        _merge_agg(agg, self.wanted(now_ms, window_ms), out)
        return out

    def histogram(
        self, now_ms: int, window_ms: int, rows: slice = slice(None)
    ) -> NDArray[np.uint32]:
        """Return the bins of the trailing window's sketches, of these rows."""
        bins = self.bins[rows]
        out = np.zeros((len(bins), BINS), np.uint32)
        _merge_bins(bins, self.held, self.wanted(now_ms, window_ms), out)
        return out


@dataclass(frozen=True, slots=True)
class TouchedSlots:
    """Which 5-minute slots a batch touches, and the most samples one entity has in any of them."""

    slots: NDArray[np.int64]
    most: int


def read_coming(ticks: Ticks) -> TouchedSlots:
    """Return the slots that a batch touches."""
    numbers = ticks.time_ms // SLOT_MS
    if not len(numbers):
        return TouchedSlots(numbers, 0)
    known = ticks.entity >= 0
    codes = ticks.entity[known].astype(np.int64)
    first, last = int(numbers.min()), int(numbers.max())
    if first != last:
        codes = codes * (last - first + 1) + (numbers[known] - first)
    return TouchedSlots(np.arange(first, last + 1), int(np.bincount(codes).max(initial=0)))


def slots_of(window_ms: int) -> int:
    """Return how many 5-minute slots a trailing window can touch."""
    return -(-window_ms // SLOT_MS) + 1

"""Tables of sketches: one for whole lives (rows × metrics), and rings of 5-minute ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.stats.sketch import (
    BINS,
    FIELDS,
    Floats,
    add_sample,
    empty_agg,
    empty_bins,
    merge_agg,
    update_rows,
)

SLOT_MS = 300_000
# Room is added a quarter at a time: doubling ten thousand GPUs would break the memory promise.
GROWTH = 1.25
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
class Roster:
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
    """The capacity to allocate so that ``rows`` fit."""
    return have if rows <= have else max(rows, LEAST_ROWS, int(have * GROWTH))


def _grown(array: NDArray[Any], rows: int) -> NDArray[Any]:
    larger = np.zeros((rows, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


class SketchTable:
    """Whole-life sketches of rows × metrics, in two arrays."""

    def __init__(self, spans: Sequence[Span], rows: int = 0) -> None:
        self.low = np.array([span.low for span in spans])
        self.step = np.array([span.step for span in spans])
        self.agg = empty_agg(rows, len(spans))
        self.bins = empty_bins(rows, len(spans))

    @property
    def nbytes(self) -> int:
        """Memory of the sketches."""
        return int(self.agg.nbytes + self.bins.nbytes)

    def reserve(self, rows: int) -> None:
        """Make room for this many rows."""
        room = room_for(rows, len(self.agg))
        if room > len(self.agg):
            self.agg, self.bins = _grown(self.agg, room), _grown(self.bins, room)

    def add_metrics(self, spans: Sequence[Span]) -> None:
        """Make room for more metrics, after those there are."""
        rows = len(self.agg)
        self.low = np.append(self.low, [span.low for span in spans])
        self.step = np.append(self.step, [span.step for span in spans])
        self.agg = np.concatenate([self.agg, empty_agg(rows, len(spans))], axis=1)
        self.bins = np.concatenate([self.bins, empty_bins(rows, len(spans))], axis=1)

    def clear(self, row: int) -> None:
        """Forget a row, so that another can have its place."""
        self.agg[row] = 0
        self.bins[row] = 0

    def update(self, ticks: Ticks, slots: NDArray[np.int64], roster: Roster) -> int:
        """Take a batch: column ``k`` into metric ``slots[k]``; returns the samples taken."""
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
                roster.first_row,
                roster.rows,
                roster.from_ms,
                roster.to_ms,
            )
        )


@njit(cache=True, nogil=True)
def _update_ring(  # type: ignore[no-untyped-def]
    agg, bins, held, low, step, values, time_ms, entity, first_row, rows, from_ms, to_ms
):
    slots = len(held)
    for i in range(len(time_ms)):
        value = values[i]
        code = entity[i]
        if value != value or code < 0 or code + 1 >= len(first_row):
            continue
        moment = time_ms[i]
        number = moment // SLOT_MS
        slot = number % slots
        if held[slot] != number:
            continue
        for place in range(first_row[code], first_row[code + 1]):
            row = rows[place]
            if from_ms[row] <= moment < to_ms[row]:
                add_sample(agg[row, slot], bins[row, slot], value, moment, low, step)


@njit(cache=True, nogil=True)
def _merged_agg(agg, wanted, out):  # type: ignore[no-untyped-def]
    for row in range(len(agg)):
        for slot in range(agg.shape[1]):
            if wanted[slot]:
                merge_agg(out[row], agg[row, slot])


@njit(cache=True, nogil=True)
def _merged_bins(bins, wanted, out):  # type: ignore[no-untyped-def]
    for row in range(len(bins)):
        for slot in range(bins.shape[1]):
            if wanted[slot]:
                for b in range(BINS):
                    out[row, b] += bins[row, slot, b]


class WindowRing:
    """Sketches of one metric per 5 minutes of the clock, for trailing windows."""

    def __init__(self, span: Span, window_ms: int, rows: int = 0) -> None:
        self.span = span
        self.slots = slots_of(window_ms)
        self.held = np.full(self.slots, -1, np.int64)
        self.agg = empty_agg(rows, self.slots)
        self.bins = empty_bins(rows, self.slots, dtype=np.uint16)

    @property
    def nbytes(self) -> int:
        """Memory of the ring."""
        return int(self.agg.nbytes + self.bins.nbytes)

    def reserve(self, rows: int) -> None:
        """Make room for this many rows."""
        room = room_for(rows, len(self.agg))
        if room > len(self.agg):
            self.agg, self.bins = _grown(self.agg, room), _grown(self.bins, room)

    def clear(self, row: int) -> None:
        """Forget a row."""
        self.agg[row] = 0
        self.bins[row] = 0

    def advance(self, now_ms: int) -> None:
        """Let go of the slots that the clock has left behind."""
        newest = now_ms // SLOT_MS
        for number in range(newest - self.slots + 1, newest + 1):
            slot = number % self.slots
            if self.held[slot] < number:
                self.agg[:, slot] = 0
                self.bins[:, slot] = 0
                self.held[slot] = number

    def update(self, ticks: Ticks, column: int, roster: Roster) -> None:
        """Take one column of a batch; samples older than the ring are left out."""
        _update_ring(
            self.agg,
            self.bins,
            self.held,
            self.span.low,
            self.span.step,
            ticks.values[column],
            ticks.time_ms,
            ticks.entity,
            roster.first_row,
            roster.rows,
            roster.from_ms,
            roster.to_ms,
        )

    def wanted(self, now_ms: int, window_ms: int) -> NDArray[np.bool_]:
        """The slots that a trailing window touches: it covers up to 5 minutes more."""
        end_ms = (self.held + 1) * SLOT_MS
        return (self.held >= 0) & (end_ms > now_ms - window_ms) & (self.held <= now_ms // SLOT_MS)

    def summary(self, now_ms: int, window_ms: int) -> Floats:
        """The exact part of the trailing window's sketches."""
        out = np.zeros((len(self.agg), FIELDS))
        _merged_agg(self.agg, self.wanted(now_ms, window_ms), out)
        return out

    def histogram(self, now_ms: int, window_ms: int) -> NDArray[np.uint32]:
        """The bins of the trailing window's sketches."""
        out = np.zeros((len(self.bins), BINS), np.uint32)
        _merged_bins(self.bins, self.wanted(now_ms, window_ms), out)
        return out


def slots_of(window_ms: int) -> int:
    """How many 5-minute slots a trailing window can touch."""
    return -(-window_ms // SLOT_MS) + 1

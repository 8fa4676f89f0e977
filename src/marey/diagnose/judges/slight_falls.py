"""A lasting fall of everybody's work at the same utilization, even one too slight for a glance.

Ranks that wait for somebody spin in a collective: their GPUs are as busy as ever and get less done.
So the series that is searched is *work per busy second* (activity over utilization of all GPUs
together): it does not move where a job has a phase in which it does less of everything.

Three steps, each a small function:

1. **Take out what follows utilization.** Where work per busy second goes up and down with
   utilization from one block to the next (serving, sampling at the limit of 100 %), a straight line
   through those changes is subtracted. Changes between neighbours are used, not the values, so
   that a lasting fall does not enter the line.
2. **Find the moments of change** by binary segmentation: the block at which the means before and
   after differ most, in standard errors, is a change if that is more than ``LEAST_STEP`` of them;
   both parts are then searched in turn. The noise is measured from differences of neighbours, which
   a lasting change hardly touches.
3. **Part the segments into two levels** so that the most variance lies between them. The lower one
   is where the fault is, be it once or again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.signals import Signals, quiet_median

# Blocks whose utilization is far below the usual hold checkpoints and the like.
STEADY_SHARE, LEAST_UTIL = 0.5, 25.0
# With less than an hour of them, noise and a change are hardly told apart.
LEAST_STEADY = 12
# The least fall, how many standard errors each change is, and how many blocks each part lasts.
LEAST_FALL, LEAST_STEP, LEAST_BLOCKS = 0.025, 4.5, 4
# Faults come and go a few times; noise does so all the time.
MOST_CHANGES = 8
# What utilization moves by without saying anything (in its logarithm), and what noise is at least.
STILL_UTIL, LEAST_NOISE = 0.01, 1e-3
# Changes of one block beyond so many deviations hold a pause or an error of measurement.
FARTHEST_CHANGE = 4.0
# The network carries less by at least this share of the fall, and at most so many times of it.
NETWORK_SHARE, NETWORK_TIMES = 0.5, 2.0
MAD_TO_DEVIATION = 1.4826

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Fall:
    """The blocks in which less was done, those in which as much as usual was, and how much less."""

    low: Places
    high: Places
    usual: float
    share: float

    @property
    def span(self) -> tuple[int, int]:
        """First block, and the one after the last."""
        return int(self.low[0]), int(self.low[-1]) + 1


def find_fall(signals: Signals, level: Floats, util: Floats) -> Fall | None:
    """Return a lasting fall of work per busy second, however slight; None without one."""
    top = float(np.nanpercentile(util, 90)) if np.isfinite(util).any() else 0.0
    steady = (util >= max(STEADY_SHARE * top, LEAST_UTIL)) & np.isfinite(level) & (level > 0)
    blocks = np.flatnonzero(steady)
    if len(blocks) < LEAST_STEADY:
        return None
    work = _take_out_utilization(np.log(level[blocks] / util[blocks]), np.log(util[blocks]))
    segments = find_segments(work)
    low = _part_levels(work, segments)
    if low is None:
        return None
    share = 1.0 - float(np.exp(np.median(work[low]) - np.median(work[~low])))
    if share < LEAST_FALL:
        return None
    return Fall(blocks[low], blocks[~low], float(quiet_median(level[blocks[~low]])), share)


def _take_out_utilization(work: Floats, util: Floats) -> Floats:
    """Return the work without what follows utilization from block to block."""
    noise = measure_noise(work)
    changes = np.clip(np.diff(work), -FARTHEST_CHANGE * noise, FARTHEST_CHANGE * noise)
    moves = np.diff(util)
    slope = (changes @ moves) / (moves @ moves + len(moves) * STILL_UTIL**2)
    return np.asarray(work - slope * (util - np.median(util)))


def measure_noise(series: Floats) -> float:
    """Return the deviation of single values, from differences of neighbours."""
    steps = np.diff(series)
    spread = float(np.median(np.abs(steps - np.median(steps))))
    return max(MAD_TO_DEVIATION * spread / float(np.sqrt(2.0)), LEAST_NOISE)


def find_segments(series: Floats) -> list[tuple[int, int]]:
    """Return half-open spans of the series between its moments of change, in order."""
    noise, smooth = measure_noise(series), _smooth(series)
    found: list[tuple[int, int]] = []
    open_spans = [(0, len(series))]
    while open_spans:
        first, last = open_spans.pop()
        at, step = _find_step(smooth[first:last])
        if step >= LEAST_STEP * noise:
            open_spans += [(first, first + at), (first + at, last)]
        else:
            found.append((first, last))
    return sorted(found)


def _smooth(series: Floats) -> Floats:
    """Return the median of each value and its neighbours: a single odd block is no change."""
    padded = np.pad(series, 1, mode="edge")
    return np.asarray(np.median([padded[:-2], padded[1:-1], padded[2:]], axis=0))


def _find_step(series: Floats) -> tuple[int, float]:
    """Return where the means before and after differ most, and by how many errors of noise one."""
    count = len(series)
    if count < 2 * LEAST_BLOCKS:
        return 0, 0.0
    before = np.arange(LEAST_BLOCKS, count - LEAST_BLOCKS + 1)
    after = count - before
    sums = np.cumsum(series)
    gap = np.abs(sums[before - 1] / before - (sums[-1] - sums[before - 1]) / after)
    steps = gap / np.sqrt(1.0 / before + 1.0 / after)
    best = int(np.argmax(steps))
    return int(before[best]), float(steps[best])


def _part_levels(work: Floats, segments: list[tuple[int, int]]) -> Flags | None:
    """Return which blocks lie on the lower of two levels; None if there are no two."""
    if not 2 <= len(segments) <= MOST_CHANGES + 1:
        return None
    levels = np.concatenate([np.full(b - a, np.median(work[a:b])) for a, b in segments])
    low = np.asarray(levels < _split_levels(levels))
    return low if min(low.sum(), (~low).sum()) >= LEAST_BLOCKS else None


def _split_levels(values: Floats) -> float:
    """Return the value that parts two levels best: the most variance between them."""
    ordered = np.sort(values)
    counts = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)[:-1]
    below = sums / counts
    above = (ordered.sum() - sums) / (len(ordered) - counts)
    between = counts * (len(ordered) - counts) * (above - below) ** 2
    best = int(np.argmax(between))
    return float((ordered[best] + ordered[best + 1]) / 2)


def measure_network_fall(signals: Signals, fall: Fall, util: Floats) -> float | None:
    """Return the share by which the network carries less per busy second; None if not measured."""
    network = signals.matrix.host_columns.get("host_net_rx")
    if network is None:
        return None
    carried = quiet_median(network, 0)

    def measure(blocks: Places) -> float:
        spans = [signals.columns_of(int(block), int(block) + 1) for block in blocks]
        means = np.array([float(quiet_median(carried[a:b])) for a, b in spans])
        return float(quiet_median(means / util[blocks]))

    before = measure(fall.high)
    return 1.0 - measure(fall.low) / before if before > 0 else None


def agrees_with(fall: Fall, network: float | None) -> bool:
    """Return whether the network was measured, and carries less in about the same measure."""
    if network is None:
        return False
    return NETWORK_SHARE * fall.share <= network <= NETWORK_TIMES * fall.share

"""A small and lasting fall of everybody's work at the same utilization, too slight for a glance.

What tells it from a phase of the job: it comes at once, on all GPUs, both levels are flat, GPUs are
at least as busy as before, and the network carries less. Without profiling metrics one slow GPU
could be behind it as well, so nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.signals import Signals, quiet_median
from marey.model.faults import FaultKind

# Blocks whose utilization is far below the usual hold evaluations, checkpoints and the like.
STEADY_SHARE = 0.93
WORKING_UTIL = 50.0
# The least fall, how many deviations of either level it is, and how long each level lasts.
LEAST_FALL, DEVIATIONS, LEAST_BLOCKS = 0.04, 5.0, 6
# Faults come and go a few times; noise does so all the time.
MOST_CHANGES = 6
# Few blocks lie between two real levels.
MOST_BETWEEN = 0.15
# The network falls with the work, by this share of it at least.
NETWORK_SHARE = 0.5
MAD_TO_DEVIATION = 1.4826
# What such a finding is worth.
SLIGHT = 0.65

# One GPU that stayed busier than before, by this and so many deviations: the others wait for it.
STAYED, STAYED_DEVIATIONS = 0.02, 5.0

Floats = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True)
class SlightFall:
    """The blocks in which less was done, and those in which as much as usual was."""

    low: Places
    high: Places
    usual: float

    @property
    def span(self) -> tuple[int, int]:
        """First block, and the one after the last."""
        return int(self.low[0]), int(self.low[-1]) + 1

    def measure_kept(self, values: Floats) -> Floats:
        """Return each GPU's value while less was done, as a share of its own before and after."""
        return np.asarray(
            quiet_median(values[:, self.low], 1) / quiet_median(values[:, self.high], 1)
        )


def find_stayed(fall: SlightFall, active: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Return which GPU alone was as active as ever while all did less, and what each one kept."""
    kept = fall.measure_kept(active)
    usual = float(quiet_median(kept))
    spread = _measure_spread(kept[np.isfinite(kept)])
    stayed = kept - usual > max(STAYED, STAYED_DEVIATIONS * spread)
    return stayed, kept


def find_slight_fall(signals: Signals, level: Floats, util: Floats) -> SlightFall | None:
    """Return a slight and lasting fall; None without one."""
    working = util >= WORKING_UTIL
    if working.sum() < 2 * LEAST_BLOCKS:
        return None
    steady = working & (util >= STEADY_SHARE * float(quiet_median(util[working])))
    blocks = np.flatnonzero(steady & np.isfinite(level))
    if len(blocks) < 2 * LEAST_BLOCKS:
        return None
    work = level[blocks] / util[blocks]
    split = _split_levels(work)
    low = work < split
    if not _are_two_levels(work, low) or not _is_as_busy(util[blocks], low):
        return None
    if not _carries_less(signals, blocks, low):
        return None
    return SlightFall(blocks[low], blocks[~low], float(quiet_median(level[blocks[~low]])))


def _split_levels(work: Floats) -> float:
    """Return the value that parts two levels best: the most variance between them."""
    ordered = np.sort(work)
    counts = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)[:-1]
    below = sums / counts
    above = (ordered.sum() - sums) / (len(ordered) - counts)
    between = counts * (len(ordered) - counts) * (above - below) ** 2
    best = int(np.argmax(between))
    return float((ordered[best] + ordered[best + 1]) / 2)


def _are_two_levels(work: Floats, low: NDArray[np.bool_]) -> bool:
    """Return whether these are two flat levels, each long enough, with few changes between them."""
    if min(low.sum(), (~low).sum()) < LEAST_BLOCKS:
        return False
    under, over = float(np.median(work[low])), float(np.median(work[~low]))
    gap = over - under
    spread = max(_measure_spread(work[low]), _measure_spread(work[~low]))
    between = (work > under + 0.3 * gap) & (work < over - 0.3 * gap)
    changes = int(np.abs(np.diff(low.astype(np.int8))).sum())
    return bool(
        gap >= LEAST_FALL * over
        and gap >= DEVIATIONS * spread
        and changes <= MOST_CHANGES
        and between.mean() <= MOST_BETWEEN
    )


def _measure_spread(values: Floats) -> float:
    return MAD_TO_DEVIATION * float(np.median(np.abs(values - np.median(values))))


def _is_as_busy(util: Floats, low: NDArray[np.bool_]) -> bool:
    """Return whether GPUs that do less are at least as busy: who waits in a collective spins."""
    return bool(np.median(util[low]) >= 0.995 * np.median(util[~low]))


def _carries_less(signals: Signals, blocks: NDArray[np.intp], low: NDArray[np.bool_]) -> bool:
    """Return whether the network was measured, and carried less while less was done."""
    network = signals.matrix.host_columns.get("host_net_rx")
    if network is None:
        return False
    carried = quiet_median(network, 0)
    spans = [signals.columns_of(int(block), int(block) + 1) for block in blocks]
    means = np.array([float(quiet_median(carried[a:b])) for a, b in spans])
    before, now = float(quiet_median(means[~low])), float(quiet_median(means[low]))
    return bool(before > 0 and now <= (1.0 - NETWORK_SHARE * LEAST_FALL) * before)


def judge_slow_gpu_by_fall(
    signals: Signals, level: Floats, util: Floats, active: Floats
) -> Iterator[Claim]:
    """Judge one GPU whose multiprocessors stay as busy as ever while all of them get less done.

    Each is held against itself before, so that what boards differ by does not count.
    """
    fall = find_slight_fall(signals, level, util)
    if fall is None:
        return
    stayed, kept = find_stayed(fall, active)
    if stayed.sum() != 1:
        return
    usual = float(quiet_median(kept))
    own = float(kept[stayed][0])
    yield Claim(
        kind=FaultKind.SLOW_GPU,
        rows=stayed,
        span=signals.columns_of(*fall.span),
        summary="All GPUs get a little less done, and this one alone is as active as before: they "
        "seem to wait for it.",
        evidence=(Evidence("SM activity against its own before", 100 * own, 100 * usual, "%"),),
        confidence=SLIGHT,
        lost=max(0.0, 1.0 - float(quiet_median(level[fall.low])) / fall.usual),
        next="Run a burn-in on it and compare with a neighbour.",
    )

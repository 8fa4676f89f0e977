"""Why a device did nothing: every gap between its work, divided by what it waited for.

A gap ends with some work. What happened before that work was launched is the host's doing (or the
data loader's, or a communication call's that the host sat in). Work that was launched and starts
within the usual latency was merely *queued*. Everything else is *unexplained*: the launch was not
recorded, or the work lay in its queue for long and nothing in the recording says what it waited
for. The parts are disjoint, and together they are the gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.stats.intervals import EMPTY, Intervals, intersect, merge, subtract, unite

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

# From a launch call to the first instruction on an idle device, generously.
LAUNCH_LATENCY_NS = 20_000


@dataclass(frozen=True)
class HostTime:
    """What the host was seen doing."""

    fetching: Intervals
    talking: Intervals
    between_steps: Intervals
    # Anything at all; annotations only mark a stretch of time.
    recorded: Intervals


@dataclass(frozen=True)
class IdleTime:
    """The gaps of a device by cause; disjoint sets."""

    input: Intervals = EMPTY
    start: Intervals = EMPTY
    peers: Intervals = EMPTY
    host: Intervals = EMPTY
    queued: Intervals = EMPTY
    # Launched in time, and yet not started: it waited for something that was not recorded.
    stalled: Intervals = EMPTY
    # Ended by work whose launch was not recorded.
    unlinked: Intervals = EMPTY
    # After the last work, where more than the device's own span was asked about.
    tail: Intervals = EMPTY

    @property
    def rest(self) -> Intervals:
        """Everything but input, peers and host, for pictures that show no more than these."""
        return unite(self.start, self.queued, self.stalled, self.unlinked, self.tail)

    @property
    def unexplained(self) -> Intervals:
        """What nothing in the recording accounts for."""
        return unite(self.stalled, self.unlinked)


def divide_idle(
    column: Mapping[str, NDArray[Any]], gaps: Intervals, host: HostTime, *, has_device: bool
) -> IdleTime:
    """Divide the gaps of one device; without a device, operators of the host stand for it.

    ``column`` needs on_device, start_ns, dur_ns and launch. Nothing follows the last work that
    could say what the time after it was spent on.
    """
    if has_device:
        late, queued, stalled, unlinked = _by_launch(column, gaps)
    else:
        late, unlinked = intersect(gaps, host.recorded), subtract(gaps, host.recorded)
        queued = stalled = EMPTY
    blamable = unite(late, stalled, unlinked)
    named = unite(host.fetching, host.between_steps, host.talking)
    return IdleTime(
        input=intersect(blamable, host.fetching),
        start=subtract(intersect(blamable, host.between_steps), host.fetching),
        peers=subtract(intersect(blamable, host.talking), unite(host.fetching, host.between_steps)),
        host=subtract(late, named),
        queued=queued,
        stalled=subtract(stalled, named),
        unlinked=subtract(unlinked, named),
        tail=subtract(gaps, unite(blamable, queued)),
    )


def _by_launch(
    column: Mapping[str, NDArray[Any]], gaps: Intervals
) -> tuple[Intervals, Intervals, Intervals, Intervals]:
    """Return the gaps until the next work's launch was over, its latency, its stall.

    Or no launch.
    """
    rows = np.flatnonzero(column["on_device"])
    if not len(rows) or not len(gaps.start_ns):
        return EMPTY, EMPTY, EMPTY, EMPTY
    rows = rows[np.argsort(column["start_ns"][rows], kind="stable")]
    at = np.searchsorted(column["start_ns"][rows], gaps.end_ns)
    followed = at < len(rows)
    launch = column["launch"][rows[np.minimum(at, len(rows) - 1)]].astype(np.int64)
    known = (launch >= 0) & followed
    caller = np.maximum(launch, 0)
    called = column["start_ns"][caller].astype(np.int64)
    over = np.clip(called + column["dur_ns"][caller], gaps.start_ns, gaps.end_ns)
    soon = known & (gaps.end_ns - over <= LAUNCH_LATENCY_NS)
    late = known & (called >= gaps.start_ns)
    # A launch just before its work took the usual latency with it; the host is why it began late.
    until = np.where(late & soon, gaps.end_ns, np.where(known, over, gaps.start_ns))
    stalled = known & ~soon
    return (
        _between(gaps.start_ns, until, known),
        _between(until, gaps.end_ns, soon & ~late),
        _between(until, gaps.end_ns, stalled),
        _between(gaps.start_ns, gaps.end_ns, ~known & followed),
    )


def _between(start: Ints, end: Ints, chosen: Flags) -> Intervals:
    return merge(start[chosen], np.maximum(end[chosen] - start[chosen], 0))

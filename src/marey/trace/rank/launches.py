"""How the host feeds the device: launch delays, launch cost, and the depth of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class LaunchStatistics:
    """One rank's launches; all zero where the trace links no device work to its launch."""

    linked: int = 0
    unlinked: int = 0
    delay_median_us: float = 0.0
    delay_p95_us: float = 0.0
    delay_max_us: float = 0.0
    call_median_us: float = 0.0
    # Share of linked device work that is shorter than the call that launched it.
    shorter_than_launch: float = 0.0
    queue_mean: float = 0.0
    queue_max: int = 0
    # Share of the span in which nothing launched was waiting to start.
    queue_empty: float = 0.0


def launch_statistics(events: pa.Table) -> LaunchStatistics:
    """Return how long work waited between its launch and its start, and how much of it waited at
    once.
    """
    device = events["on_device"].to_numpy(zero_copy_only=False)
    launch = events["launch"].to_numpy()
    linked = np.flatnonzero(device & (launch >= 0))
    unlinked = int(device.sum()) - len(linked)
    if not len(linked):
        return LaunchStatistics(unlinked=unlinked)
    start, dur = events["start_ns"].to_numpy(), events["dur_ns"].to_numpy()
    caller = launch[linked]
    called, call_ns = start[caller], dur[caller]
    delay_us = np.maximum(start[linked] - (called + call_ns), 0) / 1e3
    depth = queue_depth(called, start[linked])
    return LaunchStatistics(
        linked=len(linked),
        unlinked=unlinked,
        delay_median_us=float(np.median(delay_us)),
        delay_p95_us=float(np.percentile(delay_us, 95)),
        delay_max_us=float(delay_us.max()),
        call_median_us=float(np.median(call_ns)) / 1e3,
        shorter_than_launch=float(np.mean(dur[linked] < call_ns)),
        queue_mean=depth.mean,
        queue_max=depth.largest,
        queue_empty=depth.empty,
    )


@dataclass(frozen=True)
class QueueDepth:
    """A step function of time: how much launched work had not yet started."""

    time_ns: Any
    depth: Any
    mean: float
    largest: int
    empty: float


def queue_depth(launched_ns: Any, started_ns: Any) -> QueueDepth:
    """Return the queue between host and device.

    One more at each launch, one fewer at each start.
    """
    launched = np.asarray(launched_ns, np.int64)
    # The device cannot start what was not launched: a clock's quirk must not go below zero.
    started = np.maximum(np.asarray(started_ns, np.int64), launched)
    time = np.concatenate([launched, started])
    change = np.concatenate([np.ones(len(launched), np.int64), -np.ones(len(started), np.int64)])
    # At one instant arrivals count before departures.
    order = np.lexsort((-change, time))
    time, depth = time[order], np.cumsum(change[order])
    lengths = np.diff(time, append=time[-1:])
    whole = max(int(lengths.sum()), 1)
    return QueueDepth(
        time_ns=time,
        depth=depth,
        mean=float((depth * lengths).sum() / whole),
        largest=int(depth.max(initial=0)),
        empty=float(lengths[depth == 0].sum() / whole),
    )

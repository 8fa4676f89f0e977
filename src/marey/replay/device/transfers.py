"""What communications between devices would take over other links, or with fewer bytes."""

from __future__ import annotations

import numpy as np

from marey.replay.device.device_nodes import Flags, Floats
from marey.replay.device.device_run import DeviceRun

# Sizes must differ by this factor before time that does not grow with them can be told apart.
LEAST_SPREAD = 2.0


def fit_latencies(run: DeviceRun) -> Floats:
    """Return of every communication the time that does not grow with its bytes, in ms.

    Fitted from the run's own transfers, one line per kind of collective. Where all have one size,
    all of their time is taken to be that of their bytes.
    """
    nodes, work = run.nodes, run.costs.work
    found = np.zeros(nodes.recorded)
    for kind in np.unique(nodes.collective[nodes.talks]).tolist():
        mine = np.flatnonzero(nodes.talks & (nodes.collective == kind) & (nodes.bytes > 0))
        sizes = np.unique(nodes.bytes[mine])
        if len(sizes) < 2 or sizes[-1] < LEAST_SPREAD * sizes[0]:
            continue
        times = np.array([np.median(work[mine[nodes.bytes[mine] == size]]) for size in sizes])
        slope, latency = np.polyfit(sizes, times, 1, w=np.sqrt(sizes))
        if slope > 0 and latency > 0:
            found[mine] = np.minimum(latency, work[mine])
    return found


def scale_bandwidth(run: DeviceRun, factor: float, rank: int = -1) -> DeviceRun:
    """Return the run with links that carry this many times as much; of one rank, or of all."""
    nodes = run.nodes
    chosen = nodes.talks
    if rank >= 0:
        items = np.unique(nodes.item[nodes.talks & (nodes.rank == rank)])
        chosen = chosen & np.isin(nodes.item, items[items >= 0])
    fixed = fit_latencies(run)
    moving = np.maximum(run.costs.work - fixed, 0.0)
    return run.with_work(np.where(chosen, fixed + moving / factor, run.costs.work))


def scale_latencies(run: DeviceRun, factor: float) -> DeviceRun:
    """Return the run with every communication's latency multiplied."""
    fixed = fit_latencies(run)
    work = run.costs.work + np.where(run.nodes.talks, fixed * (factor - 1.0), 0.0)
    return run.with_work(np.maximum(work, 0.0))


def scale_bytes(run: DeviceRun, chosen: Flags, item_bytes: int) -> DeviceRun:
    """Return the run with the chosen communications in elements of another size."""
    nodes = run.nodes
    width = np.where(nodes.item_bytes > 0, nodes.item_bytes, 4)
    fixed = fit_latencies(run)
    moving = np.maximum(run.costs.work - fixed, 0.0) * item_bytes / width
    return run.with_work(np.where(chosen, fixed + moving, run.costs.work))


def scale_moved(run: DeviceRun, chosen: Flags, factor: float) -> DeviceRun:
    """Return the run in which the chosen communications move this many times their bytes."""
    fixed = fit_latencies(run)
    moving = np.maximum(run.costs.work - fixed, 0.0) * factor
    return run.with_work(np.where(chosen, fixed + moving, run.costs.work))

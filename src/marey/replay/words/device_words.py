"""Changes of a run on devices: kernels, launches, loading, links, overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from marey.replay.changes import Change
from marey.replay.device.device_nodes import (
    DeviceNodes,
    Flags,
    Floats,
    group_medians,
    number_counterparts,
)
from marey.replay.device.device_run import DeviceRun
from marey.replay.device.fused import fuse_kernels
from marey.replay.device.gradient_communications import find_gradient_communications, is_overlapped
from marey.replay.device.overlapping import block_on_transfers, free_compute
from marey.replay.device.transfers import scale_bandwidth, scale_bytes, scale_latencies
from marey.replay.recording.workload import Refused, Workload
from marey.replay.words.device_arrangement import ARRANGE_DEVICE, fill_default_buckets
from marey.replay.words.refusals import refuse_change, state_assumption


def change_device(run: Workload, change: Change) -> Workload:
    """Return a run on devices with one change made, or refuse it."""
    apply = APPLY_DEVICE.get(change.word)
    if apply is None or not isinstance(run.plan, DeviceRun):
        allowed = ", ".join(sorted(APPLY_DEVICE))
        raise refuse_change(
            run,
            change,
            "a trace of kernels does not show how the framework would arrange them; "
            f"allowed here: {allowed}",
        )
    changed = apply(run, run.plan, change)
    return _state_missing(changed) if change.word in ARRANGE_DEVICE else changed


def _use(run: Workload, plan: DeviceRun) -> Workload:
    return replace(run, plan=plan)


def _scale_work(plan: DeviceRun, chosen: Flags, factor: float | Floats) -> DeviceRun:
    return plan.with_work(np.where(chosen, plan.costs.work * factor, plan.costs.work))


def _require_rank(plan: DeviceRun, change: Change, rank: int) -> None:
    if rank not in plan.ranks:
        known = ", ".join(map(str, plan.ranks[:16]))
        raise Refused(f"{change}: unknown rank {rank}; this run has ranks {known}.")


def _fix_rank(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    ranks = change.get_counts()
    for rank in ranks:
        _require_rank(plan, change, rank)
    nodes = plan.nodes
    broken = np.isin(nodes.rank, ranks)
    if broken.all():
        raise refuse_change(run, change, "no other rank says what would be usual")
    mine = broken & ~nodes.talks
    keys = number_counterparts(nodes, over_ranks=True)
    size = int(keys.max(initial=0)) + 1
    known = np.bincount(keys[~broken], minlength=size) > 0
    fixed: dict[str, Any] = {}
    for name in ("work", "loading"):
        values: Floats = getattr(plan.costs, name)
        usual = group_medians(keys[~broken], values[~broken], size)[keys]
        fixed[name] = np.where(mine & known[keys], np.minimum(values, usual), values)
    return _use(run, replace(plan, costs=replace(plan.costs, **fixed)))


def _slow_rank(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    rank, factor = change.get_scaled_rank()
    _require_rank(plan, change, rank)
    return _use(run, _scale_work(plan, plan.nodes.computes & (plan.nodes.rank == rank), factor))


def _operator(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    name, factor = change.get_scaled_name()
    chosen = plan.nodes.named(name)
    if not chosen.any():
        raise Refused(f"{change}: no kernel or operator of this name ran on a device.")
    return _use(run, _scale_work(plan, chosen, factor))


def _compute(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    factor = change.get_number()
    return _use(run, _scale_work(plan, plan.nodes.computes, factor))


def _batch(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    factor = change.get_number()
    changed = replace(
        _scale_work(plan, plan.nodes.computes & (plan.nodes.phase != 2), factor),
        samples=plan.samples * factor,
    )
    return state_assumption(_use(run, changed), "kernels take time in proportion to the samples")


def _launch(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    factor = change.get_number()
    if not plan.nodes.on_host.any():
        raise refuse_change(run, change, "the trace shows no calls of the host that launch kernels")
    scaled = _scale_work(plan, plan.nodes.on_host, factor)
    if factor < 1:
        # Without launches nothing is late but for the pause between two kernels of a graph.
        quick = np.minimum(plan.costs.delay, _usual_pause(plan.nodes, plan.costs.delay))
        delay = plan.costs.delay * factor + quick * (1 - factor)
        scaled = replace(scaled, costs=replace(scaled.costs, delay=delay))
    return state_assumption(_use(run, scaled), "all time between launches is the host's own")


def _usual_pause(nodes: DeviceNodes, delay: Floats) -> float:
    """Return the pause between kernels that follow each other without waiting for the host."""
    kernels = delay[nodes.computes]
    return float(np.percentile(kernels, 10)) if len(kernels) else 0.0


def _loader(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    factor = change.get_number()
    if not (plan.costs.loading > 0).any():
        raise refuse_change(run, change, "the trace shows no DataLoader at work")
    costs = replace(plan.costs, loading=plan.costs.loading * factor)
    return _use(run, replace(plan, costs=costs))


def _precision(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    moved, factor = change.get_scaled_rank()
    changed = _scale_work(plan, plan.nodes.computes & (plan.nodes.phase != 2), factor)
    changed = scale_bytes(changed, _of_gradients(plan), moved)
    return state_assumption(_use(run, changed), "speed of kernels in another type, as given")


def _of_gradients(plan: DeviceRun) -> Flags:
    return find_gradient_communications(plan.nodes) & (plan.nodes.bytes > 0)


def _gradients(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    chosen = _of_gradients(plan)
    if not chosen.any():
        raise refuse_change(run, change, "the trace shows no gradients being brought together")
    moved = change.get_count()
    return _use(run, scale_bytes(plan, chosen, moved))


def _link(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    factor = change.get_number()
    if not plan.nodes.talks.any():
        raise refuse_change(run, change, "no communication between ranks is in the trace")
    if change.rank >= 0:
        _require_rank(plan, change, change.rank)
    if change.rank >= 0 and factor > 1:
        raise refuse_change(
            run, change, "a collective shows its slowest link, not whose it is; link=xF is for all"
        )
    return _state_missing(_use(run, scale_bandwidth(plan, factor, change.rank)))


def _latency(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    factor = change.get_number()
    if not plan.nodes.talks.any():
        raise refuse_change(run, change, "no communication between ranks is in the trace")
    return _state_missing(_use(run, scale_latencies(plan, factor)))


def _state_missing(run: Workload) -> Workload:
    if isinstance(run.plan, DeviceRun) and run.plan.missing:
        return state_assumption(run, "ranks that were not recorded keep their pace")
    return run


def _overlap(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    if not plan.nodes.talks.any():
        raise refuse_change(run, change, "no communication between ranks is in the trace")
    if change.value == "off":
        return _use(run, block_on_transfers(plan))
    changed = free_compute(plan, find_gradient_communications(plan.nodes))
    if changed is None:
        if is_overlapped(plan.nodes):
            raise refuse_change(run, change, "gradients move during the backward pass already")
        return fill_default_buckets(run, plan, change)
    return state_assumption(
        _use(run, changed), "nothing but the update needs gradients that were brought together"
    )


def _fuse(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    fused = fuse_kernels(plan, str(change.value))
    if fused is None:
        raise refuse_change(run, change, "no two such kernels follow each other on a stream")
    return state_assumption(
        _use(run, fused), "fused kernels take as long as the longest of them, bound by memory"
    )


APPLY_DEVICE: dict[str, Callable[[Workload, DeviceRun, Change], Workload]] = {
    "fix-rank": _fix_rank,
    "slow-rank": _slow_rank,
    "operator": _operator,
    "compute": _compute,
    "batch": _batch,
    "launch": _launch,
    "loader": _loader,
    "precision": _precision,
    "gradients": _gradients,
    "link": _link,
    "latency": _latency,
    "overlap": _overlap,
    "fuse": _fuse,
    **ARRANGE_DEVICE,
}

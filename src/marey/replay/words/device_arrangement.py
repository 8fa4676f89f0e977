"""Changes of how a run on devices is arranged: buckets, rounds, sharding, ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from marey.model.errors import InvalidInput
from marey.replay.changes import Change
from marey.replay.device.buckets import read_units, rebucket
from marey.replay.device.device_run import BucketSizes, DeviceRun
from marey.replay.device.gradient_communications import (
    find_collectives,
    find_gradient_communications,
    fit_sync_costs,
)
from marey.replay.device.passes import reorder_passes
from marey.replay.device.rounds import recompute_blocks, repeat_passes
from marey.replay.device.sharding import keep_parameters, offload_state, scale_ranks, shard_state
from marey.replay.device.transfers import scale_moved
from marey.replay.families.data_parallel import DEFAULT_BUCKET_BYTES, DEFAULT_FIRST_BYTES
from marey.replay.recording.workload import Workload
from marey.replay.words.refusals import refuse_change, state_assumption

Arrange = Callable[[DeviceRun], DeviceRun]


def _arrange(run: Workload, change: Change, plan: DeviceRun, how: Arrange) -> Workload:
    """Return the run arranged in another way, or refuse the change with what is missing."""
    try:
        return replace(run, plan=how(plan))
    except InvalidInput as missing:
        raise refuse_change(run, change, str(missing)) from None


def _put_in_buckets(run: Workload, change: Change, plan: DeviceRun, sizes: BucketSizes) -> Workload:
    if find_collectives(plan.nodes, "reducescatter").any():
        raise refuse_change(run, change, "gradients are scattered layer by layer, not in buckets")
    changed = _arrange(run, change, plan, lambda own: rebucket(own, sizes))
    if fit_sync_costs(plan, find_gradient_communications(plan.nodes)).distinguished:
        return changed
    return state_assumption(changed, "time of collectives in proportion to their bytes")


def fill_default_buckets(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    """Move gradients during the backward pass, in the framework's usual buckets."""
    sizes = BucketSizes(DEFAULT_BUCKET_BYTES, DEFAULT_FIRST_BYTES)
    return _put_in_buckets(run, change, plan, sizes)


def _bucket(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    size = change.get_count()
    if size < 0:
        return fill_default_buckets(run, plan, change)
    return _put_in_buckets(run, change, plan, BucketSizes(size))


def _first_bucket(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    size = change.get_count()
    sizes = plan.buckets or BucketSizes(_find_bucket(run, plan, change))
    return _put_in_buckets(run, change, plan, replace(sizes, first=size))


def _partition(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    size = change.get_number()
    sizes = plan.buckets or BucketSizes(_find_bucket(run, plan, change))
    return _put_in_buckets(run, change, plan, replace(sizes, partition=size))


def _find_bucket(run: Workload, plan: DeviceRun, change: Change) -> int:
    """Return the size at which recorded buckets were closed: that of the smallest full one."""
    try:
        whole = read_units(plan).bucket_bytes
    except InvalidInput as missing:
        raise refuse_change(run, change, str(missing)) from None
    if whole:
        return whole
    nodes = plan.nodes
    inner = nodes.steps[len(nodes.steps) // 2]
    own = (
        find_gradient_communications(nodes) & (nodes.rank == plan.ranks[0]) & (nodes.step == inner)
    )
    order = nodes.start_ms[own].argsort()
    sizes = nodes.bytes[own][order].tolist()
    return int(min(sizes[1:-1] or sizes[:1]))


def _sparsity(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    kept = 1.0 - change.get_number()
    chosen = find_gradient_communications(plan.nodes)
    if not chosen.any():
        raise refuse_change(run, change, "the trace shows no gradients being brought together")
    changed = replace(run, plan=scale_moved(plan, chosen, kept))
    return state_assumption(changed, "cost of packing sparse gradients")


def _accumulate(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    rounds = change.get_count()
    if find_collectives(plan.nodes, "send", "recv", "sendrecv").any():
        raise refuse_change(run, change, "a pipeline accumulates by micro-batches")
    changed = _arrange(run, change, plan, lambda own: repeat_passes(own, rounds))
    assert isinstance(changed.plan, DeviceRun)
    own = replace(changed.plan, samples=changed.plan.samples * rounds)
    return state_assumption(
        replace(changed, plan=own), "one batch was recorded per step, and all cost the same"
    )


def _recompute(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    every = change.get_count()
    if not every:
        raise refuse_change(run, change, "kernels do not show which of them ran again")
    return _arrange(run, change, plan, lambda own: recompute_blocks(own, every))


def _zero(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    changed = _arrange(run, change, plan, shard_state)
    return state_assumption(changed, "scatter and gather from the speed of all-reduce")


def _offload(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    rate = change.get_number()
    changed = _arrange(run, change, plan, lambda own: offload_state(own, rate))
    return state_assumption(changed, "an update on the host as fast as the recorded one")


def _reshard(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    if change.value == "on":
        raise refuse_change(run, change, "where parameters would be gathered again is not shown")
    return _arrange(run, change, plan, keep_parameters)


def _schedule(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    name = str(change.value)
    if name not in ("gpipe", "1f1b"):
        raise refuse_change(
            run,
            change,
            "kernels do not show the layers or the halves of a backward pass it needs; allowed "
            "here: gpipe, 1f1b",
        )
    return _arrange(run, change, plan, lambda own: reorder_passes(own, name))


def _ranks(run: Workload, plan: DeviceRun, change: Change) -> Workload:
    count = change.get_count()
    world = len(plan.ranks)
    changed = _arrange(run, change, plan, lambda own: scale_ranks(own, count))
    assert isinstance(changed.plan, DeviceRun)
    own = replace(changed.plan, samples=changed.plan.samples * count / world)
    changed = state_assumption(
        replace(changed, plan=own), "collectives over another number of ranks"
    )
    return state_assumption(changed, "new ranks as fast as the recorded ones")


ARRANGE_DEVICE: dict[str, Callable[[Workload, DeviceRun, Change], Workload]] = {
    "bucket": _bucket,
    "first-bucket": _first_bucket,
    "partition": _partition,
    "sparsity": _sparsity,
    "recompute": _recompute,
    "accumulate": _accumulate,
    "zero": _zero,
    "offload": _offload,
    "reshard": _reshard,
    "schedule": _schedule,
    "ranks": _ranks,
}

"""Changes of how gradients are brought together, and of how often."""

from __future__ import annotations

from dataclasses import replace

from marey.replay.changes import Change
from marey.replay.families.data_parallel import (
    DEFAULT_BUCKET_BYTES,
    DEFAULT_FIRST_BYTES,
    DataParallel,
    scale_ranks,
)
from marey.replay.families.pipeline_parallel import Layer, Pipeline
from marey.replay.recording.warp import recomputed_share, without_recomputation
from marey.replay.recording.workload import LEAST_RECOMPUTED, Workload
from marey.replay.words.refusals import refuse_change, retime_run, state_assumption


def require_data_parallel(run: Workload, change: Change) -> DataParallel:
    """Return the data-parallel plan that a change is about, or refuse."""
    if not isinstance(run.plan, DataParallel):
        raise refuse_change(run, change, "it is about gradients brought together by all-reduce")
    return run.plan


def change_overlap(run: Workload, change: Change) -> Workload:
    """Move gradients during the backward pass, or after it."""
    plan = require_data_parallel(run, change)
    on = change.value == "on"
    if on and not plan.overlapped:
        plan = replace(
            plan, bucket_bytes=DEFAULT_BUCKET_BYTES, first_bucket_bytes=DEFAULT_FIRST_BYTES
        )
    return replace(run, plan=replace(plan, overlapped=on))


def change_bucket(run: Workload, change: Change) -> Workload:
    """Fill buckets up to another size."""
    plan = require_data_parallel(run, change)
    if not plan.overlapped:
        raise refuse_change(run, change, "without overlap there are no buckets; add overlap=on")
    if not all(work.gradient_ms for work in plan.work.values()):
        raise refuse_change(
            run, change, "the trace has no shapes of gradients; record with record_shapes=True"
        )
    size = change.get_count()
    if size < 0:
        plan = replace(
            plan, bucket_bytes=DEFAULT_BUCKET_BYTES, first_bucket_bytes=DEFAULT_FIRST_BYTES
        )
    else:
        plan = replace(plan, bucket_bytes=size, first_bucket_bytes=None)
    return replace(run, plan=plan)


def change_gradient_type(run: Workload, change: Change) -> Workload:
    """Move gradients in another type."""
    plan = require_data_parallel(run, change)
    moved = change.get_count()
    return replace(run, plan=replace(plan, moved_item_bytes=moved))


def prune_weights(run: Workload, change: Change) -> Workload:
    """Move the gradients of the weights that are left (SAMO)."""
    plan = require_data_parallel(run, change)
    kept = 1.0 - change.get_number()
    changed = replace(run, plan=replace(plan, gradient_scale=plan.gradient_scale * kept))
    return state_assumption(changed, "cost of packing sparse gradients")


def accumulate_batches(run: Workload, change: Change) -> Workload:
    """Train on more batches per update."""
    plan = require_data_parallel(run, change)
    return replace(run, plan=replace(plan, rounds=change.get_count()))


def change_recompute(run: Workload, change: Change) -> Workload:
    """Compute activations again in the backward pass, or stop doing so."""
    every = change.get_count()
    if recomputed_share(run.timelines) > LEAST_RECOMPUTED:
        if every:
            raise refuse_change(
                run, change, "it recomputes already; only recompute=off can change that"
            )
        return retime_run(run, without_recomputation(run.timelines))
    if not every:
        raise refuse_change(run, change, "nothing is recomputed in this trace")
    if isinstance(run.plan, Pipeline):
        layers = tuple(
            Layer(layer.forward, layer.backward + layer.forward) if n % every == 0 else layer
            for n, layer in enumerate(run.plan.layers)
        )
        return replace(run, plan=replace(run.plan, layers=layers))
    plan = require_data_parallel(run, change)
    if not all(work.blocks for work in plan.work.values()):
        raise refuse_change(run, change, "no repeated blocks are visible in the forward pass")
    return replace(run, plan=replace(plan, recompute_every=every))


def change_ranks(run: Workload, change: Change) -> Workload:
    """Train on another number of ranks, each with the same batch."""
    plan = require_data_parallel(run, change)
    count = change.get_count()
    if count < 2:
        raise refuse_change(run, change, "at least two ranks bring gradients together")
    changed = replace(run, plan=scale_ranks(plan, count))
    return state_assumption(changed, "collectives over another number of ranks")


def change_first_bucket(run: Workload, change: Change) -> Workload:
    """Close the first bucket at another size."""
    plan = require_data_parallel(run, change)
    if plan.bucket_bytes is None:
        plan = replace(plan, bucket_bytes=_find_bucket(plan))
    size = change.get_count()
    return replace(run, plan=replace(plan, first_bucket_bytes=size))


def _find_bucket(plan: DataParallel) -> int:
    """Return the size at which the recorded buckets were closed: that of the smallest full one."""
    sizes = [size for size, _ in plan.syncs()]
    full = sizes[1:-1] or sizes[:1]
    return int(min(full))


def partition_buckets(run: Workload, change: Change) -> Workload:
    """Move large buckets in parts."""
    plan = require_data_parallel(run, change)
    size = change.get_number()
    return replace(run, plan=replace(plan, partition_bytes=size))


def shard_state(run: Workload, change: Change) -> Workload:
    """Spread optimizer state over the ranks: scatter gradients, gather updated parameters."""
    plan = require_data_parallel(run, change)
    changed = replace(run, plan=replace(plan, shards_state=True))
    return state_assumption(changed, "scatter and gather from the speed of all-reduce")


def offload_state(run: Workload, change: Change) -> Workload:
    """Keep optimizer state on the host: gradients go down and parameters up over a bus."""
    plan = require_data_parallel(run, change)
    rate = change.get_number()
    work = {
        rank: replace(own, update_ms=own.update_ms + 2 * sum(own.gradient_bytes) / rate)
        for rank, own in plan.work.items()
    }
    changed = replace(run, plan=replace(plan, work=work))
    return state_assumption(changed, "an update on the host as fast as the recorded one")

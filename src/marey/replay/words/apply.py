"""Apply changes to a run, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from marey.replay.changes import Change
from marey.replay.device.device_run import DeviceRun
from marey.replay.recording.workload import Workload
from marey.replay.words.device_words import change_device
from marey.replay.words.gradient_words import (
    accumulate_batches,
    change_bucket,
    change_first_bucket,
    change_gradient_type,
    change_overlap,
    change_ranks,
    change_recompute,
    offload_state,
    partition_buckets,
    prune_weights,
    shard_state,
)
from marey.replay.words.link_words import change_collective, fix_link, scale_latency, scale_link
from marey.replay.words.pipeline_words import (
    change_micro_batches,
    change_schedule,
    change_stages,
    change_virtual_stages,
    post_ahead,
)
from marey.replay.words.refusals import refuse_change
from marey.replay.words.server_words import (
    change_reshard,
    leave_servers,
    place_tensors,
    refuse_unseen_links,
    use_servers,
)
from marey.replay.words.timing_words import (
    change_precision,
    fix_rank,
    scale_batch,
    scale_compute,
    scale_launch,
    scale_loader,
    scale_operator,
    slow_rank,
)


def change_workload(run: Workload, changes: Sequence[Change]) -> Workload:
    """Return the run with the changes made, or refuse the first that it cannot support."""
    refuse_unseen_links(run, changes)
    for change in changes:
        if isinstance(run.plan, DeviceRun):
            run = change_device(run, change)
        else:
            run = APPLY[change.word](run, change)
    return run


def refuse_fusing(run: Workload, change: Change) -> Workload:
    """Refuse to fuse operators of a CPU trace."""
    raise refuse_change(run, change, "only kernels on devices can be fused; use operator=NAME:xF")


APPLY: dict[str, Callable[[Workload, Change], Workload]] = {
    "fix-rank": fix_rank,
    "slow-rank": slow_rank,
    "operator": scale_operator,
    "compute": scale_compute,
    "batch": scale_batch,
    "link": scale_link,
    "latency": scale_latency,
    "fix-link": fix_link,
    "sync": leave_servers,
    "servers": use_servers,
    "overlap": change_overlap,
    "bucket": change_bucket,
    "gradients": change_gradient_type,
    "sparsity": prune_weights,
    "accumulate": accumulate_batches,
    "recompute": change_recompute,
    "schedule": change_schedule,
    "virtual-stages": change_virtual_stages,
    "stages": change_stages,
    "micro-batches": change_micro_batches,
    "receives": post_ahead,
    "reshard": change_reshard,
    "ranks": change_ranks,
    "launch": scale_launch,
    "fuse": refuse_fusing,
    "loader": scale_loader,
    "precision": change_precision,
    "placement": place_tensors,
    "first-bucket": change_first_bucket,
    "partition": partition_buckets,
    "zero": shard_state,
    "offload": offload_state,
    "collective": change_collective,
}

"""How to make a change in the framework that the user trains with."""

from __future__ import annotations

from collections.abc import Sequence

from marey.replay.changes import Change

_HOW: dict[str, str] = {
    "bucket": "DistributedDataParallel(model, bucket_cap_mb={mb:g})",
    "overlap": "wrap the model in DistributedDataParallel instead of reducing after backward()",
    "gradients": (
        "model.register_comm_hook(None, default_hooks.{text}_compress_hook) (torch.distributed."
        "algorithms.ddp_comm_hooks)"
    ),
    "accumulate": "call backward() {text} times per step(), all but the last under model.no_sync()",
    "recompute": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) around blocks",
    "schedule": "torch.distributed.pipelining: use {schedule}",
    "virtual-stages": "give each rank {text} PipelineStage objects",
    "stages": "cut the model into stages of {text} layers",
    "micro-batches": "n_microbatches={text} in the pipeline schedule",
    "receives": "post irecv for the next micro-batch before computing the current one",
    "reshard": "fully_shard(layer, reshard_after_forward={flag})",
    "servers": "start {text} parameter servers and deal the tensors to them in turn",
    "sync": "replace the parameter servers by DistributedDataParallel on all ranks",
    "first-bucket": "DistributedDataParallel(model, bucket_cap_mb_list=[{mb:g}, …])",
    "partition": "split buckets in a communication hook (BytePS: BYTEPS_PARTITION_BYTES)",
    "launch": "torch.compile(model, mode='reduce-overhead'), or capture the step in a CUDA graph",
    "fuse": "torch.compile(model), which fuses elementwise kernels",
    "loader": "DataLoader(num_workers=…, pin_memory=True, prefetch_factor=…)",
    "precision": "torch.autocast(dtype=…) around the forward pass",
    "zero": "DeepSpeed zero_optimization.stage={text}, or torch's ZeroRedundancyOptimizer",
    "offload": "DeepSpeed zero_optimization.offload_optimizer.device=cpu",
    "sparsity": "prune to {text} and train with SAMO (AxoNN)",
    "collective": "NCCL_ALGO, or a hierarchical all-reduce in a communication hook",
    "placement": "deal tensors to the servers by {text}",
    "ranks": "start {text} ranks",
    "batch": "change the batch size of the DataLoader",
    "fix-rank": "look at ranks {text}: same work, more time (clocks, throttling, neighbours)",
    "fix-link": "look at the network of ranks {text}",
}
_SCHEDULES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "zero-bubble": "ScheduleInterleavedZeroBubble (or ScheduleZBVZeroBubble)",
    "message-driven": "a schedule that runs whichever message has arrived (AxoNN)",
}


_SIZES = ("bucket", "first-bucket")


def describe_change(change: Change) -> str:
    """Return the option that makes a change; the change itself where there is none."""
    pattern = _HOW.get(change.word)
    if pattern is None:
        return str(change)
    size = change.get_number() / (1 << 20) if change.word in _SIZES else 0.0
    if change.word == "bucket" and size < 0:
        return "DistributedDataParallel(model) with its default buckets"
    return pattern.format(
        text=change.text,
        mb=size,
        flag=change.value == "on",
        schedule=_SCHEDULES.get(change.text, change.text),
    )


def describe_changes(changes: Sequence[Change]) -> list[str]:
    """Return the options that make all changes."""
    return [describe_change(change) for change in changes]

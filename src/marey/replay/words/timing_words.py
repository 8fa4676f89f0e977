"""Changes of how long work takes: ranks, operators, samples, recomputation, host time."""

from __future__ import annotations

from dataclasses import replace

from marey.replay.changes import Change
from marey.replay.families.data_parallel import DataParallel
from marey.replay.families.pipeline_parallel import Pipeline, fix_stages
from marey.replay.recording.warp import fix_ranks, scale_annotated, scale_host, scale_operators
from marey.replay.recording.workload import Refused, Workload
from marey.replay.words.refusals import refuse_change, retime_run, state_assumption

# An operator's own host time, which more samples do not change.
HOST_MS = 0.05


def fix_rank(run: Workload, change: Change) -> Workload:
    """Make ranks compute as fast as is usual on the others."""
    if isinstance(run.plan, Pipeline):
        return replace(run, plan=fix_stages(run.plan, change.get_counts()))
    return retime_run(run, fix_ranks(run.timelines, change.get_counts()))


def slow_rank(run: Workload, change: Change) -> Workload:
    """Make the operators of a rank take longer."""
    rank, factor = change.get_scaled_rank()
    if rank not in run.timelines:
        raise Refused(f"{change}: unknown rank {rank}; this run has {len(run.timelines)} ranks.")
    slowed = scale_operators(run.timelines, lambda r, _n, _d: factor if r == rank else 1.0)
    return retime_run(run, slowed)


def scale_operator(run: Workload, change: Change) -> Workload:
    """Make operators of one name take another time."""
    name, factor = change.get_scaled_name()
    names = {op.name for steps in run.timelines.values() for s in steps for op in s.operators}
    if name not in names:
        raise Refused(f"{change}: no operator of this name runs on its own in the trace.")
    return retime_run(
        run, scale_operators(run.timelines, lambda _r, n, _d: factor if n == name else 1.0)
    )


def scale_compute(run: Workload, change: Change) -> Workload:
    """Make all operators take another time."""
    factor = change.get_number()
    return retime_run(run, scale_operators(run.timelines, lambda _r, _n, _d: factor))


def scale_batch(run: Workload, change: Change) -> Workload:
    """Give every rank other samples per step; the host's own part stays."""
    factor = change.get_number()
    if isinstance(run.plan, Pipeline):
        scaled = replace(run.plan, samples_factor=run.plan.samples_factor * factor)
        return state_assumption(
            replace(run, plan=scaled), "time of operators at another batch size"
        )

    def grown(_rank: int, _name: str, ms: float) -> float:
        return (min(ms, HOST_MS) + max(ms - HOST_MS, 0.0) * factor) / ms if ms > 0 else 1.0

    return state_assumption(
        retime_run(run, scale_operators(run.timelines, grown)),
        "time of operators at another batch size",
    )


def scale_launch(run: Workload, change: Change) -> Workload:
    """Make the host's time between operators longer or shorter; none with CUDA graphs."""
    factor = change.get_number()
    changed = retime_run(run, scale_host(run.timelines, factor))
    return state_assumption(changed, "all time between operators is the host's own")


def scale_loader(run: Workload, change: Change) -> Workload:
    """Make loading a batch take another time."""
    factor = change.get_number()
    scaled = scale_annotated(run.timelines, lambda name: "DataLoader" in name, factor)
    if scaled is None:
        raise refuse_change(run, change, "the trace shows no DataLoader at work")
    return retime_run(run, scaled)


def change_precision(run: Workload, change: Change) -> Workload:
    """Compute and move gradients in another type; how much faster that computes is the user's."""
    moved, factor = change.get_scaled_rank()
    scaled = scale_operators(run.timelines, lambda _r, _n, _d: factor)
    changed = retime_run(run, scaled)
    if isinstance(changed.plan, DataParallel):
        changed = replace(changed, plan=replace(changed.plan, moved_item_bytes=moved))
    return state_assumption(changed, "speed of operators in another type, as given")

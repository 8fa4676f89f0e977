"""Changes of a pipeline: schedule, stages, micro-batches, receives."""

from __future__ import annotations

from dataclasses import replace

from marey.replay.changes import Change
from marey.replay.families.pipeline_parallel import Pipeline
from marey.replay.recording.workload import Workload
from marey.replay.words.refusals import refuse_change, state_assumption


def require_pipeline(run: Workload, change: Change) -> Pipeline:
    """Return the pipeline that a change is about, or refuse."""
    if not isinstance(run.plan, Pipeline):
        raise refuse_change(run, change, "it is about pipelines")
    return run.plan


def change_schedule(run: Workload, change: Change) -> Workload:
    """Take the passes of a pipeline in another order."""
    plan = require_pipeline(run, change)
    name = str(change.value)
    if name == "interleaved" and plan.virtual == 1:
        plan = _spread_evenly(run, change, plan, 2)
    elif name != "interleaved" and plan.virtual > 1:
        plan = _spread_evenly(run, change, plan, 1)
    changed = _state_messages(run, replace(run, plan=replace(plan, schedule=name)))
    if name == "zero-bubble":
        return state_assumption(changed, "half of a backward pass computes gradients of weights")
    return changed


def change_virtual_stages(run: Workload, change: Change) -> Workload:
    """Give every rank more or fewer stages."""
    plan = require_pipeline(run, change)
    count = change.get_count()
    return _state_messages(run, replace(run, plan=_spread_evenly(run, change, plan, count)))


MESSAGES = "how the messages of several stages per rank share a link"


def _state_messages(before: Workload, after: Workload) -> Workload:
    """Return the changed run, saying once that ranks send for another number of stages."""
    stages = [run.plan.virtual for run in (before, after) if isinstance(run.plan, Pipeline)]
    if len(set(stages)) == 1 or MESSAGES in after.extrapolated:
        return after
    return state_assumption(after, MESSAGES)


def _spread_evenly(run: Workload, change: Change, plan: Pipeline, virtual: int) -> Pipeline:
    """Return the pipeline with its layers spread evenly over its stages."""
    stages = virtual * len(plan.ranks)
    each, left = divmod(len(plan.layers), stages)
    if not each:
        raise refuse_change(
            run, change, f"the trace shows {len(plan.layers)} layers, too few for {stages} stages"
        )
    spread = tuple(each + (1 if n < left else 0) for n in range(stages))
    return replace(plan, virtual=virtual, spread=spread)


def change_stages(run: Workload, change: Change) -> Workload:
    """Spread the layers over the stages differently."""
    plan = require_pipeline(run, change)
    spread = change.get_counts()
    if sum(spread) != len(plan.layers) or len(spread) != plan.shape.stages or 0 in spread:
        raise refuse_change(
            run,
            change,
            f"the trace shows {len(plan.layers)} layers in {plan.shape.stages} stages, each of "
            "which needs one at least",
        )
    return replace(run, plan=replace(plan, spread=spread))


def change_micro_batches(run: Workload, change: Change) -> Workload:
    """Cut the same batch into more or fewer micro-batches."""
    plan = require_pipeline(run, change)
    count = change.get_count()
    changed = replace(run, plan=replace(plan, micro_batches=count))
    return state_assumption(changed, "time of operators and messages at another micro-batch size")


def post_ahead(run: Workload, change: Change) -> Workload:
    """Post receives before they are needed."""
    return replace(run, plan=replace(require_pipeline(run, change), receives_ahead=True))

"""Predictions that are kept, and scored when the changed run has been recorded.

A later run belongs to a prediction if it trains the same model and has the structure that the
changes were to lead to (buckets, schedule, micro-batches, servers …). Changes that leave no mark on
the structure, such as a faster link, are matched only when somebody says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.replay.device.device_run import DeviceRun
from marey.replay.device.gradient_communications import (
    find_collectives,
    find_gradient_communications,
)
from marey.replay.families.data_parallel import DataParallel
from marey.replay.families.fully_sharded import keeps_parameters
from marey.replay.families.pipeline_parallel import Pipeline
from marey.replay.model import Prediction, ReplayModel
from marey.replay.recording.recorded import RecordedPrograms
from marey.replay.recording.warp import recomputed_share
from marey.replay.recording.workload import LEAST_RECOMPUTED, Workload


@dataclass(frozen=True)
class KeptPrediction:
    """A prediction, what it was made from, and what was measured since."""

    id: str
    made_ms: int
    # The recorded run as its site names it, and the cluster it ran on.
    run: str
    cluster: str
    changes: tuple[str, ...]
    base_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    # Which model is trained; the structure of the changed run, and of the recorded one.
    trained: str
    wanted: str
    recorded: str
    measured_ms: float | None = None
    measured_run: str = ""
    measured_at_ms: int | None = None
    # How many times as long a step of the recorded run took with the profiler.
    profiling: float = 1.0
    # Who keeps it; empty where that is not known.
    by: str = ""

    @property
    def error(self) -> float | None:
        """Return the relative error of the prediction, once it was measured."""
        return None if self.measured_ms is None else self.predicted_ms / self.measured_ms - 1.0

    @property
    def inside(self) -> bool | None:
        """Return whether the measured time lies in the stated interval, once it was measured."""
        if self.measured_ms is None:
            return None
        return self.low_ms <= self.measured_ms <= self.high_ms


@dataclass(frozen=True)
class Score:
    """How good the predictions of a site have been so far."""

    kept: int
    measured: int
    mean_error: float | None
    inside_interval: float | None


def keep_prediction(
    model: ReplayModel, made: Prediction, *, run: str, cluster: str, made_ms: int
) -> KeptPrediction:
    """Return the prediction as it is kept."""
    recorded = model.recorded.workload
    changed = model.replay(made.changes).workload
    identity = _digest(run, cluster, made_ms, made.changes)
    return KeptPrediction(
        id=identity,
        made_ms=made_ms,
        run=run,
        cluster=cluster,
        changes=made.changes,
        base_ms=made.base_ms,
        predicted_ms=made.predicted_ms,
        low_ms=made.low_ms,
        high_ms=made.high_ms,
        trained=describe_trained(recorded),
        wanted=describe_structure(changed),
        recorded=describe_structure(recorded),
        profiling=model.recorded_ms / model.base_ms,
    )


def describe_trained(run: Workload) -> str:
    """Return a digest of the model that a run trains: its operators' names, however spread."""
    if isinstance(run.plan, DeviceRun):
        nodes = run.plan.nodes
        return _digest(
            *sorted({nodes.texts[code] for code in np.unique(nodes.name[nodes.computes])})
        )
    names = {op.name for steps in run.timelines.values() for op in steps[0].operators}
    kept = sorted(n for n in names if "allreduce" not in n and "c10d" not in n)
    return _digest(*kept)


def describe_structure(run: Workload) -> str:
    """Return a run's strategy, as far as its trace shows it, as one text."""
    plan = run.plan
    again = recomputed_share(run.timelines) > LEAST_RECOMPUTED
    if isinstance(plan, DataParallel):
        sizes = [round(size) for size, _ in plan.syncs()]
        recomputes = again or plan.recompute_every > 0
        parts: list[object] = [plan.rounds, plan.overlapped, sizes, recomputes]
    elif isinstance(plan, Pipeline):
        parts = [plan.schedule, plan.virtual, plan.spread, plan.micro_batches, again]
    elif run.strategy == "sharded" and isinstance(plan, RecordedPrograms):
        parts = [keeps_parameters(plan)]
    elif isinstance(plan, DeviceRun):
        parts = _describe_device(plan)
    else:
        parts = [run.servers]
    return f"{run.strategy} {len(plan.ranks)} {parts}"


def _describe_device(plan: DeviceRun) -> list[object]:
    """Return the arrangement of a run on devices, as an inner step shows it.

    Bytes and number of what is brought together and gathered, how many kernels every rank runs, and
    in which order of passes.
    """
    nodes = plan.nodes
    inner = nodes.step == nodes.steps[len(nodes.steps) // 2]
    place, turn = nodes.places or (nodes.start_ms, np.zeros(nodes.recorded))
    order = np.lexsort((turn, place, nodes.rank))
    order = order[inner[order]]
    kernels = order[nodes.computes[order] & (nodes.phase[order] >= 0)]
    phases = np.stack([nodes.rank[kernels], nodes.phase[kernels]])
    changes = np.append(True, (np.diff(phases) != 0).any(axis=0))[: len(kernels)]
    sizes = nodes.bytes[order[find_gradient_communications(nodes)[order]]].tolist()
    return [
        sizes,
        int(find_collectives(nodes, "allgather")[order].sum()),
        len(kernels),
        _digest(*phases[:, changes].T.tolist()),
    ]


def find_measured(kept: KeptPrediction, run: Workload) -> bool:
    """Return whether a run is the one that a prediction was about, as far as a trace shows it."""
    if kept.measured_ms is not None or kept.wanted == kept.recorded:
        return False
    return kept.trained == describe_trained(run) and kept.wanted == describe_structure(run)


def measured_step(kept: KeptPrediction, model: ReplayModel) -> float:
    """Return the step of the changed run as the prediction means it.

    Where its time without the profiler is not known, the profiler is taken to cost what it cost in
    the recorded run.
    """
    return model.plain_ms if model.plain_ms is not None else model.recorded_ms / kept.profiling


def record_measured(
    kept: KeptPrediction, *, measured_ms: float, run: str, at_ms: int
) -> KeptPrediction:
    """Return the prediction with what was measured."""
    return replace(kept, measured_ms=measured_ms, measured_run=run, measured_at_ms=at_ms)


def score_predictions(kept: Sequence[KeptPrediction]) -> Score:
    """Return how good these predictions were, over those that were measured."""
    errors = [abs(one.error) for one in kept if one.error is not None]
    inside = [one.inside for one in kept if one.inside is not None]
    return Score(
        kept=len(kept),
        measured=len(errors),
        mean_error=sum(errors) / len(errors) if errors else None,
        inside_interval=sum(inside) / len(inside) if inside else None,
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]

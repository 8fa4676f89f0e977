"""What the API and the command line say of replays, what-ifs, searches and kept predictions."""

from __future__ import annotations

from marey.app.traces.what_if.word_controls import ChangeWord, list_words
from marey.model.access.senders import may_change
from marey.model.documents import Document
from marey.replay.advice import describe_changes
from marey.replay.changes import read_changes
from marey.replay.memory_profile import Memory
from marey.replay.model import Prediction, ReplayModel
from marey.replay.report import busy_shares, critical_path
from marey.replay.search import SearchResult
from marey.replay.verification import KeptPrediction, Score


class PathPart(Document):
    """Part of the critical path of a step; no rank is what happens between ranks."""

    rank: int | None
    what: str
    ms: float


class BusyShares(Document):
    """The share of a step in which ranks work and their links carry bytes, by rank."""

    ranks: list[float]
    links_up: list[float]
    links_down: list[float]


class LinkSpeeds(Document):
    """What the run's own communications say of its links."""

    bytes_per_ms: list[float]
    measured_on: str
    collectives_at_once: int


class RankMemory(Document):
    """A rank's memory over one step, each moment by what fills it, in bytes.

    The peak is above what there was at the start of the step, of which `left_over_bytes` are given
    back in it; `held_bytes` is what there was in all, where the profiler says.
    """

    rank: int
    peak_bytes: int
    held_bytes: int | None
    parameter_bytes: int
    left_over_bytes: int
    step_ms: float
    times_ms: list[float]
    levels: dict[str, list[int]]


class ReplayDocument(Document):
    """A run replayed without changes, and the words it can be asked about."""

    strategy: str
    ranks: int
    recorded_step_ms: float
    plain_step_ms: float | None
    replayed_step_ms: float
    # How much the replay differs from the recorded step.
    error: float
    tasks: int
    critical_path: list[PathPart]
    busy: BusyShares
    links: LinkSpeeds
    peak_bytes: dict[str, int] | None
    # Null where the trace holds no allocations.
    memory: list[RankMemory] | None
    words: list[ChangeWord]


class WhatIfDocument(Document):
    """The step time that changes would lead to, with an interval that holds it in 8 of 10 cases."""

    changes: list[str]
    strategy: str
    # The recorded step, what the user says it takes without the profiler, and how much the
    # unchanged replay differs from it.
    recorded_step_ms: float
    plain_step_ms: float | None
    self_error: float
    base_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    # The share of the step's time that is saved; negative where it is lost.
    gain: float
    # How many times the samples a step trains on, and are trained on in the same time.
    samples: float
    speedup: float
    extrapolated: list[str]
    peak_bytes: dict[str, int] | None
    # Null where the trace does not say what the changes would make of it.
    memory: list[RankMemory] | None
    how: list[str]
    critical_path: list[PathPart]
    # The id under which it is kept; null where it is not.
    kept: str | None


class StrategyDocument(Document):
    """A combination of changes that is worth trying."""

    changes: list[str]
    predicted_ms: float
    low_ms: float
    high_ms: float
    gain: float
    speedup: float
    peak_bytes: int | None
    how: list[str]
    extrapolated: list[str]


class StrategySearch(Document):
    """What a search found, best first; an empty list means that nothing is worth changing."""

    base_ms: float
    tried: int
    excluded_by_memory: int
    finished: bool
    proposals: list[StrategyDocument]


class PredictionDocument(Document):
    """A kept prediction, and how it compares with what was measured."""

    id: str
    made_ms: int
    run: str
    cluster: str
    changes: list[str]
    base_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    measured_ms: float | None
    measured_run: str
    measured_at_ms: int | None
    error: float | None
    inside: bool | None
    # Whether whoever asks may score or forget it.
    may_change: bool


class PredictionList(Document):
    """Kept predictions, newest first, and how good those that were measured are."""

    predictions: list[PredictionDocument]
    measured: int
    mean_error: float | None
    inside_interval: float | None


def make_replay_document(
    model: ReplayModel, memory: Memory, *, words: bool = True
) -> ReplayDocument:
    """Return the unchanged run: how well it is reproduced, and what its time is made of."""
    run = model.recorded
    return ReplayDocument(
        strategy=run.workload.strategy,
        ranks=len(run.workload.plan.ranks),
        recorded_step_ms=model.recorded_ms,
        plain_step_ms=model.plain_ms,
        replayed_step_ms=run.step_ms,
        error=model.self_error,
        tasks=run.graph.tasks.count,
        critical_path=[PathPart(**part) for part in critical_path(run)],
        busy=BusyShares(**busy_shares(run)),
        links=LinkSpeeds(
            bytes_per_ms=[round(float(speed), 3) for speed in run.workload.links.up],
            measured_on=run.workload.links.measured_on,
            collectives_at_once=run.workload.links.at_once,
        ),
        peak_bytes=_by_rank(memory.peaks),
        memory=_list_memory(memory),
        words=list_words() if words else [],
    )


def _by_rank(peaks: dict[int, int] | None) -> dict[str, int] | None:
    return None if peaks is None else {str(rank): peak for rank, peak in peaks.items()}


def _list_memory(memory: Memory) -> list[RankMemory] | None:
    if memory.profiles is None:
        return None
    return [
        RankMemory(
            rank=one.rank,
            peak_bytes=one.peak_bytes,
            held_bytes=one.held_bytes,
            parameter_bytes=one.parameter_bytes,
            left_over_bytes=one.left_over_bytes,
            step_ms=one.step_ms,
            times_ms=list(one.times_ms),
            levels={kind: list(level) for kind, level in one.levels.items()},
        )
        for one in memory.profiles
    ]


def make_what_if_document(
    model: ReplayModel, made: Prediction, memory: Memory, *, kept: str | None = None
) -> WhatIfDocument:
    """Return a prediction with what decides its time and how its changes are made."""
    changed = model.replay(made.changes)
    return WhatIfDocument(
        changes=list(made.changes),
        strategy=model.recorded.workload.strategy,
        recorded_step_ms=model.recorded_ms,
        plain_step_ms=model.plain_ms,
        self_error=model.self_error,
        base_ms=made.base_ms,
        predicted_ms=made.predicted_ms,
        low_ms=made.low_ms,
        high_ms=made.high_ms,
        gain=made.gain,
        samples=made.samples,
        speedup=made.speedup,
        extrapolated=list(made.extrapolated),
        peak_bytes=_by_rank(memory.peaks),
        memory=_list_memory(memory),
        how=describe_changes(read_changes(made.changes)),
        critical_path=[PathPart(**part) for part in critical_path(changed)],
        kept=kept,
    )


def make_search_document(found: SearchResult, base_ms: float) -> StrategySearch:
    """Return the document of a finished search."""
    return StrategySearch(
        base_ms=base_ms,
        tried=found.tried,
        excluded_by_memory=found.excluded_by_memory,
        finished=found.finished,
        proposals=[
            StrategyDocument(
                changes=list(one.prediction.changes),
                predicted_ms=one.prediction.predicted_ms,
                low_ms=one.prediction.low_ms,
                high_ms=one.prediction.high_ms,
                gain=one.prediction.gain,
                speedup=one.prediction.speedup,
                peak_bytes=one.peak_bytes,
                how=list(one.how),
                extrapolated=list(one.prediction.extrapolated),
            )
            for one in found.proposals
        ],
    )


def make_prediction_list(kept: list[KeptPrediction], score: Score) -> PredictionList:
    """Return kept predictions, newest first, with their score."""
    ordered = sorted(kept, key=lambda one: -one.made_ms)
    return PredictionList(
        predictions=[make_prediction_document(one) for one in ordered],
        measured=score.measured,
        mean_error=score.mean_error,
        inside_interval=score.inside_interval,
    )


def make_prediction_document(one: KeptPrediction) -> PredictionDocument:
    """Return one kept prediction."""
    return PredictionDocument(
        id=one.id,
        made_ms=one.made_ms,
        run=one.run,
        cluster=one.cluster,
        changes=list(one.changes),
        base_ms=one.base_ms,
        predicted_ms=one.predicted_ms,
        low_ms=one.low_ms,
        high_ms=one.high_ms,
        measured_ms=one.measured_ms,
        measured_run=one.measured_run,
        measured_at_ms=one.measured_at_ms,
        error=one.error,
        inside=one.inside,
        may_change=may_change(one.by),
    )

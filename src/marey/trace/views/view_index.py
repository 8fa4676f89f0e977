"""The facts about a converted run that every page needs."""

from __future__ import annotations

from typing import TypedDict

import msgspec


class RankFacts(TypedDict):
    """Where a rank ran, and where it stands in the run's parallelism."""

    rank: int
    host: str
    stage: int
    replica: int
    shard: int


class StepSpan(TypedDict):
    """A step, and when it was on the run's aligned clock."""

    step: int
    start_ns: int
    end_ns: int


class ClockFacts(TypedDict):
    """The clocks of the ranks, as ``trace.results.Clocks`` has them."""

    ranks: list[int]
    hosts: list[str]
    offset_us: list[float]
    drift_ppm: list[float]
    residual_us: list[float]
    origin_ns: int
    error_us: float


class DimensionFacts(TypedDict):
    """A kind of parallelism with its groups of ranks, as ``trace.results.Dimension`` has it."""

    kind: str
    size: int
    groups: list[list[int]]
    confidence: float
    evidence: str


class ParallelismFacts(TypedDict):
    """How the run is split."""

    dimensions: list[DimensionFacts]
    micro_batches: int
    schedule: str
    confidence: float


class ViewIndex(msgspec.Struct):
    """What was written, and the facts about the run that every page needs."""

    format: int
    ranks: list[RankFacts]
    steps: list[StepSpan]
    clock: ClockFacts
    parallelism: ParallelismFacts
    notes: list[str]
    missing: list[int]

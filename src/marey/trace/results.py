"""What an analysis of a run yields: the tables and small records that reports and views read.

Times in tables are nanoseconds on the run's aligned clock unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypedDict

import pyarrow as pa

# One row per matched collective or point-to-point exchange, ordered by last arrival.
ITEMS = pa.schema(
    [
        pa.field("item", pa.int64()),
        # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, …, send_recv
        pa.field("name", pa.string()),
        pa.field("group", pa.string()),
        pa.field("point_to_point", pa.bool_()),
        pa.field("bytes", pa.int64()),
        pa.field("dtype", pa.string()),
        pa.field("step", pa.int32()),
        pa.field("participants", pa.int32()),
        # Members the group should have had; more than `participants` where ranks were not traced.
        pa.field("expected", pa.int32()),
        pa.field("first_arrival_ns", pa.int64()),
        pa.field("last_arrival_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        # The rank with the latest device-side start; `certain` if beyond the clock's error.
        pa.field("last_rank", pa.int32()),
        pa.field("certain", pa.bool_()),
        pa.field("skew_us", pa.float64()),
        # From the last arrival to the end.
        pa.field("transfer_us", pa.float64()),
        # comms_id, sequence, order or repaired (see Matches.method).
        pa.field("method", pa.string()),
        pa.field("confidence", pa.float64()),
    ]
)

# One row per rank that took part in an item; `item` is -1 for a call that found no partner.
MEMBERS = pa.schema(
    [
        pa.field("item", pa.int64()),
        pa.field("rank", pa.int32()),
        # The row of the device-side event in the rank's own event table.
        pa.field("row", pa.int64()),
        pa.field("step", pa.int32()),
        pa.field("start_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        # From the host's call to the device-side start; negative if unknown.
        pa.field("launch_us", pa.float64()),
        pa.field("wait_us", pa.float64()),
        pa.field("transfer_us", pa.float64()),
    ]
)

# GPU-seconds that `victim` waited because of `culprit`, by what the culprit did meanwhile.
BLAME = pa.schema(
    [
        pa.field("culprit", pa.int32()),
        pa.field("victim", pa.int32()),
        pa.field("step", pa.int32()),
        # compute, input, host, start, transfer or other
        pa.field("cause", pa.string()),
        # The operator of the culprit with the largest excess over its peers, or "".
        pa.field("operator", pa.string()),
        pa.field("gpu_seconds", pa.float64()),
    ]
)


class BlameRow(TypedDict):
    """One row of ``BLAME``."""

    culprit: int
    victim: int
    step: int
    cause: str
    operator: str
    gpu_seconds: float


# The chain of work that decided how long the run took, first to last.
CRITICAL_PATH = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("step", pa.int32()),
        # compute, transfer, or delay (input, host, start, other)
        pa.field("activity", pa.string()),
        pa.field("name", pa.string()),
        pa.field("item", pa.int64()),
        pa.field("start_ns", pa.int64()),
        pa.field("dur_ns", pa.int64()),
    ]
)

# Steps of each rank on the aligned clock.
STEPS = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("step", pa.int32()),
        pa.field("start_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
    ]
)


class VerdictKind(StrEnum):
    """What can be wrong with a run; `none` when nothing is."""

    NONE = "none"
    SLOW_WORKER = "slow_worker"
    LATE_START = "late_start"
    INPUT_BOUND = "input_bound"
    HOST_BOUND = "host_bound"
    STAGE_IMBALANCE = "stage_imbalance"
    SEQUENCE_IMBALANCE = "sequence_imbalance"
    SLOW_LINK = "slow_link"
    COMMUNICATION_BOUND = "communication_bound"
    MOVING_STRAGGLER = "moving_straggler"
    COPY_BOUND = "copy_bound"
    # Stages wait for the first and last micro-batches: the price of a pipeline, no fault.
    PIPELINE_BUBBLE = "pipeline_bubble"
    # Idle time that nothing in the recording accounts for.
    UNEXPLAINED_IDLE = "unexplained_idle"
    # Graphs were captured while recording; hardly anything ran.
    GRAPH_CAPTURE = "graph_capture"


@dataclass(frozen=True)
class Verdict:
    """One cause, named once: who, when, in which operators, and what fixing it would win."""

    kind: VerdictKind
    # Causes, never victims; empty when the cause belongs to the whole run.
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    operators: tuple[str, ...] = ()
    # Wall time of the profiled steps that a replay without the cause would save.
    recoverable_ms: float = 0.0
    confidence: float = 0.0
    # Short sentences with the figures that led here.
    evidence: tuple[str, ...] = ()


class VerdictRecord(TypedDict):
    """A verdict as it is kept, written into reports and sent."""

    kind: str
    ranks: list[int]
    steps: list[int]
    operators: list[str]
    recoverable_ms: float
    confidence: float
    evidence: list[str]


def make_verdict_record(verdict: Verdict) -> VerdictRecord:
    """Return a verdict as plain values."""
    return VerdictRecord(
        kind=str(verdict.kind),
        ranks=list(verdict.ranks),
        steps=list(verdict.steps),
        operators=list(verdict.operators),
        recoverable_ms=float(verdict.recoverable_ms),
        confidence=float(verdict.confidence),
        evidence=list(verdict.evidence),
    )


@dataclass(frozen=True)
class Matches:
    """Collectives and point-to-point exchanges joined across ranks."""

    items: pa.Table
    members: pa.Table
    matched: int
    unmatched: int
    # The rung of the ladder most items were matched by, and the mean confidence.
    method: str
    confidence: float


@dataclass(frozen=True)
class Clocks:
    """Clocks of ranks: aligned = recorded − offset − drift × (recorded − origin)."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    offset_us: tuple[float, ...]
    drift_ppm: tuple[float, ...]
    # Typical distance of the rank's collective ends from the fit.
    residual_us: tuple[float, ...]
    origin_ns: int
    # No claim is made about differences smaller than this.
    error_us: float


@dataclass(frozen=True)
class Dimension:
    """A kind of parallelism: data, fully_sharded, tensor, pipeline, expert, context, unknown."""

    kind: str
    size: int
    groups: tuple[tuple[int, ...], ...]
    confidence: float
    evidence: str


@dataclass(frozen=True)
class Parallelism:
    """How the run is split, and where each rank stands in it."""

    dimensions: tuple[Dimension, ...]
    # rank → pipeline stage (0 without a pipeline) and rank → data-parallel index.
    stages: Mapping[int, int]
    replicas: Mapping[int, int]
    micro_batches: int
    # none, gpipe, 1f1b, interleaved or unknown
    schedule: str
    confidence: float


@dataclass(frozen=True)
class Slowdown:
    """The what-if measures of "Understanding Stragglers in Large Model Training" (OSDI 2025)."""

    # Mean replayed step time without launch delays, and with every operation at its typical cost.
    step_ms: float
    ideal_ms: float
    # Mean recorded step time over step_ms: what launch delays cost.
    launch: float
    S: float
    M_W: float
    M_S: float
    by_type: Mapping[str, float]
    by_stage: Mapping[int, float]
    by_replica: Mapping[int, float]
    # S_w = min(S_dp, S_stage) of each rank.
    by_worker: Mapping[int, float]
    by_step: Mapping[int, float]

    @property
    def waste(self) -> float:
        """The share of GPU time lost: 1 − 1/S."""
        return 1 - 1 / self.S if self.S > 0 else 0.0


@dataclass(frozen=True)
class Analysis:
    """Everything the analysis of one run found."""

    ranks: tuple[int, ...]
    hosts: Mapping[int, str]
    steps: pa.Table
    matches: Matches
    clocks: Clocks
    parallelism: Parallelism
    slowdown: Slowdown | None
    blame: pa.Table
    critical_path: pa.Table
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = field(default=())

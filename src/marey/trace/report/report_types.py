"""The parts of a report document; ``report_schema.json`` says the same to other programs."""

from __future__ import annotations

from typing import Literal, TypedDict

from marey.trace.rank.breakdown import BreakdownRecord, IdleRecord
from marey.trace.rank.memory import DeviceMemory
from marey.trace.rank.steps import StepStatistics
from marey.trace.results import VerdictRecord


class RunFacts(TypedDict):
    """What a run is, at a glance."""

    ranks: int
    world_size: int
    hosts: int
    frameworks: list[str]
    backends: list[str]
    devices: list[str]
    has_device: bool
    events: int
    span_ms: float
    steps: int
    step_time: StepStatistics
    recorded_by_marey: bool


# Figures of a rank that tables show side by side.
RankColumn = Literal[
    "compute_ms",
    "comm_ms",
    "exposed_comm_ms",
    "exposed_wait_ms",
    "memcpy_ms",
    "exposed_memcpy_ms",
    "busy_ms",
    "idle_ms",
    "idle_input_ms",
    "idle_peers_ms",
    "idle_host_ms",
    "idle_start_ms",
    "idle_other_ms",
    "idle_unexplained_ms",
    "recompute_ms",
]


class RankBreakdown(BreakdownRecord):
    """The breakdown of a rank over all that it recorded."""

    exposed_wait_ms: float
    recompute_ms: float


class RankRecord(RankBreakdown):
    """One rank."""

    rank: int
    host: str
    process: int | None
    device: int | None


class RankStepTimes(IdleRecord):
    """One step of a rank."""

    step: int
    duration_ms: float
    exposed_wait_ms: float


class StepRecord(RankStepTimes):
    """One step of one of the ranks."""

    rank: int


class KernelRow(TypedDict):
    """A kernel, over all ranks."""

    name: str
    kind: str
    count: int
    total_ms: float
    mean_us: float
    min_us: float
    max_us: float
    share: float


class OperatorRow(TypedDict):
    """An operator in a module, over all ranks."""

    name: str
    module: str
    count: int
    host_total_ms: float
    host_self_ms: float
    device_ms: float
    kernels: int


class LaunchRecord(TypedDict):
    """How a rank's work was launched."""

    rank: int
    linked: int
    unlinked: int
    delay_median_us: float
    delay_p95_us: float
    delay_max_us: float
    call_median_us: float
    shorter_than_launch: float
    queue_mean: float
    queue_max: int
    queue_empty: float


class MemoryRecord(TypedDict):
    """The memory of a rank's devices."""

    rank: int
    devices: list[DeviceMemory]


class MatchedItem(TypedDict):
    """One communication that several ranks took part in."""

    name: str
    group: str
    bytes: int
    step: int
    last_rank: int
    certain: bool
    skew_us: float
    transfer_us: float | None
    participants: int
    expected: int
    point_to_point: bool
    method: str
    confidence: float
    last_arrival_ns: int


class CollectiveRecord(MatchedItem):
    """A communication, and how long each rank waited for the last."""

    wait_us: dict[str, float]


class CollectivesRecord(TypedDict):
    """All communications, and how they were matched."""

    matched: int
    unmatched: int
    method: str
    confidence: float
    items: list[CollectiveRecord]


class ClockRecord(TypedDict):
    """How a rank's clock differs from the first rank's."""

    rank: int
    host: str
    offset_us: float
    drift_ppm: float
    residual_us: float | None


class DimensionRecord(TypedDict):
    """One dimension of parallelism."""

    kind: str
    size: int
    groups: list[list[int]]
    confidence: float
    evidence: str


class ParallelismRecord(TypedDict):
    """How the ranks share the work."""

    dimensions: list[DimensionRecord]
    stages: dict[str, int]
    replicas: dict[str, int]
    micro_batches: int
    schedule: str
    confidence: float


class SlowdownRecord(TypedDict):
    """How much longer a step takes than if all ranks were equal."""

    S: float
    M_W: float | None
    M_S: float | None
    waste: float
    step_ms: float
    ideal_ms: float
    launch: float | None
    by_type: dict[str, float]
    by_stage: dict[str, float]
    by_replica: dict[str, float]
    by_worker: dict[str, float]
    by_step: dict[str, float]


class BandwidthRow(TypedDict):
    """The speed of communications of one name and size."""

    name: str
    participants: int
    bytes: int
    count: int
    transfer_median_us: float
    algorithm_gb_s: float | None
    bus_gb_s: float | None
    slow_ratio: float | None
    groups: int
    slowest_group: str
    slowest_bus_gb_s: float | None


class BlameSum(TypedDict):
    """What somebody's lateness cost, over all steps."""

    culprit: int
    cause: str
    operator: str
    steps: int
    gpu_seconds: float


class CulpritRecord(BlameSum):
    """What it cost all who waited."""

    victims: int


class BlameRecord(BlameSum):
    """What it cost one rank."""

    victim: int


class PathPiece(TypedDict):
    """A piece of the critical path."""

    rank: int
    step: int
    activity: str
    name: str
    duration_ms: float


class CriticalPathRecord(TypedDict):
    """The critical path by activity and by rank, and its longest pieces."""

    total_ms: float
    by_activity: dict[str, float]
    by_rank: dict[str, float]
    longest: list[PathPiece]


class NoteRecord(TypedDict):
    """What a reader of the report should know."""

    file: str
    text: str


class ReportDocument(TypedDict):
    """Everything Marey can say about a run."""

    schema: int
    marey: str
    run: RunFacts
    verdicts: list[VerdictRecord]
    ranks: list[RankRecord]
    collectives: CollectivesRecord
    clock: list[ClockRecord]
    clock_error_us: float
    parallelism: ParallelismRecord
    slowdown: SlowdownRecord | None
    steps: list[StepRecord]
    kernels: list[KernelRow]
    operators: list[OperatorRow]
    launches: list[LaunchRecord]
    memory: list[MemoryRecord]
    bandwidth: list[BandwidthRow]
    culprits: list[CulpritRecord]
    blame: list[BlameRecord]
    critical_path: CriticalPathRecord
    notes: list[NoteRecord]

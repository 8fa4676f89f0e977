"""What the API says of runs of profiler traces."""

from __future__ import annotations

from typing import Literal

import msgspec

from marey.model.documents import Document
from marey.trace.results import VerdictRecord

RunState = Literal["uploading", "found", "waiting", "converting", "ready", "failed", "cancelled"]
FileState = Literal["partial", "complete", "refused"]
Origin = Literal["upload", "folder", "demo"]


class TraceRunSummary(Document):
    """One run in the list."""

    id: str
    name: str
    cluster: str
    # Empty where it belongs to no workload that is known.
    workload: str
    origin: Origin
    state: RunState
    # 0 to 1 while it is converted, and what is being done.
    progress: float
    doing: str
    error: str
    ranks: int
    steps: int
    files: int
    bytes: int
    created_ms: int
    # When the recording began and ended; null before it is converted.
    start_ms: int | None
    end_ms: int | None
    # Heading and kind of the first verdict; empty before it is converted.
    verdict: str
    verdict_kind: str
    warnings: list[str]
    # Whether whoever asks may rename it, attach it and send to it.
    may_change: bool


class TraceRuns(Document):
    """A page of runs, newest first; ``next`` is the cursor of the following page, or null."""

    runs: list[TraceRunSummary]
    next: str | None


class TraceFile(Document):
    """One uploaded file; ``received`` of its ``bytes`` are there."""

    file: str
    bytes: int
    received: int
    state: FileState
    note: str


class TraceLimits(Document):
    """What may be sent and how long it is kept."""

    files: int
    file_bytes: int
    total_bytes: int
    used_bytes: int
    retention_ms: int
    folders: list[str]


class TraceRank(Document):
    """One rank of a run, and where it stands; ``missing``: expected, but not traced."""

    rank: int
    host: str
    stage: int
    replica: int
    shard: int
    missing: bool
    # What is subtracted from its clock, and how far its collectives lie from the fit.
    clock_offset_us: float | None
    clock_residual_us: float | None


class TraceStep(Document):
    """One step on the run's clock, over all ranks."""

    step: int
    start_ns: int
    dur_ns: int


class TraceDimension(Document):
    """A kind of parallelism and its groups of ranks."""

    kind: str
    size: int
    groups: list[list[int]]
    confidence: float
    evidence: str


class TraceParallelism(Document):
    """How the run is split."""

    dimensions: list[TraceDimension]
    stages: int
    micro_batches: int
    schedule: str
    confidence: float


class TraceRunDetail(Document):
    """A run with what its pages need first; before it is converted the lists are empty."""

    run: TraceRunSummary
    ranks: list[TraceRank]
    steps: list[TraceStep]
    parallelism: TraceParallelism | None
    # No claim is made about differences smaller than this.
    clock_error_us: float | None
    # The step that pages open with.
    first_step: int | None
    kinds: list[str]
    notes: list[str]


class TraceVerdict(Document):
    """One cause in words, with the selection that shows it."""

    kind: str
    title: str
    sentence: str
    advice: str
    ranks: list[int]
    steps: list[int]
    operators: list[str]
    recoverable_ms: float
    # Of the recorded time; null without steps.
    share: float | None
    confidence: float
    evidence: list[str]
    where: str
    # The what-if that would undo it; empty where no change does.
    what_if: list[str]


class TraceVerdicts(Document):
    """Every verdict, the most costly first."""

    verdicts: list[TraceVerdict]


class TracePart(Document):
    """One quantity of a step on both sides of a comparison."""

    name: str
    a_ms: float
    b_ms: float
    delta_ms: float
    p: float | None
    significant: bool


class TraceChange(Document):
    """One kernel, operator or module on both sides, per step and rank."""

    layer: str
    name: str
    change: str
    a_ms: float
    b_ms: float
    delta_ms: float
    a_calls: float
    b_calls: float
    p: float | None
    significant: bool


class TraceDifference(Document):
    """What run B does differently from run A."""

    a: str
    b: str
    samples: str
    significance: float
    a_steps: list[int]
    b_steps: list[int]
    parts: list[TracePart]
    changes: list[TraceChange]


class FlowSharding(Document):
    """How a tensor is cut: slices per dimension, and how that is known."""

    evidence: Literal["exact", "inferred", "unknown"]
    slices: list[int]
    why: str


class FlowNode(Document):
    """One operator of the execution flow, over the ranks of its stage."""

    id: int
    kind: str
    name: str
    module: str
    stage: int
    phase: str
    order: int
    block: int
    micro_batch: int
    operator: int
    ranks: int
    calls: int
    min_ms: float
    median_ms: float
    max_ms: float
    slowest_rank: int
    wait_ms: float
    blame_s: float
    # Null where the trace does not tell.
    memory_bytes: int | None
    shapes: str
    sharding: FlowSharding
    # Number of the stack that it is in, or -1, and which copy it belongs to.
    stack: int
    copy: int


class FlowEdge(Document):
    """What follows from what, and how that is known."""

    source: int
    target: int
    evidence: Literal["tensor", "backward", "communication", "order"]
    long: bool
    hub: bool


class FlowStack(Document):
    """Equal subgraphs shown once; ``members`` are the nodes of every copy."""

    id: int
    name: str
    copies: int
    nodes: list[int]
    members: list[list[int]]


class ExecutionFlow(Document):
    """The model as a graph."""

    step: int
    stages: list[int]
    nodes: list[FlowNode]
    edges: list[FlowEdge]
    stacks: list[FlowStack]
    notes: list[str]


class RunRecord(Document):
    """What is kept of a run beside its files."""

    id: str
    name: str
    cluster: str
    workload: str
    origin: Origin
    state: RunState
    created_ms: int
    # Where the traces are, of a run in a folder.
    path: str = ""
    error: str = ""
    ranks: int = 0
    steps: int = 0
    start_ms: int | None = None
    end_ms: int | None = None
    verdicts: list[VerdictRecord] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    # Who attached it: "person", "recording" or "".
    attached_by: str = ""
    # Of a demo run: what is wrong in the metrics, and with which GPUs.
    fault: str = ""
    faulty_gpus: list[str] = msgspec.field(default_factory=list)
    # Who sent it; empty where that is not known.
    by: str = ""

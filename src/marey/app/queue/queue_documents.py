"""What the API and the command line say of the waiting line."""

from __future__ import annotations

from marey.model.documents import Document


class AheadDocument(Document):
    """What stands before a workload; GPU-hours by time limits, null where one has none."""

    jobs: int
    gpus: int
    gpu_hours: float | None


class StartDocument(Document):
    """Seconds until the start at 10, 50 and 90 %; null where it is unknown."""

    workload: str
    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    # Where the forecast comes from: a simulation of the line, or the site's history.
    method: str
    # When the scheduler itself expects the start, where it says.
    scheduler_s: float | None
    sentence: str
    # How this site's past forecasts, and the scheduler's own, came out.
    record: str
    scheduler_record: str


class ForecastPoint(Document):
    """What was forecast at an earlier moment; the moments of start that it meant."""

    made_ms: int
    p10_ms: int
    p50_ms: int
    p90_ms: int


class CalibrationPoint(Document):
    """A stated share, and the share of forecasts that came true by then."""

    stated: float
    achieved: float


class ForecastRecord(Document):
    """How good this site's forecasts have been; who still waits past the interval is a miss."""

    scored: int
    waiting: int
    overdue: int
    cancelled: int
    coverage: float | None
    within_2x: float | None
    scheduler_scored: int
    scheduler_within_2x: float | None
    calibration: list[CalibrationPoint]
    sentence: str
    method: str


class RoomPoint(Document):
    """What was free of a GPU model in a partition at a moment."""

    time_ms: int
    partition: str
    model: str
    gpus: int
    free: int
    whole_hosts_free: int
    largest_gang: int
    stranded_share: float


class RoomTrend(Document):
    """What was free over time, oldest first."""

    rows: list[RoomPoint]


class PolicyDocument(Document):
    """The parts of a policy that decide most."""

    order: str
    backfill: str
    placement: str


class ComparedWaits(Document):
    """Mean waits of some jobs under the recorded policy and under the other one."""

    name: str
    jobs: int
    mean_wait_now_s: float | None
    mean_wait_s: float | None
    change_s: float | None
    p90_wait_now_s: float | None
    p90_wait_s: float | None
    never_start: int
    # "loses", "gains", or "" where the change is too small to be told.
    verdict: str


class PolicyAnswer(Document):
    """What another policy would have done with a partition's own workloads."""

    partition: str
    jobs: int
    policy: PolicyDocument
    current: PolicyDocument
    # Of the jobs whose start was recorded: as it was, and with the current policy replayed.
    recorded_mean_wait_s: float | None
    replayed_mean_wait_s: float | None
    # Of all jobs, with the current policy replayed: what another policy is compared with.
    current_mean_wait_s: float | None
    error: float | None
    near: float
    refused: str
    mean_wait_s: float | None
    p90_wait_s: float | None
    utilization: float | None
    current_utilization: float | None
    # Part of the free GPUs that the typical workload could not have used.
    stranded: float | None
    current_stranded: float | None
    evictions: float
    lost_gpu_hours: float
    never_start: int
    # Who would lose and who would gain, in words.
    losses: list[str]
    gains: list[str]
    notes: list[str]
    by_size: list[ComparedWaits]
    by_user: list[ComparedWaits]
    by_project: list[ComparedWaits]


class WaiterDocument(Document):
    """One line of the waiting line."""

    workload: str
    user: str
    project: str
    partition: str
    position: int
    gpus: int
    gpus_per_host: int
    gpu_model: str
    time_limit_s: int | None
    submit_ms: int
    waited_s: float
    priority: float
    reason: str
    verdict: str
    sentence: str
    p50_s: float | None
    p90_s: float | None


class WaitingLine(Document):
    """Who waits, in the scheduler's order; ``total`` are asked for, ``waiting`` are all."""

    time_ms: int
    rows: list[WaiterDocument]
    total: int
    waiting: int
    method: str


class AgingDocument(Document):
    """What a day of waiting adds to a priority, what age can still add; null where not known."""

    per_day: float | None
    still_to_come: float | None
    full_in_s: float | None
    sentence: str


class WhyDocument(Document):
    """Why one workload waits."""

    workload: str
    verdict: str
    position: int
    waiting: int
    position_partition: int
    reason: str
    sentences: list[str]
    ahead: AheadDocument
    ahead_own: AheadDocument
    ahead_project: AheadDocument
    ahead_others: AheadDocument
    blocking_hosts: list[str]
    blocking_workloads: list[str]
    free_at_ms: int | None
    priority: float
    factors: dict[str, float]
    aging: AgingDocument
    changes: list[str]
    start: StartDocument
    forecasts: list[ForecastPoint]


class RoomDocument(Document):
    """What is free of one GPU model in one partition."""

    partition: str
    model: str
    gpus: int
    free: int
    out_of_service: int
    hosts: int
    whole_hosts_free: int
    largest_on_one_host: int
    largest_gang: int
    stranded: float
    stranded_share: float
    next_host: str
    next_host_ms: int | None
    next_host_holders: list[str]


class FreeDocument(Document):
    """What is free, really."""

    time_ms: int
    rows: list[RoomDocument]


class AskedStart(Document):
    """When a request would start, if it were submitted now."""

    gpus: int
    gpu_model: str
    partition: str
    time_limit_s: int
    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    sentence: str


class AskDocument(Document):
    """The request, and what would start sooner."""

    time_ms: int
    asked: AskedStart
    alternatives: list[AskedStart]
    method: str


class ShareDocument(Document):
    """A project's use against its share."""

    project: str
    gpu_hours: float
    used_share: float
    fair_share: float
    waiting_gpus: int
    # Used over fair; none where the project has no share.
    ratio: float | None


class FairnessDocument(Document):
    """Use against share per project over a period."""

    from_ms: int
    to_ms: int
    # equal, scheduler, configuration or withheld; and in words.
    shares_from: str
    sentence: str
    rows: list[ShareDocument]


class SlowHost(Document):
    """A host whose runs are persistently slower than the same applications elsewhere."""

    host: str
    # 0.3: a third longer.
    slower: float


class FeatureShare(Document):
    """What a fact explains: how much of the own history's error comes back without it."""

    name: str
    share: float


class PerformanceDocument(Document):
    """What a site's repeated runs tell of its hosts and its load."""

    runs: int
    # Root mean square of log(run time / prediction), each application left out; of its own mean.
    error: float | None
    own_error: float | None
    gain_claimed: bool
    features: list[FeatureShare]
    slow_hosts: list[SlowHost]
    sentence: str


class RateInterval(Document):
    """What 8 in 10 runs like this one reach, and from how many earlier ones that is known."""

    p10: float
    p50: float
    p90: float
    unit: str
    runs: int


class RunTimeDocument(Document):
    """How long a workload should run, how fast, and how well it should use its GPUs.

    Without enough history there are no figures, and the sentence says so.
    """

    workload: str
    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    own_runs: int
    slowest_host: str
    host_factor: float
    # How much longer than usual, by the hosts and the state of the system now; what explains it.
    factor: float
    features: list[FeatureShare]
    throughput: RateInterval | None
    efficiency: RateInterval | None
    sentence: str

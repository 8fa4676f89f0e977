"""The waiting line: who waits and why, when it starts, what is free, who uses what."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Path, Query
from starlette.responses import Response

from marey.api.answers import Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, FromMs, TheService, ToMs
from marey.api.problems import described
from marey.app.queue.performance_queries import AskPerformance, AskRunTime
from marey.app.queue.queue_documents import (
    AskDocument,
    FairnessDocument,
    ForecastRecord,
    FreeDocument,
    PerformanceDocument,
    PolicyAnswer,
    RoomTrend,
    RunTimeDocument,
    WaitingLine,
    WhyDocument,
)
from marey.app.queue.queue_queries import (
    LINE_BOUNDS,
    AskFairness,
    AskForecastRecord,
    AskFree,
    AskLine,
    AskRoomTrend,
    AskStart,
    AskWhy,
)
from marey.app.queue.what_if_report import summarize_answer, write_what_if_report
from marey.app.queue.what_if_store import DAYS_BOUNDS, AskPolicy
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT

router = typed_router("queue", reads=Permission.READ)

_Name = Annotated[str, Query(max_length=NAME_LIMIT, description="Only of this name.")]
_Where = Annotated[str, Query(max_length=20_000, description="A filter as JSON.")]
_Limit = Annotated[int, Query(ge=LINE_BOUNDS[0], le=LINE_BOUNDS[1], description="Most rows.")]
_Gpus = Annotated[int, Query(ge=1, le=100_000, description="GPUs asked for.")]
_Time = Annotated[str, Query(max_length=20, description="Time limit.", examples=["12h"])]
_Type = Annotated[str, Query(max_length=NAME_LIMIT, description="GPU type.", examples=["A100"])]
_Days = Annotated[
    int, Query(ge=DAYS_BOUNDS[0], le=DAYS_BOUNDS[1], description="Days of history to replay.")
]
_Order = Annotated[str, Query(max_length=20, description="fifo or multifactor.")]
_Backfill = Annotated[str, Query(max_length=20, description="none, easy or conservative.")]
_Placement = Annotated[
    str, Query(max_length=20, description="most_allocated, least_allocated or fgd.")
]
_FavorSmall = Annotated[bool, Query(description="Give small workloads a higher priority.")]
_Hosts = Annotated[int, Query(ge=-1000, le=1000, description="Hosts more (or fewer).")]
_Json = Annotated[
    str,
    Query(
        max_length=8000,
        description="A whole policy as JSON, in place of the settings above.",
        examples=['{"backfill": "conservative", "preemption": "requeue"}'],
    ),
]
_Format = Annotated[str, Query(pattern="^(json|html)$", description="json or html.")]
_PAGE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/html": {"schema": {"type": "string"}}}}
}
_Workload = Annotated[str, Path(max_length=NAME_LIMIT, description="Id of the workload.")]


@router.get(
    "/queue",
    operation_id="waitingLine",
    summary="List who waits, in the scheduler's order, and why",
    response_description="The line.",
    responses=described(404, 422),
)
def waiting_line(
    service: TheService,
    *,
    cluster: Cluster = DEFAULT,
    user: _Name = "",
    project: _Name = "",
    partition: _Name = "",
    where: _Where = "",
    limit: _Limit = 200,
) -> Answer[WaitingLine]:
    """Place, request, reason in words and expected start of everybody who waits."""
    question = AskLine(cluster, user, project, partition=partition, where=where, limit=limit)
    return Answer(question.ask(service.workspace))


@router.get(
    "/queue/{workload}",
    operation_id="whyWaiting",
    summary="Say why a workload waits and when it will start",
    response_description="The explanation.",
    responses=described(404, 422),
)
def why_waiting(
    service: TheService, workload: _Workload, cluster: Cluster = DEFAULT
) -> Answer[WhyDocument]:
    """Position, who is ahead, the concrete blocker, what changed, the forecast."""
    return Answer(AskWhy(workload, cluster).ask(service.workspace))


@router.get(
    "/queue-free",
    operation_id="freeRoom",
    summary="Say what is free, really",
    response_description="Room per partition and GPU model.",
    responses=described(404, 422),
)
def free_room(service: TheService, cluster: Cluster = DEFAULT) -> Answer[FreeDocument]:
    """Largest gang that starts now, whole hosts free, GPUs nobody can use."""
    return Answer(AskFree(cluster).ask(service.workspace))


@router.get(
    "/queue-ask",
    operation_id="askStart",
    summary="Say when a request would start if it were submitted now",
    response_description="The expected start, and what would start sooner.",
    responses=described(404, 422),
)
def ask_start(
    service: TheService,
    *,
    gpus: _Gpus,
    time: _Time = "1h",
    type: _Type = "",
    partition: _Name = "",
    cluster: Cluster = DEFAULT,
) -> Answer[AskDocument]:
    """The request is simulated at the end of the line, and so are cheaper ones."""
    question = AskStart(gpus, time, type, partition=partition, cluster=cluster)
    return Answer(question.ask(service.workspace))


@router.get(
    "/queue-fairness",
    operation_id="fairness",
    summary="Compare use with share per project",
    response_description="GPU-hours and shares.",
    responses=described(404, 422),
)
def fairness(
    service: TheService, from_ms: FromMs, to_ms: ToMs, cluster: Cluster = DEFAULT
) -> Answer[FairnessDocument]:
    """GPU-hours held over a period (7 days) against the site's shares, equal where none are set."""
    return Answer(AskFairness(cluster, from_ms, to_ms).ask(service.workspace))


@router.get(
    "/queue-record",
    operation_id="forecastRecord",
    summary="Say how good this site's start forecasts have been",
    response_description="Coverage, error and calibration.",
    responses=described(404, 422),
)
def forecast_record(service: TheService, cluster: Cluster = DEFAULT) -> Answer[ForecastRecord]:
    """Every forecast is kept and scored; who still waits past its interval counts as a miss."""
    return Answer(AskForecastRecord(cluster).ask(service.workspace))


@router.get(
    "/queue-trend",
    operation_id="roomTrend",
    summary="List what was free over time",
    response_description="Samples per partition and GPU model.",
    responses=described(404, 422),
)
def room_trend(
    service: TheService, from_ms: FromMs, to_ms: ToMs, cluster: Cluster = DEFAULT
) -> Answer[RoomTrend]:
    """Free GPUs, whole hosts, the largest gang and stranded GPUs, every 15 minutes."""
    return Answer(AskRoomTrend(cluster, from_ms, to_ms).ask(service.workspace))


@router.get(
    "/queue-whatif",
    operation_id="policyWhatIf",
    summary="Replay a partition's own workloads under another policy",
    response_description="Waits under both policies, who gains and loses; a page with format=html.",
    responses=_PAGE | described(404, 422),
)
def policy_what_if(
    service: TheService,
    *,
    partition: _Name = "",
    days: _Days = 7,
    order: _Order = "fifo",
    backfill: _Backfill = "easy",
    placement: _Placement = "most_allocated",
    favor_small: _FavorSmall = False,
    add_hosts: _Hosts = 0,
    add_model: _Type = "",
    policy: _Json = "",
    cluster: Cluster = DEFAULT,
    format: _Format = "json",
) -> Annotated[Response, PolicyAnswer]:
    """The recorded policy is replayed first; below the stated fidelity no answer is given."""
    question = AskPolicy(
        partition=partition,
        days=days,
        order=order,
        backfill=backfill,
        placement=placement,
        favor_small=favor_small,
        add_hosts=add_hosts,
        add_model=add_model,
        policy=policy,
        cluster=cluster,
    )
    answer = question.ask(service.workspace)
    if format == "json":
        return Answer(answer)
    document = msgspec.to_builtins(answer)
    page = write_what_if_report(document, [*summarize_answer(document), *document["notes"]])
    return Response(page, media_type="text/html")


@router.get(
    "/queue-performance",
    operation_id="hostPerformance",
    summary="List hosts that are persistently slow, and what explains run times",
    response_description="Slow hosts and features.",
    responses=described(404, 422),
)
def host_performance(
    service: TheService, cluster: Cluster = DEFAULT
) -> Answer[PerformanceDocument]:
    """From repeated runs of 60 days, each judged against its own application's history."""
    return Answer(AskPerformance(cluster).ask(service.workspace))


@router.get(
    "/queue-runtime",
    operation_id="expectedRunTime",
    summary="Say how long a workload should run",
    response_description="The run time with an interval.",
    responses=described(404, 422),
)
def expected_run_time(
    service: TheService,
    workload: Annotated[str, Query(max_length=NAME_LIMIT, description="Id of the workload.")],
    cluster: Cluster = DEFAULT,
) -> Answer[RunTimeDocument]:
    """From its own earlier runs and the past of the hosts it is on."""
    return Answer(AskRunTime(workload, cluster).ask(service.workspace))

"""The waiting line: who waits and why, when it starts, what is free, who uses what."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from marey.api.answers import Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, FromMs, TheService, ToMs
from marey.api.problems import described
from marey.app.queue.queue_documents import (
    AskDocument,
    FairnessDocument,
    FreeDocument,
    WaitingLine,
    WhyDocument,
)
from marey.app.queue.queue_queries import (
    LINE_BOUNDS,
    AskFairness,
    AskFree,
    AskLine,
    AskStart,
    AskWhy,
)
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT

router = typed_router("queue", reads=Permission.READ)

_Name = Annotated[str, Query(max_length=NAME_LIMIT, description="Only of this name.")]
_Limit = Annotated[int, Query(ge=LINE_BOUNDS[0], le=LINE_BOUNDS[1], description="Most rows.")]
_Gpus = Annotated[int, Query(ge=1, le=100_000, description="GPUs asked for.")]
_Time = Annotated[str, Query(max_length=20, description="Time limit.", examples=["12h"])]
_Type = Annotated[str, Query(max_length=NAME_LIMIT, description="GPU type.", examples=["A100"])]
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
    limit: _Limit = 200,
) -> Answer[WaitingLine]:
    """Place, request, reason in words and expected start of everybody who waits."""
    question = AskLine(cluster, user, project, partition=partition, limit=limit)
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
    """GPU-hours held over a period (7 days) against equal shares."""
    return Answer(AskFairness(cluster, from_ms, to_ms).ask(service.workspace))

"""Workloads, what they say of themselves, and what happened to them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from marey.api.parameters import DEFAULT, Cluster, FromMs, OneWorkload, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import json_content, json_response, reply, table_content
from marey.app.questions import AskEvents, AskProgress, AskWorkload, AskWorkloads
from marey.app.selecting import split_names
from marey.model.events import EventKind
from marey.model.names import NAME_LIMIT
from marey.model.tables import EVENTS, PROGRESS, WORKLOADS
from marey.model.times import parse_time
from marey.model.workloads import Progress

router = APIRouter(tags=["workloads"])

REPORTS_LIMIT = 1000


@router.get(
    "/workloads",
    operation_id="workloads",
    summary="Workloads, newest submission first, a page at a time",
    responses=table_content(WORKLOADS, next={"type": ["string", "null"]}) | described(404, 422),
    response_class=Response,
)
def workloads(
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    state: Annotated[
        str,
        Query(
            max_length=200,
            description="States, separated by commas; 'ended' for all that are over.",
            examples=["pending,running"],
        ),
    ] = "",
    where: Annotated[
        str,
        Query(
            max_length=20_000,
            description="A filter as JSON.",
            examples=['{"field": "user", "op": "eq", "value": "ada"}'],
        ),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="Most rows of a page.")] = 100,
    cursor: Annotated[
        str, Query(max_length=NAME_LIMIT, description="`next` of the page before.")
    ] = "",
) -> Response:
    """Only those that waited or ran in the span, where one is given."""
    question = AskWorkloads(cluster, state, where, from_ms, to_ms, limit, cursor)
    return reply(request, question.reply(service.workspace))


@router.get(
    "/workloads/{workload:path}",
    operation_id="workload",
    summary="One workload, with its validity intervals",
    responses=json_content({"type": "object"}, "The workload.") | described(404, 422),
    response_class=Response,
)
def workload(
    service: TheService,
    workload: Annotated[str, Path(max_length=NAME_LIMIT, description="Id of the workload.")],
    cluster: Cluster = DEFAULT,
) -> Response:
    """Everything that is known of it, with states and allocations as intervals."""
    return json_response(AskWorkload(workload, cluster).ask(service.workspace))


@router.get(
    "/progress",
    operation_id="progress",
    summary="What a workload said of itself: step, throughput, loss",
    responses=table_content(PROGRESS) | described(404, 422),
    response_class=Response,
)
def progress(
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    workload: OneWorkload,
    cluster: Cluster = DEFAULT,
) -> Response:
    """In order of time."""
    return reply(request, AskProgress(workload, cluster, from_ms, to_ms).reply(service.workspace))


class ProgressReport(BaseModel):
    """What a training script says of itself at a moment."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    workload: str = Field(min_length=1, max_length=NAME_LIMIT, description="Id of the workload.")
    time: str | float | None = Field(
        default=None, description="ISO-8601 or Unix seconds; now unless given."
    )
    step: int | None = Field(default=None, ge=0, le=2**53)
    throughput: float | None = Field(default=None, description="In `unit` per second.")
    unit: str = Field(default="", max_length=64, examples=["tokens"])
    loss: float | None = None


@router.post(
    "/progress",
    operation_id="reportProgress",
    summary="Report progress from a training script",
    status_code=202,
    responses={
        202: {
            "description": "Kept.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["kept"],
                        "properties": {"kept": {"type": "integer"}},
                    }
                }
            },
        },
        **described(404, 413, 422),
    },
    response_class=Response,
)
def report_progress(
    service: TheService,
    reports: Annotated[
        ProgressReport | Annotated[list[ProgressReport], Field(max_length=REPORTS_LIMIT)],
        Body(description=f"One report, or up to {REPORTS_LIMIT}."),
    ],
    cluster: Cluster = DEFAULT,
) -> Response:
    """The same report twice changes nothing."""
    listed = reports if isinstance(reports, list) else [reports]
    now_ms = service.workspace.now_ms()
    kept = service.report_progress(cluster, [_progress(report, now_ms) for report in listed])
    return json_response({"kept": kept}, 202)


def _progress(report: ProgressReport, now_ms: int) -> Progress:
    facts: dict[str, Any] = report.model_dump(exclude={"time"})
    time_ms = now_ms if report.time is None else parse_time(report.time)
    return Progress(time_ms=time_ms, **facts)


@router.get(
    "/events",
    operation_id="events",
    summary="What happened: driver errors, nodes down and drained, throttling, policy changes",
    responses=table_content(EVENTS) | described(404, 422),
    response_class=Response,
)
def events(
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    workload: OneWorkload = "",
    limit: Annotated[int, Query(ge=1, le=100_000, description="Most rows.")] = 1000,
    kinds: Annotated[
        str, Query(max_length=400, description="Only these kinds, separated by commas.")
    ] = "",
) -> Response:
    """The last day unless a span or a workload is given."""
    chosen = split_names(kinds, "kinds", len(EventKind))
    question = AskEvents(cluster, workload, from_ms, to_ms, limit, chosen)
    return reply(request, question.reply(service.workspace))

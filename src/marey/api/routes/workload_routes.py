"""Workloads, what they say of themselves, and what happened to them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, FromMs, OneWorkload, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import also_arrow, reply
from marey.app.queries.selection import split_names
from marey.app.queries.table_documents import (
    EVENT_TABLE,
    PROGRESS_TABLE,
    WORKLOAD_RECORD,
    WORKLOAD_TABLE,
)
from marey.app.queries.table_queries import AskEvents, AskProgress, AskWorkload, AskWorkloads
from marey.app.service import ProgressKept
from marey.app.traces.run_readers import read_stored_runs
from marey.compare.comparison import compare_runs
from marey.compare.comparison_documents import TrainingComparison
from marey.model.access.identity import Permission
from marey.model.events import ClusterEventKind
from marey.model.names import NAME_LIMIT
from marey.model.times import parse_time
from marey.model.workloads import Progress

router = typed_router("workloads", reads=Permission.READ)

REPORTS_LIMIT = 1000


@router.get(
    "/workloads",
    operation_id="workloads",
    summary="List workloads, newest first, a page at a time",
    response_description="The table.",
    responses=also_arrow() | described(404, 413, 422),
)
def workloads(
    *,
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
) -> Annotated[Response, WORKLOAD_TABLE]:
    """Only those that waited or ran in the span, where one is given."""
    question = AskWorkloads(
        cluster=cluster,
        states=state,
        where=where,
        from_ms=from_ms,
        to_ms=to_ms,
        limit=limit,
        cursor=cursor,
    )
    return reply(request, question.reply(service.workspace))


@router.get(
    "/workloads/{workload:path}",
    operation_id="workload",
    summary="Get one workload, with its states and GPUs over time",
    response_description="The workload.",
    responses=described(404, 422),
)
def workload(
    service: TheService,
    workload: Annotated[str, Path(max_length=NAME_LIMIT, description="Id of the workload.")],
    cluster: Cluster = DEFAULT,
) -> Annotated[Response, WORKLOAD_RECORD]:
    """Everything that is known of it, with states and allocations as intervals."""
    return Answer(AskWorkload(workload, cluster).ask(service.workspace))


@router.get(
    "/progress",
    operation_id="progress",
    summary="Get the progress that a workload reported: step, throughput, loss",
    response_description="The table.",
    responses=also_arrow() | described(404, 422),
)
def progress(
    *,
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    workload: OneWorkload,
    cluster: Cluster = DEFAULT,
) -> Annotated[Response, PROGRESS_TABLE]:
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
    openapi_extra=needs(Permission.WRITE_PROGRESS),
    operation_id="reportProgress",
    summary="Report progress from a training script",
    status_code=202,
    response_description="Kept.",
    responses=described(404, 413, 422),
)
def report_progress(
    service: TheService,
    reports: Annotated[
        ProgressReport | Annotated[list[ProgressReport], Field(max_length=REPORTS_LIMIT)],
        Body(description=f"One report, or up to {REPORTS_LIMIT}."),
    ],
    cluster: Cluster = DEFAULT,
) -> Answer[ProgressKept]:
    """The same report twice changes nothing."""
    listed = reports if isinstance(reports, list) else [reports]
    now_ms = service.workspace.now_ms()
    kept = service.report_progress(cluster, [_progress(report, now_ms) for report in listed])
    return Answer(ProgressKept(kept), 202)


def _progress(report: ProgressReport, now_ms: int) -> Progress:
    facts: dict[str, Any] = report.model_dump(exclude={"time"})
    time_ms = now_ms if report.time is None else parse_time(report.time)
    return Progress(time_ms=time_ms, **facts)


@router.get(
    "/events",
    operation_id="events",
    summary="List events: driver errors, nodes down and drained, throttling, policy changes",
    response_description="The table.",
    responses=also_arrow() | described(404, 422),
)
def events(
    *,
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
) -> Annotated[Response, EVENT_TABLE]:
    """The last day unless a span or a workload is given."""
    chosen = split_names(kinds, "kinds", len(ClusterEventKind))
    question = AskEvents(
        cluster=cluster, workload=workload, from_ms=from_ms, to_ms=to_ms, limit=limit, kinds=chosen
    )
    return reply(request, question.reply(service.workspace))


@router.get(
    "/comparison",
    operation_id="compareTraining",
    summary="Compare workloads that reported progress, and runs of traces",
    response_description="Runs and groups, each group tested against the baseline.",
    responses=described(404, 422),
)
def compare_training(
    service: TheService,
    *,
    runs: Annotated[
        list[Annotated[str, Query(min_length=1, max_length=2 * NAME_LIMIT)]],
        Query(
            alias="run",
            description="Workloads as `ID` or `LABEL=ID`, runs of traces as `trace:RUN` or "
            "`LABEL=trace:RUN`; those of one label are repetitions.",
            min_length=1,
            max_length=100,
            examples=[["base=4711", "new=4712"]],
        ),
    ],
    cluster: Cluster = DEFAULT,
    baseline: Annotated[
        str | None, Query(max_length=NAME_LIMIT, description="The group others are held against.")
    ] = None,
    loss: Annotated[float | None, Query(description="Cost of reaching this loss.")] = None,
) -> Answer[TrainingComparison]:
    """Throughput, time per step, loss against time and samples, GPU-hours to a loss."""
    read = read_stored_runs(service.store, service.traces, cluster, runs)
    return Answer(compare_runs(read, baseline=baseline, loss=loss))

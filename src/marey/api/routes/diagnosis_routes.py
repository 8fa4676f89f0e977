"""What is wrong with a workload, and the parts of that answer that its page draws."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

from fastapi import Depends, Query, Request
from starlette.responses import Response

from marey.api.answers import JSON, Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, FromMs, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import wants
from marey.app.diagnosis.comparison import AskComparison
from marey.app.diagnosis.diagnosis_document import DiagnosisDocument
from marey.app.diagnosis.diagnosis_parts import (
    CLUSTERS_BOUNDS,
    SIGNIFICANCE_BOUNDS,
    AskClusters,
    AskOutliers,
    AskPairs,
)
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.diagnosis.diagnosis_report import AskReport, find_drawing_code
from marey.app.diagnosis.over_time import BIN_BOUNDS, POINTS_BOUNDS, AskBand, AskLines
from marey.app.diagnosis.part_documents import (
    Bands,
    Comparison,
    DiagnosisProgress,
    DiagnosisReport,
    GpuClusters,
    Lines,
    MetricPairs,
    Outliers,
    Peers,
)
from marey.app.diagnosis.peers import AskPeers
from marey.app.queries.cancellation import RequestAbandoned
from marey.app.queries.table_queries import Question
from marey.app.queries.workspace import Workspace
from marey.diagnose.report import policy
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT
from marey.model.times import parse_time

router = typed_router("diagnosis", reads=Permission.READ)

D = TypeVar("D")
_PROBLEMS = described(404, 413, 422)

TheWorkload = Annotated[
    str, Query(description="Id of the workload.", min_length=1, max_length=NAME_LIMIT)
]
OneMetric = Annotated[str, Query(description="Id of a metric of GPUs.", max_length=NAME_LIMIT)]

ClusteredBy = Annotated[
    str, Query(description="Metric that the GPUs are clustered by; util.", max_length=NAME_LIMIT)
]


@dataclass(frozen=True, slots=True)
class Window:
    """The workload that is asked about, and the window of its life."""

    workload: str
    cluster: str
    from_ms: int | None
    to_ms: int | None


def parse_window(
    workload: TheWorkload, from_ms: FromMs, to_ms: ToMs, cluster: Cluster = DEFAULT
) -> Window:
    """What nearly every question of this part is about."""
    return Window(workload, cluster, from_ms, to_ms)


TheWindow = Annotated[Window, Depends(parse_window)]
# How often a long answer looks whether somebody still waits for it.
LOOK_S = 0.25


async def watched(request: Request, service: TheService, at: TheWindow) -> AsyncIterator[Workspace]:
    """The workspace for one question: it tells how far it is, and ends when nobody waits."""

    async def wait_until_gone() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(LOOK_S)
        work.give_up()

    workspace = service.workspace
    with workspace.running_work.begin(at.cluster, at.workload) as work:
        watcher = asyncio.create_task(wait_until_gone())
        try:
            yield replace(workspace, work=work)
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher


Watched = Annotated[Workspace, Depends(watched)]
# Nginx's number for it: whoever asked has closed the connection.
CLIENT_CLOSED = 499


def _answer_question(question: Question[D], workspace: Workspace) -> Answer[D] | Response:
    try:
        return Answer(question.ask(workspace))
    except RequestAbandoned:
        return Response(status_code=CLIENT_CLOSED)


@dataclass(frozen=True, slots=True)
class DrawnMetrics:
    """Metrics over time, and how densely."""

    metrics: str
    points: int
    bin: int


def parse_drawn_metrics(
    metrics: Annotated[
        str, Query(description="Metric ids, separated by commas.", min_length=1, max_length=1000)
    ] = "util",
    points: Annotated[
        int, Query(ge=POINTS_BOUNDS[0], le=POINTS_BOUNDS[1], description="Most bins of time.")
    ] = 600,
    bin: Annotated[
        int,
        Query(
            ge=BIN_BOUNDS[0],
            le=BIN_BOUNDS[1],
            description="Width of a bin in ms, as an answer before gave it; 0 chooses by points.",
        ),
    ] = 0,
) -> DrawnMetrics:
    """What is drawn over time."""
    return DrawnMetrics(metrics, points, bin)


TheDrawn = Annotated[DrawnMetrics, Depends(parse_drawn_metrics)]


@router.get(
    "/diagnosis",
    operation_id="diagnosis",
    summary="Diagnose a workload: what is wrong, on which GPUs, since when, what to try",
    response_description="The diagnosis.",
    responses=_PROBLEMS,
)
def diagnosis(
    workspace: Watched, at: TheWindow, metric: ClusteredBy = ""
) -> Answer[DiagnosisDocument] | Response:
    """The same document as `marey diagnose --json`."""
    question = AskDiagnosis(at.workload, at.cluster, at.from_ms, at.to_ms, metric)
    return _answer_question(question, workspace)


@router.get(
    "/diagnosis/progress",
    operation_id="diagnosisProgress",
    summary="Get the progress of a diagnosis that is being computed",
    response_description="The share of the samples that has been read.",
    responses=_PROBLEMS,
)
def progress(
    service: TheService, workload: TheWorkload, cluster: Cluster = DEFAULT
) -> Answer[DiagnosisProgress]:
    """`share` is null where no question is being answered; one whose asker left is given up."""
    share = service.workspace.running_work.share(cluster, workload)
    return Answer(DiagnosisProgress(workload, share))


@router.get(
    "/diagnosis/clusters",
    operation_id="diagnosisClusters",
    summary="Cluster a workload's GPUs by how they behave in one metric",
    response_description="Clusters, merge tree, and what the small multiples draw.",
    responses=_PROBLEMS,
)
def clusters(
    *,
    workspace: Watched,
    at: TheWindow,
    metric: OneMetric = "util",
    method: Annotated[
        Literal["histogram", "euclidean", "correlation"],
        Query(
            description="Histograms by Jensen-Shannon distance, or timelines by "
            "Euclidean or correlation distance."
        ),
    ] = "histogram",
    clusters: Annotated[
        int,
        Query(
            ge=CLUSTERS_BOUNDS[0],
            le=CLUSTERS_BOUNDS[1],
            description="How many clusters; 0 lets the widest gap decide.",
        ),
    ] = 0,
) -> Answer[GpuClusters] | Response:
    """GPUs are in order of global rank; the tree is cut to what can be drawn."""
    question = AskClusters(
        workload=at.workload,
        cluster=at.cluster,
        metric=metric,
        method=method,
        clusters=clusters,
        from_ms=at.from_ms,
        to_ms=at.to_ms,
    )
    return _answer_question(question, workspace)


@router.get(
    "/diagnosis/band",
    operation_id="diagnosisBand",
    summary="Get median and percentiles of a workload's GPUs over time",
    response_description="A band per metric.",
    responses=_PROBLEMS,
)
def band(workspace: Watched, at: TheWindow, drawn: TheDrawn) -> Answer[Bands] | Response:
    """Least and greatest of every bin are kept; bins lie at multiples of their width."""
    question = AskBand(
        workload=at.workload,
        cluster=at.cluster,
        metrics=drawn.metrics,
        from_ms=at.from_ms,
        to_ms=at.to_ms,
        points=drawn.points,
        bin=drawn.bin,
    )
    return _answer_question(question, workspace)


@router.get(
    "/diagnosis/lines",
    operation_id="diagnosisLines",
    summary="Get lines of some GPUs of a workload over time",
    response_description="Lines per metric and GPU.",
    responses=_PROBLEMS,
)
def lines(
    workspace: Watched,
    at: TheWindow,
    drawn: TheDrawn,
    gpus: Annotated[
        str,
        Query(description="At most 64 GPU ids, by commas.", min_length=1, max_length=64 * 270),
    ],
) -> Answer[Lines] | Response:
    """Of every bin the least and the greatest value, in the order in which they came."""
    question = AskLines(
        workload=at.workload,
        cluster=at.cluster,
        metrics=drawn.metrics,
        from_ms=at.from_ms,
        to_ms=at.to_ms,
        points=drawn.points,
        bin=drawn.bin,
        gpus=gpus,
    )
    return _answer_question(question, workspace)


@router.get(
    "/diagnosis/outliers",
    operation_id="diagnosisOutliers",
    summary="Find outliers in two metrics, by Mahalanobis distance",
    response_description="Points to draw, outliers, density and the limit.",
    responses=_PROBLEMS,
)
def outliers(
    *,
    workspace: Watched,
    at: TheWindow,
    x: OneMetric = "util",
    y: OneMetric = "power",
    significance: Annotated[
        float,
        Query(
            ge=SIGNIFICANCE_BOUNDS[0],
            le=SIGNIFICANCE_BOUNDS[1],
            description="Share of a normal cloud that would be called outliers.",
        ),
    ] = 0.001,
    robust: Annotated[
        bool, Query(description="Estimate the cloud without the samples farthest from it.")
    ] = True,
) -> Answer[Outliers] | Response:
    """Scores are distances; the limit is that of the chi-squared distribution."""
    question = AskOutliers(
        workload=at.workload,
        cluster=at.cluster,
        x=x,
        y=y,
        significance=significance,
        robust=robust,
        from_ms=at.from_ms,
        to_ms=at.to_ms,
    )
    return _answer_question(question, workspace)


@router.get(
    "/diagnosis/pairs",
    operation_id="diagnosisPairs",
    summary="Rank pairs of metrics by correlation and outliers",
    response_description="The pairs.",
    responses=_PROBLEMS,
)
def pairs(workspace: Watched, at: TheWindow) -> Answer[MetricPairs] | Response:
    """By correlation, and by the share of samples that do not go along with it."""
    question = AskPairs(at.workload, at.cluster, at.from_ms, at.to_ms)
    return _answer_question(question, workspace)


_OF_OTHER = "of the other side, as `from` and `to`."
OtherFromText = Annotated[
    str | None, Query(alias="other_from", description=f"Begin {_OF_OTHER}", max_length=64)
]
OtherToText = Annotated[
    str | None, Query(alias="other_to", description=f"End {_OF_OTHER}", max_length=64)
]


def other_from_time(text: OtherFromText = None) -> int | None:
    """The begin of the other side's window, if one was given."""
    return None if text is None else parse_time(text)


def other_to_time(text: OtherToText = None) -> int | None:
    """The end of the other side's window, if one was given."""
    return None if text is None else parse_time(text)


@router.get(
    "/diagnosis/comparison",
    operation_id="diagnosisComparison",
    summary="Compare a workload with another, or with another time window of its own",
    response_description="Both sides, means with their change, findings gone and new.",
    responses=_PROBLEMS,
)
def comparison(
    *,
    workspace: Watched,
    at: TheWindow,
    other_from: Annotated[int | None, Depends(other_from_time)],
    other_to: Annotated[int | None, Depends(other_to_time)],
    other: Annotated[
        str,
        Query(description="The other workload; empty is the same.", max_length=NAME_LIMIT),
    ] = "",
    metric: OneMetric = "util",
) -> Answer[Comparison] | Response:
    """The other one is "before", the one asked about "after"; distributions share an axis."""
    question = AskComparison(
        workload=at.workload,
        other=other,
        cluster=at.cluster,
        metric=metric,
        from_ms=at.from_ms,
        to_ms=at.to_ms,
        other_from_ms=other_from,
        other_to_ms=other_to,
    )
    return _answer_question(question, workspace)


@router.get(
    "/diagnosis/peers",
    operation_id="diagnosisPeers",
    summary="Compare a workload's efficiency with others of the same size and GPU type",
    response_description="Own means beside the peers'.",
    responses=_PROBLEMS,
)
def peers(service: TheService, workload: TheWorkload, cluster: Cluster = DEFAULT) -> Answer[Peers]:
    """At most 24 peers, the newest that ran at least ten minutes."""
    return Answer(AskPeers(workload, cluster).ask(service.workspace))


_TEXT = {"schema": {"type": "string"}}


@router.get(
    "/diagnosis/report",
    operation_id="diagnosisReport",
    summary="Get the diagnosis as one self-contained HTML file, or as Markdown",
    response_description="The report.",
    responses={
        200: {"content": {"text/html": _TEXT, "text/markdown": _TEXT}},
        **_PROBLEMS,
    },
)
def report(
    *,
    request: Request,
    workspace: Watched,
    at: TheWindow,
    metric: ClusteredBy = "",
    format: Annotated[
        Literal["html", "markdown"], Query(description="What it is made as.")
    ] = "html",
) -> Answer[DiagnosisReport] | Response:
    """Asked for JSON, the text comes within a document (for the command line)."""
    question = AskReport(
        workload=at.workload,
        cluster=at.cluster,
        from_ms=at.from_ms,
        to_ms=at.to_ms,
        metric=metric,
        format=format,
    )
    if wants(request, JSON):
        return _answer_question(question, workspace)
    kind = "text/html" if format == "html" else "text/markdown"
    try:
        text = question.text(workspace)
    except RequestAbandoned:
        return Response(status_code=CLIENT_CLOSED)
    return Response(
        text,
        media_type=kind,
        # It may hold names from the cluster: it loads nothing, and runs its own drawing only.
        headers={
            "Content-Security-Policy": f"{policy(find_drawing_code())}; sandbox allow-scripts"
        },
    )

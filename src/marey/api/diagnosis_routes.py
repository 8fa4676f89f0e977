"""What is wrong with a workload, and the parts of that answer that its page draws."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from marey.api.parameters import DEFAULT, Cluster, FromMs, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import JSON, json_content, json_response, wants
from marey.app.comparing import AskComparison
from marey.app.diagnosing import AskDiagnosis
from marey.app.dissecting import (
    CLUSTERS_BOUNDS,
    SIGNIFICANCE_BOUNDS,
    AskClusters,
    AskOutliers,
    AskPairs,
)
from marey.app.in_hand import GivenUp
from marey.app.over_time import BIN_BOUNDS, POINTS_BOUNDS, AskBand, AskLines
from marey.app.peers import AskPeers
from marey.app.questions import Question
from marey.app.reporting import AskReport, drawing_code
from marey.app.workspace import Workspace
from marey.diagnose.report import policy
from marey.model.names import NAME_LIMIT
from marey.model.times import parse_time

router = APIRouter(tags=["diagnosis"])

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


def the_window(
    workload: TheWorkload, from_ms: FromMs, to_ms: ToMs, cluster: Cluster = DEFAULT
) -> Window:
    """What nearly every question of this part is about."""
    return Window(workload, cluster, from_ms, to_ms)


TheWindow = Annotated[Window, Depends(the_window)]
# How often a long answer looks whether somebody still waits for it.
LOOK_S = 0.25


async def watched(request: Request, service: TheService, at: TheWindow) -> AsyncIterator[Workspace]:
    """The workspace for one question: it tells how far it is, and ends when nobody waits."""

    async def wait_until_gone() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(LOOK_S)
        work.give_up()

    workspace = service.workspace
    with workspace.in_hand.begun(at.cluster, at.workload) as work:
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


def _answered(question: Question, workspace: Workspace) -> Response:
    try:
        return json_response(question.ask(workspace))
    except GivenUp:
        return Response(status_code=CLIENT_CLOSED)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Metrics over time, and how densely."""

    metrics: str
    points: int
    bin: int


def the_drawn(
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
) -> Drawn:
    """What is drawn over time."""
    return Drawn(metrics, points, bin)


TheDrawn = Annotated[Drawn, Depends(the_drawn)]


def _answers(what: str) -> dict[int | str, dict[str, Any]]:
    return json_content({"type": "object"}, what) | described(404, 413, 422)


@router.get(
    "/diagnosis",
    operation_id="diagnosis",
    summary="What is wrong with a workload, on which GPUs, since when, and what to try",
    responses=_answers("The diagnosis."),
    response_class=Response,
)
def diagnosis(workspace: Watched, at: TheWindow, metric: ClusteredBy = "") -> Response:
    """The same document as `marey diagnose --json`."""
    question = AskDiagnosis(at.workload, at.cluster, at.from_ms, at.to_ms, metric)
    return _answered(question, workspace)


@router.get(
    "/diagnosis/progress",
    operation_id="diagnosisProgress",
    summary="How far the answer to a question about a workload is",
    responses=_answers("The share of the samples that has been read."),
    response_class=Response,
)
def progress(service: TheService, workload: TheWorkload, cluster: Cluster = DEFAULT) -> Response:
    """`share` is null where no question is being answered; one whose asker left is given up."""
    share = service.workspace.in_hand.share(cluster, workload)
    return json_response({"workload": workload, "share": share})


@router.get(
    "/diagnosis/clusters",
    operation_id="diagnosisClusters",
    summary="Which GPUs behave alike in one metric, with their histograms and lines",
    responses=_answers("Clusters, merge tree, and what the small multiples draw."),
    response_class=Response,
)
def clusters(
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
) -> Response:
    """GPUs are in order of global rank; the tree is cut to what can be drawn."""
    question = AskClusters(at.workload, at.cluster, metric, method, clusters, at.from_ms, at.to_ms)
    return _answered(question, workspace)


@router.get(
    "/diagnosis/band",
    operation_id="diagnosisBand",
    summary="Median and band of all GPUs of a workload over time",
    responses=_answers("A band per metric."),
    response_class=Response,
)
def band(workspace: Watched, at: TheWindow, drawn: TheDrawn) -> Response:
    """Least and greatest of every bin are kept; bins lie at multiples of their width."""
    question = AskBand(
        at.workload, at.cluster, drawn.metrics, at.from_ms, at.to_ms, drawn.points, drawn.bin
    )
    return _answered(question, workspace)


@router.get(
    "/diagnosis/lines",
    operation_id="diagnosisLines",
    summary="Some GPUs of a workload over time, all at the same moments",
    responses=_answers("Lines per metric and GPU."),
    response_class=Response,
)
def lines(
    workspace: Watched,
    at: TheWindow,
    drawn: TheDrawn,
    gpus: Annotated[
        str,
        Query(description="At most 64 GPU ids, by commas.", min_length=1, max_length=64 * 270),
    ],
) -> Response:
    """Of every bin the least and the greatest value, in the order in which they came."""
    question = AskLines(
        at.workload, at.cluster, drawn.metrics, at.from_ms, at.to_ms, drawn.points, drawn.bin, gpus
    )
    return _answered(question, workspace)


@router.get(
    "/diagnosis/outliers",
    operation_id="diagnosisOutliers",
    summary="Samples of two metrics scored by Mahalanobis distance",
    responses=_answers("Points to draw, outliers, density and the limit."),
    response_class=Response,
)
def outliers(
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
) -> Response:
    """Scores are distances; the limit is that of the chi-squared distribution."""
    question = AskOutliers(
        at.workload, at.cluster, x, y, significance, robust, at.from_ms, at.to_ms
    )
    return _answered(question, workspace)


@router.get(
    "/diagnosis/pairs",
    operation_id="diagnosisPairs",
    summary="Pairs of metrics, the strongest and strangest first",
    responses=_answers("The pairs."),
    response_class=Response,
)
def pairs(workspace: Watched, at: TheWindow) -> Response:
    """By correlation, and by the share of samples that do not go along with it."""
    question = AskPairs(at.workload, at.cluster, at.from_ms, at.to_ms)
    return _answered(question, workspace)


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
    summary="What changed from another workload, or another window of the same, to this one",
    responses=_answers("Both sides, means with their change, findings gone and new."),
    response_class=Response,
)
def comparison(
    workspace: Watched,
    at: TheWindow,
    other_from: Annotated[int | None, Depends(other_from_time)],
    other_to: Annotated[int | None, Depends(other_to_time)],
    other: Annotated[
        str,
        Query(description="The other workload; empty is the same.", max_length=NAME_LIMIT),
    ] = "",
    metric: OneMetric = "util",
) -> Response:
    """The other one is "before", the one asked about "after"; distributions share an axis."""
    question = AskComparison(
        at.workload, other, at.cluster, metric, at.from_ms, at.to_ms, other_from, other_to
    )
    return _answered(question, workspace)


@router.get(
    "/diagnosis/peers",
    operation_id="diagnosisPeers",
    summary="Efficiency against workloads of the same size on the same type of GPU",
    responses=_answers("Own means beside the peers'."),
    response_class=Response,
)
def peers(service: TheService, workload: TheWorkload, cluster: Cluster = DEFAULT) -> Response:
    """At most 24 peers, the newest that ran at least ten minutes."""
    return json_response(AskPeers(workload, cluster).ask(service.workspace))


_TEXT = {"schema": {"type": "string"}}


@router.get(
    "/diagnosis/report",
    operation_id="diagnosisReport",
    summary="The diagnosis as one HTML file without outside resources, or as Markdown",
    responses={
        200: {
            "description": "The report.",
            "content": {
                "text/html": _TEXT,
                "text/markdown": _TEXT,
                JSON: {"schema": {"type": "object"}},
            },
        },
        **described(404, 413, 422),
    },
    response_class=Response,
)
def report(
    request: Request,
    workspace: Watched,
    at: TheWindow,
    metric: ClusteredBy = "",
    format: Annotated[
        Literal["html", "markdown"], Query(description="What it is made as.")
    ] = "html",
) -> Response:
    """Asked for JSON, the text comes within a document (for the command line)."""
    question = AskReport(at.workload, at.cluster, at.from_ms, at.to_ms, metric, format)
    if wants(request, JSON):
        return _answered(question, workspace)
    kind = "text/html" if format == "html" else "text/markdown"
    try:
        text = question.text(workspace)
    except GivenUp:
        return Response(status_code=CLIENT_CLOSED)
    return Response(
        text,
        media_type=kind,
        # It may hold names from the cluster: it loads nothing, and runs its own drawing only.
        headers={"Content-Security-Policy": f"{policy(drawing_code())}; sandbox allow-scripts"},
    )

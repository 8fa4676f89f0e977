"""Samples: series, histograms, statistics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from marey.api.parameters import (
    DEFAULT,
    Cluster,
    FromMs,
    Gpus,
    Metrics,
    OneWorkload,
    TheService,
    ToMs,
)
from marey.api.problems import described
from marey.api.replies import reply, table_content
from marey.app.questions import AskHistograms, AskSeries, AskStatistics
from marey.model.answers import HISTOGRAMS, SERIES, STATISTICS

router = APIRouter(tags=["samples"])

_APPROXIMATE = {"type": "boolean", "description": "Whether reduced data went into the answer."}


@router.get(
    "/series",
    operation_id="series",
    summary="Downsampled series of a workload's GPUs or of named GPUs; extremes are kept",
    responses=table_content(SERIES, approximate=_APPROXIMATE) | described(404, 413, 422),
    response_class=Response,
)
def series(
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    workload: OneWorkload = "",
    gpus: Gpus = "",
    metrics: Metrics = "util",
    points: Annotated[int, Query(ge=4, le=20_000, description="Most points per series.")] = 1000,
) -> Response:
    """At most ``points`` actual samples per series: per bucket first, least, greatest, last."""
    question = AskSeries(cluster, workload, gpus, metrics, from_ms, to_ms, points)
    return reply(request, question.reply(service.workspace))


@router.get(
    "/histograms",
    operation_id="histograms",
    summary="Histograms per GPU and metric over equal bins of the metric's range",
    responses=table_content(HISTOGRAMS, approximate=_APPROXIMATE) | described(404, 413, 422),
    response_class=Response,
)
def histograms(
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    workload: OneWorkload = "",
    gpus: Gpus = "",
    metrics: Metrics = "util",
    bins: Annotated[int, Query(ge=1, le=1024, description="How many bins.")] = 32,
) -> Response:
    """Counts per bin; samples without a value are counted as missing."""
    question = AskHistograms(cluster, workload, gpus, metrics, from_ms, to_ms, bins)
    return reply(request, question.reply(service.workspace))


@router.get(
    "/statistics",
    operation_id="statistics",
    summary="Exact statistics per GPU and metric",
    responses=table_content(
        STATISTICS,
        approximate=_APPROXIMATE,
        quantiles={"type": "array", "items": {"type": "number"}},
    )
    | described(404, 413, 422),
    response_class=Response,
)
def statistics(
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    workload: OneWorkload = "",
    gpus: Gpus = "",
    metrics: Metrics = "util",
    quantiles: Annotated[
        str, Query(max_length=200, description="Quantiles from 0 to 1, separated by commas.")
    ] = "0.05,0.5,0.95",
) -> Response:
    """Count, least, greatest, mean, spread, first, last and quantiles."""
    question = AskStatistics(cluster, workload, gpus, metrics, from_ms, to_ms, quantiles)
    return reply(request, question.reply(service.workspace))

"""Samples: series, histograms, statistics."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from marey.api.answers import typed_router
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
from marey.api.replies import also_arrow, reply
from marey.app.queries.table_documents import HISTOGRAM_TABLE, SERIES_TABLE, STATISTIC_TABLE
from marey.app.queries.table_queries import AskHistograms, AskSeries, AskStatistics
from marey.model.access.identity import Permission

router = typed_router("samples", reads=Permission.READ)


@router.get(
    "/series",
    operation_id="series",
    summary="Get downsampled series of GPUs; extremes are kept",
    response_description="The table.",
    responses=also_arrow() | described(404, 413, 422),
)
def series(
    *,
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    workload: OneWorkload = "",
    gpus: Gpus = "",
    metrics: Metrics = "util",
    points: Annotated[int, Query(ge=4, le=20_000, description="Most points per series.")] = 1000,
) -> Annotated[Response, SERIES_TABLE]:
    """At most ``points`` actual samples per series: per bucket first, least, greatest, last."""
    question = AskSeries(
        cluster=cluster,
        workload=workload,
        gpus=gpus,
        metrics=metrics,
        from_ms=from_ms,
        to_ms=to_ms,
        points=points,
    )
    return reply(request, question.reply(service.workspace))


@router.get(
    "/histograms",
    operation_id="histograms",
    summary="Get histograms per GPU and metric",
    response_description="The table.",
    responses=also_arrow() | described(404, 413, 422),
)
def histograms(
    *,
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    workload: OneWorkload = "",
    gpus: Gpus = "",
    metrics: Metrics = "util",
    bins: Annotated[int, Query(ge=1, le=1024, description="How many bins.")] = 32,
) -> Annotated[Response, HISTOGRAM_TABLE]:
    """Counts per bin; samples without a value are counted as missing."""
    question = AskHistograms(
        cluster=cluster,
        workload=workload,
        gpus=gpus,
        metrics=metrics,
        from_ms=from_ms,
        to_ms=to_ms,
        bins=bins,
    )
    return reply(request, question.reply(service.workspace))


@router.get(
    "/statistics",
    operation_id="statistics",
    summary="Get exact statistics per GPU and metric",
    response_description="The table.",
    responses=also_arrow() | described(404, 413, 422),
)
def statistics(
    *,
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
) -> Annotated[Response, STATISTIC_TABLE]:
    """Count, least, greatest, mean, spread, first, last and quantiles."""
    question = AskStatistics(
        cluster=cluster,
        workload=workload,
        gpus=gpus,
        metrics=metrics,
        from_ms=from_ms,
        to_ms=to_ms,
        quantiles=quantiles,
    )
    return reply(request, question.reply(service.workspace))

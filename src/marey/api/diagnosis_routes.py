"""What is wrong with a workload."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from marey.api.parameters import DEFAULT, Cluster, FromMs, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import json_content, json_response
from marey.app.diagnosing import AskDiagnosis
from marey.model.names import NAME_LIMIT

router = APIRouter(tags=["diagnosis"])


@router.get(
    "/diagnosis",
    operation_id="diagnosis",
    summary="What is wrong with a workload, on which GPUs, since when, and what to try",
    responses=json_content({"type": "object"}, "The diagnosis.") | described(404, 413, 422),
    response_class=Response,
)
def diagnosis(
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    workload: Annotated[
        str, Query(description="Id of the workload.", min_length=1, max_length=NAME_LIMIT)
    ],
    cluster: Cluster = DEFAULT,
    metric: Annotated[
        str, Query(description="Cluster the GPUs by this metric (util).", max_length=64)
    ] = "",
) -> Response:
    """The same document as `marey diagnose --json`."""
    question = AskDiagnosis(workload, cluster, from_ms, to_ms, metric)
    return json_response(question.ask(service.workspace))

"""What a change would make of a run: replay, prediction, search, and predictions that are kept."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Body, Path, Query
from pydantic import Field
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import TheService
from marey.api.problems import described
from marey.api.routes.rule_routes import StrictBody
from marey.api.routes.trace_run_routes import RunId
from marey.app.history.background_jobs import Job, JobDocument
from marey.app.traces.what_if.replay_documents import (
    PredictionDocument,
    PredictionList,
    ReplayDocument,
    StrategySearch,
    WhatIfDocument,
)
from marey.app.traces.what_if.replay_timeline import WhatIfTimeline
from marey.model.access.current import current_identity
from marey.model.access.identity import Permission
from marey.model.errors import NotPermitted
from marey.model.names import NAME_LIMIT
from marey.replay.search import ALLOWED, Limits

router = typed_router("what-if", reads=Permission.READ)

PlainStep = Annotated[
    float | None,
    Query(gt=0, le=1e9, description="The time of a step without the profiler, in ms, if known."),
]
PredictionId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="Id of the prediction.")]
ChangeText = Annotated[str, Field(min_length=1, max_length=200)]


class WhatIfBody(StrictBody):
    """The changes, as `marey what-if` takes them."""

    changes: list[ChangeText] = Field(max_length=50, examples=[["bucket=1MB", "link=x2"]])
    plain_step_ms: float | None = Field(default=None, gt=0, le=1e9)
    # Keep the prediction, to be scored when the changed run has been recorded.
    keep: bool = False


class SearchBody(StrictBody):
    """What a proposal must keep to."""

    memory_bytes: float | None = Field(default=None, gt=0)
    allowed: list[ChangeText] = Field(default_factory=list, max_length=50)
    budget_s: float = Field(default=30.0, gt=0, le=600)
    plain_step_ms: float | None = Field(default=None, gt=0, le=1e9)


class MeasuredBody(StrictBody):
    """The run that a prediction was about."""

    run: str = Field(min_length=1, max_length=NAME_LIMIT)
    plain_step_ms: float | None = Field(default=None, gt=0, le=1e9)


@router.get(
    "/traces/{run}/replay",
    operation_id="replayRun",
    summary="Replay a run without changes",
    response_description="How well it is reproduced, and what its time is made of.",
    responses=described(404, 422),
)
def replay_run(
    service: TheService, run: RunId, plain_step_ms: PlainStep = None
) -> Answer[ReplayDocument]:
    """With the words that a what-if may be asked in; scores predictions about this run."""
    return Answer(service.replays.replay(run, plain_step_ms))


@router.post(
    "/traces/{run}/what-if",
    openapi_extra=needs(Permission.READ),
    operation_id="predictRun",
    summary="Predict the step time of a run with changes",
    response_description="The prediction, with its interval.",
    responses=described(403, 404, 422),
)
def predict_run(
    service: TheService, run: RunId, body: Annotated[WhatIfBody, Body()]
) -> Answer[WhatIfDocument]:
    """A change that the trace cannot support is refused, with what is missing.

    To keep the prediction needs the permission to contribute.
    """
    if body.keep and not current_identity().may(Permission.CONTRIBUTE):
        raise NotPermitted("Keeping a prediction needs the permission 'contribute'; sign in first.")
    made = service.replays.what_if(
        run,
        body.changes,
        plain_step_ms=body.plain_step_ms,
        keep=body.keep,
        cluster=service.traces.get(run).cluster,
    )
    return Answer(made)


@router.post(
    "/traces/{run}/what-if/timeline",
    openapi_extra=needs(Permission.READ),
    operation_id="replayTimeline",
    summary="Replay a step of a run without and with changes",
    response_description="What every rank does when, on both sides.",
    responses=described(404, 422),
)
def replay_timeline(
    service: TheService, run: RunId, body: Annotated[WhatIfBody, Body()]
) -> Answer[WhatIfTimeline]:
    """Both sides are replayed, so that only the changes tell them apart."""
    made = service.replays.timeline(run, body.changes, plain_step_ms=body.plain_step_ms)
    return Answer(made)


@router.post(
    "/traces/{run}/optimize",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="searchStrategies",
    summary="Start a search for changes that are worth making; watch or cancel it under /tasks",
    status_code=202,
    response_description="The job; its result is a StrategySearch.",
    responses=described(404, 413, 422),
)
def search_strategies(
    service: TheService, run: RunId, body: Annotated[SearchBody, Body()]
) -> Answer[JobDocument]:
    """Combinations within a memory limit, a time budget and what is allowed."""
    service.traces.get(run)
    allowed = tuple(body.allowed) or ALLOWED
    limits = Limits(body.memory_bytes, allowed, body.budget_s)

    def work(job: Job) -> StrategySearch:
        begun = time.monotonic()

        def report(_tried: int, _best: float) -> None:
            job.progress(min(time.monotonic() - begun, body.budget_s), body.budget_s)

        return service.replays.search(
            run, limits, plain_step_ms=body.plain_step_ms, progress=report
        )

    return Answer(service.background.start("strategy search", work).document(), 202)


@router.get(
    "/predictions",
    operation_id="predictions",
    summary="List kept predictions, newest first, with what was measured since",
    response_description="The predictions and their score.",
    responses=described(422),
)
def list_predictions(
    service: TheService,
    run: Annotated[
        str, Query(max_length=NAME_LIMIT, description="Only those made from this run.")
    ] = "",
) -> Answer[PredictionList]:
    """Predicted against measured, and the mean error over those that were measured."""
    return Answer(service.replays.predictions(run))


@router.put(
    "/predictions/{prediction}/measured",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="measurePrediction",
    summary="Say which run a prediction was about, and score it",
    response_description="The prediction with its error.",
    responses=described(404, 422),
)
def measure_prediction(
    service: TheService, prediction: PredictionId, body: Annotated[MeasuredBody, Body()]
) -> Answer[PredictionDocument]:
    """For changes that leave no mark on a run's structure, such as a faster link."""
    return Answer(service.replays.measure(prediction, body.run, body.plain_step_ms))


@router.delete(
    "/predictions/{prediction}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="deletePrediction",
    summary="Forget a prediction",
    status_code=204,
    response_description="It is gone.",
    responses=described(404, 422),
)
def delete_prediction(service: TheService, prediction: PredictionId) -> Response:
    """The score is computed over those that are left."""
    service.replays.forget(prediction)
    return Response(status_code=204)

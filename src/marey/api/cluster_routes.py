"""The cluster as a whole: what there is, now and before, and what Marey knows."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from marey.api.parameters import DEFAULT, Cluster, FromMs, Metrics, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import (
    ARROW,
    SNAPSHOT,
    arrow_bytes,
    json_content,
    json_response,
    reply,
    table_content,
    wants,
)
from marey.app.frames import Frame
from marey.app.quantise import live_scales
from marey.app.questions import AskSummary, Reply, check_table
from marey.app.selecting import METRICS_LIMIT, split_names
from marey.app.summary import SCHEMA as SUMMARY
from marey.model.errors import NotFound
from marey.model.faults import MEANING
from marey.model.metrics import Metric, catalogue, metric_named
from marey.model.times import parse_time

router = APIRouter(tags=["cluster"])

_LIST: dict[str, Any] = {"type": "array", "items": {"type": "object"}}


@router.get(
    "/clusters",
    operation_id="clusters",
    summary="The clusters there are",
    responses=json_content(_LIST, "Clusters with their span of history."),
    response_class=Response,
)
def clusters(service: TheService) -> Response:
    """Each with its present time and the span of its samples."""
    listed = []
    for name in service.workspace.clusters():
        span = service.store.span(name)
        listed.append(
            {
                "cluster": name,
                "time_ms": service.workspace.now_ms(),
                "first_ms": span[0] if span else None,
                "last_ms": span[1] if span else None,
            }
        )
    return json_response(listed)


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="The metric catalogue",
    responses=json_content(_LIST, "Metrics in the order in which people should see them."),
    response_class=Response,
)
def metrics() -> Response:
    """Unit, range, resolution, kind, and the resolution at which a metric travels live."""
    return json_response([metric_document(metric) for metric in catalogue().values()])


def metric_document(metric: Metric) -> dict[str, Any]:
    """A metric as the web app needs it."""
    scale = live_scales().get(metric.metric)
    return {
        "metric": metric.metric,
        "label": metric.label,
        "unit": metric.unit,
        "entity": metric.entity.value,
        "kind": metric.kind.value,
        "minimum": metric.minimum,
        "maximum": metric.maximum,
        "resolution": metric.resolution,
        "description": metric.description,
        "exporters": dict(metric.exporters),
        "derived": {"base": metric.derived.base, "per": metric.derived.per}
        if metric.derived
        else None,
        "live": {"offset": scale.offset, "step": scale.step, "levels": scale.levels}
        if scale
        else None,
    }


@router.get(
    "/faults",
    operation_id="faults",
    summary="The kinds of fault",
    responses=json_content(_LIST, "Kinds and what they mean."),
    response_class=Response,
)
def faults() -> Response:
    """One list for simulator, rules and diagnosis."""
    return json_response(
        [{"kind": kind.value, "meaning": meaning} for kind, meaning in MEANING.items()]
    )


@router.get(
    "/summary",
    operation_id="summary",
    summary="GPUs by state, waiting work and mean utilization over time",
    responses=table_content(SUMMARY) | described(404, 422),
    response_class=Response,
)
def summary(
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    points: Annotated[int, Query(ge=2, le=10_000, description="Most rows.")] = 288,
) -> Response:
    """The last day unless a span is given."""
    question = AskSummary(cluster, from_ms, to_ms, points)
    return reply(request, question.reply(service.workspace))


@router.get(
    "/search",
    operation_id="search",
    summary="Find workloads, users, projects, hosts and GPUs by a piece of their name",
    responses=json_content(_LIST, "Hits {kind, id, label}, best first.") | described(404, 422),
    response_class=Response,
)
def search(
    service: TheService,
    q: Annotated[str, Query(min_length=1, max_length=256, description="The piece of a name.")],
    cluster: Cluster = DEFAULT,
    limit: Annotated[int, Query(ge=1, le=200, description="Most hits.")] = 20,
) -> Response:
    """A text with a colon also finds single GPUs."""
    service.workspace.check_cluster(cluster)
    return json_response(service.workspace.search(cluster, q, limit))


@router.get(
    "/cluster",
    operation_id="cluster",
    summary="The shared table of units and workloads, now or at a past moment",
    responses={
        200: {
            "description": "As JSON both tables; as Arrow the one named by `table`; as "
            f"{SNAPSHOT} the message that a live client would have been sent.",
            "content": {
                "application/json": {"schema": {"type": "object"}},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
                SNAPSHOT: {"schema": {"type": "string", "format": "binary"}},
            },
        },
        **described(404, 413, 422),
    },
    response_class=Response,
)
def cluster(
    request: Request,
    service: TheService,
    cluster: Cluster = DEFAULT,
    at: Annotated[
        str | None, Query(max_length=40, description="The moment (ISO-8601 UTC); now unless given.")
    ] = None,
    table: Annotated[
        str, Query(max_length=20, description="units or workloads (Arrow only).")
    ] = "units",
    metrics: Metrics = "util",
) -> Response:
    """Units carry a column per metric asked for."""
    service.workspace.check_cluster(cluster)
    names = split_names(metrics, "metrics", METRICS_LIMIT)
    for name in names:
        metric_named(name)
    frame = service.workspace.frame_at(cluster, None if at is None else parse_time(at), names)
    if wants(request, SNAPSHOT):
        return Response(frame.snapshot(names), media_type=SNAPSHOT)
    if wants(request, ARROW):
        chosen = units_reply(frame, names)
        if check_table(table) == "workloads":
            chosen = Reply(frame.workloads_table(), chosen.facts)
        return Response(arrow_bytes(chosen), media_type=ARROW)
    units = units_reply(frame, names)
    workloads = Reply(frame.workloads_table()).document()["rows"]
    return json_response({**units.facts, "units": units.document()["rows"], "workloads": workloads})


def units_reply(frame: Frame, metrics: tuple[str, ...]) -> Reply:
    """The units with a column per metric, in its own unit."""
    table = frame.units.table()
    rows = table["row"].to_numpy()
    for name in metrics:
        values = frame.values(name)[rows] if name in live_scales() else [None] * len(rows)
        table = table.append_column(name, _numbers(values))
    return Reply(table, {"cluster": frame.cluster, "time_ms": frame.time_ms, "seq": frame.seq})


def _numbers(values: Any) -> Any:
    return pa.array(values, pa.float32(), from_pandas=True)


class SimulationChange(BaseModel):
    """What can be changed about the simulated cluster while it runs."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    policy: str | None = Field(default=None, max_length=40)
    placement: str | None = Field(default=None, max_length=40)
    backfill: bool | None = None
    speed: float | None = Field(default=None, ge=0.1, le=10_000)


@router.get(
    "/simulation",
    operation_id="simulation",
    summary="The simulated cluster's policy and speed (demo only)",
    responses=json_content({"type": "object"}, "Policy, placement, backfill, speed.")
    | described(404),
    response_class=Response,
)
def simulation(service: TheService) -> Response:
    """Policy, placement, backfill, speed, and what is allowed."""
    return json_response(_control(service).state())


@router.put(
    "/simulation",
    operation_id="changeSimulation",
    summary="Change the simulated cluster's policy or speed (demo only)",
    responses=json_content({"type": "object"}, "The new state.") | described(404, 422),
    response_class=Response,
)
def change_simulation(service: TheService, change: Annotated[SimulationChange, Body()]) -> Response:
    """What is not named stays as it is."""
    return json_response(_control(service).change(change.model_dump(exclude_none=True)))


def _control(service: TheService) -> Any:
    if service.simulation is None:
        raise NotFound("This server does not run a simulated cluster.")
    return service.simulation


@router.get(
    "/tasks",
    operation_id="tasks",
    summary="Background work",
    responses=json_content(_LIST, "Jobs, oldest first."),
    response_class=Response,
)
def tasks(service: TheService) -> Response:
    """What runs, waits, or is over, with its progress."""
    return json_response([job.document() for job in service.background.jobs()])


@router.get(
    "/tasks/{task}",
    operation_id="task",
    summary="One piece of background work",
    responses=json_content({"type": "object"}, "The job.") | described(404, 422),
    response_class=Response,
)
def task(service: TheService, task: str) -> Response:
    """Its state, progress and result."""
    return json_response(service.background.job(task).document())


@router.delete(
    "/tasks/{task}",
    operation_id="cancelTask",
    summary="Cancel background work",
    responses=json_content({"type": "object"}, "The job.") | described(404, 422),
    response_class=Response,
)
def cancel_task(service: TheService, task: str) -> Response:
    """It stops at its next step."""
    job = service.background.job(task)
    job.cancel()
    return json_response(job.document())

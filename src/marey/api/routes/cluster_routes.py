"""The cluster as a whole: what there is, now and before, and what Marey knows."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pyarrow as pa
from fastapi import Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, FromMs, Metrics, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import ARROW, SNAPSHOT, also_arrow, arrow_bytes, reply, wants
from marey.app.collect.source_documents import SimulationChanges, SimulationState
from marey.app.history.background_jobs import JobDocument
from marey.app.people.capacity import AskCapacity, CapacityPage
from marey.app.queries.cluster_documents import (
    ClusterSpan,
    FaultMeaning,
    MetricDocument,
    cluster_spans,
    fault_meanings,
    metric_document,
)
from marey.app.queries.search import SearchHit
from marey.app.queries.selection import METRICS_LIMIT, split_names
from marey.app.queries.table_documents import CLUSTER_MOMENT, SUMMARY_TABLE
from marey.app.queries.table_queries import AskSummary, Reply, check_table
from marey.app.service import SimulationControl
from marey.live.frames import Frame
from marey.live.quantise import live_scales
from marey.model.access.identity import Permission
from marey.model.errors import NotFound
from marey.model.metrics import catalogue, metric_named
from marey.model.times import parse_time

router = typed_router("cluster", reads=Permission.READ)

_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/clusters",
    operation_id="clusters",
    summary="List the clusters",
    response_description="Clusters with their span of history.",
)
def clusters(service: TheService) -> Answer[list[ClusterSpan]]:
    """Each with its present time and the span of its samples."""
    return Answer(cluster_spans(service.workspace))


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="List the metrics",
    response_description="Metrics in the order in which people should see them.",
)
def metrics() -> Answer[list[MetricDocument]]:
    """Unit, range, resolution, kind, and the resolution at which a metric travels live."""
    return Answer([metric_document(metric) for metric in catalogue().values()])


@router.get(
    "/faults",
    operation_id="faults",
    summary="List the kinds of fault",
    response_description="Kinds and what they mean.",
)
def faults() -> Answer[list[FaultMeaning]]:
    """One list for simulator, rules and diagnosis."""
    return Answer(fault_meanings())


@router.get(
    "/summary",
    operation_id="summary",
    summary="Get GPUs by state, waiting work and mean utilization over time",
    response_description="The table.",
    responses=also_arrow() | described(404, 422),
)
def summary(
    *,
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    points: Annotated[int, Query(ge=2, le=10_000, description="Most rows.")] = 288,
) -> Annotated[Response, SUMMARY_TABLE]:
    """The last day unless a span is given."""
    question = AskSummary(cluster, from_ms, to_ms, points)
    return reply(request, question.reply(service.workspace))


@router.get(
    "/capacity",
    operation_id="capacity",
    summary="Get the room for work over time, waits by size and type, and policy changes",
    response_description="Steps, waits, and each change with what was before and after it.",
    responses=described(404, 422),
)
def capacity(
    *,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    points: Annotated[int, Query(ge=2, le=96, description="Moments in the span.")] = 24,
) -> Answer[CapacityPage]:
    """The last day unless a span is given."""
    return Answer(AskCapacity(cluster, from_ms, to_ms, points).ask(service.workspace))


@router.get(
    "/search",
    operation_id="search",
    summary="Find workloads, users, projects, hosts and GPUs by a piece of their name",
    response_description="Hits {kind, id, label}, best first.",
    responses=described(404, 422),
)
def search(
    service: TheService,
    q: Annotated[str, Query(min_length=1, max_length=256, description="The piece of a name.")],
    cluster: Cluster = DEFAULT,
    limit: Annotated[int, Query(ge=1, le=200, description="Most hits.")] = 20,
) -> Answer[list[SearchHit]]:
    """A text with a colon also finds single GPUs."""
    service.workspace.check_cluster(cluster)
    return Answer(service.workspace.search(cluster, q, limit))


@router.get(
    "/cluster",
    operation_id="cluster",
    summary="Get all GPUs and workloads, now or at a past moment",
    response_description="As JSON both tables, units with a column more per metric; as Arrow the "
    f"one named by `table`; as {SNAPSHOT} the message that a live client would have been sent.",
    responses={200: {"content": {ARROW: _BINARY, SNAPSHOT: _BINARY}}, **described(404, 413, 422)},
)
def cluster(
    *,
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
    step_s: Annotated[
        int,
        Query(
            ge=0,
            le=86_400,
            description=f"{SNAPSHOT} of a past moment only: one picture per so many seconds, with "
            "the newest values alone, for time that is being dragged; 0: the moment itself.",
        ),
    ] = 0,
) -> Annotated[Response, CLUSTER_MOMENT]:
    """Units carry a column per metric asked for."""
    service.workspace.check_cluster(cluster)
    names = split_names(metrics, "metrics", METRICS_LIMIT)
    for name in names:
        metric_named(name)
    if step_s and at is not None and wants(request, SNAPSHOT):
        moment_ms, step_ms = parse_time(at), step_s * 1000
        thinned = service.workspace.thinned_snapshot(cluster, moment_ms, step_ms, names)
        return Response(thinned, media_type=SNAPSHOT)
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
    return Answer({**units.facts, "units": units.document()["rows"], "workloads": workloads})


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
    summary="Get the simulated cluster's policy and speed (demo only)",
    response_description="Policy, placement, backfill, speed; null where the cluster is real.",
)
def simulation(service: TheService) -> Answer[SimulationState | None]:
    """Policy, placement, backfill, speed, and what is allowed; null where the cluster is real."""
    return Answer(None if service.simulation is None else service.simulation.state())


@router.put(
    "/simulation",
    openapi_extra=needs(Permission.OPERATE),
    operation_id="changeSimulation",
    summary="Change the simulated cluster's policy or speed (demo only)",
    response_description="The new state.",
    responses=described(404, 422),
)
def change_simulation(
    service: TheService, change: Annotated[SimulationChange, Body()]
) -> Answer[SimulationState]:
    """What is not named stays as it is."""
    changes = msgspec.convert(change.model_dump(exclude_none=True), SimulationChanges)
    return Answer(_control(service).change(changes))


def _control(service: TheService) -> SimulationControl:
    if service.simulation is None:
        raise NotFound("This server does not run a simulated cluster.")
    return service.simulation


@router.get(
    "/tasks",
    operation_id="tasks",
    summary="List background tasks",
    response_description="Jobs, oldest first.",
)
def tasks(service: TheService) -> Answer[list[JobDocument]]:
    """What runs, waits, or is over, with its progress."""
    return Answer([job.document() for job in service.background.jobs()])


@router.get(
    "/tasks/{task}",
    operation_id="task",
    summary="Get one background task",
    response_description="The job.",
    responses=described(404, 422),
)
def task(service: TheService, task: str) -> Answer[JobDocument]:
    """Its state, progress and result."""
    return Answer(service.background.job(task).document())


@router.delete(
    "/tasks/{task}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="cancelTask",
    summary="Cancel a background task",
    response_description="The job.",
    responses=described(404, 422),
)
def cancel_task(service: TheService, task: str) -> Answer[JobDocument]:
    """It stops at its next step."""
    return Answer(service.background.cancel(task).document())

"""Runs of profiler traces: listed, sent, attached to workloads, converted, deleted."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import TheService
from marey.api.problems import described
from marey.app.traces.trace_documents import (
    TraceFile,
    TraceLimits,
    TraceRunDetail,
    TraceRuns,
    TraceRunSummary,
    TraceVerdicts,
)
from marey.app.traces.trace_library import RunChange
from marey.app.traces.trace_queries import describe_run, list_verdicts
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT

router = typed_router("traces", reads=Permission.READ)

RunId = Annotated[
    str, Path(description="Id of the run.", pattern=r"^[0-9a-z]{1,40}$", examples=["3f9a"])
]
FileName = Annotated[
    str, Query(alias="file", description="Name of the file.", min_length=1, max_length=NAME_LIMIT)
]


class NewRun(BaseModel):
    """A run to send files to."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=NAME_LIMIT)
    workload: str = Field(default="", max_length=NAME_LIMIT)
    cluster: str = Field(default="", max_length=NAME_LIMIT)


class RunChanges(BaseModel):
    """What to change; an empty workload detaches the run."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    workload: str | None = Field(default=None, max_length=NAME_LIMIT)
    cluster: str | None = Field(default=None, max_length=NAME_LIMIT)


@router.get(
    "/traces",
    operation_id="traceRuns",
    summary="List runs of profiler traces, newest first",
    response_description="A page of runs.",
    responses=described(422),
)
def trace_runs(
    *,
    service: TheService,
    workload: Annotated[
        str, Query(max_length=NAME_LIMIT, description="Only runs of this workload.")
    ] = "",
    cluster: Annotated[
        str, Query(max_length=NAME_LIMIT, description="Only runs of this cluster.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Most runs of a page.")] = 100,
    cursor: Annotated[
        str, Query(max_length=20, pattern=r"^[0-9]*$", description="`next` of the page before.")
    ] = "",
) -> Answer[TraceRuns]:
    """Sent ones, and those found in the folders that the configuration allows."""
    first = int(cursor or 0)
    found = service.traces.list_runs(workload, cluster)
    last = first + limit
    following = str(last) if last < len(found) else None
    return Answer(TraceRuns(found[first:last], following))


@router.post(
    "/traces",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="createTraceRun",
    summary="Make a run to send trace files to",
    status_code=201,
    response_description="The new run.",
    responses=described(404, 422),
)
def create_trace_run(service: TheService, wish: NewRun) -> Answer[TraceRunSummary]:
    """Send its files next, then convert it."""
    made = service.traces.create(wish.name, workload=wish.workload, cluster=wish.cluster)
    return Answer(service.traces.summarise(made), 201)


@router.get(
    "/traces/limits",
    operation_id="traceLimits",
    summary="Get what may be sent and how long it is kept",
    response_description="The limits.",
)
def trace_limits(service: TheService) -> Answer[TraceLimits]:
    """In bytes and milliseconds."""
    return Answer(service.traces.limits())


@router.get(
    "/traces/{run}",
    operation_id="traceRun",
    summary="Get one run: facts, ranks, steps, parallelism, clock",
    response_description="The run.",
    responses=described(404, 422),
)
def trace_run(service: TheService, run: RunId) -> Answer[TraceRunDetail]:
    """Its lists are empty until it is converted; `run.progress` tells how far that is."""
    return Answer(describe_run(service.traces, run))


@router.patch(
    "/traces/{run}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="changeTraceRun",
    summary="Rename a run, or attach it to a workload",
    response_description="The run.",
    responses=described(404, 422),
)
def change_trace_run(
    service: TheService, run: RunId, changes: RunChanges
) -> Answer[TraceRunSummary]:
    """What is left out stays as it is."""
    change = RunChange(changes.name, changes.workload, changes.cluster)
    return Answer(service.traces.summarise(service.traces.change(run, change)))


@router.delete(
    "/traces/{run}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="deleteTraceRun",
    summary="Delete a run",
    status_code=204,
    response_description="It is gone.",
    responses=described(404, 422),
)
def delete_trace_run(service: TheService, run: RunId) -> Response:
    """Traces that lie in a folder of the site stay there; only what was made of them goes."""
    service.traces.delete(run)
    return Response(status_code=204)


@router.put(
    "/traces/{run}/files",
    openapi_extra=needs(
        Permission.CONTRIBUTE,
        requestBody={"content": {"application/octet-stream": {"schema": {"type": "string"}}}},
    ),
    operation_id="sendTraceFile",
    summary="Send a file of a run, or the rest of one",
    response_description="What has arrived.",
    responses=described(404, 409, 413, 422),
)
async def send_trace_file(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    file: FileName,
    size: Annotated[
        int, Query(alias="bytes", ge=0, le=1 << 44, description="Bytes of the whole file.")
    ],
    offset: Annotated[
        int, Query(ge=0, le=1 << 44, description="Where the body begins in the file.")
    ] = 0,
) -> Answer[TraceFile]:
    """The body is the file's bytes from `offset` on; what arrived before a break stays."""
    with service.traces.receive(run, file, offset, size) as writer:
        async for piece in request.stream():
            await asyncio.to_thread(writer.write, piece)
    return Answer(service.traces.get_file(run, file))


@router.get(
    "/traces/{run}/files",
    operation_id="traceFiles",
    summary="List the files that were sent to a run",
    response_description="Files by name.",
    responses=described(404, 422),
)
def trace_files(
    service: TheService,
    run: RunId,
    file: Annotated[str, Query(max_length=500, description="Only this file, if it is there.")] = "",
) -> Answer[list[TraceFile]]:
    """With how much of each has arrived."""
    return Answer(service.traces.files(run, file))


@router.delete(
    "/traces/{run}/files",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="deleteTraceFile",
    summary="Remove a file from a run",
    response_description="What is left.",
    responses=described(404, 422),
)
def delete_trace_file(service: TheService, run: RunId, file: FileName) -> Answer[list[TraceFile]]:
    """Convert the run again to see it without."""
    service.traces.remove_file(run, file)
    return Answer(service.traces.files(run))


@router.post(
    "/traces/{run}/convert",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="convertTraceRun",
    summary="Convert and analyse a run in the background",
    response_description="The run.",
    responses=described(404, 409, 413, 422),
)
def convert_trace_run(service: TheService, run: RunId) -> Answer[TraceRunSummary]:
    """Its progress is in the run; a conversion under way goes on."""
    return Answer(service.traces.summarise(service.traces.convert(run)))


@router.post(
    "/traces/{run}/cancel",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="cancelTraceRun",
    summary="Stop the conversion of a run",
    response_description="The run.",
    responses=described(404, 422),
)
def cancel_trace_run(service: TheService, run: RunId) -> Answer[TraceRunSummary]:
    """Nothing happens where none is under way."""
    return Answer(service.traces.summarise(service.traces.cancel(run)))


@router.get(
    "/traces/{run}/verdicts",
    operation_id="traceVerdicts",
    summary="Get what is wrong with a run, in words",
    response_description="Verdicts, the most costly first.",
    responses=described(404, 422),
)
def trace_verdicts(service: TheService, run: RunId) -> Answer[TraceVerdicts]:
    """`where` is the selection that shows a verdict's evidence."""
    return Answer(list_verdicts(service.traces, run))

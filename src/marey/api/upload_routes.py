"""Files sent to the server: traces of a workload, history to import."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from marey.api.parameters import DEFAULT, Cluster, TheService
from marey.api.problems import described
from marey.api.replies import json_content, json_response
from marey.app.background import Job
from marey.app.importing import ImportRequest, check_import, write_import
from marey.app.journal import behind_journal
from marey.model.names import NAME_LIMIT
from marey.trace.report import report_document

router = APIRouter(tags=["uploads"])

_OWNER = Query(
    description="Whose file: `trace:WORKLOAD` for traces, `import:ANYTHING` for an import.",
    pattern=r"^(trace|import):.+$",
    max_length=NAME_LIMIT,
    examples=["trace:4711"],
)
Owner = Annotated[str, _OWNER]
FileName = Annotated[
    str, Query(description="Name of the file.", min_length=1, max_length=NAME_LIMIT)
]
_LIST = {"type": "array", "items": {"type": "object"}}
_TASK = json_content({"type": "object"}, "The background task; see /tasks.")


@router.put(
    "/uploads",
    operation_id="upload",
    summary="Send a file",
    responses=json_content({"type": "object"}, "What was kept.") | described(404, 413, 422),
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def upload(request: Request, service: TheService, owner: Owner, file: FileName) -> Response:
    """The body is the file as it is; sending the same name again replaces it."""
    workload = owner.partition(":")[2]
    if owner.startswith("trace:"):
        await asyncio.to_thread(service.store.workload, DEFAULT, workload)
    with service.uploads.receiving(owner, file) as receiver:
        async for piece in request.stream():
            await asyncio.to_thread(receiver.write, piece)
    return json_response(service.uploads.file(owner, file).document())


@router.get(
    "/uploads",
    operation_id="uploads",
    summary="Files that were sent",
    responses=json_content(_LIST, "Files by name.") | described(422),
    response_class=Response,
)
def uploads(service: TheService, owner: Owner) -> Response:
    """Empty where nothing was sent."""
    return json_response([file.document() for file in service.uploads.files(owner)])


@router.delete(
    "/uploads",
    operation_id="deleteUploads",
    summary="Forget files that were sent",
    responses=json_content(_LIST, "What is left.") | described(404, 422),
    response_class=Response,
)
def delete_uploads(
    service: TheService,
    owner: Owner,
    file: Annotated[
        str | None, Query(description="Only this file.", min_length=1, max_length=NAME_LIMIT)
    ] = None,
) -> Response:
    """One file, or all of the owner's."""
    service.uploads.remove(owner, file)
    return json_response([kept.document() for kept in service.uploads.files(owner)])


@router.post(
    "/traces/report",
    operation_id="traceReport",
    summary="Analyse the traces that were sent for a workload",
    responses=_TASK | described(404, 413, 422),
    response_class=Response,
)
def trace_report(
    service: TheService,
    workload: Annotated[
        str, Query(description="Id of the workload.", min_length=1, max_length=NAME_LIMIT)
    ],
) -> Response:
    """The task's result is the document of `marey trace report --json`."""
    owner = f"trace:{workload}"
    folder = service.uploads.folder(owner)
    if not service.uploads.files(owner):
        service.uploads.file(owner, "any trace")

    def work(job: Job) -> dict[str, Any]:
        return report_document(folder, cache=folder / "cache", progress=job.progress)

    return json_response(service.background.start(f"traces of {workload}", work).document())


class ImportWish(BaseModel):
    """Which of the uploaded files are samples and workloads."""

    model_config = ConfigDict(extra="forbid")

    owner: str = Field(pattern=r"^import:.+$", max_length=NAME_LIMIT)
    samples: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    workloads: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    skip_bad_rows: bool = False


@router.post(
    "/imports",
    operation_id="importHistory",
    summary="Import files that were sent",
    responses=_TASK | described(404, 413, 422),
    response_class=Response,
)
def import_history(service: TheService, wish: ImportWish, cluster: Cluster = DEFAULT) -> Response:
    """Both files are checked whole before anything is written; the files are forgotten after."""

    def path(name: str | None) -> Path | None:
        return None if name is None else service.uploads.as_named(wish.owner, name)

    request = ImportRequest(path(wish.samples), path(wish.workloads), cluster, wish.skip_bad_rows)

    def work(job: Job) -> dict[str, Any]:
        try:
            checked = check_import(request, lambda share: job.progress(share / 2))
            store = behind_journal(service.store)
            summary = write_import(checked, store, lambda share: job.progress(0.5 + share / 2))
        finally:
            service.uploads.remove(wish.owner)
        return summary.document()

    return json_response(service.background.start("import", work).document())

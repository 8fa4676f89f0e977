"""Files sent to the server: traces of a workload, history to import."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, TheService
from marey.api.problems import described
from marey.app.history.background_jobs import Job, JobDocument
from marey.app.history.imports import (
    ImportDocument,
    ImportRequest,
    check_import,
    parse_keeping,
    write_import,
)
from marey.app.history.uploads import UploadDocument
from marey.app.traces.children.report_process import make_report
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT
from marey.store.journal.journaled_store import get_store_behind_journal

router = typed_router("uploads", reads=Permission.READ)

_OWNER = Query(
    description="Whose file: `trace:WORKLOAD` for traces, `callgraph:NAME` for profiles, "
    "`import:ANYTHING` for an import.",
    pattern=r"^(trace|callgraph|import):.+$",
    max_length=NAME_LIMIT,
    examples=["trace:4711"],
)
Owner = Annotated[str, _OWNER]
FileName = Annotated[
    str, Query(description="Name of the file.", min_length=1, max_length=NAME_LIMIT)
]
_TASK = "The background task; see /tasks."


@router.put(
    "/uploads",
    openapi_extra=needs(
        Permission.CONTRIBUTE,
        requestBody={"content": {"application/octet-stream": {"schema": {"type": "string"}}}},
    ),
    operation_id="upload",
    summary="Upload a file",
    response_description="What was kept.",
    responses=described(404, 413, 422),
)
async def upload(
    request: Request, service: TheService, owner: Owner, file: FileName
) -> Answer[UploadDocument]:
    """The body is the file as it is; sending the same name again replaces it."""
    workload = owner.partition(":")[2]
    if owner.startswith("trace:"):
        await asyncio.to_thread(service.store.workload, DEFAULT, workload)
    with service.uploads.receiving(owner, file) as receiver:
        async for piece in request.stream():
            await asyncio.to_thread(receiver.write, piece)
    return Answer(service.uploads.file(owner, file).document())


@router.get(
    "/uploads",
    operation_id="uploads",
    summary="List uploaded files",
    response_description="Files by name.",
    responses=described(422),
)
def uploads(service: TheService, owner: Owner) -> Answer[list[UploadDocument]]:
    """Empty where nothing was sent."""
    return Answer([file.document() for file in service.uploads.files(owner)])


@router.delete(
    "/uploads",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="deleteUploads",
    summary="Delete uploaded files",
    response_description="What is left.",
    responses=described(404, 422),
)
def delete_uploads(
    service: TheService,
    owner: Owner,
    file: Annotated[
        str | None, Query(description="Only this file.", min_length=1, max_length=NAME_LIMIT)
    ] = None,
) -> Answer[list[UploadDocument]]:
    """One file, or all of the owner's."""
    service.uploads.remove(owner, file)
    return Answer([kept.document() for kept in service.uploads.files(owner)])


@router.post(
    "/traces/report",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="traceReport",
    summary="Analyse the traces uploaded for a workload",
    response_description=_TASK,
    responses=described(404, 413, 422),
)
def trace_report(
    service: TheService,
    workload: Annotated[
        str, Query(description="Id of the workload.", min_length=1, max_length=NAME_LIMIT)
    ],
) -> Answer[JobDocument]:
    """The task's result is the document of `marey trace report --json`."""
    owner = f"trace:{workload}"
    folder = service.uploads.folder(owner)
    if not service.uploads.files(owner):
        service.uploads.file(owner, "any trace")

    def work(job: Job) -> object:
        return make_report(folder, folder / "cache", job.progress)

    return Answer(service.background.start(f"traces of {workload}", work).document())


class ImportBody(BaseModel):
    """Which of the uploaded files are samples and workloads."""

    model_config = ConfigDict(extra="forbid")

    owner: str = Field(pattern=r"^import:.+$", max_length=NAME_LIMIT)
    samples: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    workloads: str | None = Field(default=None, min_length=1, max_length=NAME_LIMIT)
    skip_bad_rows: bool = False
    # `forever`, `retention` (as [store] retention says), or a duration such as 90d.
    keep: str = Field(default="forever", max_length=32)


@router.post(
    "/imports",
    openapi_extra=needs(Permission.OPERATE),
    operation_id="importHistory",
    summary="Import uploaded files",
    response_description=_TASK,
    responses=described(404, 413, 422),
)
def import_history(
    service: TheService, wish: ImportBody, cluster: Cluster = DEFAULT
) -> Answer[JobDocument]:
    """Both files are checked whole before anything is written; the files are forgotten after."""

    def path(name: str | None) -> Path | None:
        return None if name is None else service.uploads.as_named(wish.owner, name)

    request = ImportRequest(
        path(wish.samples),
        path(wish.workloads),
        cluster,
        wish.skip_bad_rows,
        parse_keeping(wish.keep),
    )

    def work(job: Job) -> ImportDocument:
        try:
            checked = check_import(request, lambda share: job.progress(share / 2))
            store = get_store_behind_journal(service.store)
            summary = write_import(checked, store, lambda share: job.progress(0.5 + share / 2))
        finally:
            service.uploads.remove(wish.owner)
        service.rule_watch.take_import(request.cluster)
        return summary.document()

    return Answer(service.background.start("import", work).document())

"""The record of changes, sign-ins and refusals, for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse

from marey.api.answers import Answer, typed_router
from marey.api.parameters import FromMs, ToMs
from marey.api.problems import described
from marey.api.replies import CSV
from marey.app.audit.audit_documents import AuditKind, AuditPage
from marey.app.audit.audit_export import write_csv, write_lines
from marey.app.audit.audit_log import AuditFilter, AuditLog
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT

router = typed_router("site", reads=Permission.ADMINISTER)

LINES = "application/jsonl"
_KINDS = "|".join(AuditKind)
_FILES: dict[int | str, dict[str, Any]] = {
    200: {"content": {CSV: {"schema": {"type": "string"}}, LINES: {"schema": {"type": "string"}}}}
}


@router.get(
    "/audit",
    operation_id="audit",
    summary="List changes, sign-ins and refusals, newest first",
    response_description="A page of entries; as csv or jsonl all that are chosen.",
    responses=_FILES | described(422),
)
def audit(
    *,
    request: Request,
    from_ms: FromMs,
    to_ms: ToMs,
    kind: Annotated[str, Query(pattern=f"^({_KINDS})?$", description="Only of this kind.")] = "",
    user: Annotated[str, Query(max_length=NAME_LIMIT, description="Only by this user.")] = "",
    text: Annotated[
        str, Query(max_length=200, description="Only where route, object or peer hold this.")
    ] = "",
    cursor: Annotated[
        str, Query(pattern=r"^[0-9-]{0,40}$", description="`next` of the page before.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Most entries of a page.")] = 100,
    format: Annotated[
        str, Query(pattern="^(json|csv|jsonl)$", description="json, csv or jsonl.")
    ] = "json",
) -> Answer[AuditPage] | Response:
    """Who did what when, from where, with what it was before and after."""
    log: AuditLog = request.app.state.audit
    chosen = AuditFilter(kind, user, text, from_ms=from_ms, to_ms=to_ms, cursor=cursor)
    if format == "json":
        return Answer(log.find_page(chosen, limit))
    write, media = (write_csv, CSV) if format == "csv" else (write_lines, LINES)
    name = f'attachment; filename="audit.{format}"'
    headers = {"Content-Disposition": name}
    return StreamingResponse(write(log.find(chosen)), media_type=media, headers=headers)

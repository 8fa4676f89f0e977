"""Findings: what the rules found, what people said of it, what it cost, who was notified."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import Body, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, FromMs, OneWorkload, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import CSV, wants
from marey.api.routes.rule_routes import StrictBody
from marey.app.rules.finding_documents import (
    FindingDocument,
    FindingList,
    Notifications,
    WasteSums,
)
from marey.app.rules.finding_store import AskFindings, AskWaste, Mute, make_finding_document
from marey.model.access.current import current_identity
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT
from marey.model.times import DAY_MS, EARLIEST_MS, Ms, parse_duration, parse_time
from marey.rules.engine.findings import Finding

router = typed_router("findings", reads=Permission.READ)

_ALSO_CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {CSV: {"schema": {"type": "string"}}}}
}
FindingId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="Id of the finding.")]
# Taken from older clients, and of no effect.
_AUTHOR = "Not heeded: the author is whoever is signed in."
RuleFilter = Annotated[str, Query(max_length=64, description="Only of this rule.")]
UserFilter = Annotated[str, Query(max_length=NAME_LIMIT, description="Only of this user.")]
ProjectFilter = Annotated[str, Query(max_length=NAME_LIMIT, description="Only of this project.")]
MuteId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="Id of the mute.")]


class CommentBody(StrictBody):
    """A comment, or the words of an acknowledgement."""

    text: str = Field(default="", max_length=4000)
    by: str = Field(default="", max_length=NAME_LIMIT, description=_AUTHOR)


class MuteBody(StrictBody):
    """What is muted, until when, and why."""

    scope: str = Field(max_length=20)
    value: str = Field(min_length=1, max_length=NAME_LIMIT)
    why: str = Field(min_length=1, max_length=4000)
    by: str = Field(default="", max_length=NAME_LIMIT, description=_AUTHOR)
    rule: str = Field(default="", max_length=64)
    until: str | None = Field(default=None, max_length=40)


@router.get(
    "/findings",
    operation_id="findings",
    summary="List findings, open ones first",
    response_description="The findings.",
    responses=described(404, 422),
)
def findings(
    *,
    service: TheService,
    state: Annotated[
        str, Query(pattern="^(open|closed)?$", description="open or closed; both if empty.")
    ] = "",
    workload: OneWorkload = "",
    rule: RuleFilter = "",
    user: UserFilter = "",
    project: ProjectFilter = "",
    limit: Annotated[int, Query(ge=1, le=100_000, description="Most rows.")] = 1000,
    cluster: Cluster = DEFAULT,
) -> Answer[FindingList]:
    """The same document as `marey findings --json`, times in milliseconds.

    While the rules still read what was measured before, `preparing` is true: it is not all yet.
    """
    service.workspace.check_cluster(cluster)
    question = AskFindings(
        cluster=cluster,
        state=state,
        workload=workload,
        rule=rule,
        user=user,
        project=project,
        limit=limit,
    )
    return Answer(question.ask(service.workspace))


@router.get(
    "/findings/{finding}",
    operation_id="finding",
    summary="Get one finding with its history",
    response_description="The finding.",
    responses=described(404, 422),
)
def one_finding(service: TheService, finding: FindingId) -> Answer[FindingDocument]:
    """Episodes, evidence, comments."""
    kept = service.rule_watch.findings
    found = kept.get(finding)
    return Answer(make_finding_document(found, kept.mutes(), service.workspace.now_ms()))


@router.post(
    "/findings/{finding}/comments",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="commentFinding",
    summary="Comment on a finding",
    response_description="The finding.",
    responses=described(400, 404, 422),
)
def comment(
    service: TheService, finding: FindingId, said: Annotated[CommentBody, Body()]
) -> Answer[Finding]:
    """Kept with the finding."""
    now_ms = service.workspace.now_ms()
    found = service.rule_watch.findings.add_comment(
        finding, said.text, current_identity().user, now_ms, acknowledge=False
    )
    return Answer(found)


@router.put(
    "/findings/{finding}/acknowledgement",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="acknowledgeFinding",
    summary="Acknowledge a finding",
    response_description="The finding.",
    responses=described(400, 404, 422),
)
def acknowledge(
    service: TheService, finding: FindingId, said: Annotated[CommentBody, Body()]
) -> Answer[Finding]:
    """It stays open until it is no longer violated."""
    now_ms = service.workspace.now_ms()
    found = service.rule_watch.findings.add_comment(
        finding, said.text, current_identity().user, now_ms, acknowledge=True
    )
    return Answer(found)


@router.get(
    "/mutes",
    operation_id="mutes",
    summary="List all mutes",
    response_description="The mutes.",
)
def mutes(service: TheService) -> Answer[list[Mute]]:
    """In force or over."""
    return Answer(service.rule_watch.findings.mutes())


@router.post(
    "/mutes",
    openapi_extra=needs(Permission.OPERATE),
    operation_id="mute",
    summary="Mute notifications for a workload, user, project or rule",
    response_description="The mute.",
    responses=described(400, 422),
)
def mute(service: TheService, body: Annotated[MuteBody, Body()]) -> Answer[Mute]:
    """Findings are still kept and shown, marked as muted."""
    made = Mute(
        id=uuid.uuid4().hex[:16],
        scope=body.scope,
        value=body.value,
        why=body.why,
        by=current_identity().user,
        rule=body.rule,
        until_ms=None if body.until is None else parse_time(body.until),
        since_ms=service.workspace.now_ms(),
    )
    service.rule_watch.findings.mute(made)
    return Answer(made)


@router.delete(
    "/mutes/{mute}",
    openapi_extra=needs(Permission.OPERATE),
    operation_id="unmute",
    summary="Remove a mute",
    status_code=204,
    responses=described(404, 422),
)
def unmute(service: TheService, mute: MuteId) -> Response:
    """Findings are reported again from now on."""
    service.rule_watch.findings.unmute(mute)
    return Response(status_code=204)


@router.get(
    "/waste",
    operation_id="waste",
    summary="Sum wasted GPU-hours by user, project, partition, rule or workload",
    response_description="The sums, also as CSV.",
    responses=_ALSO_CSV | described(404, 422),
)
def waste(
    *,
    request: Request,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    by: Annotated[
        str, Query(max_length=20, description="user, project, partition, rule or workload.")
    ] = "user",
    since: Annotated[
        str, Query(max_length=20, description="Instead of 'from': how far back, such as 24h.")
    ] = "",
    cluster: Cluster = DEFAULT,
) -> Answer[WasteSums] | Response:
    """Seven days unless a span is given; with ``Accept: text/csv`` the rows alone."""
    service.workspace.check_cluster(cluster)
    end_ms = service.workspace.now_ms() if to_ms is None else to_ms
    if since:
        from_ms = Ms(max(EARLIEST_MS, end_ms - parse_duration(since)))
    begin_ms = end_ms - 7 * DAY_MS if from_ms is None else from_ms
    sums = AskWaste(by, cluster, begin_ms, end_ms).ask(service.workspace)
    if wants(request, CSV):
        return Response(sums.csv, media_type=CSV)
    return Answer(sums)


@router.get(
    "/notifications",
    operation_id="notifications",
    summary="List recent notifications, and those that wait",
    response_description="The log and the outbox.",
)
def notifications(service: TheService) -> Answer[Notifications]:
    """Newest first."""
    return Answer(service.notifier.document())

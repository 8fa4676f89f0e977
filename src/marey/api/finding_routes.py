"""Findings: what the rules found, what people said of it, what it cost, who was told."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from marey.api.parameters import DEFAULT, Cluster, FromMs, OneWorkload, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import CSV, json_content, json_response, wants
from marey.api.rule_routes import Strict
from marey.app.findings import AskFindings, AskWaste, Mute, finding_document
from marey.model.names import NAME_LIMIT
from marey.model.times import DAY_MS, EARLIEST_MS, Ms, parse_duration, parse_time

router = APIRouter(tags=["findings"])

_OBJECT: dict[str, Any] = {"type": "object"}
_SUMS = json_content(_OBJECT, "The sums, also as CSV.")
_SUMS[200]["content"][CSV] = {"schema": {"type": "string"}}
_LIST = {"type": "array", "items": _OBJECT}
FindingId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="Id of the finding.")]
RuleFilter = Annotated[str, Query(max_length=64, description="Only of this rule.")]
UserFilter = Annotated[str, Query(max_length=NAME_LIMIT, description="Only of this user.")]
ProjectFilter = Annotated[str, Query(max_length=NAME_LIMIT, description="Only of this project.")]
MuteId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="Id of the mute.")]


class Said(Strict):
    """A comment, or the words of an acknowledgement."""

    text: str = Field(default="", max_length=4000)
    by: str = Field(default="", max_length=NAME_LIMIT)


class MuteBody(Strict):
    """What is muted, until when, and why."""

    scope: str = Field(max_length=20)
    value: str = Field(min_length=1, max_length=NAME_LIMIT)
    why: str = Field(min_length=1, max_length=4000)
    by: str = Field(default="", max_length=NAME_LIMIT)
    rule: str = Field(default="", max_length=64)
    until: str | None = Field(default=None, max_length=40)


@router.get(
    "/findings",
    operation_id="findings",
    summary="Findings, open ones first",
    responses=json_content(_OBJECT, "The findings.") | described(404, 422),
    response_class=Response,
)
def findings(
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
) -> Response:
    """The same document as `marey findings --json`, times in milliseconds.

    While the rules still read what was measured before, `preparing` is true: it is not all yet.
    """
    service.workspace.check_cluster(cluster)
    question = AskFindings(cluster, state, workload, rule, user, project, limit)
    return json_response(question.ask(service.workspace))


@router.get(
    "/findings/{finding}",
    operation_id="finding",
    summary="One finding with its history",
    responses=json_content(_OBJECT, "The finding.") | described(404, 422),
    response_class=Response,
)
def one_finding(service: TheService, finding: FindingId) -> Response:
    """Episodes, evidence, comments."""
    kept = service.rule_watch.findings
    found = kept.get(finding)
    return json_response(finding_document(found, kept.mutes(), service.workspace.now_ms()))


@router.post(
    "/findings/{finding}/comments",
    operation_id="commentFinding",
    summary="Comment on a finding",
    responses=json_content(_OBJECT, "The finding.") | described(400, 404, 422),
    response_class=Response,
)
def comment(service: TheService, finding: FindingId, said: Annotated[Said, Body()]) -> Response:
    """Kept with the finding."""
    now_ms = service.workspace.now_ms()
    found = service.rule_watch.findings.say(finding, said.text, said.by, now_ms, acknowledge=False)
    return json_response(msgspec.to_builtins(found, str_keys=True))


@router.put(
    "/findings/{finding}/acknowledgement",
    operation_id="acknowledgeFinding",
    summary="Acknowledge a finding: somebody looks after it",
    responses=json_content(_OBJECT, "The finding.") | described(400, 404, 422),
    response_class=Response,
)
def acknowledge(service: TheService, finding: FindingId, said: Annotated[Said, Body()]) -> Response:
    """It stays open until it is no longer violated."""
    now_ms = service.workspace.now_ms()
    found = service.rule_watch.findings.say(finding, said.text, said.by, now_ms, acknowledge=True)
    return json_response(msgspec.to_builtins(found, str_keys=True))


@router.get(
    "/mutes",
    operation_id="mutes",
    summary="Every mute",
    responses=json_content(_LIST, "The mutes."),
    response_class=Response,
)
def mutes(service: TheService) -> Response:
    """In force or over."""
    return json_response([msgspec.to_builtins(m) for m in service.rule_watch.findings.mutes()])


@router.post(
    "/mutes",
    operation_id="mute",
    summary="Tell nobody of findings of a workload, user, project or rule, until then",
    responses=json_content(_OBJECT, "The mute.") | described(400, 422),
    response_class=Response,
)
def mute(service: TheService, body: Annotated[MuteBody, Body()]) -> Response:
    """Findings are still kept and shown, marked as muted."""
    made = Mute(
        id=uuid.uuid4().hex[:16],
        scope=body.scope,
        value=body.value,
        why=body.why,
        by=body.by,
        rule=body.rule,
        until_ms=None if body.until is None else parse_time(body.until),
        since_ms=service.workspace.now_ms(),
    )
    service.rule_watch.findings.mute(made)
    return json_response(msgspec.to_builtins(made))


@router.delete(
    "/mutes/{mute}",
    operation_id="unmute",
    summary="End a mute",
    status_code=204,
    responses=described(404, 422),
    response_class=Response,
)
def unmute(service: TheService, mute: MuteId) -> Response:
    """Findings are told again from now on."""
    service.rule_watch.findings.unmute(mute)
    return Response(status_code=204)


@router.get(
    "/waste",
    operation_id="waste",
    summary="GPU-hours wasted over a period, by user, project, partition, rule or workload",
    responses=_SUMS | described(404, 422),
    response_class=Response,
)
def waste(
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
) -> Response:
    """Seven days unless a span is given; with ``Accept: text/csv`` the rows alone."""
    service.workspace.check_cluster(cluster)
    end_ms = service.workspace.now_ms() if to_ms is None else to_ms
    if since:
        from_ms = Ms(max(EARLIEST_MS, end_ms - parse_duration(since)))
    begin_ms = end_ms - 7 * DAY_MS if from_ms is None else from_ms
    sums = AskWaste(by, cluster, begin_ms, end_ms).ask(service.workspace)
    if wants(request, CSV):
        return Response(sums["csv"], media_type=CSV)
    return json_response(sums | {"from_ms": begin_ms, "to_ms": end_ms})


@router.get(
    "/notifications",
    operation_id="notifications",
    summary="What was told to whom lately, and what waits",
    responses=json_content(_OBJECT, "The log and the outbox."),
    response_class=Response,
)
def notifications(service: TheService) -> Response:
    """Newest first."""
    notifier = service.notifier
    waiting = [
        {
            "receiver": parcel.receiver,
            "notices": len(parcel.notices),
            "attempts": parcel.attempts,
            "due_ms": parcel.due_ms,
            "error": parcel.error,
        }
        for parcel in list(notifier.outbox.parcels.values())
    ]
    return json_response(
        {
            "dry_run": notifier.settings.dry_run,
            "receivers": list(notifier.settings.receivers),
            "waiting": waiting,
            "log": notifier.log_documents(),
        }
    )

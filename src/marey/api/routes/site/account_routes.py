"""Accounts: one's own tokens; and for operators users, roles, sessions and tokens."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import Body, Path, Request
from pydantic import Field
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import TheService
from marey.api.problems import described
from marey.api.routes.rule_routes import StrictBody
from marey.api.routes.site.request_identity import (
    Somebody,
    TheControl,
    bound_life_ms,
    get_session,
)
from marey.app.access.access_control import AccessControl
from marey.app.access.access_documents import NewToken, People, PersonRow, SessionRow, TokenRow
from marey.app.access.api_tokens import ApiToken
from marey.app.access.sessions import Session
from marey.app.people.own_notices import OwnNotices, list_own_notices
from marey.model.access.current import current_identity
from marey.model.access.identity import Permission
from marey.model.errors import InvalidInput, NotFound, shown
from marey.model.names import NAME_LIMIT
from marey.model.times import HOUR_MS, parse_duration

router = typed_router("access", reads=Permission.OPERATE)

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", description="Id of the token.")]
SessionId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="Id of the session.")]


class NewTokenBody(StrictBody):
    """What a token is for, what it permits, and for how long."""

    name: str = Field(min_length=1, max_length=NAME_LIMIT)
    scopes: list[str] = Field(min_length=1, max_length=10)
    life: str = Field(default="90d", max_length=20, description="Such as 90d.")
    workload: str = Field(default="", max_length=NAME_LIMIT)


@router.get(
    "/tokens",
    openapi_extra=needs(Permission.ACCOUNT),
    operation_id="tokens",
    summary="List one's own API tokens",
    response_description="The tokens, newest first, without their secrets.",
)
def tokens(control: TheControl, me: Somebody) -> Answer[list[TokenRow]]:
    """Those that have expired are listed until a new one is made."""
    return Answer([describe_token(token) for token in control.tokens.list(me.user)])


@router.post(
    "/tokens",
    openapi_extra=needs(Permission.ACCOUNT),
    operation_id="createToken",
    summary="Create an API token",
    status_code=201,
    response_description="The token; its text is shown this once.",
    responses=described(413, 422),
)
def create_token(
    request: Request, control: TheControl, me: Somebody, body: Annotated[NewTokenBody, Body()]
) -> Answer[NewToken]:
    """It permits at most what its owner may; one made by a token does not outlive that one."""
    life_ms: int = parse_duration(body.life)
    longest_ms = control.settings.token_life_ms
    if not HOUR_MS <= life_ms <= longest_ms:
        raise InvalidInput(
            f"life is '{shown(body.life)}'; allowed: 1h to {longest_ms // HOUR_MS}h "
            "(access.token_life)."
        )
    text, token = control.tokens.create(
        me,
        body.name,
        scopes=body.scopes,
        life_ms=bound_life_ms(request, life_ms),
        workload=body.workload,
    )
    return Answer(NewToken(text, describe_token(token)), 201)


@router.delete(
    "/tokens/{token}",
    openapi_extra=needs(Permission.ACCOUNT),
    operation_id="revokeToken",
    summary="Revoke a token of one's own; admins revoke anybody's",
    status_code=204,
    responses={204: {"description": "Worthless from now on."}, **described(404, 422)},
)
def revoke_token(control: TheControl, me: Somebody, token: TokenId) -> Response:
    """It cannot be brought back."""
    found = control.tokens.get(token)
    if found.user != me.user and not me.may(Permission.ADMINISTER):
        raise NotFound(f"There is no token '{shown(token)}'.")
    control.revoke_token(token)
    return Response(status_code=204)


@router.get(
    "/my-notifications",
    openapi_extra=needs(Permission.READ),
    operation_id="ownNotifications",
    summary="List what was found in one's own work lately, and who is told of it",
    response_description="The last seven days, newest first.",
)
def own_notifications(service: TheService) -> Answer[OwnNotices]:
    """Nobody in particular has none."""
    user, now_ms = current_identity().user, service.workspace.now_ms()
    findings, settings = service.rule_watch.findings, service.notifier.settings
    return Answer(list_own_notices(findings, settings, user, now_ms))


@router.get(
    "/people",
    operation_id="people",
    summary="List users with their roles, sessions and tokens",
    response_description="Those who used the server since it started, or have a token.",
)
def people(request: Request, control: TheControl) -> Answer[People]:
    """For operators; ending sessions and revoking tokens is for admins."""
    own, sessions, held = get_session(request), control.sessions.list(), control.tokens.list()
    return Answer(
        People(
            mode=control.mode,
            privacy=request.app.state.service.scopes.mode.value,
            people=list_people(control, sessions, held),
            sessions=[
                describe_session(control, session, is_own=session is own) for session in sessions
            ],
            tokens=[describe_token(token) for token in held],
        )
    )


@router.delete(
    "/sessions/{session}",
    openapi_extra=needs(Permission.ADMINISTER),
    operation_id="endSession",
    summary="End somebody's session",
    status_code=204,
    responses={204: {"description": "Signed out."}, **described(404, 422)},
)
def end_session(control: TheControl, session: SessionId) -> Response:
    """Its browser has to sign in again."""
    control.sessions.end_by_id(session)
    return Response(status_code=204)


def list_people(
    control: AccessControl, sessions: list[Session], tokens: list[ApiToken]
) -> list[PersonRow]:
    """Return everybody who was seen or has a token, last seen first."""
    by_session = Counter(session.identity.user for session in sessions)
    by_token = Counter(token.user for token in tokens)
    rows = [
        PersonRow(
            user=person.identity.user,
            role=person.identity.role.value,
            groups=list(person.identity.groups),
            seen_ms=person.seen_ms,
            sessions=by_session[person.identity.user],
            tokens=by_token[person.identity.user],
        )
        for person in control.people.list()
    ]
    known = {row.user for row in rows}
    unseen = {token.user: token for token in tokens if token.user not in known}
    rows += [
        PersonRow(
            user=user,
            role=token.role.value,
            groups=list(token.groups),
            seen_ms=None,
            sessions=0,
            tokens=by_token[user],
        )
        for user, token in unseen.items()
    ]
    return rows


def describe_token(token: ApiToken) -> TokenRow:
    """Return a token as lists show it."""
    return TokenRow(
        id=token.id,
        name=token.name,
        user=token.user,
        role=token.role.value,
        scopes=list(token.scopes),
        workload=token.workload,
        created_ms=token.created_ms,
        expires_ms=token.expires_ms,
        used_ms=token.used_ms,
    )


def describe_session(control: AccessControl, session: Session, *, is_own: bool) -> SessionRow:
    """Return a session as lists show it."""
    return SessionRow(
        id=session.id,
        user=session.identity.user,
        role=session.identity.role.value,
        peer=session.peer,
        since_ms=session.since_ms,
        seen_ms=session.seen_ms,
        ends_ms=control.sessions.ends_ms(session),
        is_own=is_own,
    )

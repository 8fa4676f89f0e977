"""Signing in and out: by token, at an OpenID provider, and for commands."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Body, Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse, RedirectResponse, Response

from marey.api.access.authentication import read_peer, refuse_attempt
from marey.api.access.cookies import (
    ATTEMPT,
    clear_attempt_cookie,
    clear_session_cookie,
    read_cookie,
    read_session_cookie,
    set_attempt_cookie,
    set_session_cookie,
)
from marey.api.access.permissions import needs, open_to_all
from marey.api.answers import Answer, typed_router
from marey.api.problems import described
from marey.api.routes.rule_routes import StrictBody
from marey.api.routes.site.request_identity import (
    Somebody,
    TheControl,
    bound_life_ms,
    describe_asker,
    describe_identity,
    get_session,
    is_secure,
)
from marey.app.access.access_control import AccessControl
from marey.app.access.access_documents import (
    CommandAsking,
    CommandToken,
    CommandWaiting,
    CurrentUser,
    SessionKey,
    SignedInSession,
    SignedOut,
)
from marey.app.access.api_tokens import ApiToken
from marey.app.access.command_sign_ins import LIFE_MS
from marey.app.access.openid_provider import OpenIdProvider
from marey.app.access.roles import identify
from marey.app.access.sessions import NewSession
from marey.app.access.sign_in_attempts import PAGE_LIMIT, Attempt
from marey.model.access.identity import Identity, Permission
from marey.model.errors import Conflict, MareyError, NotPermitted, NotSignedIn, shown
from marey.model.system.html_templates import open_template
from marey.model.times import DAY_MS

router = typed_router("access", reads=Permission.READ)

COMMAND_LIFE_MS = 30 * DAY_MS


class TokenBody(StrictBody):
    """A token, or the key of a local server's owner."""

    token: str = Field(min_length=1, max_length=4096)


class CommandBody(StrictBody):
    """What a command says of the machine it runs on."""

    place: str = Field(default="", max_length=200)


class CommandClaim(StrictBody):
    """By which a command asks for its token."""

    code: str = Field(min_length=1, max_length=20)
    command_secret: str = Field(min_length=1, max_length=200)


class CommandCode(StrictBody):
    """The code that a command shows on its terminal."""

    code: str = Field(min_length=1, max_length=20)


@router.get(
    "/me",
    openapi_extra=open_to_all(),
    operation_id="me",
    summary="Tell who is asking, what they may do, and how one signs in",
    response_description="The identity; without a user for nobody in particular.",
)
def me(request: Request, control: TheControl) -> Answer[CurrentUser]:
    """Anybody may ask; a wrong token is refused like everywhere."""
    return Answer(describe_asker(request, control))


@router.post(
    "/sign-in",
    openapi_extra=open_to_all(),
    operation_id="signIn",
    summary="Begin a session with a token, or with the owner's key of a local server",
    response_description="The session's key; the session itself is a cookie.",
    responses=described(401, 403, 422, 429),
)
def sign_in(
    request: Request, control: TheControl, body: Annotated[TokenBody, Body()]
) -> Answer[SignedInSession] | Response:
    """The cookie is never the token: it ends by itself and at sign-out."""
    peer = read_peer(request.scope)
    # Secrets are too long to be guessed: whoever shows the right one never waits for others'
    # failures, such as those of a page that was left open over a restart.
    found = control.check_token(body.token)
    if found.identity is None:
        wait_s = control.throttle.wait_s(peer)
        control.throttle.note_failure(peer)
        return refuse_attempt(wait_s)
    if not found.identity.may(Permission.READ):
        raise NotPermitted("This token is for programs that send data; it does not allow viewing.")
    new = _begin_session(request, control, found.identity, token=found.token)
    me = describe_identity(request, control, found.identity, session=new.session)
    answer = Answer(SignedInSession(new.key, me))
    set_session_cookie(answer, new.cookie, secure=is_secure(request, control))
    return answer


def _begin_session(
    request: Request,
    control: AccessControl,
    identity: Identity,
    *,
    id_token: str = "",
    token: ApiToken | None = None,
) -> NewSession:
    """Begin a session; the one that the browser had before ends."""
    _end_session(request, control)
    peer = read_peer(request.scope)
    return control.sign_in(identity, peer=peer, id_token=id_token, token=token)


def _end_session(request: Request, control: AccessControl) -> None:
    secure = is_secure(request, control)
    control.sessions.end(read_session_cookie(request.headers, secure=secure))


@router.get(
    "/sign-in/start",
    openapi_extra=open_to_all(),
    operation_id="startSignIn",
    summary="Go to the OpenID provider to sign in",
    status_code=303,
    responses=described(409, 422, 429, 503),
)
def start_sign_in(
    request: Request,
    control: TheControl,
    page: Annotated[
        str, Query(max_length=PAGE_LIMIT, description="Page of this site to show afterwards.")
    ] = "/",
) -> Response:
    """For browsers; comes back to `/sign-in/callback`."""
    provider = _get_provider(control)
    peer = read_peer(request.scope)
    wait_s = control.throttle.wait_s(peer)
    if wait_s:
        return refuse_attempt(wait_s)
    cookie, attempt = control.attempts.begin(peer=peer, page=page)
    response = RedirectResponse(provider.make_sign_in_url(attempt), 303)
    set_attempt_cookie(response, cookie, secure=is_secure(request, control))
    return response


@router.get(
    "/sign-in/callback",
    openapi_extra=open_to_all(),
    operation_id="finishSignIn",
    summary="Come back from the OpenID provider",
    status_code=303,
    responses=described(409, 422)
    | {code: {"description": "Not signed in; a page says why."} for code in (401, 403, 429, 503)},
)
def finish_sign_in(
    *,
    request: Request,
    control: TheControl,
    state: Annotated[str, Query(max_length=200, description="As it was sent to the provider.")],
    code: Annotated[str, Query(max_length=4096, description="Of the provider.")] = "",
    iss: Annotated[str, Query(max_length=1000, description="Which provider it is.")] = "",
    error: Annotated[str, Query(max_length=1000, description="Why it did not succeed.")] = "",
) -> Response:
    """For browsers; ends on the page from which somebody signed in."""
    provider = _get_provider(control)
    peer = read_peer(request.scope)
    wait_s = control.throttle.wait_s(peer)
    if wait_s:
        return _refuse_page(control, f"Too many failed attempts; try again in {wait_s} s.", 429)
    secure = is_secure(request, control)
    cookie = read_cookie(request.headers, ATTEMPT, secure=secure)
    attempt = control.attempts.end(cookie, state)
    try:
        if attempt is None:
            raise NotSignedIn(
                "This sign-in was started in another browser or is too old; start again."
            )
        if error or not code:
            raise NotSignedIn(f"The provider says: {shown(error or 'nothing')}.")
        new = _finish(request, control, attempt, (code, iss))
    except MareyError as refusal:
        control.throttle.note_failure(peer)
        response: Response = _refuse_page(control, str(refusal), refusal.status)
        clear_attempt_cookie(response)
        return response
    # The key is in the fragment, which is sent to no server; the page exchanges it at once.
    fragment = urlencode({"session-key": new.key, "page": attempt.page})
    response = RedirectResponse(f"{_find_base(provider)}/sign-in#{fragment}", 303)
    clear_attempt_cookie(response)
    set_session_cookie(response, new.cookie, secure=secure)
    return response


def _finish(
    request: Request, control: AccessControl, attempt: Attempt, returned: tuple[str, str]
) -> NewSession:
    code, issuer = returned
    signed_in = _get_provider(control).redeem(code, attempt, issuer)
    identity = identify(control.settings, signed_in.user, signed_in.groups)
    if identity is None:
        raise NotPermitted(f"'{shown(signed_in.user)}' may not use this server; ask its operators.")
    return _begin_session(request, control, identity, id_token=signed_in.id_token)


def _get_provider(control: AccessControl) -> OpenIdProvider:
    if control.provider is None:
        raise Conflict("This server has no OpenID provider (access.mode is not oidc).")
    return control.provider


def _find_base(provider: OpenIdProvider) -> str:
    """Return the address that browsers use, so that cookies and pages are of one site."""
    return provider.public_url.rstrip("/")


def _refuse_page(control: AccessControl, detail: str, status: int) -> Response:
    page = f"{_find_base(_get_provider(control))}/sign-in"
    template = open_template("marey.api.routes.site", "not_signed_in.html")
    return HTMLResponse(template.render(detail=detail, page=page), status)


@router.post(
    "/session/key",
    openapi_extra=needs(Permission.ACCOUNT),
    operation_id="renewSessionKey",
    summary="Exchange the session's key for a new one",
    response_description="The new key.",
    responses=described(409),
)
def renew_key(request: Request, control: TheControl) -> Answer[SessionKey]:
    """What came with the address of the page is worthless afterwards."""
    session = get_session(request)
    if session is None:
        raise Conflict("This request comes without a session.")
    return Answer(SessionKey(control.sessions.renew_key(session)))


@router.delete(
    "/session",
    openapi_extra=open_to_all(),
    operation_id="signOut",
    summary="Sign out",
    response_description="Where to sign out at the provider or proxy.",
)
def sign_out(request: Request, control: TheControl) -> Answer[SignedOut]:
    """The session's cookie is worthless from now on."""
    session = get_session(request)
    _end_session(request, control)
    target = control.proxy.logout_url if control.mode == "proxy" else ""
    if session is not None and control.provider is not None:
        target = control.provider.make_sign_out_url(session.id_token)
    answer = Answer(SignedOut(target))
    clear_session_cookie(answer)
    return answer


@router.post(
    "/sign-in/commands",
    openapi_extra=open_to_all(),
    operation_id="startCommandSignIn",
    summary="Begin to sign a command in; its user confirms a code in the web app",
    status_code=201,
    response_description="Code and secret.",
    responses=described(413, 422),
)
def start_command(
    request: Request, control: TheControl, body: Annotated[CommandBody, Body()]
) -> Answer[CommandWaiting]:
    """For `marey login`; over after ten minutes."""
    secret, waiting = control.commands.begin(place=body.place, peer=read_peer(request.scope))
    page = f"{control.settings.public_url.rstrip('/')}/account"
    ends_ms = waiting.begun_ms + LIFE_MS
    return Answer(CommandWaiting(waiting.code, secret, page, ends_ms), 201)


@router.post(
    "/sign-in/commands/token",
    openapi_extra=open_to_all(),
    operation_id="takeCommandToken",
    summary="Ask for the token of a command that signs in",
    response_description="The token, given out once; empty while its user has not confirmed.",
    responses=described(404, 422),
)
def take_command_token(
    control: TheControl, body: Annotated[CommandClaim, Body()]
) -> Answer[CommandToken]:
    """Only the command that began knows the secret."""
    return Answer(CommandToken(control.commands.take(body.code, body.command_secret)))


@router.post(
    "/sign-in/commands/find",
    openapi_extra=needs(Permission.ACCOUNT),
    operation_id="findCommandSignIn",
    summary="Get the command that shows a code",
    response_description="Where it runs.",
    responses=described(404, 422),
)
def find_command(
    control: TheControl, me: Somebody, body: Annotated[CommandCode, Body()]
) -> Answer[CommandAsking]:
    """What a person sees before confirming."""
    found = control.commands.get(body.code)
    return Answer(CommandAsking(found.code, found.place, found.peer, found.begun_ms))


@router.post(
    "/sign-in/commands/confirm",
    openapi_extra=needs(Permission.ACCOUNT),
    operation_id="confirmCommandSignIn",
    summary="Let the command that shows a code act as oneself",
    response_description="The command.",
    responses=described(404, 413, 422),
)
def confirm_command(
    request: Request, control: TheControl, me: Somebody, body: Annotated[CommandCode, Body()]
) -> Answer[CommandAsking]:
    """It gets a token of 30 days with one's own rights, which can be revoked."""
    found = control.commands.get(body.code)
    longest_ms = min(COMMAND_LIFE_MS, control.settings.token_life_ms)
    life_ms = bound_life_ms(request, longest_ms)
    name = f"marey login {found.place}".strip()[:100]
    scopes = sorted(permission.value for permission in me.permissions)
    token, _ = control.tokens.create(me, name, scopes=scopes, life_ms=life_ms)
    control.commands.confirm(found.code, token)
    return Answer(CommandAsking(found.code, found.place, found.peer, found.begun_ms))

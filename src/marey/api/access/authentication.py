"""The layer that recognises who is asking, before any route is looked up."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from marey.api.access.cookies import read_session_cookie
from marey.api.problems import problem
from marey.app.access.access_control import AccessControl, AuthenticationResult, Credentials
from marey.model.access.current import acting_as

KEY_HEADER = "x-marey-key"
# What changes nothing may come with a cookie alone.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SIGN_IN = "/api/v1/sign-in"


class AuthenticationMiddleware:
    """ASGI middleware: puts the identity into the scope and into ``current_identity()``."""

    def __init__(self, app: ASGIApp, control: AccessControl) -> None:
        self._app = app
        self._control = control

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on as somebody's, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        found = self._control.authenticate(read_credentials(scope, headers, self._control))
        scope["identity"], scope["session"] = found.identity, found.session
        scope["token"] = found.token
        refusal = self._refuse(scope, headers, found)
        if refusal is not None:
            await send_refusal(refusal, scope, receive, send)
        elif found.identity is None:
            await self._app(scope, receive, send)
        else:
            with acting_as(found.identity):
                await self._app(scope, receive, send)

    def _refuse(
        self, scope: Scope, headers: Headers, found: AuthenticationResult
    ) -> Response | None:
        peer = read_peer(scope)
        if found.is_wrong:
            wait_s = self._control.throttle.wait_s(peer)
            self._control.throttle.note_failure(peer)
            return refuse_attempt(wait_s)
        session = found.session
        if session is None or scope.get("method", "GET") in SAFE_METHODS:
            return None
        if scope["path"].removeprefix(scope.get("root_path", "")) == SIGN_IN:
            # Shows a secret of its own, and replaces the session.
            return None
        if session.holds_key(headers.get(KEY_HEADER, "")):
            return None
        # A cookie also goes to servers on other ports of the same host; the key does not.
        detail = "A change must be sent with the session's key (X-Marey-Key); sign in again."
        return problem(403, "Forbidden", detail, code="session_key")


def refuse_attempt(wait_s: int) -> Response:
    """Return the answer to a token or name that is not let in."""
    if wait_s:
        detail = f"Too many failed attempts from here; try again in {wait_s} s."
        return problem(429, "Too many requests", detail, headers={"Retry-After": str(wait_s)})
    detail = "This token or user is not let in: unknown, expired or revoked."
    challenge = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return problem(401, "Unauthorized", detail, headers=challenge)


async def send_refusal(refusal: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or close a socket."""
    if scope["type"] == "http":
        await refusal(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.close", "code": 1008, "reason": "refused"})


def is_secure_scope(scope: Scope, control: AccessControl) -> bool:
    """Return whether browsers reach this server over TLS, its own or a proxy's."""
    return scope["scheme"] in ("https", "wss") or control.settings.public_url.startswith("https:")


def read_peer(scope: Scope) -> str:
    """Return the address of the other side; empty for a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


def read_credentials(scope: Scope, headers: Headers, control: AccessControl) -> Credentials:
    """Return what the request shows; names in headers only where a proxy may set them."""
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    # Headers that stand twice were not all set by the proxy: then none of them is believed.
    names = (control.proxy.user_header, control.proxy.groups_header)
    by_proxy = control.mode == "proxy" and all(len(headers.getlist(n)) < 2 for n in names)
    return Credentials(
        bearer=bearer.strip() if kind.lower() == "bearer" else "",
        cookie=read_session_cookie(headers, secure=is_secure_scope(scope, control)),
        peer=scope.get("direct_peer", read_peer(scope)),
        user=headers.get(control.proxy.user_header, "") if by_proxy else "",
        groups=headers.get(control.proxy.groups_header, "") if by_proxy else "",
    )

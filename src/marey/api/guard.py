"""Who may speak to the server: the right host name, the right origin, a bounded body."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marey.api.problems import problem
from marey.app.access.access_control import AccessControl
from marey.app.history.uploads import FILE_LIMIT
from marey.model.errors import shown

BODY_LIMIT = 1_000_000
# Files are sent in pieces that go straight to disk; their own limit is the uploads'.
LARGE_BODIES = {"/api/v1/uploads": FILE_LIMIT}

# Everything the page needs comes from this server; styles may stand in elements.
CONTENT_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # What somebody was shown stays neither on the disk of a machine that others use, nor with a
    # proxy for whoever asks next; files of the bundle say otherwise.
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Access:
    """The names the server answers to, and who may do what there."""

    names: Sequence[str] = ()
    control: AccessControl = field(default_factory=AccessControl)
    # Whose pages may show the overview in a frame.
    frame_origins: Sequence[str] = ()


class Guard:
    """ASGI middleware: refuses before anything is parsed or looked up."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        # Browsers send them in small letters.
        self._names = frozenset(name.lower() for name in access.names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it with a problem."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None and scope["type"] == "http":
            limit = _body_limit(scope)
            await self._app(
                scope, _bound_stream(receive, limit), _harden(send, self._choose_headers(scope))
            )
        elif refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await refusal(scope, receive, _harden(send, SECURITY_HEADERS))
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})

    def _choose_headers(self, scope: Scope) -> Mapping[str, str]:
        """Return the headers of every answer; only the overview may stand in others' frames."""
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        if not self._access.frame_origins or path != "/":
            return SECURITY_HEADERS
        framed = {k: v for k, v in SECURITY_HEADERS.items() if k != "X-Frame-Options"}
        origins = " ".join(self._access.frame_origins)
        policy = CONTENT_POLICY.replace("frame-ancestors 'none'", f"frame-ancestors {origins}")
        return {**framed, "Content-Security-Policy": policy}

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._answers_to(host):
            detail = f"This server does not answer to '{shown(host)}' (see server.names)."
            return problem(421, "Misdirected request", detail)
        origin = headers.get("origin")
        if origin is not None and not _same_origin(origin, host, scope["scheme"]):
            detail = f"Pages of '{shown(origin)}' may not use this server."
            return problem(403, "Forbidden", detail)
        if _read_length(headers) > _body_limit(scope):
            return problem(413, "Too large", f"A body may have {_body_limit(scope)} bytes.")
        return None

    def _answers_to(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name == "localhost" or name in self._names:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def _same_origin(origin: str, host: str, scheme: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    # A page without TLS may be anybody's on the way. The other way round it is a proxy that has
    # TLS and does not say so.
    if parts.scheme == "http" and scheme in ("https", "wss"):
        return False
    return parts.netloc.lower() == host.lower()


def _read_length(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isdigit() and len(text) < 16 else 0


def _body_limit(scope: Scope) -> int:
    path: str = scope["path"]
    if path.startswith("/api/v1/traces/") and path.endswith("/files"):
        return FILE_LIMIT
    return LARGE_BODIES.get(path, BODY_LIMIT)


def _bound_stream(receive: Receive, limit: int) -> Receive:
    """Return the same stream, ended as a disconnect once it exceeds the limit."""
    taken = 0

    async def take() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        return {"type": "http.disconnect"} if taken > limit else message

    return take


def _harden(send: Send, security: Mapping[str, str]) -> Send:
    async def give(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Any = MutableHeaders(scope=message)
            for name, value in security.items():
                headers.setdefault(name, value)
        await send(message)

    return give

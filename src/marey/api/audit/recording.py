"""The layer that records every change and refusal, so that no route can forget to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marey.api.answers import TypedRoute
from marey.app.audit.audit_documents import AuditKind, Details
from marey.app.audit.audit_log import AuditEvent, AuditLog
from marey.model.access.identity import Identity, Permission
from marey.model.errors import shown

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
REFUSALS = frozenset({401, 403, 421, 429})
# Where the state before a change can be asked for under the same path.
REPLACING = frozenset({"PUT", "PATCH", "DELETE"})
# What is kept of a document; larger ones are only said to be.
DETAIL_BYTES = 8_000
_SECRET_WORDS = ("token", "secret", "password", "key", "cookie", "code")
_PREFIX = "/api/v1/"
# Recorded as what it is: a sign-in, by whomever has signed in.
_OF_THEIR_OWN = frozenset({"signIn"})
# With which code a live connection is refused.
_NOT_PERMITTED = 1008


class AuditRecording:
    """ASGI middleware: looks at what comes out, and writes down what changed or was refused."""

    def __init__(self, app: ASGIApp, log: AuditLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; record it if it changed something or was refused."""
        if scope["type"] == "websocket":
            await self._app(scope, receive, self._watch_socket(scope, send))
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_safe = scope["method"] in SAFE_METHODS
        answer = _Answer(send, keeps_body=not is_safe)
        before = None
        if scope["method"] in REPLACING and scope["path"].startswith(_PREFIX):
            before = await self._ask_document(scope)
        after = None
        try:
            await self._app(scope, receive, answer.send)
            if before is not None and scope["method"] != "DELETE" and answer.status < 300:
                # The same question as before, so that only what was changed differs.
                after = await self._ask_document(scope)
        finally:
            audit_event = _describe(scope, answer, before, after)
            if audit_event is not None:
                self._log.record(audit_event, time.time_ns() // 1_000_000)

    def _watch_socket(self, scope: Scope, send: Send) -> Send:
        """Return the same channel; a live connection that is refused is written down."""
        accepted = False

        async def give(message: Message) -> None:
            nonlocal accepted
            accepted = accepted or message["type"] == "websocket.accept"
            if not accepted and message.get("code") == _NOT_PERMITTED:
                self._log.record(_describe_refused_socket(scope), time.time_ns() // 1_000_000)
            await send(message)

        return give

    async def _ask_document(self, scope: Scope) -> Details | None:
        """Return the path's current document, if it can be read and is small."""
        answer = _Answer(None, keeps_body=True)
        asked = {**scope, "method": "GET", "state": {}}
        await self._app(asked, _receive_nothing, answer.send)
        return answer.read_detail() if answer.status == 200 else None


async def _receive_nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def make_sign_in_recorder(log: AuditLog) -> Callable[[Identity, str], None]:
    """Return the function that access control calls after each sign-in."""

    def record(identity: Identity, peer: str) -> None:
        audit_event = AuditEvent(
            AuditKind.SIGN_IN, identity.user, identity.role.value, peer, route="sign in", status=200
        )
        log.record(audit_event, time.time_ns() // 1_000_000)

    return record


class _Answer:
    """What a route answers, on its way to the client; a bounded piece of it is kept."""

    def __init__(self, send: Send | None, *, keeps_body: bool) -> None:
        self._send = send
        self._keeps_body = keeps_body
        self._body = bytearray()
        self._is_plain_json = False
        self.status = 0

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            kind = headers.get(b"content-type", b"")
            self._is_plain_json = b"json" in kind and b"content-encoding" not in headers
        elif self._keeps_body and len(self._body) <= DETAIL_BYTES:
            self._body += message.get("body", b"")[: DETAIL_BYTES + 1]
        if self._send is not None:
            await self._send(message)

    def read_detail(self) -> Details | None:
        """Return the document's values without secrets; None where there is none."""
        if not self._body or not self._is_plain_json:
            return None
        if len(self._body) > DETAIL_BYTES:
            return {"bytes": f"more than {DETAIL_BYTES}"}
        try:
            return flatten(hide_secrets(msgspec.json.decode(bytes(self._body))))
        except msgspec.DecodeError:
            return None


def hide_secrets(document: Any) -> Any:
    """Return the document without whatever could be used to sign in."""
    if isinstance(document, dict):
        return {
            key: "…" if _is_secret(key, value) else hide_secrets(value)
            for key, value in document.items()
        }
    return [hide_secrets(one) for one in document] if isinstance(document, list) else document


def flatten(document: Any) -> Details:
    """Return every value of a document under its path: ``override.0.partition``."""
    return dict(_walk(document, ""))


def _walk(document: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(document, dict | list) or not document:
        # An empty list or object is a fact too.
        yield path, str(document) if isinstance(document, dict | list) else document
        return
    parts = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in parts:
        yield from _walk(value, f"{path}.{key}" if path else str(key))


def _is_secret(key: str, value: object) -> bool:
    return isinstance(value, str) and any(word in key.lower() for word in _SECRET_WORDS)


def _describe(
    scope: Scope, answer: _Answer, before: Details | None, after: Details | None
) -> AuditEvent | None:
    route = scope.get("route")
    identity: Identity | None = scope.get("identity")
    if answer.status in REFUSALS:
        kind = AuditKind.REFUSAL
    elif _is_change(scope["method"], route, identity) and not 400 <= answer.status < 500:
        kind = AuditKind.CHANGE
    else:
        return None
    client = scope.get("client")
    template = route.path if isinstance(route, TypedRoute) else ""
    changed = kind is AuditKind.CHANGE
    return AuditEvent(
        kind,
        user=identity.user if identity else "",
        role=identity.role.value if identity else "",
        peer=client[0] if client else "",
        route=f"{scope['method']} {template}".strip(),
        object=shown(scope["path"].removeprefix(_PREFIX)),
        status=answer.status or 500,
        before=before if changed else None,
        after=(after or answer.read_detail()) if changed else None,
    )


def _describe_refused_socket(scope: Scope) -> AuditEvent:
    identity: Identity | None = scope.get("identity")
    client = scope.get("client")
    return AuditEvent(
        AuditKind.REFUSAL,
        user=identity.user if identity else "",
        role=identity.role.value if identity else "",
        peer=client[0] if client else "",
        route="live connection",
        object=shown(scope["path"].removeprefix(_PREFIX)),
        status=401 if identity is None else 403,
    )


def _is_change(method: str, route: object, identity: Identity | None) -> bool:
    """Return whether an operation changes something in somebody's name.

    What is open to all changes nothing for whoever is not signed in: else anybody could fill the
    record, which has no limit for changes, by asking for codes to sign in with.
    """
    if not is_recorded(method, route):
        return False
    is_public = isinstance(route, TypedRoute) and route.permission is None
    return not is_public or (identity is not None and identity.user != "")


def is_recorded(method: str, route: object) -> bool:
    """Return whether an operation changes something that the record is about.

    A POST that only needs the right to read is a question, and progress is data that training
    scripts send all day.
    """
    if method in SAFE_METHODS or not isinstance(route, TypedRoute):
        return False
    if route.operation_id in _OF_THEIR_OWN:
        return False
    return route.permission not in (Permission.READ, Permission.WRITE_PROGRESS)

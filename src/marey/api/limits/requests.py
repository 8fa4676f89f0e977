"""Requests in hand: so many per peer and user, expensive ones in line, none from foreign pages."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from marey.api.limits.connections import CutReason, WaitingConnections, is_loopback
from marey.api.problems import problem

# Of one user, or of one machine where nobody signs in.
REQUESTS_PER_USER = 64
# Loopback is everybody on this machine, a proxy everybody behind it.
REQUESTS_IN_ALL = 256
EXPENSIVE_PER_USER = 4
EXPENSIVE_IN_LINE = 64
RESERVED_PATHS = ("/healthz",)

# Questions that read days of history or whole runs: seconds of computing for one address.
EXPENSIVE = re.compile(
    r"/api/v1/(?:rules-backtest|rules-test|rules-preview|comparison|waste|digest"
    r"|queue-(?:ask|fairness|whatif|performance|runtime)"
    r"|diagnosis(?:/.*)?|callgraphs/(?:ensemble|sankey|tree|map|scaling|difference|query)"
    r"|traces/[^/]+/(?:replay|difference|flow|what-if(?:/timeline)?))"
)
# A change is none of these, however long it takes; some questions come with a body.
_ASKING = ("GET", "HEAD", "POST")
# Where a browser says the request comes from; programs do not say.
_OWN_PAGES = ("same-origin", "none")


def is_expensive(scope: Scope) -> bool:
    """Return whether a request is a question that takes seconds to answer."""
    return scope["method"] in _ASKING and bool(EXPENSIVE.fullmatch(scope["path"]))


def is_foreign_page(headers: Headers) -> bool:
    """Return whether a page of another origin asks: with an image or a link, which carry no Origin.

    Every browser of today says so in a header that pages cannot set.
    """
    return headers.get("sec-fetch-site", "none") not in _OWN_PAGES


def get_requester(scope: Scope) -> str:
    """Return whose requests are counted together: the user's, or else the peer's."""
    identity = scope.get("identity")
    user: str = identity.user if identity is not None else ""
    if user:
        return f"user {user}"
    peer = (scope.get("client") or ("",))[0]
    return "" if is_loopback(peer) else f"peer {peer}"


@dataclass(slots=True)
class RunningRequests:
    """How many requests each has in hand, and their line of expensive ones."""

    running: Counter[str] = field(default_factory=Counter)
    in_line: Counter[str] = field(default_factory=Counter)
    _places: dict[str, asyncio.Semaphore] = field(default_factory=dict)

    def has_room(self, who: str) -> bool:
        """Return whether one more request of theirs is taken."""
        limit = REQUESTS_PER_USER if who else REQUESTS_IN_ALL
        return self.running[who] < limit and self.running.total() < REQUESTS_IN_ALL

    @asynccontextmanager
    async def hold(self, who: str) -> AsyncIterator[None]:
        """Count a request while it is answered."""
        self.running[who] += 1
        try:
            yield
        finally:
            self.running[who] -= 1
            if not self.running[who]:
                del self.running[who]

    @asynccontextmanager
    async def queue(self, who: str) -> AsyncIterator[None]:
        """Wait for a place among one's expensive requests, and hold it."""
        place = self._places.setdefault(who, asyncio.Semaphore(EXPENSIVE_PER_USER))
        self.in_line[who] += 1
        try:
            async with place:
                yield
        finally:
            self.in_line[who] -= 1
            if not self.in_line[who]:
                del self.in_line[who], self._places[who]


class RequestLimits:
    """ASGI middleware behind the guard: refuses what is too much of one, and leaves a reserve."""

    def __init__(self, app: ASGIApp, connections: WaitingConnections) -> None:
        self._app = app
        self._connections = connections
        self._book = RunningRequests()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, now or in line, or refuse."""
        if scope["type"] != "http" or scope["path"] in RESERVED_PATHS:
            await self._app(scope, receive, send)
            return
        who = get_requester(scope)
        expensive = is_expensive(scope)
        refusal = self._find_refusal(scope, who, expensive=expensive)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        async with self._book.hold(who):
            if expensive:
                async with self._book.queue(who):
                    await self._app(scope, receive, send)
            else:
                await self._app(scope, receive, send)

    def _find_refusal(self, scope: Scope, who: str, *, expensive: bool) -> Response | None:
        if expensive and is_foreign_page(Headers(scope=scope)):
            detail = "This question takes long to answer; only Marey's own pages may ask it."
            return problem(403, "Forbidden", detail, code="foreign_page")
        if self._book.has_room(who) and (
            not expensive or self._book.in_line[who] < EXPENSIVE_IN_LINE
        ):
            return None
        self._connections.cuts[CutReason.TOO_MANY_REQUESTS] += 1
        detail = f"{REQUESTS_PER_USER} requests are in hand already; ask again in a moment."
        return problem(429, "Too many requests", detail, headers={"Retry-After": "2"})

"""How the server is reached: by itself, or through a reverse proxy and below a path of its."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marey.api.limits.connections import is_loopback
from marey.api.problems import problem

# What a proxy says of the client it speaks for; from anybody else it is not heard.
FORWARDED = (b"x-forwarded-", b"forwarded", b"x-real-ip")
OPEN_PATHS = ("/healthz",)


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """Which peers are proxies, below which path they show the server, and whether it has TLS."""

    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    prefix: str = ""
    secure: bool = False

    def is_proxy(self, peer: str) -> bool:
        """Return whether this peer is believed when it speaks for others."""
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self.proxies)


def make_proxy_rules(
    proxies: Sequence[str] = (), prefix: str = "", *, certificate: str = ""
) -> ProxyRules:
    """Return the front that the settings of a server describe."""
    return ProxyRules(tuple(ip_network(one) for one in proxies), prefix, bool(certificate))


class ProxyMiddleware:
    """ASGI middleware, the outermost: who is really asking, by which scheme, for which path."""

    def __init__(self, app: ASGIApp, front: ProxyRules) -> None:
        self._app = app
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on the request as if there were no proxy."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        peer = (scope.get("client") or ("",))[0]
        # Who connected, whomever it speaks for: a proxy that signs people in is known by it.
        scope = {**scope, "direct_peer": peer}
        if self._front.is_proxy(peer):
            scope = _apply_forwarded_headers(scope, self._front)
        elif self._is_bare(scope, peer):
            await _refuse(scope, receive, send)
            return
        else:
            headers = [h for h in scope["headers"] if not h[0].startswith(FORWARDED)]
            scope = {**scope, "headers": headers}
        await self._answer_below_prefix(scope, receive, send)

    def _is_bare(self, scope: Scope, peer: str) -> bool:
        """Return whether somebody comes over the network past the proxy, without TLS."""
        front = self._front
        exposed = bool(front.proxies) and not front.secure and not is_loopback(peer)
        return exposed and scope["path"] not in OPEN_PATHS

    async def _answer_below_prefix(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = self._front.prefix
        if not prefix:
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if path == prefix and scope["type"] == "http":
            query = scope["query_string"].decode("latin-1")
            target = f"{prefix}/" + (f"?{query}" if query else "")
            await RedirectResponse(target, 308)(scope, receive, send)
            return
        if path.startswith(f"{prefix}/"):
            inner = path[len(prefix) :]
            scope = {**scope, "path": inner, "raw_path": inner.encode("utf-8", "replace")}
        await self._app(scope, receive, _prefix_locations(send, prefix))


def _apply_forwarded_headers(scope: Scope, front: ProxyRules) -> Scope:
    headers = Headers(scope=scope)
    changed = dict(scope)
    hops = [hop.strip() for hop in headers.get("x-forwarded-for", "").split(",") if hop.strip()]
    # Nearest last: the first one from the end that is no proxy of ours is the client.
    client = next((hop for hop in reversed(hops) if not front.is_proxy(hop)), None)
    if client is not None:
        changed["client"] = (client[:64], 0)
    if headers.get("x-forwarded-proto", "").strip() == "https":
        changed["scheme"] = "wss" if scope["type"] == "websocket" else "https"
    return changed


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        return
    detail = "This server is reached through its proxy only (server.behind_proxy)."
    await problem(403, "Forbidden", detail)(scope, receive, send)


def _prefix_locations(send: Send, prefix: str) -> Send:
    """Return the same channel, with redirects inside this server below its path."""

    async def give(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            target = headers.get("location", "")
            inside = target.startswith("/") and not target.startswith("//")
            if inside and target != prefix and not target.startswith(f"{prefix}/"):
                headers["location"] = prefix + target
        await send(message)

    return give

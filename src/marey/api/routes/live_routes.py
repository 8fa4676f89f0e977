"""The live connection: a snapshot, then ticks; nothing is ever queued for a client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from marey.api.access.permissions import KEY, refuse
from marey.api.limits.connections import CutReason
from marey.api.limits.requests import get_requester
from marey.api.parameters import service_of
from marey.app.access.access_control import AccessControl
from marey.app.queries.selection import METRICS_LIMIT
from marey.live.feed import FrameFeed
from marey.live.frames import Frame
from marey.live.quantise import live_scales
from marey.live.wire_format import message
from marey.model.access.identity import Identity, Permission
from marey.model.errors import InvalidInput, shown, unknown
from marey.model.names import DEFAULT_CLUSTER, NAME_LIMIT

router = APIRouter()

PATH = "/api/v1/live"
# What connecting and each message ask for; a message that is not listed is refused.
CONNECTING = Permission.READ
MESSAGES = {"subscribe": Permission.READ}

CLIENTS_LIMIT = 256
# Windows of one user, or of one other machine where nobody signs in.
CLIENTS_PER_USER = 16
# A client that has not taken a message for this long will not; its memory is worth more.
SEND_SECONDS = 30.0
# One that never says what it wants gets units and workloads alone.
FIRST_WORD_SECONDS = 5.0
_TRY_LATER = 1013
_NOT_PERMITTED = 1008


# By which connections grow old.
read_now_s = time.monotonic


@dataclass(slots=True)
class Client:
    """What one client wants, and what it has been sent."""

    cluster: str = DEFAULT_CLUSTER
    metrics: tuple[str, ...] = ()
    sent_cluster: str | None = None
    sent_seq: int = 0
    known: frozenset[str] = frozenset()
    problem: str = ""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class LiveClients:
    """How many there are, for the limit and for /metrics."""

    connected: int = 0
    served: int = 0
    bytes_sent: int = 0
    dropped: int = 0
    by_user: Counter[str] = field(default_factory=Counter)

    def has_place(self, who: str) -> bool:
        """Return whether one more is served; who is known by no name shares this machine."""
        if self.connected >= CLIENTS_LIMIT:
            return False
        return not who or self.by_user[who] < CLIENTS_PER_USER

    @contextlib.contextmanager
    def hold_place(self, who: str) -> Iterator[None]:
        """Count a client while it is served."""
        self.connected += 1
        self.served += 1
        self.by_user[who] += 1
        try:
            yield
        finally:
            self.connected -= 1
            self.by_user[who] -= 1
            if not self.by_user[who]:
                del self.by_user[who]


def parse_subscription(text: str) -> tuple[str, tuple[str, ...]]:
    """Cluster and metrics of a client's message; an error says what is allowed."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"The message is not JSON: {error}.") from None
    if not isinstance(document, dict) or set(document) - {"subscribe", "cluster"}:
        raise InvalidInput('Send {"subscribe": ["util", …], "cluster": "default"}.')
    metrics, cluster = document.get("subscribe", []), document.get("cluster", DEFAULT_CLUSTER)
    if not isinstance(cluster, str) or not 0 < len(cluster) <= NAME_LIMIT:
        raise InvalidInput(f"cluster is {shown(cluster)}; allowed: a name.")
    if not isinstance(metrics, list) or len(metrics) > METRICS_LIMIT:
        raise InvalidInput(f"subscribe takes a list of up to {METRICS_LIMIT} metrics.")
    for name in metrics:
        if not isinstance(name, str) or name not in live_scales():
            raise InvalidInput(unknown("live metric", name, live_scales()))
    return cluster, tuple(dict.fromkeys(metrics))


def describe_socket() -> dict[str, Any]:
    """Return the permissions of the live connection, for the OpenAPI document."""
    messages = {name: {KEY: permission.value} for name, permission in MESSAGES.items()}
    return {PATH: {KEY: CONNECTING.value, "messages": messages}}


@router.websocket(PATH)
async def live(socket: WebSocket) -> None:
    """Serve one client until it goes."""
    state = socket.app.state
    clients: LiveClients = state.clients
    if refuse(socket.scope, CONNECTING) is not None:
        await socket.close(_NOT_PERMITTED)
        return
    who = get_requester(socket.scope)
    if not clients.has_place(who):
        state.connections.cuts[CutReason.LIVE_NO_PLACE] += 1
        await socket.close(_TRY_LATER)
        return
    with clients.hold_place(who):
        await socket.accept()
        try:
            await _serve(socket, service_of(socket).feed, clients)
        except TimeoutError:
            # Closing politely would wait for the same client; the transport is cut (see serving).
            clients.dropped += 1
            state.connections.cuts[CutReason.LIVE_STALLED] += 1
        except (WebSocketDisconnect, RuntimeError):
            pass


def check_message(socket: WebSocket, name: str) -> None:
    """Refuse a message that whoever is connected may not send."""
    identity: Identity | None = socket.scope.get("identity")
    if identity is None or not identity.may(MESSAGES[name]):
        raise InvalidInput(f"'{name}' needs the permission '{MESSAGES[name]}'.")


async def _serve(socket: WebSocket, feed: FrameFeed, clients: LiveClients) -> None:
    client = Client()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(client.news.set)

    feed.listen(wake)
    listener = asyncio.create_task(_listen(socket, feed, client))
    sender = asyncio.create_task(_send_all(socket, feed, client, clients))
    try:
        done, _ = await asyncio.wait({listener, sender}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        feed.unlisten(wake)
        feed.unsubscribe(client.cluster, client.metrics)
        for task in (listener, sender):
            task.cancel()
        await asyncio.gather(listener, sender, return_exceptions=True)


async def _listen(socket: WebSocket, feed: FrameFeed, client: Client) -> None:
    while True:
        event = await socket.receive()
        if event["type"] == "websocket.disconnect":
            return
        try:
            check_message(socket, "subscribe")
            cluster, metrics = parse_subscription(event.get("text") or "")
        except InvalidInput as error:
            client.problem = str(error)
        else:
            feed.subscribe(cluster, metrics)
            feed.unsubscribe(client.cluster, client.metrics)
            client.cluster, client.metrics = cluster, metrics
        client.heard.set()
        client.news.set()


async def _send_all(
    socket: WebSocket, feed: FrameFeed, client: Client, clients: LiveClients
) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.heard.wait(), FIRST_WORD_SECONDS)
    since_s = read_now_s()
    while socket.client_state is WebSocketState.CONNECTED:
        client.news.clear()
        if not _is_still_signed_in(socket, since_s):
            await socket.close(_NOT_PERMITTED)
            return
        for data in await asyncio.to_thread(next_messages, feed, client, clients):
            await asyncio.wait_for(socket.send_bytes(data), SEND_SECONDS)
            clients.bytes_sent += len(data)
        await client.news.wait()


def _is_still_signed_in(socket: WebSocket, since_s: float) -> bool:
    """Return whether the session or token by which somebody connected still counts.

    A proxy that signs people in is asked again after the life of a session.
    """
    control: AccessControl = socket.app.state.access
    if control.mode == "proxy" and read_now_s() - since_s >= control.settings.session_ms / 1000:
        return False
    return control.is_alive(socket.scope.get("session"), socket.scope.get("token"))


def next_messages(feed: FrameFeed, client: Client, clients: LiveClients) -> list[bytes]:
    """Return the messages due to the client; encoding is shared, so this mostly joins bytes."""
    messages = []
    if client.problem:
        messages.append(message({"type": "error", "detail": client.problem}, ()))
        client.problem = ""
    newest = feed.newest.get(client.cluster)
    if newest is None:
        return messages
    frames = (
        feed.since(client.cluster, client.sent_seq)
        if client.sent_cluster == client.cluster
        else None
    )
    metrics = client.metrics
    if frames is None:
        messages.append(newest.snapshot(metrics))
        _note_sent(client, newest, metrics)
        return messages
    for frame in frames:
        messages.append(frame.tick(metrics, client.known))
        _note_sent(client, frame, metrics)
        newest = frame
    new = [name for name in metrics if name not in client.known and name in newest.columns]
    if new and newest.seq == client.sent_seq:
        messages.append(newest.column_message(new))
        client.known |= set(new)
    # A column that is no longer wanted is no longer kept up to date at the client.
    client.known &= set(metrics)
    return messages


def _note_sent(client: Client, frame: Frame, metrics: tuple[str, ...]) -> None:
    client.sent_cluster, client.sent_seq = frame.cluster, frame.seq
    client.known = frozenset(name for name in metrics if name in frame.columns)

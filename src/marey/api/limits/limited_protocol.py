"""HTTP connections with a deadline: a bounded head, a body that arrives, an answer that is read."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from marey.api.limits.connections import CutReason, WaitingConnections

HEAD_LIMIT = 32 * 1024
HEAD_SECONDS = 10.0
# A body is whole, or brings at least this much, in every stretch of this length.
BODY_SECONDS = 10.0
BODY_BYTES = 64 * 1024
# A client that takes nothing of its answer for this long will not.
READ_SECONDS = 30.0
_GRACE_SECONDS = 5

_TOO_LARGE = b"The head of a request may have 32 KB.\n"
_TOO_SLOW = b"The request did not arrive in time.\n"


class LiveProtocol(WebSocketsSansIOProtocol):
    """Cuts a connection whose client does not take even the goodbye."""

    async def run_asgi(self) -> None:
        """Serve the client, then close; by force if its buffer does not empty."""
        await super().run_asgi()
        self.loop.call_later(_GRACE_SECONDS, self.transport.abort)


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which by itself waits for a request forever and takes any head."""

    book = WaitingConnections()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._is_handed_over = False
        self._is_nobodys = False
        self._head_bytes = 0
        self._body_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    # A connection's life

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, but not for long."""
        super().connection_made(transport)
        if self.client is None and not _is_local_socket(transport):
            # It was reset before it was accepted. Whoever did that is gone, but what they sent is
            # here, and would pass for somebody who comes over a Unix socket.
            self._is_nobodys = True
            transport.abort()
            return
        self._wait()
        self._set_deadline(HEAD_SECONDS, self._end_slow_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._drop_deadline()
        self._drop_read_deadline()
        self.book.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, of a head never more than its limit."""
        if self._is_nobodys:
            return
        if not self._in_head:
            self._body_bytes += len(data)
            super().data_received(data)
            return
        if self._deadline is None:
            self._set_deadline(HEAD_SECONDS, self._end_slow_head)
        room = HEAD_LIMIT - self._head_bytes
        self._head_bytes += min(len(data), room)
        super().data_received(data[:room])
        if len(data) <= room or self.transport.is_closing() or self._is_handed_over:
            return
        if self._in_head:
            self._refuse(431, _TOO_LARGE, CutReason.LARGE_HEAD)
        else:
            self.data_received(data[room:])

    # What the parser finds

    def on_message_begin(self) -> None:
        """Start the time that a head may take."""
        super().on_message_begin()
        self._in_head = True
        if self._deadline is None:
            self._set_deadline(HEAD_SECONDS, self._end_slow_head)

    def on_headers_complete(self) -> None:
        """Start the answer, or refuse a head that is too large."""
        self._in_head, self._head_bytes, self._body_bytes = False, 0, 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_LIMIT:
            self._refuse(431, _TOO_LARGE, CutReason.LARGE_HEAD)
            return
        self._set_deadline(BODY_SECONDS, self._check_body)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body, unless the request was refused."""
        if self.cycle is not None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is whole: from here on the server is the one that is waited for."""
        self._drop_deadline()
        self._in_head, self._head_bytes = True, 0
        self.book.leave(self)
        if self.cycle is not None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request; an answer may be given before its request is whole."""
        super().on_response_complete()
        if not self.transport.is_closing() and not self.pipeline:
            self._wait()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the live protocol, which has limits of its own."""
        self._is_handed_over = True
        self._drop_deadline()
        self.book.leave(self)
        super().handle_websocket_upgrade()

    # What the client takes

    def pause_writing(self) -> None:
        """Give a client that takes less than it is given some time to catch up."""
        super().pause_writing()
        self._drop_read_deadline()
        self._read_deadline = self.loop.call_later(READ_SECONDS, self._end_slow_reader)

    def resume_writing(self) -> None:
        """Note that the client takes data again."""
        super().resume_writing()
        self._drop_read_deadline()

    # Ends

    def _wait(self) -> None:
        self.book.wait(self, self._peer, self._abort)

    def _abort(self) -> None:
        self._drop_deadline()
        self.transport.abort()

    def _end_slow_head(self) -> None:
        self._refuse(408, _TOO_SLOW, CutReason.SLOW_HEAD)

    def _check_body(self) -> None:
        arriving = self._body_bytes >= BODY_BYTES or self.flow.read_paused
        self._body_bytes = 0
        if arriving:
            self._set_deadline(BODY_SECONDS, self._check_body)
            return
        self.book.cuts[CutReason.SLOW_BODY] += 1
        self._abort()

    def _end_slow_reader(self) -> None:
        self.book.cuts[CutReason.SLOW_READER] += 1
        self._abort()

    def _refuse(self, status: int, text: bytes, cut: CutReason) -> None:
        self._drop_deadline()
        if self.transport.is_closing():
            return
        self.book.cuts[cut] += 1
        if self.cycle is not None and not self.cycle.response_complete:
            # Another answer of this connection is under way; ours cannot stand inside it.
            self.transport.abort()
            return
        head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: "
        length = str(len(text)).encode()
        self.transport.write(STATUS_LINE[status] + head + length + b"\r\n\r\n" + text)
        self.transport.close()
        # Closing waits for the client to take the answer; it has a moment to.
        self.loop.call_later(_GRACE_SECONDS, self.transport.abort)

    def _set_deadline(self, seconds: float, end: Any) -> None:
        self._drop_deadline()
        self._deadline = self.loop.call_later(seconds, end)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop_read_deadline(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None


def _is_local_socket(transport: asyncio.Transport) -> bool:
    """Return whether a connection comes over a Unix socket, where the other side has no address."""
    connection = transport.get_extra_info("socket")
    return connection is not None and connection.family == socket.AF_UNIX


def make_limited_protocol(book: WaitingConnections) -> type[LimitedProtocol]:
    """Return the protocol of one server, whose connections are counted in this book."""
    return type("OneServersProtocol", (LimitedProtocol,), {"book": book})

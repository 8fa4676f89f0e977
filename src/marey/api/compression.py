"""Answers travel compressed where the client takes it: JSON, text and the files of the web app."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Smaller answers fit into one packet anyway.
LEAST_BYTES = 1_200
# Larger ones are compressed beside the loop that answers everybody.
LARGE_BYTES = 64_000
LEVEL = 4
KINDS = ("application/json", "application/problem+json", "text/", "image/svg+xml")


def takes_gzip(headers: Headers) -> bool:
    """Return whether the client understands gzip."""
    entries = headers.get("accept-encoding", "")[:200].split(",")
    names = {entry.partition(";")[0].strip(): entry.partition("q=")[2].strip() for entry in entries}
    return "gzip" in names and names["gzip"] not in ("0", "0.0")


def compress(content: bytes, level: int = LEVEL) -> bytes:
    """Return the bytes as gzip, the same ones every time."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


class Compression:
    """Compresses whole answers of a kind that gains by it; streams pass as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, compressed where that is wanted and worth it."""
        if scope["type"] != "http" or not takes_gzip(Headers(scope=scope)):
            await self.app(scope, receive, send)
            return
        held: list[Message] = []

        async def pack(message: Message) -> None:
            if message["type"] == "http.response.start":
                held.append(message)
                return
            if not held or message["type"] != "http.response.body":
                await send(message)
                return
            start = held.pop()
            if is_worth_it(start, message):
                await _compress_answer(start, message)
            await send(start)
            await send(message)

        await self.app(scope, receive, pack)


def is_worth_it(start: dict[str, Any] | Message, body: dict[str, Any] | Message) -> bool:
    """Return whether an answer is whole, large enough, of a kind that shrinks, and not packed."""
    headers = Headers(raw=start["headers"])
    if body.get("more_body") or len(body.get("body", b"")) < LEAST_BYTES:
        return False
    return "content-encoding" not in headers and headers.get("content-type", "").startswith(KINDS)


async def _compress_answer(start: Message, message: Message) -> None:
    content = message["body"]
    packed = (
        await asyncio.to_thread(compress, content)
        if len(content) > LARGE_BYTES
        else compress(content)
    )
    headers = MutableHeaders(raw=start["headers"])
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(packed))
    headers.add_vary_header("Accept-Encoding")
    start["headers"] = headers.raw
    message["body"] = packed

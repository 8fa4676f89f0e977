"""Answers travel compressed where the client takes it: JSON, text and the files of the web app."""

from __future__ import annotations

import asyncio
import zlib
from enum import StrEnum
from typing import Any

import zstandard
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Smaller answers fit into one packet anyway.
LEAST_BYTES = 1_200
# Larger ones are compressed beside the loop that answers everybody.
LARGE_BYTES = 64_000
KINDS = ("application/json", "application/problem+json", "text/", "image/svg+xml")


class Encoding(StrEnum):
    """How an answer may travel, the best first."""

    ZSTD = "zstd"
    GZIP = "gzip"


# Of a file that is packed once and kept.
BEST_LEVELS = {Encoding.ZSTD: 19, Encoding.GZIP: 9}
LEVELS = {Encoding.ZSTD: 3, Encoding.GZIP: 4}


def choose_encoding(headers: Headers) -> Encoding | None:
    """Return the best encoding that the client understands."""
    entries = headers.get("accept-encoding", "")[:200].split(",")
    names = {entry.partition(";")[0].strip(): entry.partition("q=")[2].strip() for entry in entries}
    refused = ("0", "0.0", "0.00", "0.000")
    return next((one for one in Encoding if one in names and names[one] not in refused), None)


def compress(content: bytes, encoding: Encoding, level: int) -> bytes:
    """Return the bytes compressed, the same ones every time."""
    if encoding is Encoding.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(content)
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


class Compression:
    """Compresses whole answers of a kind that gains by it; streams pass as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, compressed where that is wanted and worth it."""
        encoding = choose_encoding(Headers(scope=scope)) if scope["type"] == "http" else None
        if encoding is None:
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
                await _compress_answer(start, message, encoding)
            await send(start)
            await send(message)

        await self.app(scope, receive, pack)


def is_worth_it(start: dict[str, Any] | Message, body: dict[str, Any] | Message) -> bool:
    """Return whether an answer is whole, large enough, of a kind that shrinks, and not packed."""
    headers = Headers(raw=start["headers"])
    if body.get("more_body") or len(body.get("body", b"")) < LEAST_BYTES:
        return False
    return "content-encoding" not in headers and headers.get("content-type", "").startswith(KINDS)


async def _compress_answer(start: Message, message: Message, encoding: Encoding) -> None:
    content, level = message["body"], LEVELS[encoding]
    packed = (
        await asyncio.to_thread(compress, content, encoding, level)
        if len(content) > LARGE_BYTES
        else compress(content, encoding, level)
    )
    headers = MutableHeaders(raw=start["headers"])
    headers["Content-Encoding"] = encoding
    headers["Content-Length"] = str(len(packed))
    headers.add_vary_header("Accept-Encoding")
    start["headers"] = headers.raw
    message["body"] = packed

"""Many small HTTP answers at once, each with a time limit and a size limit, over kept connections.

A general client costs more than reading the exporter's text does; this one knows only GET.
"""

from __future__ import annotations

import asyncio
import importlib
import resource
import ssl
import zlib
from collections.abc import Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import httptools

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.system.failure_codes import get_failure_code, get_status_code

T = TypeVar("T")

BODY_LIMIT = 16 << 20
HEADERS_LIMIT = 100
# Files that a server has open besides its exporters' connections: store, clients, libraries.
FILES_BESIDE = 1_024
# A kept connection that the other side let go of: nothing of an answer came.
NOTHING_CAME = "connection_ended"


# Host, port and whether it is https: what a connection is kept for.
Place = tuple[str, int, bool]


def make_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop for many connections.

    Uvloop's where there is one, for it costs less CPU.
    """
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    return cast(asyncio.AbstractEventLoop, uvloop.new_event_loop())


def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end and return what it returns.

    Also where the caller's thread has a loop that runs, as in a notebook.
    """
    if not _is_loop_running_here():
        return loop.run_until_complete(work)
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(loop.run_until_complete, work).result()


def _is_loop_running_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Address:
    """Where to GET: the parts of an http or https URL."""

    url: str
    host: str
    port: int
    path: str
    secure: bool

    @property
    def place(self) -> Place:
        """What a connection is kept for."""
        return self.host, self.port, self.secure


def parse_address(text: str, *, port: int = 9400, path: str = "/metrics") -> Address:
    """Parse ``node3``, ``node3:9400`` or a whole URL.

    What is missing is taken from the defaults.
    """
    url = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(url)
        host, given = parts.hostname, parts.port
    except ValueError:
        host = given = None
    if not host or parts.scheme not in ("http", "https") or not url.isascii() or " " in url:
        raise InvalidInput(
            f"'{shown(text)}' is not an endpoint; allowed: host, host:port, or an http(s) URL."
        )
    whole = "://" in text
    if given is None:
        given = (443 if parts.scheme == "https" else 80) if whole else port
    target = parts.path or ("/" if whole else path)
    if parts.query:
        target += f"?{parts.query}"
    return Address(url, host, given, target, parts.scheme == "https")


class _Connection(asyncio.Protocol):
    """One connection: a request at a time, its answer checked while it comes in."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self.alive = False
        # The last answer's Date header, as it was written.
        self.date = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but their class.
        self._transport, self.alive = cast(asyncio.Transport, transport), True

    def ask(self, request: bytes, answer: asyncio.Future[bytes]) -> None:
        """Send a request; the future gets the body, or ``Unavailable``."""
        self._answer = answer
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._size = self._headers = 0
        self._length: int | None = None
        self._packed = self._started = False
        assert self._transport is not None
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            # More than was announced: nothing on this connection can be believed any more.
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except Unavailable as error:
            self.give_up(str(error), error.code)
        except httptools.HttpParserError as error:
            cause = error.__context__
            text = str(cause) if isinstance(cause, Unavailable) else f"is no HTTP: {error}"
            self.give_up(text)

    # What httptools calls

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > HEADERS_LIMIT:
            raise Unavailable(f"sends more than {HEADERS_LIMIT} headers")
        key = name.lower()
        if key == b"content-length":
            self._length = int(value)
            if self._length > self._limit:
                raise Unavailable(f"announces {self._length} bytes; allowed: {self._limit}")
        elif key == b"date":
            self.date = value
        elif key == b"content-encoding":
            self._packed = value.strip().lower() in (b"gzip", b"deflate")

    def on_headers_complete(self) -> None:
        self._started = True

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            raise Unavailable(f"sends more than {self._limit} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._answer is None or self._answer.done():
            return
        status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.close()
        if status != 200:
            said = shown(b"".join(self._body)[:200].decode("utf-8", "replace").strip())
            text = f"answers with status {status}{': ' + said if said else ''}"
            self.give_up(text, get_status_code(status))
            return
        try:
            body = b"".join(self._body)
            self._answer.set_result(unpack_body(body, self._limit) if self._packed else body)
        except Unavailable as error:
            self.give_up(str(error), error.code)

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False
        if self._answer is None or self._answer.done():
            return
        if self._started and self._length is None and exc is None:
            # Neither a length nor chunks: the end of the connection is the end of the answer.
            self.on_message_complete()
            return
        reported = f" of {self._length} announced" if self._length is not None else ""
        code = "" if self._size else NOTHING_CAME
        self.give_up(f"ended the connection after {self._size} bytes{reported}", code)

    def give_up(self, text: str, code: str = "") -> None:
        """End the request that is under way as ``Unavailable``, and the connection with it."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unavailable(text, code=code))
        self.close()

    def close(self) -> None:
        """Drop the connection at once."""
        self.alive = False
        if self._transport is not None:
            self._transport.abort()


def unpack_body(body: bytes, limit: int) -> bytes:
    """Return a gzip body, never unpacked beyond the limit."""
    try:
        data = zlib.decompressobj(47).decompress(body, limit + 1)
    except zlib.error as error:
        raise Unavailable(f"sends what is not gzip: {error}") from None
    if len(data) > limit:
        raise Unavailable(f"sends more than {limit} bytes, packed")
    return data


def count_connections_to_keep(wanted: int) -> int:
    """Return how many connections may stay open: half of what may be opened, raised if it can.

    The soft limit is often 1,024 for no other reason than old programs; up to the hard one it is
    the process's own to raise.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError):
            pass
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft // 2)


@dataclass(frozen=True, slots=True)
class FetchRules:
    """How patient and how busy a fetcher is."""

    timeout_s: float = 5.0
    at_once: int = 256
    kept: int = 512
    limit: int = BODY_LIMIT


class Fetcher:
    """GETs over kept connections, a bounded number at once; used from one event loop."""

    def __init__(self, rules: FetchRules, headers: Mapping[str, str] | None = None) -> None:
        self._rules = rules
        self._most_kept = rules.kept
        self._too_late = f"no answer within {rules.timeout_s:g} s"
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._kept: dict[Place, _Connection] = {}
        self._busy = asyncio.Semaphore(rules.at_once)
        self._tls: ssl.SSLContext | None = None

    async def fetch(self, address: Address) -> bytes:
        """Return the body of a 200; anything else is ``Unavailable`` with the reason."""
        return (await self.fetch_dated(address))[0]

    async def fetch_dated(self, address: Address) -> tuple[bytes, bytes]:
        """Return the body, and the server's Date header as it was written."""
        async with self._busy:
            until_s = asyncio.get_running_loop().time() + self._rules.timeout_s
            kept = self._kept.pop(address.place, None)
            if kept is not None and kept.alive:
                try:
                    return await self._ask(kept, address, until_s)
                except Unavailable as error:
                    # The other side may have let go of an idle connection: once more, on a new one.
                    if error.code != NOTHING_CAME:
                        raise
            connection = await self._connect(address, until_s)
            return await self._ask(connection, address, until_s)

    async def _connect(self, address: Address, until_s: float) -> _Connection:
        if address.secure and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            async with asyncio.timeout_at(until_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._rules.limit),
                    address.host,
                    address.port,
                    ssl=self._tls if address.secure else None,
                )
        except TimeoutError:
            raise Unavailable(self._too_late, code="timeout") from None
        except (OSError, UnicodeError) as error:
            text = f"cannot be reached: {shown(str(error))}"
            raise Unavailable(text, code=get_failure_code(error)) from None
        return connection

    async def _ask(
        self, connection: _Connection, address: Address, until_s: float
    ) -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        # One timer of the loop's own: a context manager for time limits costs several times more.
        timer = loop.call_at(until_s, connection.give_up, self._too_late, "timeout")
        connection.ask(self._request(address), answer)
        try:
            body = await answer
        except BaseException:
            connection.close()
            raise
        finally:
            timer.cancel()
        date = connection.date
        if connection.alive and len(self._kept) < self._most_kept:
            self._kept[address.place] = connection
        else:
            connection.close()
        return body, date

    def _request(self, address: Address) -> bytes:
        name = f"[{address.host}]" if ":" in address.host else address.host
        request = (
            f"GET {address.path} HTTP/1.1\r\nHost: {name}:{address.port}\r\n"
            f"User-Agent: marey\r\nAccept: text/plain, application/json\r\n"
            f"{self._headers}\r\n"
        )
        return request.encode("latin-1")

    def keep(self, most: int, places: Collection[Place]) -> None:
        """Keep connections to these places only, and no more than this many."""
        self._most_kept = most
        for place in [place for place in self._kept if place not in places]:
            self._kept.pop(place).close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()

"""GETs from an API server: lists, read whole and bounded, and watches, read line by line."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode, urlsplit

import msgspec

from marey.model.errors import Unavailable, shown
from marey.model.system.failure_codes import get_failure_code, get_status_code
from marey.sources.http_fetch import unpack_body
from marey.sources.kubernetes.access import Access
from marey.sources.kubernetes.kubernetes_json import Status

LIST_LIMIT = 256 << 20
LINE_LIMIT = 8 << 20
ERROR_LIMIT = 64 << 10
CLOCK_SLACK_MS = 5_000
# An idle connection that a firewall has forgotten is found out after about a minute.
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class KubernetesRefused(Unavailable):
    """The server answered, and its answer was no."""

    def __init__(self, http_status: int, text: str) -> None:
        super().__init__(text, code=get_status_code(http_status))
        self.http_status = http_status


class VersionGone(Unavailable):
    """The version asked for is too old: everything must be listed again."""


class ApiClient:
    """One connection at a time per caller; ``stop`` ends whatever is being read."""

    def __init__(self, access: Access, timeout_s: float = 30.0) -> None:
        self._access = access
        self._timeout_s = timeout_s
        parts = urlsplit(access.server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path.rstrip("/")
        self._tls = access.tls()
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._stopped = False
        # How far the server's clock is ahead of ours; 0 while the two agree.
        self.skew_ms = 0

    @property
    def server(self) -> str:
        """The server's address, for messages."""
        return self._access.server

    def get(self, path: str, asked: dict[str, str]) -> bytes:
        """Return the body of a 200, within the time limit and never beyond the size limit."""
        deadline = time.monotonic() + self._timeout_s
        with self._request(path, asked, {"Accept-Encoding": "gzip"}) as answer:
            pieces: list[bytes] = []
            size = 0
            while piece := answer.read1(1 << 20):
                size += len(piece)
                pieces.append(piece)
                if size > LIST_LIMIT:
                    raise Unavailable(f"{path}: sends more than {LIST_LIMIT} bytes")
                if time.monotonic() > deadline:
                    raise Unavailable(f"{path}: not finished within {self._timeout_s:g} s")
            if answer.length:
                raise Unavailable(f"{path}: ended {answer.length} bytes before it said it would")
            packed = answer.getheader("Content-Encoding", "") == "gzip"
        body = b"".join(pieces)
        return unpack_body(body, LIST_LIMIT) if packed else body

    @contextmanager
    def watch(self, path: str, asked: dict[str, str], silent_s: float) -> Iterator[Iterator[bytes]]:
        """Yield lines as they come; a server silent for longer than allowed is given up."""
        with self._request(path, asked, {}, silent_s) as answer:
            yield self._read_lines(path, answer)

    def _read_lines(self, path: str, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        while line := answer.readline(LINE_LIMIT + 1):
            if len(line) > LINE_LIMIT:
                raise Unavailable(f"{path}: sends a line of more than {LINE_LIMIT} bytes")
            yield line

    @contextmanager
    def _request(
        self,
        path: str,
        asked: dict[str, str],
        headers: dict[str, str],
        silent_s: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._open_connection()
        try:
            self._send(connection, path, asked, headers)
            answer = connection.getresponse()
            self._record_clock(answer.getheader("Date"))
            if answer.status != 200:
                raise _make_refusal(path, answer.status, answer.read(ERROR_LIMIT))
            if silent_s is not None and connection.sock is not None:
                connection.sock.settimeout(silent_s)
            yield answer
        except TimeoutError:
            waited = silent_s or self._timeout_s
            text = f"{path}: silent for more than {waited:g} s"
            raise Unavailable(text, code="timeout") from None
        except ssl.SSLCertVerificationError as error:
            raise Unavailable(
                f"{self.server}: its certificate is not trusted: {error.verify_message}",
                code=get_failure_code(error),
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            text = str(error) or type(error).__name__
            text = f"{self.server}{path}: {shown(text)}"
            raise Unavailable(text, code=get_failure_code(error)) from None
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _open_connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        with self._lock:
            if self._stopped:
                raise Unavailable("stopped")
            self._open.add(connection)
        return connection

    def _send(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        asked: dict[str, str],
        headers: dict[str, str],
    ) -> None:
        connection.connect()
        if self._stopped:
            # Stopped while it was being opened: nobody else will end it.
            raise Unavailable("stopped")
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        sent = {"Accept": "application/json", "User-Agent": "marey", **headers}
        target = f"{self._base}{path}?{urlencode(asked)}"
        connection.request("GET", target, headers={**sent, **self._access.headers()})

    def _record_clock(self, date: str | None) -> None:
        """Record the clock; the header has whole seconds, and a few of them are no difference."""
        try:
            answered_ms = parsedate_to_datetime(date or "").timestamp() * 1000
        except (ValueError, TypeError):
            return
        skew_ms = round(answered_ms - time.time() * 1000)
        self.skew_ms = skew_ms if abs(skew_ms) > CLOCK_SLACK_MS else 0

    def stop(self) -> None:
        """End every read in progress, and let none begin."""
        with self._lock:
            self._stopped = True
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)


def _make_refusal(path: str, status: int, body: bytes) -> Unavailable:
    try:
        said = msgspec.json.decode(body, type=Status).message or ""
    except msgspec.MsgspecError:
        said = body[:200].decode("utf-8", "replace")
    text = f"{path}: status {status}{': ' + shown(said.strip()) if said.strip() else ''}"
    if status == 410:
        return VersionGone(text)
    if status == 401:
        text += " (is the token expired?)"
    if status == 403:
        text += " (the account needs the verbs list and watch on it)"
    return KubernetesRefused(status, text)

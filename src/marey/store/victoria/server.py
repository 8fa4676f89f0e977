"""The HTTP side of a VictoriaMetrics: one connection per thread, every failure named."""

from __future__ import annotations

import base64
import http.client
import re
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import msgspec

from marey.model.errors import InvalidInput, StoreError, Unavailable, shown

_READ_BYTES = 1 << 20
_ANSWER_LIMIT = 2 << 30
_VITAL = re.compile(
    rb"^(process_start_time_seconds|vm_app_start_timestamp|vm_rows_ignored_total\S*"
    rb"|vm_rows_invalid_total\S*) (\S+)$",
    re.MULTILINE,
)


class Refused(StoreError):
    """VictoriaMetrics answered, and said no."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.code = status

    @property
    def of_the_data(self) -> bool:
        """Whether the request itself was at fault, so that it will never be taken."""
        return self.code in {400, 413, 422}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where samples are written to and read from, and with which secret."""

    url: str
    # Of a VictoriaMetrics cluster: vminsert's address, where ``url`` is vmselect's.
    write_url: str = ""
    # ``user:password`` is sent as basic authentication, anything else as a bearer token.
    secret: str = ""
    timeout_s: float = 30.0


class Line(msgspec.Struct):
    """One series of an export."""

    metric: dict[str, str]
    values: list[float | None]
    timestamps: list[int]


class _Found(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Found] = []


class _Reply(msgspec.Struct):
    data: _Data = msgspec.field(default_factory=_Data)


class Server:
    """Asks one VictoriaMetrics; safe to use from several threads."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._read = _base(address.url)
        self._write = _base(address.write_url or address.url)
        # How often it answered, whatever it said.
        self.answers = 0
        self._local = threading.local()
        self._lines = msgspec.json.Decoder(Line)
        self._replies = msgspec.json.Decoder(_Reply)

    # Writing

    def write_csv(self, body: bytes, columns: str, extra: Sequence[str] = ()) -> None:
        """Import lines of CSV; ``columns`` says what each is, ``extra`` labels hold for all."""
        query = urlencode([("format", columns), *(("extra_label", label) for label in extra)])
        self._send(f"/api/v1/import/csv?{query}", body, "text/csv")

    def write_lines(self, body: bytes) -> None:
        """Import series as lines of JSON."""
        self._send("/api/v1/import", body, "application/json")

    def _send(self, path: str, body: bytes, kind: str) -> None:
        with self._asked(self._write, path, body, kind) as answer:
            answer.read(_READ_BYTES)

    def flush(self) -> None:
        """Have what was written made visible at once; only a single-node server can."""
        with self._asked(self._write, "/internal/force_flush", None, "") as answer:
            answer.read(_READ_BYTES)

    # Reading

    def export(self, selectors: Sequence[str], from_ms: int, to_ms: int) -> Iterator[Line]:
        """Every stored sample of the series in ``[from_ms, to_ms)``, series by series."""
        form = _exported(selectors, from_ms, to_ms)
        rest, size = b"", 0
        with self._form("/api/v1/export", form) as answer:
            while chunk := answer.read(_READ_BYTES):
                size += len(chunk)
                if size > _ANSWER_LIMIT:
                    raise StoreError("VictoriaMetrics' answer is longer than 2 GB.")
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield self._lines.decode(line)
        if rest.strip():
            raise Unavailable(f"{self.shown} ended its answer in the middle.")

    @contextmanager
    def exported_csv(
        self, selectors: Sequence[str], columns: str, from_ms: int, to_ms: int
    ) -> Iterator[http.client.HTTPResponse]:
        """The same as lines of CSV with these columns, one per sample, series by series.

        The server escapes nothing: only series whose labels are plain may be asked for so.
        """
        form = _exported(selectors, from_ms, to_ms)
        # With 1 it would cost half, but VictoriaMetrics 1.79 then mixes up values of series.
        form += [("format", columns), ("reduce_mem_usage", "0")]
        with self._form("/api/v1/export/csv", form) as answer:
            yield answer

    def query(self, question: str, time_ms: int) -> list[tuple[dict[str, str], float]]:
        """The value of an instant query per series; nothing of it comes from a cache."""
        form = [("query", question), ("time", _seconds(time_ms)), ("nocache", "1")]
        with self._form("/api/v1/query", form) as answer:
            body = answer.read(_ANSWER_LIMIT)
        try:
            found = self._replies.decode(body).data.result
        except msgspec.DecodeError as error:
            raise Unavailable(f"{self.shown} does not answer as one: {error}.") from None
        return [(one.metric, float(one.value[1])) for one in found]

    def vitals(self) -> tuple[tuple[bytes, bytes], ...] | None:
        """Since when this process lives and what it threw away; None where that is not told."""
        try:
            with self._asked(self._write, "/metrics", None, "") as answer:
                body = answer.read(16 << 20)
        except Refused:
            return None
        found = tuple(_VITAL.findall(body))
        return found if any(b"start" in name for name, _ in found) else None

    @property
    def shown(self) -> str:
        """The server as messages name it."""
        return f"VictoriaMetrics at {shown(self.address.url)}"

    @contextmanager
    def _form(
        self, path: str, form: Sequence[tuple[str, str]]
    ) -> Iterator[http.client.HTTPResponse]:
        kind = "application/x-www-form-urlencoded"
        with self._asked(self._read, path, urlencode(form).encode(), kind) as answer:
            yield answer

    @contextmanager
    def _asked(
        self, base: _Base, path: str, body: bytes | None, kind: str
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to one request; a connection that failed is not used again."""
        connection = self._connection(base)
        done = False
        try:
            answer = self._request(connection, base.path + path, body, kind)
            self.answers += 1
            if answer.status >= 300:
                raise self._refusal(answer)
            yield answer
            done = answer.isclosed()
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{self.shown} does not answer: {reason}.") from None
        finally:
            if not done:
                connection.close()

    def _request(
        self, connection: http.client.HTTPConnection, path: str, body: bytes | None, kind: str
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": kind} if kind else {}
        headers |= _authorization(self.address.secret)
        method = "GET" if body is None else "POST"
        fresh = connection.sock is None
        try:
            connection.request(method, path, body, headers)
            return connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # A connection that lay idle may have been closed by the other side. What was sent
            # on it may have arrived: whoever writes looks before writing again.
            if fresh or body is not None:
                raise
            connection.close()
            connection.request(method, path, body, headers)
            return connection.getresponse()

    def _refusal(self, answer: http.client.HTTPResponse) -> Exception:
        text = answer.read(2000).decode("utf-8", "replace").strip()
        said = f"{self.shown} answered {answer.status} {answer.reason}: {shown(text)}"
        if answer.status >= 500 or answer.status == 429:
            return Unavailable(said)
        if answer.status in {401, 403}:
            said += "; check store.token_env or store.token_file"
        return Refused(f"{said}.", answer.status)

    def _connection(self, base: _Base) -> http.client.HTTPConnection:
        kept: dict[str, http.client.HTTPConnection] = self._local.__dict__.setdefault("kept", {})
        if base.key not in kept:
            timeout_s = self.address.timeout_s
            kept[base.key] = (
                http.client.HTTPSConnection(
                    base.host, base.port, timeout=timeout_s, context=ssl.create_default_context()
                )
                if base.secure
                else http.client.HTTPConnection(base.host, base.port, timeout=timeout_s)
            )
        return kept[base.key]

    def close(self) -> None:
        """Close this thread's connections."""
        for connection in self._local.__dict__.pop("kept", {}).values():
            connection.close()


@dataclass(frozen=True, slots=True)
class _Base:
    secure: bool
    host: str
    port: int | None
    path: str

    @property
    def key(self) -> str:
        return f"{self.secure} {self.host} {self.port}"


def _base(url: str) -> _Base:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise InvalidInput(
            f"'{shown(url)}' is not the address of a VictoriaMetrics; "
            "allowed: http://host:8428, or https."
        )
    if parts.username or parts.password:
        raise InvalidInput(
            "A password in the address would be shown in messages; "
            "name it by store.token_env or store.token_file as user:password."
        )
    return _Base(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


def _authorization(secret: str) -> dict[str, str]:
    if not secret:
        return {}
    if ":" in secret:
        return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}
    return {"Authorization": f"Bearer {secret}"}


def _exported(selectors: Sequence[str], from_ms: int, to_ms: int) -> list[tuple[str, str]]:
    form = [("match[]", text) for text in selectors]
    return [*form, ("start", _seconds(from_ms)), ("end", _seconds(to_ms - 1))]


def _seconds(time_ms: int) -> str:
    return f"{time_ms // 1000}.{time_ms % 1000:03}"

"""The HTTP side of a VictoriaMetrics: connections that are kept, every failure named."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3

from marey.model.errors import InvalidInput, StoreError, Unavailable, shown
from marey.model.system.failure_codes import get_failure_code, get_status_code

_READ_BYTES = 1 << 20
_ANSWER_LIMIT = 2 << 30
_CONNECTIONS_KEPT = 8
# A connection that lay idle may have been closed by the other side: a question is asked once more.
# What was sent to be written may have arrived: whoever writes looks before writing again.
_RETRIES = urllib3.Retry(
    total=1, connect=0, read=1, redirect=0, status=0, other=0, allowed_methods={"GET"}
)
_VITAL = re.compile(
    rb"^(process_start_time_seconds|vm_app_start_timestamp|vm_rows_ignored_total\S*"
    rb"|vm_rows_invalid_total\S*) (\S+)$",
    re.MULTILINE,
)


class VictoriaRefused(StoreError):
    """VictoriaMetrics answered, and said no."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, code=get_status_code(status))
        self.http_status = status

    @property
    def of_the_data(self) -> bool:
        """Return whether the request itself was at fault, so that it will never be taken."""
        return self.http_status in {400, 413, 422}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where samples are written to and read from, and with which secret."""

    url: str
    # Of a VictoriaMetrics cluster: vminsert's address, where ``url`` is vmselect's.
    write_url: str = ""
    # ``user:password`` is sent as basic authentication, anything else as a bearer token.
    secret: str = ""
    timeout_s: float = 30.0


class ExportLine(msgspec.Struct):
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
        self._read = _parse_base(address.url)
        self._write = _parse_base(address.write_url or address.url)
        # How often it answered, whatever it said.
        self.answers = 0
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS_KEPT, timeout=address.timeout_s, retries=_RETRIES
        )
        self._lines = msgspec.json.Decoder(ExportLine)
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
        with self._send_request(self._write, path, body, kind) as answer:
            answer.read(_READ_BYTES)

    def flush(self) -> None:
        """Have what was written made visible at once; only a single-node server can."""
        with self._send_request(self._write, "/internal/force_flush", None, "") as answer:
            answer.read(_READ_BYTES)

    # Reading

    def export(self, selectors: Sequence[str], from_ms: int, to_ms: int) -> Iterator[ExportLine]:
        """Yield every stored sample of the series in ``[from_ms, to_ms)``, series by series."""
        form = _make_export_form(selectors, from_ms, to_ms)
        rest, size = b"", 0
        with self._post_form("/api/v1/export", form) as answer:
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
    def export_csv(
        self, selectors: Sequence[str], columns: str, from_ms: int, to_ms: int
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Yield the same as lines of CSV with these columns, one per sample, series by series.

        The server escapes nothing: only series whose labels are plain may be asked for so.
        """
        form = _make_export_form(selectors, from_ms, to_ms)
        # With 1 it would cost half, but VictoriaMetrics 1.79 then mixes up values of series.
        form += [("format", columns), ("reduce_mem_usage", "0")]
        with self._post_form("/api/v1/export/csv", form) as answer:
            yield answer

    def query(self, question: str, time_ms: int) -> list[tuple[dict[str, str], float]]:
        """Return the value of an instant query per series; nothing of it comes from a cache."""
        form = [("query", question), ("time", _format_seconds(time_ms)), ("nocache", "1")]
        with self._post_form("/api/v1/query", form) as answer:
            body = answer.read(_ANSWER_LIMIT)
        try:
            found = self._replies.decode(body).data.result
        except msgspec.DecodeError as error:
            raise Unavailable(f"{self.shown} does not answer as one: {error}.") from None
        return [(one.metric, float(one.value[1])) for one in found]

    def vitals(self) -> tuple[tuple[bytes, bytes], ...] | None:
        """Return since when this process lives and what it threw away.

        None where the server does not say it.
        """
        try:
            with self._send_request(self._write, "/metrics", None, "") as answer:
                body = answer.read(16 << 20)
        except VictoriaRefused:
            return None
        found = tuple(_VITAL.findall(body))
        return found if any(b"start" in name for name, _ in found) else None

    @property
    def shown(self) -> str:
        """The server as messages name it."""
        return f"VictoriaMetrics at {shown(self.address.url)}"

    @contextmanager
    def _post_form(
        self, path: str, form: Sequence[tuple[str, str]]
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        kind = "application/x-www-form-urlencoded"
        with self._send_request(self._read, path, urlencode(form).encode(), kind) as answer:
            yield answer

    @contextmanager
    def _send_request(
        self, base: str, path: str, body: bytes | None, kind: str
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Yield the answer to one request; a connection that was not read to its end is dropped."""
        headers = {"Content-Type": kind} if kind else {}
        headers |= _make_authorization(self.address.secret)
        try:
            answer = self._pool.request(
                "GET" if body is None else "POST",
                base + path,
                body=body,
                headers=headers,
                preload_content=False,
                redirect=False,
            )
            self.answers += 1
            try:
                if answer.status >= 300:
                    raise self._make_refusal(answer)
                yield answer
            finally:
                _put_back(answer)
        except (OSError, urllib3.exceptions.HTTPError, msgspec.DecodeError) as error:
            reason = str(error) or type(error).__name__
            text = f"{self.shown} does not answer: {reason}."
            raise Unavailable(text, code=get_failure_code(error)) from None

    def _make_refusal(self, answer: urllib3.BaseHTTPResponse) -> Exception:
        text = answer.read(2000).decode("utf-8", "replace").strip()
        said = f"{self.shown} answered {answer.status} {answer.reason}: {shown(text)}"
        if answer.status >= 500 or answer.status == 429:
            return Unavailable(said, code=get_status_code(answer.status))
        if answer.status in {401, 403}:
            said += "; check store.token_env or store.token_file"
        return VictoriaRefused(f"{said}.", answer.status)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._pool.clear()


def _put_back(answer: urllib3.BaseHTTPResponse) -> None:
    """Keep the connection of an answer that was read to its end, close any other."""
    if not answer.closed:
        answer.close()
    answer.release_conn()


def _parse_base(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
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
    return url.rstrip("/")


def _make_authorization(secret: str) -> dict[str, str]:
    if not secret:
        return {}
    if ":" in secret:
        return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}
    return {"Authorization": f"Bearer {secret}"}


def _make_export_form(selectors: Sequence[str], from_ms: int, to_ms: int) -> list[tuple[str, str]]:
    form = [("match[]", text) for text in selectors]
    return [*form, ("start", _format_seconds(from_ms)), ("end", _format_seconds(to_ms - 1))]


def _format_seconds(time_ms: int) -> str:
    return f"{time_ms // 1000}.{time_ms % 1000:03}"

"""Which exporters there are: listed, in a file, behind a name, or one per host of the scheduler."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marey.model.errors import InvalidInput, MareyError, shown
from marey.model.times import MINUTE_MS
from marey.sources.http_fetch import Address, parse_address

ENDPOINTS_LIMIT = 20_000
RESOLVE_EVERY_MS = MINUTE_MS
FILE_LIMIT = 8 << 20


def read_endpoint_addresses(
    listed: Iterable[str], file: Path | None = None, *, port: int = 9400
) -> list[Address]:
    """Return the endpoints given, and those of a file (one a line, ``#`` begins a comment).

    Each once.
    """
    names = list(listed)
    if file is not None:
        names += read_endpoint_file(file)
    found = parse_unique_addresses(names, port=port)
    if not found:
        raise InvalidInput(f"0 endpoints; allowed: 1 to {ENDPOINTS_LIMIT}.")
    return found


def parse_unique_addresses(names: Iterable[str], *, port: int) -> list[Address]:
    """Return addresses in the order given, each once, and not too many."""
    found = {a.url: a for a in (parse_address(name, port=port) for name in names if name)}
    if len(found) > ENDPOINTS_LIMIT:
        raise InvalidInput(f"{len(found)} endpoints; allowed: 1 to {ENDPOINTS_LIMIT}.")
    return list(found.values())


def read_endpoint_file(file: Path) -> list[str]:
    """Return the lines of a list of endpoints, without comments."""
    try:
        with file.open("rb") as opened:
            text = opened.read(FILE_LIMIT + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The list of endpoints '{file}' cannot be read: {error}.") from None
    if len(text) > FILE_LIMIT:
        raise InvalidInput(f"The list of endpoints '{file}' is longer than {FILE_LIMIT} bytes.")
    return [line.partition("#")[0].strip() for line in text.splitlines()]


def resolve_name(name: str, *, port: int) -> list[str]:
    """Return every address behind a name (``exporters.site:9400``), by the system's resolver."""
    place = parse_address(name, port=port)
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"'{shown(name)}' is not resolved: {error}.") from None
    hosts = sorted({str(entry[4][0]) for entry in found})
    return [f"[{h}]:{place.port}" if ":" in h else f"{h}:{place.port}" for h in hosts]


@dataclass(slots=True)
class EndpointList:
    """Endpoints that may change: asked before each poll, and kept as they were where that fails.

    The file is read again when it changes; names are resolved once a minute (A and AAAA records:
    SRV records are not asked for); the scheduler's hosts are taken as they are now.
    """

    listed: Sequence[str] = ()
    file: Path | None = None
    names: Sequence[str] = ()
    hosts: Callable[[], Iterable[str]] | None = None
    port: int = 9400
    # What could not be found out, by where it was looked for.
    errors: dict[str, str] = field(default_factory=dict)
    _stamp: tuple[int, int, int] | None = None
    _in_file: list[str] = field(default_factory=list)
    _behind: dict[str, list[str]] = field(default_factory=dict)
    _resolve_ms: int = 0
    _before: list[str] | None = None

    def addresses(self, now_ms: int) -> list[Address] | None:
        """Return the endpoints now; None where they are as they were."""
        self._read_file()
        self._resolve(now_ms)
        hosts = sorted(self.hosts()) if self.hosts is not None else []
        behind = [place for name in self.names for place in self._behind.get(name, ())]
        wanted = [*self.listed, *self._in_file, *behind, *hosts]
        if wanted == self._before:
            return None
        try:
            found = parse_unique_addresses(wanted, port=self.port)
        except MareyError as error:
            self.errors["list"] = str(error)
            return None
        self.errors.pop("list", None)
        self._before = wanted
        return found

    def _read_file(self) -> None:
        if self.file is None:
            return
        try:
            state = self.file.stat()
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            if stamp == self._stamp:
                return
            lines = read_endpoint_file(self.file)
            parse_unique_addresses(lines, port=self.port)
        except (OSError, MareyError) as error:
            self.errors["file"] = str(error)
            return
        self.errors.pop("file", None)
        self._in_file, self._stamp = lines, stamp

    def _resolve(self, now_ms: int) -> None:
        if not self.names or now_ms < self._resolve_ms:
            return
        self._resolve_ms = now_ms + RESOLVE_EVERY_MS
        for name in self.names:
            try:
                self._behind[name] = resolve_name(name, port=self.port)
                self.errors.pop(name, None)
            except MareyError as error:
                self.errors[name] = str(error)

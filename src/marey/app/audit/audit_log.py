"""Entries in files by day beside the store: whole lines, readable by their owner alone."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from marey.app.audit.audit_documents import AuditEntry, AuditKind, AuditPage, Details
from marey.model.times import DAY_MS

log = logging.getLogger(__name__)

RETENTION_MS = 400 * DAY_MS
# A day of refusals may not fill the disk; changes are always recorded.
DAY_BYTES = 64_000_000
# The same refusal again within this time is counted, not written again.
REPEAT_MS = 10_000
_SUFFIX = ".jsonl"
_MEMORY_ENTRIES = 10_000


def get_audit_folder(store: Path) -> Path:
    """Return where the record of a store's server lies."""
    return store.with_name(f"{store.name}.audit")


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """What is to be recorded."""

    kind: AuditKind
    user: str = ""
    role: str = ""
    peer: str = ""
    route: str = ""
    object: str = ""
    status: int = 0
    before: Details | None = None
    after: Details | None = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries; empty fields choose all."""

    kind: str = ""
    user: str = ""
    text: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    # Only entries before this one.
    cursor: str = ""

    def chooses(self, entry: AuditEntry) -> bool:
        """Return whether an entry is meant."""
        return (
            self.kind in ("", entry.kind)
            and self.user in ("", entry.user)
            and (self.from_ms is None or entry.time_ms >= self.from_ms)
            and (self.to_ms is None or entry.time_ms < self.to_ms)
            and (not self.cursor or entry.id < self.cursor)
            and self.text.casefold() in f"{entry.route} {entry.object} {entry.peer}".casefold()
        )


@dataclass
class AuditLog:
    """The record of one site; without a folder it is kept in memory."""

    folder: Path | None = None
    retention_ms: int = RETENTION_MS
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _memory: list[AuditEntry] = field(default_factory=list)
    _number: int = 0
    _day: str = ""
    _file: int | None = None
    # Refusals of late: when one was written, and how many followed.
    _repeats: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)

    def record(self, audit_event: AuditEvent, time_ms: int) -> None:
        """Append an entry; when this returns it survives the end of the process."""
        with self._lock:
            times = self._count_repeat(audit_event, time_ms)
            if times:
                self._append(audit_event, time_ms, times)

    def _count_repeat(self, audit_event: AuditEvent, time_ms: int) -> int:
        """Return how often this happened since it was last written; 0 to only count it."""
        if audit_event.kind is not AuditKind.REFUSAL:
            return 1
        key = (audit_event.user, audit_event.peer, audit_event.route, str(audit_event.status))
        since_ms, counted = self._repeats.get(key, (0, 0))
        if time_ms - since_ms < REPEAT_MS:
            self._repeats[key] = (since_ms, counted + 1)
            return 0
        if len(self._repeats) > _MEMORY_ENTRIES:
            self._repeats.clear()
        self._repeats[key] = (time_ms, 0)
        return counted + 1

    def _append(self, audit_event: AuditEvent, time_ms: int, times: int) -> None:
        self._number += 1
        entry = AuditEntry(
            id=f"{time_ms:013d}-{self._number:08d}",
            time_ms=time_ms,
            kind=audit_event.kind,
            user=audit_event.user,
            role=audit_event.role,
            peer=audit_event.peer,
            route=audit_event.route,
            object=audit_event.object,
            status=audit_event.status,
            times=times,
            before=audit_event.before,
            after=audit_event.after,
        )
        if self.folder is None:
            self._memory = [*self._memory[-_MEMORY_ENTRIES + 1 :], entry]
            return
        try:
            self._write(self.folder, entry)
        except OSError as error:
            # Whoever asks is answered all the same; the log of the server says what is missing.
            log.error("the audit record cannot be written: %s", error)

    def _write(self, folder: Path, entry: AuditEntry) -> None:
        file = self._open_day(folder, entry.time_ms)
        if entry.kind is AuditKind.REFUSAL and os.fstat(file).st_size > DAY_BYTES:
            return
        os.write(file, msgspec.json.encode(entry) + b"\n")
        if entry.kind is not AuditKind.REFUSAL:
            os.fdatasync(file)

    def _open_day(self, folder: Path, time_ms: int) -> int:
        day = _name_day(time_ms)
        if self._file is None or day != self._day:
            self.close()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(folder / f"{day}{_SUFFIX}", flags, 0o600)
            os.fchmod(self._file, 0o600)
            self._day = day
            _end_line(self._file)
            self._forget_old(folder, time_ms)
        return self._file

    def _forget_old(self, folder: Path, time_ms: int) -> None:
        first = _name_day(time_ms - self.retention_ms)
        for path in folder.glob(f"*{_SUFFIX}"):
            if path.stem < first:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def find_page(self, chosen: AuditFilter, limit: int) -> AuditPage:
        """Return entries, newest first."""
        rows: list[AuditEntry] = []
        for entry in self.find(chosen):
            if len(rows) == limit:
                return AuditPage(rows, rows[-1].id)
            rows.append(entry)
        return AuditPage(rows, None)

    def find(self, chosen: AuditFilter) -> Iterator[AuditEntry]:
        """Yield the entries that are meant, newest first."""
        return (entry for entry in self._read_all(chosen) if chosen.chooses(entry))

    def _read_all(self, chosen: AuditFilter) -> Iterable[AuditEntry]:
        if self.folder is None:
            yield from reversed(self._memory)
            return
        first = "" if chosen.from_ms is None else _name_day(chosen.from_ms)
        last = "9" if chosen.to_ms is None else _name_day(chosen.to_ms)
        for path in sorted(self.folder.glob(f"*{_SUFFIX}"), reverse=True):
            if first <= path.stem <= last:
                yield from reversed(_read_day(path))


def _read_day(path: Path) -> list[AuditEntry]:
    entries = []
    for line in path.read_bytes().splitlines():
        # A line that a crash cut off says nothing; all others do.
        with contextlib.suppress(msgspec.MsgspecError):
            entries.append(msgspec.json.decode(line, type=AuditEntry))
    return entries


def _end_line(file: int) -> None:
    """Begin a new line after one that a crash cut off."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")


def _name_day(time_ms: int) -> str:
    return datetime.fromtimestamp(max(0, time_ms) / 1000, UTC).strftime("%Y-%m-%d")

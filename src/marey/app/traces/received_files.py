"""Files of a run as they arrive: in pieces, in any order of files, and again after a break."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from marey.app.access.upload_usage import UploadUsage
from marey.app.traces.trace_documents import TraceFile
from marey.model.errors import Conflict, InvalidInput, NotFound, TooLarge, shown
from marey.model.names import NAME_LIMIT
from marey.model.system.private_files import FILE_MODE, make_private_folder

# One file per rank of the largest runs, and some beside them.
FILES_LIMIT = 20_000
# What a stored file is called; `ReceivedFiles._make_path` makes it.
_STORED = re.compile(r"[A-Za-z0-9_-]{0,60}-[0-9a-f]{8}(?:\.[A-Za-z0-9]{1,7}){1,2}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_PART, FACTS_SUFFIX = ".part", ".facts"


class _Facts(msgspec.Struct):
    name: str
    bytes: int


@dataclass(frozen=True)
class ReceivedFiles:
    """The folder of one run's files; each has its facts beside it, so that no list is rewritten."""

    folder: Path
    file_limit: int
    usage: UploadUsage

    def list_files(self) -> list[TraceFile]:
        """Return every file by name, complete or not."""
        if not self.folder.is_dir():
            return []
        facts = (entry for entry in os.scandir(self.folder) if entry.name.endswith(FACTS_SUFFIX))
        found = [self._describe(Path(entry.path)) for entry in facts]
        return sorted((file for file in found if file is not None), key=lambda file: file.file)

    def _describe(self, path: Path) -> TraceFile | None:
        try:
            facts = msgspec.json.decode(path.read_bytes(), type=_Facts)
        except (OSError, msgspec.MsgspecError):
            return None
        # In this order: a file may become whole while we look.
        received = _measure(path.with_suffix(_PART))
        if path.with_suffix("").exists():
            return TraceFile(facts.name, facts.bytes, facts.bytes, "complete", "")
        return TraceFile(facts.name, facts.bytes, received, "partial", "")

    def get_file(self, name: str) -> TraceFile:
        """Return one file."""
        stored = self._make_path(name)
        found = self._describe(stored.with_name(stored.name + FACTS_SUFFIX))
        if found is None:
            raise NotFound(f"There is no file '{shown(name)}' in this run.")
        return found

    @contextmanager
    def receive(self, name: str, offset: int, size: int, room: int) -> Iterator[PieceWriter]:
        """Take bytes of a file from ``offset`` on; what has arrived stays, also after a break."""
        _check_name(name)
        if size > self.file_limit:
            raise TooLarge(f"'{shown(name)}' has {size} bytes; allowed: {self.file_limit}.")
        stored = self._make_path(name)
        make_private_folder(self.folder)
        self._start(name, stored, size)
        replaces = offset == 0 and stored.exists()
        part = stored.with_name(stored.name + _PART)
        if offset == 0:
            stored.unlink(missing_ok=True)
            _write_plain(part, b"")
        received = part.stat().st_size if part.exists() else 0
        if stored.exists():
            received = size
        if offset != received:
            raise Conflict(
                f"'{shown(name)}' has {received} bytes so far, and offset is {offset}; "
                f"send the rest from {received} on.",
                code="wrong_offset",
            )
        with part.open("ab") as file:
            writer = PieceWriter(file, received, size, min(self.file_limit, received + room))
            yield writer
            file.flush()
            os.fsync(file.fileno())
        if writer.received == size:
            os.replace(part, stored)
        self.usage.note(self.folder, bytes_more=writer.received - received, files_more=0)
        if replaces:
            self.usage.forget(self.folder)

    def _start(self, name: str, stored: Path, size: int) -> None:
        beside = stored.with_name(stored.name + FACTS_SUFFIX)
        is_new = not beside.exists()
        if is_new and self.usage.count_files(self.folder) >= FILES_LIMIT:
            raise TooLarge(f"This run has {FILES_LIMIT} files, the most allowed.")
        facts = msgspec.json.encode(_Facts(name, size))
        _write_plain(beside, facts)
        if is_new:
            self.usage.note(self.folder, bytes_more=len(facts), files_more=1)

    def remove(self, name: str) -> None:
        """Forget one file."""
        self.get_file(name)
        stored = self._make_path(name)
        for path in (stored, stored.with_name(stored.name + _PART)):
            path.unlink(missing_ok=True)
        stored.with_name(stored.name + FACTS_SUFFIX).unlink(missing_ok=True)
        self.usage.forget(self.folder)

    def complete_paths(self) -> list[Path]:
        """Return the files that are whole: what is converted."""
        files = [
            self._make_path(file.file) for file in self.list_files() if file.state == "complete"
        ]
        return [path for path in files if path.exists()]

    def restore_names(self, text: str) -> str:
        """Return a text in which files are called as they were when they were sent."""

        def restore(found: re.Match[str]) -> str:
            file = self._describe(self.folder / (found[0] + FACTS_SUFFIX))
            return shown(file.file) if file is not None else found[0]

        return _STORED.sub(restore, text)

    def _make_path(self, name: str) -> Path:
        """Make a readable path where it can be (trace readers look for a rank in it), unique by a
        digest.
        """
        folder, _, last = name.rpartition("/")
        stem, _, rest = last.partition(".")
        if not any(letter.isdigit() for letter in stem):
            # Files of one name in a folder per rank: the folder says which.
            stem = f"{folder.rpartition('/')[2]}_{stem}" if folder else stem
        safe = _UNSAFE.sub("_", stem)[:60]
        suffix = "".join(
            f".{part}" for part in rest.split(".")[-2:] if part.isalnum() and len(part) < 8
        )
        digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()[:8]
        return self.folder / f"{safe}-{digest}{suffix or '.json'}"


class PieceWriter:
    """Where the pieces of one request go; stops at the size that was announced."""

    def __init__(self, file: IO[bytes], received: int, size: int, limit: int) -> None:
        self._file = file
        self.received = received
        self._size = size
        self._limit = limit

    def write(self, piece: bytes) -> None:
        """Keep the next piece."""
        if self.received + len(piece) > self._size:
            raise InvalidInput(f"More than the {self._size} bytes that were announced were sent.")
        if self.received + len(piece) > self._limit:
            raise TooLarge("All uploaded traces together are past the limit; delete some runs.")
        self._file.write(piece)
        self.received += len(piece)


def _write_plain(path: Path, content: bytes) -> None:
    """Write a small file without waiting for the disk: if a crash loses it, the file is sent again.

    Flushing it as well would make a run of 16,384 small files five times slower to send.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, FILE_MODE), "wb") as file:
        file.write(content)


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _check_name(name: str) -> None:
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        raise InvalidInput(
            f"'{shown(name)}' is not a valid file name; "
            f"allowed: 1 to {NAME_LIMIT} printable characters."
        )

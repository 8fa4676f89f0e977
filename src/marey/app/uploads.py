"""Files that people sent: kept in a folder beside the store, under names of our own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from marey.model.errors import InvalidInput, NotFound, TooLarge, shown
from marey.model.names import NAME_LIMIT

FILE_LIMIT = 4 << 30
TOTAL_LIMIT = 64 << 30
FILES_LIMIT = 4096
_INDEX = "index.json"
# File systems allow 255 bytes.
_PATH_PART_LIMIT = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """One file as its sender called it."""

    name: str
    path: Path
    size: int
    time_ms: int

    def document(self) -> dict[str, Any]:
        """What the API says of it."""
        return {"file": self.name, "bytes": self.size, "time_ms": self.time_ms}


class Uploads:
    """A collection of files per owner (a workload's traces, an import); atomic and bounded."""

    def __init__(
        self, root: Path, *, file_limit: int = FILE_LIMIT, total_limit: int = TOTAL_LIMIT
    ) -> None:
        self._root = root
        self._file_limit = file_limit
        self._total_limit = total_limit

    def folder(self, owner: str) -> Path:
        """Where the owner's files are; its name says nothing, so hostile names are harmless."""
        return self._root / _digest(owner)

    def files(self, owner: str) -> list[UploadedFile]:
        """What the owner has, by name."""
        folder = self.folder(owner)
        entries = _read_index(folder)
        return [
            UploadedFile(entry["name"], folder / stored, entry["size"], entry["time_ms"])
            for stored, entry in sorted(entries.items(), key=lambda item: item[1]["name"])
        ]

    def file(self, owner: str, name: str) -> UploadedFile:
        """One of the owner's files."""
        found = next((file for file in self.files(owner) if file.name == name), None)
        if found is None:
            raise NotFound(f"There is no uploaded file '{shown(name)}' of '{shown(owner)}'.")
        return found

    @contextmanager
    def receiving(self, owner: str, name: str) -> Iterator[Receiver]:
        """Take a file in piece by piece; it is there only if the block ends well."""
        _check_name(name)
        folder = self.folder(owner)
        folder.mkdir(parents=True, exist_ok=True)
        stored = _stored_name(name)
        entries = _read_index(folder)
        if stored not in entries and len(entries) >= FILES_LIMIT:
            raise TooLarge(f"'{shown(owner)}' has {FILES_LIMIT} files, the most allowed.")
        draft = folder / f".{stored}.{os.getpid()}.{time.monotonic_ns()}"
        try:
            with draft.open("wb") as file:
                receiver = Receiver(file, self._file_limit, self._total_limit - self._used())
                yield receiver
            os.replace(draft, folder / stored)
        finally:
            draft.unlink(missing_ok=True)
        entry = {"name": name, "size": receiver.size, "time_ms": time.time_ns() // 1_000_000}
        _write_index(folder, {**_read_index(folder), stored: entry})

    def as_named(self, owner: str, name: str) -> Path:
        """The file under the name it was sent with, so that messages about it can be read."""
        found = self.file(owner, name)
        plain = name.replace("/", "_").replace("\\", "_")
        usable = plain.strip(".") and len(plain.encode()) <= _PATH_PART_LIMIT
        target = found.path.parent / "named" / (plain if usable else found.path.name)
        target.parent.mkdir(exist_ok=True)
        target.unlink(missing_ok=True)
        os.link(found.path, target)
        return target

    def remove(self, owner: str, name: str | None = None) -> None:
        """Forget one file, or all that the owner has."""
        folder = self.folder(owner)
        if name is None:
            if not folder.is_dir():
                raise NotFound(f"There are no uploaded files of '{shown(owner)}'.")
            shutil.rmtree(folder)
            return
        found = self.file(owner, name)
        entries = _read_index(folder)
        del entries[found.path.name]
        _write_index(folder, entries)
        found.path.unlink(missing_ok=True)

    def _used(self) -> int:
        if not self._root.is_dir():
            return 0
        return sum(
            entry["size"]
            for folder in self._root.iterdir()
            if folder.is_dir()
            for entry in _read_index(folder).values()
        )


class Receiver:
    """Where the pieces of one file go; stops at the limit."""

    def __init__(self, file: IO[bytes], file_limit: int, room: int) -> None:
        self._file = file
        self._limit = min(file_limit, max(0, room))
        self._file_limit = file_limit
        self.size = 0

    def write(self, piece: bytes) -> None:
        """Keep the next piece."""
        self.size += len(piece)
        if self.size > self._limit:
            what = "A file" if self._limit == self._file_limit else "What is left for all uploads"
            raise TooLarge(f"{what} may have {self._limit} bytes.")
        self._file.write(piece)


def _check_name(name: str) -> None:
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        raise InvalidInput(
            f"'{shown(name)}' is no name for a file; "
            f"allowed: 1 to {NAME_LIMIT} printable characters."
        )


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _stored_name(name: str) -> str:
    """Readable where it can be (trace readers look for a rank in it), unique by a digest."""
    stem, _, rest = name.rpartition("/")[2].partition(".")
    safe = _UNSAFE.sub("_", stem)[:60]
    suffix = "".join(
        f".{part}" for part in rest.split(".")[-2:] if part.isalnum() and len(part) < 8
    )
    return f"{safe}-{_digest(name)[:8]}{suffix}"


def _read_index(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        found: dict[str, dict[str, Any]] = json.loads((folder / _INDEX).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _write_index(folder: Path, entries: dict[str, dict[str, Any]]) -> None:
    draft = folder / f".{_INDEX}.{os.getpid()}"
    draft.write_text(json.dumps(entries), "utf-8")
    os.replace(draft, folder / _INDEX)

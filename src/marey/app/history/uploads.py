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

from marey.app.access.upload_room import UploadRoom, find_room, get_sender
from marey.model.access.senders import check_sender
from marey.model.documents import Document
from marey.model.errors import InvalidInput, NotFound, TooLarge, shown
from marey.model.names import NAME_LIMIT
from marey.model.system.atomic_file import replace_file, write_file
from marey.model.system.private_files import make_private_folder

FILE_LIMIT = 4 << 30
TOTAL_LIMIT = 64 << 30
# Nobody takes everything: half of it for one user.
USER_SHARE = 0.5
# One file per rank of the largest runs, and some beside them.
FILES_LIMIT = 20_000
_INDEX = "index.json"
_WHAT = "This is a file"
# File systems allow 255 bytes.
_PATH_PART_LIMIT = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")


class UploadDocument(Document):
    """A file that was sent."""

    file: str
    bytes: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """One file as its sender called it."""

    name: str
    path: Path
    size: int
    time_ms: int
    # Who sent it; empty where that is not known.
    by: str = ""

    def document(self) -> UploadDocument:
        """Return the document that the API answers."""
        return UploadDocument(file=self.name, bytes=self.size, time_ms=self.time_ms)


class Uploads:
    """A collection of files per owner (a workload's traces, an import); atomic and bounded."""

    def __init__(
        self, root: Path, *, file_limit: int = FILE_LIMIT, total_limit: int = TOTAL_LIMIT
    ) -> None:
        self._root = root
        self._file_limit = file_limit
        self._total_limit = total_limit

    def folder(self, owner: str) -> Path:
        """Return where the owner's files are.

        Its name says nothing, so hostile names are harmless.
        """
        return self._root / _hash_text(owner)

    def files(self, owner: str) -> list[UploadedFile]:
        """Return the owner's files by name."""
        folder = self.folder(owner)
        entries = _read_index(folder)
        return [
            UploadedFile(
                entry["name"],
                folder / stored,
                entry["size"],
                entry["time_ms"],
                by=entry.get("by", ""),
            )
            for stored, entry in sorted(entries.items(), key=lambda item: item[1]["name"])
        ]

    def owners(self, prefix: str) -> list[str]:
        """Return who has files, of those whose name begins so."""
        if not self._root.is_dir():
            return []
        found = {
            str(entry.get("owner", ""))
            for folder in self._root.iterdir()
            if folder.is_dir()
            for entry in _read_index(folder).values()
        }
        return sorted(owner for owner in found if owner.startswith(prefix))

    def file(self, owner: str, name: str) -> UploadedFile:
        """Return one of the owner's files."""
        found = next((file for file in self.files(owner) if file.name == name), None)
        if found is None:
            raise NotFound(f"There is no uploaded file '{shown(name)}' of '{shown(owner)}'.")
        return found

    @contextmanager
    def receiving(self, owner: str, name: str, by: str = "") -> Iterator[Receiver]:
        """Take a file in piece by piece; it is there only if the block ends well."""
        _check_name(name)
        by = by or get_sender()
        folder = self.folder(owner)
        make_private_folder(self._root)
        make_private_folder(folder)
        stored = _make_stored_name(name)
        entries = _read_index(folder)
        if stored in entries:
            check_sender(entries[stored].get("by", ""), _WHAT)
        if stored not in entries and len(entries) >= FILES_LIMIT:
            raise TooLarge(f"'{shown(owner)}' has {FILES_LIMIT} files, the most allowed.")
        draft = folder / f".{stored}.{os.getpid()}.{time.monotonic_ns()}"
        with replace_file(folder / stored, draft=draft) as file:
            receiver = Receiver(file, self._file_limit, self._find_room(by))
            yield receiver
        entry = {
            "name": name,
            "owner": owner,
            "size": receiver.size,
            "time_ms": time.time_ns() // 1_000_000,
            "by": by,
        }
        _write_index(folder, {**_read_index(folder), stored: entry})

    def as_named(self, owner: str, name: str) -> Path:
        """Return the file under the name it was sent with, so that messages about it
        can be read.
        """
        found = self.file(owner, name)
        plain = name.replace("/", "_").replace("\\", "_")
        usable = plain.strip(".") and len(plain.encode()) <= _PATH_PART_LIMIT
        target = found.path.parent / "named" / (plain if usable else found.path.name)
        make_private_folder(target.parent)
        target.unlink(missing_ok=True)
        os.link(found.path, target)
        return target

    def remove(self, owner: str, name: str | None = None) -> None:
        """Forget one file, or all that the owner has."""
        folder = self.folder(owner)
        if name is None:
            if not folder.is_dir():
                raise NotFound(f"There are no uploaded files of '{shown(owner)}'.")
            for file in self.files(owner):
                check_sender(file.by, _WHAT)
            shutil.rmtree(folder)
            return
        found = self.file(owner, name)
        check_sender(found.by, _WHAT)
        entries = _read_index(folder)
        del entries[found.path.name]
        _write_index(folder, entries)
        found.path.unlink(missing_ok=True)

    def _find_room(self, by: str) -> UploadRoom:
        sizes = [
            (entry.get("by", ""), entry["size"])
            for folder in self._root.iterdir()
            if folder.is_dir()
            for entry in _read_index(folder).values()
        ]
        own = sum(size for sender, size in sizes if sender == by)
        return find_room(
            self._root,
            total=self._total_limit - sum(size for _, size in sizes),
            own=int(self._total_limit * USER_SHARE) - own,
        )


class Receiver:
    """Where the pieces of one file go; stops at the limit."""

    def __init__(self, file: IO[bytes], file_limit: int, room: UploadRoom) -> None:
        self._file = file
        self._file_limit = file_limit
        self._room = room
        self.size = 0

    def write(self, piece: bytes) -> None:
        """Keep the next piece."""
        self.size += len(piece)
        if self.size > self._file_limit:
            raise TooLarge(f"A file may have {self._file_limit} bytes.")
        self._room.check(self.size)
        self._file.write(piece)


def _check_name(name: str) -> None:
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        raise InvalidInput(
            f"'{shown(name)}' is not a valid file name; "
            f"allowed: 1 to {NAME_LIMIT} printable characters."
        )


def _hash_text(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _make_stored_name(name: str) -> str:
    """Make a readable name where it can be (trace readers look for a rank in it), unique by a
    digest.
    """
    stem, _, rest = name.rpartition("/")[2].partition(".")
    safe = _UNSAFE.sub("_", stem)[:60]
    suffix = "".join(
        f".{part}" for part in rest.split(".")[-2:] if part.isalnum() and len(part) < 8
    )
    return f"{safe}-{_hash_text(name)[:8]}{suffix}"


def _read_index(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        found: dict[str, dict[str, Any]] = json.loads((folder / _INDEX).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _write_index(folder: Path, entries: dict[str, dict[str, Any]]) -> None:
    draft = folder / f".{_INDEX}.{os.getpid()}"
    write_file(folder / _INDEX, json.dumps(entries).encode(), draft=draft)

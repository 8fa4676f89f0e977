"""Samples on disk until VictoriaMetrics has them: one file per write, whole or not there.

A file is written beside, flushed, and renamed; it is removed only when everything in it has been
confirmed, oldest first. So a kill at any moment leaves whole writes, and none is forgotten.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from marey.model.errors import Conflict, InvalidInput, StoreError
from marey.model.metrics import Entity
from marey.model.samples import SampleBatch, batch_from_table
from marey.model.system.atomic_file import move_file, replace_file, write_file
from marey.model.system.private_files import make_private_folder

DEFAULT_LIMIT_BYTES = 4 << 30
_MAGIC = b"MAS1"
_HEAD = struct.Struct("<4sII")
_SUFFIX = ".samples"
_REACHES = "reaches.json"
Reaches = dict[tuple[str, Entity], tuple[int, int]]
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which file a batch lies, and what it is about."""

    file: Path
    at: int
    cluster: str
    kind: Entity
    rows: int
    from_ms: int
    to_ms: int


class Spill:
    """A folder of writes that are not confirmed yet; one process at a time."""

    def __init__(self, folder: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        try:
            make_private_folder(folder)
            self._lock = _lock_folder(folder / "lock")
        except OSError as error:
            raise StoreError(
                f"The spill folder '{folder}' cannot be used: {error.strerror}."
            ) from None
        for stray in folder.glob("*.part"):
            stray.unlink()
        self.files = sorted(folder.glob(f"*{_SUFFIX}"))
        self._guard = threading.Lock()
        # What was found unreadable, in words.
        self.damaged: list[str] = []
        self._sizes = {file: file.stat().st_size for file in self.files}
        self._next = 1 + max([0, *(int(file.stem) for file in self.files if file.stem.isdigit())])

    @property
    def bytes(self) -> int:
        """The size of all that waits."""
        with self._guard:
            return sum(self._sizes.values())

    def keep(self, batches: Iterable[SampleBatch], waiting: str) -> list[Place]:
        """Put batches on disk as one step; when this returns, they are safe."""
        full = (batch for batch in batches if len(batch))
        first = next(full, None)
        if first is None:
            return []
        part = self.folder / f"{self._next:012}.part"
        whole = part.with_suffix(_SUFFIX)
        try:
            with replace_file(whole, draft=part) as file:
                places = [self._write(file, whole, b, waiting) for b in chain([first], full)]
                size = file.tell()
        except OSError as error:
            raise self._make_failure(error) from None
        self._next += 1
        with self._guard:
            self.files.append(whole)
            self._sizes[whole] = size
        return places

    def _write(self, file: BinaryIO, whole: Path, batch: SampleBatch, waiting: str) -> Place:
        payload = _pack_batch(batch)
        at = file.tell()
        if self.bytes + at + len(payload) > self.limit_bytes:
            raise StoreError(
                f"The spill '{self.folder}' is full ({self.bytes >> 20} MB of "
                f"{self.limit_bytes >> 20} MB): {waiting} What is there is safe; bring "
                "VictoriaMetrics back, or raise store.spill_limit_mb."
            )
        file.write(_HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload)))
        file.write(payload)
        return _place(whole, at, batch)

    def _make_failure(self, error: OSError) -> StoreError:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return StoreError(
                f"The disk of the spill '{self.folder}' is full; nothing that was kept is lost. "
                "Free some space: the next write goes through."
            )
        return StoreError(f"The spill '{self.folder}' cannot be written: {error.strerror}.")

    def waiting(self) -> Iterator[tuple[Path, list[Place]]]:
        """Yield what an earlier process left, file by file in the order of writing."""
        for file in list(self.files):
            try:
                yield file, [_place(file, at, batch) for at, batch in _read_batches(file)]
            except (ValueError, OSError, pa.ArrowInvalid) as error:
                # Not one of ours, or damaged by the disk: kept aside, never silently dropped.
                aside = self.set_aside(file, str(error))
                self.damaged.append(f"'{aside}' cannot be read: {error}")

    def load(self, place: Place) -> SampleBatch:
        """Return a batch that lies on disk."""
        with place.file.open("rb") as file:
            file.seek(place.at)
            found = _read(file)
        if found is None:
            raise StoreError(f"'{place.file}' ends before byte {place.at}.")
        return found

    def drop(self, file: Path) -> None:
        """Forget a file that has been confirmed as a whole."""
        self._forget(file)
        file.unlink(missing_ok=True)

    def _forget(self, file: Path) -> None:
        with self._guard:
            self.files.remove(file)
            self._sizes.pop(file, None)

    def set_aside(self, file: Path, reason: str) -> Path:
        """Keep what cannot be delivered out of the way, with the reason beside it."""
        aside = file.with_suffix(".refused")
        move_file(file, aside)
        aside.with_suffix(".reason").write_text(reason[:2000] + "\n", encoding="utf-8")
        self._forget(file)
        return aside

    def keep_aside(self, batch: SampleBatch, reason: str) -> Path:
        """Write what cannot be delivered to a file of its own, with the reason beside it."""
        aside = self.folder / f"{time.time_ns()}.refused"
        payload = _pack_batch(batch)
        write_file(aside, _HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload)
        aside.with_suffix(".reason").write_text(reason[:2000] + "\n", encoding="utf-8")
        return aside

    def reaches(self) -> Reaches:
        """Return from when to when the confirmed samples of each cluster and kind reach."""
        try:
            listed = json.loads((self.folder / _REACHES).read_text(encoding="utf-8"))
            return {(c, Entity(k)): (int(a), int(b)) for c, k, a, b in listed}
        except (OSError, ValueError, TypeError):
            return {}

    def keep_reaches(self, reaches: Reaches) -> None:
        """Remember how far samples reach, before the files that tell it go."""
        beside = self.folder / f"{_REACHES}.part"
        listed = [[c, str(k), a, b] for (c, k), (a, b) in reaches.items()]
        write_file(self.folder / _REACHES, json.dumps(listed).encode(), draft=beside)

    def close(self) -> None:
        """Release the folder, so that another process may have it."""
        os.close(self._lock)


def read_aside(file: Path) -> list[SampleBatch]:
    """Return the batches of a file that was set aside."""
    return [batch for _, batch in _read_batches(file)]


def _lock_folder(path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Conflict(
            f"The spill folder '{path.parent}' is held by another process; "
            "stop that one, or name another folder by store.spill."
        ) from None
    return handle


def _pack_batch(batch: SampleBatch) -> bytes:
    table = batch.to_table().replace_schema_metadata(
        {"cluster": batch.cluster, "kind": str(batch.kind)}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _place(file: Path, at: int, batch: SampleBatch) -> Place:
    first, last = int(batch.time_ms.min()), int(batch.time_ms.max())
    return Place(
        file, at, batch.cluster, kind=batch.kind, rows=len(batch), from_ms=first, to_ms=last + 1
    )


def _read_batches(file: Path) -> Iterator[tuple[int, SampleBatch]]:
    with file.open("rb") as opened:
        while True:
            at = opened.tell()
            batch = _read(opened)
            if batch is None:
                return
            yield at, batch


def _read(file: BinaryIO) -> SampleBatch | None:
    head = file.read(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise ValueError("cut short")
    magic, length, check = _HEAD.unpack(head)
    payload = file.read(length) if magic == _MAGIC else b""
    if len(payload) != length or zlib.crc32(payload) != check:
        raise ValueError("not as it was written")
    table = pa.ipc.open_stream(payload).read_all()
    named = table.schema.metadata or {}
    return batch_from_table(
        table, kind=Entity(named[b"kind"].decode()), cluster=named[b"cluster"].decode()
    )


def check_limit(limit_bytes: int) -> int:
    """Return a limit that a few ticks fit into."""
    if limit_bytes < 1 << 16:
        raise InvalidInput(f"A spill of {limit_bytes} bytes is too small; allowed: 64 KB up.")
    return limit_bytes

"""A file of entries beside the store: each is whole or absent, whatever ends the process."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from marey.model.errors import StoreError

_MAGIC = b"MAREYJ1\n"
_ID_BYTES = 16
_HEAD_BYTES = len(_MAGIC) + _ID_BYTES
_ENTRY = struct.Struct("<II")


def journal_path(store: Path) -> Path:
    """Where the journal of this store lies."""
    return store.with_name(store.name + ".journal")


class JournalFile:
    """Entries appended and synced one by one; the file exists only while there are any."""

    def __init__(self, path: Path, identity: bytes) -> None:
        self.path = path
        self._identity = identity
        self._file: int | None = None
        self._end = _HEAD_BYTES

    def append(self, payload: bytes) -> None:
        """Keep one entry; when this returns it survives a kill, when it raises nothing is kept."""
        try:
            file = self._opened()
            _write_all(file, _ENTRY.pack(len(payload), zlib.crc32(payload)) + payload, self._end)
            os.fdatasync(file)
        except OSError as error:
            self._cut_back()
            raise StoreError(_failure(self.path, error)) from error
        self._end += _ENTRY.size + len(payload)

    def clear(self) -> None:
        """Forget every entry: the store has them."""
        if self._file is not None:
            os.ftruncate(self._file, _HEAD_BYTES)
        self._end = _HEAD_BYTES

    def remove(self) -> None:
        """Close the file and take it away."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._end = _HEAD_BYTES
        self.path.unlink(missing_ok=True)

    def _opened(self) -> int:
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o600)
            self._end = _HEAD_BYTES
            _write_all(self._file, _MAGIC + self._identity, 0)
        return self._file

    def _cut_back(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)


def entries(path: Path, identity: bytes | None) -> Iterator[bytes]:
    """The whole entries of a journal, up to one that a kill cut short; none without a file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"The journal '{path}' cannot be read: {error.strerror}.") from None
    if len(content) <= _HEAD_BYTES:
        return
    if content[:_HEAD_BYTES] != _MAGIC + (identity or b""):
        raise StoreError(
            f"The journal '{path}' belongs to another store, so neither was changed. Put the "
            "store it belongs to beside it, or move the journal away."
        )
    at = _HEAD_BYTES
    while at + _ENTRY.size <= len(content):
        size, checksum = _ENTRY.unpack_from(content, at)
        payload = content[at + _ENTRY.size : at + _ENTRY.size + size]
        if len(payload) < size or zlib.crc32(payload) != checksum:
            return
        yield payload
        at += _ENTRY.size + size


def _write_all(file: int, content: bytes, at: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(file, left, at)
        left, at = left[written:], at + written


def _failure(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"The disk of the journal '{path}' is full; nothing that was kept is lost. "
            "Free some space and it goes on."
        )
    return f"The journal '{path}' cannot be written: {error.strerror}."

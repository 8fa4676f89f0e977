"""A file of entries beside the store: each is whole or absent, whatever ends the process."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from marey.model.errors import StoreError

_MAGIC = b"MAREYJ1\n"
_ID_BYTES = 16
_HEAD_BYTES = len(_MAGIC) + _ID_BYTES
_ENTRY = struct.Struct("<II")
# Ticks are some kilobytes to some megabytes.
_PLAUSIBLE_BYTES = 4 << 20


def get_journal_path(store: Path) -> Path:
    """Return where the journal of this store lies."""
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
            file = self._open()
            _write_all(file, _ENTRY.pack(len(payload), zlib.crc32(payload)) + payload, self._end)
            os.fdatasync(file)
        except OSError as error:
            self._truncate_to_last_entry()
            raise StoreError(_describe_failure(self.path, error)) from error
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

    def _open(self) -> int:
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o600)
            self._end = _HEAD_BYTES
            _write_all(self._file, _MAGIC + self._identity, 0)
        return self._file

    def _truncate_to_last_entry(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)


@dataclass(frozen=True, slots=True)
class JournalContent:
    """The whole entries of a journal, and what of it cannot be read."""

    entries: Sequence[bytes] = ()
    # Where reading ended, and how many bytes follow.
    end: int = 0
    rest: int = 0
    # A kill cuts the last entry short, which was never counted as kept; anything else is damage.
    is_damaged: bool = False


def read_entries(path: Path, identity: bytes | None) -> Iterator[bytes]:
    """Yield the whole entries of a journal, up to one that a kill cut short.

    None without a file.
    """
    yield from read_journal(path, identity).entries


def read_journal(path: Path, identity: bytes | None) -> JournalContent:
    """Return the entries of a journal; one of another store is refused."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return JournalContent()
    except OSError as error:
        raise StoreError(f"The journal '{path}' cannot be read: {error.strerror}.") from None
    if len(content) <= _HEAD_BYTES:
        return JournalContent()
    if content[:_HEAD_BYTES] != _MAGIC + (identity or b""):
        raise StoreError(
            f"The journal '{path}' belongs to another store, so neither was changed. Put the "
            "store it belongs to beside it, or move the journal away."
        )
    return _split_entries(content)


def _split_entries(content: bytes) -> JournalContent:
    entries: list[bytes] = []
    at, largest = _HEAD_BYTES, _PLAUSIBLE_BYTES
    while at + _ENTRY.size <= len(content):
        size, checksum = _ENTRY.unpack_from(content, at)
        payload = content[at + _ENTRY.size : at + _ENTRY.size + size]
        if len(payload) < size or zlib.crc32(payload) != checksum:
            # A size that no tick has is a damaged number, not a cut.
            damaged = len(payload) == size or size > 8 * largest
            return JournalContent(entries, at, len(content) - at, damaged)
        entries.append(payload)
        largest = max(largest, size)
        at += _ENTRY.size + size
    return JournalContent(entries, at, len(content) - at)


def _write_all(file: int, content: bytes, at: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(file, left, at)
        left, at = left[written:], at + written


def _describe_failure(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"The disk of the journal '{path}' is full; nothing that was kept is lost. "
            "Free some space and it goes on."
        )
    return f"The journal '{path}' cannot be written: {error.strerror}."

"""A trace file as a stream of bytes: plain, gzip or zstd, whole or cut short."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import IO, Any

import zstandard
from isal import isal_zlib

_COMPRESSED_BYTES = 1 << 18
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
# What a damaged archive may raise while it is read.
_DAMAGE: tuple[Any, ...] = (
    EOFError,
    OSError,
    zlib.error,
    isal_zlib.error,
    zstandard.ZstdError,
    ValueError,
)


# A trace shrinks twenty- to fiftyfold; what grows more than this, and past this, is made to harm.
GROWTH_LIMIT = 200
GROWTH_FREE_BYTES = 64 << 20


class TraceBytes:
    """The decompressed bytes of a file; damage ends the stream instead of raising."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        self._file = path.open("rb", buffering=0)
        self._size = path.stat().st_size
        magic = self._file.read(4)
        self._file.seek(0)
        self._source: Any = _decompressor(self._file, magic)
        self._given = 0

    def __enter__(self) -> TraceBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fraction(self) -> float:
        """Return how much of the file, as it lies on disk, has been read: 0 to 1."""
        return min(1.0, self._file.tell() / self._size) if self._size else 1.0

    def readinto(self, view: memoryview) -> int:
        """Fill as much of ``view`` as there is; 0 at the end, or where the file is damaged."""
        filled = 0
        while filled < len(view) and self.damage is None:
            try:
                count = self._source.readinto(view[filled:])
            except _DAMAGE as error:
                self.damage = str(error) or type(error).__name__
                break
            if not count:
                break
            filled += count
            self._check_growth(count)
        return filled

    def _check_growth(self, count: int) -> None:
        self._given += count
        if self._given > GROWTH_FREE_BYTES and self._given > GROWTH_LIMIT * self._size:
            self.damage = f"it unpacks to more than {GROWTH_LIMIT} times its size"

    def read(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes."""
        buffer = bytearray(limit)
        return bytes(buffer[: self.readinto(memoryview(buffer))])

    def read_all(self, limit: int) -> bytearray | None:
        """Return everything, or None if that is more than ``limit`` bytes."""
        text = bytearray()
        while piece := self.read(1 << 22):
            text += piece
            if len(text) > limit:
                return None
        return text


def head_of(path: Path, limit: int = 65536) -> bytes:
    """Return the first decompressed bytes of a file, to see what it is."""
    with TraceBytes(path) as stream:
        return stream.read(limit)


class _Gzip:
    """gzip members one after the other; gives all there is before it complains about the end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._member = isal_zlib.decompressobj(wbits=31)
        self._input = b""

    def readinto(self, view: memoryview) -> int:
        """Return some bytes; 0 at the end of the last member."""
        while True:
            if self._member.eof:
                # Zeros after a member are padding; anything else begins the next one.
                self._input = (self._member.unused_data or self._input).lstrip(b"\0")
                while not self._input and self._more():
                    self._input = self._input.lstrip(b"\0")
                if not self._input:
                    return 0
                self._member = isal_zlib.decompressobj(wbits=31)
            there_is_more = bool(self._input) or self._more()
            out = self._member.decompress(self._input, len(view))
            self._input = self._member.unconsumed_tail
            if out:
                view[: len(out)] = out
                return len(out)
            if not there_is_more and not self._member.eof:
                raise EOFError("the compressed data is cut short")

    def _more(self) -> bool:
        self._input = self._file.read(_COMPRESSED_BYTES)
        return bool(self._input)


def _decompressor(file: IO[bytes], magic: bytes) -> Any:
    if magic.startswith(GZIP):
        return _Gzip(file)
    if magic == ZSTD:
        reader = zstandard.ZstdDecompressor(max_window_size=2**27)
        return reader.stream_reader(file, read_across_frames=True)
    return file

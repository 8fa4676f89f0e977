"""Sketches as bytes: a header that says what they are, then compressed arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

MAGIC = b"MAREYSK1"
# Sketches of a hundred thousand GPUs stay far below this; a damaged header must not ask for more.
LARGEST_ARRAY = 8 << 30
_TYPES = {"<f8", "<f4", "<u4", "<u2", "<i8", "<i4", "|u1", "|b1", "|i1"}


class _Array(msgspec.Struct, frozen=True):
    name: str
    type: str
    shape: tuple[int, ...]
    size: int


class _Header(msgspec.Struct, frozen=True):
    document: Any
    arrays: tuple[_Array, ...]


def pack(document: Any, arrays: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Return a JSON document and named arrays, self-describing, as pieces to be written in this
    order.
    """
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    parts = {
        # The array itself, not its bytes: a copy of the largest is 100 MB at 10,000 GPUs.
        name: compressor.compress(np.ascontiguousarray(a).data)
        for name, a in arrays.items()
    }
    listed = tuple(
        _Array(name, a.dtype.str, a.shape, len(parts[name])) for name, a in arrays.items()
    )
    header = compressor.compress(msgspec.json.encode(_Header(document, listed)))
    return [MAGIC, len(header).to_bytes(8, "little"), header, *parts.values()]


def unpack(data: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return the sketch that ``pack`` was given.

    ``ValueError`` for anything but all of its pieces together.
    """
    try:
        return _unpack(data)
    except (zstandard.ZstdError, msgspec.DecodeError, IndexError, OverflowError) as error:
        raise ValueError(f"the sketches are damaged: {error}") from None


def _unpack(data: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    if data[:8] != MAGIC:
        raise ValueError("these are not Marey's sketches, or of another version")
    at = 16 + int.from_bytes(data[8:16], "little")
    decompressor = zstandard.ZstdDecompressor()
    header = msgspec.json.decode(
        decompressor.decompress(data[16:at], max_output_size=256 << 20), type=_Header
    )
    arrays = {}
    for entry in header.arrays:
        arrays[entry.name] = _read_array(entry, decompressor, data[at : at + entry.size])
        at += entry.size
    if at != len(data):
        raise ValueError("the sketches are damaged: their length is not what the header says")
    return header.document, arrays


def _read_array(
    entry: _Array, decompressor: zstandard.ZstdDecompressor, block: bytes
) -> NDArray[Any]:
    if entry.type not in _TYPES:
        raise ValueError(f"the sketches hold an array of type {entry.type[:20]!r}")
    wanted = int(np.prod(entry.shape, dtype=object)) * np.dtype(entry.type).itemsize
    if len(block) != entry.size or not 0 <= wanted <= LARGEST_ARRAY:
        raise ValueError("the sketches are damaged: an array is cut short")
    raw = decompressor.decompress(block, max_output_size=max(wanted, 1))
    if len(raw) != wanted:
        raise ValueError("the sketches are damaged: an array has another length than its shape")
    return np.frombuffer(raw, entry.type).reshape(entry.shape).copy()

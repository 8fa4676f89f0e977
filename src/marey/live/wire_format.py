"""The binary messages of the live connection: a JSON header, then its parts (docs/api.md)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.live.quantise import NO_VALUE

ARROW = "arrow-deflate"
PLANES = "planes-deflate"
ZIGZAG_PLANES = "zigzag-planes-deflate"
JSON = "json"

_HEADER_LENGTH = struct.Struct("<I")
# Level 1 costs a quarter of level 6 and the planes are mostly noise or runs: 3 % larger.
_COLUMN_LEVEL = 1
_TABLE_LEVEL = 4


@dataclass(frozen=True, slots=True)
class Part:
    """One named piece of a message, encoded once and shared by every client."""

    name: str
    encoding: str
    payload: bytes
    facts: Mapping[str, Any] = field(default_factory=dict)


def message(header: Mapping[str, Any], parts: Sequence[Part]) -> bytes:
    """Return header and parts as one message; offsets count from the end of the header."""
    entries = []
    offset = 0
    for part in parts:
        entries.append(
            {
                "name": part.name,
                "encoding": part.encoding,
                "offset": offset,
                "length": len(part.payload),
                **part.facts,
            }
        )
        offset += len(part.payload)
    encoded = msgspec.json.encode({**header, "parts": entries})
    return b"".join((_HEADER_LENGTH.pack(len(encoded)), encoded, *(p.payload for p in parts)))


def split_message(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return header and encoded parts by name: what a client does first."""
    (length,) = _HEADER_LENGTH.unpack_from(data)
    body = 4 + length
    header: dict[str, Any] = msgspec.json.decode(data[4:body])
    parts = {
        part["name"]: data[body + part["offset"] : body + part["offset"] + part["length"]]
        for part in header["parts"]
    }
    return header, parts


def deflate(data: bytes | memoryview, level: int = _TABLE_LEVEL) -> bytes:
    """Compress without a header, which browsers undo natively
    (``DecompressionStream("deflate-raw")``).
    """
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def inflate(data: bytes) -> bytes:
    """Return the bytes that ``deflate`` was given."""
    return zlib.decompress(data, -15)


def table_part(name: str, table: pa.Table, **facts: Any) -> Part:
    """Return a table as an Arrow IPC stream, deflated."""
    return Part(name, ARROW, deflate(arrow_stream(table)), {"rows": table.num_rows, **facts})


def json_part(name: str, document: Any) -> Part:
    """Return a few values as JSON.

    For less than some dozen rows a twentieth of what Arrow costs.
    """
    return Part(name, JSON, msgspec.json.encode(document))


def arrow_stream(table: pa.Table) -> memoryview:
    """Return the table as an Arrow IPC stream with one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def read_table(payload: bytes) -> pa.Table:
    """Return the table of an Arrow part."""
    return pa.ipc.open_stream(inflate(payload)).read_all()


def full_column(codes: NDArray[np.uint16]) -> bytes:
    """Compress a column: all low bytes, then all high bytes."""
    return deflate(_split_planes(codes), _COLUMN_LEVEL)


def changed_column(now: NDArray[np.uint16], before: NDArray[np.uint16]) -> bytes:
    """Compress zigzag differences (mod 65536) to the codes before, as byte planes."""
    difference = (now - grow_codes(before, len(now))).view(np.int16)
    zigzag = ((difference << 1) ^ (difference >> 15)).view(np.uint16)
    return deflate(_split_planes(zigzag), _COLUMN_LEVEL)


def read_full_column(payload: bytes) -> NDArray[np.uint16]:
    """Return the codes of a full column."""
    planes = np.frombuffer(inflate(payload), np.uint8)
    half = len(planes) // 2
    codes: NDArray[np.uint16] = planes[:half].astype(np.uint16)
    codes |= planes[half:].astype(np.uint16) << np.uint16(8)
    return codes


def read_changed_column(payload: bytes, before: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the codes now, from the differences and the codes before."""
    zigzag = read_full_column(payload)
    sign = (-(zigzag & 1).astype(np.int16)).view(np.uint16)
    codes: NDArray[np.uint16] = grow_codes(before, len(zigzag)) + ((zigzag >> 1) ^ sign)
    return codes


def grow_codes(codes: NDArray[np.uint16], rows: int) -> NDArray[np.uint16]:
    """Return the codes with ``NO_VALUE`` for rows that are new."""
    if len(codes) >= rows:
        return codes[:rows]
    return np.concatenate([codes, np.full(rows - len(codes), NO_VALUE, np.uint16)])


def _split_planes(codes: NDArray[np.uint16]) -> bytes:
    pairs = codes.astype("<u2", copy=False).view(np.uint8).reshape(-1, 2)
    return np.ascontiguousarray(pairs.T).tobytes()

"""Just enough of the protobuf wire format to read and write pprof profiles."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from marey.model.errors import InvalidInput
from marey.model.system.varints import read_varint

# A small gzip file can unpack to anything: this is far more than a profile has.
LARGEST_PROFILE_BYTES = 1 << 30
_SIGN = 1 << 63


@dataclass(frozen=True)
class ProtobufMessage:
    """The fields of one message: numbers and byte strings by field number."""

    numbers: dict[int, list[int]]
    parts: dict[int, list[bytes]]

    def number(self, field: int) -> int:
        """Return the last number of a field, 0 if there is none."""
        return self.numbers.get(field, [0])[-1]

    def all(self, field: int) -> list[bytes]:
        """Return every byte string of a field."""
        return self.parts.get(field, [])


def unzip(data: bytes) -> bytes:
    """Return the bytes themselves, or what was compressed; refuse a bomb."""
    if data[:2] != b"\x1f\x8b":
        return data
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        plain = unpacker.decompress(data, LARGEST_PROFILE_BYTES)
    except zlib.error as error:
        raise InvalidInput(f"The profile's gzip data is damaged: {error}.") from None
    if unpacker.unconsumed_tail:
        raise InvalidInput(f"The profile unpacks to more than {LARGEST_PROFILE_BYTES:,} bytes.")
    return plain


def fields_of(data: bytes) -> ProtobufMessage:
    """Split a message into its fields."""
    numbers: dict[int, list[int]] = {}
    parts: dict[int, list[bytes]] = {}
    at = 0
    try:
        while at < len(data):
            key, at = read_varint(data, at)
            field, wire = key >> 3, key & 7
            if wire == 0:
                value, at = read_varint(data, at)
                numbers.setdefault(field, []).append(value)
            elif wire == 2:
                size, at = read_varint(data, at)
                if at + size > len(data):
                    raise IndexError
                parts.setdefault(field, []).append(data[at : at + size])
                at += size
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            else:
                raise IndexError
    except IndexError:
        raise InvalidInput("The pprof profile is damaged: it ends within a field.") from None
    return ProtobufMessage(numbers, parts)


def packed(message: ProtobufMessage, field: int) -> list[int]:
    """Return the numbers of a repeated field, packed or not."""
    found = list(message.numbers.get(field, []))
    for part in message.all(field):
        at = 0
        while at < len(part):
            value, at = read_varint(part, at)
            found.append(value)
    return found


def signed(value: int) -> int:
    """Return an int64 from its two's complement."""
    return value - (1 << 64) if value & _SIGN else value


def writeread_varint(value: int) -> bytes:
    """Return a number in the wire format."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_number(field: int, value: int) -> bytes:
    """Return a numeric field."""
    return writeread_varint(field << 3) + writeread_varint(value)


def write_part(field: int, data: bytes) -> bytes:
    """Return a field of bytes: a text or another message."""
    return writeread_varint(field << 3 | 2) + writeread_varint(len(data)) + data


def write_packed(field: int, values: Iterable[int]) -> bytes:
    """Return a repeated numeric field."""
    return write_part(field, b"".join(writeread_varint(value) for value in values))

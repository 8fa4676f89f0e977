"""The wire format of protocol buffers, just enough to walk a message without a schema compiler."""

from __future__ import annotations

from collections.abc import Iterator

# Field number and value: an int for varints and fixed widths, a view for what has a length.
Field = tuple[int, int | memoryview]
_LONGEST_VARINT = 10


class Malformed(ValueError):
    """The bytes are not a protocol buffer, or are cut short."""


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message in their order.

    Raises ``Malformed`` where it does not parse.
    """
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise Malformed("field number 0")
        value: int | memoryview
        if wire == 0:
            value, position = _varint(message, position)
        elif wire == 2:
            length, position = _varint(message, position)
            if position + length > end:
                raise Malformed("a field is longer than its message")
            value = message[position : position + length]
            position += length
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            if position + width > end:
                raise Malformed("a number is cut short")
            value = int.from_bytes(message[position : position + width], "little")
            position += width
        else:
            raise Malformed(f"wire type {wire}")
        yield number, value


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for count in range(_LONGEST_VARINT):
        if position + count >= len(message):
            raise Malformed("a number is cut short")
        byte = message[position + count]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + count + 1
        shift += 7
    raise Malformed("a number is too long")


def signed(value: int) -> int:
    """Return a 64-bit varint as the signed number it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(value: int | memoryview) -> str:
    """Return a length-delimited field as text."""
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else ""

"""Protocol-buffer messages by hand, as the profilers write them."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """A number in groups of seven bits; a negative one as its 64-bit complement."""
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes | int) -> bytes:
    """One field: a number, or bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content

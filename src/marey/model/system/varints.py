"""Numbers of variable length, as protocol buffers write them."""

from __future__ import annotations

from marey.model.errors import InvalidInput

_MOST_BITS = 63


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place after it.

    Raises ``InvalidInput`` for a number without an end, and ``IndexError`` where the data ends
    within it.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > _MOST_BITS:
            raise InvalidInput("The data is damaged: a number has no end.")

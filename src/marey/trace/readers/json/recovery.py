"""Finding where JSON values end by walking them, and what is left of a damaged stretch."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]|"', re.DOTALL)
_SCALAR_END = re.compile(rb"[\s,\]}]")
_EVENT_START = re.compile(rb'\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|bp|s|args)"\s*:')
_OPENING, _CLOSING = b"{[", b"}]"
# What writers leave in strings although JSON forbids it: control characters, lone backslashes.
_CONTROL = bytes(b if b >= 32 else 32 for b in range(256))
_NOT_ASCII = bytes(b if b < 128 else ord("?") for b in range(256))
_ESCAPE = re.compile(rb'\\(["\\/bfnrtu])|\\')
DEEPEST = 512
# Hostile text could make every start a long walk: the sum of the walks is bounded.
WALKS_PER_BYTE = 8
LONGEST_EVENT_BYTES = 1 << 20


@dataclass(frozen=True)
class Walk:
    """Where the events of an array's contents end."""

    # End of the last complete event, if there is one.
    events_end: int | None = None
    # Whether the array closes right after it.
    closed: bool = False


def walk(buffer: bytearray, start: int, stop: int) -> Walk:
    """Walk the contents of an array, up to its closing bracket or as far as they are complete."""
    depth = 0
    events_end: int | None = None
    for token in _TOKEN.finditer(buffer, start, stop):
        byte = buffer[token.start()]
        if byte in _OPENING:
            depth += 1
        elif byte in _CLOSING:
            if depth == 0:
                return Walk(events_end, closed=byte == ord("]"))
            depth -= 1
            if depth == 0:
                events_end = token.end()
        if depth > DEEPEST or _is_lone_quote(token):
            break
    return Walk(events_end)


def value_end(buffer: bytearray, start: int, stop: int) -> int | None:
    """Return the end of the value that starts here; None if it goes on beyond ``stop``."""
    if start < stop and buffer[start] not in b'{["':
        found = _SCALAR_END.search(buffer, start, stop)
        return found.start() if found else None
    depth = 0
    for token in _TOKEN.finditer(buffer, start, stop):
        byte = buffer[token.start()]
        depth += (byte in _OPENING) - (byte in _CLOSING)
        if depth > DEEPEST or _is_lone_quote(token):
            return None
        if depth <= 0:
            return token.end()
    return None


def _is_lone_quote(token: re.Match[bytes]) -> bool:
    """Return whether a quote's string does not end within the text."""
    return token.end() - token.start() == 1 and token.group() == b'"'


def recover(buffer: bytearray, start: int, stop: int) -> tuple[list[tuple[int, int]], int]:
    """Return the places of events that are whole or could be mended, and how many were
    passed over.
    """
    spans: list[tuple[int, int]] = []
    dropped, position = 0, start
    budget = WALKS_PER_BYTE * (stop - start) + LONGEST_EVENT_BYTES
    while budget > 0 and (found := _EVENT_START.search(buffer, position, stop)):
        begin = found.start()
        limit = min(stop, begin + LONGEST_EVENT_BYTES)
        end = value_end(buffer, begin, limit)
        budget -= (end or limit) - begin
        if end is not None and (_is_json(buffer, begin, end) or _mend_event(buffer, begin, end)):
            spans.append((begin, end))
            position = end
        else:
            dropped += 1
            position = begin + 1
    return spans, dropped


def _mend_event(buffer: bytearray, start: int, stop: int) -> bool:
    """Make JSON of an event whose strings hold what JSON forbids; its length stays the same."""
    event = _ESCAPE.sub(lambda found: found.group() if found.group(1) else b"/", buffer[start:stop])
    event = event.translate(_CONTROL)
    try:
        event.decode("utf-8")
    except UnicodeDecodeError:
        event = event.translate(_NOT_ASCII)
    if not _is_json(bytearray(event), 0, len(event)):
        return False
    buffer[start:stop] = event
    return True


def _is_json(buffer: bytearray, start: int, stop: int) -> bool:
    with memoryview(buffer)[start:stop] as text:
        try:
            msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
    return True

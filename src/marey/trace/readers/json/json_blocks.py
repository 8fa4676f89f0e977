"""Chrome-trace JSON in blocks: the header's members, the events a block at a time, the trailer.

Memory is bounded by the block, whatever the size of the file. A block is cut between two events by
looking for the last ``}, {`` in it; a cut that falls into a string or a nested object cannot parse,
so a wrong guess is noticed and the block is then walked character by character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from marey.trace.readers.json.raw_columns import BlockCollector, Parser
from marey.trace.readers.json.recovery import recover, value_end, walk
from marey.trace.readers.streams import TraceBytes

BLOCK_BYTES = 4 << 20
# simdjson reads up to 64 bytes past the end of its text, which may itself grow by a bracket.
PADDING = 80
# One event, or one member of the header, may not be larger than this.
LARGEST_ITEM_BYTES = 64 << 20
GUESSES = 4
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_LAST = re.compile(rb"\}\s*\]")
_SPACE = re.compile(rb"[\s\x00]*")
_BYTE_ORDER_MARK = re.compile(rb"(?:\xef\xbb\xbf)?")
_SEPARATION = re.compile(rb"[\s,]*")
_KEY = re.compile(rb'\s*,?\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_OPENING = tuple(b"{[")
EVENTS_KEY = b"traceEvents"


@dataclass
class Document:
    """One JSON document of a file: its members other than the events, and where its rows start."""

    members: dict[str, Any] = field(default_factory=dict)
    first_span: int = 0
    complete: bool = False


@dataclass
class Reading:
    """What reading a file brought to light."""

    documents: list[Document] = field(default_factory=list)
    dropped: int = 0
    problems: list[str] = field(default_factory=list)
    # Whether the file ends before its text does, or is not what its checksums say.
    cut_short: bool = False


class _Window:
    """The part of the stream that is in memory; ``start`` moves forward, ``fill`` brings more."""

    def __init__(
        self, stream: TraceBytes, block_bytes: int, progress: Callable[[float], None] | None
    ) -> None:
        self.progress = progress
        self.stream = stream
        self.buffer = bytearray(block_bytes + PADDING)
        # One byte in front stays free for the bracket that makes a block an array.
        self.start = self.stop = 1
        self.ended = False

    def fill(self) -> bool:
        """Bring more of the stream in; False if there was nothing more, or no room is allowed."""
        if self.ended:
            return False
        held = self.stop - self.start
        if self.start > 1:
            self.buffer[1 : 1 + held] = self.buffer[self.start : self.stop]
            self.start, self.stop = 1, 1 + held
        if self.stop >= len(self.buffer) - PADDING:
            if len(self.buffer) > LARGEST_ITEM_BYTES:
                return False
            self.buffer.extend(bytes(len(self.buffer)))
        room = memoryview(self.buffer)[self.stop : len(self.buffer) - PADDING]
        count = self.stream.readinto(room)
        self.ended = count < len(room)
        self.stop += count
        if self.progress is not None:
            self.progress(self.stream.fraction())
        return count > 0

    def skip(self, pattern: re.Pattern[bytes]) -> int:
        """Pass over what matches; the next byte, or -1 at the end of the stream."""
        while True:
            found = pattern.match(self.buffer, self.start, self.stop)
            self.start = found.end() if found else self.start
            if self.start < self.stop:
                return self.buffer[self.start]
            if not self.fill():
                return -1


def read_events(
    stream: TraceBytes,
    parser: Parser,
    collector: BlockCollector,
    *,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[float], None] | None = None,
) -> Reading:
    """Read every document of a file into the collector; what cannot be read is reported."""
    window = _Window(stream, block_bytes, progress)
    reading = Reading()
    window.skip(_BYTE_ORDER_MARK)
    while (byte := window.skip(_SPACE)) in _OPENING:
        document = Document(first_span=collector.rows("spans"))
        reading.documents.append(document)
        window.start += 1
        if byte == ord("["):
            document.complete = _read_array(window, parser, collector, reading)
        else:
            document.complete = _read_object(
                window, parser=parser, collector=collector, reading=reading, document=document
            )
        if not document.complete:
            break
    else:
        if byte != -1:
            reading.problems.append("there is something that is not JSON after the trace")
    reading.cut_short = bool(stream.damage) or any(not d.complete for d in reading.documents)
    if stream.damage:
        reading.problems.append(f"the file is damaged or cut short ({stream.damage})")
    elif reading.documents and not reading.documents[-1].complete:
        reading.problems.append("the file is cut short or damaged inside")
    if len(reading.documents) > 1:
        reading.problems.append(f"holds {len(reading.documents)} traces one after the other")
    if reading.dropped:
        reading.problems.append(f"{reading.dropped} events could not be read and are left out")
    return reading


def _read_object(
    window: _Window,
    *,
    parser: Parser,
    collector: BlockCollector,
    reading: Reading,
    document: Document,
) -> bool:
    """Read members one by one; True if the object was closed."""
    while True:
        byte = window.skip(_SEPARATION)
        if byte == ord("}"):
            window.start += 1
            return True
        key = _next_key(window) if byte == ord('"') else None
        if key is None:
            return False
        if key == EVENTS_KEY and window.skip(_SPACE) == ord("["):
            window.start += 1
            if not _read_array(window, parser, collector, reading):
                return False
        elif not _read_member(window, key, document):
            return False


def _next_key(window: _Window) -> bytes | None:
    while True:
        found = _KEY.match(window.buffer, window.start, window.stop)
        if found and found.end() < window.stop:
            window.start = found.end()
            return found.group(1)
        if not window.fill():
            return None


def _read_member(window: _Window, key: bytes, document: Document) -> bool:
    """Return one member that is not the events, decoded; False if it is cut short or too large."""
    while True:
        end = value_end(window.buffer, window.start, window.stop)
        if end is not None:
            break
        if not window.fill():
            return False
    text = memoryview(window.buffer)[window.start : end]
    try:
        document.members[key.decode("utf-8", "replace")] = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    finally:
        text.release()
    window.start = end
    return True


def _read_array(
    window: _Window, parser: Parser, collector: BlockCollector, reading: Reading
) -> bool:
    """Return the events of an array, block by block; True if its closing bracket was found."""
    while True:
        if window.skip(_SEPARATION) == ord("]"):
            window.start += 1
            return True
        if window.start > 1:
            window.fill()
        if window.start >= window.stop:
            return False
        step = _parse_guess(window, parser, collector) or _parse_walked(
            window, parser, collector, reading
        )
        if step == "more":
            continue
        return step == "closed"


def _parse_guess(window: _Window, parser: Parser, collector: BlockCollector) -> str | None:
    """Cut where events very probably end; None if no guess holds."""
    pattern, result = (_LAST, "closed") if window.ended else (_BETWEEN, "more")
    for cut in _last_matches(
        pattern, buffer=window.buffer, start=window.start, stop=window.stop, count=GUESSES
    ):
        if _parse(window, parser, collector, cut):
            window.start = cut
            if result == "closed":
                window.skip(_SEPARATION)
                window.start += 1
            return result
    return None


def _parse_walked(
    window: _Window, parser: Parser, collector: BlockCollector, reading: Reading
) -> str | None:
    """Cut by walking the block; what is damaged in it is passed over and counted."""
    found = walk(window.buffer, window.start, window.stop)
    if found.events_end is not None and _parse(window, parser, collector, found.events_end):
        window.start = found.events_end
    elif found.events_end is None and not found.closed:
        if window.fill():
            return "more"
        return _salvage(
            window, stop=window.stop, parser=parser, collector=collector, reading=reading
        )
    elif found.events_end is not None:
        _salvage(window, stop=found.events_end, parser=parser, collector=collector, reading=reading)
    if found.closed:
        window.skip(_SEPARATION)
        window.start += 1
        return "closed"
    if window.ended:
        return _salvage(
            window, stop=window.stop, parser=parser, collector=collector, reading=reading
        )
    return "more"


def _salvage(
    window: _Window, *, stop: int, parser: Parser, collector: BlockCollector, reading: Reading
) -> str:
    """Take the events of a damaged stretch one by one."""
    spans, dropped = recover(window.buffer, window.start, stop)
    reading.dropped += dropped
    for begin, end in spans:
        piece = bytearray(b"[" + window.buffer[begin:end] + b"]" + bytes(PADDING))
        block = parser.parse(piece, 0, len(piece) - PADDING)
        if block is None:
            reading.dropped += 1
        else:
            collector.add(block, parser)
    window.start = stop
    return "cut"


def _parse(window: _Window, parser: Parser, collector: BlockCollector, cut: int) -> bool:
    """Parse from the window's start to ``cut`` as one array."""
    before, at = window.buffer[window.start - 1], window.buffer[cut]
    window.buffer[window.start - 1], window.buffer[cut] = ord("["), ord("]")
    block = parser.parse(window.buffer, window.start - 1, cut + 1)
    window.buffer[window.start - 1], window.buffer[cut] = before, at
    if block is None:
        return False
    collector.add(block, parser)
    return True


def _last_matches(
    pattern: re.Pattern[bytes], *, buffer: bytearray, start: int, stop: int, count: int
) -> list[int]:
    """Return the ends of the events before the last few matches, the very last first."""
    reach = 1 << 16
    while True:
        low = max(start, stop - reach)
        found = [m.start() + 1 for m in pattern.finditer(buffer, low, stop)]
        if found or low == start:
            return found[: -count - 1 : -1]
        reach *= 8

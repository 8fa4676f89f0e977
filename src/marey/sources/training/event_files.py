"""TensorBoard's event files, read without TensorBoard: records of TFRecord, scalars of summaries.

A record is its length, a checksum, the bytes of an ``Event`` and a checksum. A file that is still
written ends in the middle of a record; everything before it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from marey.model.errors import InvalidInput, shown
from marey.model.system.varints import read_varint

# More than any summary of scalars; a longer one is skipped, not loaded.
LONGEST_RECORD = 64 << 20
MOST_POINTS = 5_000_000
PATTERN = "*tfevents*"
_FLOAT, _DOUBLE = 1, 2

# Tag → (wall time in seconds, step, value), in the order of the files.
Scalars = dict[str, list[tuple[float, int, float]]]
Field = tuple[int, int, bytes | int]


def find_event_folders(root: Path) -> list[Path]:
    """Return the folders that hold event files: one run each."""
    if not root.exists():
        raise InvalidInput(f"There is no file or folder {shown(str(root))}.")
    if root.is_file():
        return [root] if "tfevents" in root.name else []
    return sorted({path.parent for path in root.rglob(PATTERN) if path.is_file()})


def read_scalars(place: Path) -> tuple[Scalars, list[str]]:
    """Return every scalar of a run's files by tag, and what could not be read."""
    files = [place] if place.is_file() else sorted(place.glob(PATTERN))
    found: Scalars = {}
    notes: list[str] = []
    count = 0
    for file in files:
        for event in _read_records(file, notes):
            for tag, point in _scalars_of(event, notes):
                found.setdefault(tag, []).append(point)
                count += 1
            if count > MOST_POINTS:
                notes.append(f"only the first {MOST_POINTS:,} points were read")
                return found, notes
    for points in found.values():
        points.sort(key=lambda point: (point[1], point[0]))
    return found, list(dict.fromkeys(notes))


def _read_records(path: Path, notes: list[str]) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            (length,) = struct.unpack("<Q", head[:8])
            if length > LONGEST_RECORD:
                if file.tell() + length + 4 > size:
                    notes.append(f"{path.name} is damaged or no event file")
                    return
                file.seek(length + 4, 1)
                notes.append("records beyond 64 MB were skipped")
                continue
            data = file.read(length)
            if len(data) < length or len(file.read(4)) < 4:
                notes.append(f"{path.name} ends in the middle of a record")
                return
            yield data


def _scalars_of(event: bytes, notes: list[str]) -> Iterator[tuple[str, tuple[float, int, float]]]:
    """Yield (tag, (time, step, value)) of one event."""
    time_s, step, summaries = 0.0, 0, []
    try:
        for number, wire, value in _fields(event):
            if number == 1 and wire == 1 and isinstance(value, bytes):
                (time_s,) = struct.unpack("<d", value)
            elif number == 2 and isinstance(value, int):
                step = value if value < 1 << 63 else value - (1 << 64)
            elif number == 5 and isinstance(value, bytes):
                summaries.append(value)
        for summary in summaries:
            for number, _, value in _fields(summary):
                if number == 1 and isinstance(value, bytes):
                    tag, scalar = _value_of(value)
                    if scalar is not None:
                        yield tag, (time_s, step, scalar)
    except (struct.error, IndexError, InvalidInput):
        notes.append("some records are damaged and were skipped")


def _value_of(data: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, wire, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode("utf-8", "replace")[:200]
        elif number == 2 and wire == 5:
            (scalar,) = struct.unpack("<f", value)
        elif number == 8:
            scalar = _tensor_value(value)
    return tag, scalar


def _tensor_value(data: bytes) -> float | None:
    """Return the one number of a tensor; None where it holds anything else."""
    kind, content = 0, b""
    for number, wire, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value if wire == 2 else content + value
    if kind == _FLOAT and len(content) == 4:
        return float(struct.unpack("<f", content)[0])
    if kind == _DOUBLE and len(content) == 8:
        return float(struct.unpack("<d", content)[0])
    return None


def _fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = read_varint(data, at)
            yield number, wire, value
            continue
        if wire == 2:
            length, at = read_varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise InvalidInput(f"A field has wire type {wire}.")
        if at + length > len(data):
            raise InvalidInput("A field goes beyond its message.")
        yield number, wire, data[at : at + length]
        at += length

"""The pure-Python block parser: msgspec decodes, numpy makes columns.

It gives the same values as the native parser, which takes over where it was built.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from marey.model.system.garbage import collecting_paused
from marey.trace.readers.json.raw_columns import (
    EXACT_DOUBLE_US,
    INT_ARGS,
    JSON_ARGS,
    LARGEST_US,
    NO_TIME,
    OPERATOR_PREFIXES,
    PHASES,
    TEXT_ARGS,
    Block,
    Ints,
    Lane,
    Sparse,
)

_INT_FIELDS = [f"i{n}" for n in range(len(INT_ARGS))]
_TEXT_FIELDS = [f"t{n}" for n in range(len(TEXT_ARGS))]
_JSON_FIELDS = [f"j{n}" for n in range(len(JSON_ARGS))]
_NO_JSON = msgspec.Raw(b"")

_Args = msgspec.defstruct(
    "_Args",
    [(f, Any, None) for f in _INT_FIELDS + _TEXT_FIELDS]
    + [(f, msgspec.Raw, _NO_JSON) for f in _JSON_FIELDS],
    rename=dict(
        zip(
            _INT_FIELDS + _TEXT_FIELDS + _JSON_FIELDS,
            INT_ARGS + TEXT_ARGS + JSON_ARGS,
            strict=True,
        )
    ),
    gc=False,
)


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: Any = None


# The ordinary event has an object for arguments; anything else takes the patient decoder below.
_Plain = msgspec.defstruct(
    "_Plain",
    [(f, Any, None) for f in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id")]
    + [("args", _Args | None, None)],
    gc=False,
)
_Timed = msgspec.defstruct(
    "_Timed", [("ts", msgspec.Raw, _NO_JSON), ("dur", msgspec.Raw, _NO_JSON)], gc=False
)
_plain = msgspec.json.Decoder(list[_Plain])  # type: ignore[valid-type]  # it is made at run time
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_one = msgspec.json.Decoder(_Plain)
_timed: Any = msgspec.json.Decoder(_Timed)
_get_event = operator.attrgetter("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args")
_get_ints = operator.attrgetter(*_INT_FIELDS)
_get_texts = operator.attrgetter(*_TEXT_FIELDS)
_get_jsons = operator.attrgetter(*_JSON_FIELDS)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}\Z|0[xX][0-9a-fA-F]{1,16}\Z")
_DECIMAL = re.compile(r"\s*-?[0-9]{1,16}(?:\.[0-9]+)?\s*\Z")
_PHASES = frozenset(chr(byte) for byte in PHASES)
_INT64 = (-(2**63), 2**63 - 1)


class MsgspecParser:
    """Blocks of JSON events to raw columns without any compiled code of ours."""

    def __init__(self, *, times_as_texts: bool = False) -> None:
        self._texts: dict[str, int] = {}
        self._lanes: dict[Lane, int] = {}
        # Whether a quoted number is a time: Ascend's tools write times so, nobody else should.
        self._times_as_texts = times_as_texts

    def texts(self) -> list[str]:
        """Return every text coded so far, at the position of its code."""
        return list(self._texts)

    def lanes(self) -> list[Lane]:
        """Return every (process, thread) seen so far, at the position of its code."""
        return list(self._lanes)

    def parse(self, buffer: bytearray, start: int, stop: int) -> Block | None:
        """Return the events of ``buffer[start:stop]``, a JSON array.

        None if that is not valid JSON.
        """
        with collecting_paused(), memoryview(buffer)[start:stop] as text:
            return self._parse(text)

    def _parse(self, text: memoryview) -> Block | None:
        try:
            events = _decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        kept = _keep(events)
        chosen = events if len(kept) == len(events) else [events[n] for n in kept]
        columns = list(zip(*map(_get_event, chosen), strict=True)) or [()] * 9
        if self._times_as_texts:
            columns[5:7] = [_unquote(column) for column in columns[5:7]]
        block = self._block(columns)
        _read_digits(block, text, kept, columns[5:7])
        return block

    def _block(self, columns: Sequence[Sequence[Any]]) -> Block:
        phase, category, name, pid, tid, start, dur, own_id, args = columns
        size = len(phase)
        names, categories = _texts(name), _texts(category)
        return Block(
            phase=np.frombuffer("".join(phase).encode("ascii"), np.uint8),
            category=self._codes(categories),
            name=self._codes(names),
            lane=self._lane_codes(pid, tid, size),
            start_ns=_times(start, NO_TIME),
            dur_ns=np.maximum(_times(dur, 0), 0),
            args={**_ids(own_id), **self._arguments(args, names)},
        )

    def _codes(self, texts: list[str]) -> Any:
        known = self._texts
        for text in dict.fromkeys(texts):
            if text not in known:
                known[text] = len(known)
        return np.fromiter(map(known.__getitem__, texts), np.int32, len(texts))

    def _lane_codes(self, pid: Sequence[Any], tid: Sequence[Any], size: int) -> Any:
        known = self._lanes
        # Equal values of other types (1, 1.0 and True) would be taken for each other.
        usual = {int, str, type(None)}
        if not (usual >= set(map(type, pid)) and usual >= set(map(type, tid))):
            pid, tid = list(map(_place, pid)), list(map(_place, tid))
        codes = {}
        for pair in dict.fromkeys(zip(pid, tid, strict=True)):
            lane: Lane = (_place(pair[0]), _place(pair[1]))
            codes[pair] = known.setdefault(lane, len(known))
        return np.fromiter(map(codes.__getitem__, zip(pid, tid, strict=True)), np.int32, size)

    def _arguments(self, args: Sequence[Any], names: list[str]) -> dict[str, Sparse]:
        present = [n for n, a in enumerate(args) if a is not None]
        if not present:
            return {}
        structs = [args[n] for n in present]
        found: dict[str, Sparse] = {}
        for key, column in zip(INT_ARGS, zip(*map(_get_ints, structs), strict=True), strict=True):
            _add(found, key=key, rows=present, column=column, convert=_whole)
        for key, column in zip(TEXT_ARGS, zip(*map(_get_texts, structs), strict=True), strict=True):
            _add(found, key=key, rows=present, column=column, convert=self._text_code)
        talking = [n for n in present if names[n].startswith(OPERATOR_PREFIXES)]
        if talking:
            rows = [_get_jsons(args[n]) for n in talking]
            for key, column in zip(JSON_ARGS, zip(*rows, strict=True), strict=True):
                _add(found, key=key, rows=talking, column=column, convert=self._json_code)
        return found

    def _text_code(self, value: Any) -> int | None:
        text = _text(value)
        return self._texts.setdefault(text, len(self._texts)) if text else None

    def _json_code(self, value: msgspec.Raw) -> int | None:
        text = bytes(value).decode()
        return self._texts.setdefault(text, len(self._texts)) if text else None


def _decode(text: memoryview) -> list[Any]:
    """Return the events; those whose fields have unusual types are taken apart one by one."""
    try:
        return _plain.decode(text)
    except msgspec.ValidationError:
        return [_patient(event) for event in _raws.decode(text)]


def _patient(raw: msgspec.Raw) -> Any:
    """Return one event: as usual if it can be, otherwise what is usable of it."""
    try:
        return _one.decode(raw)
    except msgspec.ValidationError:
        event = msgspec.json.decode(raw)
    if not isinstance(event, dict):
        return _Event()
    args = event.get("args")
    if isinstance(args, dict):
        ints = {f: args.get(k) for f, k in zip(_INT_FIELDS, INT_ARGS, strict=True)}
        texts = {f: args.get(k) for f, k in zip(_TEXT_FIELDS, TEXT_ARGS, strict=True)}
        args = _Args(**ints, **texts)
    else:
        args = None
    known = {k: event.get(k) for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id")}
    return _Event(**known, args=args)


def _keep(events: list[Any]) -> list[int]:
    """Return the places of the events whose phase carries something."""
    try:
        return [n for n, event in enumerate(events) if event.ph in _PHASES]
    except TypeError:  # a phase that is a list or an object
        return [n for n, e in enumerate(events) if type(e.ph) is str and e.ph in _PHASES]


def _texts(values: Sequence[Any]) -> list[str]:
    return list(values) if set(map(type, values)) <= {str} else [_text(v) for v in values]


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    return str(value) if type(value) is int and _INT64[0] <= value < 2**64 else ""


def _place(value: Any) -> int | str | None:
    if type(value) is int:
        return value if _INT64[0] <= value <= _INT64[1] else None
    return value if type(value) is str else None


def _whole(value: Any) -> int | None:
    """Return a number, or the text of one, as an integer; None for anything else.

    Ids of 64 bits without sign keep their bits; the largest is what writers put for "none".
    """
    kind = type(value)
    if kind is int:
        if 2**63 <= value < 2**64 - 1:
            return int(value - 2**64)
        return value if _INT64[0] <= value <= _INT64[1] else None
    if kind is float:
        return int(value) if math.isfinite(value) and abs(value) < 2.0**62 else None
    if kind is str and _WHOLE.match(value):
        number = int(value, 16 if value[:2].lower() == "0x" else 10)
        return number if _INT64[0] <= number <= _INT64[1] else None
    return None


def _add(
    found: dict[str, Sparse], *, key: str, rows: list[int], column: Sequence[Any], convert: Any
) -> None:
    """Put the values that are there under ``key``."""
    missing = column.count(None)
    if missing == len(column):
        return
    if missing:
        rows = [n for n, v in zip(rows, column, strict=True) if v is not None]
        column = [v for v in column if v is not None]
    if convert is _whole and set(map(type, column)) == {int}:
        with contextlib.suppress(OverflowError):
            found[key] = Sparse(np.array(rows, np.int32), np.array(column, np.int64))
            return
    kept = [(n, c) for n, c in zip(rows, map(convert, column), strict=True) if c is not None]
    if kept:
        where, values = zip(*kept, strict=True)
        found[key] = Sparse(np.array(where, np.int32), np.array(values, np.int64))


def _ids(own_id: Sequence[Any]) -> dict[str, Sparse]:
    found: dict[str, Sparse] = {}
    _add(found, key="id", rows=list(range(len(own_id))), column=own_id, convert=_whole)
    return found


def _times(values: Sequence[Any], missing: int) -> Ints:
    """Convert microseconds to nanoseconds, to the nearest."""
    if set(map(type, values)) <= {float, int, type(None)}:
        # A double holds every whole number of microseconds that is not too large anyway.
        with contextlib.suppress(OverflowError):
            number = np.array(values, np.float64)
            usable = np.abs(number) < LARGEST_US
            return np.where(usable, _round_ns(np.where(usable, number, 0.0)), missing)
    return np.array([_time(v, missing) for v in values], np.int64)


def _round_ns(us: Any) -> Any:
    """Round whole and fraction apart: multiplied together they would be rounded twice."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def _unquote(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values, with quoted times read from their digits."""
    return tuple(_Nanoseconds(v) if type(v) is str and _DECIMAL.match(v) else v for v in values)


class _Nanoseconds:
    """A time whose digits were quoted; a double would not hold it."""

    def __init__(self, digits: str) -> None:
        self.ns = exact_ns(digits.strip().encode(), NO_TIME)


def _time(value: Any, missing: int) -> int:
    if type(value) is _Nanoseconds:
        return value.ns if value.ns != NO_TIME else missing
    if type(value) is int:
        return value * 1000 if abs(value) < LARGEST_US else missing
    if type(value) is float and abs(value) < LARGEST_US:
        return int(_round_ns(np.float64(value)))
    return missing


def _large_rows(times_ns: Ints, values: Sequence[Any]) -> list[int]:
    """Return the rows whose time was written with a fraction that a double cannot hold."""
    large = np.abs(times_ns // 1000) >= int(EXACT_DOUBLE_US)
    return [row for row in np.flatnonzero(large).tolist() if type(values[row]) is float]


def _read_digits(
    block: Block, text: memoryview, kept: list[int], values: Sequence[Sequence[Any]]
) -> None:
    """Replace times that a double cannot hold to the nanosecond by what their digits say."""
    starts = _large_rows(block.start_ns, values[0])
    durations = _large_rows(block.dur_ns, values[1])
    raws = _raws.decode(text) if starts or durations else []
    for row in starts:
        digits = bytes(_timed.decode(raws[kept[row]]).ts)
        block.start_ns[row] = exact_ns(digits, NO_TIME)
    for row in durations:
        digits = bytes(_timed.decode(raws[kept[row]]).dur)
        block.dur_ns[row] = max(exact_ns(digits, 0), 0)


def exact_ns(digits: bytes, missing: int) -> int:
    """Read nanoseconds from the digits of a decimal number of microseconds, to the nearest."""
    value = float(digits)
    if abs(value) >= LARGEST_US:
        return missing
    if b"e" in digits or b"E" in digits:
        return int(_round_ns(np.float64(value)))
    whole, _, fraction = digits.partition(b".")
    padded = (fraction + b"0000")[:4]
    ns = abs(int(whole)) * 1000 + int(padded[:3]) + (padded[3:4] >= b"5")
    return -ns if whole.startswith(b"-") else ns

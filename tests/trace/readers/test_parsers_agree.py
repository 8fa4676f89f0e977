"""The native parser and the pure-Python one give the same values, on every file there is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.system.native import native_module
from marey.trace.readers.json.chrome_json import read_raw
from marey.trace.readers.json.json_blocks import PADDING
from marey.trace.readers.json.msgspec_parser import MsgspecParser
from marey.trace.readers.json.native_parser import NativeParser
from marey.trace.readers.json.raw_columns import (
    COMMUNICATION_PREFIXES,
    INT_ARGS,
    JSON_ARGS,
    NO_TIME,
    TEXT_ARGS,
    Block,
    RawEvents,
    empty_block,
)

TEXT_KEYS = {*TEXT_ARGS, *JSON_ARGS}


def assert_same_blocks(a: Block, a_raw: RawEvents, b: Block, b_raw: RawEvents) -> None:
    """Value by value; codes are compared by the text they stand for."""
    np.testing.assert_array_equal(a.phase, b.phase)
    np.testing.assert_array_equal(a.start_ns, b.start_ns)
    np.testing.assert_array_equal(a.dur_ns, b.dur_ns)
    known = {text: code for code, text in enumerate(b_raw.texts)}
    codes = np.array([known.get(text, -1) for text in a_raw.texts], np.int64)
    np.testing.assert_array_equal(codes[a.name], b.name)
    np.testing.assert_array_equal(codes[a.category], b.category)
    places = {lane: code for code, lane in enumerate(b_raw.lanes)}
    lanes = np.array([places.get(lane, -1) for lane in a_raw.lanes], np.int64)
    np.testing.assert_array_equal(lanes[a.lane], b.lane)
    assert a.args.keys() == b.args.keys()
    for key, mine in a.args.items():
        theirs = b.args[key]
        np.testing.assert_array_equal(mine.rows, theirs.rows, err_msg=key)
        values = codes[mine.values] if key in TEXT_KEYS else mine.values
        np.testing.assert_array_equal(values, theirs.values, err_msg=key)


def assert_parsers_agree(path: Path) -> int:
    if native_module() is None:
        pytest.fail("the native parser was not built")
    mine, my_reading = read_raw(path, NativeParser())
    theirs, their_reading = read_raw(path, MsgspecParser())
    for part in ("spans", "flows", "instants", "metadata"):
        assert_same_blocks(getattr(mine, part), mine, getattr(theirs, part), theirs)
    assert my_reading == their_reading
    return len(mine.spans.phase)


def json_files(folder: Path) -> list[Path]:
    return sorted(
        p for p in folder.rglob("*") if ".json" in p.name and not p.name.startswith("et_")
    )


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    "folder",
    [
        *("bytedance-ST", "deepseek", "hta", "jax-cpu", "kineto-resnet50", "tracelens"),
        *(f"torch-cpu/{run}" for run in ("ddp", "ddp-slow-data", "fsdp2", "pp")),
    ],
)
def test_both_parsers_give_the_same_values_on_every_real_file(data_dir: Path, folder: str) -> None:
    files = json_files(data_dir / "traces" / folder)
    assert files
    assert sum(assert_parsers_agree(path) for path in files) > 0


TEXT = st.text(max_size=12) | st.sampled_from(
    ["ncclDevKernel_AllReduce", "c10d::send", "é\u2028\n\\"]
)
NUMBER = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**13), 10**13, places=3).map(float)
    | st.integers(0, 10**13)
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | NUMBER
    | TEXT
    | st.sampled_from(["0x1f", "-12", "+7", "12 ", "1e3"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGS = st.dictionaries(st.sampled_from([*INT_ARGS, *TEXT_ARGS, *JSON_ARGS, "other"]), ANYTHING)
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from("XXXXBEsftiIMC") | ANYTHING,
        "cat": TEXT | ANYTHING,
        "name": TEXT | st.sampled_from([p + "x" for p in COMMUNICATION_PREFIXES]) | ANYTHING,
        "pid": NUMBER | ANYTHING,
        "tid": NUMBER | ANYTHING,
        "ts": NUMBER | ANYTHING,
        "dur": NUMBER | ANYTHING,
        "id": ANYTHING,
        "args": ARGS | ANYTHING,
        "other": ANYTHING,
    },
)


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENT | ANYTHING, max_size=5), st.sampled_from([None, 2]))
def test_both_parsers_give_the_same_values_on_any_json(
    events: list[object], indent: int | None
) -> None:
    text = json.dumps(events, ensure_ascii=indent is None, indent=indent).encode()
    buffer = bytearray(text + bytes(PADDING))
    blocks, raws = [], []
    for parser in (NativeParser(), MsgspecParser()):
        block = parser.parse(buffer, 0, len(text))
        assert block is not None
        empty = empty_block()
        blocks.append(block)
        raws.append(RawEvents(parser.texts(), parser.lanes(), block, empty, empty, empty))
    assert_same_blocks(blocks[0], raws[0], blocks[1], raws[1])


@pytest.mark.parametrize(
    ("written", "expected_ns"),
    [
        ("0", 0),
        ("12", 12_000),
        ("4458676522690.655", 4_458_676_522_690_655),
        ("1790857026123456.789", 1_790_857_026_123_456_789),
        ("1790857026123456.7895", 1_790_857_026_123_456_790),
        ("-1.5", -1_500),
        ("-1790857026123456.789", -1_790_857_026_123_456_789),
        ("1e-06", 0),
        ("1.5e3", 1_500_000),
        ("9.1e15", NO_TIME),
        ("99999999999999999999999", NO_TIME),
        ('"12"', NO_TIME),
        ("null", NO_TIME),
    ],
)
def test_times_keep_their_nanoseconds(written: str, expected_ns: int) -> None:
    text = f'[{{"ph": "X", "name": "a", "ts": {written}, "dur": 1}}]'.encode()
    for parser in (NativeParser(), MsgspecParser()):
        block = parser.parse(bytearray(text + bytes(PADDING)), 0, len(text))
        assert block is not None
        assert block.start_ns.tolist() == [expected_ns]


@pytest.mark.parametrize(
    "text", [b'[{"ph": "X"]', b"[{]", b'[{"ph": "X", "ts": 1.2.3}]', b"[1] 2", b'["\xff"]']
)
def test_what_is_not_json_is_refused_by_both(text: bytes) -> None:
    for parser in (NativeParser(), MsgspecParser()):
        assert parser.parse(bytearray(text + bytes(PADDING)), 0, len(text)) is None


def test_the_native_parser_is_built() -> None:
    assert native_module() is not None

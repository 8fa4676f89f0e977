"""The native parser and the pure-Python one give the same values, on every file there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marey.trace.readers.chrome_json import read_raw
from marey.trace.readers.msgspec_parser import MsgspecParser
from marey.trace.readers.native_parser import NativeParser, native_module
from marey.trace.readers.raw import JSON_ARGS, TEXT_ARGS, Block, RawEvents

TEXT_KEYS = {*TEXT_ARGS, *JSON_ARGS}


def assert_same_blocks(a: Block, a_raw: RawEvents, b: Block, b_raw: RawEvents) -> None:
    """Value by value; codes are compared by the text they stand for."""
    np.testing.assert_array_equal(a.phase, b.phase)
    np.testing.assert_array_equal(a.start_ns, b.start_ns)
    np.testing.assert_array_equal(a.dur_ns, b.dur_ns)
    assert spelled(a.name, a_raw) == spelled(b.name, b_raw)
    assert spelled(a.category, a_raw) == spelled(b.category, b_raw)
    assert [a_raw.lanes[n] for n in a.lane] == [b_raw.lanes[n] for n in b.lane]
    assert a.args.keys() == b.args.keys()
    for key, mine in a.args.items():
        theirs = b.args[key]
        np.testing.assert_array_equal(mine.rows, theirs.rows, err_msg=key)
        if key in TEXT_KEYS:
            assert spelled(mine.values, a_raw) == spelled(theirs.values, b_raw), key
        else:
            np.testing.assert_array_equal(mine.values, theirs.values, err_msg=key)


def spelled(codes: np.ndarray, raw: RawEvents) -> list[str]:
    return [raw.texts[n] for n in codes.tolist()]


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


@pytest.mark.data
@pytest.mark.parametrize(
    "folder",
    ["bytedance-ST", "deepseek", "hta", "jax-cpu", "kineto-resnet50", "torch-cpu", "tracelens"],
)
def test_both_parsers_give_the_same_values_on_every_real_file(data_dir: Path, folder: str) -> None:
    files = json_files(data_dir / "traces" / folder)
    assert files
    assert sum(assert_parsers_agree(path) for path in files) > 0

"""No input makes a reader crash, hang or fill the memory: it is read, or there is a note."""

from __future__ import annotations

import gzip
import io
import json
import random
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marey.trace.readers import READERS
from marey.trace.readers.result import ReadOptions
from marey.trace.run.conversion import ConvertedFile, convert_file
from tests.trace.readers.protobuf_bytes import field

FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def kineto() -> bytes:
    events = []
    for n in range(12):
        args = {
            "External id": n,
            "correlation": n,
            "Input Dims": [[n, 2]],
            "Seq": n,
            "dtype": "Float",
        }
        events += [
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": f"op{n}",
                "pid": 1,
                "tid": 1,
                "ts": n,
                "dur": 1,
                "args": args,
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": "k",
                "pid": 0,
                "tid": 7,
                "ts": n + 0.5,
                "dur": 1,
                "args": args,
            },
            {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": n, "pid": 1, "tid": 1, "ts": n},
            {
                "ph": "f",
                "cat": "fwdbwd",
                "name": "fwdbwd",
                "id": n,
                "pid": 1,
                "tid": 1,
                "ts": n + 3,
            },
            {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": n, "args": {"Bytes": n}},
        ]
    header = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "ranks": [0]}]},
    }
    return json.dumps({**header, "traceEvents": events, "baseTimeNanoseconds": 5}).encode()


def chrome() -> bytes:
    pairs = [
        {"ph": p, "name": "x", "pid": "gpu/0", "tid": "a", "ts": n} for n in range(9) for p in "BE"
    ]
    return json.dumps(pairs, indent=1).encode()


def jax() -> bytes:
    names = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}}
    op = {"ph": "X", "pid": 1, "tid": 2, "ts": 3.25, "dur": 1, "name": "all-reduce.1"}
    op |= {"args": {"hlo_op": "all-reduce.1", "run_id": "7", "step_num": "1"}}
    return json.dumps({"traceEvents": [names, op, op, {}]}).encode()


def chakra() -> bytes:
    attrs = [{"name": "rf_id", "value": 1}, {"name": "collective_name", "value": "allreduce"}]
    nodes = [{"id": n, "name": f"n{n}", "ctrl_deps": n - 1, "attrs": attrs} for n in range(9)]
    return json.dumps({"schema": "1.1.0-chakra.0.0.4", "nodes": nodes}).encode()


def xplane() -> bytes:
    op = field(4, field(1, 1) + field(2, field(1, 1) + field(2, b"all-gather.2")))
    stat = field(5, field(1, 9) + field(2, field(1, 9) + field(2, b"hlo_op")))
    event = (
        field(1, 1)
        + field(2, 5000)
        + field(3, 7000)
        + field(4, field(1, 9) + field(5, b"all-gather.2"))
    )
    line = field(
        3, field(1, 3) + field(2, b"XLA Ops") + field(3, 1000) + field(4, event) + field(4, event)
    )
    return field(1, field(2, b"/device:TPU:0") + op + stat + line) + field(4, b"host-1")


def optable() -> bytes:
    rows = 8
    table = pa.table(
        {
            "rank": np.arange(rows) % 2,
            "stage": np.arange(rows) % 2,
            "dp_rank": np.zeros(rows, int),
            "step": np.arange(rows) // 4,
            "optype": ["forward-compute", "forward-send", "grads-all-reduce", "gc"] * 2,
            "start_ts": np.arange(rows) * 0.1,
            "duration": np.full(rows, 0.05),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def csv() -> bytes:
    head = b"rank,step,optype,start_ts,duration\n"
    return head + b"0,1,forward-compute,0.1,0.2\n1,1,forward-send,0.1,0.2\n"


def op_timeline() -> bytes:
    told = {"step": 0, "model_chunk": 0, "mb_id": 0, "seq_id": 0}
    names: list[Any] = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "DP rank [0]"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1}
        | {"args": {"name": "PP rank 0, TP rank 0, compute"}},
    ]
    work = {"name": "forward-compute", "pid": 0, "tid": 1, "ts": 1.5, "dur": 2.5, "ph": "X"}
    return json.dumps([{**work, "args": told}, {**work, "ts": 9, "args": told}, *names]).encode()


SAMPLES: dict[str, tuple[Callable[[], bytes], str]] = {
    "kineto": (kineto, "rank0.json"),
    "chrome": (chrome, "trace.json"),
    "jax": (jax, "trace.json"),
    "chakra": (chakra, "et.json"),
    "xplane": (xplane, "host.xplane.pb"),
    "optable": (optable, "trace.parquet"),
    "csv": (csv, "trace.csv"),
    "op-timeline": (op_timeline, "timeline.json"),
}


def converted(content: bytes, name: str, native: bool) -> ConvertedFile:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return convert_file(path, Path(folder) / "cache", ReadOptions(native=native))


def check(result: ConvertedFile) -> None:
    """Either there are events, or there is a note that says why not."""
    assert result.ranks or result.notes
    assert all(rank.events > 0 for rank in result.ranks)


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_sample_is_read_whole(kind: str) -> None:
    make, name = SAMPLES[kind]
    result = converted(make(), name, native=True)
    assert result.ranks, result.notes


def test_every_reader_is_fuzzed() -> None:
    fuzzed = {"optable", "op-timeline", "xplane", "chakra", "chrome-json"}
    # A database that SQLite checks, JSON forms of a few lines (damaged strategies:
    # tests/app/traces/test_parallel_strategies.py), and what only refuses.
    others = {"nsys-sqlite", "ascend-graph", "ascend-strategy", "refused"}
    assert {reader.NAME for reader in READERS} == fuzzed | others


@pytest.mark.parametrize("kind", SAMPLES)
@FUZZ
@given(data=st.data(), native=st.booleans())
def test_a_truncated_file_never_crashes_a_reader(
    kind: str, data: st.DataObject, native: bool
) -> None:
    make, name = SAMPLES[kind]
    content = make()
    check(converted(content[: data.draw(st.integers(0, len(content)))], name, native))


@pytest.mark.parametrize("kind", SAMPLES)
@FUZZ
@given(data=st.data(), native=st.booleans())
def test_changed_bytes_never_crash_a_reader(kind: str, data: st.DataObject, native: bool) -> None:
    make, name = SAMPLES[kind]
    content = bytearray(make())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(st.binary(max_size=4))
        content[place : place + data.draw(st.integers(0, 4))] = piece
    check(converted(bytes(content), name, native))


@FUZZ
@given(content=st.binary(max_size=300), name=st.sampled_from([n for _, n in SAMPLES.values()]))
def test_random_bytes_never_crash_a_reader(content: bytes, name: str) -> None:
    check(converted(content, name, native=True))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@FUZZ
@given(
    value=JSON,
    key=st.sampled_from(["traceEvents", "nodes", "distributedInfo", "x"]),
    native=st.booleans(),
)
def test_random_json_never_crashes_a_reader(value: object, key: str, native: bool) -> None:
    text = json.dumps({"schema": "1.0-chakra.0", "deviceProperties": value, key: value}).encode()
    check(converted(text, "rank0.json", native))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@FUZZ
@given(data=st.data())
def test_damaged_archives_never_crash_a_reader(
    pack: Callable[[bytes], bytes], data: st.DataObject
) -> None:
    content = bytearray(pack(kineto()))
    place = data.draw(st.integers(4, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    check(
        converted(
            bytes(content[: data.draw(st.integers(place, len(content)))]), "rank0.json.gz", True
        )
    )


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b'{"traceEvents": [' + b'{"args": ' * 100_000,
        b'{"traceEvents": [{"name": "' + b"a" * 3_000_000,
        b'{"traceEvents": [' + b'{"ph": "X", "x": {"ph": ' * 60_000,
        b'{"traceEvents": [' + b'{"ph":"' * 300_000,
        b'{"' + b"k" * 2_000_000,
        b'{"traceEvents": [' + b"," * 3_000_000,
        b" " * 3_000_000,
        b'{"schema": "1.0-chakra.0", "nodes": ' + b"[" * 100_000,
    ],
    ids=["brackets", "objects", "string", "starts", "quotes", "key", "commas", "spaces", "nodes"],
)
@pytest.mark.timeout(300)
def test_hostile_nesting_and_length_end_soon(content: bytes, native: bool) -> None:
    check(converted(content, "rank0.json", native))


@pytest.mark.timeout(300)
def test_a_bomb_of_spaces_needs_no_memory() -> None:
    packed = gzip.compress(b'{"traceEvents": [' + b" " * 80_000_000, 9)
    tracemalloc.start()
    try:
        check(converted(packed, "rank0.json.gz", native=True))
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_events_of_any_order_are_sorted(tmp_path: Path) -> None:
    draw = random.Random(3)
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "a",
            "pid": 1,
            "tid": 1,
            "ts": draw.randrange(50),
            "dur": draw.randrange(9),
        }
        for _ in range(500)
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    (rank,) = convert_file(path, tmp_path / "cache").ranks
    table = pq.read_table(rank.path("events"))
    starts, durations = table["start_ns"].to_numpy(), table["dur_ns"].to_numpy()
    assert np.all(np.diff(starts) >= 0)
    together = np.diff(starts) == 0
    assert np.all(np.diff(durations)[together] <= 0)

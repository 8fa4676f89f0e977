"""JAX, XPlane, Chakra, generic Chrome traces and op tables, each from a small made file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from marey.model.training.symbols import LONGEST_TEXT, Symbols
from marey.model.training.traces import EVENTS, MEMORY, EventKind
from marey.trace.readers.kernel_names import (
    collective_name,
    dtype_bytes,
    hlo_collective,
    is_collective,
    is_communication_kernel,
    spell_collective,
)
from marey.trace.readers.protobuf import Malformed, fields, signed
from marey.trace.run.trace_run import RankInfo, TraceRun, open_run
from tests.trace.readers.protobuf_bytes import field

DOCS = Path(__file__).resolve().parents[3] / "docs" / "traces-format.md"


def rows(run: TraceRun, rank: int = 0) -> list[dict[str, Any]]:
    found = run.events(rank).to_pylist()
    for row in found:
        for name in ("name", "host", "module", "group", "collective"):
            row[name] = run.symbols.text(row[name])
    return found


def opened(tmp_path: Path, name: str, content: bytes | object) -> TraceRun:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return open_run(path, cache=tmp_path / "cache")


def metadata(number: int, key: int, name: bytes) -> bytes:
    return field(number, field(1, key) + field(2, field(1, key) + field(2, name)))


def made_xplane() -> bytes:
    """One device with an operation, a collective and a module line, and the host's step."""
    names = (
        metadata(4, 1, b"fusion.3")
        + metadata(4, 2, b"all-reduce-start.1")
        + metadata(4, 3, b"jit_step")
    )
    stats = metadata(5, 9, b"hlo_module") + metadata(5, 8, b"run_id")
    module = field(4, field(1, 9) + field(5, b"jit_step")) + field(4, field(1, 8) + field(4, -5))
    ops = [
        field(4, field(1, kind) + field(2, offset * 1000) + field(3, 2_000_000) + module)
        for kind, offset in ((1, 5000), (2, 9000))
    ]
    line = field(3, field(1, 3) + field(2, b"XLA Ops") + field(3, 1_000_000) + b"".join(ops))
    summary = field(
        3,
        field(2, b"XLA Modules")
        + field(3, 1_000_000)
        + field(4, field(1, 3) + field(3, 9_000_000)),
    )
    device = field(1, field(2, b"/device:TPU:2") + names + stats + line + summary)
    step = field(4, field(1, 4) + field(3, 50_000_000) + field(4, field(1, 7) + field(4, 11)))
    host_line = field(3, field(1, 1) + field(2, b"python") + field(3, 900_000) + step)
    host = field(
        1,
        field(2, b"/host:CPU") + metadata(4, 4, b"train") + metadata(5, 7, b"step_num") + host_line,
    )
    return device + host + field(4, b"node-3")


def test_an_xplane_gives_devices_steps_and_collectives(tmp_path: Path) -> None:
    run = opened(tmp_path, "node-3.xplane.pb", made_xplane())
    found = {row["name"]: row for row in rows(run)}
    assert run.info(0).framework == "jax"
    assert run.info(0).host == "node-3"
    fusion, reduce = found["fusion.3"], found["all-reduce-start.1"]
    assert (fusion["kind"], fusion["on_device"], fusion["device"]) == (EventKind.COMPUTE, True, 2)
    assert (fusion["start_ns"], fusion["dur_ns"], fusion["step"]) == (1_005_000, 2_000, 11)
    assert (fusion["module"], fusion["correlation"]) == ("jit_step", -5)
    assert (reduce["kind"], reduce["collective"]) == (EventKind.COLLECTIVE, "allreduce")
    assert not found["jit_step"]["on_device"]
    assert found["train"]["kind"] == EventKind.ANNOTATION


def test_a_cut_xplane_keeps_the_planes_before_the_cut(tmp_path: Path) -> None:
    run = opened(tmp_path, "a.xplane.pb", made_xplane()[:-40])
    assert {row["name"] for row in rows(run)} >= {"fusion.3"}
    assert "not a whole protocol buffer" in run.notes[0].text


def test_jax_json_and_its_xplane_twin_are_one_profile(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "vm.xplane.pb").write_bytes(made_xplane())
    names = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}}
    op = {
        "ph": "X",
        "pid": 1,
        "tid": 2,
        "ts": 1,
        "dur": 1,
        "name": "dot.1",
        "args": {"hlo_op": "dot.1"},
    }
    (tmp_path / "run" / "vm.trace.json").write_text(json.dumps({"traceEvents": [names, op]}))
    run = open_run(tmp_path / "run", cache=tmp_path / "cache")
    assert run.ranks == [0]
    assert [note.file for note in run.notes] == ["vm.trace.json"]


def test_wire_format_is_walked_and_refused_where_it_is_wrong() -> None:
    assert list(fields(memoryview(field(1, 300)))) == [(1, 300)]
    assert signed(next(iter(fields(memoryview(field(2, -7)))))[1]) == -7
    for wrong in (b"\x0a\x05ab", b"\x00\x01", b"\x08" + b"\xff" * 11, b"\x0b", b"\x09\x01"):
        with pytest.raises(Malformed):
            list(fields(memoryview(wrong)))


def test_an_execution_trace_has_the_order_of_its_nodes(tmp_path: Path) -> None:
    attrs = [
        {"name": "rf_id", "value": 5},
        {"name": "tid", "value": 3},
        {"name": "collective_name", "value": "allreduce"},
        {"name": "dtype", "value": "Float"},
        {"name": "in_msg_nelems", "value": 100},
        {"name": "pg_name", "value": "0"},
    ]
    groups = json.dumps([{"pg_name": "0", "ranks": [], "group_size": 2}])
    nodes = [
        {"id": 4, "name": "aten::add", "ctrl_deps": 3},
        {"id": 3, "name": "aten::linear", "ctrl_deps": 1},
        {"id": 1, "name": "## process_group:init ##", "inputs": {"values": [groups]}},
        {"id": 6, "name": "record_param_comms", "ctrl_deps": 1, "attrs": attrs},
    ]
    run = opened(tmp_path, "et.json", {"schema": "1.1.0-chakra.0.0.4", "nodes": nodes})
    found = rows(run)
    assert [row["name"] for row in found][1:] == ["aten::linear", "aten::add", "record_param_comms"]
    linear, add, comms = found[1:]
    assert linear["start_ns"] <= add["start_ns"]
    assert linear["start_ns"] + linear["dur_ns"] >= add["start_ns"] + add["dur_ns"]
    assert (comms["bytes"], comms["group"], comms["collective"]) == (400, "0", "allreduce")
    assert (comms["external_id"], comms["stream"]) == (5, 3)
    assert dict(run.info(0).groups) == {"0": (0, 1)}
    assert "no times" in run.notes[0].text


def test_begin_and_end_events_are_paired_by_thread(tmp_path: Path) -> None:
    def mark(phase: str, name: str, ts: int, tid: int) -> dict[str, Any]:
        return {"ph": phase, "name": name, "cat": "operator_x", "pid": 5, "tid": tid, "ts": ts}

    process = {"ph": "M", "name": "process_name", "pid": 5, "args": {"name": "gpu/0"}}
    events = [
        process,
        mark("B", "outer", 0, 1),
        mark("B", "other thread", 1, 2),
        mark("B", "inner", 2, 1),
        mark("E", "inner", 5, 1),
        mark("E", "outer", 9, 1),
        mark("E", "other thread", 10, 2),
        mark("B", "never ended", 11, 1),
        mark("E", "", 12, 3),
    ]
    found = {row["name"]: row for row in rows(opened(tmp_path, "mxnet.json", events))}
    assert {name: row["dur_ns"] for name, row in found.items()} == {
        "outer": 9000,
        "inner": 3000,
        "other thread": 9000,
    }
    assert all(row["on_device"] for row in found.values())


def test_a_generic_trace_without_devices_counts_its_operators(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "name": "matmul", "pid": 1, "tid": 1, "ts": 0, "dur": 5},
        {"ph": "X", "name": "grads-all-reduce", "pid": 1, "tid": 2, "ts": 2, "dur": 5},
    ]
    found = {row["name"]: row for row in rows(opened(tmp_path, "any.json", events))}
    assert found["matmul"]["kind"] == EventKind.COMPUTE
    assert found["grads-all-reduce"]["kind"] == EventKind.COLLECTIVE
    assert all(row["on_device"] for row in found.values())


def op_table() -> pa.Table:
    """Two stages of one data-parallel rank, two steps; times count from the step's start."""
    ops = [
        (0, 0, "forward-compute", 0.0, 1.0),
        (0, 0, "forward-send", 1.0, 0.1),
        (1, 1, "forward-recv", 0.0, 1.1),
        (1, 1, "gc", 1.1, 0.2),
        (1, 1, "grads-reduce-scatter", 1.5, 0.5),
    ]
    both = [(step, *op) for step in (7, 9) for op in ops]
    names = ("step", "rank", "stage", "optype", "start_ts", "duration")
    table = pa.table({name: [row[n] for row in both] for n, name in enumerate(names)})
    return table.append_column("dp_rank", pa.array([0] * len(both)))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_op_table_becomes_one_table_per_rank(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"ops.{form}"
    if form == "parquet":
        pq.write_table(op_table(), path)
    else:
        pyarrow.csv.write_csv(op_table(), path)
    run = open_run(path, cache=tmp_path / "cache")
    assert run.ranks == [0, 1]
    first, second = rows(run, 0), rows(run, 1)
    assert [row["step"] for row in first] == [7, 7, 9, 9]
    assert [row["start_ns"] for row in first] == [0, 10**9, 2 * 10**9, 3 * 10**9]
    assert (first[1]["kind"], first[1]["peer"]) == (EventKind.SEND, 1)
    assert (second[0]["kind"], second[0]["peer"]) == (EventKind.RECV, 0)
    assert (second[1]["kind"], second[1]["on_device"]) == (EventKind.PYTHON, False)
    assert (second[2]["kind"], second[2]["collective"]) == (EventKind.COLLECTIVE, "reducescatter")
    assert run.info(1).coordinates == {"dp": 0, "pp": 1}


def test_a_parquet_file_of_something_else_is_no_trace(tmp_path: Path) -> None:
    pq.write_table(op_table().drop_columns(["optype"]), tmp_path / "other.parquet")
    (tmp_path / "rank0.json").write_text(
        '[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 1}]'
    )
    run = open_run(tmp_path, cache=tmp_path / "cache")
    assert [note.file for note in run.notes] == ["other.parquet"]


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        (
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "reducescatter",
        ),
        ("c10d::_allgather_base_", "allgather"),
        ("c10d::recv_", "recv"),
        ("nccl:all_to_all", "alltoall"),
        ("void deep_ep::internode::dispatch<false>(int)", "alltoall"),
        ("ncclKernel_Broadcast_RING", "broadcast"),
        ("aten::mm", ""),
    ],
)
def test_names_say_which_collective_they_are(name: str, collective: str) -> None:
    assert collective_name(name) == collective


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymDevArgs)",
        "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)",
    ],
)
def test_every_generation_of_nccls_kernels_communicates(name: str) -> None:
    assert is_communication_kernel(name)
    assert collective_name(name) == "allreduce"


def test_words_inside_other_words_are_no_transfers() -> None:
    assert hlo_collective("multiply_reduce_fusion.2") == ""
    assert hlo_collective("collective-permute-done.4") == "sendrecv"
    assert spell_collective("resend_buffers") == ""
    assert spell_collective("forward-send") == "send"
    assert is_collective("ncclDevKernel_AllReduce(x)")
    assert not is_collective("c10d::send")
    assert (dtype_bytes("BFloat16"), dtype_bytes("c10::Half"), dtype_bytes("odd")) == (2, 2, 0)


def test_a_run_of_tables_in_memory_is_a_run() -> None:
    symbols = Symbols(["a", "b"])
    table = EVENTS.empty_table()
    run = TraceRun.from_tables({4: table}, {4: RankInfo(4, host="h")}, symbols)
    assert run.ranks == [4]
    assert run.events(4, ["rank"]).column_names == ["rank"]
    assert run.memory(4).schema.equals(MEMORY)
    assert run.info(4).host == "h"


def test_symbols_are_bounded_and_stable() -> None:
    symbols = Symbols()
    long = "x" * (LONGEST_TEXT + 5)
    assert symbols.add(long) == symbols.add(long[:-1]) == 0
    assert symbols.text(-1) == ""
    assert symbols.code("unknown") is None
    assert symbols.add_all(["b", "b", "c"]).dtype == np.int32


def test_every_column_and_reader_is_documented() -> None:
    text = DOCS.read_text()
    for name in (*EVENTS.names, *MEMORY.names):
        assert f"`{name}`" in text, name
    for reader in ("kineto", "jax", "xplane", "chakra", "chrome", "optable"):
        assert f"`{reader}`" in text
    assert "untested on real data" in text

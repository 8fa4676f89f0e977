"""What the recorder wrote is what the reader knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marey.record.files import write_trace
from marey.trace.run.trace_run import TraceRun, open_run

SPAN = {"ph": "X", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "name": "dot"}
RECORD = {
    "rank": 3,
    "host": "node-7",
    "world_size": 8,
    "groups": [{"name": "tp", "description": "tensor", "ranks": [2, 3]}],
    "clock": {"samples": [{"at_ns": 1, "offset_ns": 2, "error_ns": 3}]},
}


def read_back(tmp_path: Path, trace: dict[str, Any]) -> TraceRun:
    raw = tmp_path / "raw" / "trace.json"
    raw.parent.mkdir()
    raw.write_text(json.dumps(trace))
    # The name says nothing of the rank: only the record does.
    write_trace(raw, tmp_path / "run" / "anything.json.gz", RECORD)
    return open_run(tmp_path / "run", cache=tmp_path / "cache")


def test_a_torch_trace_without_distributed_info_knows_its_place(tmp_path: Path) -> None:
    trace = {"schemaVersion": 1, "traceEvents": [SPAN | {"cat": "cpu_op"}]}
    run = read_back(tmp_path, trace)
    info = run.info(3)
    assert (run.ranks, info.host, info.world_size) == ([3], "node-7", 8)
    assert info.groups == {"tp": (2, 3)}
    assert info.group_descriptions == {"tp": "tensor"}
    assert info.clock_sync is not None
    assert info.clock_sync["clock"] == RECORD["clock"]


def test_a_jax_trace_knows_its_place_but_has_no_clock_to_share(tmp_path: Path) -> None:
    name = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}}
    trace = {"traceEvents": [name, SPAN | {"args": {"hlo_op": "dot.1"}}]}
    run = read_back(tmp_path, trace)
    info = run.info(3)
    assert (run.ranks, info.host, info.framework) == ([3], "node-7", "jax")
    # Its times count from the start of the profile, so the handshake cannot align them.
    assert info.clock_sync is None


def test_a_hostile_record_is_ignored(tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    raw.write_text(json.dumps({"traceEvents": [SPAN | {"cat": "cpu_op"}]}))
    hostile = {"rank": "x", "host": ["y"], "world_size": 2**80, "groups": "z", "clock": [1]}
    write_trace(raw, tmp_path / "run" / "a.json.gz", hostile)
    run = open_run(tmp_path / "run", cache=tmp_path / "cache")
    assert run.ranks == [0]
    assert run.info(0).host == ""

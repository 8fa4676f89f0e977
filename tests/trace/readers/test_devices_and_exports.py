"""Several devices of one process, exports of other tools, and files that are refused."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from marey.model.errors import InvalidInput
from marey.trace.report.report_document import report_document
from marey.trace.report.verdict_words import places, sentence
from marey.trace.run.trace_run import open_run

MS = 1000


def kineto(devices: tuple[int, ...]) -> dict[str, Any]:
    """A process that launches kernels on these devices, each with its own idle time."""
    events: list[dict[str, Any]] = []
    for device in devices:
        for n in range(6):
            at = 10 * MS * n + device
            number = 100 * device + n
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7}
            kernel = {"ph": "X", "cat": "kernel", "name": f"k{device}", "pid": device}
            events.append(call | {"tid": 1, "ts": at, "dur": 5, "args": {"correlation": number}})
            busy = (2 + device) * MS
            args = {"correlation": number, "device": device, "stream": 7}
            events.append(kernel | {"tid": 7, "ts": at + 10, "dur": busy, "args": args})
    return {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}


def rows_of(path: Path, cache: Path) -> dict[int | None, dict[str, Any]]:
    """The rows of a report by device, without what numbers them."""
    document = report_document(path, cache=cache)
    return {
        row["device"]: {k: v for k, v in row.items() if k not in ("rank", "process", "device")}
        for row in document["ranks"]
    }


def test_every_device_of_a_process_has_a_row_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(kineto((0, 3))))
    document = report_document(path, cache=tmp_path / "cache")
    assert [(r["process"], r["device"]) for r in document["ranks"]] == [(0, 0), (0, 3)]
    assert [r["compute_ms"] for r in document["ranks"]] == [12, 30]
    assert places(document) == {0: "process 0, device 0", 1: "process 0, device 3"}
    verdict = {"kind": "slow_worker", "ranks": [1], "confidence": 1}
    assert "rank 1 (process 0, device 3)" in sentence(verdict, places(document))


def test_an_unrelated_device_changes_no_figure_of_another(tmp_path: Path) -> None:
    for name, devices in (("two", (1, 2)), ("three", (1, 2, 4))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trace.json").write_text(json.dumps(kineto(devices)))
    two = rows_of(tmp_path / "two", tmp_path / "cache")
    three = rows_of(tmp_path / "three", tmp_path / "cache")
    assert {device: three[device] for device in two} == two


def test_scaling_time_scales_every_figure(tmp_path: Path) -> None:
    plain = kineto((0,))
    for n, factor in enumerate((1, 3)):
        scaled = json.loads(json.dumps(plain))
        for event in scaled["traceEvents"]:
            # Launch latency is a constant of the machine, so gaps stay far from it.
            event["ts"], event["dur"] = event["ts"] * factor, event["dur"] * factor
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "trace.json").write_text(json.dumps(scaled))
    one, three = (rows_of(tmp_path / str(n), tmp_path / "cache")[None] for n in range(2))
    for name, value in one.items():
        if name.endswith("_ms"):
            assert three[name] == pytest.approx(3 * value, abs=1e-5), name


def make_nsys(path: Path) -> None:
    """A database with the tables of an export: kernels, calls, ranges, two devices."""
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        names = [(1, "gemm"), (2, "ncclDevKernel_AllReduce_Sum_f32"), (3, "cudaLaunchKernel_v7000")]
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,"
            " streamId INTEGER, correlationId INTEGER, demangledName INTEGER, globalPid INTEGER)"
        )
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, "
            "globalTid INTEGER, correlationId INTEGER, nameId INTEGER)"
        )
        base.execute(
            "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, "
            "globalTid INTEGER, text TEXT, textId INTEGER)"
        )
        process = 5 << 24
        for device in (0, 1):
            for n in range(4):
                at, number = 1_000_000 * n, 10 * device + n
                kernel = (at + 5000, at + 405_000, device, 7, number, 2 if n == 3 else 1, process)
                base.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?)", kernel
                )
                call = (at, at + 3000, process + 1, number, 3)
                base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", call)
        row = (0, 4_000_000, 59, process + 1, "step", None)
        base.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", row)


def test_an_export_of_nsight_systems_is_read_and_its_confidence_is_capped(tmp_path: Path) -> None:
    make_nsys(tmp_path / "report.sqlite")
    document = report_document(tmp_path / "report.sqlite", cache=tmp_path / "cache")
    assert [r["device"] for r in document["ranks"]] == [0, 1]
    assert [r["compute_ms"] for r in document["ranks"]] == pytest.approx([1.2, 1.2])
    assert [r["comm_ms"] for r in document["ranks"]] == pytest.approx([0.4, 0.4])
    assert all(r["idle_host_ms"] > 1.5 for r in document["ranks"])
    assert document["collectives"]["matched"] == 1
    assert all(v["confidence"] < 0.6 for v in document["verdicts"])
    assert "never tried on a real recording" in " ".join(n["text"] for n in document["notes"])


@pytest.mark.parametrize(
    ("name", "content", "way_out"),
    [
        ("report.nsys-rep", "x", "nsys export --type sqlite"),
        ("run.pftrace", "x", "traceconv json"),
        ("timeline.json", '[{"name": "NEGOTIATE_ALLREDUCE", "ph": "B"}]', "torch.profiler"),
        ("timers.out", "time (ms) | forward-microstep: 12.3 | backward: 3", "torch.profiler"),
        ("parallel_strategy_0.json", '{"config": {}}', "msprof_*.json"),
        ("scope.json", '{"scope_map": {}}', "ascend_marey_timeline_*.json"),
    ],
)
def test_a_file_without_a_time_line_is_refused_with_the_way_out(
    tmp_path: Path, name: str, content: str, way_out: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput) as refusal:
        open_run(tmp_path / name, cache=tmp_path / "cache")
    assert way_out in str(refusal.value)


def write_excerpts(data_dir: Path, made: Path, *kinds: str) -> Path:
    """Slices of an Ascend device as msprof writes them beside the whole: streams, transfers."""
    processes = {"task_time": "Ascend Hardware", "hccl": "HCCL"}
    for whole in sorted((data_dir / "recordings/ascend/msprof/device_0").iterdir()):
        events = json.loads(gzip.decompress(whole.read_bytes()))
        named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        for kind in kinds:
            kept = [e for e in events if kind == "msprof" or named[e["pid"]] == processes[kind]]
            name = whole.name.replace("msprof", kind).removesuffix(".gz")
            (made / name).write_text(json.dumps(kept))
    return made


def test_what_msprof_writes_twice_is_counted_once(data_dir: Path, tmp_path: Path) -> None:
    folders = {"whole": ("msprof",), "all": ("msprof", "task_time", "hccl")}
    folders |= {"streams": ("task_time",), "transfers": ("hccl",)}
    rows = {}
    for name, kinds in folders.items():
        (tmp_path / name).mkdir()
        found = report_document(
            write_excerpts(data_dir, tmp_path / name, *kinds), cache=tmp_path / f"{name} cache"
        )
        (rows[name],) = found["ranks"]
    assert rows["all"] == rows["whole"]
    assert rows["streams"]["compute_ms"] == rows["whole"]["compute_ms"]
    assert rows["streams"]["span_ms"] == rows["whole"]["span_ms"]
    # Its tasks stand for the communication, which itself lasts a little longer.
    assert rows["streams"]["comm_ms"] == pytest.approx(rows["whole"]["comm_ms"], rel=0.06)
    assert rows["transfers"]["compute_ms"] == 0
    assert rows["transfers"]["comm_ms"] == rows["whole"]["comm_ms"]

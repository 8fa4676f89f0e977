"""Traces that converters and other frameworks write, made here in small: whose a row is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marey.model.errors import InvalidInput
from marey.trace.report.report_document import report_document

Event = dict[str, Any]
KERNELS = 200
# In each trace a kernel of 10 µs begins every 50 µs, beside host rows of 30 to 45 µs.
BUSY_MS, SPAN_MS = 2.0, 9.96


def span(ts: float, dur: float, name: str, pid: Any, tid: Any, **more: Any) -> Event:
    """One complete event."""
    return {"ph": "X", "ts": ts, "dur": dur, "name": name, "pid": pid, "tid": tid, **more}


def report(folder: Path, document: Any, name: str = "trace.json") -> dict[str, Any]:
    """What Marey says of a file that holds this."""
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return report_document(path, cache=folder / "cache")


def notes(found: dict[str, Any]) -> list[str]:
    """What the reader of a report is told beside it."""
    return [note["text"] for note in found["notes"]]


def named(pid: int, text: str) -> Event:
    """The metadata that names a process."""
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": text}}


def pairs(host: tuple[Any, Any, str], device: tuple[Any, Any, str], **more: Any) -> list[Event]:
    """Rows of the host and of the device, each (process, thread, name)."""
    found = []
    for n in range(KERNELS):
        found.append(span(50.0 * n, 30.0, host[2], host[0], host[1], **more))
        found.append(span(50.0 * n + 10, 10.0, device[2], device[0], device[1], **more))
    return found


NSYS2JSON = [
    *pairs(("Device 0", "CUDA API 12", "cudaLaunchKernel"), ("Device 0", "Stream 7", "gemm")),
    *(
        span(50.0 * n, 45.0, "layer", "Device 0", "NVTX Kernel Thread 12", cat="nvtx-kernel")
        for n in range(KERNELS)
    ),
]
NVPROF2JSON = pairs(
    ("[1:0] Overview", "Thread 1: Runtime API", "cudaLaunch"), ("[1:0] Overview", "Compute", "gemm")
)
BEFORE_KINETO = pairs(("CPU functions", 0, "mm"), ("CUDA functions", 0, "mm"))
UNITRACE = [
    named(2, "RANK 0 HOST<node1>"),
    named(3, "RANK 0 DEVICE<node1>[0000:18:00.0]"),
    *pairs((2, 1, "zeCommandListAppendLaunchKernel"), (3, 9, "gemm[SIMD32]"), cat="cpu_op"),
]


@pytest.mark.parametrize(
    ("events", "program"),
    [
        (NSYS2JSON, "nsys2json"),
        (NVPROF2JSON, "nvprof2json"),
        (BEFORE_KINETO, "PyTorch before Kineto"),
        (UNITRACE, "unitrace"),
    ],
)
def test_rows_of_a_converted_trace_are_told_apart_by_their_texts(
    tmp_path: Path, events: list[Event], program: str
) -> None:
    found = report(tmp_path, events)
    row = found["ranks"][0]
    assert (row["compute_ms"], row["span_ms"]) == (pytest.approx(BUSY_MS), pytest.approx(SPAN_MS))
    assert any(program in note for note in notes(found)), notes(found)
    assert found["verdicts"][0]["confidence"] <= 0.55


def test_two_devices_of_a_conversion_are_two_rows(tmp_path: Path) -> None:
    again = [{**e, "pid": "Device 1"} for e in NSYS2JSON if e["tid"] == "Stream 7"]
    assert len(report(tmp_path, [*NSYS2JSON, *again])["ranks"]) == 2


def test_a_process_named_device_of_a_numbered_process_is_kinetos(tmp_path: Path) -> None:
    kernel = span(0, 900, "gemm", 0, 7, cat="kernel", args={"device": 0, "stream": 7})
    found = report(tmp_path, [named(0, "Device 0"), *[{**kernel, "ts": n * 1e3} for n in range(9)]])
    assert not any("nsys2json" in note for note in notes(found))


def test_a_profile_of_paddle_links_launches_by_its_own_spelling(tmp_path: Path) -> None:
    events = []
    for n in range(KERNELS):
        call = {"correlation id": n}
        events += [
            span(50.0 * n, 30, "matmul dygraph", 12, "12(C++)", cat="Operator"),
            span(50.0 * n + 5, 5, "cudaLaunchKernel", 12, "12(C++)", cat="CudaRuntime", args=call),
            span(50.0 * n + 12, 10, "gemm", 0, 7, cat="Kernel", args={"device": 0, **call}),
        ]
    found = report(tmp_path, {"schemaVersion": "1.0.1", "traceEvents": events})
    verdict = found["verdicts"][0]
    assert (verdict["kind"], verdict["confidence"]) == ("host_bound", 0.55)
    assert any("PaddlePaddle" in note for note in notes(found))


def test_calls_of_a_runtime_that_is_unknown_are_calls_and_it_is_named(tmp_path: Path) -> None:
    events = []
    for n in range(KERNELS):
        call = {"correlation": n, "device": 0}
        events += [
            span(50.0 * n, 6, "aten::mm", 12, 12, cat="cpu_op"),
            span(50.0 * n + 1, 5, "musaLaunchKernel", 12, 12, cat="musa_runtime", args=call),
            span(50.0 * n + 12, 10, "gemm", 0, 7, cat="kernel", args=call),
        ]
    found = report(tmp_path, {"deviceProperties": [{"id": 0}], "traceEvents": events})
    assert found["verdicts"][0]["kind"] == "host_bound"
    assert any("MUSA devices" in note for note in notes(found))


def ascend(*, carriers: bool, flows: bool) -> list[Event]:
    """Three steps of torch_npu: 30 matrix products of 40 µs, then an all-reduce of 500 µs."""
    found = [
        *(named(n, text) for n, text in ((1, "Python"), (2, "CANN"), (3, "Ascend Hardware"))),
        named(4, "Communication"),
    ]
    for step in range(3):
        begin = 1000.0 + 2200 * step
        for n in range(30):
            at = begin + 50 * n
            found += [
                span(at, 8, "Node@launch", 2, 10),
                span(at + 15, 40, "aclnnMatmul_MatMulV2", 3, 2),
            ]
            if flows:
                flow = {"name": "HostToDevice", "cat": "HostToDevice", "id": str(99 * step + n)}
                found += [
                    {"ph": "s", "pid": 2, "tid": 10, "ts": at, **flow},
                    {"ph": "f", "bp": "e", "pid": 3, "tid": 2, "ts": at + 15, **flow},
                ]
        found.append(span(begin + 1510, 500, "hcom_allReduce__1_0", 4, 0))
        if carriers:
            found.append(span(begin + 1510, 500, "allreduceAicpuKernel", 3, 3))
    return found


def test_the_kernel_that_carries_out_a_communication_of_ascend_is_no_computing(
    tmp_path: Path,
) -> None:
    (tmp_path / "with").mkdir()
    plain = report(tmp_path, ascend(carriers=False, flows=False))["ranks"][0]
    carried = report(tmp_path / "with", ascend(carriers=True, flows=False))["ranks"][0]
    assert carried["compute_ms"] == plain["compute_ms"] == pytest.approx(3.6)
    assert carried["exposed_comm_ms"] == plain["exposed_comm_ms"] > 0


def test_flows_of_ascend_tell_what_a_device_waited_for(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    blind = report(tmp_path, ascend(carriers=True, flows=False))["ranks"][0]
    told = report(tmp_path / "with", ascend(carriers=True, flows=True))["ranks"][0]
    assert blind["idle_unexplained_ms"] == pytest.approx(blind["idle_ms"], abs=0.25)
    # What ends with the communication, which no flow reaches, stays unexplained.
    assert told["idle_unexplained_ms"] < 0.2 < blind["idle_unexplained_ms"]


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("sum.csv", "Time (%),Total Time (ns),Instances\n1,2,3\n", "nsys export --type sqlite"),
        ("gpu.csv", "Start (ns),Duration (ns),CorrId\n1,2,3\n", "nsys export --type sqlite"),
        ("nsys.json", '{"data":["gemm"]}\n{"Type":79,"CudaEvent":{}}\n', "--type sqlite"),
        ("k.csv", '"Kind","Agent_Id","Queue_Id"\n"KERNEL_DISPATCH","Agent 4",1\n', "pftrace"),
        ("kernel_details.csv", "Step Id,Device_id,Name\n1,0,MatMul\n", "trace_view.json"),
        ("memory.json", '{"segments": [], "device_traces": []}', "torch.profiler"),
        ("layers.json", '[{"count": 9}, {"name": "conv", "timeMs": 1.5}]', "SQLite"),
        (
            "nccl.json",
            '[{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 1, "ts": 1.0, "args": {}}]',
            "torch.profiler",
        ),
        ("build.json", '{"otherData": {"bazel_version": "6"}, "traceEvents": []}', "not of a tra"),
        (
            "clang.json",
            '{"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, "name": "ParseClass"}]}',
            "not of a training run",
        ),
    ],
)
def test_a_file_of_another_tool_is_refused_with_the_way_out(
    tmp_path: Path, name: str, text: str, advice: str
) -> None:
    with pytest.raises(InvalidInput, match=advice):
        report(tmp_path, text, name)


def pipeline_timeline() -> list[Event]:
    """Two data-parallel ranks of two stages, drawn as ByteDance's timelines are."""
    found: list[Event] = []
    for dp in range(2):
        for stage in range(2):
            at = 10 * stage + 2 * dp
            place = f"PP rank {stage}, TP rank 0, "
            for n, row in enumerate(("compute", "misc")):
                line = {"ph": "M", "name": "thread_name", "pid": dp, "tid": at + n}
                found.append({**line, "args": {"name": place + row}})
            for step in range(2):
                told = {"step": step, "model_chunk": 0, "mb_id": 0, "seq_id": 0}
                begin = 1e6 * step + 1e5 * stage
                work = span(begin, 9e4, "forward-compute", dp, at, args=told)
                aside = span(begin, 9e5, "gc-watch", dp, at + 1, args=told)
                found += [{"args": told, **work}, aside]
        found.append(named(dp, f"DP rank [{dp}]"))
    return sorted(found, key=lambda e: e["ph"] == "M")


def test_a_drawn_op_table_has_a_row_for_each_rank(tmp_path: Path) -> None:
    found = report(tmp_path, pipeline_timeline())
    assert [row["rank"] for row in found["ranks"]] == [0, 1, 2, 3]
    assert {row["compute_ms"] for row in found["ranks"]} == {180.0}
    # As Megatron numbers them: the ranks of a stage stand together.
    groups = {d["kind"]: d["groups"] for d in found["parallelism"]["dimensions"]}
    assert groups == {"data": [[0, 1], [2, 3]], "pipeline": [[0, 2], [1, 3]]}


def test_a_drawn_op_table_that_was_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cut short"):
        report(tmp_path, json.dumps(pipeline_timeline())[:-40])


@pytest.mark.parametrize(
    "table",
    [
        "rank,step,optype,start_ts,duration,stage,dp_rank\n0,0,fwd,0,1,0,0\n1,0,bwd,1,1,1,0\n",
        "rank,step,optype,start_ts,duration\n0,0,backward-compute,0,1\n1,0,gc,1,1\n",
        "rank,step,optype,start_ts,duration,stage,dp_rank,seq_id\n0,0,forward-compute,0,1,0,0,0\n"
        "1,0,forward-compute,1,1,1,0,0\n",
        "rank,step,optype,start_ts,duration,stage,dp_rank,seq_id\n0,0,forward-compute,0,1,0,0,0\n"
        "1,0,loss,1,1,1,0,0\n",
    ],
)
def test_an_op_table_in_words_of_its_own_is_a_run_like_any_other(
    tmp_path: Path, table: str
) -> None:
    rows = report(tmp_path, table, "ops.csv")["ranks"]
    assert [row["rank"] for row in rows] == [0, 1]
    assert rows[0]["compute_ms"] == pytest.approx(1000.0)

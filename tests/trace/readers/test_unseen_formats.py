"""Files as other tools write them in the wild, made here in small: read right, or not too sure."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from marey.model.errors import InvalidInput
from marey.trace.report.report_document import report_document

Event = dict[str, Any]


def launch(ts: float, number: int, *, process: Any = 100) -> Event:
    """The call that launches one kernel."""
    args = {"correlation": number}
    name = "cudaLaunchKernel"
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": process, "tid": 1} | {
        "ts": ts,
        "dur": 5,
        "args": args,
    }


def kernel(ts: float, dur: float, number: int, *, name: str = "gemm", process: Any = 0) -> Event:
    """One kernel of device 0."""
    args = {"correlation": number, "device": 0, "stream": 7}
    where = {"ph": "X", "cat": "kernel", "pid": process, "tid": 7}
    return where | {"name": name, "ts": ts, "dur": dur, "args": args}


def host(ts: float, dur: float, name: str, category: str) -> Event:
    """Something the launching thread did."""
    return {"ph": "X", "cat": category, "name": name, "pid": 100, "tid": 1, "ts": ts, "dur": dur}


def names(process: int, text: str, threads: dict[int, str] | None = None) -> list[Event]:
    """The metadata that names a process and its threads."""
    found: list[Event] = [{"ph": "M", "pid": process, "name": "process_name", "args": {}}]
    found[0]["args"]["name"] = text
    for thread, label in (threads or {}).items():
        line = {"ph": "M", "pid": process, "tid": thread, "name": "thread_name"}
        found.append(line | {"args": {"name": label}})
    return found


def report(folder: Path, events: list[Event], **members: Any) -> dict[str, Any]:
    """What Marey says of a file of these events."""
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, **members}))
    return report_document(path, cache=folder / "cache")


KINETO: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100"}]}


def busy(count: int = 50, *, start: float = 0.0) -> list[Event]:
    """A device that is hardly ever idle."""
    calls = [launch(start + 1000 * n, n) for n in range(count)]
    return calls + [kernel(start + 1000 * n + 10, 980, n) for n in range(count)]


def test_times_written_as_texts_are_times_to_the_nanosecond(tmp_path: Path) -> None:
    events = busy()
    for event in events:
        event["ts"] = f"{1_708_937_812_345_678 + int(event['ts'])}.125"
    row = report(tmp_path, events, **KINETO)["ranks"][0]
    assert row["span_ms"] == pytest.approx(49.98)
    assert row["compute_ms"] == pytest.approx(49.0)


def test_ranks_merged_into_one_file_are_ranks_again(tmp_path: Path) -> None:
    events = []
    for rank in (10, 2):
        label = f"[TP{rank:02d}]"
        for n in range(20):
            # Correlations and device numbers repeat from rank to rank.
            events.append(launch(1000 * n, n, process=f"{label} 4711"))
            events.append(kernel(1000 * n + 10, 90 * rank, n, process=f"{label} 0"))
    rows = report(tmp_path, events, **KINETO)["ranks"]
    assert [(row["rank"], row["compute_ms"]) for row in rows] == [(0, 3.6), (1, 18.0)]
    assert all(row["idle_unexplained_ms"] == 0 for row in rows)


@pytest.mark.parametrize(("dropped", "sure"), [(0, True), (3, False)])
def test_a_profiler_that_lost_kernels_makes_no_idle_time_sure(
    tmp_path: Path, dropped: int, sure: bool
) -> None:
    events = late_launches([400] * 40)
    # What is missing at the end was still waiting when the recording ended.
    kept = [e for e in events if e["cat"] != "kernel" or e["args"]["correlation"] < 36]
    lost = range(5, 5 + dropped)
    kept = [e for e in kept if e["cat"] != "kernel" or e["args"]["correlation"] not in lost]
    _, is_sure, evidence = judge_first(report(tmp_path, kept, **KINETO))
    assert is_sure == sure
    assert ("of 3 of 40 launches" in evidence) != sure


def test_processes_joined_in_one_file_are_not_surely_fine(tmp_path: Path) -> None:
    events = busy()
    for process in (100, 200):
        for n in range(50):
            events.append(host(1000 * n, 9, "aten::mm", "cpu_op") | {"pid": process})
    kind, sure, _ = judge_first(report(tmp_path, events, **KINETO))
    assert (kind, sure) == ("none", False)


def test_groups_of_kernels_beside_their_streams_are_no_work_of_their_own(tmp_path: Path) -> None:
    events = names(1, "/device:GPU:0", {1: "Stream #13(Compute)", 3: "XLA Ops"})
    for n in range(20):
        common = {"ph": "X", "pid": 1, "ts": 1000 * n}
        events.append(common | {"tid": 3, "dur": 950, "name": "fusion"})
        events.append(common | {"tid": 1, "dur": 200, "name": "loop_fusion"})
    document = report(tmp_path, events)
    assert document["ranks"][0]["compute_ms"] == pytest.approx(4.0)
    assert document["verdicts"][0]["kind"] == "unexplained_idle"


def test_a_tpu_names_its_collectives_by_their_whole_text(tmp_path: Path) -> None:
    events = names(1, "/device:TPU:0", {1: "XLA Ops"})
    text = "%all-gather.3 = bf16[8,128]{1,0} all-gather(bf16[1,128] %p), replica_groups={}"
    for n in range(20):
        common = {"ph": "X", "pid": 1, "tid": 1}
        events.append(common | {"ts": 1000 * n, "dur": 600, "name": "fusion.1"})
        events.append(common | {"ts": 1000 * n + 600, "dur": 300, "name": text})
    document = report(tmp_path, events)
    assert document["ranks"][0]["comm_ms"] == pytest.approx(6.0)
    assert all(verdict["confidence"] < 0.6 for verdict in document["verdicts"])


def test_an_mxnet_profile_is_not_taken_for_an_old_kineto_trace(tmp_path: Path) -> None:
    events = [*names(0, "cpu/0"), *names(1, "gpu/0"), *names(2, "gpu/1")]
    for n in range(20):
        for process in (1, 2):
            for phase, at in (("B", 0), ("E", 900)):
                span = {"ph": phase, "cat": "operator", "name": "Convolution", "tid": 9}
                events.append(span | {"pid": process, "ts": 1000 * n + at})
    document = report(tmp_path, events)
    assert [(row["device"], row["compute_ms"]) for row in document["ranks"]] == [(0, 18), (1, 18)]
    assert "MXNet" in " ".join(note["text"] for note in document["notes"])


def test_streams_of_a_tensorflow_timeline_count_and_its_scheduling_does_not(tmp_path: Path) -> None:
    events = names(1, "/job:localhost/replica:0/task:0/device:GPU:0 Compute")
    events += names(2, "/device:GPU:0/stream:all Compute")
    for n in range(20):
        for process, at, dur in ((1, 0, 500), (2, 500, 300)):
            span = {"ph": "X", "cat": "Op", "name": "MatMul", "pid": process, "tid": 0}
            events.append(span | {"ts": 1000 * n + at, "dur": dur})
    document = report(tmp_path, events)
    assert document["ranks"][0]["compute_ms"] == pytest.approx(6.0)
    assert document["verdicts"][0]["confidence"] < 0.6


def test_a_process_of_rocprof_is_its_device_and_its_calls_are_not(tmp_path: Path) -> None:
    events = [*names(2, "CPU HIP API"), *names(6, "GPU0")]
    for n in range(20):
        call = {"ph": "X", "name": "hipLaunchKernel", "pid": 2, "tid": 9}
        events.append(call | {"ts": 1000 * n, "dur": 100})
        work = {"ph": "X", "name": "Cijk_Ailk_Bljk", "pid": 6, "tid": 0}
        events.append(work | {"ts": 1000 * n + 150, "dur": 600})
    document = report(tmp_path, events)
    assert [row["compute_ms"] for row in document["ranks"]] == [pytest.approx(12.0)]
    assert document["verdicts"][0]["confidence"] < 0.6


def make_graphs(path: Path, *, stated: bool) -> None:
    """An nsys export whose graphs are recorded as wholes; older ones state no process."""
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        base.execute("INSERT INTO StringIds VALUES (1, 'cudaGraphLaunch_v10000')")
        process = ", globalPid INTEGER" if stated else ""
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, "
            f"deviceId INTEGER, streamId INTEGER, correlationId INTEGER{process})"
        )
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, "
            "globalTid INTEGER, correlationId INTEGER, nameId INTEGER)"
        )
        for n in range(20):
            at = 10_000_000 * n
            row: list[int] = [at + 30_000, at + 4_030_000, 0, 7, n, *([5 << 24] if stated else [])]
            marks = ",".join("?" * len(row))
            base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES ({marks})", row)
            call = (at, at + 25_000, (5 << 24) + 1, n, 1)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", call)


@pytest.mark.parametrize("stated", [True, False])
def test_graphs_recorded_as_wholes_are_work(tmp_path: Path, stated: bool) -> None:
    make_graphs(tmp_path / "report.sqlite", stated=stated)
    row = report_document(tmp_path / "report.sqlite", cache=tmp_path / "cache")["ranks"][0]
    assert row["compute_ms"] == pytest.approx(80.0)
    assert row["idle_host_ms"] == pytest.approx(row["idle_ms"])


def test_an_export_without_names_threads_or_correlations_is_read_as_far_as_it_says(
    tmp_path: Path,
) -> None:
    """Versions of nsys differ in columns; what a table lacks is not known, and no error."""
    with sqlite3.connect(tmp_path / "report.sqlite") as base:
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)")
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER)")
        base.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT)")
        for n in range(20):
            at = 10_000_000 * n
            kernel_times, call = (at + 30_000, at + 4_030_000), (at, at + 25_000)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?)", kernel_times)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?)", call)
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,'step')", (at, None))
    document = report_document(tmp_path / "report.sqlite", cache=tmp_path / "cache")
    assert [row["compute_ms"] for row in document["ranks"]] == [pytest.approx(80.0)]
    assert all(verdict["confidence"] < 0.6 for verdict in document["verdicts"])


def test_a_database_of_nvprof_is_refused_with_what_would_work(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "profile.nvvp") as base:
        base.execute("CREATE TABLE StringTable (_id_ INTEGER, value TEXT)")
        base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)")
    with pytest.raises(InvalidInput, match=r"nvprof.*nsys export --type sqlite"):
        report_document(tmp_path, cache=tmp_path / "cache")


RECORDED = Path(__file__).parent / "recorded"


def test_a_real_profile_of_tensorflow_on_a_host_waits_for_its_generator(tmp_path: Path) -> None:
    """TensorFlow 2.21: the generator slept 0.1 s for each of twelve batches of a Keras fit."""
    path = RECORDED / "tensorflow-slow-input.xplane.pb.gz"
    document = report_document(path, cache=tmp_path / "cache")
    row, first = document["ranks"][0], document["verdicts"][0]
    assert (first["kind"], first["confidence"] > 0.6) == ("input_bound", True)
    # TensorFlow itself recorded 1,073.58 ms in IteratorGetNextOp::DoCompute, in parts elsewhere.
    assert row["idle_input_ms"] == pytest.approx(1073.5, abs=0.5)
    assert 0.1 < row["compute_ms"] / row["span_ms"] < 0.15


def test_a_recording_of_nothing_but_host_marks_says_that_no_work_was_recorded(
    tmp_path: Path,
) -> None:
    events = names(1, "/host:CPU", {1: "python"})
    events.append({"ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 100, "name": "EagerExecute"})
    first = report(tmp_path, events)["verdicts"][0]
    assert (first["kind"], first["confidence"]) == ("none", 0)
    assert "work of devices" in first["evidence"][0]


def test_a_log_of_tensorboard_names_the_profile_beside_it(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1700000000.host.1.0.v2").write_bytes(b"\x18" * 40)
    with pytest.raises(InvalidInput, match=r"xplane\.pb"):
        report_document(tmp_path, cache=tmp_path / "cache")


def test_a_database_of_another_tool_is_refused_with_its_own_way_out(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "results.db") as base:
        base.execute("CREATE TABLE rocpd_kernel_dispatch (id INTEGER)")
    with pytest.raises(InvalidInput, match="rocpd2pftrace"):
        report_document(tmp_path, cache=tmp_path / "cache")


def test_the_json_of_rocprofv3_is_refused_with_what_would_work(tmp_path: Path) -> None:
    (tmp_path / "1_results.json").write_text('{"rocprofiler-sdk-tool": [{"buffer_records": {}}]}')
    with pytest.raises(InvalidInput, match=r"rocprofv3.*pftrace"):
        report_document(tmp_path, cache=tmp_path / "cache")


def test_a_folder_of_nothing_but_logs_says_what_to_record(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("[Rank 0] time (ms) | fwd_microstep: 20.1 | bwd: 33.2\n")
    with pytest.raises(InvalidInput, match=r"torch\.profiler"):
        report_document(tmp_path, cache=tmp_path / "cache")


def judge_first(document: dict[str, Any]) -> tuple[str, bool, str]:
    """The first verdict: its kind, whether it is sure, its evidence in one text."""
    first = document["verdicts"][0]
    return first["kind"], first["confidence"] >= 0.6, " ".join(first["evidence"])


def test_a_whole_recording_of_a_busy_device_is_surely_fine(tmp_path: Path) -> None:
    assert judge_first(report(tmp_path, busy(), **KINETO))[:2] == ("none", True)


def test_operators_of_a_host_whose_devices_were_not_recorded_say_little(tmp_path: Path) -> None:
    events = [host(1000 * n, 950, "aten::mm", "cpu_op") for n in range(50)]
    kind, sure, evidence = judge_first(report(tmp_path, events, **KINETO))
    assert (kind, sure) == ("none", False)
    assert "none of their work was recorded" in evidence


def test_a_device_that_worked_for_a_moment_of_a_long_recording_is_not_surely_fine(
    tmp_path: Path,
) -> None:
    events = [host(10_000 * n, 9_990, "aten::mm", "cpu_op") for n in range(100)]
    kind, sure, evidence = judge_first(report(tmp_path, events + busy(start=1e6), **KINETO))
    assert (kind, sure) == ("none", False)
    assert "the host was recorded for 1049.0 ms" in evidence


def test_one_kernel_is_no_run(tmp_path: Path) -> None:
    kind, sure, evidence = judge_first(report(tmp_path, busy(1), **KINETO))
    assert (kind, sure) == ("none", False)
    assert "too little device work" in evidence


def late_launches(idle_us: list[int]) -> list[dict[str, Any]]:
    """Kernels of 850 µs, each launched so long after the one before."""
    events, now = [], 0
    for n, idle in enumerate(idle_us):
        events += [launch(now + idle, n), kernel(now + idle + 10, 850, n)]
        now += idle + 860
    return events


@pytest.mark.parametrize(
    ("idle_us", "doubt"),
    [
        ([400] * 40, ""),
        ([120] * 40, "hardly what the run is bound by"),
        ([400] * 20 + [60_000] + [20] * 19, "one pause of 60.0 ms"),
        ([900] * 5, "too little device work"),
    ],
    ids=["half", "a little", "one pause", "a moment"],
)
def test_a_host_that_costs_little_or_once_is_no_sure_bound(
    tmp_path: Path, idle_us: list[int], doubt: str
) -> None:
    kind, sure, evidence = judge_first(report(tmp_path, late_launches(idle_us), **KINETO))
    assert (kind, sure) == ("host_bound", not doubt)
    assert doubt in evidence


@pytest.mark.parametrize(
    ("name", "category", "sure"),
    [
        ("aten::cudnn_convolution", "cpu_op", True),
        ("cuModuleLoadData", "cuda_runtime", True),
        ("cudaStreamSynchronize", "cuda_runtime", False),
        ("aten::item", "cpu_op", False),
        ("torch/_inductor/compile_fx.py(10): compile_fx", "python_function", False),
    ],
)
def test_one_pause_of_a_host_at_work_is_its_own_and_said_to_be_one(
    tmp_path: Path, name: str, category: str, sure: bool
) -> None:
    events = late_launches([400] * 20 + [60_000] + [20] * 19)
    start = events[39]["ts"] + events[39]["dur"]
    events.append(host(start, 59_980, name, category))
    kind, is_sure, evidence = judge_first(report(tmp_path, events, **KINETO))
    assert is_sure == (sure and kind == "host_bound")
    assert f"one pause of 60.0 ms in {name}" in evidence or not sure


@pytest.mark.parametrize(
    ("name", "sure"),
    [
        ("zmq/sugar/socket.py(711): recv_multipart", False),
        ("<built-in method poll of select.epoll object at 0x7f>", False),
        ("<built-in function sleep>", False),
        ("vllm/distributed/device_communicators/shm_broadcast.py(420): dequeue", False),
        ("vllm/v1/core/sched/scheduler.py(100): schedule", True),
    ],
)
def test_a_server_that_waits_for_requests_is_not_surely_host_bound(
    tmp_path: Path, name: str, sure: bool
) -> None:
    events = []
    for n in range(20):
        events.append(host(10_000 * n, 9_000, name, "python_function"))
        events += [launch(10_000 * n + 9_000, n), kernel(10_000 * n + 9_010, 900, n)]
    assert judge_first(report(tmp_path, events, **KINETO))[:2] == ("host_bound", sure)


def test_kernels_that_exchange_data_keep_nothing_from_being_sure(tmp_path: Path) -> None:
    events = busy()
    for event in events[50::2]:
        event["name"] = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)"
    document = report(tmp_path, events, **KINETO)
    assert document["ranks"][0]["compute_ms"] == pytest.approx(49.0)
    kind, sure, evidence = judge_first(document)
    assert (kind, sure) == ("none", False)
    assert "exchange data between ranks" in evidence


def test_a_device_that_idles_beside_busy_ones_is_named_though_nobody_waits_for_it(
    tmp_path: Path,
) -> None:
    events = []
    for n in range(50):
        for device in range(4):
            number = 4 * n + device
            work = kernel(1000 * n + 10, 180 if device == 2 else 980, number, process=device)
            work["args"]["device"] = device
            events += [launch(1000 * n, number), work]
    document = report(tmp_path, events, **KINETO)
    first = document["verdicts"][0]
    assert (first["kind"], first["ranks"]) == ("host_bound", [2])
    assert first["confidence"] >= 0.6
    row = document["ranks"][2]
    assert f"idle host {row['idle_host_ms']:.3f} ms of {row['span_ms']:.3f} ms" in " ".join(
        first["evidence"]
    )


def test_small_reasons_that_add_up_keep_nothing_from_being_sure(tmp_path: Path) -> None:
    events = []
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    for n in range(50):
        at = 1000 * n + 10
        events += [launch(1000 * n, 3 * n), kernel(at, 650, 3 * n)]
        events += [launch(1000 * n + 5, 3 * n + 1), kernel(at + 650, 280, 3 * n + 1, name=name)]
    kind, sure, evidence = judge_first(report(tmp_path, events, **KINETO))
    assert (kind, sure) == ("none", False)
    assert "computed nothing for 35 %" in evidence


@pytest.mark.parametrize(
    ("folders", "ranks"), [(("node0", "node1"), 4), (("iteration_10", "iteration_20"), 2)]
)
def test_local_ranks_of_several_nodes_are_ranks_of_their_own(
    tmp_path: Path, folders: tuple[str, str], ranks: int
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir()
        for rank in range(2):
            text = json.dumps({"traceEvents": busy(), **KINETO})
            (tmp_path / folder / f"local_rank{rank}.json").write_text(text)
    assert len(report_document(tmp_path, cache=tmp_path / "cache")["ranks"]) == ranks


def test_transfers_recorded_without_a_duration_wait_for_nothing(tmp_path: Path) -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    events = busy()
    for n in range(0, 50, 2):
        for _ in range(2):
            events.append(kernel(1000 * n + 995, -1, 100 + n, name=name))
    row = report(tmp_path, events, **KINETO)["ranks"][0]
    assert row["compute_ms"] == pytest.approx(49.0)
    assert row["comm_ms"] == 0


def test_times_beyond_every_clock_are_named(tmp_path: Path) -> None:
    """Nanoseconds where microseconds are meant: no time is left that a clock could show."""
    events = busy()
    for event in events:
        event["ts"] = 1_708_937_812_345_678_901 + int(event["ts"])
    with pytest.raises(InvalidInput, match=r"microseconds.*divide ts and dur by 1,000"):
        report(tmp_path, events, **KINETO)


def test_a_file_that_lost_some_times_is_not_surely_fine(tmp_path: Path) -> None:
    events = busy()
    for event in events[::10]:
        event["ts"] = 1_708_937_812_345_678_901
    _, sure, evidence = judge_first(report(tmp_path, events, **KINETO))
    assert not sure
    assert "could not be read" in evidence


def test_two_ranks_that_compute_unequally_are_not_surely_fine(tmp_path: Path) -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    for rank, work in ((0, 800), (1, 400)):
        events = []
        for n in range(20):
            at = 1000 * n + 10
            events += [launch(1000 * n, 2 * n), kernel(at, work, 2 * n)]
            events += [launch(1000 * n + 5, 2 * n + 1)]
            events += [kernel(at + work, 950 - work, 2 * n + 1, name=name)]
        shared = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        document = {"traceEvents": events, **KINETO, **shared}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    kind, sure, evidence = judge_first(report_document(tmp_path, cache=tmp_path / "cache"))
    assert not (kind == "none" and sure)
    assert "rank 0 computed 16.0 ms and rank 1 of the same stage 8.0 ms" in evidence

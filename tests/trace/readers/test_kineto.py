"""What a PyTorch trace means: kinds, links, steps, modules and communication."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marey.model.training.traces import EVENTS, EventKind
from marey.trace.run.trace_run import TraceRun, open_run

GROUPS = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]


def event(name: str, cat: str, ts: float, dur: float, tid: Any = 7, **args: Any) -> dict[str, Any]:
    pid = 0 if cat in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel") else 100
    return {
        "ph": "X",
        "name": name,
        "cat": cat,
        "ts": ts,
        "dur": dur,
        "pid": pid,
        "tid": tid,
        "args": args,
    }


def opened(tmp_path: Path, events: list[dict[str, Any]], **members: Any) -> TraceRun:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **members, "traceEvents": events}))
    return open_run(path, cache=tmp_path / "cache")


def rows(run: TraceRun, rank: int = 0) -> list[dict[str, Any]]:
    """The events as dictionaries, with texts for codes."""
    table = run.events(rank)
    found = table.to_pylist()
    for row in found:
        for name in ("name", "host", "module", "group", "dtype", "collective"):
            row[name] = run.symbols.text(row[name])
    return found


def named(run: TraceRun, name: str) -> dict[str, Any]:
    (found,) = [row for row in rows(run) if row["name"] == name]
    return found


def test_table_has_the_schema_of_the_contract_and_is_sorted(tmp_path: Path) -> None:
    run = opened(tmp_path, [event("b", "cpu_op", 20, 1), event("a", "cpu_op", 10, 5)])
    table = run.events(0)
    assert table.schema.equals(EVENTS)
    assert np.all(np.diff(table["start_ns"].to_numpy()) >= 0)
    assert run.events(0, ["dur_ns", "rank"]).to_pydict() == {"dur_ns": [5000, 1000], "rank": [0, 0]}


def test_kernel_is_linked_to_its_launch_and_the_launch_to_its_operator(tmp_path: Path) -> None:
    run = opened(
        tmp_path,
        [
            event("aten::mm", "cpu_op", 10, 9, 5, **{"External id": 3}),
            event(
                "cudaLaunchKernel", "cuda_runtime", 12, 2, 5, correlation=77, **{"External id": 3}
            ),
            event(
                "gemm", "kernel", 30, 4, 7, correlation=77, stream=7, device=1, **{"External id": 3}
            ),
        ],
    )
    kernel, call, op = named(run, "gemm"), named(run, "cudaLaunchKernel"), named(run, "aten::mm")
    table = rows(run)
    assert table[kernel["launch"]] == call
    assert table[call["launch"]] == op
    assert (kernel["device"], kernel["stream"], kernel["on_device"]) == (1, 7, True)
    assert (op["device"], op["stream"], op["on_device"]) == (-1, 5, False)
    assert kernel["kind"] == EventKind.COMPUTE
    assert (call["kind"], op["kind"]) == (EventKind.RUNTIME, EventKind.CPU_OP)


def test_external_id_that_repeats_the_correlation_links_no_operator(tmp_path: Path) -> None:
    run = opened(
        tmp_path,
        [
            event("aten::early", "cpu_op", 1, 2, 5, **{"External id": 77}),
            event(
                "cudaLaunchKernel", "cuda_runtime", 12, 2, 5, correlation=77, **{"External id": 77}
            ),
            event("gemm", "kernel", 30, 4, 7, correlation=77),
        ],
    )
    assert named(run, "cudaLaunchKernel")["launch"] == -1


def test_steps_reach_device_events_through_their_launch(tmp_path: Path) -> None:
    run = opened(
        tmp_path,
        [
            event("ProfilerStep#4", "user_annotation", 0, 100, 5),
            event("ProfilerStep#5", "user_annotation", 100, 100, 5),
            event("cudaLaunchKernel", "cuda_runtime", 90, 2, 5, correlation=1),
            event("late kernel", "kernel", 150, 4, 7, correlation=1),
            event("outside", "cpu_op", 300, 4, 5),
        ],
    )
    assert named(run, "late kernel")["step"] == 4
    assert named(run, "ProfilerStep#5")["step"] == 5
    assert named(run, "outside")["step"] == -1


def test_backward_takes_the_module_of_its_forward(tmp_path: Path) -> None:
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 9, "pid": 100}
    run = opened(
        tmp_path,
        [
            event("nn.Module: Block_0", "python_function", 0, 50, 5),
            event("nn.Module: Linear_1", "python_function", 10, 20, 5),
            event("aten::linear", "cpu_op", 12, 5, 5),
            event("aten::relu", "cpu_op", 40, 5, 5),
            event("LinearBackward", "cpu_op", 80, 10, 6),
            event("cudaLaunchKernel", "cuda_runtime", 84, 1, 6, correlation=3),
            event("gemm", "kernel", 95, 4, 7, correlation=3),
            {"ph": "s", "ts": 12, "tid": 5, **flow},
            {"ph": "f", "ts": 80, "tid": 6, "bp": "e", **flow},
        ],
    )
    table = rows(run)
    assert named(run, "aten::linear")["module"] == "Linear_1"
    assert named(run, "aten::relu")["module"] == "Block_0"
    backward = named(run, "LinearBackward")
    assert table[backward["forward"]]["name"] == "aten::linear"
    assert backward["module"] == "Linear_1"
    assert named(run, "gemm")["module"] == "Linear_1"


def test_first_generation_links_backward_by_sequence_number(tmp_path: Path) -> None:
    run = opened(
        tmp_path,
        [
            event("aten::mul", "Operator", 0, 5, "5", **{"Sequence number": 8, "Fwd thread id": 0}),
            event(
                "MulBackward", "Operator", 20, 5, "6", **{"Sequence number": 8, "Fwd thread id": 1}
            ),
            event("mul_kernel", "Kernel", 40, 5, "stream 7", correlation=1, stream=7),
            event("Optimizer.step#SGD.step", "Operator", 50, 5, "5"),
        ],
    )
    table = rows(run)
    assert table[named(run, "MulBackward")["forward"]]["name"] == "aten::mul"
    assert named(run, "mul_kernel")["stream"] == 7
    assert named(run, "Optimizer.step#SGD.step")["kind"] == EventKind.ANNOTATION


NCCL_ARGS = {
    "Collective name": "allreduce",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "dtype": "BFloat16",
    "Process Group Name": "0",
    "Seq": 12,
    "Comms Id": 18446744073709551615,
}


@pytest.mark.parametrize(
    ("kernel", "collective"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "allreduce"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("ncclDevKernel_ReduceScatter_Sum_f32(x)", "reducescatter"),
        ("rcclGenericKernel_AllGather(x)", "allgather"),
        ("ncclDevKernel_SendRecv(x)", "sendrecv"),
        ("hccl::all_to_all", "alltoall"),
    ],
)
def test_communication_kernels_of_every_library_are_collectives(
    tmp_path: Path, kernel: str, collective: str
) -> None:
    run = opened(tmp_path, [event(kernel, "kernel", 1, 2, 20)])
    found = named(run, kernel)
    assert found["kind"] == EventKind.COLLECTIVE
    assert found["collective"] == collective
    assert (found["bytes"], found["sequence"], found["group"]) == (-1, -1, "")


def test_a_kernel_that_only_mentions_nccl_is_compute(tmp_path: Path) -> None:
    run = opened(tmp_path, [event("void my::ncclLike<ncclKernel>(int)", "kernel", 1, 2, 20)])
    assert rows(run)[0]["kind"] == EventKind.COMPUTE


def test_todays_kernels_carry_their_communication_themselves(tmp_path: Path) -> None:
    run = opened(
        tmp_path, [event("ncclDevKernel_AllReduce_Sum(x)", "kernel", 1, 2, 20, **NCCL_ARGS)]
    )
    found = rows(run)[0]
    assert (found["group"], found["sequence"], found["dtype"]) == ("0", 12, "BFloat16")
    assert found["bytes"] == 2000
    assert found["comms_id"] >= 0


def test_a_kernel_without_arguments_takes_those_of_the_call_around_its_launch(
    tmp_path: Path,
) -> None:
    run = opened(
        tmp_path,
        [
            event("record_param_comms", "cpu_op", 10, 10, 5, **NCCL_ARGS),
            event("cudaLaunchKernel", "cuda_runtime", 12, 2, 5, correlation=4),
            event("ncclDevKernel_AllReduce_Sum(x)", "kernel", 30, 5, 20, correlation=4),
        ],
    )
    found = named(run, "ncclDevKernel_AllReduce_Sum(x)")
    assert (found["group"], found["sequence"], found["bytes"]) == ("0", 12, 2000)


def test_the_process_group_id_of_2024_names_the_group(tmp_path: Path) -> None:
    args = {
        "Process Group ID": 3,
        "Collective name": "all_gather",
        "dtype": "Float",
        "In msg nelems": 8,
    }
    run = opened(tmp_path, [event("ncclDevKernel_AllGather(x)", "kernel", 1, 2, 20, **args)])
    assert (rows(run)[0]["group"], rows(run)[0]["bytes"]) == ("3", 32)


def test_a_send_that_runs_a_sendrecv_kernel_is_a_send_with_its_peer(tmp_path: Path) -> None:
    args = {
        "Collective name": "send",
        "dtype": "Float",
        "In msg nelems": 8,
        "Src Rank": 1,
        "Dst Rank": 3,
    }
    run = opened(tmp_path, [event("ncclDevKernel_SendRecv(x)", "kernel", 1, 2, 20, **args)])
    assert (rows(run)[0]["kind"], rows(run)[0]["peer"]) == (EventKind.SEND, 3)


def test_synchronisations_say_what_they_wait_for(tmp_path: Path) -> None:
    args = {
        "wait_on_stream": 20,
        "wait_on_cuda_event_record_corr_id": 55,
        "stream": 7,
        "correlation": 56,
    }
    run = opened(
        tmp_path,
        [event("Stream Wait Event", "cuda_sync", 1, 2, 7, **args), event("k", "kernel", 5, 1)],
    )
    found = named(run, "Stream Wait Event")
    assert (found["wait_stream"], found["wait_correlation"], found["on_device"]) == (20, 55, False)
    assert found["kind"] == EventKind.SYNC


def test_without_devices_operators_and_gloo_count_as_device_activity(tmp_path: Path) -> None:
    dims = {"Input Dims": [[256]], "Input type": ["float"]}
    call_dims = {"Input Dims": [[[256]], []], "Input type": ["TensorList", ""]}
    run = opened(
        tmp_path,
        [
            event("ProfilerStep#1", "user_annotation", 0, 100, 5),
            event("aten::outer", "cpu_op", 5, 20, 5),
            event("aten::inner", "cpu_op", 6, 5, 5),
            event("c10d::allreduce_", "cpu_op", 30, 2, 5, **call_dims),
            event("gloo:all_reduce", "user_annotation", 33, 40, 9, **dims),
        ],
        distributedInfo={"rank": 0, "world_size": 2, "backend": "gloo", "pg_config": GROUPS},
    )
    table = rows(run)
    outer, inner = named(run, "aten::outer"), named(run, "aten::inner")
    assert (outer["kind"], outer["on_device"]) == (EventKind.COMPUTE, True)
    assert (inner["kind"], inner["on_device"]) == (EventKind.CPU_OP, False)
    transfer = named(run, "gloo:all_reduce")
    assert (transfer["kind"], transfer["on_device"]) == (EventKind.COLLECTIVE, True)
    assert (transfer["bytes"], transfer["group"], transfer["step"]) == (1024, "0", 1)
    assert table[transfer["launch"]]["name"] == "c10d::allreduce_"
    assert not named(run, "c10d::allreduce_")["on_device"]
    assert not run.info(0).has_device


def test_allocations_are_a_table_of_their_own(tmp_path: Path) -> None:
    memory = {
        "ph": "i",
        "name": "[memory]",
        "cat": "cpu_instant_event",
        "pid": 1,
        "tid": 1,
        "ts": 2,
    }
    args = {
        "Bytes": -64,
        "Total Allocated": 128,
        "Total Reserved": 256,
        "Device Type": 1,
        "Device Id": 0,
    }
    host = {"Bytes": 8, "Device Type": 0, "Device Id": -1}
    run = opened(
        tmp_path,
        [event("a", "cpu_op", 1, 1), {**memory, "args": args}, {**memory, "ts": 1, "args": host}],
        baseTimeNanoseconds=5,
    )
    assert run.memory(0).to_pydict() == {
        "time_ns": [1005, 2005],
        "device": [-1, 0],
        "bytes": [8, -64],
        "allocated_bytes": [-1, 128],
        "reserved_bytes": [-1, 256],
    }


def test_times_are_absolute_and_the_header_is_kept(tmp_path: Path) -> None:
    run = opened(
        tmp_path,
        [event("a", "cpu_op", 1.5, 1)],
        baseTimeNanoseconds=1_790_857_026_000_000_000,
        host_name="node-7",
        deviceProperties=[{"name": "H100"}],
        distributedInfo={"rank": 0, "world_size": 2, "backend": "nccl", "pg_config": GROUPS},
    )
    info = run.info(0)
    assert rows(run)[0]["start_ns"] == 1_790_857_026_000_001_500
    assert rows(run)[0]["host"] == info.host == "node-7"
    assert (info.world_size, info.backend, info.device_name) == (2, "nccl", "H100")
    assert dict(info.groups) == {"0": (0, 1)}
    assert dict(info.group_descriptions) == {"0": "default_pg"}


def test_profiler_spans_and_analysis_overlays_are_no_activity(tmp_path: Path) -> None:
    run = opened(
        tmp_path, [event("PyTorch Profiler (0)", "Trace", 0, 9, "x"), event("a", "cpu_op", 1, 1)]
    )
    assert [row["name"] for row in rows(run)] == ["a"]

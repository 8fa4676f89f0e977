"""A synthetic run as the JSON files that the PyTorch profiler would have written, one per rank."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.run.trace_run import RankInfo, TraceRun
from marey.trace.synthetic.simulation import MAIN_THREAD
from marey.trace.synthetic.tables import ORIGIN_NS

CATEGORIES = {
    EventKind.COMPUTE: "kernel",
    EventKind.COLLECTIVE: "kernel",
    EventKind.SEND: "kernel",
    EventKind.RECV: "kernel",
    EventKind.MEMCPY: "gpu_memcpy",
    EventKind.RUNTIME: "cuda_runtime",
    EventKind.CPU_OP: "cpu_op",
    EventKind.ANNOTATION: "user_annotation",
}
HOST_PROCESS = 4242
ELEMENT_BYTES = 2
# Parameters, gradients and optimizer state before the first step, and what the allocator holds.
MODEL_BYTES, RESERVED_BYTES = 18 << 30, 40 << 30
STATED = {"allgather": "_allgather_base", "reducescatter": "_reduce_scatter_base"}


def write_kineto(run: TraceRun, folder: Path, *, filler_bytes: int = 0) -> list[Path]:
    """Write one trace per rank; ``filler_bytes`` adds that much of Python frames to each."""
    folder.mkdir(parents=True, exist_ok=True)
    filler = filler_events(filler_bytes)
    paths = []
    for rank in run.ranks:
        path = folder / f"rank{rank:04d}.pt.trace.json"
        with path.open("w") as file:
            file.write(_head(run.info(rank)))
            file.write(",\n".join(_events(run, rank)))
            file.writelines(_memory(run, rank))
            file.write(filler)
            file.write("\n]}\n")
        paths.append(path)
    return paths


def filler_events(size: int) -> str:
    """Return Python frames of about this many bytes.

    The same text may end the events of any rank.
    """
    if size <= 0:
        return ""
    line = (
        ',\n{{"ph":"X","cat":"python_function","name":"torch/nn/module.py({0}): _call_impl",'
        '"pid":4242,"tid":1000,"ts":{1}.500,"dur":0.100,"args":{{"Python parent id":{0},'
        '"Python id":{2},"Ev Idx":{2}}}}}'
    )
    count = size // len(line.format(1500, 10_000, 10_000))
    return "".join(line.format(at % 1600, at, at) for at in range(count))


def _head(info: RankInfo) -> str:
    groups = [
        {
            "pg_name": name,
            "pg_desc": info.group_descriptions.get(name, ""),
            "backend_config": "cuda:nccl",
            "pg_size": len(ranks),
            "ranks": list(ranks),
        }
        for name, ranks in info.groups.items()
    ]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
        "distributedInfo": {
            "backend": "nccl",
            "rank": info.rank,
            "world_size": info.world_size,
            "pg_count": len(groups),
            "pg_config": groups,
            "nccl_version": "2.27.5",
        },
        "host_name": info.host,
        "baseTimeNanoseconds": ORIGIN_NS,
    }
    return json.dumps(head)[:-1] + ',\n"traceEvents": [\n'


def _events(run: TraceRun, rank: int) -> Iterator[str]:
    texts = run.symbols.texts()
    info = run.info(rank)
    for event in run.events(rank).to_pylist():
        kind = EventKind(event["kind"])
        args = _arguments(event, kind, texts, info)
        device = event["device"] if event["on_device"] else HOST_PROCESS
        yield json.dumps(
            {
                "ph": "X",
                "cat": CATEGORIES[kind],
                "name": texts[event["name"]],
                "pid": device,
                "tid": event["stream"],
                "ts": round((event["start_ns"] - ORIGIN_NS) / 1e3, 3),
                "dur": round(event["dur_ns"] / 1e3, 3),
                "args": args,
            }
        )


def _memory(run: TraceRun, rank: int) -> Iterator[str]:
    """Yield allocations as the profiler marks them: activations live from forward to backward."""
    texts = run.symbols.texts()
    events = run.events(rank)
    columns = (events[c].to_pylist() for c in ("start_ns", "kind", "name", "shapes"))
    held: list[int] = []
    total = MODEL_BYTES
    for start, kind, name, shapes in zip(*columns, strict=True):
        if kind != EventKind.CPU_OP:
            continue
        if shapes != NO_VALUE:
            change = ELEMENT_BYTES * _elements(json.loads(texts[shapes])[0])
            held.append(change)
        elif held and texts[name].endswith(("Backward", "Backward0")):
            change = -held.pop()
        else:
            continue
        total += change
        yield ",\n" + json.dumps(
            {
                "ph": "i",
                "s": "t",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": HOST_PROCESS,
                "tid": MAIN_THREAD,
                "ts": round((start - ORIGIN_NS) / 1e3, 3),
                "args": {
                    "Device Type": 1,
                    "Device Id": rank % 8,
                    "Bytes": change,
                    "Total Allocated": total,
                    "Total Reserved": RESERVED_BYTES,
                },
            }
        )


def _elements(shape: list[int]) -> int:
    return math.prod(shape)


def _arguments(
    event: dict[str, Any], kind: EventKind, texts: list[str], info: RankInfo
) -> dict[str, Any]:
    if kind == EventKind.ANNOTATION:
        return {}
    args: dict[str, Any] = {"External id": event["external_id"]}
    if event["module_path"] != NO_VALUE and not event["on_device"]:
        args["Module Hierarchy"] = texts[event["module_path"]]
    if kind == EventKind.CPU_OP:
        if event["shapes"] != NO_VALUE:
            args["Input Dims"] = json.loads(texts[event["shapes"]])
        return args
    args["correlation"] = event["correlation"]
    if kind == EventKind.RUNTIME:
        return args
    args |= {"device": event["device"], "stream": event["stream"]}
    if event["group"] != NO_VALUE:
        args |= _communication(event, kind, texts, info)
    return args


def _communication(
    event: dict[str, Any], kind: EventKind, texts: list[str], info: RankInfo
) -> dict[str, Any]:
    group = texts[event["group"]]
    collective = texts[event["collective"]]
    elements = event["bytes"] // ELEMENT_BYTES
    args: dict[str, Any] = {
        "Collective name": STATED.get(collective, collective),
        "dtype": texts[event["dtype"]],
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": len(info.groups[group]),
        "Process Group Name": group,
        "Process Group Description": info.group_descriptions.get(group, ""),
    }
    if event["sequence"] != NO_VALUE:
        args["Seq"] = event["sequence"]
    if event["comms_id"] != NO_VALUE:
        args["Comms Id"] = event["comms_id"]
    if kind == EventKind.SEND:
        args["Dst Rank"] = info.groups[group].index(event["peer"])
    if kind == EventKind.RECV:
        args["Src Rank"] = info.groups[group].index(event["peer"])
    return args

"""Files of known tools that hold no time line: refused, with the export that would work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.streams import head_of

NAME = "refused"
VERSION = 4


@dataclass(frozen=True)
class Refusal:
    """How a kind of file is known, by its name or its first bytes, and what to do instead."""

    name: re.Pattern[str] | None
    head: re.Pattern[bytes] | None
    text: str

    def fits(self, path: Path, head: bytes) -> bool:
        """Return whether this file is of the kind."""
        by_name = self.name is None or self.name.search(path.name) is not None
        return by_name and (self.head is None or self.head.search(head) is not None)


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        None,
        re.compile(rb"^.{257}ustar", re.DOTALL),
        "is a tar archive; unpack it (tar xf FILE) and give the trace or the folder",
    ),
    Refusal(
        None,
        re.compile(rb"^(?:PK\x03\x04|BZh[1-9]1AY|\xfd7zXZ\x00|7z\xbc\xaf)"),
        "is compressed in a way that is not read; unpack it (allowed: plain, gzip or zstd)",
    ),
    Refusal(
        None,
        re.compile(rb"^(?:\xff\xfe|\xfe\xff)"),
        "is UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 FILE",
    ),
    Refusal(
        re.compile(r"\.(?:nsys-rep|qdrep|qdstrm)$"),
        None,
        "is a report of Nsight Systems; export it: nsys export --type sqlite REPORT",
    ),
    Refusal(
        None,
        re.compile(rb"^(?:Time \(%\),Total Time \(ns\)|Start \(ns\),Duration \(ns\))"),
        "is a table of nsys stats; export the report itself: nsys export --type sqlite REPORT",
    ),
    Refusal(
        None,
        re.compile(
            rb'^\s*\{\s*"(?:data|Type)"\s*:.{0,400}"(?:CudaEvent|TraceProcessEvent|Type)"',
            re.DOTALL,
        ),
        "is the JSON of nsys, which is not read; export: nsys export --type sqlite REPORT",
    ),
    Refusal(
        None,
        re.compile(rb'^"?Kind"?,"?(?:Agent_Id|Domain|Function)"?,'),
        "is a table of rocprofv3; ask for --output-format pftrace and convert it: traceconv json "
        "TRACE OUT.json, or record a PyTorch program with torch.profiler",
    ),
    Refusal(
        re.compile(
            r"(?:kernel_details|op_statistic|op_summary|step_trace_(?:time|raw)|operator_details"
            r"|api_statistic|task_time|hccl_raw|cluster_analyse)[\w.]*\.csv$"
        ),
        None,
        "is a table that Ascend's profiler writes; give the timeline beside it "
        "(trace_view.json or msprof_*.json)",
    ),
    Refusal(
        None,
        re.compile(rb'^\s*\{\s*"(?:segments|device_traces)"\s*:'),
        "is a snapshot of PyTorch's memory, without what the devices did; record with "
        "torch.profiler",
    ),
    Refusal(
        None,
        re.compile(
            rb'"cat"\s*:\s*"(?:GROUP(?:_API)?|COLL(?:_API)?|P2P_API|KERNEL_LAUNCH|PROXY)"'
            rb'[^{}]*"ph"\s*:\s*"b"'
        ),
        "is a log of NCCL's example profiler: it shows communication and not what the devices "
        "did; record the same steps with torch.profiler",
    ),
    Refusal(
        None,
        re.compile(rb'^\s*\[\s*\{\s*"count"\s*:\s*\d+\s*\}\s*,\s*\{\s*"name"[^{}]*"timeMs"'),
        "is a table of trtexec, which has no time line; record with nsys and export to SQLite",
    ),
    Refusal(
        None,
        re.compile(rb'"bazel_version"\s*:|"source"\s*:\s*"DevTools"|"CrRendererMain"'),
        "is a recording of a build or a browser, not of a training run",
    ),
    Refusal(
        None,
        re.compile(
            rb'"name"\s*:\s*"(?:ExecuteCompiler|Total ExecuteCompiler|ParseClass'
            rb'|InstantiateFunction)"'
        ),
        "is a compiler's recording of its own work (-ftime-trace), not of a training run",
    ),
    Refusal(
        re.compile(r"\.tfevents\."),
        None,
        "is a log of TensorBoard, which has scalars and no time line; give the profile beside it "
        "(plugins/profile/…/*.xplane.pb or *.trace.json.gz)",
    ),
    Refusal(
        re.compile(r"\.(?:pftrace|perfetto-trace)$"),
        None,
        "is a Perfetto trace; convert it: traceconv json TRACE OUT.json",
    ),
    Refusal(
        None,
        re.compile(rb'^\s*\{\s*"rocprofiler-sdk-tool"'),
        "is the JSON of rocprofv3, which is not read; record a PyTorch program with "
        "torch.profiler, or ask for --output-format pftrace and convert it: traceconv json TRACE "
        "OUT.json",
    ),
    Refusal(
        re.compile(r"\.ncu-rep$"),
        None,
        "is a report of Nsight Compute, which has counters and no time line; record with "
        "torch.profiler, or with nsys and export to SQLite",
    ),
    Refusal(
        None,
        re.compile(rb"NEGOTIATE_(?:ALL|BROADCAST|REDUCE)|\"HOROVOD"),
        "is a Horovod timeline: it shows transfers by tensor and not what the devices did; record "
        "the same steps with torch.profiler or TensorFlow's profiler",
    ),
    Refusal(
        None,
        re.compile(
            rb"time \(ms\) \||rank=\d+ time \(ms\)|(?:forward|backward)-(?:compute|backward)"
            rb"[ .]*: \(?[0-9.]+"
        ),
        "holds timers of DeepSpeed or Megatron, sums without a time line; record with "
        "torch.profiler (Megatron: --profile --use-pytorch-profiler)",
    ),
    Refusal(
        None,
        re.compile(rb"^\s*\{\s*\"scope_map\""),
        "is the scope map of a Marey graph and has no times; give the timeline beside it "
        "(ascend_marey_timeline_*.json)",
    ),
    Refusal(
        None,
        re.compile(rb'^\s*\{\s*"total_time"\s*:[^{}]*"num_of_streams"'),
        "is the summary of a MindSpore timeline; give the timeline beside it "
        "(*_timeline_display_*.json)",
    ),
    Refusal(
        re.compile(r"^profiler_info_"),
        None,
        "describes a MindSpore profile and holds no events; give the timeline beside it",
    ),
)


def sniff(path: Path, head: bytes) -> bool:
    """Return whether the file is of a kind that is refused."""
    return any(refusal.fits(path, head) for refusal in REFUSALS)


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return no events, and one sentence that says which export would work."""
    head = head_of(path)
    text = next(refusal.text for refusal in REFUSALS if refusal.fits(path, head))
    return FileEvents(iter(()), [text])

"""What a name in a trace says: the one home of "is this a collective" and its relatives."""

from __future__ import annotations

import re
from dataclasses import dataclass

from marey.model.training.traces import EventKind

# Device kernels of the communication libraries: NCCL of yesterday and today, AMD's RCCL, MTIA's and
# Ascend's HCCL, oneCCL. The prefix decides: "nccl" inside a template argument is not a collective.
_COMMUNICATION_KERNEL = re.compile(
    # … and since 2.27 of buffers registered everywhere (ncclSymDevKernel, ncclSymkDevKernel).
    r"^(?:void\s+)?(?:ncclKernel|ncclDev|ncclSymk?Dev|mscclKernel|rccl|hccl|oneccl)",
    re.IGNORECASE,
)
# Expert-parallel exchange by DeepEP: dispatch and combine are an all-to-all of their own.
_EXPERT_KERNEL = re.compile(r"^(?:void\s+)?(?:[A-Za-z_]\w*::)*(?:deep_ep|ep)::int(?:er|ra)node")
# Host-side names: gloo's run loop, NCCL annotations, c10d dispatch, functional collectives.
_COMMUNICATION_CALL = re.compile(
    r"^(?:gloo:|nccl:|xccl:|ucc:|mpi:|c10d::|_c10d_functional::|c10d_functional::)", re.IGNORECASE
)
_NOT_A_TRANSFER = re.compile(r"wait_tensor|monitored|work_wait|c10d::_allocate", re.IGNORECASE)

# Longest first, so that "reduce_scatter" is not found as "reduce".
_COLLECTIVES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reducescatter", ("reducescatter",)),
    ("allgather", ("allgather",)),
    ("allreduce", ("allreduce",)),
    ("alltoall", ("alltoall",)),
    ("sendrecv", ("sendrecv", "collectivepermute")),
    ("broadcast", ("broadcast", "bcast")),
    ("barrier", ("barrier",)),
    ("scatter", ("scatter",)),
    ("gather", ("gather",)),
    ("reduce", ("reduce",)),
    ("send", ("send",)),
    ("recv", ("recv", "receive")),
)
_SEPARATORS = re.compile(r"[\s_\-.:]+")

DTYPE_BYTES = {
    "bool": 1,
    "byte": 1,
    "char": 1,
    "int8": 1,
    "uint8": 1,
    "unsignedchar": 1,
    "signedchar": 1,
    "float8": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "half": 2,
    "c10::half": 2,
    "bfloat16": 2,
    "c10::bfloat16": 2,
    "float16": 2,
    "short": 2,
    "shortint": 2,
    "int16": 2,
    "int": 4,
    "int32": 4,
    "float": 4,
    "float32": 4,
    "long": 8,
    "longint": 8,
    "int64": 8,
    "double": 8,
    "float64": 8,
    "complexfloat": 8,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}


def dtype_bytes(dtype: str) -> int:
    """Return bytes of one element of a dtype as PyTorch spells it, or 0 if the name is unknown."""
    return DTYPE_BYTES.get(dtype.lower().replace(" ", ""), 0)


def is_communication_kernel(name: str) -> bool:
    """Return whether a device kernel of this name moves data between ranks."""
    return any(p.match(name) for p in (_COMMUNICATION_KERNEL, _EXPERT_KERNEL))


def is_communication_call(name: str) -> bool:
    """Return whether a host event of this name starts or carries out communication
    between ranks.
    """
    return _COMMUNICATION_CALL.match(name) is not None and not _NOT_A_TRANSFER.search(name)


def collective_name(text: str) -> str:
    """Return the collective a name stands for (``allreduce``, ``send``, …), or "" if it says none.

    >>> collective_name("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)")
    'reducescatter'
    >>> collective_name("c10d::_allgather_base_")
    'allgather'
    """
    if _EXPERT_KERNEL.match(text):
        return "alltoall"
    # What follows "(" is the argument list, and says nothing about the collective.
    plain = _SEPARATORS.sub("", text.split("(", 1)[0]).lower()
    for name, spellings in _COLLECTIVES:
        if any(s in plain for s in spellings):
            return name
    return ""


_HLO_COLLECTIVE = re.compile(
    r"^(?:ragged-)?(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    r"|collective-broadcast|send|recv)(?:-start|-done)?(?:\.[0-9]+)*$"
)


def hlo_collective(name: str) -> str:
    """Return the collective that an XLA operation is ("all-reduce-start.3"), or "": fusions are
    none.
    """
    found = _HLO_COLLECTIVE.match(name)
    return collective_name(found.group(1)) if found else ""


# An operation that spells a transfer as a word of its own, as generic traces do.
_SPELLED = re.compile(
    r"(?:^|[^a-z])(all[-_ ]?reduce|reduce[-_ ]?scatter|all[-_ ]?gather|all[-_ ]?to[-_ ]?all"
    r"|broadcast|send|recv|barrier)(?:[^a-z]|$)",
    re.IGNORECASE,
)


def spell_collective(name: str) -> str:
    """Return the transfer in an operation's plain name: "grads-all-reduce", "forward-send".

    Or "".
    """
    found = _SPELLED.search(name)
    return collective_name(found.group(1)) if found else ""


def is_collective(name: str) -> bool:
    """Return whether this kernel or call is a collective: between ranks, and not point to point."""
    if not (is_communication_kernel(name) or is_communication_call(name)):
        return False
    return communication_kind(collective_name(name)) == EventKind.COLLECTIVE


def communication_kind(collective: str) -> EventKind:
    """SEND, RECV or COLLECTIVE for a name that ``collective_name`` gave."""
    if collective == "send":
        return EventKind.SEND
    if collective == "recv":
        return EventKind.RECV
    return EventKind.COLLECTIVE


@dataclass(frozen=True)
class Category:
    """What an event's category says: the kind, and whether it happens on a device."""

    kind: EventKind
    on_device: bool


# Categories of Kineto, this year's (lower case) and the first generation's.
CATEGORIES: dict[str, Category] = {
    "kernel": Category(EventKind.COMPUTE, True),
    "gpu_memcpy": Category(EventKind.MEMCPY, True),
    "memcpy": Category(EventKind.MEMCPY, True),
    "gpu_memset": Category(EventKind.MEMSET, True),
    "memset": Category(EventKind.MEMSET, True),
    "mtia_ccp_events": Category(EventKind.COMPUTE, True),
    "hpu_op": Category(EventKind.COMPUTE, True),
    "xpu_op": Category(EventKind.COMPUTE, True),
    "concurrent_kernel": Category(EventKind.COMPUTE, True),
    "cuda_runtime": Category(EventKind.RUNTIME, False),
    "cuda_driver": Category(EventKind.RUNTIME, False),
    "xpu_runtime": Category(EventKind.RUNTIME, False),
    "xpu_driver": Category(EventKind.RUNTIME, False),
    "mtia_runtime": Category(EventKind.RUNTIME, False),
    "privateuse1_runtime": Category(EventKind.RUNTIME, False),
    "privateuse1_driver": Category(EventKind.RUNTIME, False),
    "runtime": Category(EventKind.RUNTIME, False),
    # PaddlePaddle's, whose profiles are Kineto's in all but these.
    "cudaruntime": Category(EventKind.RUNTIME, False),
    "mluruntime": Category(EventKind.RUNTIME, False),
    "operatorinner": Category(EventKind.CPU_OP, False),
    "profilestep": Category(EventKind.ANNOTATION, False),
    "overhead": Category(EventKind.RUNTIME, False),
    "cpu_op": Category(EventKind.CPU_OP, False),
    "operator": Category(EventKind.CPU_OP, False),
    "user_annotation": Category(EventKind.ANNOTATION, False),
    "gpu_user_annotation": Category(EventKind.ANNOTATION, False),
    "python_function": Category(EventKind.PYTHON, False),
    "cuda_sync": Category(EventKind.SYNC, False),
}


def find_category(text: str) -> Category | None:
    """Return what a category says; calls of any device's runtime or driver are calls."""
    lower = text.lower()
    if lower.endswith(("_runtime", "_driver")):
        return CATEGORIES.get(lower, CATEGORIES["runtime"])
    return CATEGORIES.get(lower)


# Names that the first generation files under operators although they only mark a stretch of time.
MARKER = re.compile(r"^(?:ProfilerStep\s*#|Optimizer\.|enumerate\(DataLoader\)|dataloader\b)")
# Categories that hold no activity of the run: the profiler's own spans and analysis overlays.
IGNORED_CATEGORIES = frozenset(
    # CUPTI's counter ranges replay each kernel: their times are not the run's.
    {"trace", "critical_path", "ac2g", "fwdbwd", "async", "cuda_profiler_range"}
)
# Categories that nobody but Kineto writes, of either generation.
KINETO_CATEGORIES = frozenset(
    {
        "cpu_op",
        "cuda_runtime",
        "gpu_memcpy",
        "gpu_memset",
        "python_function",
        "user_annotation",
        "operator",
        "runtime",
    }
)

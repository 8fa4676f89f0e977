"""The kinds of fault: one list for simulator, rules and diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What can be wrong with a workload or its hardware; ``healthy`` is a verdict too."""

    STALLED = "stalled"
    IDLE_GPUS = "idle_gpus"
    IDLE_SESSION = "idle_session"
    BIASED_LOAD = "biased_load"
    MEMORY_IMBALANCE = "memory_imbalance"
    INPUT_BOUND = "input_bound"
    SLOW_GPU = "slow_gpu"
    THROTTLED_GPU = "throttled_gpu"
    SLOW_NODE = "slow_node"
    SLOW_FABRIC = "slow_fabric"
    MEMORY_LEAK = "memory_leak"
    XID = "xid"
    NODE_FAILURE = "node_failure"
    OVERSIZED = "oversized"
    UNDERUSED = "underused"
    HEALTHY = "healthy"
    # How work ends or waits; after the others, whose places the simulator draws its dice by.
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    SCRIPT_ERROR = "script_error"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    BLOCKED = "blocked"
    WAITING = "waiting"
    TOO_SHORT = "too_short"
    NOT_MEASURED = "not_measured"


MEANING: dict[FaultKind, str] = {
    FaultKind.STALLED: "No progress while the GPUs claim to be busy: utilization near 100 %, power "
    "and tensor activity near idle (a hung collective spins).",
    FaultKind.IDLE_GPUS: "Some GPUs of the allocation have never done work while others do.",
    FaultKind.IDLE_SESSION: "An allocation held but hardly ever used (a notebook left open).",
    FaultKind.BIASED_LOAD: "The first GPU of every node carries more load and memory than others.",
    FaultKind.MEMORY_IMBALANCE: "Memory use differs strongly between ranks that should be alike.",
    FaultKind.INPUT_BOUND: "GPUs wait for data: utilization rises and falls with the data loader.",
    FaultKind.SLOW_GPU: "One GPU works slower than its peers at full clocks; others wait for it.",
    FaultKind.THROTTLED_GPU: "A GPU's clocks are cut by heat or power.",
    FaultKind.SLOW_NODE: "All GPUs of one node lag, for a reason of the node (CPU, PCIe, memory).",
    FaultKind.SLOW_FABRIC: "The network between nodes is slow: all ranks wait in communication.",
    FaultKind.MEMORY_LEAK: "GPU memory grows steadily and will run out.",
    FaultKind.XID: "The driver reported a GPU error (XID).",
    FaultKind.NODE_FAILURE: "A node died or vanished under the workload.",
    FaultKind.OVERSIZED: "Far more GPUs, or far larger ones, than the work can use.",
    FaultKind.UNDERUSED: "High utilization but low SM activity: small batches or kernels.",
    FaultKind.HEALTHY: "Nothing is wrong.",
    FaultKind.OUT_OF_MEMORY: "It ran out of memory, of the host or of a GPU, and was ended.",
    FaultKind.TIME_LIMIT: "It reached its time limit and was ended.",
    FaultKind.SCRIPT_ERROR: "The program itself ended with an error code or a signal.",
    FaultKind.CANCELLED: "Somebody cancelled or deleted it.",
    FaultKind.PREEMPTED: "The scheduler took its GPUs for other work, or evicted it.",
    FaultKind.BLOCKED: "It cannot start, however long it waits, until somebody changes something.",
    FaultKind.WAITING: "It waits for its turn or for free GPUs.",
    FaultKind.TOO_SHORT: "There are too few minutes of samples to tell.",
    FaultKind.NOT_MEASURED: "There are no samples to judge by.",
}
# Ways in which work fails by itself; the others need a fault in what it does or runs on.
FAILURES = (FaultKind.OUT_OF_MEMORY, FaultKind.TIME_LIMIT, FaultKind.SCRIPT_ERROR)
# Verdicts that find no fault: nothing to repair, or nothing to say.
NOT_FAULTS = frozenset(
    {
        FaultKind.HEALTHY,
        FaultKind.CANCELLED,
        FaultKind.PREEMPTED,
        FaultKind.WAITING,
        FaultKind.TOO_SHORT,
        FaultKind.NOT_MEASURED,
    }
)
# What the simulator can let happen, with recorded truth.
SIMULATED = tuple(k for k in FaultKind if k not in NOT_FAULTS and k is not FaultKind.BLOCKED)


@dataclass(frozen=True, slots=True)
class Truth:
    """A fault that the simulator injected: who, where, and from when to when."""

    kind: FaultKind
    workload: str
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    start_ms: int
    end_ms: int

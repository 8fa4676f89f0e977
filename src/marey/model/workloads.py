"""Workloads: what people run on the cluster, from waiting to ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from marey.model.errors import InvalidInput, unknown


class WorkloadState(StrEnum):
    """The life of a workload, in order; the last five are its ends."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"

    @property
    def ended(self) -> bool:
        """Return whether the workload will never run again."""
        return self not in (WorkloadState.PENDING, WorkloadState.RUNNING)


# Attributes that say how a waiting workload's priority ages: what age is worth at most, and the age
# in seconds from which it counts fully.
AGE_WEIGHT, MAX_AGE = "priority_age_weight", "priority_max_age_s"

# Attributes that say how it ended: on which node it failed, and who had it cancelled.
FAILED_NODE, CANCELLED_BY = "failed_node", "cancelled_by"

ENDED_STATES = tuple(state for state in WorkloadState if state.ended)

# What schedulers call these states (Slurm, Kubernetes, PBS, LSF, and people's own tables).
_WORDS: dict[WorkloadState, str] = {
    WorkloadState.PENDING: "pending pd queued q waiting suspended s requeued configuring cf held "
    "h submitted created pend psusp requeue_hold special_exit resv_del_hold inqueue scheduling",
    WorkloadState.RUNNING: "running r run active completing cg stopped signaling stage_out "
    "resizing started terminating ususp ssusp exiting e",
    WorkloadState.COMPLETED: "completed cd complete done succeeded success finished c ended exit0 "
    "ok pass",
    WorkloadState.FAILED: "failed f error exit failure out_of_memory oom launch_failed "
    "boot_fail bf reconfig_fail crashed evicted crashloopbackoff oomkilled fail",
    WorkloadState.CANCELLED: "cancelled ca canceled killed deleted preempted pr revoked rv "
    "aborted cancelling terminated removed stopped_by_user kill terminate",
    WorkloadState.TIMEOUT: "timeout to deadline dl deadlineexceeded time_limit timelimit",
    WorkloadState.NODE_FAIL: "node_fail nf nodefail node_failure nodelost lost",
}
STATE_WORDS: Mapping[str, WorkloadState] = MappingProxyType(
    {word: state for state, words in _WORDS.items() for word in words.split()}
)


def parse_state(word: str) -> WorkloadState:
    """Return the state behind any scheduler's word.

    ``CD``, ``Succeeded``, ``CANCELLED by 1000``.
    """
    key = word.strip().lower().replace("-", "_")
    head = key.split()[0].rstrip("+") if key.split() else ""
    for candidate in (key.replace(" ", "_"), head):
        if candidate in STATE_WORDS:
            return STATE_WORDS[candidate]
    raise InvalidInput(unknown("state", word, [s.value for s in WorkloadState]))


@dataclass(frozen=True, slots=True)
class Workload:
    """What is known of a workload whatever its state; times in milliseconds, None = not yet."""

    workload: str
    name: str = ""
    user: str = ""
    project: str = ""
    experiment: str = ""
    partition: str = ""
    qos: str = ""
    gpus_requested: int = 0
    gpus_per_host: int = 0
    gpu_model: str = ""
    resource_type: str = ""
    time_limit_s: int | None = None
    submit_ms: int | None = None
    eligible_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    exit_code: int | None = None
    # Free key-value facts such as hyperparameters; both sides untrusted text.
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """State, reason, priority and place in the queue: kept as validity intervals."""

    workload: str
    state: WorkloadState
    reason: str = ""
    priority: float = 0.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """One GPU held by one workload; share < 1 where workloads share the GPU."""

    workload: str
    gpu: str
    global_rank: int | None = None
    local_rank: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What a training script says of itself at a moment."""

    workload: str
    time_ms: int
    step: int | None = None
    # Samples, tokens or steps per second: whatever `unit` says.
    throughput: float | None = None
    unit: str = ""
    loss: float | None = None

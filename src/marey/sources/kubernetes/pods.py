"""One pod: what it asks for, where it stands in its life, and which of its ranks it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from marey.model.errors import InvalidInput
from marey.model.names import bounded
from marey.model.times import parse_time
from marey.model.workloads import WorkloadState
from marey.sources.kubernetes.gpu_requests import GpuResources
from marey.sources.kubernetes.kubernetes_json import (
    ContainerStatus,
    KubernetesCondition,
    KubernetesJob,
    Pod,
    PodStatus,
)
from marey.sources.kubernetes.owners import TopOwner, find_pod_root

RANK = "marey/rank"
# Where device plugins and GPU schedulers write which GPUs a pod got: indices or UUIDs.
DEVICE_KEYS = ("marey/gpus", "volcano.sh/gpu-index", "ALIYUN_COM_GPU_MEM_IDX")
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
REPLICA_INDEX, REPLICA_TYPE = (
    "training.kubeflow.org/replica-index",
    "training.kubeflow.org/replica-type",
)
JOBSET_INDEX = "jobset.sigs.k8s.io/job-global-index"
GROUP_INDEX, WORKER_INDEX = (
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
)
POD_INDEX = "apps.kubernetes.io/pod-index"
_FIRST_TYPES = ("master", "chief", "launcher", "leader")
_ORDINAL = re.compile(r"-(\d{1,6})$")
_LOST = frozenset(("NodeLost", "NodeShutdown", "Terminated"))
_CANCELLED = frozenset(("Preempted", "Preempting"))
# Every pod waits like this for a moment.
_USUAL_WAITS = frozenset(("PodInitializing", "ContainerCreating"))
_DEVICE = re.compile(r"^(?:\d{1,4}|(?:GPU|MIG)-[0-9A-Za-z/-]{4,80})$")


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A pod as its workload needs it; times in milliseconds."""

    namespace: str
    name: str
    root: TopOwner
    gpus: int
    shared: bool
    host: str
    state: WorkloadState
    reason: str
    priority: float
    order: tuple[int, ...] | None
    first_rank: int | None
    devices: tuple[str, ...]
    created_ms: int | None
    placed_ms: int | None
    ended_ms: int | None
    exit_code: int | None
    source: Pod

    @property
    def place(self) -> str:
        """How exporters name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def holds(self) -> bool:
        """Return whether GPUs are set aside for it: from its binding on, running or not."""
        return bool(self.host) and not self.state.ended


def parse_time_ms(text: str | None, skew_ms: int = 0) -> int | None:
    """Return a moment of the server's clock in ours; None where none is given."""
    if not text:
        return None
    try:
        return int(parse_time(text)) - skew_ms
    except InvalidInput:
        return None


def read_pod(
    pod: Pod, jobs: Mapping[str, KubernetesJob], resources: GpuResources, skew_ms: int = 0
) -> SeenPod:
    """Return everything that counts of a pod."""
    meta, spec = pod.metadata, pod.spec
    counts = resources.of_pod(spec)
    host = bounded(spec.node_name or "")
    state, reason = _read_state(pod.status, host)
    if not reason and spec.scheduling_gates and not host:
        reason = f"SchedulingGated: {', '.join(g.name for g in spec.scheduling_gates)}"
    rank = meta.label(RANK)
    return SeenPod(
        namespace=bounded(meta.namespace),
        name=bounded(meta.name),
        root=find_pod_root(meta, jobs),
        gpus=sum(counts.values()),
        shared=any(resources.is_shared(name) for name in counts),
        host=host,
        state=state,
        reason=bounded(reason),
        priority=float(spec.priority or 0),
        order=parse_pod_order(pod),
        first_rank=int(rank) if _is_number(rank) else None,
        devices=_read_devices(pod),
        created_ms=parse_time_ms(meta.creation_timestamp, skew_ms),
        placed_ms=_read_placed_ms(pod, skew_ms) if host else None,
        ended_ms=_read_ended_ms(pod, skew_ms) if state.ended else None,
        exit_code=_exit_code(pod.status) if state.ended else None,
        source=pod,
    )


def _read_state(status: PodStatus, host: str) -> tuple[WorkloadState, str]:
    """Return state and reason.

    A pod that has its node holds GPUs, and so runs, whatever it waits for.
    """
    said = ": ".join(part for part in (status.reason, status.message) if part)
    if status.phase == "Succeeded":
        return WorkloadState.COMPLETED, said
    if status.phase == "Failed":
        return _classify_failure(status.reason or ""), said or _find_end_reason(status)
    if host:
        return WorkloadState.RUNNING, said or _find_waiting_reason(status)
    scheduled = _find_condition(status, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        said = ": ".join(part for part in (scheduled.reason, scheduled.message) if part)
    return WorkloadState.PENDING, said


def _classify_failure(reason: str) -> WorkloadState:
    if reason == "DeadlineExceeded":
        return WorkloadState.TIMEOUT
    if reason in _LOST:
        return WorkloadState.NODE_FAIL
    return WorkloadState.CANCELLED if reason in _CANCELLED else WorkloadState.FAILED


def _find_waiting_reason(status: PodStatus) -> str:
    """Return why the containers of a placed pod do not run.

    An image that cannot be had, a crash.
    """
    for container in _list_containers(status):
        waiting = container.state.waiting if container.state else None
        if waiting and waiting.reason and waiting.reason not in _USUAL_WAITS:
            return ": ".join(part for part in (waiting.reason, waiting.message) if part)
    return ""


def _list_containers(status: PodStatus) -> list[ContainerStatus]:
    """Return containers in the order in which they start: one that fails holds up the others."""
    return [*(status.init_container_statuses or []), *(status.container_statuses or [])]


def find_disruption(status: PodStatus) -> str:
    """Return who took the pod away, in words: a preemption, an eviction; empty where nobody did."""
    condition = _find_condition(status, "DisruptionTarget")
    if condition is not None and condition.status == "True":
        said = ": ".join(part for part in (condition.reason, condition.message) if part)
        return f"Preempted: {said}" if "Preempt" in (condition.reason or "") else f"Evicted: {said}"
    reason = status.reason or ""
    return f"{reason}: {status.message or ''}" if reason in (*_CANCELLED, "Evicted") else ""


def _find_end_reason(status: PodStatus) -> str:
    for container in _list_containers(status):
        ended = container.state.terminated if container.state else None
        if ended and ended.exit_code:
            return f"{ended.reason or 'Error'} (exit code {ended.exit_code})"
    return ""


def _exit_code(status: PodStatus) -> int | None:
    ended = [
        container.state.terminated.exit_code
        for container in _list_containers(status)
        if container.state and container.state.terminated
    ]
    return max(ended, key=abs) if ended else None


def _find_condition(status: PodStatus, kind: str) -> KubernetesCondition | None:
    return next((c for c in status.conditions or [] if c.type == kind), None)


def _read_placed_ms(pod: Pod, skew_ms: int) -> int | None:
    scheduled = _find_condition(pod.status, "PodScheduled")
    placed = scheduled.last_transition_time if scheduled and scheduled.status == "True" else None
    return parse_time_ms(
        placed or pod.status.start_time or pod.metadata.creation_timestamp, skew_ms
    )


def _read_ended_ms(pod: Pod, skew_ms: int) -> int | None:
    ends = [
        parse_time_ms(container.state.terminated.finished_at, skew_ms)
        for container in pod.status.container_statuses or []
        if container.state and container.state.terminated
    ]
    known = [end for end in ends if end is not None]
    ready = _find_condition(pod.status, "Ready")
    fallback = parse_time_ms(ready.last_transition_time, skew_ms) if ready else None
    return max(known) if known else fallback


def parse_pod_order(pod: Pod) -> tuple[int, ...] | None:
    """Return where the pod stands among its workload's, as the suites number them.

    None: nobody says.
    """
    meta = pod.metadata
    replica, kind = meta.label(REPLICA_INDEX), meta.label(REPLICA_TYPE).lower()
    if _is_number(replica):
        return (0 if kind in _FIRST_TYPES else 1, int(replica))
    worker = meta.label(WORKER_INDEX)
    if _is_number(worker):
        return _parse_numbers(meta.label(GROUP_INDEX), worker)
    completion = meta.label(COMPLETION_INDEX)
    if _is_number(completion):
        return _parse_numbers(meta.label(JOBSET_INDEX), completion)
    index = meta.label(POD_INDEX)
    if _is_number(index):
        return (int(index),)
    owners = meta.owner_references or []
    ordinal = _ORDINAL.search(meta.name)
    if ordinal and any(owner.kind == "StatefulSet" for owner in owners):
        return (int(ordinal[1]),)
    return None


def _parse_numbers(*texts: str) -> tuple[int, ...]:
    return tuple(int(text) if _is_number(text) else 0 for text in texts)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 7


def _read_devices(pod: Pod) -> tuple[str, ...]:
    for key in DEVICE_KEYS:
        listed = pod.metadata.label(key)
        words = (
            [word.strip() for word in listed.split(",")] if listed and len(listed) < 4096 else []
        )
        if words and all(_DEVICE.match(word) for word in words):
            return tuple(words)
    return ()

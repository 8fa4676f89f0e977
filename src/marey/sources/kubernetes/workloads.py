"""Pods and jobs of one owner → one workload: its state, its GPUs and its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from marey.model.inventory import Gpu, resource_type
from marey.model.names import bounded
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.sources.kubernetes.gpu_requests import GpuResources
from marey.sources.kubernetes.kubernetes_json import KubernetesJob, Meta
from marey.sources.kubernetes.kubernetes_nodes import MODEL_LABELS
from marey.sources.kubernetes.owners import QUEUES, TopOwner, find_job_root, join_roots
from marey.sources.kubernetes.placement import GpuPlacements
from marey.sources.kubernetes.pods import SeenPod, parse_time_ms

USER_KEYS = ("marey/user", "hpc.user", "user", "owner", "username")
PROJECT_KEYS = ("marey/project", "hpc.project", "project", "team")
EXPERIMENT_KEYS = ("marey/experiment", "hpc.experiment", "experiment")
LABELS_KEPT = 24
# Labels that differ from pod to pod, or repeat what the workload says anyway.
_OWN_LABELS = ("controller-uid", "pod-template-hash", "job-name", "statefulset.kubernetes.io/",
               "batch.kubernetes.io/", "training.kubeflow.org/", "apps.kubernetes.io/",
               "controller-revision-hash")  # fmt: skip
NOT_REPORTED = "not reported by Kubernetes"
ASSUMED = "assumed: the lowest free ones"
# How bad an end is, worst first: a workload ends as the worst of its pods did.
_WORST = (WorkloadState.NODE_FAIL, WorkloadState.TIMEOUT, WorkloadState.FAILED,
          WorkloadState.CANCELLED, WorkloadState.COMPLETED)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NameKeys:
    """Labels or annotations that hold the user, the project and the experiment; first wins."""

    user: tuple[str, ...] = USER_KEYS
    project: tuple[str, ...] = PROJECT_KEYS
    experiment: tuple[str, ...] = EXPERIMENT_KEYS


@dataclass(slots=True)
class OwnedObjects:
    """Everything of one owner."""

    root: TopOwner
    pods: list[SeenPod] = field(default_factory=list)
    jobs: list[KubernetesJob] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SeenWorkload:
    """A workload with its state and GPUs."""

    workload: Workload
    status: WorkloadStatus
    allocations: tuple[Allocation, ...] = ()


def group_pods(
    pods: Iterable[SeenPod], jobs: Iterable[KubernetesJob], resources: GpuResources
) -> dict[str, OwnedObjects]:
    """Group pods and jobs by workload; jobs only where they would make pods with GPUs."""
    listed = list(pods)
    wanted = [(job, find_job_root(job)) for job in jobs if resources.of_pod(job.spec.template.spec)]
    merged = join_roots([*(pod.root for pod in listed), *(root for _, root in wanted)])
    groups: dict[str, OwnedObjects] = {}
    for pod in listed:
        root = merged[pod.root]
        groups.setdefault(root.workload, OwnedObjects(root)).pods.append(pod)
    for job, own in wanted:
        root = merged[own]
        groups.setdefault(root.workload, OwnedObjects(root)).jobs.append(job)
    return groups


@dataclass(frozen=True, slots=True)
class WorkloadReader:
    """Turns groups into workloads; ``gpus`` of the inventory by id, for their models."""

    resources: GpuResources
    keys: NameKeys
    skew_ms: int = 0

    def read(
        self,
        group: OwnedObjects,
        places: GpuPlacements,
        gpus: Mapping[str, Gpu],
        sharing: Mapping[str, int],
    ) -> SeenWorkload:
        """Return the workload at this moment."""
        state, reason = self._find_state(group)
        allocations = _make_allocations(group, places, sharing) if not state.ended else ()
        workload = self._make_workload(group, state, allocations, places=places, gpus=gpus)
        priority = max((pod.priority for pod in group.pods), default=self._find_job_priority(group))
        status = WorkloadStatus(workload.workload, state, bounded(reason), priority)
        return SeenWorkload(workload, status, allocations)

    # State

    def _find_state(self, group: OwnedObjects) -> tuple[WorkloadState, str]:
        ended = self._find_jobs_end(group)
        live = [pod for pod in group.pods if not pod.state.ended]
        if ended is not None and not live:
            return ended
        holding = [pod for pod in live if pod.state is WorkloadState.RUNNING]
        waiting = [pod for pod in live if pod.state is WorkloadState.PENDING]
        if holding:
            return WorkloadState.RUNNING, _find_running_reason(holding, waiting)
        if waiting:
            return WorkloadState.PENDING, _find_first_reason(waiting)
        if group.jobs and ended is None:
            return WorkloadState.PENDING, _find_podless_reason(group.jobs)
        states = {pod.state for pod in group.pods}
        worst = next(state for state in _WORST if state in states)
        return worst, _find_first_reason([pod for pod in group.pods if pod.state is worst])

    def _find_jobs_end(self, group: OwnedObjects) -> tuple[WorkloadState, str] | None:
        """Return how the jobs ended; None while one has not, or where there is none."""
        if not group.jobs:
            return None
        ends = [_read_job_end(job) for job in group.jobs]
        known = [end for end in ends if end is not None]
        if len(known) < len(ends):
            return None
        return min(known, key=lambda end: _WORST.index(end[0]))

    # Facts

    def _make_workload(
        self,
        group: OwnedObjects,
        state: WorkloadState,
        allocations: Sequence[Allocation],
        *,
        places: GpuPlacements,
        gpus: Mapping[str, Gpu],
    ) -> Workload:
        metas = [*(p.source.metadata for p in group.pods), *(j.metadata for j in group.jobs),
                 *(j.spec.template.metadata for j in group.jobs)]  # fmt: skip
        asked, per_pod = self._count_requested(group)
        model = _find_model(group, allocations, gpus)
        placed = [p.placed_ms for p in group.pods if p.placed_ms is not None]
        namespace = group.root.namespace
        return Workload(
            workload=group.root.workload,
            name=bounded(group.root.name),
            user=_find_name(metas, self.keys.user),
            project=_find_name(metas, self.keys.project) or bounded(namespace),
            experiment=_find_name(metas, self.keys.experiment),
            partition=_find_name(metas, QUEUES) or bounded(namespace),
            qos=_find_priority_class(group),
            gpus_requested=asked,
            gpus_per_host=per_pod,
            gpu_model=model,
            resource_type=resource_type(model, per_pod) if asked else "",
            time_limit_s=_read_time_limit_s(group),
            submit_ms=self._find_submitted_ms(group),
            start_ms=None if state is WorkloadState.PENDING else min(placed, default=None),
            end_ms=self._find_ended_ms(group) if state.ended else None,
            exit_code=_exit_code(group) if state.ended else None,
            attributes=_collect_attributes(group, metas, places),
        )

    def _count_requested(self, group: OwnedObjects) -> tuple[int, int]:
        """Return GPUs in all and per pod.

        Of the jobs where they say it, else of the pods there are.
        """
        live = [p for p in group.pods if not p.state.ended]
        if not group.jobs:
            live = live or group.pods
        of_jobs = [
            (_count_job_pods(job), sum(self.resources.of_pod(job.spec.template.spec).values()))
            for job in group.jobs
        ]
        by_jobs = sum(pods * gpus for pods, gpus in of_jobs)
        per_pod = max([*(p.gpus for p in live), *(gpus for _, gpus in of_jobs)], default=0)
        return max(by_jobs, sum(pod.gpus for pod in live)), per_pod

    def _find_submitted_ms(self, group: OwnedObjects) -> int | None:
        times = [p.created_ms for p in group.pods]
        times += [parse_time_ms(j.metadata.creation_timestamp, self.skew_ms) for j in group.jobs]
        return min((t for t in times if t is not None), default=None)

    def _find_ended_ms(self, group: OwnedObjects) -> int | None:
        times = [p.ended_ms for p in group.pods]
        for job in group.jobs:
            ends = [c for c in job.status.conditions or [] if c.type in ("Complete", "Failed")]
            ended = job.status.completion_time or (ends[0].last_transition_time if ends else None)
            times.append(parse_time_ms(ended, self.skew_ms))
        return max((t for t in times if t is not None), default=None)

    def _find_job_priority(self, group: OwnedObjects) -> float:
        return max((float(j.spec.template.spec.priority or 0) for j in group.jobs), default=0.0)


def _count_job_pods(job: KubernetesJob) -> int:
    """Return how many pods a job runs at once: never more than it still needs to complete."""
    asked = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is None:
        return asked
    left = job.spec.completions - (job.status.succeeded or 0)
    # One that is over asked for what it ran at once.
    return min(asked, left if left > 0 else job.spec.completions)


def _find_podless_reason(jobs: Sequence[KubernetesJob]) -> str:
    if any(job.spec.suspend for job in jobs):
        return "Suspended"
    stopped = all(job.spec.parallelism == 0 for job in jobs)
    return "parallelism is 0: it makes no pods" if stopped else "no pods yet"


def _read_job_end(job: KubernetesJob) -> tuple[WorkloadState, str] | None:
    for condition in job.status.conditions or []:
        if condition.status != "True":
            continue
        if condition.type == "Complete":
            return WorkloadState.COMPLETED, ""
        if condition.type == "Failed":
            said = ": ".join(part for part in (condition.reason, condition.message) if part)
            late = condition.reason == "DeadlineExceeded"
            return WorkloadState.TIMEOUT if late else WorkloadState.FAILED, said
    return None


def _find_running_reason(holding: list[SeenPod], waiting: list[SeenPod]) -> str:
    if waiting:
        total = len(holding) + len(waiting)
        return f"{len(waiting)} of {total} pods wait: {_find_first_reason(waiting)}"
    return _find_first_reason(holding)


def _find_first_reason(pods: list[SeenPod]) -> str:
    return next((pod.reason for pod in pods if pod.reason), "")


def _make_allocations(
    group: OwnedObjects, places: GpuPlacements, sharing: Mapping[str, int]
) -> tuple[Allocation, ...]:
    """Return the GPUs of the pods, ranked in the order that the suite gives its pods."""
    pods = [pod for pod in group.pods if pod.holds and places.gpus.get(pod.place)]
    ranked = all(pod.order is not None or pod.first_rank is not None for pod in pods)
    ranked = ranked or (len(pods) == 1 and len(group.pods) == 1)
    # A pod that is not placed yet leaves a gap: ranks after it are its neighbours' all the same.
    every = sorted((p for p in group.pods if not p.state.ended and p.gpus), key=_get_pod_key)
    first: dict[str, int] = {}
    rank = 0
    for pod in every:
        rank = pod.first_rank if pod.first_rank is not None else rank
        first[pod.place] = rank
        rank += pod.gpus
    found = []
    for pod in sorted(pods, key=_get_pod_key):
        for local, gpu in enumerate(places.gpus[pod.place]):
            at = first[pod.place] + local if ranked else None
            share = 1.0 / max(1, sharing.get(gpu, 1))
            found.append(Allocation(group.root.workload, gpu, at, local, share))
    return _merge_shares(found)


def _merge_shares(allocations: list[Allocation]) -> tuple[Allocation, ...]:
    """Return two pods of one workload that share a GPU hold it once, with both shares."""
    merged: dict[str, Allocation] = {}
    for one in allocations:
        held = merged.get(one.gpu)
        share = min(1.0, one.share + held.share) if held else one.share
        base = held or one
        merged[one.gpu] = Allocation(
            base.workload, base.gpu, base.global_rank, base.local_rank, share
        )
    return tuple(merged.values())


def _get_pod_key(pod: SeenPod) -> tuple[int, tuple[int, ...], str]:
    return (pod.first_rank or 0, pod.order or (), pod.place)


def _find_name(metas: Iterable[Meta], keys: Sequence[str]) -> str:
    listed = list(metas)
    found = (meta.label(key) for key in keys for meta in listed)
    return bounded(next((text for text in found if text), ""))


def _find_model(
    group: OwnedObjects, allocations: Sequence[Allocation], gpus: Mapping[str, Gpu]
) -> str:
    held = {gpus[a.gpu].model for a in allocations if a.gpu in gpus and gpus[a.gpu].model}
    specs = [*(p.source.spec for p in group.pods), *(j.spec.template.spec for j in group.jobs)]
    asked = {
        (spec.node_selector or {}).get(label, "") for spec in specs for label in MODEL_LABELS
    } - {""}
    # Which GPUs it has may not be told, but on which node it is always is.
    nodes = {pod.host for pod in group.pods if pod.holds}
    there = {gpu.model for gpu in gpus.values() if gpu.host in nodes and gpu.model} if nodes else {}
    return bounded(",".join(sorted(held or asked or there)))


def _find_priority_class(group: OwnedObjects) -> str:
    specs = [*(p.source.spec for p in group.pods), *(j.spec.template.spec for j in group.jobs)]
    return bounded(next((s.priority_class_name for s in specs if s.priority_class_name), ""))


def _read_time_limit_s(group: OwnedObjects) -> int | None:
    limits = [j.spec.active_deadline_seconds for j in group.jobs]
    limits += [p.source.spec.active_deadline_seconds for p in group.pods]
    return max((limit for limit in limits if limit is not None), default=None)


def _exit_code(group: OwnedObjects) -> int | None:
    codes = [pod.exit_code for pod in group.pods if pod.exit_code is not None]
    return max(codes, key=abs) if codes else None


def _collect_attributes(
    group: OwnedObjects, metas: Sequence[Meta], places: GpuPlacements
) -> dict[str, str]:
    pods = group.pods
    reported = {"kind": group.root.kind, "namespace": group.root.namespace, "pods": str(len(pods))}
    if group.root.cron_job:
        reported["cron_job"] = group.root.cron_job
    nodes = sorted({pod.host for pod in pods if pod.host})
    if nodes:
        reported["nodes"] = ",".join(nodes)
    restarts = sum(
        c.restart_count for pod in pods for c in pod.source.status.container_statuses or []
    )
    if restarts:
        reported["restarts"] = str(restarts)
    if any(pod.holds and pod.gpus and not places.gpus.get(pod.place) for pod in pods):
        reported["gpu_indices"] = NOT_REPORTED
    elif any(pod.place in places.assumed for pod in pods):
        reported["gpu_indices"] = ASSUMED
    labels = (metas[0].labels if metas else None) or {}
    kept = [key for key in sorted(labels) if not key.startswith(_OWN_LABELS)][:LABELS_KEPT]
    reported |= {f"label.{key}": labels[key] for key in kept}
    return {bounded(key): bounded(value) for key, value in reported.items()}

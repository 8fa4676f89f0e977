"""Who holds which GPU: the scheduler's word, the exporter's where the scheduler says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from marey.model.observation import Observation
from marey.model.workloads import Allocation, Workload, WorkloadState

# Labels of exporters follow the scheduler by a scrape or two: only what stays is a conflict.
HOLDER_TICKS = 3
REPORTED_BY_EXPORTER = "reported by the exporter"
# By GPU, what an exporter says holds it: a job's number, or ``namespace/pod``.
ReportedHolders = Mapping[str, Sequence[str]]
Holdings = tuple[tuple[Workload, ...], tuple[Allocation, ...]]


@dataclass(frozen=True, slots=True)
class Dispute:
    """A GPU of which the exporter names another holder than the scheduler."""

    gpu: str
    by_scheduler: str
    by_exporter: str


def group_gpus_by_holder(reported: Iterable[ReportedHolders]) -> dict[str, list[str]]:
    """Return GPUs by what exporters say holds them."""
    held: dict[str, list[str]] = {}
    for source in reported:
        for gpu, jobs in source.items():
            for job in jobs:
                gpus = held.setdefault(job, [])
                if gpu not in gpus:
                    gpus.append(gpu)
    return held


def complete_allocations(observation: Observation, held: Mapping[str, Sequence[str]]) -> Holdings:
    """Return workloads and allocations, with exporters' GPUs for what runs and is said to hold
    none.
    """
    running = {s.workload for s in observation.statuses if s.state is WorkloadState.RUNNING}
    holding = {a.workload for a in observation.allocations}
    added: dict[str, list[Allocation]] = {}
    for workload in observation.workloads:
        if workload.workload in running and workload.workload not in holding:
            gpus = next((held[key] for key in _list_labels(workload) if key in held), ())
            if gpus and len(gpus) <= max(workload.gpus_requested, 1):
                added[workload.workload] = _make_allocations(workload.workload, gpus)
    if not added:
        return observation.workloads, observation.allocations
    workloads = tuple(
        _mark_reported_by_exporter(w) if w.workload in added else w for w in observation.workloads
    )
    return workloads, (*observation.allocations, *(a for more in added.values() for a in more))


class HolderDisputes:
    """For how many ticks exporters have named another holder than the scheduler."""

    def __init__(self) -> None:
        self._ticks: dict[str, int] = {}

    def find_lasting(
        self, observation: Observation, reported: Iterable[ReportedHolders]
    ) -> list[Dispute]:
        """Return the disputes that have lasted too long to be a late label."""
        ours = _find_scheduler_labels(observation)
        ticks: dict[str, int] = {}
        found = []
        for source in reported:
            for gpu, jobs in source.items():
                # Pods are named by Kubernetes' own source, which decides with these labels.
                theirs = {job for job in jobs if "/" not in job}
                if gpu not in ours or not theirs or theirs & ours[gpu]:
                    continue
                ticks[gpu] = self._ticks.get(gpu, 0) + 1
                if ticks[gpu] >= HOLDER_TICKS:
                    shown = ", ".join(sorted(ours[gpu])[:2]), ", ".join(sorted(theirs)[:4])
                    found.append(Dispute(gpu, *shown))
        self._ticks = ticks
        return found


def _find_scheduler_labels(observation: Observation) -> dict[str, set[str]]:
    """Find by GPU every label of the workloads that the scheduler says hold it."""
    labels = {w.workload: set(_list_labels(w)) for w in observation.workloads}
    ours: dict[str, set[str]] = {}
    for allocation in observation.allocations:
        known = labels.get(allocation.workload)
        if known:
            ours.setdefault(allocation.gpu, set()).update(known)
    return ours


def _list_labels(workload: Workload) -> list[str]:
    """Return the labels that an exporter may use for it: the scheduler's name or number."""
    return [workload.workload, workload.attributes.get("slurm_job_id", workload.workload)]


def _make_allocations(workload: str, gpus: Sequence[str]) -> list[Allocation]:
    local: dict[str, int] = {}
    found = []
    for gpu in sorted(gpus, key=_get_sort_key):
        host = gpu.rpartition(":")[0]
        local[host] = local.get(host, -1) + 1
        found.append(Allocation(workload, gpu, None, local[host]))
    return found


def _get_sort_key(gpu: str) -> tuple[str, float]:
    host, _, index = gpu.rpartition(":")
    try:
        return host, float(index)
    except ValueError:
        return host, 0.0


def _mark_reported_by_exporter(workload: Workload) -> Workload:
    return replace(
        workload, attributes={**workload.attributes, "gpu_indices": REPORTED_BY_EXPORTER}
    )

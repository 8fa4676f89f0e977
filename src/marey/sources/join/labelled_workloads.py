"""Workloads that only exporters' labels name: pods and jobs, where there is no scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marey.model.names import bounded
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.sources.join.holders import ReportedHolders, group_gpus_by_holder

# A label that is missing this often in a row is gone, not late.
GONE_TICKS = 3
ENDED = "no exporter names it any more; how it ended is not known"
KNOWN_BY = "exporter labels"


@dataclass(slots=True)
class _Seen:
    gpus: tuple[str, ...]
    first_ms: int
    last_ms: int
    missed: int = 0


@dataclass(frozen=True, slots=True)
class LabelledChanges:
    """What is new about the workloads that labels name."""

    workloads: tuple[Workload, ...] = ()
    statuses: tuple[WorkloadStatus, ...] = ()
    allocations: tuple[Allocation, ...] = ()


class LabelledWorkloads:
    """The pods and jobs that labels name now; each ends when its label has gone."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def find_changes(self, reported: Iterable[ReportedHolders], now_ms: int) -> LabelledChanges:
        """Return the workloads that began, moved or ended since the last time."""
        held = group_gpus_by_holder(reported)
        workloads, statuses, allocations = [], [], []
        for label, gpus in held.items():
            known, now = self._seen.get(label), tuple(sorted(gpus))
            if known is not None and known.gpus == now:
                known.last_ms, known.missed = now_ms, 0
                continue
            first_ms = known.first_ms if known else now_ms
            self._seen[label] = _Seen(now, first_ms, now_ms)
            workloads.append(_make_workload(label, now, first_ms, None))
            statuses.append(WorkloadStatus(bounded(label), WorkloadState.RUNNING))
            allocations += [Allocation(bounded(label), gpu) for gpu in now]
        for label in [label for label in self._seen if label not in held]:
            known = self._seen[label]
            known.missed += 1
            if known.missed < GONE_TICKS:
                continue
            del self._seen[label]
            workloads.append(_make_workload(label, known.gpus, known.first_ms, known.last_ms))
            statuses.append(WorkloadStatus(bounded(label), WorkloadState.COMPLETED, ENDED))
        return LabelledChanges(tuple(workloads), tuple(statuses), tuple(allocations))


def _make_workload(
    label: str, gpus: tuple[str, ...], first_ms: int, end_ms: int | None
) -> Workload:
    namespace, _, pod = label.rpartition("/")
    hosts = {gpu.rpartition(":")[0] for gpu in gpus}
    return Workload(
        bounded(label),
        name=bounded(pod),
        project=bounded(namespace),
        gpus_requested=len(gpus),
        gpus_per_host=-(-len(gpus) // max(1, len(hosts))),
        start_ms=first_ms,
        end_ms=end_ms,
        attributes={"known_by": KNOWN_BY},
    )

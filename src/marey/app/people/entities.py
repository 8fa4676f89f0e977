"""Pages about a user, project, partition, host or GPU: now, the week, what was wasted and found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from marey.app.people.jobs import (
    JobRow,
    group_by_workload,
    make_job_row,
    read_live_utilization,
    sum_wasted_hours,
)
from marey.app.queries.table_queries import query_of
from marey.app.queries.workspace import Workspace
from marey.app.rules.finding_store import FindingStore
from marey.model.documents import Document
from marey.model.errors import InvalidInput, NotFound, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.predicates import Comparison
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS, HOUR_MS
from marey.rules.engine.findings import Finding

KINDS = ("user", "project", "partition", "host", "gpu")
WEEK_MS = 7 * DAY_MS
STEP_MS = 6 * HOUR_MS
JOBS_LIMIT = 20_000
LISTED = 50
EVENTS_READ = 20_000
FINDINGS_LISTED = 10
# What stands beside a page's name: whose work it is, and where.
RELATED = {
    "user": ("project", "partition"),
    "project": ("user", "partition"),
    "partition": ("project", "user"),
    "host": ("user", "project"),
    "gpu": ("user", "project"),
}


class UsageStep(Document):
    """GPU-hours used and wasted in one step of time."""

    time_ms: int
    gpu_hours: float
    wasted_gpu_hours: float


class RelatedName(Document):
    """Somebody or something that these jobs have in common, by GPU-hours."""

    kind: str
    name: str
    gpu_hours: float
    jobs: int


class EntityEvent(Document):
    """Something that happened to the hardware."""

    time_ms: int
    kind: str
    host: str
    gpu: str
    text: str


class EntityFinding(Document):
    """A finding on these GPUs or workloads, with the GPU-hours lost here."""

    id: str
    title: str
    workload: str
    severity: str
    open: bool
    opened_ms: int
    gpu_hours: float


class EntityGpu(Document):
    """A GPU of this host, or this GPU, and the state it is in."""

    gpu: str
    state: str


class EntityPage(Document):
    """What is known of a user, project, partition, host or GPU, over a week."""

    kind: str
    name: str
    from_ms: int
    to_ms: int
    running: int
    waiting: int
    gpus_now: int
    jobs: int
    failed: int
    gpu_hours: float
    wasted_gpu_hours: float
    # Share (0-1) of GPU-hours that no finding calls wasted; null where none were used.
    efficiency: float | None
    median_wait_s: float | None
    open_findings: int
    findings: int
    # Of hosts and GPUs: idle, allocated, drained, down or failed.
    state: str
    model: str
    # Of partitions, hosts and GPUs: how many GPUs are in which state.
    states: dict[str, int]
    # Of hosts and GPUs: where they are.
    host: str
    partitions: list[str]
    gpus: list[EntityGpu]
    rows: list[JobRow]
    trend: list[UsageStep]
    related: list[RelatedName]
    events: list[EntityEvent]
    # Open ones first, then by GPU-hours.
    found: list[EntityFinding]


@dataclass(frozen=True)
class AskEntity:
    """Everything about one user, project, partition, host or GPU."""

    kind: str
    name: str
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> EntityPage:
        """Return the page; raises ``NotFound`` where nobody is called that."""
        if self.kind not in KINDS:
            raise InvalidInput(unknown("kind", self.kind, KINDS))
        workspace.check_cluster(self.cluster)
        to_ms = workspace.now_ms()
        span = (to_ms - WEEK_MS, to_ms)
        units = self._find_units(workspace)
        here = units if self.kind in ("host", "gpu") else []
        held = self._count_held(workspace, span)
        jobs = self._read_jobs(workspace, span, held)
        all_found = FindingStore(workspace.store).list_shown(self.cluster)
        found = [self._take_share(f) for f in all_found if self._concerns(f)]
        if not jobs and not units and not found:
            raise NotFound(f"There is no data about {self.kind} '{self.name[:80]}'.")
        # Of a host or a GPU only the GPUs that a job holds there count.
        sizes = [job.gpus if held is None else held[job.workload] for job in jobs]
        hours = [_hours_within(job, size, span) for job, size in zip(jobs, sizes, strict=True)]
        lost = sum_wasted_hours(found, *span)
        waits = sorted(job.wait_s for job in jobs if job.wait_s is not None and job.start_ms)
        return EntityPage(
            kind=self.kind,
            name=self.name,
            from_ms=span[0],
            to_ms=to_ms,
            running=sum(job.state == "running" for job in jobs),
            waiting=sum(job.state == "pending" for job in jobs),
            gpus_now=self._count_gpus(jobs, units),
            jobs=len(jobs),
            failed=sum(job.state in ("failed", "node_fail") for job in jobs),
            gpu_hours=round(sum(hours), 2),
            wasted_gpu_hours=round(lost, 2),
            efficiency=round(max(0.0, 1 - lost / sum(hours)), 4) if sum(hours) > 0 else None,
            median_wait_s=waits[len(waits) // 2] if waits else None,
            open_findings=sum(f.is_open for f in found),
            findings=len(found),
            state="" if self.kind == "partition" else _get_worst_state(units),
            model=(units[0]["model"] or "") if here else "",
            states=dict(Counter(unit["state"] for unit in units)),
            host=units[0]["host"] if here else "",
            partitions=sorted({name for unit in here for name in unit["partitions"] or ()}),
            gpus=[EntityGpu(gpu=unit["gpu"], state=unit["state"]) for unit in here],
            rows=sorted(jobs, key=_job_order)[:LISTED],
            trend=_make_trend(list(zip(jobs, sizes, strict=True)), found, span),
            related=_list_related(jobs, hours, RELATED[self.kind]),
            events=self._read_events(workspace, span),
            found=_list_found(found),
        )

    def _concerns(self, finding: Finding) -> bool:
        if self.kind == "gpu":
            return self.name in finding.gpus
        if self.kind == "host":
            return any(gpu.rpartition(":")[0] == self.name for gpu in finding.gpus)
        values = {
            "user": finding.user,
            "project": finding.project,
            "partition": finding.partition,
        }
        return values[self.kind] == self.name

    def _find_units(self, workspace: Workspace) -> list[dict[str, str]]:
        frame = workspace.frames.get(self.cluster)
        if frame is None or self.kind not in ("partition", "host", "gpu"):
            return []
        rows = frame.units.table().select(["gpu", "host", "partitions", "model", "state"])
        if self.kind == "partition":
            return [row for row in rows.to_pylist() if self.name in (row["partitions"] or ())]
        return [row for row in rows.to_pylist() if row[self.kind] == self.name]

    def _count_gpus(self, jobs: Sequence[JobRow], units: Sequence[dict[str, str]]) -> int:
        if units:
            return sum(unit["state"] == "allocated" for unit in units)
        return sum(job.gpus for job in jobs if job.state == "running")

    def _count_held(self, workspace: Workspace, span: tuple[int, int]) -> dict[str, int] | None:
        """Return how many GPUs here each workload held; None where it is not about a place."""
        if self.kind not in ("host", "gpu"):
            return None
        held = workspace.store.allocations(self.cluster, from_ms=span[0], to_ms=span[1])
        pairs = zip(held["workload"].to_pylist(), held["gpu"].to_pylist(), strict=True)
        return Counter(workload for workload, gpu in set(pairs) if self._is_here(gpu))

    def _take_share(self, finding: Finding) -> Finding:
        """Return a finding with the hours of those of its GPUs that are here."""
        if self.kind not in ("host", "gpu") or not finding.gpus:
            return finding
        share = sum(self._is_here(gpu) for gpu in finding.gpus) / len(finding.gpus)
        return msgspec.structs.replace(
            finding, hours={at: lost * share for at, lost in finding.hours.items()}
        )

    def _read_jobs(
        self, workspace: Workspace, span: tuple[int, int], held: dict[str, int] | None
    ) -> list[JobRow]:
        query = WorkloadQuery(
            cluster=self.cluster, from_ms=span[0], to_ms=span[1] + 1, limit=JOBS_LIMIT
        )
        if held is not None:
            query = replace(query, where=Comparison("workload", "in", sorted(held)[:10_000]))
        else:
            query = replace(query, where=Comparison(self.kind, "eq", self.name))
        found = group_by_workload(FindingStore(workspace.store).list_shown(self.cluster))
        util = read_live_utilization(workspace, self.cluster)
        return [
            make_job_row(row, found.get(row["workload"], ()), util.get(row["workload"]), span[1])
            for row in workspace.workloads(query).to_pylist()
        ]

    def _is_here(self, gpu: str) -> bool:
        return gpu == self.name if self.kind == "gpu" else gpu.rpartition(":")[0] == self.name

    def _read_events(self, workspace: Workspace, span: tuple[int, int]) -> list[EntityEvent]:
        if self.kind not in ("host", "gpu"):
            return []
        table = workspace.store.events(self.cluster, *span, limit=EVENTS_READ)
        host = self.name.rpartition(":")[0] if self.kind == "gpu" else self.name
        rows = [
            row
            for row in table.to_pylist()
            if row["host"] == host or (row["gpu"] or "").rpartition(":")[0] == host
        ]
        if self.kind == "gpu":
            rows = [row for row in rows if row["gpu"] in ("", None, self.name)]
        rows.sort(key=lambda row: -row["time_ms"])
        return [
            EntityEvent(
                time_ms=row["time_ms"],
                kind=row["kind"],
                host=row["host"] or "",
                gpu=row["gpu"] or "",
                text=row["text"] or "",
            )
            for row in rows[:LISTED]
        ]

    def path(self) -> str:
        """Return the API path that answers it."""
        return f"/entities/{self.kind}"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


def _job_order(job: JobRow) -> tuple[int, float, int]:
    """Sort running jobs first, those that waste most, then the newest."""
    place = {"running": 0, "pending": 1}.get(job.state, 2)
    return (place, -job.wasted_gpu_hours, -(job.submit_ms or 0))


def _hours_within(job: JobRow, gpus: int, span: tuple[int, int]) -> float:
    if job.start_ms is None or job.run_s is None:
        return 0.0
    end_ms = job.start_ms + job.run_s * 1000
    return gpus * max(0.0, min(end_ms, span[1]) - max(job.start_ms, span[0])) / HOUR_MS


def _get_worst_state(units: Sequence[dict[str, str]]) -> str:
    order = ("failed", "down", "drained", "allocated", "idle")
    states = {unit["state"] for unit in units}
    return next((state for state in order if state in states), "")


def _list_found(findings: Iterable[Finding]) -> list[EntityFinding]:
    """Return the findings that matter most: open ones first, then by GPU-hours."""
    order = sorted(findings, key=lambda f: (not f.is_open, -f.gpu_hours))
    return [
        EntityFinding(
            id=f.id,
            title=f.title or f.rule,
            workload=f.workload,
            severity=f.severity,
            open=f.is_open,
            opened_ms=f.opened_ms,
            gpu_hours=round(f.gpu_hours, 2),
        )
        for f in order[:FINDINGS_LISTED]
    ]


def _make_trend(
    jobs: Sequence[tuple[JobRow, int]], findings: Sequence[Finding], span: tuple[int, int]
) -> list[UsageStep]:
    """Return GPU-hours used and wasted per six hours."""
    first = span[0] // STEP_MS * STEP_MS
    steps = list(range(first, span[1], STEP_MS))
    used: dict[int, float] = defaultdict(float)
    for job, gpus in jobs:
        if job.start_ms is None or job.run_s is None:
            continue
        end_ms = job.start_ms + job.run_s * 1000
        at = max(job.start_ms, first) // STEP_MS * STEP_MS
        while at < min(end_ms, span[1]):
            overlap = min(end_ms, at + STEP_MS, span[1]) - max(job.start_ms, at, span[0])
            used[at] += gpus * max(0.0, overlap) / HOUR_MS
            at += STEP_MS
    lost: dict[int, float] = defaultdict(float)
    for step in steps:
        lost[step] = sum_wasted_hours(findings, max(step, span[0]), min(step + STEP_MS, span[1]))
    return [
        UsageStep(
            time_ms=step,
            gpu_hours=round(used[step], 2),
            wasted_gpu_hours=round(lost[step], 2),
        )
        for step in steps
    ]


def _list_related(
    jobs: Sequence[JobRow], hours: Sequence[float], kinds: Iterable[str]
) -> list[RelatedName]:
    related = []
    for kind in kinds:
        sums: dict[str, list[float]] = defaultdict(list)
        for job, used in zip(jobs, hours, strict=True):
            values = {"user": job.user, "project": job.project, "partition": job.partition}
            if values[kind]:
                sums[values[kind]].append(used)
        most = sorted(sums.items(), key=lambda item: -sum(item[1]))[:10]
        related += [
            RelatedName(kind=kind, name=name, gpu_hours=round(sum(each), 2), jobs=len(each))
            for name, each in most
        ]
    return related

"""The weekly digest of a user, a project or the whole site: what was used, lost, and to do."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from marey.app.people.jobs import (
    JobRow,
    group_by_workload,
    make_job_row,
    sum_wasted_hours,
)
from marey.app.queries.table_queries import query_of, within
from marey.app.queries.workspace import Workspace
from marey.app.rules.finding_store import FindingStore
from marey.model.documents import Document
from marey.model.errors import InvalidInput, NotFound, shown, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.predicates import Comparison
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS, HOUR_MS
from marey.rules.engine.findings import Finding
from marey.rules.pack import load_shipped_rules

KINDS = ("site", "user", "project")
JOBS_LIMIT = 200_000
LISTED = 5


class DigestFigures(Document):
    """A period in numbers."""

    jobs: int
    failed: int
    gpu_hours: float
    wasted_gpu_hours: float
    # Share (0-1) of GPU-hours that no finding calls wasted; null where none were used.
    efficiency: float | None
    median_wait_s: float | None


class DigestJob(Document):
    """A job that wasted much, and why."""

    workload: str
    name: str
    user: str
    gpus: int
    wasted_gpu_hours: float
    why: list[str]


class DigestCause(Document):
    """A rule that was violated, what it cost and what to try."""

    rule: str
    title: str
    jobs: int
    gpu_hours: float
    next_step: str


class DigestShare(Document):
    """A project (of a site) or a user (of a project) by GPU-hours."""

    name: str
    gpu_hours: float
    wasted_gpu_hours: float


class Digest(Document):
    """The last days, and the same number of days before them."""

    kind: str
    name: str
    cluster: str
    days: int
    from_ms: int
    to_ms: int
    now: DigestFigures
    before: DigestFigures
    jobs: list[DigestJob]
    causes: list[DigestCause]
    shares: list[DigestShare]


@dataclass(frozen=True)
class AskDigest:
    """What somebody should know about the last days."""

    kind: str = "site"
    name: str = ""
    cluster: str = DEFAULT_CLUSTER
    days: int = 7

    def ask(self, workspace: Workspace) -> Digest:
        """Return the digest; raises ``NotFound`` where nobody is called that."""
        if self.kind not in KINDS:
            raise InvalidInput(unknown("kind", self.kind, KINDS))
        if bool(self.name) == (self.kind == "site"):
            raise InvalidInput("A digest of a user or a project needs its name; the site has none.")
        within("days", self.days, 1, 31)
        workspace.check_cluster(self.cluster)
        to_ms = workspace.now_ms()
        span = (to_ms - self.days * DAY_MS, to_ms)
        earlier = (span[0] - self.days * DAY_MS, span[0])
        found = [
            f for f in FindingStore(workspace.store).list_shown(self.cluster) if self._concerns(f)
        ]
        jobs = self._read_jobs(workspace, found, (earlier[0], to_ms))
        if not jobs and self.kind != "site":
            raise NotFound(f"No jobs of the {self.kind} '{shown(self.name)}' in {self.days} days.")
        return Digest(
            kind=self.kind,
            name=self.name,
            cluster=self.cluster,
            days=self.days,
            from_ms=span[0],
            to_ms=to_ms,
            now=_sum_figures(jobs, found, span),
            before=_sum_figures(jobs, found, earlier),
            jobs=_list_wasteful(jobs, found, span),
            causes=_list_causes(found, span),
            shares=self._list_shares(jobs, found, span),
        )

    def _concerns(self, finding: Finding) -> bool:
        return self.kind == "site" or self.name == getattr(finding, self.kind)

    def _read_jobs(
        self, workspace: Workspace, found: Sequence[Finding], span: tuple[int, int]
    ) -> list[JobRow]:
        query = WorkloadQuery(
            cluster=self.cluster, from_ms=span[0], to_ms=span[1] + 1, limit=JOBS_LIMIT
        )
        if self.kind != "site":
            query = replace(query, where=Comparison(self.kind, "eq", self.name))
        by_job = group_by_workload(found)
        rows = workspace.workloads(query).to_pylist()
        return [make_job_row(row, by_job.get(row["workload"], ()), None, span[1]) for row in rows]

    def _list_shares(
        self, jobs: Sequence[JobRow], found: Sequence[Finding], span: tuple[int, int]
    ) -> list[DigestShare]:
        if self.kind == "user":
            return []
        key = "project" if self.kind == "site" else "user"
        used: dict[str, float] = defaultdict(float)
        for job in jobs:
            used[getattr(job, key)] += _hours_within(job, span)
        of: dict[str, list[Finding]] = defaultdict(list)
        for finding in found:
            of[getattr(finding, key)].append(finding)
        most = sorted(used, key=lambda name: -used[name])[:LISTED]
        return [
            DigestShare(
                name=name,
                gpu_hours=round(used[name], 1),
                wasted_gpu_hours=round(sum_wasted_hours(of[name], *span), 1),
            )
            for name in most
            if name
        ]

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/digest"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


def _hours_within(job: JobRow, span: tuple[int, int]) -> float:
    if job.start_ms is None or job.run_s is None:
        return 0.0
    end_ms = job.start_ms + job.run_s * 1000
    return job.gpus * max(0.0, min(end_ms, span[1]) - max(job.start_ms, span[0])) / HOUR_MS


def _sum_figures(
    jobs: Sequence[JobRow], found: Sequence[Finding], span: tuple[int, int]
) -> DigestFigures:
    hours = sum(_hours_within(job, span) for job in jobs)
    lost = sum_wasted_hours(found, *span)
    started = [job for job in jobs if job.start_ms is not None and _is_in(job.start_ms, span)]
    waits = [job.wait_s for job in started if job.wait_s is not None]
    ended = [job for job in jobs if job.end_ms is not None and _is_in(job.end_ms, span)]
    return DigestFigures(
        jobs=len(started),
        failed=sum(job.state in ("failed", "node_fail") for job in ended),
        gpu_hours=round(hours, 1),
        wasted_gpu_hours=round(lost, 1),
        efficiency=round(max(0.0, 1 - lost / hours), 4) if hours else None,
        median_wait_s=round(statistics.median(waits), 1) if waits else None,
    )


def _is_in(time_ms: int, span: tuple[int, int]) -> bool:
    return span[0] <= time_ms < span[1]


def _list_wasteful(
    jobs: Sequence[JobRow], found: Sequence[Finding], span: tuple[int, int]
) -> list[DigestJob]:
    by_job = group_by_workload(found)
    lost = {name: sum_wasted_hours(of, *span) for name, of in by_job.items()}
    ordered = sorted(jobs, key=lambda job: -lost.get(job.workload, 0.0))
    return [
        DigestJob(
            workload=job.workload,
            name=job.name or job.workload,
            user=job.user,
            gpus=job.gpus,
            wasted_gpu_hours=round(lost[job.workload], 1),
            why=sorted({f.title or f.rule for f in by_job[job.workload] if f.waste})[:3],
        )
        for job in ordered[:LISTED]
        if lost.get(job.workload, 0.0) >= 0.05
    ]


def _list_causes(found: Sequence[Finding], span: tuple[int, int]) -> list[DigestCause]:
    steps = {rule.id: rule.next_step for rule in load_shipped_rules()}
    hours: dict[str, float] = defaultdict(float)
    jobs: dict[str, set[str]] = defaultdict(set)
    titles: dict[str, str] = {}
    for finding in found:
        lost = sum_wasted_hours([finding], *span)
        if finding.waste and lost > 0:
            hours[finding.rule] += lost
            jobs[finding.rule].add(finding.workload)
            titles[finding.rule] = finding.title or finding.rule
    return [
        DigestCause(
            rule=rule,
            title=titles[rule],
            jobs=len(jobs[rule]),
            gpu_hours=round(lost, 1),
            next_step=steps.get(rule, ""),
        )
        for rule, lost in sorted(hours.items(), key=lambda item: -item[1])[:LISTED]
    ]


def read_digest(document: Mapping[str, Any]) -> Digest:
    """Return a digest from its JSON form, as a server answers it."""
    return msgspec.convert(document, Digest)

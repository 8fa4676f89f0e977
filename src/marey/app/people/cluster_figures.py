"""The cluster in a few figures with bounded names, for whoever scrapes them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from marey.app.queries.workspace import Workspace
from marey.app.rules.finding_store import FindingStore
from marey.model.times import DAY_MS
from marey.rules.waste import WasteBy, wasted

# A scraper keeps a series for every name it ever sees: the largest keep theirs, the rest are one.
MOST_NAMES = 50
OTHERS = "other"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, and what it is a number of."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


MEANINGS = {
    "cluster_gpus": "GPUs by state.",
    "cluster_utilization_percent": "Mean utilization of allocated GPUs.",
    "cluster_jobs": "Jobs that run or wait.",
    "cluster_waiting_gpus": "GPUs that waiting jobs ask for, by resource type.",
    "cluster_findings_open": "Open findings by rule and severity.",
    "cluster_wasted_gpu_hours_day": "GPU-hours wasted in the last 24 hours, by project.",
    "cluster_rules_share_read": "How much of the past the rules have read, from 0 to 1.",
}


def list_cluster_figures(workspace: Workspace, *, with_projects: bool) -> Iterator[Figure]:
    """Yield the figures of every cluster that is watched; projects only where all may see them."""
    for cluster in sorted(workspace.frames):
        of = (("cluster", cluster),)
        yield from _count_units(workspace, cluster)
        findings = FindingStore(workspace.store).list_shown(cluster)
        counted = Counter((f.rule, f.severity) for f in findings if f.is_open)
        for (rule, severity), count in sorted(counted.items()):
            labels = (*of, ("rule", rule), ("severity", severity))
            yield Figure("cluster_findings_open", labels, count)
        now_ms = workspace.now_ms()
        lines = wasted(findings, WasteBy.PROJECT, now_ms - DAY_MS, now_ms)
        sums = {line.name: line.gpu_hours for line in lines}
        if not with_projects:
            sums = {"all": sum(sums.values())}
        for project, hours in limit_names(sums.items()):
            named = (*of, ("project", project))
            yield Figure("cluster_wasted_gpu_hours_day", named, round(hours, 3))
        share = workspace.share_read(cluster)
        yield Figure("cluster_rules_share_read", of, 1.0 if share is None else share)


def _count_units(workspace: Workspace, cluster: str) -> Iterator[Figure]:
    frame = workspace.frames[cluster]
    of = (("cluster", cluster),)
    states = Counter(frame.units.table()["state"].to_pylist())
    for state, count in sorted(states.items()):
        yield Figure("cluster_gpus", (*of, ("state", state)), count)
    rows = frame.workloads_table().to_pylist()
    for state, count in sorted(Counter(row["state"] for row in rows).items()):
        if state in ("running", "pending"):
            yield Figure("cluster_jobs", (*of, ("state", state)), count)
    waiting: dict[str, float] = defaultdict(float)
    for row in rows:
        if row["state"] == "pending":
            waiting[row.get("resource_type") or "any"] += row.get("gpus_requested") or 0
    for kind, gpus in limit_names(waiting.items()):
        yield Figure("cluster_waiting_gpus", (*of, ("resource_type", kind)), gpus)
    newest = workspace.summaries.rows(cluster, frame.time_ms - 3_600_000, frame.time_ms + 1)
    if newest and newest[-1]["util"] is not None:
        yield Figure("cluster_utilization_percent", of, newest[-1]["util"])


def limit_names(
    sums: Iterable[tuple[str, float]], most: int = MOST_NAMES
) -> Iterator[tuple[str, float]]:
    """Yield the largest by name, and the sum of all others as one."""
    ordered = sorted(sums, key=lambda item: (-item[1], item[0]))
    yield from sorted(ordered[:most])
    if len(ordered) > most:
        yield OTHERS, sum(value for _, value in ordered[most:])

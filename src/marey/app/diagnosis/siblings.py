"""Runs like this one in the store: of the same work, and others' failures wherever they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from marey.app.diagnosis.workload_matrix import list_nodes
from marey.app.queries.workspace import Workspace
from marey.diagnose.matrix import WorkloadMatrix
from marey.diagnose.outcome.siblings import FAILED, Sibling
from marey.model.names import parse_gpu_id
from marey.model.predicates import And, Comparison, Predicate
from marey.model.protocols import WorkloadQuery
from marey.model.tables import WorkloadRow
from marey.model.times import DAY_MS
from marey.model.workloads import ENDED_STATES, WorkloadState

# The last runs say what matters; each costs a look at its GPUs.
MOST_SAME = 8
MOST_OTHERS = 8
CANDIDATES = 200
BEFORE_MS = 7 * DAY_MS
# Work on more nodes than this meets everybody: its neighbours say nothing.
MOST_HOSTS = 16


def find_siblings(workspace: Workspace, cluster: str, matrix: WorkloadMatrix) -> list[Sibling]:
    """Return runs that ended before this one: of its work, then others that failed.

    Others count wherever they were: of those on its own nodes alone, all would be on its nodes.
    """
    facts = matrix.facts
    if facts.state not in FAILED or not facts.end_ms:
        return []
    same = _find_same_work(workspace, cluster, matrix)
    known = {run.workload for run in same} | {facts.workload}
    hosts = set(matrix.hosts or facts.nodes)
    if not hosts or len(hosts) > MOST_HOSTS:
        return same
    return [*same, *_find_others(workspace, cluster, facts.end_ms, known)]


def _find_same_work(workspace: Workspace, cluster: str, matrix: WorkloadMatrix) -> list[Sibling]:
    facts = matrix.facts
    array = facts.workload.partition("_")[0] if "_" in facts.workload else ""
    where: list[Predicate] = [Comparison("user", "eq", facts.user)]
    if not array:
        if not facts.name:
            return []
        where.append(Comparison("name", "eq", facts.name))
    query = WorkloadQuery(
        cluster, ENDED_STATES, And(tuple(where)), to_ms=facts.end_ms, limit=CANDIDATES
    )
    rows = [
        row
        for row in workspace.workloads(query).to_pylist()
        if row["workload"] != facts.workload
        and (row["end_ms"] or 0) <= (facts.end_ms or 0)
        and (not array or row["workload"].startswith(f"{array}_") or row["name"] == facts.name)
    ]
    newest = sorted(rows, key=lambda row: -(row["end_ms"] or 0))[:MOST_SAME]
    return [_make_sibling(workspace, cluster, row, same_work=True) for row in newest]


def _find_others(workspace: Workspace, cluster: str, end_ms: int, known: set[str]) -> list[Sibling]:
    """Return the last failures of other work in the week before; time limits are no failures."""
    query = WorkloadQuery(
        cluster, FAILED, from_ms=end_ms - BEFORE_MS, to_ms=end_ms, limit=CANDIDATES
    )
    rows = [
        row
        for row in workspace.workloads(query).to_pylist()
        if row["workload"] not in known
        and (row["end_ms"] or 0) <= end_ms
        and row["state"] != WorkloadState.TIMEOUT
    ]
    newest = sorted(rows, key=lambda row: -(row["end_ms"] or 0))[:MOST_OTHERS]
    return [_make_sibling(workspace, cluster, row, same_work=False) for row in newest]


def _make_sibling(
    workspace: Workspace, cluster: str, row: WorkloadRow, *, same_work: bool
) -> Sibling:
    held = workspace.store.allocations(cluster, workload=row["workload"])
    return Sibling(
        row["workload"],
        WorkloadState(row["state"]),
        _list_hosts(held["gpu"].to_pylist()) or list_nodes(_read_attributes(row["attributes"])),
        row["exit_code"],
        same_work,
    )


def _list_hosts(gpus: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({parse_gpu_id(gpu).host for gpu in gpus}))


def _read_attributes(text: str | None) -> dict[str, str]:
    found: Sequence[Any] | dict[str, str] = msgspec.json.decode(text) if text else {}
    return found if isinstance(found, dict) else {}

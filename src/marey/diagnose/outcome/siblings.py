"""Runs like this one: how they ended, and whether their failures meet on one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from marey.diagnose.findings import Evidence
from marey.model.workloads import WorkloadState

FAILED = (WorkloadState.FAILED, WorkloadState.NODE_FAIL, WorkloadState.TIMEOUT)
# A node is suspected when at least so many failures, and this share of them, were on it.
LEAST_ON_NODE = 2
SHARE_ON_NODE = 0.6


@dataclass(frozen=True, slots=True)
class Sibling:
    """A run that ended, of the same name, array or node; newest first in any list."""

    workload: str
    state: WorkloadState
    hosts: tuple[str, ...]
    exit_code: int | None = None
    # Whether it is the same work (user and name, or array), rather than others' work on a node.
    same_work: bool = True


def collect_sibling_evidence(
    siblings: Sequence[Sibling], hosts: Sequence[str], exit_code: int | None
) -> list[Evidence]:
    """Return the evidence from other runs: how many failed alike, and where."""
    same = [run for run in siblings if run.same_work]
    failed = [run for run in same if run.state in FAILED]
    found = []
    if same:
        alike = [r for r in failed if exit_code is not None and r.exit_code == exit_code]
        word = f", {len(alike)} of them with the same exit code" if alike else ""
        found.append(
            Evidence(f"{len(failed)} of the last {len(same)} runs of this work failed{word}")
        )
    node = find_suspect_node(siblings, hosts)
    if node is not None:
        counts = f"{node.failures} of the last {node.of}"
        found.append(Evidence(f"{counts} failures were on {node.host}"))
    return found


@dataclass(frozen=True, slots=True)
class SuspectNode:
    """A node on which most of the last failures happened."""

    host: str
    failures: int
    of: int


def find_suspect_node(siblings: Sequence[Sibling], hosts: Sequence[str]) -> SuspectNode | None:
    """Return the node of this run that the failures, its own among them, have in common.

    Nodes on which the same work also completed in the meantime are not suspected, and where
    nothing is known of any other node there is nothing to compare with.
    """
    failed = [run for run in siblings if run.state in FAILED and run.hosts]
    places = [set(hosts), *(set(run.hosts) for run in failed)] if hosts else []
    if len(places) < 2:
        return None
    fine = {host for run in siblings if run.state is WorkloadState.COMPLETED for host in run.hosts}
    count = Counter(host for place in places for host in place if host not in fine)
    known = [(count[host], host) for host in sorted(hosts) if count[host]]
    if not known:
        return None
    most, host = max(known, key=lambda pair: pair[0])
    if not any(run.hosts and host not in run.hosts for run in siblings):
        return None
    # Work that always runs on the same nodes fails on all of them: that says nothing.
    common = sum(number == most for number in count.values()) > max(1, len(count) // 2)
    if most < max(LEAST_ON_NODE, SHARE_ON_NODE * len(places)) or common:
        return None
    return SuspectNode(host, most, len(places))

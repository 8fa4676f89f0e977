"""Hosts on which repeated runs are slow, as evidence beside what the metrics show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from marey.diagnose.diagnosis import Diagnosis
from marey.diagnose.findings import Evidence
from marey.diagnose.matrix import WorkloadMatrix
from marey.model.system.percentages import format_percent

_MOST_NAMED = 3


def add_slow_hosts(
    diagnosis: Diagnosis, matrix: WorkloadMatrix, slower: Mapping[str, float]
) -> Diagnosis:
    """Return the diagnosis with a sentence for each of its hosts that is known to be slow.

    A finding on some hosts gets the sentences about these only; the kind of the finding stays.
    """
    hosts = set(matrix.hosts or matrix.facts.nodes) & set(slower)
    if not hosts or not diagnosis.findings:
        return diagnosis
    first, *others = diagnosis.findings
    about = [host for host in slower if host in (hosts & set(first.hosts) or hosts)]
    reported = tuple(_describe(host, slower[host]) for host in about[:_MOST_NAMED])
    return replace(
        diagnosis, findings=(replace(first, evidence=(*first.evidence, *reported)), *others)
    )


def _describe(host: str, slower: float) -> Evidence:
    return Evidence(
        f"slower than it should be on {host}: repeated runs of the last 60 days took "
        f"{format_percent(slower)} longer there than the same work elsewhere"
    )

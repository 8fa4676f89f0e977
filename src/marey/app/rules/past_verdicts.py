"""Verdicts of a past moment: not judged anew, but what had been found and was open then."""

from __future__ import annotations

from collections.abc import Iterable

from marey.app.rules.rule_documents import VerdictHits, VerdictRow, Verdicts
from marey.rules.engine.findings import Finding


def find_verdicts_at(
    findings: Iterable[Finding], at_ms: int, *, share_read: float | None = None
) -> Verdicts:
    """Return per rule whose findings were open: workloads, and the GPUs each was last about.

    While rules still read the past (``share_read``), more may turn out to have been open then.
    """
    workloads: dict[str, set[str]] = {}
    gpus: dict[str, set[str]] = {}
    for finding in findings:
        if is_open_at(finding, at_ms):
            workloads.setdefault(finding.rule, set()).add(finding.workload)
            gpus.setdefault(finding.rule, set()).update(finding.gpus)
    held = {
        rule: VerdictHits(workloads=sorted(workloads[rule]), gpus=sorted(gpus[rule]))
        for rule in sorted(workloads)
    }
    rows = [VerdictRow(rule, both, both, not_judged=[]) for rule, both in held.items()]
    return Verdicts(at_ms if share_read is None else None, rows, share_read)


def is_open_at(finding: Finding, at_ms: int) -> bool:
    """Return whether the rule was violated at this moment, as it was found."""
    return any(
        episode.opened_ms <= at_ms and (episode.closed_ms is None or at_ms < episode.closed_ms)
        for episode in finding.episodes
    )

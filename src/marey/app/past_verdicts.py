"""Verdicts of a past moment: not judged anew, but what had been found and was open then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from marey.rules.findings import Finding


def verdicts_at(findings: Iterable[Finding], at_ms: int) -> dict[str, Any]:
    """Per rule whose findings were open: the workloads, and the GPUs that each was last about."""
    workloads: dict[str, set[str]] = {}
    gpus: dict[str, set[str]] = {}
    for finding in findings:
        if was_open(finding, at_ms):
            workloads.setdefault(finding.rule, set()).add(finding.workload)
            gpus.setdefault(finding.rule, set()).update(finding.gpus)
    held = {
        rule: {"workloads": sorted(workloads[rule]), "gpus": sorted(gpus[rule])}
        for rule in sorted(workloads)
    }
    rows = [
        {"rule": rule, "life": both, "now": both, "not_judged": []} for rule, both in held.items()
    ]
    return {"time_ms": at_ms, "rules": rows}


def was_open(finding: Finding, at_ms: int) -> bool:
    """Whether the rule was violated at this moment, as it was found."""
    return any(
        episode.opened_ms <= at_ms and (episode.closed_ms is None or at_ms < episode.closed_ms)
        for episode in finding.episodes
    )

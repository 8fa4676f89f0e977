"""GPU-hours wasted over a period, per user, project, partition, rule or workload."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from marey.model.system.csv_cells import make_csv_cell
from marey.model.times import HOUR_MS
from marey.rules.engine.findings import Finding


class WasteBy(StrEnum):
    """What the hours are summed by."""

    USER = "user"
    PROJECT = "project"
    PARTITION = "partition"
    RULE = "rule"
    WORKLOAD = "workload"


@dataclass(frozen=True, slots=True)
class Waste:
    """One line of the report."""

    name: str
    gpu_hours: float
    findings: int
    workloads: int


def wasted(findings: Iterable[Finding], by: WasteBy, from_ms: int, to_ms: int) -> list[Waste]:
    """Return GPU-hours under findings that count as waste, most first.

    A GPU-hour that several rules hold against the same workload counts once (the largest of them),
    except where the sum is by rule.
    """
    hours: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    counted: dict[str, set[str]] = defaultdict(set)
    workloads: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        if not finding.waste:
            continue
        name = getattr(finding, by.value)
        for start, amount in finding.hours.items():
            part = _measure_overlap(start, from_ms, to_ms)
            if part > 0 and amount > 0:
                key = (finding.workload, start)
                hours[name][key] = max(hours[name].get(key, 0.0), amount * part)
                counted[name].add(finding.id)
                workloads[name].add(finding.workload)
    lines = [
        Waste(name, sum(amounts.values()), len(counted[name]), len(workloads[name]))
        for name, amounts in hours.items()
    ]
    return sorted(lines, key=lambda line: (-line.gpu_hours, line.name))


def _measure_overlap(start_ms: int, from_ms: int, to_ms: int) -> float:
    """Return the part of an hour that lies in the period.

    Within the hour the waste counts as even.
    """
    return max(0, min(start_ms + HOUR_MS, to_ms) - max(start_ms, from_ms)) / HOUR_MS


def waste_csv(lines: Iterable[Waste], by: WasteBy) -> str:
    """Return the report as CSV; a name that a spreadsheet would run as a formula is made text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([by.value, "gpu_hours", "findings", "workloads"])
    for line in lines:
        writer.writerow(
            [make_csv_cell(line.name), f"{line.gpu_hours:.3f}", line.findings, line.workloads]
        )
    return out.getvalue()

"""Two workloads, or two windows of one, side by side on the same scales: what changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marey.app.diagnosis.diagnosis_document import DiagnosisDocument
from marey.app.diagnosis.diagnosis_parts import check_metric
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.diagnosis.part_documents import (
    ComparedSide,
    Comparison,
    Distribution,
    FindingChanges,
    MetricChange,
)
from marey.app.diagnosis.workload_matrix import load_matrix
from marey.app.queries.table_queries import query_of
from marey.app.queries.workspace import Workspace
from marey.diagnose.clusters import histogram_counts, metric_limits
from marey.diagnose.report import number_text
from marey.model.errors import InvalidInput
from marey.model.faults import NOT_FAULTS
from marey.model.metrics import catalogue
from marey.model.names import DEFAULT_CLUSTER
from marey.model.system.percentages import format_percent

# Changes smaller than this are not worth a sentence.
LEAST_CHANGE = 0.05
ROWS_LIMIT = 6


@dataclass(frozen=True)
class AskComparison:
    """What changed from one workload (or window) to another."""

    workload: str
    # The one that it is compared with; empty is the same workload in another window.
    other: str = ""
    cluster: str = DEFAULT_CLUSTER
    metric: str = "util"
    from_ms: int | None = None
    to_ms: int | None = None
    other_from_ms: int | None = None
    other_to_ms: int | None = None

    def __post_init__(self) -> None:
        own = (self.workload, self.from_ms, self.to_ms)
        if own == (self.other or self.workload, self.other_from_ms, self.other_to_ms):
            raise InvalidInput("Both sides are the same; name another workload or another window.")

    def sides(self) -> tuple[AskDiagnosis, AskDiagnosis]:
        """Return before (the other one) and after (the one asked about)."""
        other = (self.other or self.workload, self.cluster, self.other_from_ms, self.other_to_ms)
        return AskDiagnosis(*other), AskDiagnosis(
            self.workload, self.cluster, self.from_ms, self.to_ms
        )

    def ask(self, workspace: Workspace) -> Comparison:
        """Return both sides, their means with the change, findings gone and new, and
        distributions.
        """
        check_metric(self.metric)
        asked = self.sides()
        before, after = (side.ask(workspace) for side in asked)
        rows = _find_changes(before, after)
        kinds = [{f.kind for f in side.findings} - NOT_FAULTS for side in (before, after)]
        return Comparison(
            before=_make_side(before),
            after=_make_side(after),
            metrics=rows,
            findings=FindingChanges(
                gone=sorted(kinds[0] - kinds[1]),
                new=sorted(kinds[1] - kinds[0]),
                still=sorted(kinds[0] & kinds[1]),
            ),
            changed=_write_sentences(before, after, rows, kinds),
            distribution=_compute_distribution(workspace, asked, self.metric),
        )

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis/comparison"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        renamed = {"other_from_ms": "other_from", "other_to_ms": "other_to"}
        return {renamed.get(name, name): value for name, value in query_of(self).items()}


def _make_side(document: DiagnosisDocument) -> ComparedSide:
    workload = document.workload
    return ComparedSide(
        workload=workload.id,
        name=workload.name,
        gpus=len(workload.gpus),
        hosts=len(workload.hosts),
        window=document.window,
        verdict=document.verdict,
        findings=document.findings,
    )


def _find_changes(before: DiagnosisDocument, after: DiagnosisDocument) -> list[MetricChange]:
    """Return means of the metrics that both have, the largest relative change first."""
    old = {row.metric: row for row in before.metrics}
    rows = []
    for row in after.metrics:
        if row.metric not in old or row.mean is None:
            continue
        mean = old[row.metric].mean
        change = None if not mean else round((row.mean - mean) / abs(mean), 4)
        rows.append(
            MetricChange(
                metric=row.metric,
                label=catalogue()[row.metric].label,
                unit=row.unit,
                before=mean,
                after=row.mean,
                change=change,
            )
        )
    return sorted(rows, key=lambda row: -abs(row.change or 0.0))


def _write_sentences(
    before: DiagnosisDocument,
    after: DiagnosisDocument,
    rows: list[MetricChange],
    kinds: list[set[str]],
) -> list[str]:
    """Return sentences about the changes; a single one if there is none."""
    said = []
    for word, found in (("No longer", kinds[0] - kinds[1]), ("New", kinds[1] - kinds[0])):
        if found:
            named = ", ".join(kind.replace("_", " ") for kind in sorted(found))
            said.append(f"{word}: {named}.")
    sizes = [len(side.workload.gpus) for side in (before, after)]
    if sizes[0] != sizes[1]:
        said.append(f"{sizes[0]} GPUs before, {sizes[1]} after.")
    for row in rows[:ROWS_LIMIT]:
        if row.change is not None and abs(row.change) >= LEAST_CHANGE:
            way = "up" if row.change > 0 else "down"
            values = f"{number_text(row.before)} to {number_text(row.after)} {row.unit}"
            said.append(f"{row.label} {way} {format_percent(abs(row.change))}: {values.strip()}.")
    return said or ["Nothing changed by more than 5 %."]


def _compute_distribution(
    workspace: Workspace, asked: tuple[AskDiagnosis, AskDiagnosis], metric: str
) -> Distribution | None:
    """Return how often each value, on one axis for both; shares, since windows differ in length."""
    sides = [load_matrix(workspace, side, (metric,), ()) for side in asked]
    if any(metric not in side.columns for side in sides):
        return None
    limits = [metric_limits(side, metric) for side in sides]
    low, high = min(one[0] for one in limits), max(one[1] for one in limits)
    shares = []
    for side in sides:
        counts = histogram_counts(side.columns[metric], low, high).sum(axis=0)
        shares.append(np.round(counts / max(1, int(counts.sum())), 5).tolist())
    known = catalogue()[metric]
    return Distribution(
        metric=metric,
        label=known.label,
        unit=known.unit,
        limits=(low, high),
        before=shares[0],
        after=shares[1],
    )

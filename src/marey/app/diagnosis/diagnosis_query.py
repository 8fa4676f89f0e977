"""Diagnosis of a stored workload as a question: what is wrong, where, since when."""

from __future__ import annotations

from dataclasses import dataclass

from marey.app.diagnosis.diagnosis_document import DiagnosisDocument, document
from marey.app.diagnosis.siblings import find_siblings
from marey.app.diagnosis.workload_matrix import MetricSums, load_matrix
from marey.app.queries.site_runs import list_slow_hosts
from marey.app.queries.table_queries import query_of
from marey.app.queries.workspace import Workspace
from marey.diagnose.diagnosis import diagnose
from marey.diagnose.slow_hosts import add_slow_hosts
from marey.model.errors import InvalidInput
from marey.model.names import DEFAULT_CLUSTER


@dataclass(frozen=True)
class AskDiagnosis:
    """What is wrong with a workload, where, since when, and what to try."""

    workload: str
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None
    metric: str = ""

    def ask(self, workspace: Workspace) -> DiagnosisDocument:
        """Return the diagnosis as a JSON document."""
        tally = MetricSums()
        matrix = load_matrix(workspace, self, tally=tally)
        if self.metric and self.metric not in matrix.columns:
            listed = ", ".join(matrix.columns) or "none at all"
            raise InvalidInput(
                f"Workload '{self.workload}' has no samples of '{self.metric}'; it has: {listed}."
            )
        siblings = find_siblings(workspace, self.cluster, matrix)
        found = diagnose(matrix, metric=self.metric or None, siblings=siblings)
        found = add_slow_hosts(found, matrix, list_slow_hosts(workspace, self.cluster))
        if found.clusters is not None:
            # The page asks for the clusters next.
            made, trees = found.clusters, workspace.matrices.trees
            trees.put(trees.key(matrix, made.metric, made.method), made.merged)
        return document(matrix, found, tally)

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)

"""The report of a diagnosis as a question: one document, turned into HTML or Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marey.app.diagnosing import AskDiagnosis
from marey.app.dissecting import AskClusters
from marey.app.questions import query_of
from marey.app.workspace import Workspace
from marey.diagnose.report import report_html, report_markdown
from marey.model.errors import InvalidInput, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.times import format_time

FORMATS = ("html", "markdown")


@dataclass(frozen=True)
class AskReport:
    """A report that a person can send."""

    workload: str
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None
    metric: str = ""
    format: str = "html"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidInput(unknown("format", self.format, FORMATS))

    def text(self, workspace: Workspace) -> str:
        """The report itself."""
        span = (self.from_ms, self.to_ms)
        asked = AskDiagnosis(self.workload, self.cluster, *span, self.metric)
        document = asked.ask(workspace)
        clusters: dict[str, Any] | None = None
        if document["clustering"] is not None:
            metric = document["clustering"]["metric"]
            question = AskClusters(self.workload, self.cluster, metric, "histogram", 0, *span)
            clusters = question.ask(workspace)
        if self.format == "markdown":
            return report_markdown(document, clusters)
        return report_html(document, clusters, made=format_time(workspace.now_ms()))

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """The report within a JSON document, as a command gets it from a server."""
        return {"workload": self.workload, "format": self.format, "text": self.text(workspace)}

    def path(self) -> str:
        """Where the API answers it."""
        return "/diagnosis/report"

    def query(self) -> dict[str, str]:
        """The parameters of that request."""
        return query_of(self)

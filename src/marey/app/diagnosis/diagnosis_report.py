"""The report of a diagnosis as a question: one document, turned into HTML or Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import to_builtins

from marey.app.diagnosis.diagnosis_document import DiagnosisDocument
from marey.app.diagnosis.diagnosis_parts import AskClusters, AskOutliers
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.diagnosis.over_time import AskBand
from marey.app.diagnosis.part_documents import DiagnosisReport
from marey.app.queries.drawing_code import read_drawing_code
from marey.app.queries.table_queries import query_of
from marey.app.queries.workspace import Workspace
from marey.diagnose.diagnosis import OUTLIER_METRICS
from marey.diagnose.report import Pictures, report_html, report_markdown
from marey.model.errors import InvalidInput, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.system.page_code import Drawing
from marey.model.times import format_time

FORMATS = ("html", "markdown")
# What the timelines of a report show, where the workload has it.
OVER_TIME = ("util", "power", "mem_used")
POINTS = 400


def find_drawing_code() -> Drawing | None:
    """Return the drawing code that the web app was built with; none where it was not built."""
    return read_drawing_code("report")


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
        """Return the report itself."""
        found = AskDiagnosis(
            self.workload, self.cluster, self.from_ms, self.to_ms, self.metric
        ).ask(workspace)
        pictures = self._draw_pictures(workspace, found)
        # Reports are made of the JSON form, so that whoever has it has the report.
        document = to_builtins(found)
        if self.format == "markdown":
            return report_markdown(document, pictures.clusters)
        return report_html(
            document, pictures, drawing=find_drawing_code(), made=format_time(workspace.now_ms())
        )

    def _draw_pictures(self, workspace: Workspace, document: DiagnosisDocument) -> Pictures:
        """Return the pictures that the page would draw of the same window."""
        if document.clustering is None:
            return Pictures()
        metric = document.clustering.metric
        clusters = AskClusters(
            self.workload, self.cluster, metric, from_ms=self.from_ms, to_ms=self.to_ms
        ).ask(workspace)
        if self.format == "markdown":
            return Pictures(to_builtins(clusters))
        present = {row.metric for row in document.metrics}
        lines = [name for name in dict.fromkeys((metric, *OVER_TIME)) if name in present]
        bands = AskBand(
            self.workload,
            self.cluster,
            ",".join(lines),
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            points=POINTS,
        ).ask(workspace)
        outliers = None
        if document.outliers and present >= set(OUTLIER_METRICS):
            asked = AskOutliers(self.workload, self.cluster, from_ms=self.from_ms, to_ms=self.to_ms)
            outliers = to_builtins(asked.ask(workspace))
        return Pictures(to_builtins(clusters), to_builtins(bands), outliers)

    def ask(self, workspace: Workspace) -> DiagnosisReport:
        """Return the report within a JSON document, as a command gets it from a server."""
        return DiagnosisReport(self.workload, self.format, self.text(workspace))

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis/report"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)

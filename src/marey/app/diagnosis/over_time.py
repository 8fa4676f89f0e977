"""A workload over time as questions: the band of all its GPUs, and the lines of some."""

from __future__ import annotations

from dataclasses import dataclass

from marey.app.diagnosis.diagnosis_parts import check_metric, frame_fields, round_numbers
from marey.app.diagnosis.part_documents import Bands, GpuLine, Lines, MetricBand, MetricLines
from marey.app.diagnosis.workload_matrix import HOST_METRICS, load_hosts, load_lines, load_matrix
from marey.app.queries.selection import split_names
from marey.app.queries.table_queries import query_of, within
from marey.app.queries.workspace import Workspace
from marey.diagnose.lines import Bins, band, lines, time_bins
from marey.diagnose.matrix import WorkloadMatrix
from marey.model.errors import InvalidInput
from marey.model.names import DEFAULT_CLUSTER

POINTS_BOUNDS = (2, 4_000)
# Width of a bin in milliseconds: to a month.
BIN_BOUNDS = (0, 2_678_400_000)
METRICS_LIMIT = 8
# More lines than a person can follow, and the most that zooming draws in time.
GPUS_LIMIT = 64


@dataclass(frozen=True)
class OverTime:
    """Some metrics of a workload over a window, in bins of time."""

    workload: str
    cluster: str = DEFAULT_CLUSTER
    metrics: str = "util"
    from_ms: int | None = None
    to_ms: int | None = None
    points: int = 600
    # Width of the bins, as an answer before gave it; 0 chooses by ``points``.
    bin: int = 0

    def __post_init__(self) -> None:
        within("points", self.points, *POINTS_BOUNDS)
        within("bin", self.bin, *BIN_BOUNDS)

    def names(self) -> tuple[str, ...]:
        """Return the metrics asked for."""
        return split_names(self.metrics, "metrics", METRICS_LIMIT)

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


@dataclass(frozen=True)
class AskBand(OverTime):
    """What all GPUs (or hosts) of a workload do over time: median and band of some metrics."""

    def ask(self, workspace: Workspace) -> Bands:
        """Return per metric the least, 10 %, median, 90 % and greatest over the GPUs, by time."""
        names = self.names()
        of_gpus = [check_metric(name) for name in names if name not in HOST_METRICS]
        of_hosts = [name for name in names if name in HOST_METRICS]
        parts = [load_matrix(workspace, self, of_gpus, ())] if of_gpus else []
        parts += [load_hosts(workspace, self, of_hosts)] if of_hosts else []
        width, coarse, found = self.bin, False, {}
        for matrix in parts:
            # Hosts are sampled less often; all are laid in bins of the same width.
            bins = time_bins(matrix, self.points, width)
            width, coarse = width or bins.width_ms, coarse or matrix.coarse
            found.update({metric: _compute_band(matrix, metric, bins) for metric in matrix.columns})
        bands = [found[metric] for metric in names if metric in found]
        return Bands(bin_ms=width, coarse=coarse, bands=bands)

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis/band"


def _compute_band(matrix: WorkloadMatrix, metric: str, bins: Bins) -> MetricBand:
    low, p10, median, p90, high = (round_numbers(level) for level in band(matrix, metric, bins))
    return MetricBand(
        **frame_fields(matrix, metric),
        time_ms=bins.time_ms.tolist(),
        low=low,
        p10=p10,
        median=median,
        p90=p90,
        high=high,
    )


@dataclass(frozen=True)
class AskLines(OverTime):
    """What some GPUs of a workload do over time; no extreme is lost."""

    # Their ids, separated by commas.
    gpus: str = ""

    def ask(self, workspace: Workspace) -> Lines:
        """Return per metric and GPU its values, all at the same moments."""
        names = [check_metric(name) for name in self.names()]
        gpus = split_names(self.gpus, "GPUs", GPUS_LIMIT)
        if not gpus:
            raise InvalidInput("Name the GPUs whose lines are wanted, separated by commas.")
        matrix = load_lines(workspace, self, names, gpus)
        bins = time_bins(matrix, self.points, self.bin)
        found = []
        for metric in names:
            if metric not in matrix.columns:
                continue
            drawn = lines(matrix, metric, gpus, bins)
            listed = [GpuLine(gpu, round_numbers(value)) for gpu, value in drawn.items()]
            found.append(MetricLines(**frame_fields(matrix, metric), lines=listed))
        return Lines(bin_ms=bins.width_ms, time_ms=bins.time_ms.tolist(), metrics=found)

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis/lines"

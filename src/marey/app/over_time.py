"""A workload over time as questions: the band of all its GPUs, and the lines of some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marey.app.dissecting import checked_metric, metric_frame, numbers
from marey.app.questions import query_of, within
from marey.app.selecting import split_names
from marey.app.workload_matrix import HOST_METRICS, load_hosts, load_lines, load_matrix
from marey.app.workspace import Workspace
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
        """The metrics asked for."""
        return split_names(self.metrics, "metrics", METRICS_LIMIT)

    def query(self) -> dict[str, str]:
        """The parameters of the request."""
        return query_of(self)


@dataclass(frozen=True)
class AskBand(OverTime):
    """What all GPUs (or hosts) of a workload do over time: median and band of some metrics."""

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Per metric the least, 10 %, median, 90 % and greatest over the GPUs, by time."""
        names = self.names()
        of_gpus = [checked_metric(name) for name in names if name not in HOST_METRICS]
        of_hosts = [name for name in names if name in HOST_METRICS]
        parts = [load_matrix(workspace, self, of_gpus, ())] if of_gpus else []
        parts += [load_hosts(workspace, self, of_hosts)] if of_hosts else []
        width, coarse, found = self.bin, False, {}
        for matrix in parts:
            # Hosts are sampled less often; all are laid in bins of the same width.
            bins = time_bins(matrix, self.points, width)
            width, coarse = width or bins.width_ms, coarse or matrix.coarse
            found.update({metric: _band(matrix, metric, bins) for metric in matrix.columns})
        bands = [found[metric] for metric in names if metric in found]
        return {"bin_ms": width, "coarse": coarse, "bands": bands}

    def path(self) -> str:
        """Where the API answers it."""
        return "/diagnosis/band"


def _band(matrix: WorkloadMatrix, metric: str, bins: Bins) -> dict[str, Any]:
    levels = (numbers(level) for level in band(matrix, metric, bins))
    of = dict(zip(("low", "p10", "median", "p90", "high"), levels, strict=True))
    return {**metric_frame(matrix, metric), "time_ms": bins.time_ms.tolist(), **of}


@dataclass(frozen=True)
class AskLines(OverTime):
    """What some GPUs of a workload do over time; no extreme is lost."""

    # Their ids, separated by commas.
    gpus: str = ""

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Per metric and GPU its values, all at the same moments."""
        names = [checked_metric(name) for name in self.names()]
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
            listed = [{"gpu": gpu, "value": numbers(value)} for gpu, value in drawn.items()]
            found.append({**metric_frame(matrix, metric), "lines": listed})
        return {"bin_ms": bins.width_ms, "time_ms": bins.time_ms.tolist(), "metrics": found}

    def path(self) -> str:
        """Where the API answers it."""
        return "/diagnosis/lines"

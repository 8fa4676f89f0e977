"""A workload over time as questions: the band of all its GPUs, and the lines of some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marey.app.dissecting import checked_metric, metric_frame, numbers
from marey.app.questions import query_of, within
from marey.app.selecting import split_names
from marey.app.workload_matrix import load_lines, load_matrix
from marey.app.workspace import Workspace
from marey.diagnose.lines import band, lines, time_bins
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

    def names(self) -> list[str]:
        """The metrics asked for, each one that is measured of GPUs."""
        listed = split_names(self.metrics, "metrics", METRICS_LIMIT)
        return [checked_metric(name) for name in listed]

    def query(self) -> dict[str, str]:
        """The parameters of the request."""
        return query_of(self)


@dataclass(frozen=True)
class AskBand(OverTime):
    """What all GPUs of a workload do over time: median and band of some metrics."""

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Per metric the least, 10 %, median, 90 % and greatest over the GPUs, by time."""
        names = self.names()
        matrix = load_matrix(workspace, self, names, ())
        bins = time_bins(matrix, self.points, self.bin)
        bands = []
        for metric in names:
            if metric not in matrix.columns:
                continue
            levels = (numbers(level) for level in band(matrix, metric, bins))
            of = dict(zip(("low", "p10", "median", "p90", "high"), levels, strict=True))
            bands.append({**metric_frame(matrix, metric), "time_ms": bins.time_ms.tolist(), **of})
        return {"bin_ms": bins.width_ms, "coarse": matrix.coarse, "bands": bands}

    def path(self) -> str:
        """Where the API answers it."""
        return "/diagnosis/band"


@dataclass(frozen=True)
class AskLines(OverTime):
    """What some GPUs of a workload do over time; no extreme is lost."""

    # Their ids, separated by commas.
    gpus: str = ""

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Per metric and GPU its values, all at the same moments."""
        names = self.names()
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

"""Everything that can be asked of a cluster: the store, the live tables, and a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.app.queries.cancellation import RunningWork, Work
from marey.app.queries.matrix_cache import MatrixCache
from marey.app.queries.project_shares import read_site_shares
from marey.app.queries.search import SearchHit, search
from marey.app.queries.selection import (
    MetricQuery,
    SelectionRequest,
    Span,
    check_rows,
    rename_metric,
    resolve,
    scale_columns,
)
from marey.live.frames import Frame
from marey.live.past_frames import PastFrames
from marey.live.snapshot_cache import SnapshotCache
from marey.live.summary import SummaryLog, rebuilt, thin_rows
from marey.model.errors import InvalidInput, NotFound, unknown
from marey.model.metrics import EVERYDAY, Entity, Metric, metric_named
from marey.model.protocols import Answer, Pace, Selection, Store, WorkloadQuery
from marey.model.samples import SampleBatch, batch_from_table, concatenate
from marey.model.times import DAY_MS

if TYPE_CHECKING:
    from marey.queue.waiting.fairness import SiteShares
    from marey.queue.waiting.queue_record import QueueRecord

_STATISTICS = ("min", "max", "mean", "std", "last")
# A moment shows the newest value of each GPU that is no older than this.
MOMENT_REACH_MS = 60_000
# While time is dragged values this old are enough, and what lies this far back does not change.
THINNED_REACH_MS = 20_000
SETTLED_MS = 5 * 60_000
POINTS_LEAST = 4


class SizeEfficiency(NamedTuple):
    """The efficiency (0-1) of all jobs of one size and type of GPU, and how many they are."""

    efficiency: float
    jobs: int


@dataclass(slots=True)
class Workspace:
    """The questions; the same for the API, the command line and a notebook."""

    store: Store
    clock: Pace
    # The newest frame of each cluster, where a collect loop runs.
    frames: Mapping[str, Frame]
    summaries: SummaryLog
    matrices: MatrixCache = field(default_factory=MatrixCache)
    past: PastFrames = field(default_factory=PastFrames)
    snapshots: SnapshotCache = field(default_factory=SnapshotCache)
    running_work: RunningWork = field(default_factory=RunningWork)
    # Told how far a long reading is, where somebody watches it.
    work: Work | None = None
    # Whether the rules of a cluster still read what was measured before they judge it live.
    preparing: Callable[[str], bool] = lambda _: False
    # How much of it (0-1) they have read.
    share_read: Callable[[str], float | None] = lambda _: None
    # The kept forecasts of a cluster's waiting line, where a collect loop runs.
    find_queue_record: Callable[[str], QueueRecord | None] = lambda _: None
    # How efficient a cluster's jobs are by type of GPU and number of GPUs, where a service runs.
    find_peer_groups: Callable[[str], Mapping[tuple[str, int], SizeEfficiency]] = lambda _: {}
    # Hosts on which repeated runs are slow, by cluster, with the hour of the finding.
    slow_hosts: dict[str, tuple[int, dict[str, float]]] = field(default_factory=dict)

    def now_ms(self) -> int:
        """Return the cluster's time."""
        return self.clock.now_ms()

    def check_cluster(self, cluster: str) -> str:
        """Return the name, if there is such a cluster (or none at all yet)."""
        names = self.clusters()
        if cluster not in names:
            raise NotFound(unknown("cluster", cluster, names))
        return cluster

    def clusters(self) -> list[str]:
        """Return every cluster that was ever observed, and those that are live."""
        return sorted({*self.store.clusters(), *self.frames}) or ["default"]

    # Records

    def workloads(self, query: WorkloadQuery) -> pa.Table:
        """Return workloads, newest submission first."""
        return self.store.workloads(query)

    def frame_at(
        self,
        cluster: str,
        at_ms: int | None,
        metrics: Sequence[str] = EVERYDAY,
        *,
        reach_ms: int = MOMENT_REACH_MS,
    ) -> Frame:
        """Return the cluster now (the newest frame) or at a past moment, then with these metrics.

        A value older than ``reach_ms`` is not shown.
        """
        if at_ms is None and cluster in self.frames:
            return self.frames[cluster]
        moment_ms = self.now_ms() if at_ms is None else at_ms
        moment = self.store.moment(cluster, moment_ms)
        since_ms = moment_ms - reach_ms
        selection = Selection(
            _list_stored_metrics(metrics), since_ms, moment_ms + 1, cluster=cluster
        )
        # Without a metric a selection means every one.
        samples = _join_batches(self.store.scan(selection)) if selection.metrics else None
        return self.past.frame(moment, samples)

    def thinned_snapshot(
        self, cluster: str, at_ms: int, step_ms: int, metrics: tuple[str, ...]
    ) -> bytes:
        """Return a picture of about that moment, quickly, for time that is being dragged.

        Of every ``step_ms`` one moment is shown, with the newest values alone; it is kept for the
        next who comes by.
        """
        moment_ms = at_ms // step_ms * step_ms

        def make() -> bytes:
            frame = self.frame_at(cluster, moment_ms, metrics, reach_ms=THINNED_REACH_MS)
            return frame.snapshot(metrics)

        if moment_ms > self.now_ms() - SETTLED_MS:
            return make()
        return self.snapshots.find((self.viewer(), cluster, moment_ms, metrics), make)

    def viewer(self) -> str:
        """Return for whom pictures are kept; empty where everything is shown."""
        return ""

    def frame_for_sums(self, cluster: str, at_ms: int | None) -> Frame:
        """Return all the work there is or was, for sums and simulations; perhaps without names."""
        return self.frame_at(cluster, at_ms, ())

    def workloads_for_sums(self, query: WorkloadQuery) -> pa.Table:
        """Return all workloads that are chosen, for sums; perhaps without names."""
        return self.workloads(query)

    def store_for_sums(self) -> Store:
        """Return all that is kept, for sums and simulations; never for what is shown by name."""
        return self.store

    def show_owner(self, user: str, project: str) -> tuple[str, str]:
        """Return a user and a project as they may be shown."""
        return user, project

    def site_shares(self, cluster: str) -> SiteShares:
        """Return the configured share of each project."""
        return read_site_shares(self.store, cluster)

    def summary(
        self, cluster: str, from_ms: int | None, to_ms: int | None, points: int
    ) -> pa.Table:
        """Return GPUs by state, waiting work and mean utilization over time."""
        to_ms = self.now_ms() + 1 if to_ms is None else to_ms
        from_ms = to_ms - DAY_MS if from_ms is None else from_ms
        if from_ms >= to_ms:
            raise InvalidInput("The span of time is empty: 'from' must be before 'to'.")
        rows = self.summaries.rows(cluster, from_ms, to_ms)
        if rows:
            return thin_rows(rows, points)
        return rebuilt(self.store, cluster=cluster, from_ms=from_ms, to_ms=to_ms, points=points)

    # Samples

    def series(self, wanted: SelectionRequest, points: int) -> Answer:
        """Return downsampled series that keep extremes."""
        span = self._resolve(wanted)
        check_rows(
            len(span.gpus) * len(wanted.metrics) * min(points, _limit_points(span)), "The series"
        )

        def ask(selection: Selection, _: Sequence[tuple[float, float]]) -> Answer:
            return self.store.series(selection, points)

        def scale(table: pa.Table, factor: NDArray[np.float64], metric: Metric) -> pa.Table:
            return rename_metric(scale_columns(table, factor, ["value"]), metric)

        return self._make_asker(ask, scale).answer(span, wanted.metrics)

    def histograms(self, wanted: SelectionRequest, bins: int) -> Answer:
        """Return counts per GPU and metric over equal bins of the metric's range."""
        span = self._resolve(wanted)
        check_rows(len(span.gpus) * len(wanted.metrics) * bins, "The histograms")

        def ask(selection: Selection, ranges: Sequence[tuple[float, float]]) -> Answer:
            return self.store.histograms(selection, bins, ranges)

        def scale(table: pa.Table, factor: NDArray[np.float64], metric: Metric) -> pa.Table:
            return rename_metric(scale_columns(table, factor, ["low", "high"]), metric)

        asker = MetricQuery(
            self.store, self.gpu_attribute, ask, scale, lambda m: (m.minimum, m.maximum)
        )
        return asker.answer(span, wanted.metrics)

    def statistics(self, wanted: SelectionRequest, quantiles: Sequence[float]) -> Answer:
        """Return exact statistics per GPU and metric."""
        span = self._resolve(wanted)
        check_rows(len(span.gpus) * len(wanted.metrics), "The statistics")

        def ask(selection: Selection, _: Sequence[tuple[float, float]]) -> Answer:
            return self.store.statistics(selection, quantiles)

        def scale(table: pa.Table, factor: NDArray[np.float64], metric: Metric) -> pa.Table:
            shares = scale_columns(table, factor, _STATISTICS)
            lists = [
                None if values is None else [None if v is None else v * f for v in values]
                for values, f in zip(table["quantiles"].to_pylist(), factor, strict=True)
            ]
            at = shares.column_names.index("quantiles")
            kind = table.schema.field("quantiles").type
            return rename_metric(shares.set_column(at, "quantiles", pa.array(lists, kind)), metric)

        return self._make_asker(ask, scale).answer(span, wanted.metrics)

    def gpu_attribute(
        self, cluster: str, name: str, at_ms: int, gpus: Sequence[str]
    ) -> NDArray[np.float64]:
        """Return a number of each GPU, NaN where it is not known."""
        frame = self.frames.get(cluster)
        table = frame.units.still if frame else None
        if table is None:
            table = self.store.gpus(cluster, min(at_ms, self.now_ms()))
        known = dict(zip(table["gpu"].to_pylist(), table[name].to_pylist(), strict=True))
        values = [known.get(gpu) for gpu in gpus]
        return np.array([np.nan if value is None else value for value in values], np.float64)

    def _resolve(self, wanted: SelectionRequest) -> Span:
        return resolve(self.store, wanted, self.now_ms())

    def _make_asker(
        self,
        ask: Callable[[Selection, Sequence[tuple[float, float]]], Answer],
        scale: Callable[[pa.Table, NDArray[np.float64], Metric], pa.Table],
    ) -> MetricQuery:
        return MetricQuery(self.store, self.gpu_attribute, ask, scale)

    # Search

    def search(self, cluster: str, text: str, limit: int) -> list[SearchHit]:
        """Return workloads, users, projects, hosts and GPUs whose name holds the text."""
        return search(self.store, self.frames.get(cluster), cluster, text=text, limit=limit)


def _limit_points(span: Span) -> int:
    # No source samples more often than four times a second.
    return max(POINTS_LEAST, (span.to_ms - span.from_ms) // 250)


def _list_stored_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that metrics of GPUs are read from.

    A share also from what it is part of.
    """
    found: dict[str, None] = {}
    for name in metrics:
        metric = metric_named(name)
        if metric.entity is Entity.GPU:
            found[name] = None
            if metric.derived:
                found[metric.derived.base] = None
    return tuple(found)


def _join_batches(batches: Any) -> SampleBatch | None:
    """Return the batches as one, where there are any."""
    listed = [batch for batch in batches if len(batch)]
    if not listed:
        return None
    return listed[0] if len(listed) == 1 else batch_from_table(concatenate(listed))

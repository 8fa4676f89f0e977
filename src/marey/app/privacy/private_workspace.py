"""The questions of a cluster and its live frames, as a scope may ask them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from marey.app.privacy.private_store import PrivateStore
from marey.app.queries.matrix_cache import MatrixCache, SpanNotes, TreeNotes, Window
from marey.app.queries.workspace import MOMENT_REACH_MS, Workspace
from marey.diagnose.matrix import WorkloadMatrix
from marey.live.feed import FrameFeed
from marey.live.frames import Frame
from marey.live.seen_frames import OTHERS, anonymise_frame, see_frame
from marey.model.access.identity import Privacy
from marey.model.access.record_mask import RecordMask
from marey.model.metrics import EVERYDAY
from marey.model.protocols import Store, WorkloadQuery
from marey.queue.waiting.fairness import SharesFrom, SiteShares

_NAMELESS = ("workload", "name", "experiment", "qos", "attributes")


@dataclass(frozen=True, slots=True)
class SeenFrames(Mapping[str, Frame]):
    """The newest frame of each cluster, as a scope sees it."""

    whole: Mapping[str, Frame]
    record_mask: RecordMask

    def __getitem__(self, cluster: str) -> Frame:
        return see_frame(self.whole[cluster], self.record_mask)

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)


class PrivateFeed(FrameFeed):
    """The live frames as a scope sees them; whoever listens listens to the one feed."""

    def __init__(self, whole: FrameFeed, record_mask: RecordMask) -> None:
        super().__init__()
        self._whole = whole
        self._record_mask = record_mask

    @property
    def newest(self) -> Mapping[str, Frame]:
        """The newest frame of each cluster."""
        return SeenFrames(self._whole.newest, self._record_mask)

    def publish(self, frame: Frame) -> None:
        """Leave publishing to the collect loop."""
        self._whole.publish(frame)

    def since(self, cluster: str, seq: int) -> list[Frame] | None:
        """Return the frames after ``seq``, or None where some of them are no longer kept."""
        frames = self._whole.since(cluster, seq)
        return None if frames is None else [see_frame(frame, self._record_mask) for frame in frames]

    def subscribe(self, cluster: str, metrics: Iterable[str]) -> None:
        """Add one client who wants these columns."""
        self._whole.subscribe(cluster, metrics)

    def unsubscribe(self, cluster: str, metrics: Iterable[str]) -> None:
        """Remove one client who wanted these columns."""
        self._whole.unsubscribe(cluster, metrics)

    def subscribed(self, cluster: str) -> list[str]:
        """Return the columns that anybody wants."""
        return self._whole.subscribed(cluster)

    def listen(self, wake: Callable[[], None], *, sees_all: bool = False) -> None:
        """Call this after every frame, which is shown in part."""
        self._whole.listen(wake, sees_all=sees_all)

    def unlisten(self, wake: Callable[[], None]) -> None:
        """Stop calling it."""
        self._whole.unlisten(wake)


@dataclass(slots=True)
class PrivateMatrixCache(MatrixCache):
    """The one cache of matrices, with a place of its own for each scope."""

    whole: MatrixCache = field(default_factory=MatrixCache)
    record_mask: RecordMask | None = None

    def find(self, window: Window, metrics: frozenset[str]) -> WorkloadMatrix | None:
        """Return the cached matrix of this window as this scope has read it."""
        return self.whole.find(self._place(window), metrics)

    def keep(self, window: Window, metrics: frozenset[str], matrix: WorkloadMatrix) -> None:
        """Put a matrix into the cache."""
        self.whole.keep(self._place(window), metrics, matrix)

    def _place(self, window: Window) -> Window:
        scope = self.record_mask.scope if self.record_mask else None
        return replace(window, cluster=f"{window.cluster}\x00{scope}")


@dataclass(slots=True)
class PrivateWorkspace(Workspace):
    """The questions as a scope may ask them."""

    # Both are given by ``make_private_workspace``; the fields before them have defaults.
    whole: Workspace = field(kw_only=True)
    record_mask: RecordMask = field(kw_only=True)

    def frame_at(
        self,
        cluster: str,
        at_ms: int | None,
        metrics: Sequence[str] = EVERYDAY,
        *,
        reach_ms: int = MOMENT_REACH_MS,
    ) -> Frame:
        """Return the cluster now or at a past moment, as the scope sees it."""
        frame = self.whole.frame_at(cluster, at_ms, metrics, reach_ms=reach_ms)
        return see_frame(frame, self.record_mask)

    def viewer(self) -> str:
        """Return the scope: its pictures are for nobody else."""
        return repr(self.record_mask.scope)

    def frame_for_sums(self, cluster: str, at_ms: int | None) -> Frame:
        """Return all the work there is or was, without the names that are not shown."""
        return anonymise_frame(self.whole.frame_at(cluster, at_ms, ()), self.record_mask)

    def workloads_for_sums(self, query: WorkloadQuery) -> pa.Table:
        """Return all workloads of a span, without the names that are not shown."""
        if not self.record_mask.scope.hides:
            return self.workloads(query)
        table = self.whole.workloads(query)
        owners = zip(table["user"].to_pylist(), table["project"].to_pylist(), strict=True)
        known = [self.record_mask.knows(*owner) for owner in owners]
        masks = {**dict.fromkeys(_NAMELESS, ""), "user": OTHERS, "project": OTHERS}
        for name, mask in masks.items():
            values = table[name].to_pylist()
            shown = [v if k else mask for v, k in zip(values, known, strict=True)]
            at = table.column_names.index(name)
            column = pa.array(shown, pa.string())
            table = table.set_column(at, table.schema.field(name), column)
        return table

    def store_for_sums(self) -> Store:
        """Return all that is kept; what is computed of it is shown by ``show_owner``."""
        return self.whole.store_for_sums()

    def show_owner(self, user: str, project: str) -> tuple[str, str]:
        """Return a user and a project, their pseudonyms, or that they are others."""
        if self.record_mask.knows(user, project):
            return user, project
        if self.record_mask.scope.hides:
            return OTHERS, OTHERS
        return self.record_mask.show_user(user), self.record_mask.show_project(project)

    def site_shares(self, cluster: str) -> SiteShares:
        """Return the shares under the names that are shown; none where no project is whole."""
        shares, scope = self.whole.site_shares(cluster), self.record_mask.scope
        if scope.is_open or not shares.weights:
            return shares
        if scope.privacy is not Privacy.PROJECT:
            return SiteShares(origin=SharesFrom.WITHHELD)
        weights: dict[str, float] = defaultdict(float)
        for project, weight in shares.weights.items():
            weights[project if self.record_mask.knows("", project) else OTHERS] += weight
        return replace(shares, weights=dict(weights))

    def summary(
        self, cluster: str, from_ms: int | None, to_ms: int | None, points: int
    ) -> pa.Table:
        """Return GPUs by state, waiting work and mean utilization: they name nobody."""
        return self.whole.summary(cluster, from_ms, to_ms, points)


def make_private_workspace(
    whole: Workspace, store: PrivateStore, record_mask: RecordMask
) -> PrivateWorkspace:
    """Return the workspace of a scope over the same clock, figures and cache."""
    cache = PrivateMatrixCache(
        spans=SpanNotes(), trees=TreeNotes(), whole=whole.matrices, record_mask=record_mask
    )
    return PrivateWorkspace(
        store,
        whole.clock,
        SeenFrames(whole.frames, record_mask),
        whole.summaries,
        matrices=cache,
        past=whole.past,
        snapshots=whole.snapshots,
        preparing=whole.preparing,
        share_read=whole.share_read,
        find_queue_record=whole.find_queue_record,
        find_peer_groups=whole.find_peer_groups,
        whole=whole,
        record_mask=record_mask,
    )

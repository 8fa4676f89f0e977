"""Matrices of workloads that were read a moment ago, so that the next look need not read again.

A reader of the diagnostics page changes the metric, the number of clusters, the window: each
question would read the same samples. The cache holds a bounded number of bytes, nothing for long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from marey.app.queries.selection import SelectionRequest, Span
from marey.diagnose.matrix import WorkloadMatrix
from marey.stats.clustering import CuttableTree

MOST_BYTES = 160_000_000
KEPT_S = 300.0
# A running workload's picture may lag by this much before its samples are read again.
LAG_MS = 60_000


@dataclass(frozen=True, slots=True)
class Window:
    """A workload over a span of time, half-open."""

    cluster: str
    workload: str
    from_ms: int
    to_ms: int
    # Whether it ends now: then it grows, and an answer a minute old will do.
    open_end: bool = False


@dataclass(slots=True)
class CachedMatrix:
    """A matrix into the cache."""

    window: Window
    metrics: frozenset[str]
    matrix: WorkloadMatrix
    size: int
    used_s: float


def _get_now_s() -> float:
    return time.monotonic()


# One look at the page asks several questions about the same span within a moment.
SPAN_S = 2.0


@dataclass(slots=True)
class SpanNotes:
    """Which GPUs and times were meant by what was asked, for a moment."""

    clock: Callable[[], float] = _get_now_s
    _noted: dict[SelectionRequest, tuple[float, Span]] = field(default_factory=dict)

    def get(self, wanted: SelectionRequest, now_ms: int) -> Span | None:
        """Return the span, if it was looked up just now and does not end with the present."""
        noted = self._noted.get(wanted)
        if noted is None or self.clock() - noted[0] >= SPAN_S or noted[1].to_ms > now_ms:
            return None
        return noted[1]

    def put(self, wanted: SelectionRequest, span: Span) -> None:
        """Note a span; what is older is forgotten."""
        now = self.clock()
        fresh = {key: note for key, note in self._noted.items() if now - note[0] < SPAN_S}
        self._noted = {**fresh, wanted: (now, span)}


# A tree of 8,192 GPUs takes a quarter of a megabyte.
MOST_TREES = 24
TreeKey = tuple[object, ...]


@dataclass(slots=True)
class TreeNotes:
    """Merge trees that were made last: another number of clusters cuts one, and makes none."""

    _trees: dict[TreeKey, CuttableTree] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def key(matrix: WorkloadMatrix, metric: str, method: str) -> TreeKey:
        """Return the key of a tree: other samples of the same workload make another one."""
        ends = (int(matrix.time_ms[0]), int(matrix.time_ms[-1]), len(matrix.time_ms))
        total = float(np.nansum(matrix.columns[metric], dtype=np.float64))
        return (matrix.facts.workload, tuple(matrix.names), *ends, metric, method, total)

    def get(self, key: TreeKey) -> CuttableTree | None:
        """Return the tree, if it is still known."""
        with self._lock:
            found = self._trees.pop(key, None)
            if found is not None:
                self._trees[key] = found
        return found

    def put(self, key: TreeKey, merged: CuttableTree) -> None:
        """Note a tree; the one not asked for the longest makes room."""
        with self._lock:
            self._trees.pop(key, None)
            self._trees[key] = merged
            while len(self._trees) > MOST_TREES:
                del self._trees[next(iter(self._trees))]


@dataclass(slots=True)
class MatrixCache:
    """The matrices that were read last."""

    most_bytes: int = MOST_BYTES
    clock: Callable[[], float] = _get_now_s
    spans: SpanNotes = field(default_factory=SpanNotes)
    trees: TreeNotes = field(default_factory=TreeNotes)
    _kept: list[CachedMatrix] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, window: Window, metrics: frozenset[str]) -> WorkloadMatrix | None:
        """Return the cached matrix of this window, if need be cut out of a larger one."""
        with self._lock:
            self._drop_old()
            for kept in reversed(self._kept):
                if metrics <= kept.metrics and _does_cover(kept, window):
                    kept.used_s = self.clock()
                    return _clip_matrix(kept, window)
        return None

    def keep(self, window: Window, metrics: frozenset[str], matrix: WorkloadMatrix) -> None:
        """Put a matrix into the cache; the ones that were not used for longest make room."""
        size = sum(values.nbytes for values in matrix.columns.values())
        if size > self.most_bytes:
            return
        with self._lock:
            self._drop_old()
            # What the new one knows too need not be kept twice.
            self._kept = [
                kept
                for kept in self._kept
                if not (kept.window.workload == window.workload and kept.metrics <= metrics)
                or not _is_within(kept.window, window)
            ]
            self._kept.sort(key=lambda kept: kept.used_s)
            while self._kept and self._count_bytes() + size > self.most_bytes:
                self._kept.pop(0)
            self._kept.append(CachedMatrix(window, metrics, matrix, size, self.clock()))

    def _count_bytes(self) -> int:
        return sum(kept.size for kept in self._kept)

    def _drop_old(self) -> None:
        now = self.clock()
        self._kept = [kept for kept in self._kept if now - kept.used_s < KEPT_S]


def _is_within(inner: Window, outer: Window) -> bool:
    return (
        (inner.cluster, inner.workload) == (outer.cluster, outer.workload)
        and inner.from_ms >= outer.from_ms
        and inner.to_ms <= outer.to_ms
    )


def _does_cover(kept: CachedMatrix, window: Window) -> bool:
    own = kept.window
    if (own.cluster, own.workload) != (window.cluster, window.workload):
        return False
    if own.from_ms > window.from_ms:
        return False
    late = window.to_ms - own.to_ms
    # The whole picture of a running workload may lag; a part that is asked for may not.
    whole = own.from_ms == window.from_ms and own.open_end and window.open_end
    if whole and late <= LAG_MS:
        return True
    same = own.from_ms == window.from_ms and late == 0
    return same or (late <= 0 and not kept.matrix.coarse)


def _clip_matrix(kept: CachedMatrix, window: Window) -> WorkloadMatrix:
    own = kept.window
    if own.from_ms == window.from_ms and own.to_ms <= window.to_ms:
        return kept.matrix
    return kept.matrix.between(window.from_ms, window.to_ms)

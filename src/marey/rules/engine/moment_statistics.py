"""The statistics of one moment: where they come from, and how a sketch answers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marey.rules.engine.allocations import AllocationLayout
from marey.rules.language.expressions import Statistic
from marey.stats.sketches import sketch_statistics as ask
from marey.stats.sketches.sketch_tables import SketchTable, Span, WindowRing

Floats = NDArray[np.float64]
# Histograms that are put together at a time: 400 KB, which stay in the processor's cache.
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Sketches:
    """Everything that was sketched: whole lives, and a ring for each metric with windows."""

    table: SketchTable
    metrics: dict[str, int]
    spans: dict[str, Span]
    rings: dict[str, WindowRing]
    # From when on each ring has seen everything.
    since_ms: dict[str, int]


class MomentStatistics(Protocol):
    """The statistics of one moment: from sketches that were fed, or from columns of the past."""

    def compute(
        self, metric: str, statistic: Statistic, window: int | None, *, everyone: bool
    ) -> Floats:
        """Return a statistic per GPU; unless of everyone, only of those whom *now* concerns."""

    def get_since_ms(self, metric: str) -> int | None:
        """Return from when on windows of a metric have seen everything; None if never."""

    def concern(self, gpus: NDArray[np.bool_]) -> bool:
        """Add GPUs whose *now* is asked for; True where earlier answers lack some of them."""

    def drop_values(self) -> MomentStatistics:
        """Return the same without what was computed."""


@dataclass
class SketchedStatistics:
    """Statistics of a moment from the sketches: of everyone, whoever is concerned."""

    time_ms: int
    layout: AllocationLayout
    room: int
    sketches: Sketches
    _values: dict[object, Floats] = field(default_factory=dict)
    _windows: dict[object, NDArray[Any]] = field(default_factory=dict)

    def compute(
        self, metric: str, statistic: Statistic, window: int | None, *, everyone: bool
    ) -> Floats:
        """Return a statistic per GPU; NaN where nothing was sketched."""
        key = (metric, statistic, window)
        if key not in self._values:
            agg = self._get_aggregate(metric, window)
            if agg is None:
                values = np.full(len(self.layout), np.nan)
            else:
                span = self.sketches.spans[metric]
                bins = partial(self._get_bins, metric, window)
                values = statistic_of(statistic, agg, bins, span)
                values = values[self.layout.rows]
            self._values[key] = values
        return self._values[key]

    def _get_aggregate(self, metric: str, window: int | None) -> Floats | None:
        place = self.sketches.metrics.get(metric)
        if place is None:
            return None
        if window is None:
            return self.sketches.table.agg[: self.room, place]
        ring = self.sketches.rings.get(metric)
        if ring is None:
            return None
        key = ("agg", metric, window)
        if key not in self._windows:
            self._windows[key] = ring.summary(self.time_ms, window, self.room)
        return self._windows[key]

    def _get_bins(self, metric: str, window: int | None, rows: slice) -> NDArray[Any]:
        if window is None:
            return self.sketches.table.bins[rows, self.sketches.metrics[metric]]
        return self.sketches.rings[metric].histogram(self.time_ms, window, rows)

    def get_since_ms(self, metric: str) -> int | None:
        """Return from when on the ring of a metric has seen everything."""
        return self.sketches.since_ms.get(metric)

    def concern(self, gpus: NDArray[np.bool_]) -> bool:
        """Return False: everyone's *now* is known anyway."""
        return False

    def drop_values(self) -> SketchedStatistics:
        """Return the same without what was computed."""
        return SketchedStatistics(self.time_ms, self.layout, self.room, self.sketches)


def choose_statistic(statistic: Statistic) -> tuple[int, float]:
    """Return which statistic of a sketch is meant, and its parameter.

    Quantiles and shares have one.
    """
    if statistic.name == "p":
        return ask.QUANTILE, (statistic.quantile or 0.0) / 100
    if statistic.name == "share":
        return ask.SHARES[statistic.op or "<"], float(statistic.limit or 0.0)
    return _EXACT[statistic.name], 0.0


def needs_bins(statistic: Statistic) -> bool:
    """Return whether a sketch answers this from its bins."""
    return statistic.name not in _EXACT


# Shares are kept from 0 to 1 and shown in percent.
PERCENT = frozenset(["share", "steadiness"])
_EXACT = {
    "min": ask.LEAST,
    "max": ask.GREATEST,
    "last": ask.NEWEST,
    "mean": ask.MEAN,
    "std": ask.DEVIATION,
    "range": ask.SPREAD,
    "trend": ask.TREND,
    "steadiness": ask.STEADINESS,
    "count": ask.NUMBER,
}


def statistic_of(
    statistic: Statistic, agg: Floats, bins: Callable[[slice], NDArray[Any]], span: Span
) -> Floats:
    """Return one statistic of each sketch, in the unit that rules use for it.

    ``bins`` are asked for some rows at a time: the windows of all would be 5 MB each.
    """
    kind, parameter = choose_statistic(statistic)
    if needs_bins(statistic):
        values = np.empty(len(agg))
        for begin in range(0, len(agg), ROWS_AT_ONCE):
            rows = slice(begin, min(begin + ROWS_AT_ONCE, len(agg)))
            values[rows] = ask.binned(
                kind,
                parameter=parameter,
                agg=agg[rows],
                bins=bins(rows),
                low=span.low,
                step=span.step,
            )
    else:
        values = ask.exact(kind, agg)
    return 100.0 * values if statistic.name in PERCENT else values

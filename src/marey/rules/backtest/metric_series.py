"""The past as series: every statistic that rules ask for, at every moment at which verdicts fall.

Live, a verdict reads sketches that have just been updated. A back-test has all samples of a span at
hand, so it walks GPU by GPU through them: the sketch stays in the processor's cache, and the same
formulas give the same numbers at a fraction of the cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.metrics import Entity, catalogue
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.rules.backtest.row_table import Longs, RowTable, grow_rows
from marey.rules.definition import Rule
from marey.rules.engine.moment_statistics import PERCENT, choose_statistic, needs_bins
from marey.rules.language.expressions import ComparisonGroup, Peers, Series, Statistic, conditions
from marey.stats.sketches.sketch import BINS, FIELDS
from marey.stats.sketches.sketch_reach import life_reach
from marey.stats.sketches.sketch_series import last_seen, life_series, sort_by_row, window_series
from marey.stats.sketches.sketch_tables import SLOT_MS, Span, slots_of

Floats = NDArray[np.float64]
# A window longer than this is kept up for everybody: cheaper than the samples it was made from.
RECALLED_MS = 30 * MINUTE_MS
# A statistic over a trailing window, or over the whole life (None).
Asked = tuple[Statistic, int | None]


def statistics_of(rules: Iterable[Rule]) -> dict[str, set[Asked]]:
    """Return per metric, every statistic that verdicts may read, *now* included."""
    needed: dict[str, set[Asked]] = {}
    for rule in rules:
        for _, clause in rule.variants():
            for condition in conditions(clause.expression):
                left, right = condition.left, condition.right
                if isinstance(left, Series):
                    mine = needed.setdefault(left.metric, set())
                    mine |= {(left.statistic, left.window_ms)}
                    mine |= {(left.statistic, left.window_ms or rule.now_ms)}
                    if isinstance(right, Peers) and right.over.group is ComparisonGroup.LIFE:
                        mine |= {(left.statistic, None)}
    return needed


@dataclass(frozen=True)
class SampleBlock:
    """Samples of one kind of entity between two verdicts far apart, sorted by row."""

    batch: SampleBatch
    first: Longs
    order: NDArray[np.int32]
    times: Longs

    def values(self, name: str) -> NDArray[np.float32]:
        """Return one stored column in the order of the rows."""
        return np.ascontiguousarray(self.batch.columns[name][self.order], np.float32)

    def seen(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Return which samples have any value at all."""
        empty = [np.isnan(self.batch.columns[n]) for n in names if n in self.batch.columns]
        if not empty:
            return np.zeros(len(self.batch), bool)
        return np.asarray(~np.logical_and.reduce(empty), bool)


@dataclass(frozen=True)
class KeptSamples:
    """Samples that were judged, by row, as long as a window may still reach back to them."""

    number: int
    until_ms: int
    # Per kind of entity where each row's samples begin, and their times; per metric the values.
    places: dict[Entity, tuple[Longs, Longs]]
    values: dict[str, NDArray[np.float32]]


class MetricTrack:
    """One metric's sketches, whole-life or windowed, and its series over the block at hand."""

    def __init__(self, metric: str, wanted: list[Asked], windowed: bool) -> None:
        known = catalogue()[metric]
        self.metric, self.entity, self.derived = metric, known.entity, known.derived
        self.span = Span(known.minimum, known.maximum)
        self.windowed = windowed
        self.wanted = sorted(wanted, key=lambda asked: (asked[1] or 0, str(asked[0])))
        binned = any(needs_bins(statistic) for statistic, _ in wanted)
        slots = slots_of(max(w or 0 for _, w in wanted))
        shape = (slots,) if windowed else ()
        # Short windows are put together when somebody asks, from samples that are kept so long.
        self.recalled_ms = slots * SLOT_MS if windowed and slots * SLOT_MS <= RECALLED_MS else 0
        self.agg = np.zeros((0, *shape, FIELDS))
        # A slot of five minutes takes 218 samples a second before 16 bits are too few.
        bins = (*shape, BINS) if binned else ((0, BINS) if windowed else (0,))
        self.bins = np.zeros((0, *bins), np.uint16 if windowed else np.uint32)
        self.held = np.zeros((0, *shape), np.int64)
        # The number of the last block that each row's sketch has taken.
        self._through = np.zeros(0, np.int64)
        self._series: dict[Asked, Floats] = {}

    def reserve(self, rows: int) -> None:
        """Make room for rows."""
        self.agg, self.bins = grow_rows(self.agg, rows), grow_rows(self.bins, rows)
        self.held, self._through = grow_rows(self.held, rows, -1), grow_rows(self._through, rows)

    def clear(self, rows: list[int]) -> None:
        """Forget rows."""
        mine = [row for row in rows if row < len(self.agg)]
        self.agg[mine], self.bins[mine] = 0, 0
        if self.windowed:
            self.held[mine] = -1

    def begin(self, metric_history: MetricHistory) -> None:
        """Take another block."""
        self.reserve(metric_history.rows)
        self._series = {}

    def series(self, wanted: Asked, metric_history: MetricHistory, rows: Longs) -> Floats:
        """Return a statistic per mark and row, of these rows for certain."""
        if not self._series:
            shape = (len(metric_history.marks), metric_history.rows)
            self._series = {asked: np.full(shape, np.nan) for asked in self.wanted}
        left = self._through[rows] < metric_history.number
        if left.any():
            which = np.unique(rows[left])
            self._recall(metric_history, which)
            out = self._walk(metric_history, which, self.wanted)
            for number, (statistic, window) in enumerate(self.wanted):
                scale = 100.0 if statistic.name in PERCENT else 1.0
                self._series[statistic, window][:, which] = out[number].T * scale
        return self._series[wanted]

    def finish(self, metric_history: MetricHistory) -> None:
        """Take the block's samples where nobody asked for a number."""
        left = np.flatnonzero(self._through[: metric_history.rows] < metric_history.number)
        if len(left) and not self.recalled_ms:
            self._walk(metric_history, left, [])

    def reach(self, statistic: Statistic, metric_history: MetricHistory, rows: Longs) -> Floats:
        """Return the least and greatest that a whole-life statistic of each row can be in the
        block.
        """
        out = np.empty((len(rows), 2))
        first, _, values = self._sort_samples(metric_history)
        kind, parameter = choose_statistic(statistic)
        low, step = self.span.low, self.span.step
        life_reach(self.agg, self.bins, low, step, rows, first, values, kind, parameter, out)
        return out * (100.0 if statistic.name in PERCENT else 1.0)

    def _sort_samples(
        self, metric_history: MetricHistory
    ) -> tuple[Longs, Longs, NDArray[np.float32]]:
        block = metric_history.block(self.entity)
        if block is not None:
            return block.first, block.times, metric_history.values(self, block)
        # Nothing came, but what is known still has its statistics.
        none = np.zeros(0, np.int64)
        return np.zeros(metric_history.rows + 1, np.int64), none, np.zeros(0, np.float32)

    def _recall(self, metric_history: MetricHistory, which: Longs) -> None:
        """Take what came since these rows were last asked for, as far as their window reaches."""
        for past in metric_history.recent if self.recalled_ms else ():
            if self.entity not in past.places or self.metric not in past.values:
                continue
            first, times = past.places[self.entity]
            # A row that began later belonged to somebody else then.
            mine = (which < len(first) - 1) & (self._through[which] < past.number)
            mine &= metric_history.row_table.from_ms[which] <= past.until_ms
            marks = np.array([past.until_ms], np.int64)
            self._take(which[mine], (first, times, past.values[self.metric]), marks, [])

    def _walk(self, metric_history: MetricHistory, which: Longs, wanted: list[Asked]) -> Floats:
        self._through[which] = metric_history.number
        return self._take(which, self._sort_samples(metric_history), metric_history.marks, wanted)

    def _take(
        self,
        which: Longs,
        samples: tuple[Longs, Longs, NDArray[np.float32]],
        marks: Longs,
        wanted: list[Asked],
    ) -> Floats:
        out = np.full((len(wanted), len(which), len(marks)), np.nan)
        kinds = np.array([choose_statistic(s)[0] for s, _ in wanted], np.int64)
        parameters = np.array([choose_statistic(s)[1] for s, _ in wanted], np.float64)
        place = (self.span.low, self.span.step, which, *samples, marks)
        if self.windowed:
            windows = np.array([w for _, w in wanted], np.int64)
            window_series(self.agg, self.bins, self.held, *place, windows, kinds, parameters, out)
        else:
            life_series(self.agg, self.bins, *place, kinds, parameters, out)
        return out


class MetricHistory:
    """All tracks, the row table of their rows, and the block of samples that is being judged."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.tracks: dict[tuple[str, bool], MetricTrack] = {}
        for metric, wanted in statistics_of(rules).items():
            for windowed in (False, True):
                mine = [a for a in wanted if (a[1] is not None) == windowed]
                if mine:
                    self.tracks[metric, windowed] = MetricTrack(metric, mine, windowed)
        self.row_table = RowTable()
        self.marks: Longs = np.zeros(0, np.int64)
        # The number of the block at hand, and what is remembered of those before it.
        self.number = 0
        self.recent: list[KeptSamples] = []
        self.first_ms: Longs = np.zeros(0, np.int64)
        self.last_ms: Longs = np.zeros(0, np.int64)
        self.newest_ms = 0
        # From when on each metric has been seen.
        self.since_ms: dict[str, int] = {}
        self._blocks: dict[Entity, SampleBlock] = {}
        self._last: Longs = np.zeros((0, 0), np.int64)
        self._newest: Longs = np.zeros(0, np.int64)
        self._values: dict[str, NDArray[np.float32]] = {}

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.row_table.size

    def block(self, kind: Entity) -> SampleBlock | None:
        """Return the samples at hand of GPUs or hosts."""
        return self._blocks.get(kind)

    def close(self, workloads: Iterable[str]) -> None:
        """Forget workloads."""
        rows = [row for workload in workloads for row in self.row_table.close(workload)]
        self.first_ms[rows] = self.last_ms[rows] = 0
        for track in self.tracks.values():
            track.clear(rows)

    def begin(self, batches: Iterable[SampleBatch], marks: Longs) -> None:
        """Take up the next block: samples up to the last of these marks."""
        self.marks = marks
        self.number += 1
        self._blocks, self._values = {}, {}
        self.first_ms, self.last_ms = (
            grow_rows(self.first_ms, self.rows),
            grow_rows(self.last_ms, self.rows),
        )
        for batch in batches:
            self._blocks[batch.kind] = self._sort_batch(batch)
            for (metric, _), track in self.tracks.items():
                if self._find_column(track) in batch.columns and track.entity is batch.kind:
                    self.since_ms.setdefault(metric, int(batch.time_ms[0]))
        for track in self.tracks.values():
            track.begin(self)
        self._note_first_samples()

    def finish(self) -> None:
        """Drop the block, which has been judged."""
        for track in self.tracks.values():
            track.finish(self)
        if len(self._newest):
            self.newest_ms = int(self._newest[-1])
        self._remember()
        self._blocks, self._values = {}, {}

    def _remember(self) -> None:
        """Keep the block as long as the longest window that is put together on demand."""
        recalled = [track for track in self.tracks.values() if track.recalled_ms]
        if not recalled:
            return
        until_ms = int(self.marks[-1])
        begins_ms = until_ms - max(track.recalled_ms for track in recalled)
        blocks = self._blocks
        places = {kind: (block.first, block.times) for kind, block in blocks.items()}
        values = {
            track.metric: self.values(track, blocks[track.entity])
            for track in recalled
            if track.entity in blocks
        }
        self.recent = [past for past in self.recent if past.until_ms > begins_ms]
        self.recent.append(KeptSamples(self.number, until_ms, places, values))

    def _sort_batch(self, batch: SampleBatch) -> SampleBlock:
        first_row, rows = self.row_table.find_entity_rows(batch.kind, batch.entities)
        time_ms = np.ascontiguousarray(batch.time_ms, np.int64)
        entity = np.ascontiguousarray(batch.entity, np.int32)
        bounds = (self.row_table.from_ms, self.row_table.to_ms)
        first, order = sort_by_row(time_ms, entity, first_row, rows, *bounds, self.rows)
        return SampleBlock(batch, first, order, time_ms[order])

    def _note_first_samples(self) -> None:
        """Note who was last seen when: per mark and row, and over all."""
        names = sorted({self._find_column(track) for track in self.tracks.values()})
        self._newest = np.full(len(self.marks), self.newest_ms, np.int64)
        self._last = np.zeros((self.rows, len(self.marks)), np.int64)
        self._last[:] = self.last_ms[: self.rows, None]
        for kind, block in self._blocks.items():
            seen = block.seen(names)
            times = block.batch.time_ms[seen]
            # Before the first of them nothing new is known.
            count = np.searchsorted(times, self.marks, side="right")
            known = count > 0
            at = times[np.maximum(count - 1, 0)] if len(times) else self._newest
            self._newest = np.where(known, np.maximum(self._newest, at), self._newest)
            if kind is Entity.GPU:
                last_seen(
                    block.first, block.times, seen[block.order], self.marks,
                    self.first_ms, self.last_ms, self._last,
                )  # fmt: skip

    def values(self, track: MetricTrack, block: SampleBlock) -> NDArray[np.float32]:
        """Return a track's samples in the order of rows; a derived metric is made from its base."""
        if track.metric not in self._values:
            self._values[track.metric] = self._compute_values(track, block)
        return self._values[track.metric]

    def _compute_values(self, track: MetricTrack, block: SampleBlock) -> NDArray[np.float32]:
        name = self._find_column(track)
        if name not in block.batch.columns:
            return np.full(len(block.order), np.nan, np.float32)
        values = block.values(name)
        if track.derived is None:
            return values
        whole = self.row_table.whole(track.derived.per)
        each = np.repeat(whole, np.diff(block.first))
        return np.asarray(100.0 * values / each, np.float32)

    @staticmethod
    def _find_column(track: MetricTrack) -> str:
        return track.derived.base if track.derived else track.metric

    # -- over the block, and at one mark
    def reach(self, metric: str, statistic: Statistic, rows: Longs) -> tuple[Floats, Floats]:
        """Return the least and greatest that a whole-life statistic can be anywhere in
        the block.
        """
        bounds = self.tracks[metric, False].reach(statistic, self, rows)
        return bounds[:, 0], bounds[:, 1]

    def statistic(self, metric: str, wanted: Asked, mark: int, rows: Longs) -> Floats | None:
        """Return the number at one mark, of these rows for certain; None: not asked for."""
        track = self.tracks.get((metric, wanted[1] is not None))
        return None if track is None else track.series(wanted, self, rows)[mark]

    def seen(self, mark: int, rows: Longs) -> tuple[Longs, Longs, int]:
        """Return time of each row's first and last sample by a mark (0: none), and the newest of
        all.
        """
        first = self.first_ms[rows]
        known = np.where(first <= self.marks[mark], first, 0)
        return known, self._last[rows, mark], int(self._newest[mark])

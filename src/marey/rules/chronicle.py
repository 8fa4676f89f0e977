"""The past as series: every statistic that rules ask for, at every moment at which verdicts fall.

Live, a verdict reads sketches that have just been updated. A back-test has all samples of a span at
hand, so it walks GPU by GPU through them: the sketch stays in the processor's cache, and the same
formulas give the same numbers at a fraction of the cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marey.model.metrics import Entity, catalogue
from marey.model.samples import SampleBatch
from marey.rules.definition import Rule
from marey.rules.expressions import Group, Peers, Series, Statistic, conditions
from marey.rules.measuring import PERCENT, asked, needs_bins
from marey.rules.tenants import Seat
from marey.stats.sketch import BINS, FIELDS
from marey.stats.sketch_series import last_seen, life_series, sorted_by_row, window_series
from marey.stats.sketch_tables import Span, room_for, slots_of

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
# A statistic over a trailing window, or over the whole life (None).
Asked = tuple[Statistic, int | None]


def statistics_of(rules: Iterable[Rule]) -> dict[str, set[Asked]]:
    """Per metric, every statistic that verdicts may read, *now* included."""
    needed: dict[str, set[Asked]] = {}
    for rule in rules:
        for _, clause in rule.variants():
            for condition in conditions(clause.expression):
                left, right = condition.left, condition.right
                if isinstance(left, Series):
                    mine = needed.setdefault(left.metric, set())
                    mine |= {(left.statistic, left.window_ms)}
                    mine |= {(left.statistic, left.window_ms or rule.now_ms)}
                    if isinstance(right, Peers) and right.over.group is Group.LIFE:
                        mine |= {(left.statistic, None)}
    return needed


@dataclass(frozen=True)
class Block:
    """Samples of one kind of entity between two verdicts far apart, sorted by row."""

    batch: SampleBatch
    first: Longs
    order: NDArray[np.int32]
    times: Longs

    def values(self, name: str) -> NDArray[np.float32]:
        """One stored column in the order of the rows."""
        return np.ascontiguousarray(self.batch.columns[name][self.order], np.float32)

    def seen(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Which samples have any value at all."""
        empty = [np.isnan(self.batch.columns[n]) for n in names if n in self.batch.columns]
        if not empty:
            return np.zeros(len(self.batch), bool)
        return np.asarray(~np.logical_and.reduce(empty), bool)


class Track:
    """One metric's sketches, whole-life or windowed, and its series over the block at hand."""

    def __init__(self, metric: str, wanted: list[Asked], windowed: bool) -> None:
        known = catalogue()[metric]
        self.metric, self.entity, self.derived = metric, known.entity, known.derived
        self.span = Span(known.minimum, known.maximum)
        self.windowed = windowed
        self.wanted = sorted(wanted, key=lambda asked: (asked[1] or 0, str(asked[0])))
        binned = any(needs_bins(statistic) for statistic, _ in wanted)
        shape = (slots_of(max(w or 0 for _, w in wanted)),) if windowed else ()
        self.agg = np.zeros((0, *shape, FIELDS))
        # A slot of five minutes takes 218 samples a second before 16 bits are too few.
        bins = (*shape, BINS) if binned else ((0, BINS) if windowed else (0,))
        self.bins = np.zeros((0, *bins), np.uint16 if windowed else np.uint32)
        self.held = np.zeros((0, *shape), np.int64)
        self._series: dict[Asked, Floats] = {}
        # Rows whose samples of the block have not been taken yet.
        self._left = np.zeros(0, bool)

    def reserve(self, rows: int) -> None:
        """Make room for rows."""
        more = room_for(rows, len(self.agg)) - len(self.agg)
        if more > 0:
            self.agg, self.bins, self.held = (
                np.concatenate([a, np.full((more, *a.shape[1:]), empty, a.dtype)])
                for a, empty in ((self.agg, 0), (self.bins, 0), (self.held, -1))
            )

    def clear(self, row: int) -> None:
        """Forget a row."""
        self.agg[row], self.bins[row] = 0, 0
        if self.windowed:
            self.held[row] = -1

    def begin(self, chronicle: Chronicle) -> None:
        """Another block is at hand."""
        self._series, self._left = {}, np.ones(chronicle.rows, bool)

    def series(self, wanted: Asked, chronicle: Chronicle, rows: Longs | None) -> Floats:
        """A statistic per mark and row, at least of these rows (None: of all)."""
        if not self._series:
            shape = (len(chronicle.marks), chronicle.rows)
            self._series = {asked: np.full(shape, np.nan) for asked in self.wanted}
        left = self._left if rows is None else self._left[rows]
        if left.any():
            which = np.flatnonzero(self._left) if rows is None else np.unique(rows[left])
            out = self._walk(chronicle, which, self.wanted)
            for number, (statistic, window) in enumerate(self.wanted):
                scale = 100.0 if statistic.name in PERCENT else 1.0
                self._series[statistic, window][:, which] = out[number].T * scale
        return self._series[wanted]

    def finish(self, chronicle: Chronicle) -> None:
        """Take the block's samples where nobody asked for a number."""
        if self._left.any():
            self._walk(chronicle, np.flatnonzero(self._left), [])

    def _walk(self, chronicle: Chronicle, which: Longs, wanted: list[Asked]) -> Floats:
        self._left[which] = False
        self.reserve(chronicle.rows)
        block, marks = chronicle.block(self.entity), chronicle.marks
        out = np.full((len(wanted), len(which), len(marks)), np.nan)
        kinds = np.array([asked(s)[0] for s, _ in wanted], np.int64)
        parameters = np.array([asked(s)[1] for s, _ in wanted], np.float64)
        if block is None:
            # Nothing came, but what is known still has its statistics.
            first, times = np.zeros(chronicle.rows + 1, np.int64), np.zeros(0, np.int64)
            values = np.zeros(0, np.float32)
        else:
            first, times, values = block.first, block.times, chronicle.values(self, block)
        place = (self.span.low, self.span.step, which, first, times, values, marks)
        if self.windowed:
            windows = np.array([w for _, w in wanted], np.int64)
            window_series(self.agg, self.bins, self.held, *place, windows, kinds, parameters, out)
        else:
            life_series(self.agg, self.bins, *place, kinds, parameters, out)
        return out


@dataclass
class Ledger:
    """Rows of the chronicle: one per workload and GPU, taken when it begins, given back after."""

    by_gpu: dict[str, list[int]] = field(default_factory=dict)
    by_host: dict[str, list[int]] = field(default_factory=dict)
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    seats: list[Seat | None] = field(default_factory=list)
    from_ms: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    to_ms: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    free: list[int] = field(default_factory=list)

    def open(self, workload: str, seats: Iterable[Seat], from_ms: int, to_ms: int) -> None:
        """Rows for a workload, valid within these bounds."""
        mine = self.rows.setdefault(workload, {})
        for seat in seats:
            begin, end = max(seat.from_ms, from_ms), min(seat.to_ms, to_ms)
            row = mine.get(seat.gpu)
            if row is not None:
                # The same GPU again: one row from the first to the last.
                self.from_ms[row] = min(begin, self.from_ms[row])
                self.to_ms[row] = end
                self.seats[row] = seat
                continue
            row = self.free.pop() if self.free else self._append()
            mine[seat.gpu] = row
            self.seats[row] = seat
            self.from_ms[row], self.to_ms[row] = begin, end
            self.by_gpu.setdefault(seat.gpu, []).append(row)
            self.by_host.setdefault(seat.host, []).append(row)

    def _append(self) -> int:
        self.seats.append(None)
        room = room_for(len(self.seats), len(self.from_ms))
        if room > len(self.from_ms):
            more = np.zeros(room - len(self.from_ms), np.int64)
            self.from_ms, self.to_ms = np.append(self.from_ms, more), np.append(self.to_ms, more)
        return len(self.seats) - 1

    def close(self, workload: str) -> list[int]:
        """Give a workload's rows back."""
        gone = self.rows.pop(workload, {})
        for gpu, row in gone.items():
            seat = self.seats[row]
            self.by_gpu[gpu].remove(row)
            if seat is not None:
                self.by_host[seat.host].remove(row)
            self.seats[row] = None
            self.to_ms[row] = 0
        self.free.extend(gone.values())
        return list(gone.values())


class Chronicle:
    """All tracks, the ledger of their rows, and the block of samples that is being judged."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.tracks: dict[tuple[str, bool], Track] = {}
        for metric, wanted in statistics_of(rules).items():
            for windowed in (False, True):
                mine = [a for a in wanted if (a[1] is not None) == windowed]
                if mine:
                    self.tracks[metric, windowed] = Track(metric, mine, windowed)
        self.ledger = Ledger()
        self.marks: Longs = np.zeros(0, np.int64)
        self.first_ms: Longs = np.zeros(0, np.int64)
        self.last_ms: Longs = np.zeros(0, np.int64)
        self.newest_ms = 0
        # From when on each metric has been seen.
        self.since_ms: dict[str, int] = {}
        self._blocks: dict[Entity, Block] = {}
        self._last: Longs = np.zeros((0, 0), np.int64)
        self._newest: Longs = np.zeros(0, np.int64)
        self._values: dict[str, NDArray[np.float32]] = {}

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.ledger.seats)

    def block(self, kind: Entity) -> Block | None:
        """The samples at hand of GPUs or hosts."""
        return self._blocks.get(kind)

    def close(self, workload: str) -> None:
        """Forget a workload."""
        for row in self.ledger.close(workload):
            self.first_ms[row] = self.last_ms[row] = 0
            for track in self.tracks.values():
                if row < len(track.agg):
                    track.clear(row)

    def begin(self, batches: Iterable[SampleBatch], marks: Longs) -> None:
        """Take up the next block: samples up to the last of these marks."""
        self.marks = marks
        self._blocks, self._values = {}, {}
        more = room_for(self.rows, len(self.first_ms)) - len(self.first_ms)
        if more > 0:
            empty = np.zeros(more, np.int64)
            self.first_ms = np.append(self.first_ms, empty)
            self.last_ms = np.append(self.last_ms, empty)
        for batch in batches:
            self._blocks[batch.kind] = self._sorted(batch)
            for (metric, _), track in self.tracks.items():
                if self._column(track) in batch.columns and track.entity is batch.kind:
                    self.since_ms.setdefault(metric, int(batch.time_ms[0]))
        for track in self.tracks.values():
            track.begin(self)
        self._sight()

    def finish(self) -> None:
        """The block has been judged."""
        for track in self.tracks.values():
            track.finish(self)
        if len(self._newest):
            self.newest_ms = int(self._newest[-1])
        self._blocks, self._values = {}, {}

    def _sorted(self, batch: SampleBatch) -> Block:
        book = self.ledger.by_host if batch.kind is Entity.HOST else self.ledger.by_gpu
        found = [book.get(name, ()) for name in batch.entities]
        first_row = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(rows) for rows in found], out=first_row[1:])
        rows = np.fromiter((r for rows in found for r in rows), np.int64, int(first_row[-1]))
        time_ms = np.ascontiguousarray(batch.time_ms, np.int64)
        entity = np.ascontiguousarray(batch.entity, np.int32)
        bounds = (self.ledger.from_ms, self.ledger.to_ms)
        first, order = sorted_by_row(time_ms, entity, first_row, rows, *bounds, self.rows)
        return Block(batch, first, order, time_ms[order])

    def _sight(self) -> None:
        """Who was last seen when: per mark and row, and over all."""
        names = sorted({self._column(track) for track in self.tracks.values()})
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

    def values(self, track: Track, block: Block) -> NDArray[np.float32]:
        """A track's samples in the order of rows; a derived metric is made from its base."""
        if track.metric not in self._values:
            self._values[track.metric] = self._made(track, block)
        return self._values[track.metric]

    def _made(self, track: Track, block: Block) -> NDArray[np.float32]:
        name = self._column(track)
        if name not in block.batch.columns:
            return np.full(len(block.order), np.nan, np.float32)
        values = block.values(name)
        if track.derived is None:
            return values
        per = track.derived.per
        whole = np.array([getattr(seat, per, None) or np.nan for seat in self.ledger.seats])
        each = np.repeat(whole, np.diff(block.first))
        return np.asarray(100.0 * values / each, np.float32)

    @staticmethod
    def _column(track: Track) -> str:
        return track.derived.base if track.derived else track.metric

    # -- at one mark
    def statistic(
        self, metric: str, wanted: Asked, mark: int, rows: Longs | None = None
    ) -> Floats | None:
        """The number at one mark of every row, or only of some for certain; None: not asked for."""
        track = self.tracks.get((metric, wanted[1] is not None))
        return None if track is None else track.series(wanted, self, rows)[mark]

    def seen(self, mark: int) -> tuple[Longs, Longs, int]:
        """Time of each row's first and last sample by a mark (0: none), and the newest of all."""
        time_ms = self.marks[mark]
        first = self.first_ms[: self.rows]
        return np.where(first <= time_ms, first, 0), self._last[:, mark], int(self._newest[mark])

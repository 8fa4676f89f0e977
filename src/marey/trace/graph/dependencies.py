"""The dependency graph of a traced run: compute between communications, and who waits for what.

A trace does not write its dependencies down; they are read off the times. A piece of compute
follows the piece before it, and a communication whose end it was waiting for. A communication
follows the compute before it and the communication before it on its stream. What is left between a
node and its predecessors is a delay, and belongs to input, to the host, to a late start or to none
of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EventKind
from marey.stats.intervals import cover
from marey.trace.graph.cost_graph import (
    Blocks,
    Delay,
    Floats,
    GraphBuilder,
    NodeKind,
    OperationGraph,
)
from marey.trace.rank.activity import PHASE_NAMES, Flags, Ints, RankActivity, host_delay
from marey.trace.rank.idle import LAUNCH_LATENCY_NS
from marey.trace.ranks.clocks import aligned
from marey.trace.ranks.communications import Pool
from marey.trace.results import Clocks

# Compute that resumes this soon after a communication ended was waiting for it.
WAKE_NS = 50_000
# A run of compute shorter than this share of the usual micro-batch is not one.
SMALLEST_BLOCK = 0.2


@dataclass(frozen=True)
class _Rank:
    """One rank on the run's clock, with the nodes that stand for its rows."""

    activity: RankActivity
    pool_rows: Ints
    segment_start: Ints
    segment_end: Ints
    start: Ints
    end: Ints


def dependency_graph(
    activities: Sequence[RankActivity],
    *,
    pool: Pool,
    item: Ints,
    clocks: Clocks,
    symbols: Symbols,
) -> OperationGraph:
    """Return the graph of a run, which with its recorded costs reproduces the recorded times."""
    builder = GraphBuilder()
    cuts = np.concatenate([[0], np.cumsum([len(a.communications) for a in activities])])
    ranks = [
        _on_run_clock(a, np.arange(cuts[i], cuts[i + 1]), clocks) for i, a in enumerate(activities)
    ]
    origin = min((int(r.segment_start[0]) for r in ranks if len(r.segment_start)), default=0)
    origin = min([origin or 2**62, *(int(r.start.min()) for r in ranks if len(r.start))])
    blocks = _Blocks(activities, pool, item, symbols)
    last = _last_arrivals(ranks, item)
    arrivals = np.full(len(pool), -1, np.int64)
    finals = np.full(len(pool), -1, np.int64)
    for number, rank in enumerate(ranks):
        _add_rank(
            builder,
            rank=rank,
            item=item,
            last=last,
            blocks=blocks,
            number=number,
            origin=origin,
            arrivals=arrivals,
            finals=finals,
        )
    _add_meetings(
        builder, pool=pool, item=item, last=last, arrivals=arrivals, finals=finals, ranks=ranks
    )
    return builder.build(blocks.columns(), chained=True)


def _on_run_clock(activity: RankActivity, rows: Ints, clocks: Clocks) -> _Rank:
    def on(times: Ints) -> Ints:
        return aligned(clocks, activity.rank, times)

    segments, talks = activity.segments, activity.communications
    return _Rank(
        activity=activity,
        pool_rows=rows,
        segment_start=on(segments.start_ns),
        segment_end=on(segments.end_ns),
        start=on(talks.start_ns),
        # One that was recorded without a duration would wait for itself.
        end=np.maximum(on(talks.end_ns), on(talks.start_ns) + 1),
    )


def _last_arrivals(ranks: list[_Rank], item: Ints) -> Ints:
    last = np.full(int(item.max(initial=-1)) + 2, np.iinfo(np.int64).min)
    for rank in ranks:
        np.maximum.at(last, item[rank.pool_rows], rank.start)
    return last


def _add_rank(
    builder: GraphBuilder,
    *,
    rank: _Rank,
    item: Ints,
    last: Ints,
    blocks: _Blocks,
    number: int,
    origin: int,
    arrivals: Ints,
    finals: Ints,
) -> None:
    ready_segment, wake = _segment_ready(rank, origin)
    before_talk = _talk_ready(rank, origin)
    segments, talks = rank.activity.segments, rank.activity.communications
    rows = rank.pool_rows
    compute = builder.add(
        NodeKind.COMPUTE,
        rank=np.full(len(segments), rank.activity.rank),
        step=segments.step,
        start_ns=rank.segment_start,
        work_ns=_busy(rank).astype(np.float64),
        delay_ns=_segment_delays(rank, ready_segment),
        block=blocks.of_segments[number],
    )
    start = builder.add(
        NodeKind.ARRIVAL,
        rank=np.full(len(talks), rank.activity.rank),
        step=talks.step,
        start_ns=rank.start,
        delay_ns=_delays(rank, before_talk.ready, rank.start),
        item=item[rows],
    )
    waits = (item[rows] >= 0) & (rank.end > last[item[rows]])
    begun = np.where(waits, last[item[rows]], rank.start)
    final = builder.add(
        NodeKind.TRANSFER,
        rank=np.full(len(talks), rank.activity.rank),
        step=talks.step,
        start_ns=begun,
        work_ns=(rank.end - begun).astype(np.float64),
        block=blocks.of_talks[rows],
        item=item[rows],
    )
    arrivals[rows], finals[rows] = start, final
    builder.join(compute[:-1], compute[1:])
    builder.join(_pick(final, wake), compute)
    builder.join(_pick(compute, before_talk.segment), start)
    builder.join(_pick(final, before_talk.same_stream), start)
    builder.join(_pick(final, before_talk.latest), start)
    builder.join(start[~waits], final[~waits])


def _pick(nodes: Ints, index: Ints) -> Ints:
    return np.append(nodes, -1)[index]


def _segment_ready(rank: _Rank, origin: int) -> tuple[Ints, Ints]:
    """Return when each segment's predecessors were done, and the communication it woke up from
    (-1).
    """
    previous = np.append(origin, rank.segment_end[:-1])[: len(rank.segment_end)]
    by_end = np.argsort(rank.end, kind="stable")
    at = np.searchsorted(rank.end[by_end], rank.segment_start, side="right") - 1
    latest = np.where(at >= 0, np.append(by_end, -1)[at], -1)
    ended = np.where(latest >= 0, np.append(rank.end, origin)[latest], origin)
    gap, since = rank.segment_start - previous, rank.segment_start - ended
    woke = (latest >= 0) & (ended > previous) & (since <= np.maximum(WAKE_NS, gap // 2))
    return np.where(woke, ended, previous), np.where(woke, latest, -1)


@dataclass(frozen=True)
class _Before:
    """What a communication may have waited for: indices into the rank's rows, or -1."""

    segment: Ints
    same_stream: Ints
    latest: Ints
    ready: Ints


def _talk_ready(rank: _Rank, origin: int) -> _Before:
    talks = rank.activity.communications
    count = len(talks)
    segment = np.searchsorted(rank.segment_end, rank.start, side="right") - 1
    segment_end = np.append(rank.segment_end, origin)[segment]
    same = _previous_on_stream(talks.stream, rank.start, rank.end)
    same_end = np.append(rank.end, origin)[same]
    by_end = np.argsort(rank.end, kind="stable")
    at = np.searchsorted(rank.end[by_end], rank.start, side="right") - 1
    latest = np.where(at >= 0, np.append(by_end, -1)[at], -1)
    latest_end = np.append(rank.end, origin)[latest]
    latest = np.where(latest_end > segment_end, latest, -1)
    # Back to back on its stream: it was queued there, whatever compute did meanwhile.
    queued = (same >= 0) & (rank.start - same_end <= LAUNCH_LATENCY_NS)
    segment = np.where(queued, -1, segment)
    latest = np.where(queued, -1, latest)
    ready = np.full(count, origin)
    for index, ends in ((segment, rank.segment_end), (same, rank.end), (latest, rank.end)):
        ready = np.maximum(ready, np.append(ends, origin)[index])
    return _Before(segment, same, latest, ready)


def _previous_on_stream(stream: Ints, start: Ints, end: Ints) -> Ints:
    """Return the communication before each one on its stream, if it ended before this one began."""
    order = np.lexsort((start, stream))
    previous = np.full(len(stream), -1, np.int64)
    follows = stream[order][1:] == stream[order][:-1]
    previous[order[1:][follows]] = order[:-1][follows]
    ended = np.append(end, np.iinfo(np.int64).min)[previous] <= start
    return np.where(ended, previous, -1)


def _segment_delays(rank: _Rank, ready: Ints) -> Floats:
    segments = rank.activity.segments
    delays = _delays(rank, ready, rank.segment_start)
    inner = rank.segment_end - rank.segment_start - _busy(rank)
    starved = np.minimum(
        cover(host_delay(rank.activity), segments.start_ns, segments.end_ns), inner
    )
    delays[:, Delay.HOST] += starved
    delays[:, Delay.OTHER] += inner - starved
    return delays


def _busy(rank: _Rank) -> Ints:
    """Return busy time of each segment.

    A clock that ran fast may have counted more than there was.
    """
    whole = rank.segment_end - rank.segment_start
    busy: Ints = np.minimum(rank.activity.segments.busy_ns, whole)
    return busy


def _delays(rank: _Rank, ready: Ints, start: Ints) -> Floats:
    """Return the time from ready to start, by what the idle device waited for."""
    activity = rank.activity
    idle = activity.idle
    delays = np.zeros((len(start), len(Delay)))
    gap = np.maximum(start - ready, 0)
    # Idle intervals are on the rank's own clock, and so must the gap be.
    shift = _shift(rank, start)
    lo, hi = ready - shift, start - shift
    # Profilers do not start together: what lies before the first step is nobody's fault.
    first = activity.steps[0, 1] if len(activity.steps) else np.iinfo(np.int64).min
    seen = np.clip(lo, first, np.maximum(hi, first))
    left = gap
    for delay, part, since in (
        (Delay.INPUT, idle.input, lo),
        (Delay.START, idle.start, lo),
        (Delay.HOST, host_delay(activity), seen),
    ):
        delays[:, delay] = np.minimum(cover(part, since, hi), left)
        left = left - delays[:, delay].astype(np.int64)
    delays[:, Delay.OTHER] = left
    return delays


def _shift(rank: _Rank, start: Ints) -> Ints:
    """Run clock minus own clock at each start."""
    own = np.concatenate([rank.activity.segments.start_ns, rank.activity.communications.start_ns])
    run = np.concatenate([rank.segment_start, rank.start])
    order = np.argsort(run, kind="stable")
    at = np.clip(np.searchsorted(run[order], start), 0, max(len(run) - 1, 0))
    return (run - own)[order][at] if len(run) else np.zeros(len(start), np.int64)


def _add_meetings(
    builder: GraphBuilder,
    *,
    pool: Pool,
    item: Ints,
    last: Ints,
    arrivals: Ints,
    finals: Ints,
    ranks: list[_Rank],
) -> None:
    joined = np.flatnonzero(item >= 0)
    count = len(last) - 1
    step = np.zeros(count, np.int64)
    step[item[joined]] = pool.step[joined]
    meetings = builder.add(
        NodeKind.MEETING,
        rank=np.full(count, -1),
        step=step,
        start_ns=last[:count],
        item=np.arange(count),
    )
    end = np.concatenate([rank.end for rank in ranks]) if ranks else np.zeros(0, np.int64)
    waits = joined[end[joined] > last[item[joined]]]
    builder.join(arrivals[joined], meetings[item[joined]])
    builder.join(meetings[item[waits]], finals[waits])


class _Blocks:
    """What is compared with what: phases of compute by micro-batch, transfers by kind and size."""

    def __init__(
        self, activities: Sequence[RankActivity], pool: Pool, item: Ints, symbols: Symbols
    ) -> None:
        numbered = [self._runs(a) for a in activities]
        if not _same_shape(activities, numbered):
            numbered = [np.zeros(len(a.segments), np.int64) for a in activities]
        rank = _join([np.full(len(a.segments), a.rank) for a in activities])
        step = _join([a.segments.step for a in activities])
        phase = _join([a.segments.phase for a in activities])
        batch = _join(numbered)
        keys = np.stack([rank, step, phase, batch])
        blocks, place = np.unique(keys, axis=1, return_inverse=True)
        place = place.reshape(-1)
        cuts = np.cumsum([len(a.segments) for a in activities])[:-1]
        self.of_segments = np.split(place, cuts) if len(activities) else []
        self.of_talks = blocks.shape[1] + np.arange(len(pool))
        types, names = _transfer_types(pool, item, symbols)
        self._type = np.concatenate([blocks[2], len(PHASE_NAMES) + types])
        self._rank = np.concatenate([blocks[0], pool.rank])
        self._step = np.concatenate([blocks[1], pool.step])
        self._batch = np.concatenate([blocks[3], np.full(len(pool), -1)])
        self._names = tuple(f"{name}-compute" for name in PHASE_NAMES) + names

    @staticmethod
    def _runs(activity: RankActivity) -> Ints:
        """Return the micro-batch of each segment: one per run of a phase, cut by exchanges."""
        segments, talks = activity.segments, activity.communications
        if not len(segments):
            return np.zeros(0, np.int64)
        sends = talks.start_ns[talks.kind == EventKind.SEND]
        receives = talks.end_ns[talks.kind == EventKind.RECV]
        marks = np.sort(np.concatenate([sends, receives]))
        between = np.searchsorted(marks, segments.start_ns, side="right")
        changed = np.append(True, np.diff(segments.phase) != 0)
        changed |= np.append(True, np.diff(segments.step) != 0)
        changed |= np.append(False, np.diff(between) != 0)
        changed = _drop_small_cuts(changed, segments.busy_ns, segments.step, segments.phase)
        key = np.stack([segments.step, segments.phase, np.cumsum(changed)])
        runs, place = np.unique(key, axis=1, return_inverse=True)
        fresh = np.append(True, (np.diff(runs[:2], axis=1) != 0).any(axis=0))
        index = np.arange(runs.shape[1])
        first = np.maximum.accumulate(np.where(fresh, index, 0))
        numbers: Ints = (index - first)[place.reshape(-1)]
        return numbers

    def columns(self) -> Blocks:
        """Return the blocks as the graph wants them."""
        return Blocks(
            type=self._type,
            rank=self._rank,
            step=self._step,
            micro_batch=self._batch,
            type_names=self._names,
            by_median=np.arange(len(self._names)) >= len(PHASE_NAMES),
        )


def _drop_small_cuts(changed: Flags, busy: Ints, step: Ints, phase: Ints) -> Flags:
    """Return the cuts, less those that would make a micro-batch of a copy or a stray kernel."""
    run = np.cumsum(changed) - 1
    first = np.flatnonzero(changed)
    total = np.bincount(run, weights=busy)
    small = np.zeros(len(first), bool)
    for one in np.unique(phase):
        of_phase = phase[first] == one
        small |= of_phase & (total < SMALLEST_BLOCK * np.median(total[of_phase]))
    follows = np.append(
        (step[first][1:] == step[first][:-1]) & (phase[first][1:] == phase[first][:-1]), False
    )
    kept = changed.copy()
    into_next = np.flatnonzero(small & follows)
    kept[first[into_next + 1]] = False
    into_previous = np.flatnonzero(small & ~follows)
    into_previous = into_previous[into_previous > 0]
    into_previous = into_previous[follows[into_previous - 1]]
    kept[first[into_previous]] = False
    return kept


def _join(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _same_shape(activities: Sequence[RankActivity], numbered: list[Ints]) -> bool:
    """Return whether every rank has the same number of micro-batches in every step and phase."""
    counts: set[tuple[int, int]] = set()
    for activity, numbers in zip(activities, numbered, strict=True):
        segments = activity.segments
        for phase in (0, 1):
            mine = segments.phase == phase
            steps, place = np.unique(segments.step[mine], return_inverse=True)
            most = np.zeros(len(steps), np.int64)
            np.maximum.at(most, place, numbers[mine])
            counts |= {(phase, int(n)) for n in np.unique(most)}
    return len(counts) <= 2


def _transfer_types(pool: Pool, item: Ints, symbols: Symbols) -> tuple[Ints, tuple[str, ...]]:
    """Group transfers of one collective, size and number of members into one type."""
    if not len(pool):
        return np.zeros(0, np.int64), ()
    size = np.bincount(item[item >= 0], minlength=1)
    members = np.where(item >= 0, np.append(size, 0)[item], 0)
    exchange: Flags = pool.is_exchange
    collective = np.where(exchange, -2, pool.collective)
    key = np.stack([collective, pool.bytes, members])
    types, place = np.unique(key, axis=1, return_inverse=True)
    names = tuple(
        "send_recv" if code == -2 else (symbols.text(code) or "communication")
        for code in types[0].tolist()
    )
    return place.reshape(-1), names

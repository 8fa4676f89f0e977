"""Fit the links of a run to its own communications: bandwidth, latency, how many at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.model.errors import InvalidInput
from marey.replay.recording.link_costs import (
    MESSAGES,
    POINT_TO_POINT,
    SLOW_LINK,
    CollectiveCost,
    Floats,
    Links,
    get_ring_share,
)
from marey.replay.timeline import Message, RankStep

# A transfer this many times as long as the shortest is ruled by its bytes, not by its latency.
RULED_BY_BYTES = 4.0
# A transfer that takes this many times what its bytes should is ruled by its latency.
ABOVE_LINE = 1.5
# Some pairs are faster than usual for what buffers on their way take; not by this much.
VERY_SLOW_LINK = 0.45


def fit_links(timelines: Mapping[int, Sequence[RankStep]]) -> Links:
    """Fit the links from the inner steps; refuses a run that never communicates."""
    ranks = tuple(sorted(timelines))
    matched = match_collectives(timelines)
    delay = _start_delay(timelines)
    collectives = {
        kind: replace(_fit_collective(runs), start_ms=delay)
        for kind, runs in matched.items()
        if runs
    }
    messages = _point_to_point(timelines)
    if not collectives and not messages:
        raise InvalidInput("No communication between ranks is in the trace: nothing to replay.")
    at_once = _at_once(timelines)
    if messages:
        up, down, latency = _fit_messages(messages, ranks)
        return Links(
            ranks=ranks,
            up=up,
            down=down,
            collectives=collectives,
            message_latency_ms=latency,
            at_once=at_once,
            measured_on=MESSAGES,
            reference=min(*up, *down),
        )
    kind, cost = max(collectives.items(), key=lambda item: item[1].largest)
    bandwidth = get_ring_share(kind, len(ranks)) / cost.per_byte_ms
    speeds = tuple(bandwidth for _ in ranks)
    latency = max(cost.latency_ms, 0.0)
    return Links(
        ranks=ranks,
        up=speeds,
        down=speeds,
        collectives=collectives,
        message_latency_ms=latency,
        at_once=at_once,
        measured_on=kind,
        reference=bandwidth,
    )


@dataclass(frozen=True)
class Collective:
    """One collective matched over all ranks: its bytes, and when the last rank saw it run."""

    size: int
    alone_ms: float
    # On the clock of the first rank.
    start_ms: float
    end_ms: float
    step: int


def match_collectives(
    timelines: Mapping[int, Sequence[RankStep]],
) -> dict[str, list[Collective]]:
    """Return each kind's collectives; the n-th of a step on one rank is the n-th on all.

    Nothing is compared between the clocks of two ranks, only durations.
    """
    found: dict[str, list[Collective]] = defaultdict(list)
    rows = {
        rank: [[m for m in s.messages if m.collective not in POINT_TO_POINT] for s in steps]
        for rank, steps in timelines.items()
    }
    shapes = [tuple(m.collective for m in step) for steps in rows.values() for step in steps]
    usual = max(set(shapes), key=shapes.count) if shapes else ()
    kept = {
        rank: [s for s in steps if tuple(m.collective for m in s) == usual]
        for rank, steps in rows.items()
    }
    if not usual or not all(kept.values()):
        return found
    reference = kept[min(kept)]
    for place, kind in enumerate(usual):
        # The rank that arrives last shows the transfer alone. Over the typical, not the shortest,
        # duration of each rank: what ranks lose by arriving unevenly belongs to every meeting.
        alone = min(
            float(np.median([s[place].end_ms - s[place].start_ms for s in steps]))
            for steps in kept.values()
        )
        for number, step in enumerate(reference):
            size, end = step[place].size, step[place].end_ms
            found[kind].append(Collective(size, alone, end - alone, end, number))
    return found


def _fit_collective(runs: Sequence[Collective]) -> CollectiveCost:
    """Fit time against bytes: over isolated runs of several sizes, else over busy periods."""
    alone = [r for r in runs if not _is_overlapped(r, runs)]
    sizes = np.array([r.size for r in runs])
    spread = {r.size for r in alone}
    if len(spread) >= 3 and max(spread) >= 2 * min(spread):
        slope, latency, scatter = _fit_sizes(alone)
    else:
        slope, latency, scatter = _fit_periods(runs)
    # Those that take far longer than their bytes do show the least time of any.
    light = [r.alone_ms for r in alone if r.alone_ms > ABOVE_LINE * (slope * r.size + latency)]
    least = float(np.median(light)) if light else 0.0
    return CollectiveCost(
        per_byte_ms=slope,
        latency_ms=latency,
        least_ms=least,
        largest=int(sizes.max()),
        smallest=int(sizes.min()),
        scatter=scatter,
    )


def _is_overlapped(run: Collective, runs: Sequence[Collective]) -> bool:
    return any(
        other is not run
        and other.step == run.step
        and other.start_ms < run.end_ms
        and run.start_ms < other.end_ms
        for other in runs
    )


def _fit_sizes(runs: Sequence[Collective]) -> tuple[float, float, float]:
    """Fit a line through the median time of every size that its bytes rule."""
    by_size: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        by_size[run.size].append(run.alone_ms)
    points = sorted((size, float(np.median(times))) for size, times in by_size.items())
    floor = min(time for _, time in points)
    ruled = [(s, t) for s, t in points if t >= RULED_BY_BYTES * floor] or points
    if len(ruled) < 2:
        size, time = ruled[-1]
        smallest = points[0]
        if smallest[0] == size:
            return time / size, 0.0, 0.05
        ruled = [smallest, ruled[-1]]
    sizes, times = np.array([s for s, _ in ruled], float), np.array([t for _, t in ruled])
    slope, latency = np.polyfit(sizes, times, 1, w=np.sqrt(sizes))
    if slope <= 0:
        slope, latency = float(times.sum() / sizes.sum()), 0.0
    rest = (times - latency - slope * sizes) / times
    return float(slope), float(latency), float(np.sqrt(np.mean(rest**2)))


def _fit_periods(runs: Sequence[Collective]) -> tuple[float, float, float]:
    """Return bytes per busy time, where transfers that overlap share the link."""
    busy, moved = [], []
    for step in sorted({r.step for r in runs}):
        own = sorted((r for r in runs if r.step == step), key=lambda r: r.start_ms)
        reached = -np.inf
        for run in own:
            if run.start_ms > reached:
                busy.append(0.0)
                moved.append(0.0)
                reached = run.start_ms
            busy[-1] += max(run.end_ms - reached, 0.0)
            moved[-1] += run.size
            reached = max(reached, run.end_ms)
    time, size = np.array(busy), np.array(moved)
    slope = float(time.sum() / max(size.sum(), 1.0))
    scatter = float(np.std(time / np.maximum(slope * size, 1e-9)))
    return slope, 0.0, scatter


def _start_delay(timelines: Mapping[int, Sequence[RankStep]]) -> float:
    """Return the usual time from posting a collective to its beginning, where none is under way."""
    delays = []
    for steps in timelines.values():
        for step in steps:
            posted = [m for m in step.messages if m.collective not in POINT_TO_POINT]
            reached = -np.inf
            for m in sorted(posted, key=lambda m: m.posted_ms):
                if m.posted_ms >= reached:
                    delays.append(m.start_ms - m.posted_ms)
                reached = max(reached, m.end_ms)
    return max(float(np.percentile(delays, 25)), 0.0) if delays else 0.0


def _at_once(timelines: Mapping[int, Sequence[RankStep]]) -> int:
    """Return how many threads carry out collectives of a rank side by side."""
    threads = [
        len({m.thread for s in steps for m in s.messages if m.collective not in POINT_TO_POINT})
        for steps in timelines.values()
    ]
    return max(max(threads, default=1), 1)


def _point_to_point(timelines: Mapping[int, Sequence[RankStep]]) -> list[tuple[int, Message]]:
    """Return every receive that its rank did nothing but wait for, with the rank."""
    found = []
    for rank, steps in timelines.items():
        for step in steps:
            blocked = {row: wait.long_ms for wait in step.waits for row in wait.rows}
            found += [
                (rank, m)
                for m in step.messages
                if m.collective == "recv"
                and m.size > 0
                and blocked.get(m.row, 0.0) > 0.8 * (m.end_ms - m.posted_ms)
            ]
    return found


def _fit_messages(
    messages: Sequence[tuple[int, Message]], ranks: Sequence[int]
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Fit the bandwidth of every rank's links from the receives that found their sender ready.

    Those take as long as the link needs, time after time, while a receive that waits for its sender
    takes as long as the sender happens to need: the densest cluster of durations is the link's.
    """
    pace = np.array([m.size / (m.end_ms - m.posted_ms) for _, m in messages])
    usual = float(find_mode(pace))
    speeds = {}
    for source, target in {(m.peer, rank) for rank, m in messages}:
        mine = [n for n, (rank, m) in enumerate(messages) if (m.peer, rank) == (source, target)]
        speeds[(source, target)] = float(np.percentile(pace[mine], 80))
    best = max(speeds.values())
    if usual < VERY_SLOW_LINK * best:
        # Most pairs may go through the one slow link.
        usual = best
    slow = _slow_ranks(speeds, ranks, usual)
    own = tuple(slow.get(rank, usual) for rank in ranks)
    return own, own, 0.1


def find_mode(values: Floats) -> float:
    """Return the half-sample mode: keep the narrower half until two values are left."""
    left = np.sort(np.log(np.asarray(values, np.float64)))
    while len(left) > 3:
        half = (len(left) + 1) // 2
        widths = left[half - 1 :] - left[: len(left) - half + 1]
        first = int(np.argmin(widths))
        left = left[first : first + half]
    return float(np.exp(np.median(left)))


def _slow_ranks(
    speeds: Mapping[tuple[int, int], float], ranks: Sequence[int], usual: float
) -> dict[int, float]:
    """Return the ranks whose own link must be slow, with its bandwidth: as few as explain all.

    A slow pair alone proves nothing: its receiver may never have found the sender ready. A rank is
    slow if all its pairs are, in both directions; the one with most slow pairs explains them first.
    """
    left = {pair for pair, speed in speeds.items() if speed < SLOW_LINK * usual}
    found: dict[int, float] = {}
    while left:
        counts = {
            rank: sum(rank in pair for pair in left)
            for rank in ranks
            if all(pair in left for pair in speeds if rank in pair)
        }
        most = max(counts, key=lambda rank: counts[rank], default=None)
        if most is None or counts[most] == 0:
            break
        found[most] = max(speeds[pair] for pair in speeds if most in pair)
        left = {pair for pair in left if most not in pair}
    return found

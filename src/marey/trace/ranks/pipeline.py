"""Stages, micro-batches and schedule of a pipeline: who sends to whom, and in what order."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from marey.model.training.traces import EventKind
from marey.trace.rank.activity import Ints
from marey.trace.ranks.communications import Pool


@dataclass(frozen=True)
class PipelineStages:
    """Where each rank stands in its pipeline; no stages if there is none."""

    stages: dict[int, int] = field(default_factory=dict)
    chains: tuple[tuple[int, ...], ...] = ()
    micro_batches: int = 0
    schedule: str = "none"
    confidence: float = 1.0


def find_pipeline(pool: Pool, item: Ints) -> PipelineStages:
    """Return the pipeline that the point-to-point exchanges of a run form."""
    rows = np.flatnonzero(pool.is_exchange)
    sends = rows[pool.kind[rows] == EventKind.SEND]
    if not len(rows):
        return PipelineStages()
    forward = _first_edges(pool, rows)
    stages = _number_stages(forward)
    if not stages:
        return PipelineStages(confidence=0.3)
    batches = _micro_batches(pool, sends, stages)
    matched = float((item[rows] >= 0).mean())
    return PipelineStages(
        stages=stages,
        chains=_chains(forward, stages),
        micro_batches=batches,
        schedule=_schedule(pool, rows, stages, batches),
        confidence=round(0.5 + 0.45 * matched, 3),
    )


def _first_edges(pool: Pool, rows: Ints) -> dict[int, set[int]]:
    """Return rank → next stage: between two ranks, the first exchange of a step goes forward."""
    votes: Counter[tuple[int, int]] = Counter()
    order = rows[np.argsort(pool.start_ns[rows], kind="stable")]
    seen: set[tuple[int, int, int]] = set()
    for row in order.tolist():
        rank, peer, step = int(pool.rank[row]), int(pool.peer[row]), int(pool.step[row])
        # Each rank's own order decides, so that clocks need not agree.
        if (rank, peer, step) in seen:
            continue
        seen.add((rank, peer, step))
        sends = pool.kind[row] == EventKind.SEND
        votes[(rank, peer) if sends else (peer, rank)] += 1
    after: dict[int, set[int]] = defaultdict(set)
    for (source, target), count in votes.items():
        if count > votes.get((target, source), 0):
            after[source].add(target)
    return dict(after)


def _number_stages(after: dict[int, set[int]]) -> dict[int, int]:
    """Return longest distance from a rank that nobody sends to; empty if the edges form a ring."""
    before: dict[int, set[int]] = defaultdict(set)
    for source, targets in after.items():
        for target in targets:
            before[target].add(source)
    ranks = set(after) | set(before)
    stages: dict[int, int] = {}
    ready = [rank for rank in ranks if not before[rank]]
    waiting = {rank: len(before[rank]) for rank in ranks}
    for rank in ready:
        stages[rank] = 0
    while ready:
        rank = ready.pop()
        for target in after.get(rank, ()):
            stages[target] = max(stages.get(target, 0), stages[rank] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return stages if len(stages) == len(ranks) else {}


def _chains(after: dict[int, set[int]], stages: dict[int, int]) -> tuple[tuple[int, ...], ...]:
    chains = []
    for first in sorted(rank for rank, stage in stages.items() if stage == 0):
        chain = [first]
        while after.get(chain[-1]):
            chain.append(min(after[chain[-1]]))
        chains.append(tuple(chain))
    return tuple(chains)


def _micro_batches(pool: Pool, sends: Ints, stages: dict[int, int]) -> int:
    """Return how often a step sends forward along one edge, as most ranks and steps do."""
    counts: Counter[tuple[int, int, int]] = Counter()
    for row in sends.tolist():
        rank, peer = int(pool.rank[row]), int(pool.peer[row])
        if stages.get(peer, 0) > stages.get(rank, 0):
            counts[(rank, peer, int(pool.step[row]))] += 1
    usual = Counter(counts.values()).most_common(1)
    return usual[0][0] if usual else 0


def _schedule(pool: Pool, rows: Ints, stages: dict[int, int], batches: int) -> str:
    """Tell the schedule: GPipe ends every forward before the first backward, 1F1B alternates at
    once.
    """
    if batches <= 1:
        return "unknown"
    # The last stage shows the order best: it has no warm-up in which the two look alike.
    depth = max(stages.values())
    mine = rows[np.isin(pool.rank[rows], [r for r, s in stages.items() if s == depth])]
    votes: Counter[str] = Counter()
    order = mine[np.lexsort((pool.start_ns[mine], pool.step[mine], pool.rank[mine]))]
    key = np.stack([pool.rank[order], pool.step[order]])
    for of in np.split(order, np.flatnonzero((np.diff(key, axis=1) != 0).any(axis=0)) + 1):
        sends = np.flatnonzero(pool.kind[of] == EventKind.SEND)
        receives = np.flatnonzero(pool.kind[of] == EventKind.RECV)
        if len(sends) and len(receives) > 1:
            votes["gpipe" if receives[-1] < sends[0] else "1f1b"] += 1
    return votes.most_common(1)[0][0] if votes else "unknown"

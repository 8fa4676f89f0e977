"""What the messages of a pipeline say about its links: how fast, and what passes at once.

A message between two ranks takes ``latency + max(0, bytes - credit) / rate``: shaped and buffered
links let a credit of bytes through at once after a pause. Recorded receives tell more than one
message alone: who waits how long depends on what else is on the way, so rate and credit are those
whose replay makes every receive of the typical step last as long as it did. Only durations on one
rank's own clock are compared.

Where one size was recorded, and no message followed another closely, a slow link with credit and a
faster one without explain the run equally well. Then the credit is taken to be what a TCP sender
hands over at once, and the other explanations are kept: they differ where messages change in size,
and so widen that prediction's interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marey.replay.families.pipeline_parallel import Pipeline, plan_pipeline
from marey.replay.programs import STEPS, Graph, step_ms
from marey.replay.recording.link_costs import LinkChoice
from marey.replay.timeline import RankStep

Floats = NDArray[np.float64]
# The largest segment that the TCP stack hands to a link at once; the usual credit of a shaped link.
SEGMENT_BYTES = 65_536.0
# Credits that are tried, in bytes.
CREDITS = (0.0, SEGMENT_BYTES / 4, SEGMENT_BYTES / 2, SEGMENT_BYTES, 2 * SEGMENT_BYTES)
# Rates that are tried: so many steps of a grid, between these multiples of the densest pace.
RATES, FEW_RATES, SLOWEST, FASTEST = 25, 9, 0.05, 20.0
# An explanation is as good as the best if its receives are off by so many times as much, and by
# this much of a usual receive more, or by what threads take to wake up.
AS_GOOD, LEAST_OFF, WAKING_MS = 1.2, 0.005, 0.25
# The step counts beside the receives it is made of: so many ms of a receive for each of its own.
STEP_SHARE = 0.02
# One rank's link is slower or faster than the others' if that explains this much of what is off,
# which must be at least this share of a usual receive.
EXPLAINED, WORTH_EXPLAINING = 0.3, 0.1
OWN_FACTORS = (0.2, 0.3, 0.4, 0.5, 0.65, 1.5, 2.0, 3.0)
# More ranks than these are taken to have equal links.
MOST_RANKS = 16
# Where every message passed at once only a lower bound of the rate is known; so much above it.
ABOVE_BOUND = 2.0


@dataclass(frozen=True)
class _Fit:
    rate: float
    credit: float
    off_ms: float


class _Receives:
    """Compares the receives of a replay with the recorded ones."""

    def __init__(self, graph: Graph, recorded: Mapping[int, Floats], recorded_ms: float) -> None:
        self.graph = graph
        self.recorded_ms = recorded_ms
        chosen = graph.receives[graph.receives[:, 1] == STEPS - 2]
        mine = [chosen[chosen[:, 0] == rank] for rank in recorded]
        lengths = [len(a) == len(b) for a, b in zip(mine, recorded.values(), strict=True)]
        self.comparable = bool(recorded) and all(lengths)
        self.rows = np.concatenate(mine) if mine else chosen
        self.recorded = np.concatenate(list(recorded.values())) if recorded else np.zeros(0)

    def off_ms(self, bandwidth: Floats, credit: float) -> float:
        """Return by how much receives differ from the recorded ones, on average."""
        costs = replace(
            self.graph.costs, bandwidth=bandwidth, credit=np.full(len(bandwidth), credit)
        )
        schedule = self.graph.schedule(costs)
        # A receive is noted as done when its rank waits for it, which may be later than it came.
        over = np.maximum(schedule.finish[self.rows[:, 3]], schedule.ready[self.rows[:, 4]])
        took = over - schedule.ready[self.rows[:, 2]]
        off = np.mean(np.abs(took - self.recorded))
        step = abs(step_ms(self.graph, schedule) - self.recorded_ms)
        return float(off + STEP_SHARE * step)

    @property
    def usual_ms(self) -> float:
        """Return how long a usual receive lasts."""
        return float(np.median(self.recorded))


def fit_message_links(
    run: Pipeline, timelines: Mapping[int, Sequence[RankStep]], recorded_ms: float
) -> Pipeline:
    """Return the pipeline with links whose messages take as long as the recorded ones."""
    receives = _Receives(plan_pipeline(run), _usual_receives(timelines), recorded_ms)
    if not receives.comparable:
        return run
    pace = float(np.median(run.links.up))
    weights = _fit_own_links(receives, len(run.ranks), pace)
    fits = [_fit_rate(receives, weights, credit, pace) for credit in CREDITS]
    best = min(fits, key=lambda fit: fit.off_ms)
    limit = AS_GOOD * best.off_ms + max(LEAST_OFF * receives.usual_ms, WAKING_MS)
    good = [fit for fit in fits if fit.off_ms <= limit]
    chosen = next((fit for fit in good if fit.credit == SEGMENT_BYTES), best)
    others = [LinkChoice(f.rate / chosen.rate, f.credit) for f in good if f is not chosen]
    if run.message_bytes <= chosen.credit:
        low = _slowest_good(receives, weights, chosen, limit)
        chosen = replace(chosen, rate=ABOVE_BOUND * low)
        others = [LinkChoice(low / chosen.rate, chosen.credit)]
        others.append(LinkChoice(chosen.rate / low, chosen.credit))
    up, down = (chosen.rate * weights[0::2]).tolist(), (chosen.rate * weights[1::2]).tolist()
    links = replace(
        run.links,
        up=tuple(up),
        down=tuple(down),
        reference=min(*up, *down),
        credit_bytes=chosen.credit,
        as_good=tuple(others),
    )
    return replace(run, links=links)


def _usual_receives(timelines: Mapping[int, Sequence[RankStep]]) -> dict[int, Floats]:
    """Return how long the receives of a typical step last on every rank, as they were posted."""
    usual = {}
    for rank, steps in timelines.items():
        rows = [
            [
                m.end_ms - m.posted_ms - m.call_ms
                for m in sorted(step.messages, key=lambda m: m.posted_ms)
                if m.collective == "recv"
            ]
            for step in steps
        ]
        counts = [len(row) for row in rows]
        most = max(set(counts), key=counts.count)
        usual[rank] = np.median([row for row in rows if len(row) == most], axis=0)
    return usual


def _fit_rate(
    receives: _Receives, weights: Floats, credit: float, pace: float, *, rounds: int = 3
) -> _Fit:
    """Return the rate that explains the receives best, given the credit."""
    low, high = SLOWEST * pace, FASTEST * pace
    for _ in range(rounds):
        rates = np.geomspace(low, high, RATES)
        off = [receives.off_ms(rate * weights, credit) for rate in rates]
        at = int(np.argmin(off))
        low, high = rates[max(at - 1, 0)], rates[min(at + 1, RATES - 1)]
    return _Fit(float(rates[at]), credit, off[at])


def _fit_own_links(receives: _Receives, count: int, pace: float) -> Floats:
    """Return how many times as fast the links of single ranks are, where receives show it."""
    weights = np.ones(2 * count)
    best = _fit_rate(receives, weights, SEGMENT_BYTES, pace)
    for _ in range(count if count <= MOST_RANKS else 0):
        if best.off_ms < WORTH_EXPLAINING * receives.usual_ms:
            break
        tried = []
        for place in range(count):
            for factor in OWN_FACTORS:
                own = weights.copy()
                own[2 * place : 2 * place + 2] = factor
                rates = best.rate * np.geomspace(0.5, 3.0, FEW_RATES)
                off = min(receives.off_ms(rate * own, SEGMENT_BYTES) for rate in rates)
                tried.append((off, place, factor))
        off, place, factor = min(tried)
        if off > (1.0 - EXPLAINED) * best.off_ms:
            break
        weights[2 * place : 2 * place + 2] = factor
        best = _fit_rate(receives, weights, SEGMENT_BYTES, pace)
    return weights


def _slowest_good(receives: _Receives, weights: Floats, chosen: _Fit, limit: float) -> float:
    """Return the slowest rate that still explains the receives."""
    low, high = chosen.rate * 1e-3, chosen.rate
    for _ in range(20):
        middle = float(np.sqrt(low * high))
        good = receives.off_ms(middle * weights, chosen.credit) <= limit
        low, high = (low, middle) if good else (middle, high)
    return high

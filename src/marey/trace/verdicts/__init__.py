"""Verdicts: judges propose causes, and a replay without each cause says what it costs.

The judges are two lists. Causes that lie with some ranks, a stage or a link come first; what the
whole run shares is judged on what is left once those are fixed. A cause is accepted only if fixing
it still wins something after the causes accepted before it, so a symptom is never named again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np

from marey.stats.intervals import cover
from marey.trace.rank.activity import RankActivity
from marey.trace.results import Verdict, VerdictKind
from marey.trace.verdicts.accounts import (
    find_capture,
    find_copies,
    find_idle_ranks,
    find_lonely_transfers,
    find_missing_work,
    find_unexplained,
)
from marey.trace.verdicts.bubble import find_bubble
from marey.trace.verdicts.compute import (
    find_heavy_stages,
    find_moving_stragglers,
    find_slow_workers,
    find_uneven_sequences,
)
from marey.trace.verdicts.delays import find_starved_ranks, find_starved_run
from marey.trace.verdicts.figures import Figure, state_figures
from marey.trace.verdicts.situation import Costs, Proposal, Situation
from marey.trace.verdicts.slow_links import find_mostly_transfers, find_slow_links

__all__ = ["SPECIFIC_JUDGES", "WHOLE_RUN_JUDGES", "Situation", "judge"]

Judge = Callable[[Situation], list[Proposal]]
SPECIFIC_JUDGES: tuple[Judge, ...] = (
    find_slow_workers,
    find_heavy_stages,
    find_uneven_sequences,
    find_moving_stragglers,
    find_starved_ranks,
    find_slow_links,
)
WHOLE_RUN_JUDGES: tuple[Judge, ...] = (find_starved_run, find_mostly_transfers)


# What each rank's own breakdown says, when the replay has had its say.
ACCOUNTS: tuple[Callable[[Situation, Sequence[Verdict]], Verdict | None], ...] = (
    find_unexplained,
    find_lonely_transfers,
    find_copies,
)


def judge(situation: Situation) -> tuple[Verdict, ...]:
    """Return every cause that costs something, the most costly first; ``none`` if there is none."""
    for find in (find_capture, find_missing_work):
        if (verdict := find(situation)) is not None:
            return (verdict,)
    costs: Costs = (situation.graph.work_ns, situation.graph.idle_ns)
    found: list[Verdict] = []
    # Ranks that never met wait for nobody: comparing them would compare unrelated work.
    met = not situation.graph.chained or len(situation.ranks) < 2 or (situation.item >= 0).any()
    for judges in (SPECIFIC_JUDGES if met else (), WHOLE_RUN_JUDGES):
        proposals = [p for one in judges for p in one(situation)]
        accepted, costs = _accept(situation, proposals, costs)
        found += accepted
    if situation.graph.chained:
        accounts = [find(situation, found) for find in ACCOUNTS]
        found += [verdict for verdict in accounts if verdict is not None]
        found += find_idle_ranks(situation, found)
    if not found and met:
        # No fault: what such a pipeline costs, told where nothing else is wrong.
        found += [verdict for verdict in (find_bubble(situation),) if verdict is not None]
    if not found:
        return (_nothing(situation),)
    return tuple(sorted(found, key=lambda verdict: -verdict.recoverable_ms))


def _accept(
    situation: Situation, proposals: list[Proposal], costs: Costs
) -> tuple[list[Verdict], Costs]:
    """Take the proposal that wins most, apply it, and look again at the others."""
    accepted: list[Verdict] = []
    now = situation.total_ns(*costs)
    while proposals:
        fixed = [proposal.fix(*costs) for proposal in proposals]
        gains = np.array([now - situation.total_ns(*one) for one in fixed])
        enough = np.array([p.threshold for p in proposals]) * situation.recorded_ns
        enough = np.maximum(enough, situation.clocks.error_us * 1e3 * len(situation.steps))
        gains = np.where(gains >= enough, gains, -1.0)
        best = int(np.argmax(gains))
        if gains[best] < 0 or situation.recorded_ns <= 0:
            break
        verdict = proposals[best].verdict
        share = gains[best] / situation.recorded_ns
        accepted.append(
            replace(
                verdict,
                recoverable_ms=round(float(gains[best]) / 1e6, 3),
                confidence=round(verdict.confidence, 3),
                evidence=(*verdict.evidence, f"without it the run takes {100 * share:.0f} % less"),
            )
        )
        costs, now = fixed[best], now - float(gains[best])
        proposals = [p for at, p in enumerate(proposals) if at != best]
    return accepted, costs


def _nothing(situation: Situation) -> Verdict:
    ranks = len(situation.ranks)
    idle = [
        Figure(a.rank, "idle", _idle_ns(a), a.last_ns - a.first_ns)
        for a in (situation.activities if situation.graph.chained else ())
    ]
    return Verdict(
        kind=VerdictKind.NONE,
        steps=situation.step_list(),
        confidence=round(0.9 * situation.match_confidence if ranks > 1 else 0.7, 3),
        evidence=(
            "no rank, stage, link or delay costs a noticeable share of the run",
            *state_figures(idle)[:1],
        ),
    )


def _idle_ns(activity: RankActivity) -> int:
    """Return the time between a rank's first and last work in which its device did nothing."""
    first, last = np.array([activity.first_ns]), np.array([activity.last_ns])
    parts = (getattr(activity.idle, field.name) for field in fields(activity.idle))
    return sum(int(cover(part, first, last)[0]) for part in parts)

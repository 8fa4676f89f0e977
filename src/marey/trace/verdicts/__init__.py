"""Verdicts: judges propose causes, and a replay without each cause says what it costs.

The judges are two lists. Causes that lie with some ranks, a stage or a link come first; what the
whole run shares is judged on what is left once those are fixed. A cause is accepted only if fixing
it still wins something after the causes accepted before it, so a symptom is never named again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from marey.trace.results import Verdict, VerdictKind
from marey.trace.verdicts.compute import (
    heavy_stages,
    moving_stragglers,
    slow_workers,
    uneven_sequences,
)
from marey.trace.verdicts.delays import starved_ranks, starved_run
from marey.trace.verdicts.links import mostly_transfers, slow_links
from marey.trace.verdicts.situation import Costs, Proposal, Situation

__all__ = ["SPECIFIC_JUDGES", "WHOLE_RUN_JUDGES", "Situation", "judge"]

Judge = Callable[[Situation], list[Proposal]]
SPECIFIC_JUDGES: tuple[Judge, ...] = (
    slow_workers,
    heavy_stages,
    uneven_sequences,
    moving_stragglers,
    starved_ranks,
    slow_links,
)
WHOLE_RUN_JUDGES: tuple[Judge, ...] = (starved_run, mostly_transfers)


def judge(situation: Situation) -> tuple[Verdict, ...]:
    """Every cause that costs something, the most costly first; ``none`` if there is none."""
    costs: Costs = (situation.graph.work_ns, situation.graph.idle_ns)
    found: list[Verdict] = []
    for judges in (SPECIFIC_JUDGES, WHOLE_RUN_JUDGES):
        proposals = [p for one in judges for p in one(situation)]
        accepted, costs = _accept(situation, proposals, costs)
        found += accepted
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
        if gains[best] < 0:
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
    return Verdict(
        kind=VerdictKind.NONE,
        steps=situation.step_list(),
        confidence=round(0.9 * situation.match_confidence if ranks > 1 else 0.7, 3),
        evidence=("no rank, stage, link or delay costs a noticeable share of the run",),
    )

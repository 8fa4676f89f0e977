"""Judges of devices that run dry: waiting for input, for the host, or for a late start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marey.model.system.percentages import format_percent
from marey.stats.intervals import Intervals, cover
from marey.trace.graph.cost_graph import Delay, Floats, Ints
from marey.trace.rank.activity import RankActivity, host_delay
from marey.trace.results import Verdict, VerdictKind
from marey.trace.verdicts.figures import Figure, state_figures
from marey.trace.verdicts.peers import deviation
from marey.trace.verdicts.situation import Fix, Proposal, Situation

# A rank stands out if it waits this share of a step longer than the median rank …
OUTLYING_SHARE = 0.02
# … and this many deviations of the ranks' own spread.
OUTLYING_DEVIATIONS = 4.0
# A delay shared by all ranks is called a bound only when it takes this share of the run: every
# program has some.
COMMON_SHARE = 0.1
# Below this share of the run there is something to gain, but hardly what the run is bound by.
BOUND_SHARE = 0.2
# One pause that makes up more than this share of all waiting is an event, not the run's pace.
ONE_PAUSE_SHARE = 0.5
# What is doubted is no more than a guess.
GUESS = 0.55
# A device that waits for most of its time while its host works in an operator or a call waits for
# its host, even if only once: surer than a guess, no surer than this.
ONE_PAUSE_CONFIDENCE = 0.75
MOST_OF_THE_RUN = 0.5
# A rank takes part in what all share if it waits for at least this part of what is usual.
SHARING = 0.5
TABLE_WORDS = {Delay.INPUT: "idle input", Delay.HOST: "idle host", Delay.START: "idle start"}
KINDS = {
    Delay.INPUT: (VerdictKind.INPUT_BOUND, "waits for input"),
    Delay.HOST: (VerdictKind.HOST_BOUND, "waits for its host to launch work"),
    Delay.START: (VerdictKind.LATE_START, "starts its steps late"),
}


def find_starved_ranks(situation: Situation) -> list[Proposal]:
    """Find ranks that wait for input, host or start longer than the others do."""
    proposals = []
    for delay in KINDS:
        waits = _by_step(situation, delay)
        chosen = _find_outlying(situation, waits)
        if len(chosen):
            proposals.append(_single(situation, delay, waits, chosen))
    return proposals


def find_starved_run(situation: Situation) -> list[Proposal]:
    """Find the part of input, host and start delays that all ranks share."""
    proposals = []
    # Without a device the host is what computes: its own pauses are not a bound on anything.
    launches = any(activity.has_launches for activity in situation.activities)
    for delay in KINDS:
        if delay == Delay.HOST and not launches:
            continue
        waits = _by_step(situation, delay)
        if waits.size and _shared(waits.sum(axis=1)) > 0:
            proposals.append(_common(situation, delay, waits))
    return proposals


def _by_step(situation: Situation, delay: Delay) -> Floats:
    """Return rank × step → ns of this delay, as the breakdown of each rank counts it."""
    if not situation.graph.chained:
        return _by_graph(situation, delay)
    waits = np.zeros((len(situation.ranks), len(situation.steps)))
    for activity in situation.activities:
        place = situation.rank_place(np.array([activity.rank]))[0]
        step, start, end = activity.step_windows()
        at = np.searchsorted(situation.steps, step)
        known = np.append(situation.steps, -1)[at] == step
        waited = cover(idle_of(activity, delay), start[known], end[known])
        np.add.at(waits[place], at[known], waited)
    return waits


def idle_of(activity: RankActivity, delay: Delay) -> Intervals:
    """Return when a rank's device waited for this."""
    if delay == Delay.HOST:
        return host_delay(activity)
    return activity.idle.input if delay == Delay.INPUT else activity.idle.start


def _by_graph(situation: Situation, delay: Delay) -> Floats:
    """Return the same from the graph alone, for runs recorded as operations."""
    graph = situation.graph
    waits = np.zeros((len(situation.ranks), len(situation.steps)))
    place = situation.rank_place(graph.rank)
    known = place >= 0
    step = np.searchsorted(situation.steps, graph.step)
    np.add.at(waits, (place[known], step[known]), graph.idle_ns[known, delay])
    return waits


def _find_outlying(situation: Situation, waits: Floats) -> Ints:
    total = waits.sum(axis=1)
    if len(total) < 2:
        return np.zeros(0, np.int64)
    usual, spread = np.median(total), deviation(total)
    if len(total) == 2:
        # Two ranks have no spread of their own that would not hold their difference.
        usual, spread = total.min(), 0.0
    limit = usual + max(OUTLYING_SHARE * situation.recorded_ns, OUTLYING_DEVIATIONS * spread)
    return np.flatnonzero(total > max(limit, 1.5 * usual))


def _single(situation: Situation, delay: Delay, waits: Floats, chosen: Ints) -> Proposal:
    kind, does = KINDS[delay]
    others = np.setdiff1d(np.arange(len(waits)), chosen)
    usual = np.median(waits[others], axis=0) if len(others) else np.zeros(waits.shape[1])
    excess = waits[chosen] - usual
    steps = np.flatnonzero(excess.max(axis=0) > 0.25 * excess.max())
    ranks = situation.named(chosen)
    evidence = tuple(
        f"rank {rank} {does} {wait / 1e6:.1f} ms a step, others {usual.mean() / 1e6:.1f} ms"
        for rank, wait in zip(ranks, waits[chosen].mean(axis=1).tolist(), strict=True)
    )
    share = float(excess.sum() / len(chosen) / max(situation.recorded_ns, 1.0))
    verdict = Verdict(
        kind=kind,
        ranks=ranks,
        steps=situation.step_list(steps),
        operators=_operators(situation, delay),
        confidence=float(np.clip(0.6 + 2 * share, 0.6, 0.97)),
        evidence=evidence[:8],
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.nan_to_num(np.minimum(usual / waits[chosen], 1.0), nan=1.0)
    full = np.ones_like(waits)
    full[chosen] = factor
    return Proposal(verdict, _scale(situation, delay, full))


def _common(situation: Situation, delay: Delay, waits: Floats) -> Proposal:
    kind, does = KINDS[delay]
    kind = VerdictKind.INPUT_BOUND if delay == Delay.START else kind
    total = waits.sum(axis=1)
    usual = _shared(total)
    share = float(usual / max(situation.recorded_ns, 1.0))
    # A gap between steps is input only by the usual order of things, not by name.
    confidence = float(np.clip(0.5 + share, 0.5, 0.95)) * (0.6 if delay == Delay.START else 1.0)
    evidence = _state_waits(situation, delay, does)
    limit, doubts = find_doubts(situation.activities if situation.graph.chained else (), delay)
    if share < BOUND_SHARE:
        limit = GUESS
        doubts.append(
            f"{format_percent(share)} of the run: something to gain, "
            "hardly what the run is bound by"
        )
    confidence, evidence = min(confidence, limit), (*evidence, *doubts)
    verdict = Verdict(
        kind=kind,
        ranks=situation.named(np.flatnonzero(total >= SHARING * usual)),
        steps=situation.step_list(),
        operators=_operators(situation, delay),
        confidence=confidence,
        evidence=evidence,
    )
    own = total[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.nan_to_num(np.maximum(1 - usual / own, 0.0), nan=0.0, neginf=0.0)
    return Proposal(
        verdict, _scale(situation, delay, np.broadcast_to(factor, waits.shape)), COMMON_SHARE
    )


def _shared(total: Floats) -> float:
    """Return the wait that at least half of the ranks have; of two ranks, the one both have."""
    return float(np.quantile(total, 0.5, method="lower"))


def _state_waits(situation: Situation, delay: Delay, does: str) -> tuple[str, ...]:
    """Return the table's figures of the ranks that wait most.

    Of every rank where there is no table.
    """
    if not situation.graph.chained:
        return (f"every rank {does}",)
    figures = [
        Figure(a.rank, TABLE_WORDS[delay], within_span(a, delay), a.last_ns - a.first_ns)
        for a in situation.activities
    ]
    return state_figures(figures)


def within_span(activity: RankActivity, delay: Delay) -> int:
    """Return how long a rank waited for this between its first and its last work."""
    first, last = np.array([activity.first_ns]), np.array([activity.last_ns])
    return int(cover(idle_of(activity, delay), first, last)[0])


def find_doubts(activities: Sequence[RankActivity], delay: Delay) -> tuple[float, list[str]]:
    """Return how sure one can be that waiting which these ranks share is the pace of the run.

    The reasons why not surer are sentences.
    """
    # Without a request to serve a host launches nothing either.
    silence = state_silence(activities) if delay == Delay.HOST else ""
    pause = state_pause(activities, delay) if delay != Delay.START else ""
    limit = GUESS if silence or pause else 1.0
    if pause and not silence and delay == Delay.HOST and _work_for_most(activities):
        limit = ONE_PAUSE_CONFIDENCE
    return limit, [words for words in (silence, pause) if words]


def _work_for_most(activities: Sequence[RankActivity]) -> bool:
    """Return whether every one of these hosts was at work while its device waited for most of
    its time.
    """
    return all(
        a.recording.works_in_pause
        and within_span(a, Delay.HOST) > MOST_OF_THE_RUN * (a.last_ns - a.first_ns)
        for a in activities
    )


def state_pause(activities: Sequence[RankActivity], delay: Delay) -> str:
    """Return a sentence if a single pause makes up most of what these ranks waited."""
    found = []
    for activity in activities:
        gaps, total = idle_of(activity, delay), within_span(activity, delay)
        if total > 0:
            found.append((int((gaps.end_ns - gaps.start_ns).max()) / total, total, activity))
    if not found or np.median([share for share, _, _ in found]) <= ONE_PAUSE_SHARE:
        return ""
    share, total, activity = max(found, key=lambda one: one[0] * one[1])
    doing = activity.recording.longest_pause_in if delay == Delay.HOST else ""
    return (
        f"one pause of {min(share, 1) * total / 1e6:.1f} ms{f' in {doing}' if doing else ''} is "
        f"{format_percent(min(share, 1))} of it: the start of something, perhaps, "
        "rather than the run's pace"
    )


def state_silence(activities: Sequence[RankActivity]) -> str:
    """Return a sentence if the host did nothing, or only waited, for most of what it
    is blamed for.
    """
    silent = sum(a.recording.silent_ns for a in activities)
    blamed = sum(within_span(a, Delay.HOST) for a in activities)
    if 2 * silent <= blamed:
        return ""
    return (
        f"for {silent / 1e6:.1f} ms of it the host recorded nothing or waited for a message: it "
        "may have had nothing to do, or its activity was not recorded (CPU activity, "
        "with_stack=True)"
    )


def _scale(situation: Situation, delay: Delay, factor: Floats) -> Fix:
    graph = situation.graph
    place = situation.rank_place(graph.rank)
    step = np.searchsorted(situation.steps, graph.step)
    scale = np.where(place >= 0, factor[np.maximum(place, 0), step], 1.0)

    def fix(work: Floats, delays: Floats) -> tuple[Floats, Floats]:
        fixed = delays.copy()
        fixed[:, delay] *= scale
        return work, fixed

    return fix


def _operators(situation: Situation, delay: Delay) -> tuple[str, ...]:
    if delay == Delay.INPUT:
        return ("data loading",)
    return ("kernel launch",) if delay == Delay.HOST else ()

"""Judges of what is left: time nothing accounts for, transfers without peers, copies, captures.

These look at each rank's own breakdown rather than at a replay: what they say is what the table of
ranks shows, and without them "nothing is wrong" would be said of a device that idles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from marey.stats.intervals import cover
from marey.trace.graph.cost_graph import Delay
from marey.trace.rank.activity import RankActivity, host_delay
from marey.trace.rank.recording import Recording
from marey.trace.results import Verdict, VerdictKind
from marey.trace.verdicts.delays import GUESS, KINDS, TABLE_WORDS, find_doubts, within_span
from marey.trace.verdicts.figures import Figure, state_figures
from marey.trace.verdicts.situation import Situation
from marey.trace.verdicts.slow_links import COMMUNICATION_SHARE

# Idle time of less than this share is what every program has.
UNEXPLAINED_SHARE = 0.1
# Where operators of the host stand for the device, Python between them is usual.
UNEXPLAINED_SHARE_ON_HOST = 0.3
# A rank that idles for this share is told, also where nobody waits for it.
IDLE_SHARE = 0.25
# Copies that nothing hides for this share of the time.
COPY_SHARE = 0.25
# Steps with at least this share of the worst step's unexplained time are named.
NAMED_STEPS = 0.25


def find_capture(situation: Situation) -> Verdict | None:
    """Find graphs captured on every rank, with hardly any work beside it: no run to be judged."""
    found = [a.recording for a in situation.activities]
    if not found or not all(r.is_capture for r in found):
        return None
    launches, answered = sum(r.launch_calls for r in found), sum(r.answered_calls for r in found)
    captured = sum(r.captured_idle_ns for r in found) / 1e6
    return Verdict(
        kind=VerdictKind.GRAPH_CAPTURE,
        ranks=situation.named(np.arange(len(situation.ranks))),
        steps=situation.step_list(),
        confidence=0.95,
        evidence=(
            f"{launches - answered} of {launches} launches were recorded into graphs: no device "
            "work came from them",
            f"{sum(r.device_events for r in found)} device events in all; the host captured graphs "
            f"for {captured:.1f} ms of the time in which its devices had nothing to do",
        ),
    )


def find_missing_work(situation: Situation) -> Verdict | None:
    """Find launches whose kernels were not recorded: nothing can be said about the devices."""
    found = [a.recording for a in situation.activities]
    if not found or not all(r.misses_its_work for r in found):
        return None
    launches, answered = sum(r.launch_calls for r in found), sum(r.answered_calls for r in found)
    return Verdict(
        kind=VerdictKind.NONE,
        confidence=0.0,
        evidence=(
            f"{launches} launches were recorded, and device work of only {answered} of them: the "
            "devices cannot be judged; record device activity (ProfilerActivity.CUDA)",
        ),
    )


def find_unexplained(situation: Situation, found: Sequence[Verdict]) -> Verdict | None:
    """Find devices that idle for no recorded reason: how long, where, and what would explain it.

    Where operators of the host stand for the device, idle time and waiting for the host are one:
    a rank that was found host-bound is not named again.
    """
    host_bound = {r for v in found if v.kind is VerdictKind.HOST_BOUND for r in v.ranks}
    chosen = [
        a
        for a in situation.activities
        if _measure_unexplained(a).share >= _least_share(a)
        and (a.recording.has_device or a.rank not in host_bound)
    ]
    if not chosen:
        return None
    figures = [_measure_unexplained(a) for a in chosen]
    return Verdict(
        kind=VerdictKind.UNEXPLAINED_IDLE,
        ranks=tuple(a.rank for a in chosen),
        steps=_worst_steps(chosen),
        recoverable_ms=round(float(np.median([f.part_ns for f in figures])) / 1e6, 3),
        confidence=0.9,
        evidence=(
            *state_figures(figures),
            *_reasons(chosen),
            "what could be won is at most this; what it is, the recording does not say",
        ),
    )


def _least_share(activity: RankActivity) -> float:
    return UNEXPLAINED_SHARE if activity.recording.has_device else UNEXPLAINED_SHARE_ON_HOST


def _measure_unexplained(activity: RankActivity) -> Figure:
    window = np.array([activity.first_ns]), np.array([activity.last_ns])
    span = activity.last_ns - activity.first_ns
    if not activity.recording.has_device:
        # The host is the device: what it did between its operators, no operator tells.
        return Figure(
            activity.rank, "idle host", int(cover(host_delay(activity), *window)[0]), span
        )
    part = int(cover(activity.idle.unexplained, *window)[0])
    return Figure(activity.rank, "idle unexplained", part, span)


def _worst_steps(activities: Sequence[RankActivity]) -> tuple[int, ...]:
    total: dict[int, float] = {}
    for activity in activities:
        step, start, end = activity.step_windows()
        for number, ns in zip(step, cover(activity.idle.unexplained, start, end), strict=True):
            total[int(number)] = max(total.get(int(number), 0.0), float(ns))
    most = max(total.values(), default=0.0)
    return tuple(sorted(n for n, ns in total.items() if ns >= NAMED_STEPS * most))


def _reasons(activities: Sequence[RankActivity]) -> list[str]:
    """Return why it cannot be explained, and which recording option would."""
    found = [a.recording for a in activities]
    stalled = sum(a.idle.stalled.total_ns for a in activities) / 1e6
    unlinked = sum(a.idle.unlinked.total_ns for a in activities) / 1e6
    reasons = []
    if not all(r.has_device for r in found):
        reasons.append(
            f"no operator ran meanwhile, and for {unlinked:.1f} ms of it no other event of the "
            "host tells why: record stacks (with_stack=True), and devices if there are any"
        )
    elif unlinked > 0:
        reasons.append(
            f"{unlinked:.1f} ms end with work whose launch was not recorded: " + _option(found)
        )
    if stalled > 0:
        reasons.append(
            f"for {stalled:.1f} ms work was launched and did not start: it waited for work, an "
            "event or a peer outside this recording; record every stream and process, with "
            "CUDA synchronisation events, for longer"
        )
    return reasons


def _option(found: Sequence[Recording]) -> str:
    if not any(r.host_events for r in found):
        return (
            "record CPU activity beside the device's (ProfilerActivity.CPU, JAX's "
            "host_tracer_level=2, msprof --runtime-api=on)"
        )
    if not any(r.python_events for r in found):
        return "record runtime calls and stacks (CUDA activity, with_stack=True)"
    return "record runtime calls of the device (CUDA activity)"


def find_idle_ranks(situation: Situation, found: Sequence[Verdict]) -> list[Verdict]:
    """Find ranks that idle for long for a known reason, whether or not the run waits for them.

    A device that nobody waits for costs the run nothing, and idles all the same: devices of a
    server, replicas, ranks that were recorded without their peers.
    """
    verdicts = []
    for delay, (kind, _) in KINDS.items():
        named = {r for v in found if v.kind in (kind, VerdictKind.INPUT_BOUND) for r in v.ranks}
        chosen = [
            a
            for a in situation.activities
            if a.rank not in named
            and (delay != Delay.HOST or a.has_launches)
            and _measure_delay(a, delay).share >= IDLE_SHARE
        ]
        if chosen:
            verdicts.append(_judge_idle(situation, delay, kind, chosen))
    return verdicts


def _measure_delay(activity: RankActivity, delay: Delay) -> Figure:
    span = activity.last_ns - activity.first_ns
    return Figure(activity.rank, TABLE_WORDS[delay], within_span(activity, delay), span)


def _judge_idle(
    situation: Situation, delay: Delay, kind: VerdictKind, chosen: Sequence[RankActivity]
) -> Verdict:
    figures = [_measure_delay(a, delay) for a in chosen]
    share = float(np.median([figure.share for figure in figures]))
    more = ["no other rank waits for it, as far as was recorded"]
    confidence = min(0.5 + share, 0.95)
    limit, doubts = find_doubts(chosen, delay)
    # Between steps nothing says what was waited for, and a late rank may be late for its peers.
    met = bool((situation.item >= 0).any())
    if met or delay == Delay.START:
        limit = GUESS
    confidence = min(confidence, limit)
    more += doubts
    return Verdict(
        kind=kind,
        ranks=tuple(a.rank for a in chosen),
        steps=situation.step_list(),
        recoverable_ms=round(float(np.median([f.part_ns for f in figures])) / 1e6, 3),
        confidence=round(confidence, 3),
        evidence=(*state_figures(figures), *more),
    )


def find_lonely_transfers(situation: Situation, _: Sequence[Verdict]) -> Verdict | None:
    """Find exposed communication of ranks whose peers were not recorded."""
    if (situation.item >= 0).any():
        return None
    return _judge_share(
        situation,
        VerdictKind.COMMUNICATION_BOUND,
        COMMUNICATION_SHARE,
        lambda a: Figure(a.rank, "exposed comm", a.recording.exposed_comm_ns, a.recording.span_ns),
        # A peer that is late and a network that is slow look alike from one side.
        confidence=0.55,
        more="the peers were not recorded: a late rank and a slow transfer cannot be distinguished",
    )


def find_copies(situation: Situation, _: Sequence[Verdict]) -> Verdict | None:
    """Find copies between host and device that nothing hides."""
    return _judge_share(
        situation,
        VerdictKind.COPY_BOUND,
        COPY_SHARE,
        lambda a: Figure(
            a.rank, "exposed memcpy", a.recording.exposed_memcpy_ns, a.recording.span_ns
        ),
        confidence=0.75,
        more="nothing computes or communicates meanwhile",
    )


def _judge_share(
    situation: Situation,
    kind: VerdictKind,
    least: float,
    measure: Callable[[RankActivity], Figure],
    *,
    confidence: float,
    more: str,
) -> Verdict | None:
    figures = [measure(a) for a in situation.activities]
    chosen = [f for f in figures if f.share >= least]
    if not chosen or not situation.graph.chained:
        return None
    return Verdict(
        kind=kind,
        ranks=tuple(f.rank for f in chosen),
        steps=situation.step_list(),
        recoverable_ms=round(float(np.median([f.part_ns for f in chosen])) / 1e6, 3),
        confidence=confidence,
        evidence=(*state_figures(chosen), more),
    )

"""What keeps a verdict from being sure: a recording too small, too partial or without its devices.

A doubt changes no figure. It caps the confidence of the verdicts that it concerns, and says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from marey.model.system.percentages import format_percent
from marey.model.training.traces import EventKind
from marey.stats.intervals import cover
from marey.trace.rank.activity import BACKWARD_PHASE, RankActivity
from marey.trace.rank.recording import Recording
from marey.trace.readers.trace_info import RankInfo
from marey.trace.results import Verdict, VerdictKind
from marey.trace.run.missing_ranks import find_missing_peers

# Nothing that is doubted is more than a guess.
DOUBTED_CONFIDENCE = 0.55
# Fewer pieces of device work than this are a sample, not a run.
FEWEST_DEVICE_EVENTS = 10
# A host recorded for this many times as long as its device worked: the rest may matter more.
MOSTLY_HOST = 4.0
# Exchanges inside kernels that take this share of the span: they may be waits for a late rank.
EXCHANGE_SHARE = 0.25
# "Nothing is wrong" is not sure where a rank computes nothing for this share.
STILL_SHARE = 0.15
# Idle time of which this share was spent capturing graphs says little about the run.
CAPTURE_SHARE = 0.1
# Ranks of one stage whose compute differs by this much are not alike.
UNEVEN_RATIO = 1.3
# On the rank that waits least, well placed sums of gradients leave 1-3 % of a step to communication
# once backward is over; all of them at the end 11 and 17 % (the seed's two models).
AFTER_BACKWARD_SHARE = 0.1
# Whole recordings hold device work of every launch: all 30 real ones did that captured no graphs.
LOST_SHARE = 0.05
TRANSFER_KINDS = (VerdictKind.COMMUNICATION_BOUND, VerdictKind.SLOW_LINK)
# Verdicts that say, each in its way, that no fault was found.
FAULTLESS_KINDS = (VerdictKind.NONE, VerdictKind.PIPELINE_BUBBLE)
# What compares ranks is doubtful where their clocks fit no better than to this share of a step: one
# of them does not count the time that the others do, or files do not belong together.
CLOCK_KINDS = (
    *TRANSFER_KINDS,
    VerdictKind.NONE,
    VerdictKind.LATE_START,
    VerdictKind.SLOW_WORKER,
    VerdictKind.STAGE_IMBALANCE,
    VerdictKind.SEQUENCE_IMBALANCE,
    VerdictKind.MOVING_STRAGGLER,
)
CLOCK_SHARE = 0.1
_DEVICE_BACKEND = re.compile(r"nccl|hccl|xccl|rccl|mtia", re.IGNORECASE)


def apply_doubts(
    verdicts: Sequence[Verdict],
    activities: Sequence[RankActivity],
    infos: Mapping[int, RankInfo],
    *,
    stages: Mapping[int, int] | None = None,
    clock_error_us: float = 0.0,
) -> tuple[Verdict, ...]:
    """Return the verdicts with what the recording makes doubtful said and capped."""
    found = [a.recording for a in activities]
    everywhere = [*_doubt_devices(activities, infos), *_doubt_files(infos), *_doubt_capture(found)]
    everywhere += [*_doubt_amount(found), *_doubt_losses(activities, infos)]
    about_nothing = list(_doubt_nothing(found))
    missing = find_missing_peers(infos)
    about_nothing += _doubt_stillness(activities, peers_missing=bool(missing))
    about_clocks = list(_doubt_clocks(activities, clock_error_us))
    about_transfers = list(_doubt_transfers(activities, missing))
    about_stages = [_doubt_stages(missing)] if missing else []
    about_nothing += _doubt_evenness(activities, stages or {})
    about_nothing += _doubt_late_sums(activities)
    capped = []
    for verdict in verdicts:
        doubts = [*everywhere, *(about_nothing if verdict.kind in FAULTLESS_KINDS else ())]
        doubts += about_transfers if verdict.kind in TRANSFER_KINDS else ()
        doubts += about_stages if verdict.kind is VerdictKind.STAGE_IMBALANCE else ()
        doubts += about_clocks if verdict.kind in CLOCK_KINDS else ()
        doubtful = verdict.confidence > 0 and verdict.kind is not VerdictKind.GRAPH_CAPTURE
        capped.append(_cap(verdict, doubts) if doubtful else verdict)
    return tuple(capped)


def _doubt_transfers(activities: Sequence[RankActivity], missing: Sequence[int]) -> Iterator[str]:
    """Doubt transfers with ranks that were not recorded.

    A late one of them looks like a slow one.
    """
    if missing and len(activities) > 1:
        yield (
            f"ranks of the same groups were not recorded ({_show_missing(missing)}): one of them "
            "may be late"
        )


def _doubt_clocks(activities: Sequence[RankActivity], error_us: float) -> Iterator[str]:
    """Doubt who waited for whom where clocks do not fit together."""
    lengths = [np.median(a.steps[:, 2] - a.steps[:, 1]) for a in activities if len(a.steps)]
    spans = lengths or [float(a.last_ns - a.first_ns) for a in activities]
    step_us = float(np.median(spans)) / 1e3 if spans else 0.0
    if len(activities) > 1 and error_us > CLOCK_SHARE * step_us > 0:
        yield (
            f"the clocks of the ranks fit together to {error_us / 1e3:.1f} ms only, of "
            f"{step_us / 1e3:.1f} ms a step: one may count another time, or files of several runs "
            "may be mixed"
        )


def _doubt_stages(missing: Sequence[int]) -> str:
    """Doubt a heaviest stage among those that were recorded."""
    return (
        f"ranks of the same groups were not recorded ({_show_missing(missing)}): the stage of one "
        "of them may be heavier"
    )


def _show_missing(missing: Sequence[int]) -> str:
    few = ", ".join(str(rank) for rank in missing[:4])
    more = f", … ({len(missing)} in all)" if len(missing) > 4 else ""
    return f"rank {few}{more}"


def _cap(verdict: Verdict, doubts: Sequence[str]) -> Verdict:
    if not doubts:
        return verdict
    confidence = min(verdict.confidence, DOUBTED_CONFIDENCE)
    return replace(verdict, confidence=confidence, evidence=(*verdict.evidence, *doubts))


def _doubt_devices(
    activities: Sequence[RankActivity], infos: Mapping[int, RankInfo]
) -> Iterator[str]:
    """Doubt a process that had devices and was recorded without them."""
    blind = [
        infos[a.rank]
        for a in activities
        if not a.recording.has_device and _has_devices(infos[a.rank])
    ]
    if blind:
        what = blind[0].device_name or f"the backend {blind[0].backend}"
        yield (
            f"the process used devices ({what}), and none of their work was recorded: operators of "
            "the host stand for them; record device activity (ProfilerActivity.CUDA)"
        )


def _doubt_files(infos: Mapping[int, RankInfo]) -> Iterator[str]:
    """Doubt files of which a part is missing."""
    damaged = sorted({info.damage for info in infos.values() if info.damage})
    yield from damaged[:2]


def _doubt_capture(found: Sequence[Recording]) -> Iterator[str]:
    """Doubt idle time of a host that was capturing graphs, in a recording of more than that."""
    captured, idle = sum(r.captured_idle_ns for r in found), sum(r.host_idle_ns for r in found)
    if captured > CAPTURE_SHARE * idle:
        yield (
            f"the host captured graphs for {captured / 1e6:.1f} ms of the {idle / 1e6:.1f} ms it "
            "kept its devices waiting: a capture is no part of a run"
        )


def _has_devices(info: RankInfo) -> bool:
    return bool(info.device_name) or bool(_DEVICE_BACKEND.search(info.backend or ""))


def _doubt_amount(found: Sequence[Recording]) -> Iterator[str]:
    """Doubt whatever is said of a moment of device work."""
    events = max((r.device_events for r in found if r.has_device), default=0)
    if 0 < events < FEWEST_DEVICE_EVENTS:
        yield f"too little device work was recorded to judge a run by (pieces: {events})"


def _doubt_losses(
    activities: Sequence[RankActivity], infos: Mapping[int, RankInfo]
) -> Iterator[str]:
    """Doubt idle time of devices of which work was lost: a profiler's buffers may overflow."""
    for one in activities:
        found = one.recording
        # Beside other devices of its process the launches of all of them stand in each table.
        alone = infos[one.rank].device is None and found.has_device
        if alone and not found.capture_calls and found.lost_calls > LOST_SHARE * found.launch_calls:
            yield (
                f"rank {one.rank}: no device work was recorded of {found.lost_calls} of "
                f"{found.launch_calls} launches, though of later ones: what was lost looks idle"
            )
            return


def _doubt_nothing(found: Sequence[Recording]) -> Iterator[str]:
    """Say why "nothing is wrong" may only mean that little was seen."""
    seen = [r for r in found if r.has_device]
    if not seen:
        return
    if (part := _worst(seen, lambda r: r.host_span_ns, MOSTLY_HOST)) is not None:
        yield (
            f"the host was recorded for {part.host_span_ns / 1e6:.1f} ms, and its device worked "
            f"only within {part.span_ns / 1e6:.1f} ms of it: what came before and after is not "
            "judged"
        )
    if (part := _worst(seen, lambda r: r.exchange_ns, EXCHANGE_SHARE)) is not None:
        yield (
            f"{part.exchange_ns / 1e6:.1f} ms are kernels that exchange data between ranks: a wait "
            "for a late rank would look the same"
        )


def _doubt_stillness(
    activities: Sequence[RankActivity], *, peers_missing: bool = False
) -> Iterator[str]:
    """Doubt ranks that computed too little for "nothing is wrong", each reason too
    small by itself.
    """
    alone = len(activities) == 1 or peers_missing
    still = []
    for one in activities:
        span = one.last_ns - one.first_ns
        parts = (getattr(one.idle, field.name) for field in fields(one.idle))
        window = np.array([one.first_ns]), np.array([one.last_ns])
        part = sum(int(cover(gaps, *window)[0]) for gaps in parts)
        if alone:
            # With its peers beside it, a run's transfers are judged by what they cost the run.
            part += one.recording.exposed_comm_ns + one.recording.exposed_memcpy_ns
        if span > 0 and part > STILL_SHARE * span:
            still.append((part / span, one.rank))
    if still:
        share, rank = max(still)
        nothing = format_percent(share)
        yield f"rank {rank} computed nothing for {nothing} of its time, for several reasons"


def _doubt_evenness(activities: Sequence[RankActivity], stages: Mapping[int, int]) -> Iterator[str]:
    """Doubt ranks of one stage that compute unequally, too few of them to say which is at fault."""
    teams: dict[int, list[tuple[int, int]]] = {}
    for one in activities:
        if one.recording.has_device and one.recording.compute_ns > 0:
            team = teams.setdefault(stages.get(one.rank, 0), [])
            team.append((one.recording.compute_ns, one.rank))
    for team in teams.values():
        (least, light), (most, heavy) = min(team), max(team)
        if most > UNEVEN_RATIO * least:
            yield (
                f"rank {heavy} computed {most / 1e6:.1f} ms and rank {light} of the same stage "
                f"{least / 1e6:.1f} ms: which of them is at fault cannot be told"
            )
            return


def _doubt_late_sums(activities: Sequence[RankActivity]) -> Iterator[str]:
    """Doubt communication that every rank is left with once its backward is over."""
    shares = [_share_after_backward(one) for one in activities]
    least = min((share for share in shares if share is not None), default=0.0)
    if least >= AFTER_BACKWARD_SHARE:
        yield (
            f"{100 * least:.0f} % of a step is communication after backward is over, on every "
            "rank: gradients that are summed beside backward may hide it"
        )


def _share_after_backward(one: RankActivity) -> float | None:
    """Return the part of a rank's steps that collectives after its last backward work take."""
    segments, talks = one.segments, one.communications
    late = span = 0
    for step, start, end in one.steps.tolist():
        backward = (segments.step == step) & (segments.phase == BACKWARD_PHASE)
        if not backward.any():
            continue
        over = segments.end_ns[backward].max()
        mine = (talks.step == step) & (talks.kind == EventKind.COLLECTIVE)
        mine &= talks.start_ns >= over
        late += int((talks.end_ns - talks.start_ns)[mine].sum())
        span += end - start
    return late / span if span else None


def _worst(
    found: Sequence[Recording], measure: Callable[[Recording], int], share: float
) -> Recording | None:
    """Return the recording whose measure is the largest part of its span, if it
    exceeds the share.
    """
    chosen = [r for r in found if r.span_ns > 0 and measure(r) > share * r.span_ns]
    return max(chosen, key=lambda r: measure(r) / r.span_ns, default=None)

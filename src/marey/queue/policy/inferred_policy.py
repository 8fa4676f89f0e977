"""The policy that explains a record: order, backfill, limits and placement whose replay comes
nearest to the recorded waits.

A store does not say by which policy its workloads were scheduled; the error tells how well the
guess explains them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marey.queue.policy.inferred_priority import FittedPriority, ReportedPriorities
from marey.queue.policy.policy import BACKFILLS, Policy
from marey.queue.policy.policy_parts import PartitionRule
from marey.queue.policy.policy_replay import replay_policy, select_schedule
from marey.queue.policy.recorded_jobs import NOT_YET_MS, RecordedJobs
from marey.queue.policy.what_if import score_replay

# Shaped like a site's PriorityWeight settings: share counts most, then age, then size.
MULTIFACTOR_WEIGHTS = {"age": 1000.0, "fairshare": 2000.0, "size": 500.0}
# A candidate is tried with so many replays; of many jobs one is enough.
_TRIED_REPLAYS, _FEW_JOBS = 3, 1000
_OTHER_PLACEMENTS = ("least_allocated", "node_order")
# Another placement is believed if it is so much nearer to the record.
_CLEARLY_NEARER = 0.05

Flags = NDArray[np.bool_]


def infer_policy(
    jobs: RecordedJobs, reported: ReportedPriorities, fitted: FittedPriority | None
) -> tuple[RecordedJobs, Policy, dict[str, float]]:
    """Return the jobs with their own parts of the priority, the nearest policy, and its score.

    Of what was told only the limits are read here; ``fitted`` is made of the priorities.
    """
    if fitted is not None:
        jobs = _take_fitted(jobs, fitted)
    candidates = [
        replace(order, backfill=backfill, limits=limits, partitions=partitions)
        for order in _list_orders(fitted)
        for backfill in BACKFILLS
        for limits, partitions in _list_limits(jobs, reported)
    ]
    best = min((_try_policy(jobs, policy) for policy in candidates), key=_rate)
    for placement in _OTHER_PLACEMENTS:
        other = _try_policy(jobs, replace(best[0], placement=placement))
        if _rate(other) < _rate(best) - _CLEARLY_NEARER:
            best = other
    return jobs, *best


def _try_policy(jobs: RecordedJobs, policy: Policy) -> tuple[Policy, dict[str, float]]:
    replays = _TRIED_REPLAYS if len(jobs) <= _FEW_JOBS else 1
    counted = jobs.counted
    replayed = select_schedule(replay_policy(jobs, policy, replays=replays), counted)
    return policy, score_replay(jobs.select(counted), replayed)


def _rate(entry: tuple[Policy, dict[str, float]]) -> float:
    fidelity = entry[1]
    return abs(fidelity["error"]) + fidelity["size_error"] - fidelity["near"]


def _take_fitted(jobs: RecordedJobs, fitted: FittedPriority) -> RecordedJobs:
    """Return the jobs with what is fixed of their priorities, and what was used before them."""
    note = (
        f"The order is inferred from {fitted.points} priorities that the scheduler told: age and "
        f"share explain {100 * fitted.explained:.0f} % of their differences."
    )
    return replace(
        jobs,
        priority=fitted.own,
        other_use=replace(jobs.other_use, before=fitted.first_use),
        notes=(*jobs.notes, note),
    )


def _list_orders(fitted: FittedPriority | None) -> list[Policy]:
    if fitted is not None:
        return [fitted.order]
    return [
        Policy(),
        Policy(order="multifactor", weights=MULTIFACTOR_WEIGHTS),
        Policy(order="multifactor", weights={"recorded": 1.0}),
        # Recorded priorities hold what is not known otherwise, such as quality of service.
        Policy(order="multifactor", weights={**MULTIFACTOR_WEIGHTS, "recorded": 0.5}),
    ]


def _list_limits(
    jobs: RecordedJobs, reported: ReportedPriorities
) -> Iterator[tuple[dict[str, float], tuple[PartitionRule, ...]]]:
    """Return the limits to try: per user and partition where the scheduler said that a limit kept
    somebody back, else none and one per user.
    """
    names = np.array(jobs.partition)
    capped = {names[place] for place in reported.limited}
    if not capped:
        yield {}, ()
        yield {"max_gpus_per_user": float(find_largest_hold(jobs))}, ()
        return
    rules = [
        PartitionRule(
            name,
            max_gpus_per_user=_infer_cap(jobs, reported, names == name) if name in capped else 0,
        )
        for name in sorted(set(jobs.partition))
    ]
    yield {}, tuple(rules)


def _infer_cap(jobs: RecordedJobs, reported: ReportedPriorities, chosen: Flags) -> int:
    """Return the GPUs per user that explain who was kept back: the most of these numbers.

    It is no less than what one user held, and less than what any would have held with the job that
    a limit kept back.
    """
    ran = chosen & (jobs.start_ms != NOT_YET_MS)
    begin = np.where(jobs.start_ms >= 0, jobs.start_ms, jobs.submit_ms)
    wished = []
    for place, at_ms in zip(reported.limited, reported.limited_ms, strict=True):
        if chosen[place]:
            own = ran & (jobs.owner == jobs.owner[place])
            held = own & (begin <= at_ms) & (begin + jobs.run_ms > at_ms)
            wished.append(int(jobs.gpus[held].sum() + jobs.gpus[place]))
    return max(find_largest_hold(jobs, chosen), min(wished) - 1)


def find_largest_hold(jobs: RecordedJobs, chosen: Flags | None = None) -> int:
    """Return the most GPUs that one user held at once: the limit per user, if there is one."""
    held = jobs.start_ms != NOT_YET_MS
    held = held if chosen is None else held & chosen
    begin = np.where(jobs.start_ms >= 0, jobs.start_ms, jobs.submit_ms)
    moments = np.concatenate([begin, begin + jobs.run_ms])
    changes = np.concatenate([jobs.gpus, -jobs.gpus])
    owners = np.concatenate([jobs.owner, jobs.owner])
    most = 0
    for owner in range(len(jobs.owners)):
        mine = np.flatnonzero((owners == owner) & np.tile(held, 2))
        order = mine[np.lexsort((changes[mine], moments[mine]))]
        most = max(most, int(np.cumsum(changes[order]).max(initial=0)))
    return most

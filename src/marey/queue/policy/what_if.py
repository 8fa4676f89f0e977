"""What another policy would have done: the recorded policy replayed first, and refused where that
is far from the truth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from marey.model.errors import MareyError
from marey.queue.policy.gains_and_losses import (
    compare_by_owner,
    compare_by_project,
    compare_by_size,
    describe_changes,
    find_quantile,
)
from marey.queue.policy.policy import Policy
from marey.queue.policy.policy_replay import ReplayedSchedule, replay_policy
from marey.queue.policy.recorded_jobs import Floats, RecordedJobs
from marey.queue.policy.replay_layout import NEVER_WORDS

# The replay of what really happened must come so near, else nothing is said of what did not happen.
MEAN_ERROR_LIMIT = 0.25
NEAR_SHARE_LIMIT = 0.4
SIZE_ERROR_LIMIT = 0.25
NEAR_S = 10.0
EASY_NOTE = (
    "'easy' keeps hosts only for the first job that waits. Slurm's sched/backfill plans every job "
    "it tests: 'conservative' replays it as Slurm does."
)


class LowFidelity(MareyError):
    """The recorded policy, replayed, does not come near the recorded waits."""

    exit_code = 8
    status = 422
    title = "Replay too far from the record"
    code = "low_fidelity"


def compute_what_if(
    jobs: RecordedJobs, policy: Policy, current: Policy, *, unchecked: bool = False
) -> dict[str, Any]:
    """Return the waits under a policy beside those of the recorded one; refuse below the stated
    fidelity, unless asked to answer ``unchecked``.
    """
    if not len(jobs.host_gpus) and not current.hosts:
        # The history names no hosts: both policies work on those that the other one names.
        current = replace(current, hosts=policy.hosts)
    now = replay_policy(jobs, current)
    fidelity = score_replay(jobs, now)
    if not unchecked:
        check_fidelity(fidelity)
    then = now if policy == current else replay_policy(jobs, policy)
    notes = [*jobs.notes, *_compare_with_slurm(jobs, policy)]
    if not unchecked:
        notes += list_doubts(fidelity)
    if unchecked:
        notes.append("Nothing was checked against recorded starts.")
    return {
        **compare_replays(jobs, now, then),
        "never_start": _list_never(jobs, then),
        "never_started_jobs": int(np.isnan(then.wait_s).sum()),
        "replays": then.replays,
        "notes": notes,
        "jobs": [
            {"id": name, "gpus": int(gpus), "wait_s": _number(wait), "spread_s": _number(spread)}
            for name, gpus, wait, spread in zip(
                jobs.ids, jobs.gpus, then.wait_s, then.spread_s, strict=True
            )
        ],
        "current": {
            "policy": {
                "order": current.order,
                "backfill": current.backfill,
                "placement": current.placement,
            },
            "mean_wait_s": _finite(now.mean_wait_s),
            "utilization": now.utilization,
            "stranded": now.stranded,
            **{name: _finite(value) for name, value in fidelity.items()},
        },
    }


def _compare_with_slurm(jobs: RecordedJobs, policy: Policy) -> list[str]:
    """Return the comparison with Slurm's own backfill, where EASY was asked for."""
    if policy.backfill != "easy" or not jobs.resolution_s:
        return []
    planned = replay_policy(jobs, replace(policy, backfill="conservative"))
    return [f"{EASY_NOTE} Its mean wait here: {planned.mean_wait_s:.1f} s."]


def compare_replays(
    jobs: RecordedJobs, now: ReplayedSchedule, then: ReplayedSchedule
) -> dict[str, Any]:
    """Return the waits of a replay, and who gains and loses against another."""
    by_size = compare_by_size(jobs, now.wait_s, then.wait_s)
    by_owner = compare_by_owner(jobs, now.wait_s, then.wait_s)
    by_project = compare_by_project(jobs, now.wait_s, then.wait_s)
    losses, gains = describe_changes(by_size, by_owner, by_project)
    return {
        "mean_wait_s": _finite(then.mean_wait_s),
        "median_wait_s": find_quantile(then.wait_s, 0.5),
        "p90_wait_s": find_quantile(then.wait_s, 0.9),
        "utilization": then.utilization,
        # Part of the free GPUs that the typical job could not have used.
        "stranded": then.stranded,
        "evictions": then.evictions,
        "lost_gpu_hours": then.lost_gpu_hours,
        "losses": losses,
        "gains": gains,
        "by_size": by_size,
        "by_owner": by_owner,
        "by_project": by_project,
    }


def score_replay(jobs: RecordedJobs, replayed: ReplayedSchedule) -> dict[str, float]:
    """Return how far a replay is from the recorded starts: error of the mean, share of jobs that
    are near.
    """
    known = np.isfinite(jobs.wait_s) & np.isfinite(replayed.wait_s)
    truth, replayed_s = jobs.wait_s[known], replayed.wait_s[known]
    if not known.any():
        return {
            "recorded_mean_wait_s": float("nan"),
            "replayed_mean_wait_s": float("nan"),
            "error": float("nan"),
            "within_10s": 0.0,
            "near": 0.0,
            "size_error": float("nan"),
            "scored_jobs": 0,
        }
    mean = float(truth.mean())
    mean_replayed_s = replayed.mean_wait_s if known.all() else float(replayed_s.mean())
    # A second of difference in a mean of nothing is no error of many hundred percent.
    error = (mean_replayed_s - mean) / max(mean, NEAR_S)
    near = np.abs(replayed_s - truth) <= np.maximum(NEAR_S, 0.25 * truth)
    return {
        "recorded_mean_wait_s": mean,
        "replayed_mean_wait_s": mean_replayed_s,
        "error": error,
        "within_10s": float((np.abs(replayed_s - truth) <= NEAR_S).mean()),
        "near": float(near.mean()),
        "size_error": _measure_size_error(jobs, np.where(known, replayed.wait_s, np.nan)),
        "scored_jobs": int(known.sum()),
    }


def list_doubts(fidelity: dict[str, float]) -> list[str]:
    """Return the doubts about an answer that the replay of the recorded policy raises."""
    if fidelity["near"] >= NEAR_SHARE_LIMIT:
        return []
    return [
        f"Only {100 * fidelity['near']:.0f} % of the jobs come near their recorded waits: read "
        f"the waits by size (off by {100 * fidelity['size_error']:.0f} %), not those of single "
        "users."
    ]


def _measure_size_error(jobs: RecordedJobs, replayed_s: Floats) -> float:
    """Return how far the mean waits by size are off, weighed by their jobs, against the mean."""
    rows = [
        (row["jobs"], row["mean_wait_now_s"], row["mean_wait_s"])
        for row in compare_by_size(
            jobs, np.where(np.isnan(replayed_s), np.nan, jobs.wait_s), replayed_s
        )
    ]
    off = sum(n * abs(then - now) for n, now, then in rows if now is not None and then is not None)
    whole = sum(n * max(now, NEAR_S) for n, now, _ in rows if now is not None)
    return off / whole if whole else float("nan")


def check_fidelity(fidelity: dict[str, float]) -> None:
    """Raise where the replay of the recorded policy is too far from the record."""
    if not fidelity["scored_jobs"]:
        raise LowFidelity(
            "No job of the history has a recorded start, so no replay can be checked; no answer. "
            "`--unchecked` replays nevertheless."
        )
    # Single jobs of a long, full line cannot be met; the means that the answer speaks of can.
    trusted = fidelity["near"] >= NEAR_SHARE_LIMIT or fidelity["size_error"] <= SIZE_ERROR_LIMIT
    if abs(fidelity["error"]) > MEAN_ERROR_LIMIT or not trusted:
        raise LowFidelity(
            "Replaying the recorded policy misses the recorded mean wait by "
            f"{100 * fidelity['error']:+.0f} % with {100 * fidelity['near']:.0f} % of the jobs "
            f"near the truth, and the means by size off by {100 * fidelity['size_error']:.0f} %; "
            f"at most ±{100 * MEAN_ERROR_LIMIT:.0f} % is needed before another policy can be "
            f"judged, and either {100 * NEAR_SHARE_LIMIT:.0f} % of the jobs near or means by size "
            f"within {100 * SIZE_ERROR_LIMIT:.0f} %."
        )


def _list_never(jobs: RecordedJobs, replayed: ReplayedSchedule) -> list[dict[str, str]]:
    """Return the jobs that never start under a policy, at most a hundred, and why."""
    return [
        {
            "id": jobs.ids[i],
            "reason": NEVER_WORDS.get(int(replayed.verdict[i]), "behind jobs that hold the line"),
        }
        for i in np.flatnonzero(np.isnan(replayed.wait_s))[:100]
    ]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _number(value: float) -> float | None:
    return round(float(value), 3) if np.isfinite(value) else None

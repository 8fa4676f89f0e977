"""What another policy would have done: the recorded policy replayed first, and refused where that
is far from the truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from marey.model.errors import MareyError
from marey.queue.policy.policy import Policy
from marey.queue.policy.policy_replay import Replayed, replay_policy
from marey.queue.policy.recorded_jobs import Floats, RecordedJobs
from marey.queue.policy.replay_layout import NEVER_WORDS

# The replay of what really happened must come so near, else nothing is said of what did not happen.
MEAN_ERROR_LIMIT = 0.25
NEAR_SHARE_LIMIT = 0.4
NEAR_S = 10.0
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class LowFidelity(MareyError):
    """The recorded policy, replayed, does not come near the recorded waits."""

    exit_code = 8
    status = 422
    title = "Replay too far from the record"
    code = "low_fidelity"


def compute_what_if(jobs: RecordedJobs, policy: Policy, current: Policy) -> dict[str, Any]:
    """Return the waits under a policy beside those of the recorded one; refuse below the stated
    fidelity.
    """
    now = replay_policy(jobs, current)
    fidelity = score_replay(jobs, now)
    check_fidelity(fidelity)
    then = now if policy == current else replay_policy(jobs, policy)
    return {
        **compare_replays(jobs, now, then),
        "never_start": _list_never(jobs, then),
        "replays": then.replays,
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
            "mean_wait_s": mean_wait(now.wait_s),
            "utilization": now.utilization,
            **fidelity,
        },
    }


def compare_replays(jobs: RecordedJobs, now: Replayed, then: Replayed) -> dict[str, Any]:
    """Return the waits of a replay, and who gains and loses against another."""
    return {
        "mean_wait_s": mean_wait(then.wait_s),
        "median_wait_s": _quantile(then.wait_s, 0.5),
        "p90_wait_s": _quantile(then.wait_s, 0.9),
        "utilization": then.utilization,
        "by_size": compare_by_size(jobs, now.wait_s, then.wait_s),
        "by_owner": compare_by_owner(jobs, now.wait_s, then.wait_s),
    }


def score_replay(jobs: RecordedJobs, replayed: Replayed) -> dict[str, float]:
    """Return how far a replay is from the recorded starts: error of the mean, share of jobs that
    are near.
    """
    known = np.isfinite(jobs.wait_s) & np.isfinite(replayed.wait_s)
    truth, told = jobs.wait_s[known], replayed.wait_s[known]
    if not known.any():
        return {
            "recorded_mean_wait_s": float("nan"),
            "error": float("nan"),
            "within_10s": 0.0,
            "near": 0.0,
            "scored_jobs": 0,
        }
    mean = float(truth.mean())
    # A second of difference in a mean of nothing is no error of many hundred percent.
    error = float(told.mean() - mean) / max(mean, NEAR_S)
    near = np.abs(told - truth) <= np.maximum(NEAR_S, 0.25 * truth)
    return {
        "recorded_mean_wait_s": mean,
        "error": error,
        "within_10s": float((np.abs(told - truth) <= NEAR_S).mean()),
        "near": float(near.mean()),
        "scored_jobs": int(known.sum()),
    }


def check_fidelity(fidelity: dict[str, float]) -> None:
    """Raise where the replay of the recorded policy is too far from the record."""
    if not fidelity["scored_jobs"]:
        raise LowFidelity(
            "No job of the history has a recorded start, so no replay can be checked; no answer."
        )
    if abs(fidelity["error"]) > MEAN_ERROR_LIMIT or fidelity["near"] < NEAR_SHARE_LIMIT:
        raise LowFidelity(
            "Replaying the recorded policy misses the recorded mean wait by "
            f"{fidelity['error']:+.0%} with {fidelity['near']:.0%} of the jobs near the truth; at "
            f"most ±{MEAN_ERROR_LIMIT:.0%} and at least {NEAR_SHARE_LIMIT:.0%} are needed before "
            "another policy can be judged."
        )


def compare_by_size(jobs: RecordedJobs, now_s: Floats, then_s: Floats) -> list[dict[str, Any]]:
    """Return mean waits by the number of GPUs, so that one sees who would starve."""
    rows = []
    for low, high in zip(_SIZES, (*_SIZES[1:], 1 << 40), strict=True):
        mine = (jobs.gpus >= low) & (jobs.gpus < high)
        if mine.any():
            rows.append({"gpus_from": low, **_compare(now_s[mine], then_s[mine])})
    return rows


def compare_by_owner(jobs: RecordedJobs, now_s: Floats, then_s: Floats) -> list[dict[str, Any]]:
    """Return mean waits by owner, the biggest change first."""
    rows = [
        {"owner": owner, **_compare(now_s[jobs.owner == i], then_s[jobs.owner == i])}
        for i, owner in enumerate(jobs.owners[:200])
        if (jobs.owner == i).any()
    ]
    return sorted(rows, key=lambda row: -abs(float(row["change_s"] or 0.0)))


def _compare(now_s: Floats, then_s: Floats) -> dict[str, Any]:
    now, then = mean_wait(now_s), mean_wait(then_s)
    change = then - now if now is not None and then is not None else None
    return {"jobs": len(now_s), "mean_wait_now_s": now, "mean_wait_s": then, "change_s": change}


def _list_never(jobs: RecordedJobs, replayed: Replayed) -> list[dict[str, str]]:
    """Return the jobs that never start under a policy, at most a hundred, and why."""
    return [
        {
            "id": jobs.ids[i],
            "reason": NEVER_WORDS.get(int(replayed.verdict[i]), "behind jobs that hold the line"),
        }
        for i in np.flatnonzero(np.isnan(replayed.wait_s))[:100]
    ]


def mean_wait(values: Floats) -> float | None:
    """Return the mean of the waits that end; None where none does."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _quantile(values: Floats, share: float) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.quantile(known, share)) if len(known) else None


def _number(value: float) -> float | None:
    return round(float(value), 3) if np.isfinite(value) else None

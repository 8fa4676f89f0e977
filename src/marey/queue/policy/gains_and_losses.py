"""Who waits longer and who shorter under another policy: by size, user and project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

import numpy as np

from marey.model.times import describe_span
from marey.queue.policy.recorded_jobs import Floats, Ints, RecordedJobs

_SIZES = (1, 2, 4, 8, 16, 32, 64)
# A change is mentioned if it is this long and this many times; fewer jobs than this say nothing.
_LEAST_S, _LEAST_FACTOR, _LEAST_JOBS = 60.0, 1.25, 3
_MOST_SENTENCES = 6


class ChangedWaits(TypedDict):
    """Waits of one group of jobs now and under the other policy; None where none is known."""

    # What the group has in common: one of these three.
    gpus_from: NotRequired[int]
    owner: NotRequired[str]
    project: NotRequired[str]
    jobs: int
    mean_wait_now_s: float | None
    mean_wait_s: float | None
    change_s: float | None
    p90_wait_now_s: float | None
    p90_wait_s: float | None
    never_start: int


def compare_by_size(jobs: RecordedJobs, now_s: Floats, then_s: Floats) -> list[ChangedWaits]:
    """Return mean waits by the number of GPUs, so that one sees who would starve."""
    rows: list[ChangedWaits] = []
    for low, high in zip(_SIZES, (*_SIZES[1:], 1 << 40), strict=True):
        mine = (jobs.gpus >= low) & (jobs.gpus < high)
        if mine.any():
            rows.append({"gpus_from": low, **_compare(now_s[mine], then_s[mine])})
    return rows


def compare_by_owner(jobs: RecordedJobs, now_s: Floats, then_s: Floats) -> list[ChangedWaits]:
    """Return mean waits by owner, the biggest change first."""
    rows: list[ChangedWaits] = [
        {"owner": name, **waits}
        for name, waits in _compare_groups(jobs.owners, jobs.owner, (now_s, then_s))
    ]
    return sorted(rows, key=_size_of_change)


def compare_by_project(jobs: RecordedJobs, now_s: Floats, then_s: Floats) -> list[ChangedWaits]:
    """Return mean waits by project, the biggest change first; nothing where none is known."""
    if not any(jobs.projects):
        return []
    groups = _compare_groups(jobs.projects, jobs.fill("project", 0), (now_s, then_s))
    rows: list[ChangedWaits] = [{"project": name, **waits} for name, waits in groups]
    return sorted(rows, key=_size_of_change)


def _size_of_change(row: ChangedWaits) -> float:
    return -abs(row["change_s"] or 0.0)


def _compare_groups(
    names: Sequence[str], group: Ints, waits: tuple[Floats, Floats]
) -> list[tuple[str, ChangedWaits]]:
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(len(names) + 1))
    return [
        (names[i], _compare(waits[0][mine], waits[1][mine]))
        for i in range(len(names))
        if len(mine := order[edges[i] : edges[i + 1]])
    ]


def _compare(now_s: Floats, then_s: Floats) -> ChangedWaits:
    now, then = mean_wait(now_s), mean_wait(then_s)
    change = then - now if now is not None and then is not None else None
    return {
        "jobs": len(now_s),
        "mean_wait_now_s": now,
        "mean_wait_s": then,
        "change_s": change,
        "p90_wait_now_s": find_quantile(now_s, 0.9),
        "p90_wait_s": find_quantile(then_s, 0.9),
        "never_start": int(np.isnan(then_s).sum()),
    }


def describe_changes(
    by_size: Sequence[ChangedWaits],
    by_owner: Sequence[ChangedWaits],
    by_project: Sequence[ChangedWaits],
) -> tuple[list[str], list[str]]:
    """Return who would lose and who would gain, in words: sizes first, as single users are few,
    then the largest change.
    """
    sizes = [(_name_size(row["gpus_from"]), row) for row in by_size]
    others = [(f"Project {row['project']}", row) for row in by_project]
    others += [(f"User {row['owner']}", row) for row in by_owner]
    named = [
        entry
        for group in (sizes, others)
        for entry in sorted(group, key=lambda entry: _size_of_change(entry[1]))
    ]
    losses, gains = [], []
    for name, row in named:
        kind = judge_change(row)
        if kind == "loses":
            losses.append(_describe(name, row))
        elif kind == "gains":
            gains.append(_describe(name, row))
    return losses[:_MOST_SENTENCES], gains[:_MOST_SENTENCES]


def judge_change(row: ChangedWaits) -> str:
    """Return whether a group loses or gains so much that one should hear of it."""
    now, then, jobs = row["mean_wait_now_s"], row["mean_wait_s"], row["jobs"]
    if row["never_start"]:
        return "loses"
    if now is None or then is None or jobs < _LEAST_JOBS or abs(then - now) < _LEAST_S:
        return ""
    low, high = sorted((now, then))
    if high < _LEAST_FACTOR * max(low, 1e-9):
        return ""
    return "loses" if then > now else "gains"


def describe_size(gpus: int) -> str:
    """Return the numbers of GPUs that are counted together from this one on, such as 2 to 3."""
    if gpus == 1:
        return "1"
    high = next((size for size in _SIZES if size > gpus), 0)
    return f"{gpus} to {high - 1}" if high else f"{gpus} or more"


def _name_size(gpus: int) -> str:
    return f"Workloads of {describe_size(gpus)} GPU{'' if gpus == 1 else 's'}"


def _describe(name: str, row: ChangedWaits) -> str:
    if row["never_start"]:
        return f"{name}: {row['never_start']} of {row['jobs']} would never start."
    now, then = row["mean_wait_now_s"] or 0.0, row["mean_wait_s"] or 0.0
    times = ""
    if then < now:
        times = f", {100.0 * (1.0 - then / now):.0f} % less"
    elif now >= 1.0:
        times = f", {then / now:.1f} times as long"
    waits = "waits" if name.startswith(("Project", "User")) else "wait"
    return (
        f"{name} {waits} {describe_span(then)} instead of {describe_span(now)}{times} "
        f"({row['jobs']} jobs)."
    )


def mean_wait(values: Floats) -> float | None:
    """Return the mean of the waits that end; None where none does."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def find_quantile(values: Floats, share: float) -> float | None:
    """Return a quantile of the waits that end; None where none does."""
    known = values[np.isfinite(values)]
    return float(np.quantile(known, share)) if len(known) else None

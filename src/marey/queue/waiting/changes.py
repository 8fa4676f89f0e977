"""What moved in the line since an earlier moment, for one workload; and use against share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marey.queue.waiting.line import Line, Waiter


@dataclass(frozen=True, slots=True)
class LineChange:
    """How a workload's place changed, and why."""

    position_before: int | None
    position_now: int
    arrived_ahead: int
    started: int
    passed: int
    sentences: tuple[str, ...]


def compare_lines(before: Line, now: Line, place: int) -> LineChange:
    """Return what changed for the workload at a place of the line now."""
    waiter = now.waiters[place]
    old = before.find(waiter.workload)
    ahead_now = {w.workload for w in now.waiters[:place] if w.partition == waiter.partition}
    known = {w.workload for w in before.waiters}
    waits_now = {w.workload for w in now.waiters}
    arrived = len(ahead_now - known)
    if old is None:
        return LineChange(
            position_before=None,
            position_now=place + 1,
            arrived_ahead=arrived,
            started=0,
            passed=0,
            sentences=("It was not in the line then.",),
        )
    ahead_then = {w.workload for w in before.waiters[: old[0]] if w.partition == waiter.partition}
    gone = len(ahead_then - waits_now)
    passed = len((ahead_now & known) - ahead_then)
    return LineChange(
        position_before=old[0] + 1,
        position_now=place + 1,
        arrived_ahead=arrived,
        started=gone,
        passed=passed,
        sentences=tuple(_describe(gone, arrived, passed)),
    )


def _describe(gone: int, arrived: int, passed: int) -> list[str]:
    told = [
        (gone, "{n} {job} ahead of it left the line"),
        (arrived, "{n} {job} with higher priority arrived"),
        (passed, "{n} {job} that stood behind passed it"),
    ]
    lines = [text.format(n=n, job="job" if n == 1 else "jobs") + "." for n, text in told if n]
    return lines or ["Nothing moved ahead of it."]


@dataclass(frozen=True, slots=True)
class ProjectShare:
    """A project's GPU-hours over a period against its share of the waiting and the used."""

    project: str
    gpu_hours: float
    used_share: float
    fair_share: float
    waiting_gpus: int
    # Used over fair: above 1 it had more than its share.
    ratio: float


def measure_fairness(
    gpu_hours: Mapping[str, float], waiters: Sequence[Waiter], shares: Mapping[str, float]
) -> list[ProjectShare]:
    """Return use against share per project; without stated shares, all have equal ones."""
    waiting: dict[str, int] = {}
    for waiter in waiters:
        waiting[waiter.project] = waiting.get(waiter.project, 0) + waiter.gpus
    projects = sorted({*gpu_hours, *waiting})
    total = sum(gpu_hours.values())
    stated = sum(shares.get(project, 0.0) for project in projects)
    rows = []
    for project in projects:
        fair = shares.get(project, 0.0) / stated if stated else 1.0 / len(projects)
        used = gpu_hours.get(project, 0.0) / total if total else 0.0
        rows.append(
            ProjectShare(
                project=project,
                gpu_hours=gpu_hours.get(project, 0.0),
                used_share=used,
                fair_share=fair,
                waiting_gpus=waiting.get(project, 0),
                ratio=used / fair if fair else 0.0,
            )
        )
    return sorted(rows, key=lambda row: -row.gpu_hours)

"""What moved in the line since an earlier moment, for one workload."""

from __future__ import annotations

from dataclasses import dataclass

from marey.queue.waiting.line import Line


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
    """Return the changes for the workload at a place of the line."""
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
    reported = [
        (gone, "{n} {job} ahead of it left the line"),
        (arrived, "{n} {job} with higher priority arrived"),
        (passed, "{n} {job} that stood behind passed it"),
    ]
    lines = [text.format(n=n, job="job" if n == 1 else "jobs") + "." for n, text in reported if n]
    return lines or ["Nothing moved ahead of it."]

"""Back-test: what rules would have found in the past, with progress and cancel.

The past is replayed through the same court that judges live; nothing that was known only later
(when a workload ended, what it reported afterwards) is known to it earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from marey.model.events import Event
from marey.model.samples import SampleBatch
from marey.model.times import DAY_MS
from marey.rules.court import EVERY_MS, Court
from marey.rules.definition import Rule
from marey.rules.findings import Finding
from marey.rules.judge import rows_of, windows_of
from marey.rules.tenants import Facts, Seat


@dataclass(frozen=True)
class PastWorkload:
    """A workload of the past, with every moment at which it reported progress."""

    facts: Facts
    seats: Sequence[Seat]
    progress_ms: Sequence[int] = ()


@dataclass(frozen=True)
class History:
    """What happened: workloads, events, and samples in order of time."""

    from_ms: int
    to_ms: int
    workloads: Sequence[PastWorkload]
    batches: Iterable[SampleBatch]
    events: Sequence[Event] = ()


@dataclass
class Backtest:
    """What the rules would have found; ``cancelled`` where it was stopped on the way."""

    from_ms: int
    to_ms: int
    findings: list[Finding] = field(default_factory=list)
    workloads: int = 0
    samples: int = 0
    cancelled: bool = False

    def per_day(self, rule: str) -> float:
        """How often the rule would have opened a finding, per day."""
        opened = sum(len(f.episodes) for f in self.findings if f.rule == rule)
        return opened * DAY_MS / max(self.to_ms - self.from_ms, 1)

    def gpu_hours(self, rule: str) -> float:
        """GPU-hours under the rule's findings."""
        return sum(f.gpu_hours for f in self.findings if f.rule == rule)


def backtest(
    rules: Iterable[Rule],
    history: History,
    *,
    progress: Callable[[float], None] = lambda done: None,
    cancelled: Callable[[], bool] = lambda: False,
    every_ms: int = EVERY_MS,
) -> Backtest:
    """Replay the past under these rules; ``progress`` gets the share (0-1) that is done."""
    drafts = [replace(rule, enabled=True) for rule in rules]
    court = Court(drafts, every_ms=every_ms)
    court.judge.only = set(windows_of(drafts))
    court.judged_ms = history.from_ms // every_ms * every_ms
    result = Backtest(history.from_ms, history.to_ms, workloads=len(history.workloads))
    watch = Watch(progress, cancelled)
    result.samples, whole = replay(court, history, watch)
    result.cancelled = not whole
    result.findings = list(court.book.findings.values())
    return result


@dataclass(frozen=True)
class Watch:
    """Who looks on: told the share (0-1) that is done, asked whether to stop."""

    progress: Callable[[float], None] = lambda done: None
    cancelled: Callable[[], bool] = lambda: False


ALONE = Watch()


def replay(court: Court, history: History, watch: Watch = ALONE) -> tuple[int, bool]:
    """Let a court live through the past; returns the rows taken, and whether it saw the end."""
    past = _Past(history)
    span = max(history.to_ms - history.from_ms, 1)
    samples = 0
    for batch in history.batches:
        for part in _portions(batch, court):
            past.tell(court, int(part.time_ms[-1]))
            court.take(part)
            samples += len(part)
        if len(batch):
            watch.progress(min((int(batch.time_ms[-1]) - history.from_ms) / span, 1.0))
        if watch.cancelled():
            return samples, False
    past.tell(court, history.to_ms)
    court.advance(history.to_ms)
    watch.progress(1.0)
    return samples, True


def _portions(batch: SampleBatch, court: Court) -> Iterator[SampleBatch]:
    """The batch cut where verdicts fall, so that facts are known no earlier than they were."""
    if not len(batch):
        return
    # A sample on the minute belongs to the verdict of that minute.
    marks = (batch.time_ms - 1) // court.every_ms
    if marks[0] == marks[-1]:
        yield batch
        return
    at = 0
    while at < len(batch):
        end = int(marks.searchsorted(marks[at], side="right"))
        yield rows_of(batch, slice(at, end))
        at = end


Telling = Callable[[Court], None]


class _Past:
    """Tells the court what was known by a moment, in order."""

    def __init__(self, history: History) -> None:
        self.todo: list[tuple[int, int, Telling]] = []
        for past in history.workloads:
            self._workload(past, history.from_ms)
        for event in history.events:
            self.todo.append((event.time_ms, 2, partial(_note, event)))
        self.todo.sort(key=lambda entry: (entry[0], entry[1]), reverse=True)

    def _workload(self, past: PastWorkload, from_ms: int) -> None:
        facts, end_ms = past.facts, past.facts.end_ms
        running = replace(facts, end_ms=None, state="running")
        start = facts.start_ms if facts.start_ms is not None else from_ms
        self.todo.append((start, 0, partial(_admit, running, past.seats)))
        for time_ms in past.progress_ms:
            self.todo.append((time_ms, 1, partial(_progress, facts.workload, time_ms)))
        if end_ms is not None:
            self.todo.append((end_ms, 3, partial(_admit, facts, ())))

    def tell(self, court: Court, until_ms: int) -> None:
        """Everything up to this moment that was not told yet."""
        while self.todo and self.todo[-1][0] <= until_ms:
            self.todo.pop()[2](court)


def _admit(facts: Facts, seats: Sequence[Seat], court: Court) -> None:
    court.admit(facts, seats)


def _progress(workload: str, time_ms: int, court: Court) -> None:
    court.progress(workload, time_ms)


def _note(event: Event, court: Court) -> None:
    court.note(event)

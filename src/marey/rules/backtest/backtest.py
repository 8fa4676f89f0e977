"""Back-test: what rules would have found in the past, with progress and cancel.

The past is replayed through the same loop that judges live; nothing that was known only later
(when a workload ended, what it reported afterwards) is known to it earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from marey.model.events import Event
from marey.model.samples import SampleBatch
from marey.model.times import DAY_MS
from marey.rules.backtest.history_evaluator import BLOCK_CELLS, HistoryEvaluationLoop, cuts
from marey.rules.definition import Rule
from marey.rules.engine.allocations import FOREVER, Facts, HeldGpu
from marey.rules.engine.evaluation_loop import (
    EVERY_MS,
    LONGEST_GAP_MS,
    PAST_EVERY_MS,
    EvaluationLoop,
)
from marey.rules.engine.findings import Finding


@dataclass(frozen=True)
class PastWorkload:
    """A workload of the past, with every moment at which it reported progress."""

    facts: Facts
    held_gpus: Sequence[HeldGpu]
    progress_ms: Sequence[int] | NDArray[np.int64] = ()


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
        """Return how often the rule would have opened a finding, per day."""
        opened = sum(len(f.episodes) for f in self.findings if f.rule == rule)
        return opened * DAY_MS / max(self.to_ms - self.from_ms, 1)

    def gpu_hours(self, rule: str) -> float:
        """Return GPU-hours under the rule's findings."""
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
    loop = HistoryEvaluationLoop(drafts, every_ms)
    loop.judged_ms = history.from_ms // every_ms * every_ms
    result = Backtest(history.from_ms, history.to_ms, workloads=len(history.workloads))
    walk = _Walk(loop, history, BacktestMonitor(progress, cancelled))
    result.cancelled = not walk.whole()
    result.samples = walk.samples
    result.findings = list(loop.book.findings.values())
    return result


class _Walk:
    """Block after block through the past, verdict after verdict through each block."""

    def __init__(
        self, loop: HistoryEvaluationLoop, history: History, watch: BacktestMonitor
    ) -> None:
        self.loop, self.history, self.watch = loop, history, watch
        self.past = _Past(history)
        self.samples = 0
        self._coming = sorted(history.workloads, key=self._start, reverse=True)
        self._ends: dict[str, int] = {}

    def _start(self, past: PastWorkload) -> int:
        start = past.facts.start_ms
        return self.history.from_ms if start is None else start

    def whole(self) -> bool:
        """Walk to the end; False where it was stopped on the way."""
        loop, every_ms = self.loop, self.loop.every_ms
        kinds = {track.entity for track in loop.metric_history.tracks.values()}
        for cut in cuts(self.history.batches, every_ms, len(kinds)):
            begins_ms = (cut.begins_ms - 1) // every_ms * every_ms
            if begins_ms - self._judged > LONGEST_GAP_MS:
                loop.judged_ms = begins_ms - every_ms
            if not self._take_block(cut.batches, min(cut.until_ms, self._end_ms)):
                return False
            self.samples += sum(len(batch) for batch in cut.batches)
        silence = self._end_ms - self._judged > LONGEST_GAP_MS
        if kinds and silence:
            loop.judged_ms = self._end_ms - every_ms
        if not self._take_block((), self._end_ms):
            return False
        self.past.tell(loop, self.history.to_ms)
        self.watch.progress(1.0)
        return True

    @property
    def _judged(self) -> int:
        return self.loop.judged_ms or 0

    @property
    def _end_ms(self) -> int:
        return self.history.to_ms // self.loop.every_ms * self.loop.every_ms

    def _take_block(self, batches: Sequence[SampleBatch], until_ms: int) -> bool:
        """Run the evaluator up to a mark, in portions that fit into memory.

        False where it was stopped.
        """
        every_ms = self.loop.every_ms
        left = list(batches)
        while self._judged < until_ms or left:
            room = max(BLOCK_CELLS // max(self._count_rows(until_ms), 1), 15)
            to_ms = min(until_ms, self._judged + room * every_ms)
            # What is newer than the last verdict of all is judged by nobody.
            now, left = _split(left, to_ms if to_ms < until_ms else FOREVER)
            marks = np.arange(self._judged + every_ms, to_ms + 1, every_ms, dtype=np.int64)
            if not len(marks):
                return True
            self._open(to_ms)
            self.loop.metric_history.begin(now, marks)
            self.loop.admit_concerned()
            if not self._evaluate(marks):
                return False
            self.loop.metric_history.finish()
            self._close()
        return True

    def _count_rows(self, until_ms: int) -> int:
        coming = sum(len(p.held_gpus) for p in self._coming if self._start(p) <= until_ms)
        return self.loop.metric_history.rows + coming

    def _open(self, until_ms: int) -> None:
        """Open rows for every workload that begins in the portion."""
        every_ms = self.loop.every_ms
        while self._coming and self._start(self._coming[-1]) <= until_ms:
            past = self._coming.pop()
            facts = past.facts
            from_ms = (self._start(past) - 1) // every_ms * every_ms + 1
            self.loop.metric_history.row_table.open(facts, past.held_gpus, from_ms)
            if facts.end_ms is not None:
                self._ends[facts.workload] = facts.end_ms

    def _evaluate(self, marks: NDArray[np.int64]) -> bool:
        span = max(self.history.to_ms - self.history.from_ms, 1)
        for mark in marks.tolist():
            self.past.tell(self.loop, mark)
            self.loop.advance(mark)
            if self.watch.cancelled():
                return False
        self.watch.progress(min((int(marks[-1]) - self.history.from_ms) / span, 1.0))
        return True

    def _close(self) -> None:
        # After its last verdict nobody asks: the past has no late samples to wait for.
        known = self.loop.evaluator.allocations.by_name
        over = [
            name
            for name, end_ms in self._ends.items()
            if end_ms <= self._judged and (name not in known or known[name].finished)
        ]
        for name in over:
            del self._ends[name]
        self.loop.close(over)


def _split(
    batches: Sequence[SampleBatch], to_ms: int
) -> tuple[list[SampleBatch], list[SampleBatch]]:
    now, later = [], []
    for batch in batches:
        end = int(np.searchsorted(batch.time_ms, to_ms, side="right"))
        now += [batch.rows(slice(0, end))] if end else []
        later += [batch.rows(slice(end, None))] if end < len(batch) else []
    return now, later


@dataclass(frozen=True)
class BacktestMonitor:
    """Who watches: gets the share (0-1) that is done, and says whether to stop.

    Before ``fine_from_ms`` verdicts fall every ten minutes, after it every minute.
    """

    progress: Callable[[float], None] = lambda done: None
    cancelled: Callable[[], bool] = lambda: False
    fine_from_ms: int = 0


UNWATCHED = BacktestMonitor()


def replay(
    loop: EvaluationLoop, history: History, watch: BacktestMonitor = UNWATCHED
) -> tuple[int, bool]:
    """Let a loop live through the past; returns the rows taken, and whether it saw the end."""
    past = _Past(history)
    span = max(history.to_ms - history.from_ms, 1)
    samples = 0
    for batch in _set_pace(history.batches, loop, watch.fine_from_ms):
        for part in _cut_at_verdicts(batch, loop):
            # What is due falls before anything later is known.
            loop.advance((int(part.time_ms[0]) - 1) // loop.every_ms * loop.every_ms)
            past.tell(loop, int(part.time_ms[-1]))
            loop.take(part)
            samples += len(part)
            # A minute of ten thousand GPUs takes a moment; an hour would be too long to wait.
            if watch.cancelled():
                return samples, False
        if len(batch):
            watch.progress(min((int(batch.time_ms[-1]) - history.from_ms) / span, 1.0))
    loop.every_ms = EVERY_MS
    past.tell(loop, history.to_ms // loop.every_ms * loop.every_ms)
    loop.advance(history.to_ms)
    past.tell(loop, history.to_ms)
    watch.progress(1.0)
    return samples, True


def _set_pace(
    batches: Iterable[SampleBatch], loop: EvaluationLoop, fine_from_ms: int
) -> Iterator[SampleBatch]:
    """Yield the batches, the loop judging in long steps up to a moment and in minutes after it."""
    for batch in batches:
        if not len(batch):
            continue
        if batch.time_ms[0] <= fine_from_ms < batch.time_ms[-1]:
            older, newer = _split([batch], fine_from_ms)
            loop.every_ms = PAST_EVERY_MS
            yield from older
            loop.every_ms = EVERY_MS
            yield from newer
            continue
        loop.every_ms = PAST_EVERY_MS if batch.time_ms[-1] <= fine_from_ms else EVERY_MS
        yield batch


def _cut_at_verdicts(batch: SampleBatch, loop: EvaluationLoop) -> Iterator[SampleBatch]:
    """Yield the batch cut where verdicts fall, so that facts are known no earlier than
    they were.
    """
    if not len(batch):
        return
    # A sample on the minute belongs to the verdict of that minute.
    marks = (batch.time_ms - 1) // loop.every_ms
    if marks[0] == marks[-1]:
        yield batch
        return
    at = 0
    while at < len(batch):
        end = int(marks.searchsorted(marks[at], side="right"))
        yield batch.rows(slice(at, end))
        at = end


Report = Callable[[EvaluationLoop], None]


class _Past:
    """Tells the loop what was known by a moment, in order."""

    def __init__(self, history: History) -> None:
        self.todo: list[tuple[int, int, Report]] = []
        for past in history.workloads:
            self._add_workload(past, history.from_ms)
        for event in history.events:
            self.todo.append((event.time_ms, 1, partial(_report_event, event)))
        self.todo.sort(key=lambda entry: (entry[0], entry[1]), reverse=True)
        self._reports = _Reports(history.workloads)

    def _add_workload(self, past: PastWorkload, from_ms: int) -> None:
        facts, end_ms = past.facts, past.facts.end_ms
        start = facts.start_ms if facts.start_ms is not None else from_ms
        self.todo.append((start, 0, partial(_begin_workload, past)))
        if end_ms is not None:
            self.todo.append((end_ms, 2, partial(_end_workload, past)))

    def tell(self, loop: EvaluationLoop, until_ms: int) -> None:
        """Report everything up to this moment that was not reported yet."""
        while self.todo and self.todo[-1][0] <= until_ms:
            time_ms, place, report = self.todo.pop()
            # What is reported the moment a workload begins counts; it is reported after that.
            self._reports.tell(loop, time_ms if place else time_ms - 1)
            report(loop)
        self._reports.tell(loop, until_ms)


class _Reports:
    """Progress of all workloads in order of time, as columns: half a million in a day."""

    def __init__(self, workloads: Sequence[PastWorkload]) -> None:
        self._names = [past.facts.workload for past in workloads]
        times = [np.asarray(past.progress_ms, np.int64) for past in workloads]
        time_ms = np.concatenate([np.zeros(0, np.int64), *times])
        who = np.repeat(np.arange(len(times), dtype=np.int32), [len(each) for each in times])
        order = np.argsort(time_ms, kind="stable")
        self._time_ms, self._who = time_ms[order], who[order]
        self._reported = 0

    def tell(self, loop: EvaluationLoop, until_ms: int) -> None:
        """Pass on every progress report up to this moment that was not passed on yet."""
        begin = self._reported
        if begin == len(self._time_ms) or self._time_ms[begin] > until_ms:
            return
        self._reported = end = int(np.searchsorted(self._time_ms, until_ms, side="right"))
        reports = zip(self._who[begin:end].tolist(), self._time_ms[begin:end].tolist(), strict=True)
        for who, time_ms in reports:
            loop.progress(self._names[who], time_ms)


def _begin_workload(past: PastWorkload, loop: EvaluationLoop) -> None:
    loop.admit(replace(past.facts, end_ms=None, state="running"), past.held_gpus)


def _end_workload(past: PastWorkload, loop: EvaluationLoop) -> None:
    loop.admit(past.facts, ())


def _report_event(event: Event, loop: EvaluationLoop) -> None:
    loop.note(event)

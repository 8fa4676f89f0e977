"""Rules judged while a history is made: block by block in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from marey.app.rules.state_file import FINE_MS
from marey.live.moments import observation_of
from marey.model.observation import Observation
from marey.model.protocols import Store
from marey.model.samples import SampleBatch
from marey.rules.definition import Rule
from marey.rules.engine.evaluation_loop import (
    EVERY_MS,
    PAST_EVERY_MS,
    SHOWN_MS,
    EvaluationLoop,
)
from marey.rules.engine.observation_feed import ObservationFeed

# Blocks that wait: an hour of 2,048 GPUs is some 25 MB.
WAITING = 2


class HistoryReplay:
    """Lives through blocks of history, records in order of time and samples step by step.

    The past is judged in steps of ten minutes, its newest hours minute by minute. What lies
    before ``from_ms`` is left to whoever reads it later.
    """

    def __init__(
        self, store: Store, cluster: str, rules: list[Rule], *, from_ms: int, until_ms: int
    ) -> None:
        self.feed = ObservationFeed(EvaluationLoop(rules, cluster=cluster))
        self.feed.loop.shown_from_ms = until_ms - SHOWN_MS
        self.from_ms = from_ms
        self._store, self._cluster = store, cluster
        self._fine_from_ms = (until_ms - FINE_MS) // PAST_EVERY_MS * PAST_EVERY_MS
        self._blocks: queue.Queue[Sequence[Observation] | None] = queue.Queue(WAITING)
        self._error: BaseException | None = None
        self._begun = False
        self._thread = threading.Thread(target=self._run, name="history-replay", daemon=True)
        self._thread.start()

    def take(self, block: Sequence[Observation]) -> None:
        """Put a block in line that the store has kept; waits where too many do."""
        if block[-1].time_ms > self.from_ms:
            self._blocks.put(block)

    def finish(self) -> ObservationFeed:
        """Return the feed, up to the end of what was taken; raises what went wrong on the way."""
        self._blocks.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self.feed

    def _run(self) -> None:
        while (block := self._blocks.get()) is not None:
            if self._error is not None:
                continue
            try:
                self._live_through(block)
            except Exception as error:
                self._error = error
        self.feed.loop.every_ms = EVERY_MS

    def _live_through(self, block: Sequence[Observation]) -> None:
        if not self._begun:
            self._begin(block[0].time_ms)
        end_ms = block[-1].time_ms
        ordered = _BlockInOrder(block)
        for mark in self._list_marks(end_ms):
            ordered.tell(self.feed, mark)
            self.feed.loop.advance(mark)
        ordered.tell(self.feed, end_ms)

    def _begin(self, first_ms: int) -> None:
        self._begun = True
        loop = self.feed.loop
        loop.every_ms = PAST_EVERY_MS if first_ms <= self._fine_from_ms else EVERY_MS
        loop.judged_ms = first_ms // loop.every_ms * loop.every_ms
        if first_ms > self.from_ms and self._cluster in self._store.clusters():
            moment = observation_of(self._store.moment(self._cluster, first_ms))
            self.feed.observe(replace(moment, samples=(), events=()))

    def _list_marks(self, end_ms: int) -> Iterator[int]:
        """Yield the moments at which verdicts fall up to the end of a block."""
        loop = self.feed.loop
        while True:
            judged = loop.judged_ms or 0
            loop.every_ms = PAST_EVERY_MS if judged < self._fine_from_ms else EVERY_MS
            mark = judged + loop.every_ms
            if mark > end_ms:
                return
            yield mark


class _BlockInOrder:
    """A block of history, replayed bit by bit: records first, then reports, then samples."""

    def __init__(self, block: Sequence[Observation]) -> None:
        whole = [o for o in block if o.samples]
        # What comes with the samples of a block was reported on the way.
        records = [o for o in block if not o.samples]
        records += [replace(o, samples=(), progress=(), events=()) for o in whole]
        self._records = deque(sorted(records, key=lambda o: o.time_ms))
        events = [event for o in whole for event in o.events]
        self._events = deque(sorted(events, key=lambda event: event.time_ms))
        reports = [report for o in whole for report in o.progress]
        self._reports = deque(sorted(reports, key=lambda report: report.time_ms))
        self._batches = [_sort_by_time(batch) for o in whole for batch in o.samples]
        self._taken = [0] * len(self._batches)

    def tell(self, feed: ObservationFeed, until_ms: int) -> None:
        """Replay everything up to a moment that was not replayed yet."""
        while self._records and self._records[0].time_ms <= until_ms:
            feed.observe(self._records.popleft())
        while self._reports and self._reports[0].time_ms <= until_ms:
            report = self._reports.popleft()
            feed.loop.progress(report.workload, report.time_ms)
        while self._events and self._events[0].time_ms <= until_ms:
            feed.loop.note(self._events.popleft())
        for place, batch in enumerate(self._batches):
            end = int(np.searchsorted(batch.time_ms, until_ms, side="right"))
            if end > self._taken[place]:
                feed.loop.take(batch.rows(slice(self._taken[place], end)))
                self._taken[place] = end


def _sort_by_time(batch: SampleBatch) -> SampleBatch:
    return batch.rows(np.argsort(batch.time_ms, kind="stable"))

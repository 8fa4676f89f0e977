"""The loop: evaluator and findings moved on together, at the same moments live and in a back-test.

Verdicts that open and close findings fall on whole minutes of the clock. Whoever feeds the loop,
in whatever portions, gets the same findings from the same samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from marey.model.events import Event
from marey.model.names import DEFAULT_CLUSTER
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.rules.definition import Rule
from marey.rules.engine.allocations import Facts, HeldGpu
from marey.rules.engine.evaluator import FUTURE_MS, Evaluation, Evaluator, OwnSketches
from marey.rules.engine.findings import Finding, FindingChange, FindingTracker

EVERY_MS = MINUTE_MS
# The past is judged in longer steps: an evaluation costs the same whenever it falls, and a finding
# that opens at 03:10 instead of 03:04 yesterday tells the same story.
PAST_EVERY_MS = 10 * MINUTE_MS
# Of a past, the verdicts of the last minutes are worked out whole: they are shown.
SHOWN_MS = 2 * MINUTE_MS
# After a longer silence nothing is judged in between: there was nothing to evaluator by.
LONGEST_GAP_MS = 24 * 60 * MINUTE_MS


# A minute of ten thousand GPUs is 40,000 rows; a block of history is more, and waits for no one.
ASIDE_ROWS = 200_000


def _can_join(first: SampleBatch, other: SampleBatch) -> bool:
    """Return whether two batches can be one."""
    return (
        first.kind is other.kind
        and first.columns.keys() == other.columns.keys()
        and (first.entities is other.entities or first.entities == other.entities)
    )


def join_facts(batches: Sequence[SampleBatch]) -> SampleBatch:
    """Join batches of the same entities into one, GPU by GPU: so each sketch is touched once."""
    first = batches[0]
    if len(batches) == 1 and len(first) <= len(first.entities):
        return first
    entity = np.concatenate([batch.entity for batch in batches])
    order = np.argsort(entity, kind="stable")
    return SampleBatch(
        time_ms=np.concatenate([batch.time_ms for batch in batches])[order],
        entity=entity[order],
        entities=first.entities,
        columns={
            name: np.concatenate([batch.columns[name] for batch in batches])[order]
            for name in first.columns
        },
        kind=first.kind,
        cluster=first.cluster,
    )


def _sort_in_time(batch: SampleBatch, now_ms: int | None) -> SampleBatch:
    """Return the batch in order of time, without what a broken clock puts into the future."""
    times = batch.time_ms
    if now_ms is not None and len(times) and times.max() > now_ms + FUTURE_MS:
        batch = batch.rows(times <= now_ms + FUTURE_MS)
        times = batch.time_ms
    if (times[1:] < times[:-1]).any():
        return batch.rows(np.argsort(times, kind="stable"))
    return batch


class EvaluationLoop:
    """An evaluator, its findings, and the clock that says when verdicts fall."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        cluster: str = DEFAULT_CLUSTER,
        evaluator: Evaluator | None = None,
        findings: Iterable[Finding] = (),
        book: FindingTracker | None = None,
        every_ms: int = EVERY_MS,
    ) -> None:
        self.evaluator = evaluator or Evaluator(rules)
        self.book = FindingTracker(findings, cluster) if book is None else book
        self.every_ms = every_ms
        # Before this moment only what findings need is worked out: nobody sees those verdicts.
        self.shown_from_ms = 0
        self.judged_ms: int | None = None
        self.latest: Evaluation | None = None
        self._aside: list[SampleBatch] = []
        self._aside_rows = 0

    def admit(self, facts: Facts, held_gpus: Sequence[HeldGpu]) -> None:
        """Take a workload that runs, or of which something changed."""
        self.evaluator.allocations.admit(facts, held_gpus)

    def note(self, event: Event) -> None:
        """Note an event that happened to a GPU, a host or a workload."""
        self.evaluator.allocations.note(
            event.gpu,
            host=event.host,
            kind=event.kind,
            time_ms=event.time_ms,
            workload=event.workload,
        )

    def progress(self, workload: str, time_ms: int) -> None:
        """Take a step that the workload's script reported."""
        running = self.evaluator.allocations.by_name.get(workload)
        if running is not None:
            running.progress_ms = max(running.progress_ms or 0, time_ms)

    def take(self, batch: SampleBatch, now_ms: int | None = None) -> list[FindingChange]:
        """Take samples; verdicts fall between them where a minute is full."""
        batch = _sort_in_time(batch, now_ms)
        if not len(batch):
            return []
        if self.judged_ms is None:
            self.judged_ms = int(batch.time_ms[0]) // self.every_ms * self.every_ms
        changes: list[FindingChange] = []
        times = batch.time_ms
        at = 0
        while at < len(times):
            due_ms = self.judged_ms + self.every_ms
            end = int(np.searchsorted(times, due_ms, side="right")) if times[-1] > due_ms else None
            part = batch if at == 0 and end is None else batch.rows(slice(at, end))
            self._keep(part)
            if end is None:
                break
            changes += self._evaluate(due_ms)
            at = end
        return changes

    def _keep(self, batch: SampleBatch) -> None:
        """Put samples aside until the next verdict: together they cost a third."""
        if self._aside and not _can_join(self._aside[0], batch):
            self.flush()
        self._aside.append(batch)
        self._aside_rows += len(batch)
        if self._aside_rows > ASIDE_ROWS:
            self.flush()

    def flush(self) -> None:
        """Take what was put aside into the sketches; before anything is read from them."""
        if self._aside:
            self.evaluator.take(join_facts(self._aside))
            self._aside, self._aside_rows = [], 0

    def advance(self, to_ms: int) -> list[FindingChange]:
        """Let verdicts fall up to this moment."""
        if self.judged_ms is None:
            self.judged_ms = to_ms // self.every_ms * self.every_ms - self.every_ms
        if to_ms - self.judged_ms > LONGEST_GAP_MS:
            self.judged_ms = to_ms // self.every_ms * self.every_ms - self.every_ms
        changes: list[FindingChange] = []
        while self.judged_ms + self.every_ms <= to_ms:
            changes += self._evaluate(self.judged_ms + self.every_ms)
        return changes

    def _evaluate(self, time_ms: int) -> list[FindingChange]:
        self.flush()
        self.judged_ms = time_ms
        self._note_open_rules(time_ms)
        evaluation = self.evaluator.evaluate(time_ms)
        changes = self.book.step(evaluation)
        self.latest = replace(
            evaluation, condition_values=evaluation.condition_values.drop_values()
        )
        self.evaluator.sweep(time_ms)
        return changes

    def _note_open_rules(self, time_ms: int) -> None:
        """Tell own sketches which rules have open findings, where nobody sees the verdicts."""
        source = self.evaluator.source
        if isinstance(source, OwnSketches):
            past = self.every_ms > EVERY_MS or time_ms < self.shown_from_ms
            source.open_rules = frozenset(r for r, _ in self.book.open_keys()) if past else None

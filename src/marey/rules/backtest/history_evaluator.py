"""A loop that looks back: the same verdicts as live, read from the metric history of the past."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from marey.model.metrics import Entity
from marey.model.samples import SampleBatch
from marey.rules.backtest.metric_series import Floats, MetricHistory
from marey.rules.backtest.prefilter import Prefilter
from marey.rules.backtest.row_table import NOBODY, number_names
from marey.rules.definition import Rule
from marey.rules.engine.allocations import AllocationLayout, AllocationRows, Facts, HeldGpu
from marey.rules.engine.condition_values import ConditionValues
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.evaluator import Evaluator
from marey.rules.engine.findings import FindingTracker
from marey.rules.engine.three_valued import TRUE, Truths
from marey.rules.language.expressions import Statistic

# Samples that are sorted and walked through at once: more than this do not get cheaper.
BLOCK_ROWS = 400_000
# Numbers per statistic that a block may hold (rows × verdicts).
BLOCK_CELLS = 2_000_000


@dataclass
class PastStatistics:
    """The statistics of one past moment, from the metric history.

    *Now* is asked for only where it matters: a life is violated, or a finding is open.
    """

    metric_history: MetricHistory
    mark: int
    # The metric history's row of each GPU under evaluation.
    places: NDArray[np.int64]
    concerned: NDArray[np.bool_]
    _values: dict[object, Floats] = field(default_factory=dict)

    def compute(
        self, metric: str, statistic: Statistic, window: int | None, *, everyone: bool
    ) -> Floats:
        """Return a statistic per GPU; one over *now* only for those whom it concerns."""
        everyone = everyone or window is None
        key = (metric, statistic, window, everyone)
        if key not in self._values:
            rows = self.places if everyone else self.places[self.concerned]
            found = self.metric_history.statistic(metric, (statistic, window), self.mark, rows)
            none = np.full(len(self.places), np.nan)
            self._values[key] = none if found is None else found[self.places]
        return self._values[key]

    def get_since_ms(self, metric: str) -> int | None:
        """Return from when on the history has a metric."""
        return self.metric_history.since_ms.get(metric)

    def concern(self, gpus: NDArray[np.bool_]) -> bool:
        """Add GPUs whose *now* is asked for; True where earlier answers lack some of them."""
        if not (gpus & ~self.concerned).any():
            return False
        self.concerned = self.concerned | gpus
        self._values.clear()
        return True

    def drop_values(self) -> PastStatistics:
        """Return the same without what was computed."""
        return replace(self, _values={})


class HistorySource:
    """The numbers of an evaluator that looks back, from the metric history.

    Findings that are open say whose *now* is asked for: they may close.
    """

    def __init__(self, metric_history: MetricHistory, every_ms: int, book: FindingTracker) -> None:
        self.metric_history, self._every_ms = metric_history, every_ms
        self._book = book
        self._row_of = np.zeros(0, np.int64)
        self._synced: dict[str, int] = {}
        self._known = (-1, np.zeros(0, np.int64))

    def measure(self, time_ms: int, allocations: AllocationRows) -> ConditionValues:
        """Return the numbers of every GPU at a mark of the block at hand."""
        layout = allocations.layout()
        places = self._find_history_rows(allocations)
        mark = (time_ms - int(self.metric_history.marks[0])) // self._every_ms
        first, last, newest_ms = self.metric_history.seen(mark, places)
        allocations.first_ms[layout.rows] = first
        allocations.last_ms[layout.rows] = last
        nobody = np.zeros(len(layout), bool)
        statistics = PastStatistics(self.metric_history, mark, places, nobody)
        return ConditionValues(time_ms, layout, allocations, statistics, newest_ms)

    @property
    def tells_no_from_unknown(self) -> bool:
        """False: a back-test shows findings, not verdicts."""
        return False

    def needs_now(self, rule: str) -> bool:
        """Return whether a finding of this rule is open."""
        return bool(self._find_open(rule))

    def choose_concerned(
        self, rule: str, layout: AllocationLayout, life: Truths
    ) -> NDArray[np.bool_]:
        """Return those whose life violates the rule, and those with a finding that may close."""
        open_now = self._find_open(rule)
        whom = np.asarray(life == TRUE)
        if open_now:
            whom |= np.array([t.facts.workload in open_now for t in layout.running], bool)
        return np.asarray(whom[layout.workload])

    def _find_open(self, rule: str) -> set[str]:
        return {workload for name, workload in self._book.open_keys() if name == rule}

    def _find_history_rows(self, allocations: AllocationRows) -> NDArray[np.int64]:
        version = allocations.version
        if self._known[0] == version:
            return self._known[1]
        layout = allocations.layout()
        if len(self._row_of) < allocations.room:
            self._row_of = np.resize(self._row_of, max(allocations.room, 2 * len(self._row_of)))
        for running in layout.running:
            name = running.facts.workload
            if self._synced.get(name) != len(running.rows):
                mine = self.metric_history.row_table.rows[name]
                for gpu, row in running.rows.items():
                    self._row_of[row] = mine[gpu]
                self._synced[name] = len(running.rows)
        self._known = (version, self._row_of[layout.rows])
        return self._known[1]

    def forget(self, workloads: Sequence[str]) -> None:
        """Forget ended workloads; their rows in the metric history are closed between blocks."""
        for name in workloads:
            self._synced.pop(name, None)


class HistoryEvaluationLoop(EvaluationLoop):
    """A loop over the past: it hears a workload no sooner than a rule may hold for it.

    *Now* it asks for only where a finding is or may be open.
    """

    def __init__(self, rules: Sequence[Rule], every_ms: int) -> None:
        self.metric_history = MetricHistory(rules)
        self.screen = Prefilter(rules, self.metric_history)
        book = FindingTracker()
        source = HistorySource(self.metric_history, every_ms, book)
        super().__init__(evaluator=Evaluator(rules, source), every_ms=every_ms, book=book)
        # Workloads that run, and that nobody needs to evaluate yet.
        self._waiting: dict[str, tuple[Facts, Sequence[HeldGpu]]] = {}

    def admit(self, facts: Facts, held_gpus: Sequence[HeldGpu]) -> None:
        """Take a workload that runs, or has ended; it waits until it is heard."""
        if facts.workload in self.screen.heard:
            super().admit(facts, held_gpus)
        elif facts.end_ms is None:
            self._waiting[facts.workload] = (facts, held_gpus)
        else:
            self._waiting.pop(facts.workload, None)

    def admit_concerned(self) -> None:
        """Take up those whom the block at hand may concern."""
        for name in self.screen.choose():
            if name in self._waiting:
                super().admit(*self._waiting.pop(name))

    def close(self, workloads: Collection[str]) -> None:
        """Drop workloads that have had their last verdict, or will never need one."""
        self.metric_history.close(workloads)
        self.screen.heard.difference_update(workloads)


@dataclass(frozen=True)
class SampleCut:
    """Samples of each kind up to a mark, both included."""

    batches: Sequence[SampleBatch]
    until_ms: int
    begins_ms: int


def cuts(batches: Iterable[SampleBatch], every_ms: int, kinds: int) -> Iterator[SampleCut]:
    """Yield samples in order of time, gathered to blocks that end where a verdict falls."""
    waiting: dict[Entity, list[SampleBatch]] = {}
    rows = 0
    for batch in batches:
        if not len(batch):
            continue
        waiting.setdefault(batch.kind, []).append(batch)
        rows += len(batch)
        # Of several kinds, another may still have samples of this batch's minute.
        safe_ms = int(batch.time_ms[-1]) if kinds <= 1 else int(batch.time_ms[0]) - 1
        if rows >= BLOCK_ROWS:
            cut, waiting = _cut_batches(waiting, safe_ms // every_ms * every_ms)
            rows = sum(len(b) for kept in waiting.values() for b in kept)
            if cut.batches:
                yield cut
    end_ms = max((int(kept[-1].time_ms[-1]) for kept in waiting.values()), default=0)
    cut, _ = _cut_batches(waiting, -(-end_ms // every_ms) * every_ms)
    if cut.batches:
        yield cut


def _cut_batches(
    waiting: dict[Entity, list[SampleBatch]], until_ms: int
) -> tuple[SampleCut, dict[Entity, list[SampleBatch]]]:
    taken, left = [], {}
    for kind, batches in waiting.items():
        whole = in_time(batches)
        end = int(np.searchsorted(whole.time_ms, until_ms, side="right"))
        if end:
            taken.append(whole.rows(slice(0, end)))
        if end < len(whole):
            left[kind] = [whole.rows(slice(end, None))]
    begins = min((int(batch.time_ms[0]) for batch in taken), default=until_ms)
    return SampleCut(taken, until_ms, begins), left


def in_time(batches: Sequence[SampleBatch]) -> SampleBatch:
    """Join batches one after another into one; names are coded anew where they differ."""
    first = batches[0]
    if len(batches) == 1:
        return first
    codes = {name: code for code, name in enumerate(first.entities)}
    entities = []
    for batch in batches:
        if batch.entities == first.entities:
            entities.append(batch.entity)
            continue
        new = number_names(codes, batch.entities)
        for place in np.flatnonzero(new == NOBODY).tolist():
            new[place] = codes.setdefault(batch.entities[place], len(codes))
        entities.append(new.astype(np.int32)[batch.entity])
    names = {name: None for batch in batches for name in batch.columns}
    columns = {
        name: np.concatenate(
            [b.columns.get(name, np.full(len(b), np.nan, np.float32)) for b in batches]
        )
        for name in names
    }
    return SampleBatch(
        time_ms=np.concatenate([batch.time_ms for batch in batches]),
        entity=np.concatenate(entities),
        entities=first.entities if len(codes) == len(first.entities) else tuple(codes),
        columns=columns,
        kind=first.kind,
        cluster=first.cluster,
    )

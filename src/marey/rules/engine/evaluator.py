"""The evaluator: takes samples, events and facts, and says at any moment which rules hold.

It is the same object live, in a rebuild from history and in a back-test; only where its numbers
come from differs: from its own sketches, or from the columns of the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.rules.definition import Rule
from marey.rules.engine.allocations import AllocationLayout, AllocationRows
from marey.rules.engine.condition_values import ConditionValues
from marey.rules.engine.moment_statistics import SketchedStatistics, needs_bins
from marey.rules.engine.sketch_state import SketchState
from marey.rules.engine.three_valued import FALSE, TRUE, UNKNOWN, Truths, quantify
from marey.rules.language.expressions import Clause, Series, conditions
from marey.stats.sketches.sketch_tables import WindowNeed

# Clocks of hosts differ; a sample further ahead of us than this is a broken clock.
FUTURE_MS = 5 * MINUTE_MS
# How long a finished workload's rows still take late samples.
GRACE_MS = 15 * MINUTE_MS
# Windows of so many metrics are kept for lenses and drafts, beyond those that rules name.
WATCHED_METRICS = 4


@dataclass(frozen=True)
class RuleVerdict:
    """What one rule says of every workload, over its life and now."""

    rule: Rule
    life: Truths
    now: Truths
    # Per GPU; kept only where any workload is in violation.
    gpus_life: Truths | None = None
    gpus_now: Truths | None = None
    # Which variant of the rule (override) each workload was judged by, and what each says.
    variant: NDArray[np.int64] | None = None
    clauses: Sequence[Clause] = ()


@dataclass(frozen=True)
class Evaluation:
    """Every verdict at one moment, and the numbers behind them."""

    time_ms: int
    layout: AllocationLayout
    verdicts: Sequence[RuleVerdict]
    condition_values: ConditionValues = field(repr=False)

    @property
    def workloads(self) -> list[str]:
        """The workloads in the order of the verdicts' arrays."""
        return [running.facts.workload for running in self.layout.running]


class StatisticsSource(Protocol):
    """Where an evaluator's numbers come from, and whose *now* it need not ask for."""

    def measure(self, time_ms: int, allocations: AllocationRows) -> ConditionValues:
        """Return the numbers of every GPU under evaluation at this moment."""

    @property
    def tells_no_from_unknown(self) -> bool:
        """Whether anybody sees why a rule does not hold over a life: refuted, or not judged."""

    def needs_now(self, rule: str) -> bool:
        """Return whether *now* is asked of a rule that nobody violates over the life."""

    def choose_concerned(
        self, rule: str, layout: AllocationLayout, life: Truths
    ) -> NDArray[np.bool_] | None:
        """Return whose *now* is asked for, per GPU; None for everybody's."""

    def forget(self, workloads: Sequence[str]) -> None:
        """Forget workloads that are evaluated no more."""


@dataclass
class OwnSketches:
    """The numbers that an evaluator sketches itself: everybody's, at any moment."""

    state: SketchState
    # Rules with open findings, while the past is judged: of the others nobody asks for *now*
    # unless a life is violated. None: live, where *now* is shown of everybody.
    open_rules: frozenset[str] | None = None

    def measure(self, time_ms: int, allocations: AllocationRows) -> ConditionValues:
        """Return the numbers of every GPU under evaluation at this moment."""
        state = self.state
        state.reserve()
        layout = allocations.layout()
        statistics = SketchedStatistics(time_ms, layout, allocations.room, state.sketches)
        return ConditionValues(time_ms, layout, allocations, statistics, state.newest_ms)

    @property
    def tells_no_from_unknown(self) -> bool:
        """Whether it is live: only there are verdicts shown."""
        return self.open_rules is None

    def needs_now(self, rule: str) -> bool:
        """Return True, live; in the past only where a finding may close."""
        return self.open_rules is None or rule in self.open_rules

    def choose_concerned(
        self, rule: str, layout: AllocationLayout, life: Truths
    ) -> NDArray[np.bool_] | None:
        """Return None: everybody's *now* is known."""
        return None

    def forget(self, workloads: Sequence[str]) -> None:
        """Keep nothing: there is nothing beside the sketches."""


class Evaluator(SketchState):
    """Streaming state of all workloads under a set of rules.

    With another source of numbers it sketches nothing itself and keeps no windows.
    """

    def __init__(self, rules: Iterable[Rule] = (), source: StatisticsSource | None = None) -> None:
        super().__init__()
        self.source: StatisticsSource = OwnSketches(self) if source is None else source
        self.rules: list[Rule] = []
        self._variants: dict[str, list[tuple[Any, Clause]]] = {}
        # Windows that the rules name.
        self._named: dict[str, WindowNeed] = {}
        if source is None:
            self.use(rules)
        else:
            self.use_as_they_are(rules)

    # -- rules
    def use_as_they_are(self, rules: Iterable[Rule]) -> None:
        """Evaluate by these rules, without keeping windows for them."""
        self.rules = [rule for rule in rules if rule.enabled]
        self._variants = {rule.id: rule.variants() for rule in self.rules}

    def use(self, rules: Iterable[Rule]) -> set[str]:
        """Evaluate by these rules from now on; return metrics whose windows start empty."""
        self.use_as_they_are(rules)
        self._named = needed = windows_of(self.rules)
        for metric in set(self.sketches.rings) - set(needed):
            self._drop_ring(metric)
        self._watched = {m: need for m, need in self._watched.items() if m in needed}
        fresh = {metric for metric, need in needed.items() if self._open_ring(metric, need)}
        return fresh if self.newest_ms else set()

    def watch(self, metric: str, need: WindowNeed) -> bool:
        """Keep windows that no rule names, for a while; True where they start empty."""
        self._watched[metric] = self._watched.pop(metric, need) | need
        for oldest in [m for m in self._watched if m not in self._named][:-WATCHED_METRICS]:
            del self._watched[oldest]
            self._drop_ring(oldest)
        return self._open_ring(metric, need) and bool(self.newest_ms)

    # -- samples
    def take(self, batch: SampleBatch, now_ms: int | None = None) -> int:
        """Take samples, but for those of a broken clock; returns how many values were taken."""
        if now_ms is not None and len(batch) and batch.time_ms.max() > now_ms + FUTURE_MS:
            batch = batch.rows(batch.time_ms <= now_ms + FUTURE_MS)
        return self.sketch(batch)

    # -- verdicts
    def measure(self, time_ms: int) -> ConditionValues:
        """Return the numbers of every GPU under evaluation at this moment."""
        found = self.source.measure(time_ms, self.allocations)
        self.newest_ms = found.newest_ms
        return found

    def evaluate(self, time_ms: int) -> Evaluation:
        """Return every rule on every workload; one that has ended gets its last verdict here."""
        condition_values = self.measure(time_ms)
        layout = condition_values.layout
        verdicts = [self._evaluate_rule(rule, condition_values) for rule in self.rules]
        for running in layout.running:
            if running.facts.end_ms is not None and running.facts.end_ms <= time_ms:
                self.allocations.finish(running)
        return Evaluation(time_ms, layout, verdicts, condition_values)

    def test(
        self, clause: Clause, time_ms: int, now_ms: int | None = None
    ) -> tuple[Truths, Truths]:
        """Return a clause that is no rule yet: its truth per workload and per GPU, as laid out."""
        condition_values = self.measure(time_ms)
        truths = condition_values.truth(clause.expression, now_ms)
        return quantify(clause.quantifier, truths, condition_values.layout), truths

    def _evaluate_rule(self, rule: Rule, condition_values: ConditionValues) -> RuleVerdict:
        chosen = _choose_variants(self._variants[rule.id], condition_values.layout)
        life, gpus_life = self._evaluate_variants(rule, condition_values, chosen, None)
        if not (life == TRUE).any() and not self.source.needs_now(rule.id):
            return RuleVerdict(rule, life, np.full(len(life), FALSE, np.uint8))
        concerned = self.source.choose_concerned(rule.id, condition_values.layout, life)
        if concerned is not None:
            condition_values.concern(concerned)
        now, gpus_now = self._evaluate_variants(rule, condition_values, chosen, rule.now_ms)
        if not ((life == TRUE).any() or (now == TRUE).any()):
            return RuleVerdict(rule, life, now)
        clauses = [clause for _, clause in self._variants[rule.id]]
        return RuleVerdict(
            rule=rule,
            life=life,
            now=now,
            gpus_life=gpus_life,
            gpus_now=gpus_now,
            variant=chosen,
            clauses=clauses,
        )

    def _evaluate_variants(
        self,
        rule: Rule,
        condition_values: ConditionValues,
        chosen: NDArray[np.int64],
        window: int | None,
    ) -> tuple[Truths, Truths]:
        """Return the rule's truth per workload and per GPU, each by the variant that judges it."""
        layout, knows_no = condition_values.layout, self.source.tells_no_from_unknown
        truths = np.full(len(layout.running), UNKNOWN, np.uint8)
        gpus = np.full(len(layout), UNKNOWN, np.uint8)
        for place, (override, clause) in enumerate(self._variants[rule.id]):
            mine = chosen == place
            if override is not None and not override.enabled:
                truths[mine] = FALSE
                continue
            if not mine.any():
                continue
            per_gpu = condition_values.truth(clause.expression, window)
            if window is None and not knows_no and not (per_gpu == TRUE).any():
                # A life that holds on no GPU holds for no workload.
                continue
            rows = mine[layout.workload]
            truths[mine] = quantify(clause.quantifier, per_gpu, layout)[mine]
            gpus[rows] = per_gpu[rows]
        return truths, gpus

    def sweep(self, time_ms: int) -> list[str]:
        """Forget workloads that ended long enough ago that no late sample will come."""
        gone = [
            name
            for name, running in self.allocations.by_name.items()
            if running.finished and (running.facts.end_ms or 0) + GRACE_MS < time_ms
        ]
        for name in gone:
            for row in self.allocations.forget(name):
                self.clear_row(row)
        self.source.forget(gone)
        return gone


def windows_of(rules: Iterable[Rule]) -> dict[str, WindowNeed]:
    """Return the trailing windows of each metric that the rules name, *now* included."""
    needed: dict[str, WindowNeed] = {}
    for rule in rules:
        for _, clause in rule.variants():
            for metric, need in windows_in(clause, rule.now_ms).items():
                needed[metric] = needed.get(metric, need) | need
    return needed


def windows_in(clause: Clause, now_ms: int) -> dict[str, WindowNeed]:
    """Return the trailing windows that one clause reads."""
    needed: dict[str, WindowNeed] = {}
    for condition in conditions(clause.expression):
        left = condition.left
        if isinstance(left, Series):
            window = left.window_ms or now_ms
            need = WindowNeed(window, window if needs_bins(left.statistic) else 0)
            needed[left.metric] = needed.get(left.metric, need) | need
    return needed


def _choose_variants(
    variants: Sequence[tuple[Any, Clause]], layout: AllocationLayout
) -> NDArray[np.int64]:
    """Return which variant judges each workload.

    The first override that matches it, else the last.
    """
    last = len(variants) - 1
    chosen = np.full(len(layout.running), last, np.int64)
    if last == 0:
        return chosen
    for place, running in enumerate(layout.running):
        facts = running.facts
        for number, (override, _) in enumerate(variants[:-1]):
            if override.matches(facts.partition, facts.project):
                chosen[place] = number
                break
    return chosen

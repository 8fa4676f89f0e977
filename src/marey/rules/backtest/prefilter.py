"""Whom a block of the past can concern at all: everybody else is not looked at, minute by minute.

A rule may hold for a workload somewhere in the block only if every condition that it needs may.
How far a whole-life statistic can move within a block is bounded without judging any moment of it;
what cannot be bounded cheaply may always hold. So nobody is left out wrongly, and most are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from marey.rules.backtest.metric_series import MetricHistory
from marey.rules.backtest.row_table import NOBODY
from marey.rules.definition import Rule
from marey.rules.engine.allocations import Facts
from marey.rules.engine.condition_values import MET_LATE_MS, ONE_TIME_FACTS, cost_of, same_text
from marey.rules.engine.three_valued import TRUE
from marey.rules.language.expressions import (
    And,
    Clause,
    Condition,
    Expression,
    Fact,
    Not,
    Quantifier,
    Quantity,
    Reach,
    Series,
    TextValues,
    conditions,
)
from marey.stats.sketches.sketch_reach import ROUNDING

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
# Facts that the scheduler states once for all; its state changes on the way.
_STEADY = frozenset(["user", "project", "partition", "qos", "experiment", "name"])


class Prefilter:
    """Chooses, block by block, the workloads that must be judged from here on."""

    def __init__(self, rules: Sequence[Rule], metric_history: MetricHistory) -> None:
        self._metric_history = metric_history
        self._clauses = [clause for rule in rules for _, clause in rule.variants()]
        # What happened before somebody was heard would not be known of them.
        self._everyone = any(_is_reported_clause(clause) for clause in self._clauses)
        self.heard: set[str] = set()

    def choose(self) -> list[str]:
        """Return who must be heard from the block at hand on, and was not before."""
        facts = self._metric_history.row_table.facts
        new = [n for n, known in facts.items() if known.workload not in self.heard]
        chosen = new if self._everyone else self._choose_variants(new)
        names = [facts[number].workload for number in chosen]
        self.heard.update(names)
        return names

    def _choose_variants(self, numbers: list[int]) -> list[int]:
        """Return those of these workloads for whom any clause may hold in the block."""
        owner = self._metric_history.row_table.owner[: self._metric_history.rows]
        rows = np.flatnonzero(np.isin(owner, np.array(numbers, np.int64)))
        who, place = np.unique(owner[rows], return_inverse=True)
        sizes = np.bincount(place, minlength=len(who))
        chosen = np.zeros(len(who), bool)
        for clause in self._clauses:
            held = self._can_hold(clause.expression, rows)
            count = np.bincount(place[held], minlength=len(who))
            chosen |= _can_suffice(clause.quantifier, count, sizes)
        return [int(number) for number in who[chosen]]

    def _can_hold(self, expression: Expression, rows: Longs) -> Flags:
        """Return per row whether the expression may be true of it at any mark of the block."""
        if isinstance(expression, Condition):
            return self._check_condition(expression, rows)
        if isinstance(expression, Not):
            return np.ones(len(rows), bool)
        every = isinstance(expression, And)
        held = np.full(len(rows), every)
        for part in sorted(expression.parts, key=cost_of):
            # Only of those for whom the parts before did not settle it.
            left = np.flatnonzero(held == every)
            held[left] = self._can_hold(part, rows[left])
        return held

    def _check_condition(self, condition: Condition, rows: Longs) -> Flags:
        left, op, right = condition.left, condition.op, condition.right
        if isinstance(left, Series) and isinstance(right, Quantity):
            if left.window_ms is None and left.over is None:
                low, high = self._metric_history.reach(left.metric, left.statistic, rows)
                return _can_compare(low, high, op, right.value)
        elif isinstance(left, Fact) and isinstance(right, Quantity) and left.name == "runtime":
            return _can_compare(
                np.zeros(len(rows)), self._find_longest_window(rows), op, right.value
            )
        elif isinstance(left, Fact) and isinstance(right, TextValues) and left.name in _STEADY:
            take, words = attrgetter(left.name), frozenset(right.words)
            truths = self._count_per_workload(lambda f: same_text(take(f), op, words), rows)
            return np.asarray(truths == TRUE)
        return np.ones(len(rows), bool)

    def _find_longest_window(self, rows: Longs) -> Floats:
        """Return how long each row's workload will have been watched at the end of the block, at
        most.
        """
        marks = self._metric_history.marks
        start = self._count_per_workload(
            lambda f: -np.inf if f.start_ms is None else f.start_ms, rows
        )
        end = self._count_per_workload(lambda f: np.inf if f.end_ms is None else f.end_ms, rows)
        first = self._find_first_sample()[self._metric_history.row_table.owner[rows]]
        # Before its first sample a workload counts as watched from its start.
        late = (first <= marks[0]) & (first - start > MET_LATE_MS)
        watched = np.minimum(end, marks[-1]) - np.where(late, first, start)
        return np.asarray(np.maximum(watched, 0.0))

    def _find_first_sample(self) -> Floats:
        """Return when the first sample of each workload came, by its number.

        Infinity where none did.
        """
        metric_history = self._metric_history
        owner, first = (
            metric_history.row_table.owner[: metric_history.rows],
            metric_history.first_ms[: metric_history.rows],
        )
        seen = np.full(max(metric_history.row_table.facts, default=0) + 1, np.inf)
        known = (owner != NOBODY) & (first > 0)
        np.minimum.at(seen, owner[known], first[known])
        return seen

    def _count_per_workload(self, take: Callable[[Facts], float], rows: Longs) -> Floats:
        row_table = self._metric_history.row_table
        who, place = np.unique(row_table.owner[rows], return_inverse=True)
        values = np.array([take(row_table.facts[number]) for number in who.tolist()], np.float64)
        return values[place]


def _is_reported_clause(clause: Clause) -> bool:
    lefts = (condition.left for condition in conditions(clause.expression))
    return any(isinstance(left, Fact) and left.name in ONE_TIME_FACTS for left in lefts)


def _can_compare(low: Floats, high: Floats, op: str, limit: float) -> Flags:
    """Return whether a number between two others may be on this side of a limit."""
    some = low <= high
    if op in (">", ">="):
        return np.asarray(some & (high >= limit))
    if op in ("<", "<="):
        return np.asarray(some & (low <= limit))
    return np.asarray(some if op == "!=" else (low <= limit) & (limit <= high))


def _can_suffice(quantifier: Quantifier, held: Longs, sizes: Longs) -> Flags:
    """Return whether so many GPUs of a workload may be enough."""
    if quantifier.reach is Reach.ALL:
        return np.asarray(held == sizes)
    if quantifier.reach is Reach.ALL_BUT_FIRST_RANK:
        return np.asarray(held >= sizes - 1)
    if quantifier.reach is Reach.AT_LEAST:
        return np.asarray(held >= quantifier.amount)
    if quantifier.reach is Reach.AT_LEAST_SHARE:
        return np.asarray(held >= sizes * quantifier.amount / 100 - ROUNDING)
    return np.asarray(held > 0)

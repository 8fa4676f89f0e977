"""Warnings about rules that say nothing: those that can never hold, and those that always do.

The expression is brought into a disjunction of conjunctions; each conjunction is checked for an
assignment, knowing each metric's range and that min ≤ p5 ≤ … ≤ max. No false alarm: what it cannot
decide it takes to be possible.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from marey.model.metrics import catalogue
from marey.rules.language.expressions import (
    And,
    Clause,
    Condition,
    Expression,
    Fact,
    Not,
    Or,
    Quantity,
    Reach,
    Series,
    TextValues,
)
from marey.rules.language.printer import expression_text
from marey.rules.language.vocabulary import FACTS, FactKind

# Beyond this many conjunctions a rule is too tangled to evaluator, and is not warned about.
LARGEST_FORM = 512

_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "!=", "!=": "="}
Conjunction = tuple[Condition, ...]


def warnings(clause: Clause) -> list[str]:
    """Return warnings for the author of a rule; empty when nothing is odd."""
    found = []
    if _find_impossible(clause.expression):
        found.append("This rule can never hold: its conditions contradict each other.")
    elif _find_impossible(Not(clause.expression)):
        found.append("This rule always holds wherever it can be judged.")
    if isinstance(clause.expression, Or):
        found += [
            f"This part can never hold: {expression_text(part)}."
            for part in clause.expression.parts
            if not found and _find_impossible(part)
        ]
    if clause.quantifier.reach is Reach.AT_LEAST and clause.quantifier.amount > 100_000:
        found.append("No workload has that many GPUs.")
    return found


def _find_impossible(expression: Expression) -> bool:
    form = _check_disjunction(expression, positive=True)
    return form is not None and not any(_find_possible(part) for part in form)


def _check_disjunction(expression: Expression, *, positive: bool) -> list[Conjunction] | None:
    if isinstance(expression, Condition):
        return [(_apply_sign(expression, positive),)]
    if isinstance(expression, Not):
        return _check_disjunction(expression.part, positive=not positive)
    parts = [_check_disjunction(part, positive=positive) for part in expression.parts]
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    if isinstance(expression, And) != positive:
        return list(itertools.chain.from_iterable(known))
    if math.prod(len(part) for part in known) > LARGEST_FORM:
        return None
    return [tuple(itertools.chain.from_iterable(c)) for c in itertools.product(*known)]


def _apply_sign(condition: Condition, positive: bool) -> Condition:
    return condition if positive else replace(condition, op=_OPPOSITE[condition.op])


@dataclass
class _Interval:
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def narrow(self, op: str, value: float) -> None:
        if op in (">", ">=", "="):
            self.raise_to(value, op == ">")
        if op in ("<", "<=", "="):
            self.lower_to(value, op == "<")

    def raise_to(self, value: float, is_open: bool) -> None:
        if (value, is_open) > (self.low, self.open_low):
            self.low, self.open_low = value, is_open

    def lower_to(self, value: float, is_open: bool) -> None:
        if (value, not is_open) < (self.high, not self.open_high):
            self.high, self.open_high = value, is_open

    @property
    def empty(self) -> bool:
        return self.low > self.high or (self.low == self.high and (self.open_low or self.open_high))


def _find_possible(conjunction: Conjunction) -> bool:
    intervals: dict[Series | Fact, _Interval] = {}
    for condition in conjunction:
        if isinstance(condition.right, Quantity):
            interval = intervals.setdefault(condition.left, _find_domain(condition.left))
            interval.narrow(condition.op, condition.right.value)
    _propagate(intervals)
    if any(interval.empty for interval in intervals.values()):
        return False
    return _find_possible_texts(conjunction)


def _find_domain(left: Series | Fact) -> _Interval:
    if isinstance(left, Fact):
        kind = FACTS[left.name].kind
        return _Interval(low=0.0) if kind is not FactKind.TEXT else _Interval()
    metric = catalogue()[left.metric]
    width = metric.maximum - metric.minimum
    name = left.statistic.name
    if name in ("share", "steadiness"):
        return _Interval(0.0, 100.0)
    if name == "trend":
        return _Interval()
    if name == "count":
        return _Interval(low=0.0)
    if name in ("range", "std"):
        return _Interval(0.0, width if name == "range" else width / 2)
    return _Interval(metric.minimum, metric.maximum)


def _propagate(intervals: dict[Series | Fact, _Interval]) -> None:
    """Let bounds flow along min ≤ percentiles ≤ max (and mean and last between the ends)."""
    groups: dict[object, list[tuple[float, float, _Interval]]] = {}
    for left, interval in intervals.items():
        if isinstance(left, Series) and left.statistic.name in ("min", "max", "p", "mean", "last"):
            key = (left.metric, left.window_ms, left.over)
            groups.setdefault(key, []).append((*_place(left), interval))
    for members in groups.values():
        for (_, upper, a), (lower, _, b) in itertools.permutations(members, 2):
            # ``a`` is never above ``b``.
            if upper <= lower:
                b.raise_to(a.low, a.open_low)
                a.lower_to(b.high, b.open_high)


def _place(series: Series) -> tuple[float, float]:
    """Return from which to which order the statistic may lie.

    Percentiles exactly, a mean anywhere.
    """
    name = series.statistic.name
    if name == "p":
        quantile = series.statistic.quantile or 0.0
        return quantile, quantile
    return {"min": (0.0, 0.0), "max": (100.0, 100.0)}.get(name, (0.0, 100.0))


def _find_possible_texts(conjunction: Iterable[Condition]) -> bool:
    allowed: dict[object, set[str]] = {}
    refused: dict[object, set[str]] = {}
    for condition in conjunction:
        if isinstance(condition.right, TextValues):
            words = set(condition.right.words)
            if condition.op == "=":
                allowed[condition.left] = allowed.get(condition.left, words) & words
            else:
                refused.setdefault(condition.left, set()).update(words)
    return all(words - refused.get(left, set()) for left, words in allowed.items())

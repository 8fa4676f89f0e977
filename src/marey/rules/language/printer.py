"""A rule's tree → the one text that reads back as the same tree."""

from __future__ import annotations

import re

from marey.model.metrics import catalogue
from marey.model.times import format_duration
from marey.rules.language.expressions import (
    Aggregation,
    And,
    Clause,
    Condition,
    Expression,
    Fact,
    NamedThreshold,
    Not,
    Or,
    Over,
    Peers,
    Quantifier,
    Quantity,
    Reach,
    Series,
    Statistic,
    Value,
)
from marey.rules.language.lexer import KEYWORDS, quote_text
from marey.rules.language.vocabulary import (
    FACT_UNITS,
    FACTS,
    FactKind,
    format_number,
    unit_of,
)

_BARE = re.compile(r"^[A-Za-z_][A-Za-z0-9_.\-]*$")


def rule_text(clause: Clause) -> str:
    """Return the clause as text."""
    head = quantifier_text(clause.quantifier)
    body = expression_text(clause.expression)
    return f"{head}: {body}" if head else body


def quantifier_text(quantifier: Quantifier) -> str:
    """Return the quantifier as it stands before the colon.

    Empty for ``any``, which is the default.
    """
    number = format_number(quantifier.amount)
    return {
        Reach.ANY: "",
        Reach.ALL: "all",
        Reach.AT_LEAST: f"at least {number} gpus",
        Reach.AT_LEAST_SHARE: f"at least {number}% of gpus",
        Reach.ALL_BUT_FIRST_RANK: "all but the first rank",
        Reach.ANY_NODE: "any node",
    }[quantifier.reach]


def expression_text(expression: Expression) -> str:
    """Return the expression as text, with parentheses wherever one combination is
    inside another.
    """
    if isinstance(expression, Condition):
        return condition_text(expression)
    if isinstance(expression, Not):
        return f"not {_print_inner(expression.part)}"
    word = " and " if isinstance(expression, And) else " or "
    return word.join(_print_inner(part) for part in expression.parts)


def _print_inner(expression: Expression) -> str:
    text = expression_text(expression)
    return f"({text})" if isinstance(expression, And | Or) else text


def condition_text(condition: Condition) -> str:
    """Return one condition, such as ``util p95[30m] > 90%``."""
    left = condition.left
    op = condition.op
    right = value_text(condition.right, left)
    if isinstance(left, Fact) and right.startswith("("):
        return f"{fact_text(left)} in {right}"
    return f"{fact_text(left) if isinstance(left, Fact) else series_text(left)} {op} {right}"


def fact_text(fact: Fact) -> str:
    """Return a fact with its window."""
    return fact.name + _print_window(fact.window_ms)


def series_text(series: Series) -> str:
    """Return a metric's statistic, such as ``power mean[30m] over node``."""
    statistic = statistic_text(series.statistic, series.metric)
    over = f" over {_print_over(series.over)}" if series.over else ""
    return f"{series.metric} {statistic}{_print_window(series.window_ms)}{over}"


def statistic_text(statistic: Statistic, metric: str) -> str:
    """Return a statistic as rules write it: ``mean``, ``p95`` or ``share(< 10%)``."""
    if statistic.name == "p":
        quantile = statistic.quantile or 0.0
        return "median" if quantile == 50 else f"p{format_number(quantile)}"
    if statistic.name == "share":
        limit = _print_amount(statistic.limit or 0.0, catalogue()[metric].unit)
        return f"share({statistic.op} {limit})"
    return statistic.name


def value_text(value: Value, left: Series | Fact) -> str:
    """Return a value with the unit of what it is compared with."""
    if isinstance(value, NamedThreshold):
        return f"${value.name}"
    if isinstance(value, Peers):
        return _print_peers(value, left)
    if isinstance(value, Quantity):
        return _print_quantity(value.value, left)
    words = [
        w if _BARE.match(w) and w.lower() not in KEYWORDS else quote_text(w) for w in value.words
    ]
    return words[0] if len(words) == 1 else f"({', '.join(words)})"


def _print_quantity(value: float, left: Series | Fact) -> str:
    if isinstance(left, Series):
        return _print_amount(value, unit_of(catalogue()[left.metric], left.statistic))
    if FACTS[left.name].kind is FactKind.DURATION:
        return format_duration(value)
    return _print_amount(value, FACT_UNITS.get(left.name, ""))


def _print_amount(value: float, unit: str) -> str:
    # "5/h" would be read as a division: a trend of a plain number is written bare, per hour.
    if not unit or unit == "/h":
        return format_number(value)
    return f"{format_number(value)}{'' if unit.startswith('%') else ' '}{unit}"


def _print_peers(peers: Peers, left: Series | Fact) -> str:
    factor = "" if peers.factor == 1 else f"{format_number(peers.factor)} * "
    text = f"{factor}{_print_over(peers.over)}"
    if peers.offset == 0:
        return text
    sign = "-" if peers.offset < 0 else "+"
    return f"{text} {sign} {_print_quantity(abs(peers.offset), left)}"


def _print_over(over: Over) -> str:
    return over.group if over.by is Aggregation.MEDIAN else f"{over.group} {over.by}"


def _print_window(window_ms: int | None) -> str:
    return f"[{format_duration(window_ms)}]" if window_ms else ""

"""Queries to and from Hatchet's object dialect.

Hatchet writes a path as a list: ``["*", {"name": "MPI_.*"}, (2, {"time (inc)": "> 5"})]``. Names
are regular expressions there. Those that a wildcard can say are converted; any other is refused,
because a query of ours is never code and never backtracks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from marey.callgraph.queries.query import (
    AllOf,
    AnyOf,
    PathMatch,
    Query,
    Step,
    parse_query,
    query_document,
)
from marey.model.errors import InvalidInput, shown
from marey.model.predicates import Comparison

# Our field → Hatchet's column.
COLUMNS = {"inclusive": "time (inc)", "exclusive": "time", "kind": "type"}
FIELDS = {column: field for field, column in COLUMNS.items()}
_NUMBER = re.compile(r"^\s*(==|>=|<=|>|<)\s*([-+0-9.eE]+)\s*$")
_OPERATIONS = {"==": "eq", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
_SIGNS = {op: sign for sign, op in _OPERATIONS.items()}
_SPECIAL = set("[](){}+?^$|")
_TIMES = ("inclusive", "exclusive")


def from_hatchet(query: Sequence[Any], *, unit_ns: float = 1e9) -> PathMatch:
    """Convert a query of Hatchet's; ``unit_ns`` is what one of its units of time is."""
    if isinstance(query, str) or not isinstance(query, Sequence):
        raise InvalidInput("A Hatchet query of the object dialect is a list of steps.")
    steps = tuple(_step(step, unit_ns) for step in query)
    # Through the parser: what it refuses is refused here too.
    parsed = parse_query(query_document(PathMatch(steps)))
    assert isinstance(parsed, PathMatch)
    return parsed


def _step(step: Any, unit_ns: float) -> Step:
    if isinstance(step, Mapping):
        return Step(_filter(step, unit_ns))
    if isinstance(step, str | int):
        return Step(None, _repeat(step))
    if isinstance(step, Sequence) and len(step) == 2 and isinstance(step[1], Mapping):
        return Step(_filter(step[1], unit_ns), _repeat(step[0]))
    raise InvalidInput(f"'{shown(step)}' is no step; allowed: '.', '*', '+', n, or with a filter.")


def _repeat(word: Any) -> int | str:
    if word in ("*", "+"):
        return str(word)
    if word == ".":
        return 1
    if isinstance(word, int) and not isinstance(word, bool):
        return word
    raise InvalidInput(f"'{shown(word)}' is no quantifier; allowed: '.', '*', '+' or a number.")


def _filter(conditions: Mapping[str, Any], unit_ns: float) -> Query:
    parts = tuple(_condition(str(k), v, unit_ns) for k, v in conditions.items())
    return parts[0] if len(parts) == 1 else AllOf(parts)


def _condition(column: str, value: Any, unit_ns: float) -> Query:
    field = FIELDS.get(column, column)
    factor = unit_ns if field in _TIMES else 1.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Comparison(field, "eq", value * factor)
    if not isinstance(value, str):
        raise InvalidInput(f"The filter on '{shown(column)}' has {shown(value)}; allowed: a text.")
    if found := _NUMBER.match(value):
        return Comparison(field, _OPERATIONS[found[1]], float(found[2]) * factor)
    return _pattern(field, value)


def _pattern(field: str, expression: str) -> Query:
    """Convert a regular expression that a wildcard, a list or our text tests can say."""
    if expression.startswith("(?i)"):
        return _regardless_of_case(field, expression[4:])
    body = expression[1:-1] if _is_group(expression) else expression
    branches = [_wildcard(part) for part in _branches(body)]
    tests = [Comparison(field, "like" if wild else "eq", text) for text, wild in branches]
    if len(tests) == 1:
        return tests[0]
    if all(test.op == "eq" for test in tests):
        return Comparison(field, "in", [test.value for test in tests])
    return AnyOf(tuple(tests))


def _is_group(expression: str) -> bool:
    return expression.startswith("(") and expression.endswith(")") and "(" not in expression[1:]


def _branches(expression: str) -> list[str]:
    parts, now, skip = [], "", False
    for letter in expression:
        if letter == "|" and not skip:
            parts.append(now)
            now = ""
            continue
        skip = letter == "\\" and not skip
        now += letter
    return [*parts, now]


def _wildcard(expression: str) -> tuple[str, bool]:
    """Return the text with wildcards, and whether it has any."""
    expression = expression.removeprefix("^")
    if expression.endswith("$") and not expression.endswith("\\$"):
        expression = expression[:-1]
    out, wild, at = "", False, 0
    while at < len(expression):
        letter = expression[at]
        if letter == "\\" and at + 1 < len(expression) and not expression[at + 1].isalnum():
            out, at = out + _literal(expression[at + 1]), at + 2
        elif letter == ".":
            many = expression[at + 1 : at + 2] == "*"
            out, at, wild = out + ("*" if many else "?"), at + 1 + many, True
        elif letter in _SPECIAL or letter in "*\\":
            raise InvalidInput(
                f"The expression '{shown(expression)}' cannot be converted at '{letter}'; "
                "allowed: texts, '.', '.*', '|' and escaped characters."
            )
        else:
            out, at = out + _literal(letter), at + 1
    return out, wild


def _literal(letter: str) -> str:
    if letter in "*?":
        raise InvalidInput(f"A name with '{letter}' cannot be distinguished from a wildcard.")
    return letter


def _regardless_of_case(field: str, expression: str) -> Query:
    text, _ = _wildcard(expression)
    inner = text.strip("*")
    if text == f"*{inner}*" and "?" not in inner and "*" not in inner:
        return Comparison(field, "contains", inner)
    if text == f"{inner}*" and "?" not in inner and "*" not in inner:
        return Comparison(field, "prefix", inner)
    raise InvalidInput(f"The expression '(?i){shown(expression)}' cannot be converted.")


def to_hatchet(query: Query, *, unit_ns: float = 1e9) -> list[Any]:
    """Convert a path query to Hatchet's object dialect; refuse what it cannot say."""
    if not isinstance(query, PathMatch) or query.select != "all":
        raise InvalidInput("Only a path that selects all of its call sites is a Hatchet query.")
    return [_hatchet_step(step, unit_ns) for step in query.steps]


def _hatchet_step(step: Step, unit_ns: float) -> Any:
    repeat = "." if step.repeat == 1 else step.repeat
    if step.where is None:
        return repeat
    parts = step.where.parts if isinstance(step.where, AllOf) else (step.where,)
    filters: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, Comparison):
            raise InvalidInput("Hatchet's filters join conditions by 'and' only.")
        column = COLUMNS.get(part.field, part.field)
        if column in filters:
            raise InvalidInput(f"Hatchet takes one condition per column; '{column}' has two.")
        filters[column] = _hatchet_condition(part, unit_ns)
    return filters if repeat == "." else (repeat, filters)


def _hatchet_condition(part: Comparison, unit_ns: float) -> Any:
    value = part.value
    if isinstance(value, str):
        forms = {
            "eq": re.escape(value),
            "like": "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in value),
            "prefix": f"(?i){re.escape(value)}.*",
            "contains": f"(?i).*{re.escape(value)}.*",
        }
        if part.op in forms:
            return forms[part.op]
    if part.op == "in" and all(isinstance(one, str) for one in value):
        return f"({'|'.join(re.escape(one) for one in value)})"
    if part.op in _SIGNS and isinstance(value, int | float):
        number = value / unit_ns if part.field in _TIMES else value
        return f"{_SIGNS[part.op]} {number!r}"
    raise InvalidInput(f"Hatchet has no '{part.op}' of {shown(value)}.")

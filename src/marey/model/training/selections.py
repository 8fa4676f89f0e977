"""What is looked at in a run, as text: one form for addresses, the command line and notebooks.

``rank=3,7-9 and step=5 and kind=collective and module^="blocks.0" and time=12.5..20`` selects what
satisfies every clause; the predicate JSON of the rest of Marey is taken too. A table is
restricted by the clauses whose fields it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from marey.model.errors import InvalidInput, shown, unknown
from marey.model.predicates import (
    EVERYTHING,
    And,
    Comparison,
    Not,
    Or,
    Predicate,
    matches,
    parse_predicate,
    select,
)

# Time is in milliseconds of the step; an operator is its number or its name.
FIELDS = (
    *("step", "rank", "stage", "operator", "name", "module", "kind", "time", "phase", "host"),
    "micro_batch",
)
NUMBERS = ("step", "rank", "stage", "micro_batch")
LONGEST_SELECTION = 20_000
RowT = TypeVar("RowT", bound=Mapping[str, object])
# A list of ranges may name this many values: more is a range of its own.
MOST_VALUES = 10_000
_CLAUSE = re.compile(
    r"\s*([A-Za-z_]+)\s*(\^=|!=|<=|>=|=|<|>|~)\s*"
    r"((?:\"(?:[^\"\\]|\\.)*\"|[^\s,\"]+)(?:\s*,\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s,\"]+))*)\s*"
)
_VALUE = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]+)")
_AND = re.compile(r"and\b\s*|&&?\s*", re.IGNORECASE)
_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})$")
_SPAN = re.compile(r"(-?[0-9.]+(?:e-?[0-9]+)?)?\.\.(-?[0-9.]+(?:e-?[0-9]+)?)?$", re.IGNORECASE)
_OPERATORS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "~": "contains", "^=": "prefix"}


def parse_selection(text: str) -> Predicate:
    """Return the predicate of a selection's text; an empty text selects everything."""
    if len(text) > LONGEST_SELECTION:
        raise InvalidInput(
            f"The selection has {len(text)} characters; allowed: {LONGEST_SELECTION}."
        )
    if not text.strip():
        return EVERYTHING
    if text.lstrip().startswith("{"):
        return parse_predicate(text, FIELDS)
    parts: list[Predicate] = []
    at = 0
    while at < len(text):
        found = _CLAUSE.match(text, at)
        if found is None:
            raise _make_error(text[at:])
        parts.append(_parse_clause(*found.groups()))
        at = found.end()
        if at < len(text):
            joint = _AND.match(text, at)
            if joint is None:
                raise _make_error(text[at:])
            at = joint.end()
    return And(tuple(parts))


def _make_error(rest: str) -> InvalidInput:
    return InvalidInput(
        f"The selection cannot be read at '{shown(rest)}'; "
        'allowed: clauses such as rank=3,7-9 and module^="blocks.0" and time=12.5..20.'
    )


def _parse_clause(field: str, sign: str, listed: str) -> Predicate:
    field = field.lower()
    if field not in FIELDS:
        raise InvalidInput(unknown("field", field, FIELDS))
    values = [
        (quoted.replace('\\"', '"').replace("\\\\", "\\"), True) if plain == "" else (plain, False)
        for quoted, plain in _VALUE.findall(listed)
    ]
    if sign in _OPERATORS:
        if len(values) != 1:
            raise InvalidInput(f"{field}{sign} takes one value, not {len(values)}.")
        text, quoted = values[0]
        op = _OPERATORS[sign]
        as_text = quoted or op in ("contains", "prefix")
        return Comparison(field, op, text if as_text else _as_value(field, text))
    found = Or(tuple(part for text, quoted in values for part in _equal(field, text, quoted)))
    chosen: Predicate = found.parts[0] if len(found.parts) == 1 else found
    return Not(chosen) if sign == "!=" else chosen


def _equal(field: str, text: str, quoted: bool) -> list[Predicate]:
    if not quoted and (span := _SPAN.match(text)):
        return [_between(field, span.group(1), span.group(2))]
    if not quoted and (pair := _RANGE.match(text)):
        low, high = sorted(map(int, pair.groups()))
        return [Comparison(field, "between", [low, high])]
    return [Comparison(field, "eq", text if quoted else _as_value(field, text))]


def _between(field: str, low: str | None, high: str | None) -> Predicate:
    try:
        first = float(low) if low else None
        last = float(high) if high else None
    except ValueError:
        raise _make_error(f"{field}={low}..{high}") from None
    if first is not None and last is not None:
        return Comparison(field, "between", [first, last])
    if first is not None:
        return Comparison(field, "ge", first)
    return Comparison(field, "le", last) if last is not None else EVERYTHING


def _as_value(field: str, text: str) -> Any:
    if re.fullmatch(r"-?[0-9]{1,15}", text):
        return int(text)
    if field == "time" or re.fullmatch(r"-?[0-9]*\.[0-9]+", text):
        try:
            return float(text)
        except ValueError:
            raise InvalidInput(f"{field} is '{shown(text)}'; allowed: a number.") from None
    if field in NUMBERS:
        raise InvalidInput(f"{field} is '{shown(text)}'; allowed: a whole number.")
    return text


def restrict(predicate: Predicate, fields: frozenset[str]) -> Predicate:
    """Return the part of a predicate that speaks of these fields; the rest holds for all."""
    if isinstance(predicate, And):
        return And(tuple(restrict(part, fields) for part in predicate.parts))
    if isinstance(predicate, Or):
        parts = tuple(restrict(part, fields) for part in predicate.parts)
        return EVERYTHING if EVERYTHING in parts else Or(parts)
    if isinstance(predicate, Not):
        part = restrict(predicate.part, fields)
        return EVERYTHING if part == EVERYTHING else Not(part)
    return predicate if predicate.field in fields else EVERYTHING


def select_rows(table: pa.Table, where: str | Predicate, **columns: Any) -> pa.Table:
    """Return the rows of a table that a selection means.

    ``columns`` are fields that the table lacks but whose values are known (``stage`` of each rank).
    """
    predicate = parse_selection(where) if isinstance(where, str) else where
    if predicate == EVERYTHING:
        return table
    wider = table
    for name, values in columns.items():
        if name not in wider.column_names:
            wider = wider.append_column(name, pa.array(values))
    kept = select(restrict(predicate, frozenset(wider.column_names)), wider)
    return table.filter(pa.array(np.asarray(kept)))


def select_documents(rows: list[RowT], where: str) -> list[RowT]:
    """Return the rows of a JSON document that a selection means."""
    predicate = parse_selection(where)
    if predicate == EVERYTHING or not rows:
        return rows
    known = restrict(predicate, frozenset(rows[0]))
    return [row for row in rows if matches(known, row)]


def find_values(predicate: Predicate, field: str) -> set[int] | None:
    """Return the numbers that a field must be one of; None where the selection does not say."""
    if isinstance(predicate, And):
        found = [v for part in predicate.parts if (v := find_values(part, field)) is not None]
        return set.intersection(*found) if found else None
    if isinstance(predicate, Or):
        parts = [find_values(part, field) for part in predicate.parts]
        named = [part for part in parts if part is not None]
        return set().union(*named) if named and len(named) == len(parts) else None
    if isinstance(predicate, Not) or predicate.field != field:
        return None
    return _numbers(predicate)


def _numbers(comparison: Comparison) -> set[int] | None:
    if comparison.op == "eq" and isinstance(comparison.value, int):
        return {comparison.value}
    if comparison.op == "in":
        return {value for value in comparison.value if isinstance(value, int)}
    if comparison.op == "between":
        low, high = comparison.value
        if high - low <= MOST_VALUES:
            return set(range(int(np.ceil(low)), int(np.floor(high)) + 1))
    return None

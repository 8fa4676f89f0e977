"""One predicate form for filters everywhere: JSON that Python, TypeScript and people read alike.

``{"field": "user", "op": "eq", "value": "ada"}``, combined by ``{"and": […]}``, ``{"or": […]}``
and ``{"not": …}``. A comparison with a missing value is false; ``missing`` tests for that.
``tests/golden/predicates.json`` holds the cases that both evaluators must agree on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, shown, unknown

_HALF = re.compile("[\ud800-\udfff]")
DEPTH_LIMIT = 32
LIST_LIMIT = 10_000

ORDERED = ("lt", "le", "gt", "ge")
OPERATORS = ("eq", "ne", *ORDERED, "in", "between", "contains", "prefix", "missing")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field against one value."""

    field: str
    op: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class And:
    """True when every part is; true when there is none."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True when any part is; false when there is none."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True when its part is false."""

    part: Predicate


Predicate = Comparison | And | Or | Not
EVERYTHING: Predicate = And(())


def parse_predicate(document: object, fields: Collection[str] | None = None) -> Predicate:
    """Check a JSON document (or its text) and return it as a predicate; errors say where."""
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"The filter is not JSON: {error}.") from None
    return _parse(document, "$", fields, 0)


def _parse(node: object, place: str, fields: Collection[str] | None, depth: int) -> Predicate:
    if depth > DEPTH_LIMIT:
        raise InvalidInput(f"The filter at {place[:80]}… is nested deeper than {DEPTH_LIMIT}.")
    if not isinstance(node, dict):
        raise _make_error(
            place, node, 'an object such as {"field": "user", "op": "eq", "value": "ada"}'
        )
    keys = set(node)
    if keys == {"and"} or keys == {"or"}:
        word = next(iter(keys))
        parts = node[word]
        if not isinstance(parts, list) or len(parts) > LIST_LIMIT:
            raise _make_error(f"{place}.{word}", parts, "a list of filters")
        parsed = tuple(
            _parse(part, f"{place}.{word}[{i}]", fields, depth + 1) for i, part in enumerate(parts)
        )
        return And(parsed) if word == "and" else Or(parsed)
    if keys == {"not"}:
        return Not(_parse(node["not"], f"{place}.not", fields, depth + 1))
    return _parse_comparison(node, place, fields)


def _parse_comparison(
    node: Mapping[str, object], place: str, fields: Collection[str] | None
) -> Comparison:
    if set(node) - {"field", "op", "value"} or not {"field", "op"} <= set(node):
        raise _make_error(
            place, sorted(node), "'field', 'op' and 'value', or one of 'and', 'or', 'not'"
        )
    name, op, value = node["field"], node["op"], node.get("value")
    if not isinstance(name, str):
        raise _make_error(f"{place}.field", name, "text")
    if fields is not None and name not in fields and not name.startswith("attributes."):
        raise InvalidInput(f"At {place}.field: {unknown('field', name, fields)}")
    if not isinstance(op, str) or op not in OPERATORS:
        raise InvalidInput(f"At {place}.op: {unknown('operator', op, OPERATORS)}")
    _check_value(op, value, f"{place}.value")
    return Comparison(name, op, value)


def _check_value(op: str, value: object, place: str) -> None:
    if op == "missing":
        good = value is None or isinstance(value, bool)
        wanted = "true or false"
    elif op == "in":
        good = isinstance(value, list) and len(value) <= LIST_LIMIT and all(map(_is_scalar, value))
        wanted = "a list of texts or numbers"
    elif op == "between":
        good = isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
        wanted = "two numbers, [low, high]"
    elif op in ("contains", "prefix"):
        good, wanted = _is_text(value), "text"
    elif op in ORDERED:
        good, wanted = _is_number(value) or _is_text(value), "a number or text"
    else:
        good, wanted = _is_scalar(value), "text, a number, true or false"
    if not good:
        raise _make_error(place, value, wanted)


def _is_number(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        # A database has no larger ones.
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, float) and value == value


def _is_text(value: object) -> bool:
    """Return whether this is text that can be written: JSON also has halves of characters."""
    return isinstance(value, str) and not _HALF.search(value)


def _is_scalar(value: object) -> bool:
    return isinstance(value, bool) or _is_text(value) or _is_number(value)


def _make_error(place: str, value: object, wanted: str) -> InvalidInput:
    return InvalidInput(f"The filter at {place} has {shown(value)}; allowed: {wanted}.")


def to_json(predicate: Predicate) -> dict[str, Any]:
    """Return the predicate as the JSON document that it is parsed from."""
    if isinstance(predicate, And):
        return {"and": [to_json(part) for part in predicate.parts]}
    if isinstance(predicate, Or):
        return {"or": [to_json(part) for part in predicate.parts]}
    if isinstance(predicate, Not):
        return {"not": to_json(predicate.part)}
    return {"field": predicate.field, "op": predicate.op, "value": predicate.value}


def matches(predicate: Predicate, row: Mapping[str, Any]) -> bool:
    """Return whether one row, a mapping from field to value, satisfies the predicate."""
    if isinstance(predicate, And):
        return all(matches(part, row) for part in predicate.parts)
    if isinstance(predicate, Or):
        return any(matches(part, row) for part in predicate.parts)
    if isinstance(predicate, Not):
        return not matches(predicate.part, row)
    return _compare(predicate, _get_field(row, predicate.field))


def _get_field(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    head, _, rest = name.partition(".")
    nested = row.get(head)
    return nested.get(rest) if rest and isinstance(nested, Mapping) else None


def _compare(comparison: Comparison, actual: Any) -> bool:
    op, value = comparison.op, comparison.value
    absent = actual is None or (isinstance(actual, float) and actual != actual)
    if op == "missing":
        return absent == (value is not False)
    if absent:
        return False
    if isinstance(actual, list | tuple):
        # A list field (the workloads that share a GPU) holds when any of its values does.
        return any(_compare(comparison, item) for item in actual)
    return _TESTS[op](actual, value)


def _is_same_kind(actual: Any, value: Any) -> bool:
    return isinstance(actual, str) == isinstance(value, str) and isinstance(
        actual, bool
    ) == isinstance(value, bool)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, v: _is_same_kind(a, v) and bool(a == v),
    "ne": lambda a, v: not (_is_same_kind(a, v) and bool(a == v)),
    "lt": lambda a, v: _is_same_kind(a, v) and bool(a < v),
    "le": lambda a, v: _is_same_kind(a, v) and bool(a <= v),
    "gt": lambda a, v: _is_same_kind(a, v) and bool(a > v),
    "ge": lambda a, v: _is_same_kind(a, v) and bool(a >= v),
    "in": lambda a, v: any(_is_same_kind(a, item) and a == item for item in v),
    "between": lambda a, v: not isinstance(a, str) and bool(v[0] <= a <= v[1]),
    "contains": lambda a, v: isinstance(a, str) and v.casefold() in a.casefold(),
    "prefix": lambda a, v: isinstance(a, str) and a.casefold().startswith(v.casefold()),
}


def select(predicate: Predicate, table: pa.Table) -> NDArray[np.bool_]:
    """Return which rows of an Arrow table satisfy the predicate: one test per distinct value."""
    rows = table.num_rows
    if isinstance(predicate, And):
        kept = np.ones(rows, bool)
        for part in predicate.parts:
            kept &= select(part, table)
        return kept
    if isinstance(predicate, Or):
        kept = np.zeros(rows, bool)
        for part in predicate.parts:
            kept |= select(part, table)
        return kept
    if isinstance(predicate, Not):
        return ~select(predicate.part, table)
    if predicate.field not in table.column_names:
        return np.full(rows, _compare(predicate, None))
    encoded = pc.dictionary_encode(
        table.column(predicate.field).combine_chunks(), null_encoding="encode"
    )
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    verdicts = np.array([_compare(predicate, v) for v in encoded.dictionary.to_pylist()], bool)
    return verdicts[encoded.indices.to_numpy(zero_copy_only=False)] if rows else np.zeros(0, bool)

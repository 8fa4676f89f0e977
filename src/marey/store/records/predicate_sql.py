"""Predicates as SQL conditions, so that the database need not hand over a million rows."""

from __future__ import annotations

import pyarrow as pa

from marey.model.predicates import And, Comparison, Not, Or, Predicate

_ORDERED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def compile_predicate(
    predicate: Predicate, schema: pa.Schema, values: dict[str, object]
) -> str | None:
    """Return the condition, its values added to ``values``; None where SQL cannot say the same.

    A comparison with a missing value is false, as everywhere: never unknown, also under a "not".
    """
    if isinstance(predicate, Comparison):
        return _compile_comparison(predicate, schema, values)
    if isinstance(predicate, Not):
        part = compile_predicate(predicate.part, schema, values)
        return None if part is None else f"NOT {part}"
    parts = [compile_predicate(part, schema, values) for part in predicate.parts]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if isinstance(predicate, And):
        return f"({' AND '.join(known)})" if known else "true"
    assert isinstance(predicate, Or)
    return f"({' OR '.join(known)})" if known else "false"


def _compile_comparison(
    comparison: Comparison, schema: pa.Schema, values: dict[str, object]
) -> str | None:
    field, op, value = comparison.field, comparison.op, comparison.value
    place = schema.get_field_index(field)
    if place < 0:
        return None
    kind = schema.field(place).type
    textual = pa.types.is_string(kind) or pa.types.is_dictionary(kind)
    column = f'"{field}"'
    if op == "missing":
        return None
    given = value if op in ("in", "between") and isinstance(value, list | tuple) else [value]
    # A text against a number, or the other way round, is for the one evaluator to judge.
    if not all(isinstance(each, str) == textual and not isinstance(each, bool) for each in given):
        return None
    if not textual and not all(isinstance(each, int | float) for each in given):
        return None
    name = f"p{len(values)}"
    values[name] = list(given) if op == "in" else value
    if op == "in":
        condition = f"{column} IN (SELECT unnest(${name}))"
    elif op in ("eq", "ne"):
        condition = f"{column} {'=' if op == 'eq' else '<>'} ${name}"
    elif op in _ORDERED:
        condition = f"{column} {_ORDERED[op]} ${name}"
    elif op == "between":
        values[name], values[f"{name}b"] = value
        condition = f"{column} BETWEEN ${name} AND ${name}b"
    elif op in ("contains", "prefix") and value.isascii():
        test = "contains" if op == "contains" else "starts_with"
        values[name] = value.lower()
        condition = f"{test}(lower({column}), ${name})"
    else:
        # Other alphabets fold their cases in ways that the database does not know.
        del values[name]
        return None
    return f"coalesce({condition}, false)"

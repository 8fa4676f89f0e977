"""The JSON form of a rule's clause, and the schema of both forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marey.model.errors import InvalidInput, shown, unknown
from marey.model.metrics import catalogue
from marey.model.times import format_duration
from marey.rules.language.expressions import (
    GROUPS_OF_GPUS,
    ORDER_OPS,
    Aggregation,
    And,
    Clause,
    Condition,
    Expression,
    Fact,
    Not,
    Or,
    Over,
    Quantifier,
    Quantity,
    Reach,
    Series,
    TextValues,
    Value,
)
from marey.rules.language.lexer import RuleError
from marey.rules.language.parser import CONDITION_LIMIT, DEPTH_LIMIT, parse_rule
from marey.rules.language.printer import rule_text, statistic_text, value_text
from marey.rules.language.vocabulary import FACTS, STATISTIC_WORDS

_CONDITION_KEYS = {"metric", "statistic", "window", "over", "fact", "op", "value"}


def clause_document(clause: Clause) -> dict[str, Any]:
    """Return the clause as JSON.

    ``{"gpus": …, "when": …}``, values in the words of the text form.
    """
    quantifier: dict[str, Any] = {"reach": clause.quantifier.reach.value}
    if clause.quantifier.amount:
        quantifier["amount"] = clause.quantifier.amount
    return {"gpus": quantifier, "when": expression_document(clause.expression)}


def expression_document(expression: Expression) -> dict[str, Any]:
    """Return an expression as JSON, shaped like the filters: and, or, not, or one condition."""
    if isinstance(expression, And):
        return {"and": [expression_document(part) for part in expression.parts]}
    if isinstance(expression, Or):
        return {"or": [expression_document(part) for part in expression.parts]}
    if isinstance(expression, Not):
        return {"not": expression_document(expression.part)}
    return _write_condition(expression)


def _write_condition(condition: Condition) -> dict[str, Any]:
    left = condition.left
    document: dict[str, Any]
    if isinstance(left, Fact):
        document = {"fact": left.name}
    else:
        document = {
            "metric": left.metric,
            "statistic": statistic_text(left.statistic, left.metric),
        }
        if left.over:
            document["over"] = _print_over(left.over)
    if left.window_ms:
        document["window"] = format_duration(left.window_ms)
    return document | {"op": condition.op, "value": _write_value(condition.right, left)}


def _write_value(value: Value, left: Series | Fact) -> Any:
    return list(value.words) if isinstance(value, TextValues) else value_text(value, left)


def _print_over(over: Over) -> str:
    return over.group if over.by is Aggregation.MEDIAN else f"{over.group} {over.by}"


def parse_clause(document: object) -> Clause:
    """Check a JSON clause and return its tree; errors name the place in the document."""
    if not isinstance(document, Mapping) or set(document) - {"gpus", "when"}:
        raise _make_error("$", document, "an object with 'when' and optionally 'gpus'")
    quantifier = _read_quantifier(document.get("gpus", {"reach": "any"}))
    budget = [CONDITION_LIMIT]
    return Clause(_read_expression(document.get("when"), "$.when", 0, budget), quantifier)


def _read_quantifier(document: object) -> Quantifier:
    if not isinstance(document, Mapping) or set(document) - {"reach", "amount"}:
        raise _make_error(
            "$.gpus", document, 'an object such as {"reach": "at_least", "amount": 2}'
        )
    reach = document.get("reach")
    if reach not in list(Reach):
        raise InvalidInput(f"At $.gpus.reach: {unknown('reach', reach, list(Reach))}")
    amount = document.get("amount", 0)
    needs = reach in (Reach.AT_LEAST, Reach.AT_LEAST_SHARE)
    good = isinstance(amount, int | float) and not isinstance(amount, bool)
    if not good or (needs and not amount > 0) or (not needs and amount != 0):
        raise _make_error("$.gpus.amount", amount, "a number above 0, with 'at_least…' only")
    # The text form knows the limits of each; let it evaluator.
    return parse_rule(
        rule_text(Clause(_ANY_CONDITION, Quantifier(Reach(reach), float(amount))))
    ).quantifier


_ANY_CONDITION = Condition(Fact("gpus"), ">", Quantity(0.0))


def _read_expression(node: object, place: str, depth: int, budget: list[int]) -> Expression:
    if depth > DEPTH_LIMIT:
        raise InvalidInput(f"The rule at {place[:80]}… is nested deeper than {DEPTH_LIMIT}.")
    if not isinstance(node, Mapping):
        raise _make_error(place, node, "an object: a condition, or one of 'and', 'or', 'not'")
    keys = set(node)
    if keys in ({"and"}, {"or"}):
        word = next(iter(keys))
        parts = node[word]
        if not isinstance(parts, list) or not 2 <= len(parts) <= CONDITION_LIMIT:
            raise _make_error(f"{place}.{word}", parts, f"a list of 2 to {CONDITION_LIMIT} parts")
        parsed = tuple(
            _read_expression(part, f"{place}.{word}[{i}]", depth + 1, budget)
            for i, part in enumerate(parts)
        )
        return And(parsed) if word == "and" else Or(parsed)
    if keys == {"not"}:
        return Not(_read_expression(node["not"], f"{place}.not", depth + 1, budget))
    budget[0] -= 1
    if budget[0] < 0:
        raise InvalidInput(f"The rule has more than {CONDITION_LIMIT} conditions.")
    return _read_condition(node, place)


def _read_condition(node: Mapping[str, Any], place: str) -> Expression:
    if set(node) - _CONDITION_KEYS or ("metric" in node) == ("fact" in node):
        raise _make_error(place, sorted(map(str, node)), "'metric' or 'fact', 'op' and 'value'")
    for key, value in node.items():
        if key == "value" and isinstance(value, list):
            if not value or not all(isinstance(word, str) for word in value):
                raise _make_error(f"{place}.value", value, "a list of texts")
        elif not isinstance(value, str | int | float) or isinstance(value, bool):
            raise _make_error(f"{place}.{key}", value, "text or a number")
    text = _print_condition(node)
    try:
        expression = parse_rule(text).expression
    except RuleError as error:
        raise InvalidInput(f"At {place} ('{shown(text)}'): {error.reason}") from None
    inner = expression.part if isinstance(expression, Not) else expression
    if not isinstance(inner, Condition):
        raise _make_error(place, text, "one condition")
    return expression


def _print_condition(node: Mapping[str, Any]) -> str:
    """Return the condition in the text form: one parser judges both, so both allow the same."""
    window = f"[{node['window']}]" if "window" in node else ""
    value = node.get("value", "")
    if isinstance(value, list):
        listed = value_text(TextValues(tuple(value)), Fact("name"))
        if len(value) > 1:
            word = f"{node.get('fact', '')}{window} in {listed}"
            return f"not ({word})" if node.get("op") == "!=" else word
        value = listed
    if "fact" in node:
        return f"{node['fact']}{window} {node.get('op', '')} {value}"
    over = f" over {node['over']}" if "over" in node else ""
    statistic = node.get("statistic", "mean")
    return f"{node['metric']} {statistic}{window}{over} {node.get('op', '')} {value}"


def _make_error(place: str, value: object, wanted: str) -> InvalidInput:
    return InvalidInput(f"The rule at {place} has {shown(value)}; allowed: {wanted}.")


def clause_schema() -> dict[str, Any]:
    """Return the JSON form as a JSON Schema (2020-12); the web editor takes its words from here."""
    condition = {
        "type": "object",
        "properties": {
            "metric": {"enum": list(catalogue())},
            "statistic": {"type": "string", "examples": list(STATISTIC_WORDS)},
            "window": {"type": "string", "examples": ["30m"]},
            "over": {
                "enum": [f"{g} {b}".strip() for g in GROUPS_OF_GPUS for b in ("", *Aggregation)]
            },
            "fact": {"enum": list(FACTS)},
            "op": {"enum": [*ORDER_OPS, "=", "!="]},
            "value": {
                "description": "number with unit, duration, texts, $threshold or '0.75 * workload'",
                "type": ["string", "number", "array"],
                "items": {"type": "string"},
            },
        },
        "required": ["op", "value"],
        "additionalProperties": False,
        "oneOf": [{"required": ["metric"]}, {"required": ["fact"]}],
    }
    part = {"$ref": "#/$defs/expression"}
    parts = {"type": "array", "items": part, "minItems": 2, "maxItems": CONDITION_LIMIT}
    combined = [
        {
            "type": "object",
            "properties": {word: shape},
            "required": [word],
            "additionalProperties": False,
        }
        for word, shape in (("and", parts), ("or", parts), ("not", part))
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Marey rule clause",
        "type": "object",
        "properties": {
            "gpus": {
                "type": "object",
                "properties": {
                    "reach": {"enum": list(Reach)},
                    "amount": {"type": "number", "exclusiveMinimum": 0},
                },
                "required": ["reach"],
                "additionalProperties": False,
            },
            "when": part,
        },
        "required": ["when"],
        "additionalProperties": False,
        "$defs": {"expression": {"oneOf": [condition, *combined]}},
    }

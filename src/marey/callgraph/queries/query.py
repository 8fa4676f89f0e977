"""Queries over call graphs: the project's predicates, extended by paths; data, never code.

A query is a predicate document (``model.predicates``) over the fields of a call site, with three
more leaves::

    {"path": [{"where": {"field": "name", "op": "eq", "value": "main"}}, {"repeat": "*"},
              {"where": {"field": "name", "op": "like", "value": "MPI_*"}}], "select": "all"}
    {"paths": [["main", "solve"], ["main", "write"]]}
    {"field": "name", "op": "like", "value": "aten::*_backward"}

A path matches chains of call sites, each the parent of the next, anywhere in the tree. ``repeat``
is how often a step matches: ``1`` (the default), any number, ``"*"`` (any number of times, also
none) or ``"+"`` (at least once). ``select`` chooses what a match selects: ``all`` its call sites,
or only the ``first`` or ``last``. ``paths`` selects call sites by their whole paths. Nothing in a
query depends on one run: it selects the same paths in another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marey.callgraph.names import normalise_name
from marey.model.errors import InvalidInput, shown, unknown
from marey.model.predicates import DEPTH_LIMIT, LIST_LIMIT, Comparison, parse_predicate

TEXT_FIELDS = ("name", "kind", "module")
NUMBER_FIELDS = ("depth", "inclusive", "exclusive", "calls", "share", "profiles", "imbalance")
FIELDS = (*TEXT_FIELDS, *NUMBER_FIELDS)
# Steps of a path, repeats counted: one bit each.
MOST_STATES = 64
LONGEST_PATTERN = 1024
SELECTIONS = ("all", "first", "last")


@dataclass(frozen=True)
class Step:
    """One step of a path: what a call site must be, and how often."""

    where: Query | None = None
    repeat: int | str = 1


@dataclass(frozen=True)
class PathMatch:
    """A chain of call sites, each the parent of the next."""

    steps: tuple[Step, ...]
    select: str = "all"


@dataclass(frozen=True)
class ExactPaths:
    """Call sites by their whole paths."""

    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class AllOf:
    """True where every part is."""

    parts: tuple[Query, ...]


@dataclass(frozen=True)
class AnyOf:
    """True where any part is."""

    parts: tuple[Query, ...]


@dataclass(frozen=True)
class NotOf:
    """True where its part is not."""

    part: Query


Query = Comparison | PathMatch | ExactPaths | AllOf | AnyOf | NotOf


def parse_query(document: object) -> Query:
    """Check a query: a JSON document, its text, or the short form ``main > * > MPI_*``."""
    if isinstance(document, str):
        if document.lstrip()[:1] not in ("{", "["):
            return parse_short(document)
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"The query is not JSON: {error}.") from None
    return _parse(document, "$", 0)


def _parse(node: object, place: str, depth: int) -> Query:
    if depth > DEPTH_LIMIT:
        raise InvalidInput(f"The query at {place[:80]}… is nested deeper than {DEPTH_LIMIT}.")
    if not isinstance(node, dict):
        raise _wrong(place, node, "an object with 'field', 'path', 'paths', 'and', 'or' or 'not'")
    if set(node) in ({"and"}, {"or"}):
        word = next(iter(node))
        listed = _list(node[word], f"{place}.{word}")
        parts = tuple(_parse(p, f"{place}.{word}[{i}]", depth + 1) for i, p in enumerate(listed))
        return AllOf(parts) if word == "and" else AnyOf(parts)
    if set(node) == {"not"}:
        return NotOf(_parse(node["not"], f"{place}.not", depth + 1))
    if "path" in node:
        return _parse_path(node, place, depth)
    if set(node) == {"paths"}:
        return _parse_paths(node["paths"], place)
    return _parse_comparison(node, place)


def _parse_comparison(node: Mapping[str, Any], place: str) -> Comparison:
    if node.get("op") != "like":
        parsed = parse_predicate(dict(node), FIELDS)
        assert isinstance(parsed, Comparison)
        return parsed
    if set(node) != {"field", "op", "value"} or node["field"] not in TEXT_FIELDS:
        raise _wrong(place, sorted(node), f"'like' with one of the fields {', '.join(TEXT_FIELDS)}")
    if not isinstance(node["value"], str) or len(node["value"]) > LONGEST_PATTERN:
        raise _wrong(f"{place}.value", node["value"], "a text with * and ?")
    return Comparison(node["field"], "like", node["value"])


def _parse_path(node: Mapping[str, Any], place: str, depth: int) -> PathMatch:
    if set(node) - {"path", "select"}:
        raise _wrong(place, sorted(node), "'path' and 'select'")
    select = node.get("select", "all")
    if select not in SELECTIONS:
        raise InvalidInput(f"At {place}.select: {unknown('selection', select, SELECTIONS)}")
    listed = _list(node["path"], f"{place}.path")
    steps = tuple(_parse_step(s, f"{place}.path[{i}]", depth) for i, s in enumerate(listed))
    if not steps:
        raise _wrong(f"{place}.path", listed, "at least one step")
    expand_steps(steps)
    return PathMatch(steps, select)


def _parse_step(node: object, place: str, depth: int) -> Step:
    if not isinstance(node, dict) or set(node) - {"where", "repeat"}:
        raise _wrong(place, node, "an object with 'where' and 'repeat'")
    repeat = node.get("repeat", 1)
    good = repeat in ("*", "+") or (isinstance(repeat, int) and not isinstance(repeat, bool))
    if not good or (isinstance(repeat, int) and not 0 <= repeat <= MOST_STATES):
        raise _wrong(f"{place}.repeat", repeat, f"'*', '+' or a number up to {MOST_STATES}")
    where = node.get("where")
    parsed = None if where is None else _parse(where, f"{place}.where", depth + 1)
    if parsed is not None and _has_path(parsed):
        raise _wrong(f"{place}.where", where, "a condition on one call site, without a path")
    return Step(parsed, repeat)


def _has_path(query: Query) -> bool:
    if isinstance(query, AllOf | AnyOf):
        return any(_has_path(part) for part in query.parts)
    return _has_path(query.part) if isinstance(query, NotOf) else isinstance(query, PathMatch)


def _parse_paths(paths: object, place: str) -> ExactPaths:
    listed = _list(paths, f"{place}.paths")
    for number, path in enumerate(listed):
        if not isinstance(path, list) or not path or not all(isinstance(n, str) for n in path):
            raise _wrong(f"{place}.paths[{number}]", path, "a list of names, root first")
    return ExactPaths(tuple(tuple(normalise_name(n) for n in path) for path in listed))


def _list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > LIST_LIMIT:
        raise _wrong(place, value, f"a list of at most {LIST_LIMIT}")
    return value


def _wrong(place: str, value: object, wanted: str) -> InvalidInput:
    return InvalidInput(f"The query at {place} has {shown(value)}; allowed: {wanted}.")


def parse_short(text: str) -> PathMatch:
    """Read the short form: names with wildcards between `` > ``; ``*``, ``+``, ``.`` alone."""
    steps = []
    for part in text.split(" > "):
        word = part.strip()
        if not word:
            raise InvalidInput(f"The query '{shown(text)}' has an empty step between ' > '.")
        if word in ("*", "+", "."):
            steps.append(Step(None, 1 if word == "." else word))
        else:
            op = "like" if "*" in word or "?" in word else "eq"
            steps.append(Step(Comparison("name", op, word)))
    expand_steps(tuple(steps))
    return PathMatch(tuple(steps))


def query_document(query: Query) -> dict[str, Any]:
    """Return the query as the JSON document that it is parsed from."""
    if isinstance(query, AllOf):
        return {"and": [query_document(part) for part in query.parts]}
    if isinstance(query, AnyOf):
        return {"or": [query_document(part) for part in query.parts]}
    if isinstance(query, NotOf):
        return {"not": query_document(query.part)}
    if isinstance(query, ExactPaths):
        return {"paths": [list(path) for path in query.paths]}
    if isinstance(query, PathMatch):
        return {"path": [_step_document(s) for s in query.steps], "select": query.select}
    return {"field": query.field, "op": query.op, "value": query.value}


def _step_document(step: Step) -> dict[str, Any]:
    where = {} if step.where is None else {"where": query_document(step.where)}
    return {**where, "repeat": step.repeat}


def expand_steps(steps: Sequence[Step]) -> list[tuple[int, bool, bool]]:
    """Return the states: (step, whether it may repeat, whether it may be left out)."""
    states = []
    for number, step in enumerate(steps):
        if isinstance(step.repeat, str):
            states.append((number, True, step.repeat == "*"))
        else:
            states += [(number, False, False)] * step.repeat
    if not 0 < len(states) <= MOST_STATES:
        raise InvalidInput(
            f"A path of {len(states)} steps, repeats counted; allowed: 1 to {MOST_STATES}."
        )
    return states

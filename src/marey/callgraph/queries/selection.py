"""Which call sites a query selects.

A path is matched by a small automaton run down the tree (which steps can a call site be, coming
from its callers) and up again (from which steps can the rest be matched below it): two passes,
whatever the number of matches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.callgraph.graphs import CallGraphs, fingerprints
from marey.callgraph.queries.query import (
    TEXT_FIELDS,
    AllOf,
    AnyOf,
    ExactPaths,
    NotOf,
    PathMatch,
    Query,
    expand_steps,
    parse_query,
)
from marey.callgraph.trees import KINDS, Tree, depths
from marey.model.predicates import Comparison, matches

Flags = NDArray[np.bool_]


def query_of_nodes(graphs: CallGraphs, nodes: Sequence[int]) -> ExactPaths:
    """Return the query that selects these call sites, here and in any other run."""
    return ExactPaths(tuple(tuple(graphs.path(int(node))) for node in nodes))


def select_nodes(graphs: CallGraphs, query: Query | object) -> Flags:
    """Return which call sites a query selects."""
    if not isinstance(query, Comparison | PathMatch | ExactPaths | AllOf | AnyOf | NotOf):
        query = parse_query(query)
    return _evaluate(query, _Fields(graphs))


class _Fields:
    """The fields of every call site, each made when it is first asked for."""

    def __init__(self, graphs: CallGraphs) -> None:
        self.graphs = graphs
        self.tree: Tree = graphs.tree
        self._numbers: dict[str, NDArray[Any]] = {}

    def numbers(self, field: str) -> NDArray[Any]:
        """Return a numeric field: means over the profiles that have the call site."""
        if field not in self._numbers:
            self._numbers[field] = self._number(field)
        return self._numbers[field]

    def _number(self, field: str) -> NDArray[Any]:
        size = len(self.tree)
        if field == "depth":
            return depths(self.tree.parent)
        count = np.bincount(self.graphs.node, minlength=size)
        if field == "profiles":
            return count
        if field == "share":
            return self.numbers("inclusive") / max(mean_total(self.graphs), 1e-300)
        if field == "imbalance":
            return imbalances(self.graphs)
        values = getattr(self.graphs, field)
        known = ~np.isnan(values)
        nodes = self.graphs.node[known]
        sums = np.bincount(nodes, values[known], minlength=size)
        counted = np.bincount(nodes, minlength=size)
        return np.where(counted > 0, sums / counted.clip(1), np.nan)

    def texts(self, field: str) -> tuple[NDArray[Any], list[str]]:
        """Return a field of texts as codes (-1: none) and the texts they stand for."""
        if field == "kind":
            return self.tree.kind, [str(kind) for kind in KINDS]
        return getattr(self.tree, field), self.tree.names


def mean_total(graphs: CallGraphs) -> float:
    """Return the mean time of a profile: the sum of what its roots took."""
    roots = graphs.tree.parent[graphs.node] < 0
    return float(graphs.inclusive[roots].sum()) / max(len(graphs), 1)


def imbalances(graphs: CallGraphs) -> NDArray[np.float64]:
    """Return (max − mean) / mean of the inclusive values, without a dense matrix of all."""
    size = len(graphs.tree)
    order = np.argsort(graphs.node, kind="stable")
    node, values = graphs.node[order], graphs.inclusive[order]
    first = np.flatnonzero(np.diff(node, prepend=-1))
    out = np.full(size, np.nan)
    if len(first):
        n = np.diff(np.append(first, len(node)))
        mean = np.add.reduceat(values, first) / n
        most = np.maximum.reduceat(values, first)
        with np.errstate(divide="ignore", invalid="ignore"):
            out[node[first]] = np.where(mean > 0, (most - mean) / mean, 0.0)
    return out


def _evaluate(query: Query, fields: _Fields) -> Flags:
    size = len(fields.tree)
    if isinstance(query, AllOf | AnyOf):
        whole = isinstance(query, AllOf)
        chosen = np.full(size, whole)
        for part in query.parts:
            flags = _evaluate(part, fields)
            chosen = chosen & flags if whole else chosen | flags
        return chosen
    if isinstance(query, NotOf):
        return ~_evaluate(query.part, fields)
    if isinstance(query, ExactPaths):
        return _exact(query, fields.tree)
    if isinstance(query, PathMatch):
        return _match_path(query, fields)
    return _compare(query, fields)


def _compare(comparison: Comparison, fields: _Fields) -> Flags:
    if comparison.field in TEXT_FIELDS:
        codes, texts = fields.texts(comparison.field)
        verdicts = np.zeros(len(texts) + 1, bool)
        used = np.unique(codes)
        passes = _make_text_test(comparison)
        verdicts[used] = [passes(texts[code] if code >= 0 else None) for code in used.tolist()]
        return np.asarray(verdicts[codes]) if len(codes) else np.zeros(0, bool)
    return _compare_numbers(comparison, fields.numbers(comparison.field))


def _make_text_test(comparison: Comparison) -> Callable[[str | None], bool]:
    """Return the test of one text."""
    if comparison.op == "like":
        like = compile_pattern(comparison.value)
        return lambda text: text is not None and like(text)
    if comparison.op == "eq" and isinstance(comparison.value, str):
        return lambda text: text == comparison.value
    return lambda text: matches(comparison, {comparison.field: text})


def _compare_numbers(comparison: Comparison, values: NDArray[Any]) -> Flags:
    op, value = comparison.op, comparison.value
    if isinstance(value, bool | str) or op in ("in", "missing", "contains", "prefix"):
        row = [matches(comparison, {comparison.field: float(v)}) for v in values]
        return np.array(row, bool)
    with np.errstate(invalid="ignore"):
        if op == "between":
            return np.asarray((values >= value[0]) & (values <= value[1]))
        tests = {
            "eq": np.equal,
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
        }
        if op == "ne":
            return np.asarray((values != value) & ~np.isnan(values))
        return np.asarray(tests[op](values, value))


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return the test of a pattern of ``*`` and ``?``; pieces between stars are searched once."""
    if "?" in pattern:
        return lambda text: is_like(text, pattern)
    first, *pieces = pattern.split("*")
    if not pieces:
        return lambda text: text == pattern
    *middle, last = pieces

    def test(text: str) -> bool:
        if not text.startswith(first):
            return False
        at = len(first)
        for piece in middle:
            at = text.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        return len(text) - at >= len(last) and text.endswith(last)

    return test


def is_like(text: str, pattern: str) -> bool:
    """Return whether a text matches a pattern of ``*`` (any text) and ``?`` (one character)."""
    at = place = 0
    star, back = -1, 0
    while at < len(text):
        if place < len(pattern) and pattern[place] == "*":
            star, back = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in ("?", text[at]):
            at += 1
            place += 1
        elif star >= 0:
            back += 1
            at, place = back, star + 1
        else:
            return False
    return all(letter == "*" for letter in pattern[place:])


def _exact(query: ExactPaths, tree: Tree) -> Flags:
    """Follow the paths in a tree of their own; equal fingerprints are equal paths."""
    names = sorted({name for path in query.paths for name in path})
    code = {name: number for number, name in enumerate(names)}
    parent: list[int] = []
    name: list[int] = []
    ends, known = [], dict[tuple[int, int], int]()
    for path in query.paths:
        at = -1
        for text in path:
            key = (at, code[text])
            if key not in known:
                known[key] = len(parent)
                parent.append(at)
                name.append(code[text])
            at = known[key]
        ends.append(at)
    wanted = Tree(
        np.array(parent, np.int32),
        np.array(name, np.int32),
        names,
        np.zeros(len(parent), np.int8),
        np.full(len(parent), -1, np.int32),
    )
    return np.isin(fingerprints(tree), fingerprints(wanted)[ends])


def _match_path(query: PathMatch, fields: _Fields) -> Flags:
    states = expand_steps(query.steps)
    count = len(states)
    allowed = np.zeros(len(fields.tree), np.uint64)
    by_step = [
        np.ones(len(fields.tree), bool) if s.where is None else _evaluate(s.where, fields)
        for s in query.steps
    ]
    for bit, (step, _, _) in enumerate(states):
        allowed |= by_step[step].astype(np.uint64) << np.uint64(bit)
    follow = np.zeros(count, np.uint64)
    for bit, (_, loops, _) in enumerate(states):
        follow[bit] = _reach(states, bit + 1) | (np.uint64(1 << bit) if loops else np.uint64(0))
    starts = _reach(states, 0)
    ends = np.uint64(0)
    for bit in range(count):
        if all(optional for _, _, optional in states[bit + 1 :]):
            ends |= np.uint64(1 << bit)
    down, up = _run(fields.tree.parent, allowed, follow, starts, ends)
    if query.select == "first":
        return np.asarray((allowed & starts & up) != 0)
    if query.select == "last":
        return np.asarray((down & ends) != 0)
    return np.asarray((down & up) != 0)


def _reach(states: Sequence[tuple[int, bool, bool]], first: int) -> np.uint64:
    """Return the states that can come at a place: the next, and those behind optional ones."""
    mask = 0
    for bit in range(first, len(states)):
        mask |= 1 << bit
        if not states[bit][2]:
            break
    return np.uint64(mask)


@njit(cache=True, nogil=True)
def _run(
    parent: NDArray[np.int32],
    allowed: NDArray[np.uint64],
    follow: NDArray[np.uint64],
    starts: np.uint64,
    ends: np.uint64,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Compute for each node the states it can be in from above, and those that can be
    ended below.
    """
    size = len(parent)
    down = np.zeros(size, np.uint64)
    for node in range(size):
        reached = starts
        if parent[node] >= 0:
            before = down[parent[node]]
            for bit in range(len(follow)):
                if (before >> np.uint64(bit)) & np.uint64(1):
                    reached |= follow[bit]
        down[node] = reached & allowed[node]
    up = np.zeros(size, np.uint64)
    below = np.zeros(size, np.uint64)
    for node in range(size - 1, -1, -1):
        good = ends
        for bit in range(len(follow)):
            if follow[bit] & below[node]:
                good |= np.uint64(1) << np.uint64(bit)
        up[node] = good & allowed[node]
        if parent[node] >= 0:
            below[parent[node]] |= up[node]
    return down, up


def keep_selected(graphs: CallGraphs, chosen: Flags) -> CallGraphs:
    """Return the graphs with only the chosen call sites, each below its nearest chosen caller.

    Values stay as they were measured: an inclusive time still holds what was left out below.
    """
    tree = graphs.tree
    place = np.full(len(tree), -1, np.int32)
    above = np.full(len(tree), -1, np.int32)
    kept = np.flatnonzero(chosen)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    _nearest(tree.parent, chosen, above)
    parent = above[kept]
    smaller = Tree(
        np.where(parent >= 0, place[parent], -1).astype(np.int32),
        tree.name[kept],
        tree.names,
        tree.kind[kept],
        tree.module[kept],
    )
    rows = chosen[graphs.node]
    before = np.concatenate([[0], np.cumsum(rows)])
    return replace(
        graphs,
        tree=smaller,
        first=before[graphs.first],
        node=place[graphs.node[rows]],
        inclusive=graphs.inclusive[rows],
        exclusive=graphs.exclusive[rows],
        calls=graphs.calls[rows],
    )


@njit(cache=True, nogil=True)
def _nearest(parent: NDArray[np.int32], chosen: Flags, above: NDArray[np.int32]) -> None:
    for node in range(len(parent)):
        up = parent[node]
        if up >= 0:
            above[node] = up if chosen[up] else above[up]

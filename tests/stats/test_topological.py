"""The longest-path pass that verdicts and replay share."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.errors import InvalidInput
from marey.stats.topological import build_dag, finish_times, longest_chain


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], list[float]]:
    count = draw(st.integers(1, 25))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = [tuple(sorted(e)) for e in draw(st.lists(pairs, max_size=60)) if e[0] != e[1]]
    cost = draw(st.lists(st.floats(0, 1e6), min_size=count, max_size=count))
    shuffled = draw(st.permutations(range(count)))
    return count, [(shuffled[a], shuffled[b]) for a, b in edges], cost


def _columns(edges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@settings(deadline=None)
@given(graphs())
def test_a_node_finishes_its_cost_after_the_last_of_its_predecessors(graph) -> None:
    count, edges, cost = graph
    dag = build_dag(count, *_columns(edges))
    finish = finish_times(dag, np.array(cost))
    for node in range(count):
        ready = max((finish[a] for a, b in edges if b == node), default=0.0)
        assert finish[node] == pytest.approx(ready + cost[node])


@settings(deadline=None)
@given(graphs())
def test_the_longest_chain_ends_at_the_last_finisher_and_costs_what_it_took(graph) -> None:
    count, edges, cost = graph
    dag = build_dag(count, *_columns(edges))
    finish = finish_times(dag, np.array(cost))
    chain = longest_chain(dag, finish)
    assert finish[chain[-1]] == finish.max()
    assert sum(cost[n] for n in chain) == pytest.approx(finish.max())
    assert all((a, b) in set(edges) for a, b in pairwise(chain))


@settings(deadline=None)
@given(graphs(), st.integers(0, 24), st.floats(0, 1e6))
def test_a_dearer_node_never_makes_anything_finish_earlier(graph, node: int, more: float) -> None:
    count, edges, cost = graph
    dag = build_dag(count, *_columns(edges))
    dearer = np.array(cost)
    dearer[node % count] += more
    assert (finish_times(dag, dearer) >= finish_times(dag, np.array(cost))).all()


def test_a_cycle_is_refused_with_the_number_of_operations_in_it() -> None:
    with pytest.raises(InvalidInput, match="2 of 3 operations"):
        build_dag(3, np.array([0, 1, 2]), np.array([1, 2, 1]))


def test_an_empty_graph_has_an_empty_chain() -> None:
    dag = build_dag(0, np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(longest_chain(dag, finish_times(dag, np.zeros(0)))) == 0

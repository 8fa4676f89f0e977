"""The longest-path pass over a graph in CSR arrays, which verdicts and replay share.

A node finishes ``cost`` after the last of its predecessors has finished. Everything a replay needs
(launch delays, barriers, transfers) is expressed as nodes and costs, so that the pass stays one
short loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.stats.compiled import njit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NO_NODE = -1


@dataclass(frozen=True)
class Dag:
    """Predecessors of every node in CSR form, and one topological order of the nodes."""

    first: Ints
    predecessors: Ints
    order: Ints

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self.first) - 1


def build_dag(count: int, sources: Ints, targets: Ints) -> Dag:
    """Return the graph of ``count`` nodes with an edge from each source to its target.

    Refuses a cycle.
    """
    sources, targets = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    first, predecessors = _group(count, targets, sources)
    next_first, successors = _group(count, sources, targets)
    order = _sort_by_kahn(first, next_first, successors)
    if len(order) < count:
        raise InvalidInput(
            f"The dependencies contain a cycle: {count - len(order)} of {count} operations wait "
            "on each other; an operation may only depend on earlier ones."
        )
    return Dag(first, predecessors, order)


def finish_times(dag: Dag, cost: Floats) -> Floats:
    """Return when each node finishes if every node starts as soon as its predecessors allow."""
    costs = np.asarray(cost, np.float64)
    finish: Floats = _finish(dag.first, dag.predecessors, dag.order, costs)
    return finish


def longest_chain(dag: Dag, finish: Floats) -> Ints:
    """Return the nodes of the critical path, first to last: each is who the next one waited for."""
    if dag.count == 0:
        return np.zeros(0, np.int64)
    chain: Ints = _walk_back(dag.first, dag.predecessors, finish)
    return chain


def _group(count: int, keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=first[1:])
    return first, values[np.argsort(keys, kind="stable")]


@njit(cache=True, nogil=True)
def _sort_by_kahn(first: Ints, next_first: Ints, successors: Ints) -> Ints:
    count = len(first) - 1
    waiting = first[1:] - first[:-1]
    order = np.empty(count, np.int64)
    filled = 0
    for node in range(count):
        if waiting[node] == 0:
            order[filled] = node
            filled += 1
    done = 0
    while done < filled:
        node = order[done]
        done += 1
        for at in range(next_first[node], next_first[node + 1]):
            after = successors[at]
            waiting[after] -= 1
            if waiting[after] == 0:
                order[filled] = after
                filled += 1
    return order[:filled]


@njit(cache=True, nogil=True)
def _finish(first: Ints, predecessors: Ints, order: Ints, cost: Floats) -> Floats:
    finish = np.empty(len(cost), np.float64)
    for at in range(len(order)):
        node = order[at]
        ready = 0.0
        for edge in range(first[node], first[node + 1]):
            ready = max(ready, finish[predecessors[edge]])
        finish[node] = ready + cost[node]
    return finish


@njit(cache=True, nogil=True)
def _walk_back(first: Ints, predecessors: Ints, finish: Floats) -> Ints:
    chain = np.empty(len(finish), np.int64)
    node = int(np.argmax(finish))
    length = 0
    while node >= 0:
        chain[length] = node
        length += 1
        latest = NO_NODE
        for edge in range(first[node], first[node + 1]):
            before = predecessors[edge]
            if latest == NO_NODE or finish[before] > finish[latest]:
                latest = before
        node = latest
    return chain[:length][::-1].copy()

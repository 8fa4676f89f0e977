"""The chain of work, across ranks, that decided how long a run took.

Walked backwards from the last node: of all nodes before one, the chain goes on to the one that
finished last, since only that one could have let it begin earlier. What lies between two nodes of
the chain is a delay (the host was busy, nothing had been launched) and is a part of the path too.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from marey.stats.topological import longest_chain
from marey.trace.graph.cost_graph import DELAY_NAMES, Ints, NodeKind, OperationGraph
from marey.trace.results import CRITICAL_PATH


def critical_path(graph: OperationGraph) -> pa.Table:
    """Return the critical path of a graph with its recorded costs, from the first node
    to the last.
    """
    finish = graph.finish(graph.work_ns, graph.idle_ns)
    chain = longest_chain(graph.dag, finish)
    parts = _parts(graph, chain)
    node, activity, start, dur = (np.concatenate(p) for p in zip(*parts, strict=True))
    # Chain order: a node's delay comes before its work.
    place = np.empty(graph.dag.count, np.int64)
    place[chain] = np.arange(len(chain))
    order = np.lexsort((activity == WORK, place[node]))
    node, activity = node[order], activity[order]
    names = _names(graph)
    block = np.append(graph.blocks.type, -1)[graph.block[node]]
    texts = [names[b] if a == WORK and b >= 0 else "" for a, b in zip(activity, block, strict=True)]
    return pa.table(
        {
            "rank": graph.rank[node],
            "step": graph.step[node],
            "activity": [_activity(a, graph.kind[n]) for a, n in zip(activity, node, strict=True)],
            "name": texts,
            "item": graph.item[node],
            "start_ns": start[order],
            "dur_ns": dur[order],
        }
    ).cast(CRITICAL_PATH)


WORK = len(DELAY_NAMES)


def _parts(graph: OperationGraph, chain: Ints) -> list[tuple[Ints, Ints, Ints, Ints]]:
    """Return node, activity, start and duration of everything on the chain that takes time."""
    parts = []
    before = graph.start_ns[chain] - graph.idle_ns[chain].sum(axis=1).astype(np.int64)
    for at in range(len(DELAY_NAMES)):
        dur = np.rint(graph.idle_ns[chain, at]).astype(np.int64)
        kept = dur > 0
        node = chain[kept]
        parts.append((node, np.full(len(node), at), before[kept], dur[kept]))
        before = before + dur
    dur = np.rint(graph.work_ns[chain]).astype(np.int64)
    kept = dur > 0
    node = chain[kept]
    parts.append((node, np.full(len(node), WORK), graph.start_ns[chain][kept], dur[kept]))
    return parts


def _names(graph: OperationGraph) -> tuple[str, ...]:
    return graph.blocks.type_names


def _activity(activity: int, kind: int) -> str:
    if activity < WORK:
        return DELAY_NAMES[activity]
    return "transfer" if kind == NodeKind.TRANSFER else "compute"

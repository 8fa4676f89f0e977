"""The graph of a replay as Chakra execution traces: one document of nodes per rank, in JSON.

Nodes carry the fields of Chakra's schema (id, name, type, ctrl_deps, data_deps, duration_micros,
attr), so that simulators which read it can run the step; a transfer appears in the trace of every
rank that takes part in it, with its bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from marey.replay.programs import Graph

SCHEMA = "1.1.1-chakra.0.0.4"
# Types of Chakra's schema.
COMPUTE, COLLECTIVE = "COMP_NODE", "COMM_COLL_NODE"


def export_chakra(graph: Graph) -> dict[int, dict[str, Any]]:
    """Return one document per rank."""
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for source, target in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True):
        before.setdefault(target, []).append(source)
        after.setdefault(source, []).append(target)
    ranks = sorted(set(graph.ranks[graph.ranks >= 0].tolist()))
    return {rank: _rank_document(graph, rank, before, after) for rank in ranks}


def _rank_document(
    graph: Graph, rank: int, before: dict[int, list[int]], after: dict[int, list[int]]
) -> dict[str, Any]:
    own = np.flatnonzero(graph.ranks == rank).tolist()
    shared = {
        node
        for one in own
        for node in (*before.get(one, ()), *after.get(one, ()))
        if graph.ranks[node] < 0
    }
    # The meeting of a message lies between its post and its transfer.
    shared |= {n for one in shared for n in after.get(one, ()) if graph.ranks[n] < 0}
    kept = {*own, *shared}
    nodes = [_node(graph, node, before, kept) for node in sorted(kept)]
    return {"schema": SCHEMA, "rank": rank, "nodes": nodes}


def _node(graph: Graph, node: int, before: dict[int, list[int]], kept: set[int]) -> dict[str, Any]:
    size = float(graph.costs.size[node])
    attributes = [{"name": "is_cpu_op", "bool_val": True}]
    if size > 0:
        attributes.append({"name": "comm_size", "int64_val": round(size)})
    return {
        "id": node,
        "name": graph.labels[node] or "join",
        "type": COLLECTIVE if size > 0 else COMPUTE,
        "ctrl_deps": [],
        "data_deps": sorted(n for n in before.get(node, ()) if n in kept),
        "duration_micros": float(graph.costs.work[node]) * 1e3,
        "attr": attributes,
    }

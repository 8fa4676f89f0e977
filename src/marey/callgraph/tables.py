"""Call sites as plain rows: what a list, a table of a selection and a tree in text show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.analysis.ensemble import profile_document
from marey.callgraph.documents import MeanRecord, SitesDocument
from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.selection import mean_total
from marey.callgraph.trees import KINDS, depths


def sites_document(
    graphs: CallGraphs, *, chosen: NDArray[np.bool_] | None = None, limit: int | None = None
) -> SitesDocument:
    """Return call sites with means over the profiles that have them, depth first, most time first.

    With a limit those with most time are kept; ``left_out`` says how many were not.
    """
    size = len(graphs.tree)
    count = np.bincount(graphs.node, minlength=size)
    means = {
        word: np.bincount(graphs.node, getattr(graphs, word), minlength=size) / count.clip(1)
        for word in ("inclusive", "exclusive", "calls")
    }
    # By the sum over profiles, so that no caller comes after what it called.
    weight = np.bincount(graphs.node, graphs.inclusive, minlength=size).astype(float)
    wanted = (count > 0) & (np.ones(size, bool) if chosen is None else chosen)
    nodes = np.flatnonzero(wanted)
    kept = nodes
    if limit is not None and len(nodes) > limit:
        kept = nodes[np.argsort(-weight[nodes], kind="stable")[:limit]]
    total, depth = mean_total(graphs), depths(graphs.tree.parent)
    order = depth_first(graphs.tree.parent, weight)
    place = np.empty(size, np.int64)
    place[order] = np.arange(size)
    rows = [
        _row(
            graphs, node=int(n), depth=int(depth[n]), count=int(count[n]), means=means, total=total
        )
        for n in kept[np.argsort(place[kept])]
    ]
    return {
        "unit": graphs.unit,
        "total": total,
        "profiles": [profile_document(n, info) for n, info in enumerate(graphs.infos)],
        "count": {"nodes": size, "profiles": len(graphs), "selected": len(nodes)},
        "left_out": len(nodes) - len(rows),
        "nodes": rows,
        "notes": list(graphs.notes),
    }


def _row(
    graphs: CallGraphs,
    *,
    node: int,
    depth: int,
    count: int,
    means: dict[str, NDArray[np.float64]],
    total: float,
) -> MeanRecord:
    module = int(graphs.tree.module[node])
    calls = float(means["calls"][node])
    inclusive = float(means["inclusive"][node])
    return {
        "path": graphs.path(node),
        "name": graphs.name(node),
        "kind": str(KINDS[graphs.tree.kind[node]]),
        "module": graphs.tree.names[module] if module >= 0 else None,
        "depth": depth,
        "profiles": count,
        "inclusive": inclusive,
        "exclusive": float(means["exclusive"][node]),
        "calls": calls if calls == calls else None,
        "share": inclusive / total if total > 0 else None,
    }


def depth_first(parent: NDArray[np.int32], weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the nodes in the order of a walk that takes the heaviest child first."""
    size = len(parent)
    owner = np.where(parent >= 0, parent, size)
    # The lightest first: the stack turns the order round.
    children = np.lexsort((weight, owner))
    first = np.searchsorted(owner[children], np.arange(size + 2))
    out = np.empty(size, np.int64)
    stack = children[first[size] : first[size + 1]].tolist()
    done = 0
    while stack:
        node = stack.pop()
        out[done] = node
        done += 1
        stack.extend(children[first[node] : first[node + 1]].tolist())
    return out

"""The tree itself for drawing: call sites above a share, the rest folded into their callers."""

from __future__ import annotations

from typing import Any

import numpy as np

from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.selection import keep_selected, mean_total
from marey.callgraph.trees import KINDS, depths, sum_up


def icicle_document(
    graphs: CallGraphs, *, least_share: float = 0.001, cap: int = 5_000
) -> dict[str, Any]:
    """Return the call sites worth drawing as columns, parents first, means over all profiles.

    A call site is kept if its inclusive time is above the share, up to the cap by time; callers
    of what is kept have at least as much time unless work was grafted, and are kept too.
    """
    size, count = len(graphs.tree), max(len(graphs), 1)
    whole = np.bincount(graphs.node, graphs.inclusive, minlength=size) / count
    kept = whole >= least_share * mean_total(graphs)
    if kept.sum() > cap:
        kept[np.argsort(-whole, kind="stable")[cap:]] = False
    below = kept.astype(float)
    sum_up(graphs.tree.parent, below)
    kept = below > 0
    smaller = keep_selected(graphs, kept)
    at = np.flatnonzero(kept)
    own = np.bincount(graphs.node, graphs.exclusive, minlength=size) / count
    tree = smaller.tree
    return {
        "unit": graphs.unit,
        "total": mean_total(graphs),
        "left_out": int(size - len(at)),
        "parent": tree.parent.tolist(),
        "name": [tree.names[code] for code in tree.name.tolist()],
        "kind": [str(KINDS[code]) for code in tree.kind.tolist()],
        "depth": depths(tree.parent).tolist(),
        "inclusive": whole[at].tolist(),
        "exclusive": own[at].tolist(),
    }

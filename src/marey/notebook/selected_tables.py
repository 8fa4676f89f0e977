"""The call sites of a selection as tables: Arrow, pandas or polars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.callgraph.graphs import CallGraphs
from marey.callgraph.trees import KINDS, depths
from marey.model.errors import InvalidInput, unknown

# An Arrow table, or a frame of pandas or polars.
Table = Any
KINDS_OF_TABLES = ("arrow", "pandas", "polars")


def selected_table(
    graphs: CallGraphs, chosen: NDArray[np.bool_], *, by_profile: bool = False
) -> pa.Table:
    """Return the chosen call sites with their values, per profile or as means."""
    rows = np.flatnonzero(chosen[graphs.node])
    return _by_profile(graphs, rows) if by_profile else _means(graphs, rows)


def _describe(graphs: CallGraphs, nodes: NDArray[np.int64]) -> dict[str, Any]:
    tree = graphs.tree
    module = tree.module[nodes]
    return {
        "path": pa.array(graphs.paths(nodes), pa.list_(pa.string())),
        "name": pa.array([graphs.name(int(node)) for node in nodes], pa.string()),
        "kind": pa.array([str(KINDS[code]) for code in tree.kind[nodes]], pa.string()),
        "module": pa.array([tree.names[m] if m >= 0 else None for m in module], pa.string()),
        "depth": pa.array(depths(tree.parent)[nodes]),
    }


def _means(graphs: CallGraphs, rows: NDArray[np.int64]) -> pa.Table:
    nodes, inverse = np.unique(graphs.node[rows].astype(np.int64), return_inverse=True)
    count = np.bincount(inverse, minlength=len(nodes))
    columns = _describe(graphs, nodes)
    columns["profiles"] = pa.array(count)
    for word in ("inclusive", "exclusive", "calls"):
        sums = np.bincount(inverse, getattr(graphs, word)[rows], minlength=len(nodes))
        means = sums / count.clip(1)
        columns[word] = pa.array(means, mask=np.isnan(means))
    return pa.table(columns)


def _by_profile(graphs: CallGraphs, rows: NDArray[np.int64]) -> pa.Table:
    profile = graphs.profile_of_rows()[rows]
    infos = [graphs.infos[p] for p in profile]
    columns = _describe(graphs, graphs.node[rows].astype(np.int64))
    columns["run"] = pa.array([info.run for info in infos], pa.string())
    for word in ("rank", "step", "thread"):
        columns[word] = pa.array([getattr(info, word) for info in infos], pa.int64())
    for word in ("inclusive", "exclusive", "calls"):
        values = getattr(graphs, word)[rows]
        columns[word] = pa.array(values, mask=np.isnan(values))
    return pa.table(columns)


def convert_table(table: pa.Table, kind: str) -> Table:
    """Return an Arrow table as it is, or as a frame of pandas or polars."""
    if kind not in KINDS_OF_TABLES:
        raise InvalidInput(unknown("kind of table", kind, KINDS_OF_TABLES))
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    return table

"""Call sites grouped to a few supernodes, with the flows between them: what a Sankey draws.

A supernode holds the call sites of one module (or of one name or kind). Its inclusive time counts
only where a path enters it first, so recursion is not counted twice. A flow is the inclusive time
of the call sites where a path goes from one supernode into another. A flow back into a supernode
that the path has been in, or against the order of the supernodes, is marked as a loop: without
the loops the flows have no cycle, which is what layouts need.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.callgraph.analysis.ensemble import profile_document
from marey.callgraph.documents import HistogramRecord, SankeyDocument, SummaryRecord
from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.selection import mean_total
from marey.callgraph.trees import KINDS, Tree
from marey.model.errors import InvalidInput, unknown
from marey.model.training.callgraphs import NodeKind
from marey.stats.boxes import box_plots

GROUPINGS = ("module", "name", "kind")
REST = "(rest)"
BINS = 20
_PYTHON_FILE = re.compile(r"^([^()]+?)(?:/[^/()]*)?\.py\(\d+\): ")
_NAMESPACE = re.compile(r"^(\w+)::")


@dataclass(frozen=True)
class Grouping:
    """How call sites become supernodes."""

    by: str = "module"
    # Supernodes below this share of the whole, and those beyond the cap, become "(rest)".
    least_share: float = 0.005
    cap: int = 200
    # Supernodes whose call sites are shown one by one, or apart by who calls or what they call.
    reveal: Collection[str] = ()
    split_by_caller: Collection[str] = ()
    split_by_callee: Collection[str] = ()


@dataclass(frozen=True)
class Supernodes:
    """Supernodes and flows; values per profile, profiles × supernodes."""

    names: list[str]
    # Position of every call site's supernode.
    of_node: NDArray[np.int64]
    inclusive: NDArray[np.float64]
    exclusive: NDArray[np.float64]
    flows: list[Flow]
    total: float
    folded: int


@dataclass(frozen=True)
class Flow:
    """Time that goes from one supernode into another: mean over all profiles."""

    source: int
    target: int
    value: float
    loop: bool
    per_profile: NDArray[np.float64] = field(repr=False)


def group_name(tree: Tree, node: int, by: str = "module") -> str:
    """Return the supernode of a call site, before any folding."""
    name = tree.names[int(tree.name[node])]
    kind = KINDS[tree.kind[node]]
    if by == "name":
        return name
    if by == "kind":
        return str(kind)
    if tree.module[node] >= 0:
        return tree.names[int(tree.module[node])]
    if found := _PYTHON_FILE.match(name):
        return "/".join(found[1].split("/")[:2])
    if found := _NAMESPACE.match(name):
        return found[1]
    return name if kind in (NodeKind.REGION, NodeKind.ANNOTATION) else str(kind)


def group_nodes(graphs: CallGraphs, grouping: Grouping | None = None) -> Supernodes:
    """Group the call sites of united graphs and add up the flows between the groups."""
    grouping = grouping or Grouping()
    if grouping.by not in GROUPINGS:
        raise InvalidInput(unknown("grouping", grouping.by, GROUPINGS))
    keys = _keys(graphs, grouping)
    names, codes = np.unique(np.array(keys, object), return_inverse=True)
    kept_names, codes, folded = _fold(graphs, list(names), codes.astype(np.int64), grouping)
    outermost, _ = _walk(graphs.tree, codes)
    inclusive = _per_profile(
        graphs, codes=codes, values=graphs.inclusive, counted=outermost, groups=len(kept_names)
    )
    exclusive = _per_profile(
        graphs,
        codes=codes,
        values=graphs.exclusive,
        counted=np.ones(len(codes), bool),
        groups=len(kept_names),
    )
    flows = _flows(graphs, codes, outermost, len(kept_names))
    return Supernodes(
        names=kept_names,
        of_node=codes,
        inclusive=inclusive,
        exclusive=exclusive,
        flows=flows,
        total=mean_total(graphs),
        folded=folded,
    )


def _keys(graphs: CallGraphs, grouping: Grouping) -> list[str]:
    """Return the key of every call site; revealed and split ones have keys of their own."""
    tree = graphs.tree
    plain = _plain_keys(tree, grouping.by)
    if not (grouping.reveal or grouping.split_by_caller or grouping.split_by_callee):
        return plain
    keys = list(plain)
    callee = _callees(graphs, plain) if grouping.split_by_callee else {}
    parents = tree.parent.tolist()
    for node, key in enumerate(plain):
        if key in grouping.reveal:
            keys[node] = f"{key}: {graphs.name(node)}"
        elif key in grouping.split_by_caller:
            above = parents[node]
            inside = above >= 0 and plain[above] == key
            caller = plain[above] if above >= 0 else "(root)"
            keys[node] = keys[above] if inside else f"{caller} › {key}"
        elif key in grouping.split_by_callee:
            keys[node] = f"{key} › {callee.get(node, '(itself)')}"
    return keys


def _plain_keys(tree: Tree, by: str) -> list[str]:
    """Return the group of every call site; each combination of codes is looked at once."""
    combined = np.stack([tree.name, tree.kind.astype(np.int32), tree.module], axis=1)
    _, first, inverse = np.unique(combined, axis=0, return_index=True, return_inverse=True)
    texts = [group_name(tree, int(node), by) for node in first]
    return [texts[code] for code in inverse.ravel().tolist()]


def _callees(graphs: CallGraphs, keys: list[str]) -> dict[int, str]:
    """Return for each call site the group that it spends most time in below itself."""
    spent = np.bincount(graphs.node, graphs.inclusive, minlength=len(graphs.tree))
    best: dict[int, tuple[float, str]] = {}
    for node, parent in enumerate(graphs.tree.parent.tolist()):
        other = parent >= 0 and keys[parent] != keys[node]
        if other and spent[node] > best.get(parent, (-1.0, ""))[0]:
            best[parent] = (float(spent[node]), keys[node])
    return {node: key for node, (_, key) in best.items()}


def _fold(
    graphs: CallGraphs, names: list[str], codes: NDArray[np.int64], grouping: Grouping
) -> tuple[list[str], NDArray[np.int64], int]:
    """Put small supernodes, and those beyond the cap, into the rest."""
    outermost, _ = _walk(graphs.tree, codes)
    time = _per_profile(
        graphs, codes=codes, values=graphs.inclusive, counted=outermost, groups=len(names)
    ).mean(axis=0)
    order = np.argsort(-time, kind="stable")
    kept = order[: grouping.cap]
    kept = kept[time[kept] >= grouping.least_share * mean_total(graphs)]
    if len(kept) == len(names):
        return names, codes, 0
    place = np.full(len(names), len(kept), np.int64)
    place[kept] = np.arange(len(kept))
    return [*(names[n] for n in kept), REST], place[codes], len(names) - len(kept)


def _per_profile(
    graphs: CallGraphs,
    *,
    codes: NDArray[np.int64],
    values: NDArray[np.float64],
    counted: NDArray[np.bool_],
    groups: int,
) -> NDArray[np.float64]:
    rows = counted[graphs.node]
    cell = graphs.profile_of_rows()[rows].astype(np.int64) * groups + codes[graphs.node[rows]]
    sums = np.bincount(cell, values[rows], minlength=len(graphs) * groups)
    return np.asarray(sums.reshape(len(graphs), groups), np.float64)


def _walk(tree: Tree, codes: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which call sites enter their group first on their path, and which enter it again."""
    first, children = _children(tree.parent)
    outermost, again = np.zeros(len(tree), bool), np.zeros(len(tree), bool)
    groups = int(codes.max(initial=-1)) + 1
    _walk_down(tree.parent, codes, first, children, groups, outermost, again)
    return outermost, again


def _children(parent: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the children of every node (and of "above the roots", the last) as CSR arrays."""
    owner = np.where(parent >= 0, parent, len(parent))
    children = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[children], np.arange(len(parent) + 2))
    return first, children


@njit(cache=True, nogil=True)
def _walk_down(
    parent: NDArray[np.int32],
    codes: NDArray[np.int64],
    first: NDArray[np.int64],
    children: NDArray[np.int64],
    groups: int,
    outermost: NDArray[np.bool_],
    again: NDArray[np.bool_],
) -> None:
    size = len(parent)
    on_path = np.zeros(groups, np.int64)
    place = first[:-1].copy()
    node = size
    while True:
        if place[node] < first[node + 1]:
            child = children[place[node]]
            place[node] += 1
            code = codes[child]
            if on_path[code] == 0:
                outermost[child] = True
            elif node == size or codes[node] != code:
                again[child] = True
            on_path[code] += 1
            node = child
            continue
        if node == size:
            break
        on_path[codes[node]] -= 1
        node = parent[node] if parent[node] >= 0 else size


def _flows(
    graphs: CallGraphs, codes: NDArray[np.int64], outermost: NDArray[np.bool_], groups: int
) -> list[Flow]:
    """Add up the time that goes from group to group; loops apart."""
    parent = graphs.tree.parent
    source = np.where(parent >= 0, codes[np.maximum(parent, 0)], -1)
    entering = (parent >= 0) & (source != codes)
    edge = (source * groups + codes) * 2 + (~outermost).astype(np.int64)
    edges, number = np.unique(edge[entering], return_inverse=True)
    if not len(edges):
        return []
    of_node = np.full(len(codes), -1, np.int64)
    of_node[entering] = number
    rows = entering[graphs.node]
    cell = graphs.profile_of_rows()[rows].astype(np.int64) * len(edges)
    cell += of_node[graphs.node[rows]]
    sums = np.bincount(cell, graphs.inclusive[rows], minlength=len(graphs) * len(edges))
    per_profile = np.asarray(sums, np.float64).reshape(len(graphs), -1)
    order = _order(edges, per_profile.mean(axis=0), groups)
    found = []
    for n, code in enumerate(edges.tolist()):
        a, b = divmod(code // 2, groups)
        loop = bool(code % 2 or order[a] >= order[b])
        found.append(Flow(a, b, float(per_profile[:, n].mean()), loop, per_profile[:, n]))
    return [flow for flow in found if flow.value > 0]


def _order(edges: NDArray[np.int64], weight: NDArray[np.float64], groups: int) -> NDArray[np.int64]:
    """Order the groups so that little time flows backwards: greedily, by out- minus inflow.

    Eades, Lin and Smyth (1993): sinks go last, sources first, else the largest difference.
    """
    flow = np.zeros((groups, groups))
    for code, value in zip(edges.tolist(), weight.tolist(), strict=True):
        if not code % 2:
            flow[divmod(code // 2, groups)] += value
    out, into = flow.sum(axis=1), flow.sum(axis=0)
    left, right = list[int](), list[int]()
    waiting = np.ones(groups, bool)
    for _ in range(groups):
        sinks = waiting & (out <= 1e-12)
        sources = waiting & (into <= 1e-12)
        if sinks.any() and not (sources & ~sinks).any():
            chosen = int(np.flatnonzero(sinks)[-1])
            right.append(chosen)
        else:
            best = sources if sources.any() else waiting
            chosen = int(np.flatnonzero(best)[np.argmax((out - into)[best])])
            left.append(chosen)
        waiting[chosen] = False
        out -= flow[:, chosen]
        into -= flow[chosen]
    place = np.empty(groups, np.int64)
    place[[*left, *right[::-1]]] = np.arange(groups)
    return place


def sankey_document(
    graphs: CallGraphs, grouping: Grouping | None = None, *, target: int | None = None
) -> SankeyDocument:
    """Return supernodes and flows as plain values, with histogram and box plot per supernode."""
    if target is not None and not 0 <= target < len(graphs):
        raise InvalidInput(f"Unknown profile {target}; there are 0-{len(graphs) - 1}.")
    made = group_nodes(graphs, grouping)
    members = np.bincount(made.of_node, minlength=len(made.names))
    return {
        "unit": graphs.unit,
        "total": made.total,
        "folded": made.folded,
        "profiles": [profile_document(n, info) for n, info in enumerate(graphs.infos)],
        "target": target,
        "nodes": [
            {
                "name": name,
                "call_sites": int(members[n]),
                "inclusive": _summary(made.inclusive[:, n], target),
                "exclusive": _summary(made.exclusive[:, n], target),
            }
            for n, name in enumerate(made.names)
        ],
        "flows": [
            {
                "source": flow.source,
                "target": flow.target,
                "value": flow.value,
                "loop": flow.loop,
                "of_target": None if target is None else float(flow.per_profile[target]),
            }
            for flow in made.flows
        ],
    }


def _summary(values: NDArray[np.float64], target: int | None) -> SummaryRecord:
    boxes = box_plots(values[None, :])
    return {
        "mean": float(boxes.mean[0]),
        "min": float(boxes.min[0]),
        "q1": float(boxes.q1[0]),
        "median": float(boxes.median[0]),
        "q3": float(boxes.q3[0]),
        "max": float(boxes.max[0]),
        "imbalance": float(boxes.imbalance[0]),
        "outliers": boxes.outlier_column.tolist(),
        "histogram": histogram(values, target),
        "of_target": None if target is None else float(values[target]),
    }


def histogram(values: NDArray[np.float64], target: int | None = None) -> HistogramRecord:
    """Return counts in 20 bins over the profiles that have a value, and the target's bin."""
    known = values[~np.isnan(values)]
    if not len(known):
        return {"low": None, "high": None, "counts": [], "target_bin": None}
    low, high = float(known.min()), float(known.max())
    counts, edges = np.histogram(known, BINS, (low, high if high > low else low + 1.0))
    at = None
    if target is not None and not np.isnan(values[target]):
        at = int(min(np.searchsorted(edges, values[target], side="right") - 1, BINS - 1))
    return {"low": low, "high": high, "counts": counts.tolist(), "target_bin": at}


def node_histograms(
    graphs: CallGraphs, nodes: Collection[int], word: str = "inclusive", target: int | None = None
) -> Mapping[int, HistogramRecord]:
    """Return the histogram over profiles of each of these call sites."""
    if word not in ("inclusive", "exclusive"):
        raise InvalidInput(unknown("metric", word, ("inclusive", "exclusive")))
    matrix = np.full((len(nodes), len(graphs)), np.nan)
    place = np.full(len(graphs.tree), -1, np.int64)
    place[list(nodes)] = np.arange(len(nodes))
    rows = place[graphs.node] >= 0
    at = place[graphs.node[rows]], graphs.profile_of_rows()[rows]
    matrix[at] = getattr(graphs, word)[rows]
    return {node: histogram(matrix[n], target) for n, node in enumerate(nodes)}

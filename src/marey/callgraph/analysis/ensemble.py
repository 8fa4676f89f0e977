"""Ensembles: one united graph, a box plot per call site, and who stands out.

A call site that only some profiles have comes before any time: where ranks wait for each other,
the one that is late spends its time in a call of its own, and all the others look slow in the
place where they wait for it. Times are therefore judged against the median of the profiles, by
the time a call takes itself, and calls that wait are marked: much time there points elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.analysis.matrix import MOST_CELLS_IN_MEMORY, Matrix, matrix_of, stream_matrix
from marey.callgraph.documents import (
    BoxRecord,
    EnsembleDocument,
    PartialSiteRecord,
    ProfileRecord,
    SpreadRecord,
    SuspectRecord,
)
from marey.callgraph.graphs import CallGraphs
from marey.callgraph.names import is_waiting
from marey.callgraph.profiles import Profile, ProfileInfo
from marey.callgraph.trees import KINDS, Tree, depths
from marey.stats.boxes import Boxes, box_plots

# A call site below this share of the whole is not worth a line.
SMALLEST_SHARE = 0.0005
# An outlier must also exceed the median by this much of it.
SMALLEST_EXCESS = 0.1
# Below this many profiles quartiles say nothing about one of them.
FEWEST_PROFILES = 4
# A thousand call sites have outliers by chance, the more the fewer profiles there are: a time
# alone names a profile if it exceeds the median by this share of the whole.
SMALLEST_EXCESS_OF_TOTAL = 0.01
SMALLEST_EXCESS_OF_FEW = 0.05
MANY_PROFILES = 8
MOST_SHOWN = 100


@dataclass(frozen=True)
class Ensemble:
    """The united graph with a box plot per call site and metric."""

    tree: Tree
    infos: Sequence[ProfileInfo]
    unit: str
    inclusive: Boxes
    exclusive: Boxes
    # Which profiles have which call site: nodes × profiles.
    present: NDArray[np.bool_]
    precision: str = "double"
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """Return the mean inclusive time of a profile: that of its roots."""
        roots = self.tree.parent < 0
        weight = self.inclusive.n[roots] / max(len(self.infos), 1)
        return float(np.nansum(self.inclusive.mean[roots] * weight))


def make_ensemble(graphs: CallGraphs) -> Ensemble:
    """Describe every call site of united graphs."""
    if len(graphs.tree) * len(graphs) > MOST_CELLS_IN_MEMORY:
        return describe(stream_matrix(_split(graphs), graphs.unit), graphs.notes)
    return describe(matrix_of(graphs), graphs.notes)


def _split(graphs: CallGraphs) -> Iterable[Profile]:
    for number, info in enumerate(graphs.infos):
        rows = slice(graphs.first[number], graphs.first[number + 1])
        yield Profile(
            tree=graphs.tree,
            nodes=graphs.node[rows],
            inclusive=graphs.inclusive[rows],
            exclusive=graphs.exclusive[rows],
            calls=graphs.calls[rows],
            info=info,
        )


def stream_ensemble(profiles: Iterable[Profile], unit: str = "ns") -> Ensemble:
    """Describe profiles that come one by one and are not kept: for ensembles beyond memory."""
    return describe(stream_matrix(profiles, unit))


def describe(matrix: Matrix, notes: tuple[str, ...] = ()) -> Ensemble:
    """Make the box plots of both metrics, a chunk of nodes at a time."""
    parts: dict[str, list[Boxes]] = {"inclusive": [], "exclusive": []}
    first, present = [], []
    for start, rows in matrix.chunks():
        first.append(start)
        for word, boxes in parts.items():
            boxes.append(box_plots(rows[word]))
        present.append(~np.isnan(rows["inclusive"]))
    return Ensemble(
        tree=matrix.tree,
        infos=matrix.infos,
        unit=matrix.unit,
        inclusive=Boxes.joined(parts["inclusive"], first),
        exclusive=Boxes.joined(parts["exclusive"], first),
        present=np.concatenate(present),
        precision=matrix.precision,
        notes=notes,
    )


@dataclass(frozen=True)
class PartialSite:
    """A call site that only some profiles have."""

    node: int
    present: tuple[int, ...]
    inclusive: float


def find_partial_sites(ensemble: Ensemble) -> list[PartialSite]:
    """Return the call sites that only some profiles have, topmost only, most time first."""
    count = ensemble.inclusive.n
    partial = (count > 0) & (count < len(ensemble.infos))
    parent = ensemble.tree.parent
    # Below a partial call site everything with the same profiles says the same again.
    repeats = partial & (parent >= 0) & (count == np.where(parent >= 0, count[parent], -1))
    repeats &= (ensemble.present == ensemble.present[np.maximum(parent, 0)]).all(axis=1)
    nodes = np.flatnonzero(partial & ~repeats)
    found = [
        PartialSite(
            int(node),
            tuple(np.flatnonzero(ensemble.present[node]).tolist()),
            float(ensemble.inclusive.mean[node]),
        )
        for node in nodes
    ]
    return sorted(found, key=lambda site: -site.inclusive * len(site.present))


@dataclass(frozen=True)
class Suspect:
    """A profile that stands out, and the call site that says so."""

    profile: int
    node: int
    # only-here, slower or waits
    reason: str
    value: float
    # Median of the profiles; None where only this one has the call site.
    typical: float | None

    @property
    def excess(self) -> float:
        """Return how much more it is than typical."""
        return self.value - (self.typical or 0.0)


def find_suspects(ensemble: Ensemble) -> list[Suspect]:
    """Name the profiles that stand out by what they do, not by how long they wait for others."""
    smallest = SMALLEST_SHARE * ensemble.total
    found = [s for s in _only_here(ensemble) if s.value > smallest]
    many = len(ensemble.infos) >= MANY_PROFILES
    least = ensemble.total * (SMALLEST_EXCESS_OF_TOTAL if many else SMALLEST_EXCESS_OF_FEW)
    if len(ensemble.infos) >= FEWEST_PROFILES:
        found += [s for s in _slower(ensemble) if s.excess > least]
    return sorted(found, key=lambda s: (s.reason == "waits", -s.excess))


def _only_here(ensemble: Ensemble) -> Iterable[Suspect]:
    """Call sites that a minority has: who has them does something that the others do not."""
    most = len(ensemble.infos) / 2
    for site in find_partial_sites(ensemble):
        if len(site.present) < most:
            for profile in site.present:
                reason = "waits" if is_waiting(_name(ensemble.tree, site.node)) else "only-here"
                yield Suspect(profile, site.node, reason, site.inclusive, None)


def _slower(ensemble: Ensemble) -> Iterable[Suspect]:
    """Return profiles above the upper fence in the time a call takes itself."""
    boxes = ensemble.exclusive
    high = boxes.q3 + 1.5 * (boxes.q3 - boxes.q1)
    for node in np.unique(boxes.outlier_row):
        value, typical = float(boxes.max[node]), float(boxes.median[node])
        if value <= high[node] or value < (1 + SMALLEST_EXCESS) * typical:
            continue
        reason = "waits" if is_waiting(_name(ensemble.tree, int(node))) else "slower"
        yield Suspect(int(boxes.max_at[node]), int(node), reason, value, typical)


def _name(tree: Tree, node: int) -> str:
    return tree.names[int(tree.name[node])]


def ensemble_document(
    ensemble: Ensemble, graphs: CallGraphs, *, limit: int | None = None
) -> EnsembleDocument:
    """Return the ensemble as plain values for JSON: unit, profiles, nodes, who stands out."""
    order = np.argsort(-np.nan_to_num(ensemble.inclusive.mean), kind="stable")
    nodes = np.arange(len(ensemble.tree)) if limit is None else np.sort(order[:limit])
    nodes = nodes[ensemble.inclusive.n[nodes] > 0]
    depth = depths(ensemble.tree.parent)
    outliers = {word: _outliers_by_node(getattr(ensemble, word)) for word in WORDS}
    listed = [
        _node_document(ensemble, graphs=graphs, node=int(n), depth=int(depth[n]), outliers=outliers)
        for n in nodes
    ]
    return {
        "unit": ensemble.unit,
        "precision": ensemble.precision,
        "profiles": [profile_document(n, info) for n, info in enumerate(ensemble.infos)],
        "count": {"nodes": len(ensemble.tree), "profiles": len(ensemble.infos)},
        "nodes": listed,
        "structure": [_site_document(graphs, ensemble, s) for s in find_partial_sites(ensemble)],
        "suspects": [_suspect_document(graphs, ensemble, s) for s in find_suspects(ensemble)],
        "notes": list(ensemble.notes),
    }


WORDS = ("inclusive", "exclusive")


def profile_document(number: int, info: ProfileInfo) -> ProfileRecord:
    """Return whose values they are, without what is not known."""
    document: ProfileRecord = {"profile": number, "run": info.run}
    if info.rank is not None:
        document["rank"] = info.rank
    if info.step is not None:
        document["step"] = info.step
    if info.thread is not None:
        document["thread"] = info.thread
    return document


Outliers = dict[int, list[tuple[int, float]]]


def _outliers_by_node(boxes: Boxes) -> Outliers:
    """Return the profile and value of every outlier, by node."""
    found: Outliers = {}
    columns = (boxes.outlier_row, boxes.outlier_column, boxes.outlier_value)
    for row, column, value in zip(*(c.tolist() for c in columns), strict=True):
        found.setdefault(row, []).append((column, value))
    return found


def _node_document(
    ensemble: Ensemble,
    *,
    graphs: CallGraphs,
    node: int,
    depth: int,
    outliers: dict[str, Outliers],
) -> SpreadRecord:
    tree = ensemble.tree
    module = int(tree.module[node])

    def make_box(word: str, boxes: Boxes) -> BoxRecord:
        return _box_document(boxes, node, outliers[word].get(node, []), ensemble.infos)

    return {
        "path": graphs.path(node),
        "name": _name(tree, node),
        "kind": str(KINDS[tree.kind[node]]),
        "module": tree.names[module] if module >= 0 else None,
        "depth": depth,
        "inclusive": make_box("inclusive", ensemble.inclusive),
        "exclusive": make_box("exclusive", ensemble.exclusive),
    }


def _box_document(
    boxes: Boxes, node: int, outliers: list[tuple[int, float]], infos: Sequence[ProfileInfo]
) -> BoxRecord:
    greatest = int(boxes.max_at[node])
    return {
        "n": int(boxes.n[node]),
        "mean": _plain(boxes.mean[node]),
        "sd": _plain(boxes.sd[node]),
        "min": _plain(boxes.min[node]),
        "q1": _plain(boxes.q1[node]),
        "median": _plain(boxes.median[node]),
        "q3": _plain(boxes.q3[node]),
        "max": _plain(boxes.max[node]),
        "imbalance": _plain(boxes.imbalance[node]),
        "max_at": profile_document(greatest, infos[greatest]),
        "outliers": [{**profile_document(p, infos[p]), "value": value} for p, value in outliers],
    }


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _site_document(graphs: CallGraphs, ensemble: Ensemble, site: PartialSite) -> PartialSiteRecord:
    absent = sorted(set(range(len(ensemble.infos))) - set(site.present))
    return {
        "path": graphs.path(site.node),
        "inclusive": site.inclusive,
        "present": [profile_document(p, ensemble.infos[p]) for p in site.present[:MOST_SHOWN]],
        "absent": [profile_document(p, ensemble.infos[p]) for p in absent[:MOST_SHOWN]],
        "n": len(site.present),
    }


def _suspect_document(graphs: CallGraphs, ensemble: Ensemble, s: Suspect) -> SuspectRecord:
    return {
        **profile_document(s.profile, ensemble.infos[s.profile]),
        "path": graphs.path(s.node),
        "reason": s.reason,
        "value": s.value,
        "typical": s.typical,
        "excess": s.excess,
    }

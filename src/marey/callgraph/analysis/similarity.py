"""Which profiles are alike: clusters and a map, by what every call site took."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.analysis.ensemble import profile_document
from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.selection import mean_total
from marey.model.errors import InvalidInput, unknown
from marey.stats.clustering import LEAST_SEPARATION, Clustering, CuttableTree, cut_tree
from marey.stats.projection import Projection, principal_coordinates

# Groups of profiles that are nearer than this share of the whole time are one.
LEAST_DISTANCE = 0.1
METRICS = ("exclusive", "inclusive")


def profile_rows(graphs: CallGraphs, word: str = "exclusive") -> NDArray[np.float64]:
    """Return profiles × call sites as shares of the mean total; what is absent took nothing."""
    if word not in METRICS:
        raise InvalidInput(unknown("metric", word, METRICS))
    total = mean_total(graphs)
    return np.nan_to_num(graphs.dense(word).T) / (total if total > 0 else 1.0)


def project_profiles(graphs: CallGraphs, word: str = "exclusive") -> Projection:
    """Return a map of the profiles: near points spend their time alike."""
    return principal_coordinates(profile_rows(graphs, word))


def cluster_profiles(
    graphs: CallGraphs, word: str = "exclusive", *, clusters: int | None = None
) -> Clustering:
    """Return clusters of profiles that spend their time alike.

    The distance of two profiles is the root of the summed squares of their differences, as a
    share of the whole time. Groups closer than a tenth of it are not told apart.
    """
    count = len(graphs)
    order = np.argsort(np.array([info.label() for info in graphs.infos], object), kind="stable")
    if count < 2:
        return cut_tree(CuttableTree(np.zeros((0, 4)), order, None, 1.0), clusters)
    # Only now: a server has no use for SciPy until somebody asks.
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    points = project_profiles(graphs, word).points[order]
    tree = linkage(pdist(points), "average")
    return cut_tree(CuttableTree(tree, order, None, LEAST_DISTANCE / LEAST_SEPARATION), clusters)


def similarity_document(
    graphs: CallGraphs, word: str = "exclusive", *, clusters: int | None = None
) -> dict[str, Any]:
    """Return map and clusters of the profiles as plain values."""
    projection = project_profiles(graphs, word)
    found = cluster_profiles(graphs, word, clusters=clusters)
    plane = np.zeros((len(graphs), 2))
    width = min(2, projection.points.shape[1])
    plane[:, :width] = projection.points[:, :width]
    return {
        "metric": word,
        "criterion": found.criterion,
        "clusters": found.count,
        "explained": projection.explained[:2].tolist(),
        "profiles": [
            {
                **profile_document(n, info),
                "cluster": int(found.labels[n]),
                "x": float(plane[n, 0]),
                "y": float(plane[n, 1]),
            }
            for n, info in enumerate(graphs.infos)
        ],
    }

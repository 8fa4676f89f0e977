"""The parts of a diagnosis: life, shapes, pairs of metrics, and the tree that is drawn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from bench.diagnosis import Case, simulate
from marey.diagnose.clusters import cluster_gpus
from marey.diagnose.dendrogram import MOST_LEAVES, dendrogram
from marey.diagnose.diagnosis import find_faults
from marey.diagnose.life import Phase, life_strip
from marey.diagnose.pairs import bivariate, metric_pairs
from marey.diagnose.shapes import extreme_bins, gpu_shapes
from marey.model.errors import InvalidInput
from marey.model.events import ClusterEventKind
from marey.model.faults import FaultKind
from tests.diagnose.test_diagnosis import matrix


@pytest.fixture(scope="module")
def biased() -> Case:
    return simulate(72, FaultKind.BIASED_LOAD, 64)


def test_the_tree_ends_in_leaves_that_hold_every_gpu_once(biased: Case) -> None:
    report = cluster_gpus(biased.matrix, "util")
    drawn = dendrogram(report, biased.matrix.names)
    assert drawn is not None
    assert len(drawn.leaves) == MOST_LEAVES
    assert len(drawn.merges) == MOST_LEAVES - 1
    assert sum(leaf.gpus for leaf in drawn.leaves) == 64
    assert sum(leaf.gpus for leaf in drawn.leaves if leaf.cluster == 1) == 8
    used = [node for merge in drawn.merges for node in (merge.left, merge.right)]
    assert sorted(used) == list(range(2 * MOST_LEAVES - 2)), "every node is merged exactly once"
    # No branches cross: each merge covers neighbouring leaves.
    reach = [(i, i) for i in range(MOST_LEAVES)]
    for merge in drawn.merges:
        left, right = sorted((reach[merge.left], reach[merge.right]))
        assert left[1] + 1 == right[0]
        reach.append((left[0], right[1]))


def test_timeline_clustering_agrees_with_histogram_clustering(biased: Case) -> None:
    assert biased.truth is not None
    for method in ("histogram", "euclidean", "correlation"):
        report = cluster_gpus(biased.matrix, "util", method=method, clusters=2)
        assert set(report.clusters[1].gpus) == set(biased.truth.gpus)


def test_the_most_different_gpus_are_those_with_the_biased_load(biased: Case) -> None:
    assert biased.truth is not None
    shapes = gpu_shapes(biased.matrix, "util", cluster_gpus(biased.matrix, "util"))
    order = np.argsort(-shapes.difference)[:8]
    assert {biased.matrix.names[i] for i in order} == set(biased.truth.gpus)
    assert shapes.counts.sum(axis=1).tolist() == (
        (~np.isnan(biased.matrix.columns["util"])).sum(axis=1).tolist()
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.integers(1, 80), st.integers(0, 10_000))
def test_binning_keeps_the_value_farthest_from_the_mean(
    moments: int, points: int, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(size=(2, moments)).astype(np.float32)
    first, lines = extreme_bins(values, points)
    assert lines.shape == (2, len(first))
    assert len(first) <= points
    for row in range(2):
        mean = values[row].mean()
        # Two values may be equally far: either may stand for the bin.
        assert np.abs(lines[row] - mean).max() == pytest.approx(np.abs(values[row] - mean).max())
        assert set(lines[row]) <= set(values[row])


def test_a_life_has_its_phases_in_order_without_gap_or_overlap() -> None:
    found = simulate(4250, FaultKind.STALLED, 16).matrix
    strip = life_strip(found, find_faults(found))
    phases = [span.phase for span in strip]
    assert Phase.INITIALISATION in phases
    assert Phase.TRAINING in phases
    assert phases[-1] is Phase.STALL
    for before, after in pairwise(strip):
        assert before.to_ms <= after.from_ms


def test_evaluations_and_checkpoints_are_on_the_strip_of_a_healthy_life() -> None:
    for seed in range(4251, 4259):
        found = simulate(seed, FaultKind.HEALTHY, 16).matrix
        kinds = {event.kind for event in found.events}
        if {ClusterEventKind.EVALUATION, ClusterEventKind.CHECKPOINT} <= kinds:
            break
    phases = {span.phase for span in life_strip(found)}
    assert Phase.EVALUATION in phases
    assert Phase.STALL not in phases


def test_pairs_rank_a_metric_that_follows_another_first(biased: Case) -> None:
    pairs = metric_pairs(biased.matrix)
    assert abs(pairs[0].correlation) > 0.8
    assert all(-1.001 <= pair.correlation <= 1.001 for pair in pairs)
    assert all(0 <= pair.strange <= 1 for pair in pairs)


def test_outliers_of_two_metrics_grow_with_the_significance(biased: Case) -> None:
    few = bivariate(biased.matrix, "util", "mem_used", significance=1e-6)
    many = bivariate(biased.matrix, "util", "mem_used", significance=0.2)
    assert few.outlier_count <= many.outlier_count
    known = np.isfinite(many.points).all(axis=1).sum()
    assert many.density.sum() == known
    with pytest.raises(InvalidInput, match="two different"):
        bivariate(biased.matrix, "util", "util")
    with pytest.raises(InvalidInput, match="mem_free"):
        bivariate(biased.matrix, "util", "mem_free")


def test_one_gpu_has_no_tree() -> None:
    alone = matrix(np.full((1, 10), 50.0))
    assert dendrogram(cluster_gpus(alone, "util"), alone.names) is None


def test_the_difference_is_the_jensen_shannon_distance_to_the_usual_profile(biased: Case) -> None:
    report = cluster_gpus(biased.matrix, "util")
    shapes = gpu_shapes(biased.matrix, "util", report)
    usual = shapes.counts[report.labels == 0].sum(axis=0)
    for row in (0, 1, 63):
        expected = jensenshannon(shapes.counts[row], usual, base=2)
        assert shapes.difference[row] == pytest.approx(expected, abs=1e-6)

"""Divergence, clustering and outliers keep their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon, squareform

from marey.stats.clustering import cluster_histograms, cluster_timelines
from marey.stats.divergence import TOTAL, jensen_shannon, shares
from marey.stats.outliers import mahalanobis

counts = arrays(np.int64, st.tuples(st.integers(2, 6), st.just(8)), elements=st.integers(0, 500))


@given(counts)
@settings(deadline=None, max_examples=50)
def test_divergence_is_symmetric_bounded_and_close_to_scipy(histograms: np.ndarray) -> None:
    histograms = histograms + (histograms.sum(axis=1, keepdims=True) == 0)
    pairs = squareform(jensen_shannon(histograms))
    mirrored = squareform(jensen_shannon(histograms[::-1]))[::-1, ::-1]
    assert np.array_equal(pairs, mirrored)
    assert (pairs >= 0).all()
    assert (pairs <= 1).all()
    for i in range(len(histograms)):
        for j in range(len(histograms)):
            exact = jensenshannon(histograms[i], histograms[j], base=2)
            assert pairs[i, j] == pytest.approx(0 if np.isnan(exact) else exact, abs=0.02)


@given(counts)
def test_shares_sum_exactly(histograms: np.ndarray) -> None:
    assert (shares(histograms).sum(axis=1) == TOTAL).all()


def two_kinds(n: int, odd: list[int]) -> np.ndarray:
    generator = np.random.default_rng(3)
    rows = np.stack(
        [
            np.bincount(generator.normal(24, 2, 500).astype(int).clip(0, 31), minlength=32)
            for _ in range(n)
        ]
    )
    for i in odd:
        rows[i] = np.bincount(generator.normal(8, 2, 500).astype(int).clip(0, 31), minlength=32)
    return rows


def test_clusters_separate_exactly_the_odd_ones() -> None:
    odd = [0, 8, 16, 24]
    found = cluster_histograms(two_kinds(32, odd), [f"h{i // 8}:{i % 8}" for i in range(32)])
    assert found.count == 2
    assert np.flatnonzero(found.labels == 1).tolist() == odd
    assert "gap" in found.criterion


def test_alike_gpus_are_one_cluster() -> None:
    found = cluster_histograms(two_kinds(16, []), [f"h:{i}" for i in range(16)])
    assert found.count == 1
    assert "all alike" in found.criterion


@given(st.permutations(range(16)))
@settings(deadline=None, max_examples=20)
def test_order_of_gpus_does_not_change_clusters(order: list[int]) -> None:
    rows = two_kinds(16, [3, 7])
    names = [f"h:{i:02}" for i in range(16)]
    straight = cluster_histograms(rows, names).labels
    shuffled = cluster_histograms(rows[order], [names[i] for i in order]).labels
    assert np.array_equal(shuffled, straight[order])


def test_number_of_clusters_can_be_asked_for() -> None:
    found = cluster_histograms(two_kinds(16, [3]), [f"h:{i}" for i in range(16)], clusters=3)
    assert found.count == 3


def test_timelines_cluster_by_correlation_and_survive_gaps_and_constants() -> None:
    t = np.linspace(0, 20, 200)
    rows = np.stack([np.sin(t) * 10 + 50 if i < 6 else np.cos(t) * 10 + 50 for i in range(8)])
    rows[2, 5:9] = np.nan
    names = [f"h:{i}" for i in range(8)]
    assert cluster_timelines(rows, names, by="correlation").labels.tolist() == [0] * 6 + [1] * 2
    assert cluster_timelines(rows, names).labels.tolist() == [0] * 6 + [1] * 2
    constant = np.full((8, 50), 3.0)
    assert cluster_timelines(constant, names).count == 1


def test_beyond_the_exact_limit_the_result_says_approximate() -> None:
    rows = np.tile(two_kinds(64, list(range(16))), (130, 1))
    found = cluster_histograms(rows, [f"h{i}:0" for i in range(len(rows))])
    assert found.approximate
    assert found.count == 2
    assert (found.labels == 1).sum() == 16 * 130


@pytest.mark.parametrize("robust", [False, True])
def test_planted_outliers_are_found(robust: bool) -> None:
    generator = np.random.default_rng(1)
    cloud = generator.multivariate_normal([50, 200], [[4, 6], [6, 25]], 1000)
    cloud[:10] = [90, 60]
    scores = mahalanobis(cloud, robust=robust)
    assert scores.outside[:10].all()
    assert scores.outside[10:].mean() < 0.01


def test_robust_estimate_is_not_masked_by_a_fifth_of_outliers() -> None:
    generator = np.random.default_rng(1)
    cloud = generator.normal([50, 200], [2, 5], (500, 2))
    cloud[:100] = generator.normal([80, 100], [1, 1], (100, 2))
    assert mahalanobis(cloud, robust=True).outside[:100].all()
    assert not mahalanobis(cloud).outside[:100].any()


@given(st.floats(0.01, 1000))
@settings(max_examples=20)
def test_scaling_a_unit_changes_no_outlier(factor: float) -> None:
    cloud = np.random.default_rng(5).normal([50, 200], [2, 5], (200, 2))
    cloud[0] = [70, 100]
    scaled = cloud * [factor, 1.0]
    for robust in (False, True):
        assert np.array_equal(
            mahalanobis(cloud, robust=robust).outside, mahalanobis(scaled, robust=robust).outside
        )


def test_missing_constant_and_few_points_are_no_outliers() -> None:
    assert not mahalanobis(np.array([[1.0, np.nan], [2.0, 3.0]])).outside.any()
    assert not mahalanobis(np.full((50, 2), 7.0), robust=True).outside.any()
    assert len(mahalanobis(np.zeros((0, 2))).squared) == 0

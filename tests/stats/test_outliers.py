"""Mahalanobis scores against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from marey.stats.outliers import mahalanobis


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("whole_numbers", [False, True])
def test_scores_are_squared_distances_from_the_estimate(robust: bool, whole_numbers: bool) -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(400, 3)) @ np.array([[2.0, 0, 1], [0, 5, 2], [0, 0, 1]])
    # Many points are then equally far away.
    points = np.round(points) if whole_numbers else points
    points[7, 1] = np.nan
    scores = mahalanobis(points, robust=robust)
    away = points - scores.centre
    expected = [row @ np.linalg.inv(scores.covariance) @ row for row in away]
    np.testing.assert_allclose(scores.squared, expected, rtol=1e-9)
    assert np.isnan(scores.squared[7])
    assert not scores.outside[7]


def test_the_robust_estimate_is_of_the_core_and_not_of_what_lies_far_away() -> None:
    rng = np.random.default_rng(4)
    points = rng.normal(size=(1000, 2))
    points[:200] += 50.0
    scores = mahalanobis(points, robust=True)
    assert scores.outside[:200].all()
    assert np.abs(scores.centre).max() < 0.2

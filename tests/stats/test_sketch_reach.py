"""Bounds of a statistic over a block: whatever the samples are, no moment may leave them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.stats.sketches.sketch import empty_agg, empty_bins
from marey.stats.sketches.sketch_reach import life_reach
from marey.stats.sketches.sketch_series import life_series
from marey.stats.sketches.sketch_statistics import (
    GREATEST,
    LEAST,
    MEAN,
    NEWEST,
    NUMBER,
    QUANTILE,
    SHARE_GE,
    SHARE_GT,
    SHARE_LE,
    SHARE_LT,
    SPREAD,
    TREND,
)

LOW, STEP = 0.0, 1.0
QUESTIONS = [
    *[(kind, 0.0) for kind in (LEAST, GREATEST, NEWEST, MEAN, SPREAD, NUMBER, TREND)],
    *[(QUANTILE, q) for q in (0.0, 0.05, 0.5, 0.95, 1.0)],
    *[(kind, at) for kind in (SHARE_LT, SHARE_LE, SHARE_GT, SHARE_GE) for at in (0.0, 42.0, 110.0)],
]
# Beyond the bins on both sides, on their edges, and missing.
values = st.one_of(
    st.floats(-30, 140, width=32),
    st.sampled_from([0.0, 41.5, 42.0, 42.5, 100.0]),
    st.just(float("nan")),
)


def series(
    before: list[float], block: list[float], times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of every question, and its value after each sample of the block."""
    agg, bins = empty_agg(1), empty_bins(1)
    kinds = np.array([kind for kind, _ in QUESTIONS], np.int64)
    parameters = np.array([parameter for _, parameter in QUESTIONS])
    one = np.zeros(1, np.int64)
    nothing = np.zeros((0, 1, 1))
    known = np.array(before, np.float32)
    ends = np.array([0, len(known)], np.int64)
    past = np.arange(len(known), dtype=np.int64) - len(known)
    none = (np.zeros(0, np.int64), np.zeros(0))
    life_series(agg, bins, LOW, STEP, one, ends, past, known, np.zeros(1, np.int64), *none, nothing)
    coming = np.array(block, np.float32)
    first = np.array([0, len(coming)], np.int64)
    bounds = np.empty((len(QUESTIONS), 2))
    for number, (kind, parameter) in enumerate(QUESTIONS):
        out = np.empty((1, 2))
        life_reach(agg, bins, LOW, STEP, one, first, coming, kind, parameter, out)
        bounds[number] = out[0]
    found = np.empty((len(QUESTIONS), 1, len(times)))
    life_series(agg, bins, LOW, STEP, one, first, times, coming, times, kinds, parameters, found)
    return bounds, found[:, 0]


@given(
    st.lists(values, max_size=40),
    st.lists(values, min_size=1, max_size=25),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_no_statistic_leaves_its_bounds_at_any_moment_of_the_block(
    before: list[float], block: list[float], data: st.DataObject
) -> None:
    # The same moment twice is a duplicate that the sketch leaves out.
    steps = data.draw(st.lists(st.integers(0, 2), min_size=len(block), max_size=len(block)))
    times = 1 + np.cumsum(np.array(steps, np.int64))
    bounds, found = series(before, block, times)
    for number, question in enumerate(QUESTIONS):
        known = found[number][~np.isnan(found[number])]
        assert (known >= bounds[number, 0]).all(), question
        assert (known <= bounds[number, 1]).all(), question


def test_a_long_life_is_hardly_moved_by_a_short_block() -> None:
    bounds, _ = series([50.0] * 400, [99.0] * 10, np.arange(1, 11))
    named = dict(zip(QUESTIONS, bounds, strict=True))
    assert named[QUANTILE, 0.5] == pytest.approx([50, 51])
    assert named[QUANTILE, 0.95] == pytest.approx([50, 51])
    assert named[MEAN, 0.0] == pytest.approx([50, 50 + 49 * 10 / 410])
    assert named[SHARE_GT, 42.0] == pytest.approx([400 / 410, 1])


def test_where_nothing_is_known_and_nothing_comes_there_is_nothing_to_reach() -> None:
    bounds, _ = series([], [float("nan")], np.array([1]))
    assert (bounds[:, 0] > bounds[:, 1]).all()

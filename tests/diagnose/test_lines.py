"""A metric over time: bins lose no extreme, fall on the same moments, and enclose every GPU."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.diagnose.lines import band, lines, time_bins
from marey.diagnose.matrix import Context, GpuFacts, GridLimits, WorkloadFacts, build_matrix
from marey.model.samples import SampleBatch
from marey.stats.row_shapes import median_along, row_histograms
from tests.diagnose.test_diagnosis import matrix

STEP_MS = 15_000
BEGIN_MS = 10**12


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(2, 80), st.integers(0, 10_000))
def test_binned_lines_keep_the_extremes_of_every_gpu(moments: int, points: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(3, moments)).astype(np.float32)
    values[0, :: 1 + seed % 7] = np.nan
    laid = matrix(values)
    bins = time_bins(laid, points)
    assert len(bins.edges) - 1 <= points + 1
    drawn = lines(laid, "util", laid.names, bins) if laid.columns else {}
    for row, name in enumerate(laid.names):
        own = values[row][~np.isnan(values[row])]
        if len(own) and drawn:
            assert np.nanmin(drawn[name]) == own.min()
            assert np.nanmax(drawn[name]) == own.max()


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 400), st.integers(2, 60), st.integers(0, 200))
def test_a_later_part_falls_on_the_moments_of_the_whole(
    moments: int, points: int, begin: int
) -> None:
    values = np.random.default_rng(1).uniform(0, 100, (2, moments))
    whole = matrix(values)
    bins = time_bins(whole, points)
    # Appending asks from a bin's begin on, with the width of the bins there are.
    at = int(bins.time_ms[min(begin, len(bins.time_ms) - 1) // 2 * 2])
    part = whole.between(at, 2**60)
    later = time_bins(part, points, bins.width_ms)
    assert set(later.time_ms.tolist()) <= set(bins.time_ms.tolist())
    tail = lines(whole, "util", ["h0:0"], bins)["h0:0"][-len(later.time_ms) :]
    np.testing.assert_array_equal(lines(part, "util", ["h0:0"], later)["h0:0"], tail)


def test_the_band_encloses_every_gpu_and_its_levels_are_in_order() -> None:
    values = np.random.default_rng(1).uniform(0, 100, (5, 300))
    laid = matrix(values)
    bins = time_bins(laid, 20)
    levels = band(laid, "util", bins)
    assert levels.shape == (5, len(bins.time_ms))
    assert levels[0].min() == pytest.approx(values.min(), rel=1e-5)
    assert levels[-1].max() == pytest.approx(values.max(), rel=1e-5)
    assert (np.diff(levels, axis=0) >= 0).all()


def test_a_band_of_single_moments_is_that_of_numpy() -> None:
    values = np.random.default_rng(2).uniform(0, 100, (9, 40)).astype(np.float32)
    values[2, 5:20] = np.nan
    values[:, 30] = np.nan
    laid = matrix(values)
    levels = band(laid, "util", time_bins(laid, 1000))
    some = np.arange(40) != 30
    expected = np.nanquantile(values[:, some], (0, 0.1, 0.5, 0.9, 1), axis=0)
    np.testing.assert_allclose(levels[:, some], expected, rtol=1e-5)
    assert np.isnan(levels[:, 30]).all(), "no sample is no value, never zero"


def batches(values: np.ndarray, per_batch: int) -> list[SampleBatch]:
    count, moments = values.shape
    names = tuple(f"h:{i}" for i in range(count))
    listed = []
    for first in range(0, moments, per_batch):
        part = values[:, first : first + per_batch]
        times = np.repeat(np.arange(first, first + part.shape[1]) * STEP_MS + BEGIN_MS, count)
        entity = np.tile(np.arange(count, dtype=np.int32), part.shape[1])
        columns = {"util": part.T.ravel().astype(np.float32)}
        listed.append(SampleBatch(times.astype(np.int64), entity, names, columns))
    return listed


def facts(count: int) -> Context:
    return Context(WorkloadFacts("w"), [GpuFacts(f"h:{i}", "h", i) for i in range(count)])


def test_batches_taken_one_by_one_give_the_same_matrix() -> None:
    values = np.random.default_rng(3).uniform(0, 100, (4, 200)).astype(np.float32)
    until = BEGIN_MS + 200 * STEP_MS
    streamed = build_matrix(facts(4), iter(batches(values, 10)), until_ms=until)
    whole = build_matrix(facts(4), batches(values, 200))
    np.testing.assert_array_equal(streamed.columns["util"], whole.columns["util"])
    np.testing.assert_array_equal(streamed.time_ms, whole.time_ms)
    assert not streamed.coarse


def test_a_window_larger_than_the_limit_gets_coarser_steps_and_keeps_the_extremes_of_the_band() -> (
    None
):
    values = np.full((4, 400), 50.0)
    values[1, 123] = 99.0
    values[3, 301] = 1.0
    until = BEGIN_MS + 400 * STEP_MS
    limits = GridLimits(values=4 * 50)
    found = build_matrix(facts(4), iter(batches(values, 20)), until_ms=until, limits=limits)
    assert found.coarse
    assert found.columns["util"].size <= 4 * 51
    levels = band(found, "util", time_bins(found, 25))
    assert levels[0].min() == 1.0
    assert levels[-1].max() == 99.0


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 30), st.integers(0, 1000))
def test_fast_medians_are_those_of_numpy(rows: int, columns: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, columns)).astype(np.float32)
    values[random.random((rows, columns)) < 0.3 * (seed % 2)] = np.nan
    for axis in (0, 1):
        found = median_along(values, axis)
        some = ~np.isnan(values).all(axis=axis)
        picked = values[:, some] if axis == 0 else values[some]
        if some.any():
            np.testing.assert_allclose(found[some], np.nanmedian(picked, axis=axis), rtol=1e-6)
        assert np.isnan(found[~some]).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000))
def test_histograms_count_every_value_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(50, 40, (3, 50)).astype(np.float32)
    values[0, :5] = np.nan
    counts = row_histograms(values, 0.0, 100.0, 16)
    assert counts.sum(axis=1).tolist() == [45, 50, 50]
    inside = values[1][(values[1] >= 0) & (values[1] < 100)]
    expected, _ = np.histogram(inside, 16, (0, 100))
    assert counts[1, 1:-1].tolist() == expected[1:-1].tolist()

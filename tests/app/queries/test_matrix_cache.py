"""Matrices that were read a moment ago: found again, cut, bounded, and forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marey.app.queries.matrix_cache import (
    KEPT_S,
    LAG_MS,
    MOST_TREES,
    MatrixCache,
    TreeNotes,
    Window,
)
from marey.diagnose.clusters import cluster_gpus
from marey.diagnose.matrix import WorkloadMatrix
from tests.diagnose.test_diagnosis import matrix

UTIL = frozenset({"util"})
BEGIN_MS = 10**12
STEP_MS = 15_000


class Clock:
    """Seconds that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def whole(moments: int = 100, gpus: int = 4) -> tuple[Window, WorkloadMatrix]:
    made = matrix(np.random.default_rng(0).uniform(0, 100, (gpus, moments)))
    return Window("default", "w", BEGIN_MS, BEGIN_MS + moments * STEP_MS), made


def test_what_was_kept_is_found_and_a_window_of_it_is_cut() -> None:
    cache = MatrixCache()
    window, made = whole()
    cache.keep(window, UTIL, made)
    assert cache.find(window, UTIL) is made
    part = replace(window, from_ms=BEGIN_MS + 10 * STEP_MS, to_ms=BEGIN_MS + 20 * STEP_MS)
    found = cache.find(part, UTIL)
    assert found is not None
    np.testing.assert_array_equal(found.columns["util"], made.columns["util"][:, 10:20])


def test_another_workload_metric_or_a_longer_window_is_not_known() -> None:
    cache = MatrixCache()
    window, made = whole()
    cache.keep(window, UTIL, made)
    assert cache.find(replace(window, workload="v"), UTIL) is None
    assert cache.find(window, frozenset({"util", "power"})) is None
    assert cache.find(replace(window, to_ms=window.to_ms + 1), UTIL) is None
    assert cache.find(replace(window, cluster="other"), UTIL) is None


def test_a_running_workload_is_read_again_when_its_picture_lags() -> None:
    cache = MatrixCache()
    window, made = whole()
    cache.keep(replace(window, open_end=True), UTIL, made)
    later = replace(window, open_end=True, to_ms=window.to_ms + LAG_MS)
    assert cache.find(later, UTIL) is made
    assert cache.find(replace(later, to_ms=later.to_ms + 1), UTIL) is None
    newest = replace(later, from_ms=window.to_ms - STEP_MS)
    assert cache.find(newest, UTIL) is None, "what is appended must be new"


def test_a_coarse_matrix_is_not_cut_into_a_window_that_could_be_finer() -> None:
    cache = MatrixCache()
    window, made = whole()
    low = np.zeros(100, np.float32)
    cache.keep(window, UTIL, replace(made, extremes={"util": (low, low)}))
    assert cache.find(window, UTIL) is not None
    assert cache.find(replace(window, from_ms=window.from_ms + STEP_MS), UTIL) is None


def test_the_cache_is_bounded_and_forgets_what_nobody_looks_at() -> None:
    clock = Clock()
    size = 4 * 100 * 4
    cache = MatrixCache(most_bytes=2 * size, clock=clock)
    window, made = whole()
    for name in ("a", "b", "c"):
        clock.now += 1
        cache.keep(replace(window, workload=name), UTIL, made)
    assert cache.find(replace(window, workload="a"), UTIL) is None
    assert cache.find(replace(window, workload="b"), UTIL) is not None
    large, huge = whole(moments=1000)
    cache.keep(large, UTIL, huge)
    assert cache.find(large, UTIL) is None, "what does not fit is not kept"
    clock.now += KEPT_S
    assert cache.find(replace(window, workload="c"), UTIL) is None


def test_another_number_of_clusters_cuts_the_tree_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(3).normal(50, 4, (24, 120)).astype(np.float32)
    values[::8] += 40
    wide = matrix(values)
    trees = TreeNotes()
    first = cluster_gpus(wide, "util")
    trees.put(trees.key(wide, "util", "histogram"), first.merged)
    fresh = [cluster_gpus(wide, "util", clusters=n).labels.tolist() for n in (1, 2, 5)]

    def never(*_: object) -> None:
        raise AssertionError("the GPUs are compared again")

    monkeypatch.setattr("marey.diagnose.clusters.merge_histograms", never)
    known = trees.get(trees.key(wide, "util", "histogram"))
    cut = [cluster_gpus(wide, "util", clusters=n, merged=known).labels.tolist() for n in (1, 2, 5)]
    assert cut == fresh
    other = matrix(values + 1)
    assert trees.get(trees.key(other, "util", "histogram")) is None
    assert trees.get(trees.key(wide, "util", "euclidean")) is None


def test_only_the_trees_asked_for_last_are_kept() -> None:
    wide = matrix(np.random.default_rng(3).normal(50, 4, (4, 20)).astype(np.float32))
    merged = cluster_gpus(wide, "util").merged
    trees = TreeNotes()
    for number in range(MOST_TREES + 1):
        trees.put((number,), merged)
        trees.get((0,))
    assert trees.get((0,)) is merged
    assert trees.get((1,)) is None

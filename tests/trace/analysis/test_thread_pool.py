"""Lanes of a pool of threads: the same for the same order of work, whoever carries it out."""

from __future__ import annotations

import numpy as np

from marey.trace.dataflow.thread_pool import assign_lanes


def test_work_takes_the_lowest_lane_that_is_free() -> None:
    start = np.array([0, 10, 12, 20, 21])
    end = np.array([10, 20, 15, 30, 22])
    assert assign_lanes(start, end).tolist() == [0, 0, 1, 0, 1]


def test_no_two_pieces_of_work_share_a_lane_at_once() -> None:
    random = np.random.default_rng(5)
    start = np.sort(random.integers(0, 1000, 200))
    end = start + random.integers(1, 40, 200)
    lanes = assign_lanes(start, end)
    for lane in np.unique(lanes):
        own = np.flatnonzero(lanes == lane)
        assert (start[own[1:]] >= end[own[:-1]]).all()

"""Interval sets agree with the obvious definition, point by point."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.stats.intervals import Intervals, complement, cover, intersect, merge, subtract, unite

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=20)


def points(a: Intervals) -> set[int]:
    return {
        p for s, e in zip(a.start_ns.tolist(), a.end_ns.tolist(), strict=True) for p in range(s, e)
    }


def made(spans: list[tuple[int, int]]) -> Intervals:
    return merge([s for s, _ in spans], [d for _, d in spans])


def naive(spans: list[tuple[int, int]]) -> set[int]:
    return {p for s, d in spans for p in range(s, s + d)}


@settings(deadline=None)  # numba compiles on first use
@given(SPANS)
def test_a_union_covers_each_point_once_and_its_intervals_are_disjoint(
    spans: list[tuple[int, int]],
) -> None:
    union = made(spans)
    assert points(union) == naive(spans)
    assert union.total_ns == len(naive(spans))
    assert np.all(union.start_ns[1:] > union.end_ns[:-1])


@settings(deadline=None)  # numba compiles on first use
@given(SPANS, SPANS)
def test_set_operations_are_those_of_point_sets(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    left, right = made(a), made(b)
    assert points(intersect(left, right)) == naive(a) & naive(b)
    assert points(subtract(left, right)) == naive(a) - naive(b)
    assert points(unite(left, right)) == naive(a) | naive(b)
    assert points(complement(left, 0, 80)) == set(range(80)) - naive(a)


@settings(deadline=None)  # numba compiles on first use
@given(SPANS, st.lists(st.tuples(st.integers(-5, 80), st.integers(0, 40)), max_size=10))
def test_the_cover_of_a_window_is_the_count_of_its_covered_points(
    spans: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    lo = np.array([w for w, _ in windows], np.int64)
    hi = lo + np.array([d for _, d in windows], np.int64)
    expected = [len(naive(spans) & set(range(a, b))) for a, b in zip(lo, hi, strict=True)]
    assert cover(made(spans), lo, hi).tolist() == expected


def test_the_union_of_nothing_is_empty() -> None:
    assert merge([], []).total_ns == 0
    assert cover(merge([], []), [0], [10]).tolist() == [0]


@settings(deadline=None)  # numba compiles on first use
@given(SPANS, SPANS, st.sampled_from([-(2**63) + 100, -(2**62), 2**62, 2**63 - 200]))
def test_differences_hold_at_either_end_of_time(
    a: list[tuple[int, int]], b: list[tuple[int, int]], shift: int
) -> None:
    left = made([(s + shift, d) for s, d in a])
    right = made([(s + shift, d) for s, d in b])
    assert points(subtract(left, right)) == {p + shift for p in naive(a) - naive(b)}

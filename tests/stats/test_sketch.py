from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.stats.sketches import sketch
from marey.stats.sketches import sketch_statistics as ask
from marey.stats.sketches.sketch_codec import pack, unpack
from marey.stats.sketches.sketch_tables import (
    SLOT_MS,
    EntityRows,
    SketchTable,
    Span,
    Ticks,
    WindowNeed,
    WindowRing,
    room_for,
)

SPAN = Span(0.0, 2000.0)
# The first call compiles, which no deadline should judge.
patient = settings(deadline=None, max_examples=60)
LATE = np.iinfo(np.int64).max
values_in_range = st.lists(st.floats(0, 2000, width=32), min_size=1, max_size=200).map(
    lambda v: np.array(v, np.float32)
)


def make_entity_rows(rows: int) -> EntityRows:
    return EntityRows(
        np.arange(rows + 1), np.arange(rows), np.zeros(rows, np.int64), np.full(rows, LATE)
    )


def ticks(values: np.ndarray, *, start: int = 0, step_ms: int = 15_000) -> Ticks:
    n = len(values)
    return Ticks(
        start + np.arange(n, dtype=np.int64) * step_ms,
        np.zeros(n, np.int32),
        values.astype(np.float32)[None, :],
    )


def sketch_of(values: np.ndarray, span: Span = SPAN, *, start: int = 0) -> SketchTable:
    table = SketchTable([span], 1)
    table.update(ticks(values, start=start), np.array([0]), make_entity_rows(1))
    return table


@patient
@given(values_in_range, st.floats(0, 1))
def test_a_quantile_is_within_one_percent_of_the_range(values: np.ndarray, q: float) -> None:
    table = sketch_of(values)
    got = ask.binned(
        ask.QUANTILE,
        parameter=q,
        agg=table.agg[:, 0],
        bins=table.bins[:, 0],
        low=SPAN.low,
        step=SPAN.step,
    )[0]
    exact = np.quantile(values.astype(float), q)
    assert abs(got - exact) <= 0.01 * (SPAN.high - SPAN.low)


@patient
@given(values_in_range)
def test_extremes_mean_deviation_and_last_are_exact(values: np.ndarray) -> None:
    agg = sketch_of(values).agg[:, 0]
    exact = values.astype(float)
    assert ask.exact(ask.LEAST, agg)[0] == exact.min()
    assert ask.exact(ask.GREATEST, agg)[0] == exact.max()
    assert ask.exact(ask.NEWEST, agg)[0] == exact[-1]
    assert ask.exact(ask.SPREAD, agg)[0] == exact.max() - exact.min()
    assert ask.exact(ask.MEAN, agg)[0] == pytest.approx(exact.mean(), abs=1e-6)
    if len(values) > 1:
        assert ask.exact(ask.DEVIATION, agg)[0] == pytest.approx(exact.std(), abs=1e-3)


@patient
@given(values_in_range.filter(lambda v: len(v) > 2))
def test_the_trend_is_the_least_squares_slope_per_hour(values: np.ndarray) -> None:
    hours = np.arange(len(values)) * 15 / 3600
    slope = np.polyfit(hours, values.astype(float), 1)[0]
    assert ask.exact(ask.TREND, sketch_of(values).agg[:, 0])[0] == pytest.approx(slope, abs=0.5)


@patient
@given(values_in_range, st.floats(0, 2000), st.sampled_from(["<", "<=", ">", ">="]))
def test_the_share_beyond_is_between_the_shares_one_step_to_each_side(
    values: np.ndarray, limit: float, op: str
) -> None:
    table = sketch_of(values)
    got = ask.binned(
        ask.SHARES[op],
        parameter=limit,
        agg=table.agg[:, 0],
        bins=table.bins[:, 0],
        low=SPAN.low,
        step=SPAN.step,
    )[0]
    exact = values.astype(float)
    shares = [
        {"<": exact < x, "<=": exact <= x, ">": exact > x, ">=": exact >= x}[op].mean()
        for x in (limit - SPAN.step, limit + SPAN.step)
    ]
    assert min(shares) - 1e-9 <= got <= max(shares) + 1e-9


@patient
@given(values_in_range, values_in_range)
def test_sketches_of_two_parts_add_up_to_the_sketch_of_the_whole(
    first: np.ndarray, second: np.ndarray
) -> None:
    a = sketch_of(first)
    b = sketch_of(second, start=len(first) * 15_000)
    whole = sketch_of(np.concatenate([first, second]))
    sketch.merge_rows(a.agg[:, 0], a.bins[:, 0], b.agg[:, 0], b.bins[:, 0])
    assert np.array_equal(a.bins, whole.bins)
    assert np.allclose(a.agg, whole.agg, rtol=1e-9, atol=1e-3)


@patient
@given(st.integers(2, 60), st.randoms(use_true_random=False))
def test_late_samples_give_the_same_sketch_as_samples_in_order(n: int, random: object) -> None:
    rng = np.random.default_rng(n)
    values = rng.uniform(0, 2000, n).astype(np.float32)
    order = rng.permutation(n)
    whole = sketch_of(values)
    late = SketchTable([SPAN], 1)
    all_ticks = ticks(values)
    for i in order:
        one = Ticks(all_ticks.time_ms[[i]], all_ticks.entity[[i]], all_ticks.values[:, [i]])
        late.update(one, np.array([0]), make_entity_rows(1))
    assert np.array_equal(late.bins, whole.bins)
    for statistic in (ask.MEAN, ask.VARIANCE, ask.TREND, ask.SPREAD):
        assert ask.exact(statistic, late.agg[:, 0])[0] == pytest.approx(
            ask.exact(statistic, whole.agg[:, 0])[0], rel=1e-6
        )
    assert ask.exact(ask.NEWEST, late.agg[:, 0])[0] == values[-1]


def test_a_constant_series_of_large_values_has_no_deviation() -> None:
    agg = sketch_of(np.full(10_000, 79_123.0), Span(0, 300_000)).agg[:, 0]
    assert ask.exact(ask.VARIANCE, agg)[0] == 0
    assert ask.exact(ask.TREND, agg)[0] == 0


def test_a_sample_sent_twice_counts_once() -> None:
    table = sketch_of(np.array([5.0, 7.0]))
    table.update(
        Ticks(np.array([15_000]), np.zeros(1, np.int32), np.array([[7.0]], np.float32)),
        np.array([0]),
        make_entity_rows(1),
    )
    assert table.agg[0, 0, sketch.COUNT] == 2


def test_bins_widen_before_a_count_could_be_cut_off() -> None:
    table, most = SketchTable([SPAN], 1), int(np.iinfo(np.uint16).max)
    table.update(ticks(np.full(most, 500.0)), np.array([0]), make_entity_rows(1))
    assert table.bins.dtype == np.uint16
    table.update(ticks(np.full(9, 500.0), start=most * 15_000), np.array([0]), make_entity_rows(1))
    assert table.bins.dtype == np.uint32
    assert table.bins.sum() == table.agg[0, 0, sketch.COUNT] == most + 9
    again = SketchTable([SPAN], 1)
    again.restore(table.agg, table.bins)
    again.update(
        ticks(np.full(5, 500.0), start=2 * most * 15_000), np.array([0]), make_entity_rows(1)
    )
    assert again.bins.sum() == most + 14


def test_a_row_that_begins_anew_keeps_bins_narrow() -> None:
    table = SketchTable([SPAN], 1)
    for life in range(3):
        values = np.full(40_000, 500.0)
        table.update(ticks(values, start=life * 10**10), np.array([0]), make_entity_rows(1))
        assert table.bins.sum() == 40_000
        table.clear(0)
    assert table.bins.dtype == np.uint16


def test_no_samples_means_no_number_never_zero() -> None:
    agg, bins = sketch.empty_agg(1), sketch.empty_bins(1)
    for statistic in (ask.MEAN, ask.VARIANCE, ask.TREND, ask.SPREAD, ask.STEADINESS):
        assert np.isnan(ask.exact(statistic, agg)[0])
    assert np.isnan(ask.binned(ask.QUANTILE, parameter=0.5, agg=agg, bins=bins, low=0, step=1)[0])
    assert np.isnan(ask.binned(ask.SHARE_LT, parameter=3, agg=agg, bins=bins, low=0, step=1)[0])


def test_missing_values_and_unknown_entities_change_nothing() -> None:
    table = SketchTable([SPAN], 1)
    odd = Ticks(
        np.array([0, 1, 2]), np.array([0, -1, 9], np.int32), np.full((1, 3), np.nan, np.float32)
    )
    assert table.update(odd, np.array([0]), make_entity_rows(1)) == 0
    assert not table.bins.any()


def test_a_shared_gpu_counts_for_each_workload_that_holds_it_at_that_time() -> None:
    table = SketchTable([SPAN], 2)
    shared = EntityRows(
        np.array([0, 2]), np.array([0, 1]), np.array([0, 30_000]), np.array([LATE, 60_000])
    )
    table.update(ticks(np.arange(6.0)), np.array([0]), shared)
    assert table.agg[0, 0, sketch.COUNT] == 6
    assert table.agg[1, 0, sketch.COUNT] == 2


def test_a_window_holds_its_minutes_and_at_most_five_more() -> None:
    ring = WindowRing(SPAN, WindowNeed(600_000, 600_000), 1)
    minutes = np.arange(120)
    start = 1_000 * SLOT_MS
    for minute in minutes:
        now = start + minute * 60_000
        ring.advance(now)
        one = Ticks(np.array([now]), np.zeros(1, np.int32), np.array([[minute]], np.float32))
        ring.update(one, 0, make_entity_rows(1))
        agg = ring.summary(now, 600_000)
        oldest = agg[0, sketch.MIN]
        assert max(0, minute - 15) <= oldest <= max(0, minute - 9)
        assert agg[0, sketch.MAX] == minute
        assert ring.histogram(now, 600_000).sum() == agg[0, sketch.COUNT]


def test_a_late_sample_enters_its_own_slot_and_a_very_late_one_is_left_out() -> None:
    ring = WindowRing(SPAN, WindowNeed(600_000, 600_000), 1)
    now = 1_000 * SLOT_MS + 100_000
    ring.advance(now)

    def put(at: int) -> None:
        one = Ticks(np.array([at]), np.zeros(1, np.int32), np.array([[1.0]], np.float32))
        ring.update(one, 0, make_entity_rows(1))

    put(now - 400_000)
    put(now - 3_000_000)
    put(now + 10 * SLOT_MS)
    assert ring.summary(now, 600_000)[0, sketch.COUNT] == 1


def test_bins_of_a_window_widen_before_a_count_is_cut_off() -> None:
    ring = WindowRing(SPAN, WindowNeed(600_000, 300_000), 1)
    start = 1_000 * SLOT_MS
    ring.advance(start)
    for second in range(300):
        at = start + second * 1000
        one = Ticks(np.array([at]), np.zeros(1, np.int32), np.array([[7.0]], np.float32))
        ring.update(one, 0, make_entity_rows(1))
    assert ring.histogram(start + 299_000, 300_000).max() == 300
    assert ring.bins.dtype == np.uint16
    dense = np.arange(start, start + 300_000, 4, dtype=np.int64)
    ring.update(
        Ticks(dense, np.zeros(len(dense), np.int32), np.full((1, len(dense)), 9, np.float32)),
        0,
        make_entity_rows(1),
    )
    counted = ring.histogram(start + 299_000, 300_000)
    assert counted.sum() == ring.summary(start + 299_000, 300_000)[0, sketch.COUNT] > 65_535


def test_bins_are_kept_only_as_far_back_as_they_are_asked() -> None:
    ring = WindowRing(SPAN, WindowNeed(1_800_000, 300_000), 1)
    plain = WindowRing(SPAN, WindowNeed(1_800_000), 1)
    start = 1_000 * SLOT_MS
    for minute in range(60):
        now = start + minute * 60_000
        one = Ticks(np.array([now]), np.zeros(1, np.int32), np.array([[minute]], np.float32))
        for each in (ring, plain):
            each.advance(now)
            each.update(one, 0, make_entity_rows(1))
        short = ring.summary(now, 300_000)[0, sketch.COUNT]
        assert ring.histogram(now, 300_000).sum() == short
        assert ring.summary(now, 1_800_000).tolist() == plain.summary(now, 1_800_000).tolist()
    assert plain.bins.size == 0
    assert ring.bins.shape[1] == 2


def test_packed_sketches_come_back_whole_and_damage_is_refused() -> None:
    table = sketch_of(np.linspace(0, 2000, 50))
    data = b"".join(pack({"version": 1}, {"agg": table.agg, "bins": table.bins}))
    document, arrays = unpack(data)
    assert document == {"version": 1}
    assert np.array_equal(arrays["bins"], table.bins)
    assert np.array_equal(arrays["agg"], table.agg)
    for cut in (0, 5, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError, match="sketches"):
            unpack(data[:cut])
    damaged = bytearray(data)
    damaged[-10] ^= 0xFF
    with pytest.raises(ValueError, match="damaged"):
        unpack(bytes(damaged))


def test_tables_grow_and_keep_what_they_hold() -> None:
    table = sketch_of(np.array([3.0]))
    table.reserve(100)
    table.add_metrics([Span(0, 1)])
    assert len(table.agg) == 100
    assert table.agg[0, 0, sketch.MAX] == 3
    assert table.agg.shape[1] == 2
    assert room_for(10_001, 10_000) == 10_625
    table.clear(0)
    assert not table.agg.any()


def test_room_for_more_rows_is_added_in_place_unless_somebody_looks() -> None:
    table = sketch_of(np.array([3.0]))
    before = id(table.agg)
    table.reserve(1_000)
    assert id(table.agg) == before
    seen = table.agg[:1]
    table.reserve(5_000)
    assert id(table.agg) != before
    assert seen[0, 0, sketch.MAX] == table.agg[0, 0, sketch.MAX] == 3
    assert not table.agg[1:].any()
    assert not table.bins[1:].any()


def test_a_window_of_some_rows_is_that_part_of_all() -> None:
    ring = WindowRing(SPAN, WindowNeed(600_000, 600_000), 3)
    ring.advance(60_000)
    ring.bins[:] = np.arange(3, dtype=np.uint8)[:, None, None]
    ring.agg[:, :, sketch.COUNT] = np.arange(3)[:, None]
    whole = ring.histogram(60_000, 600_000)
    assert ring.histogram(60_000, 600_000, slice(1, 3)).tolist() == whole[1:].tolist()
    counted = ring.summary(60_000, 600_000)
    assert ring.summary(60_000, 600_000, 2).tolist() == counted[:2].tolist()

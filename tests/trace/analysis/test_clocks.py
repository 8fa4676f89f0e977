"""Clocks: offsets and drifts are found, a shift of one rank changes nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from marey.trace.analysis import align_clocks, judge, match_collectives
from marey.trace.ranks.clocks import apply_clock
from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic import Layout, Scenario, SyntheticRun, TraceStyle, make_run
from marey.trace.synthetic.tables import ORIGIN_NS

Shift = Callable[[TraceRun, int, int], TraceRun]
LAYOUTS = [
    Layout(data=8, ranks_per_host=2),
    Layout(data=2, tensor=2, pipeline=4, micro_batches=4, layers=2, ranks_per_host=4),
    Layout(data=1, pipeline=4, micro_batches=8, layers=2, ranks_per_host=1),
]


def _made(layout: Layout, **more: object) -> SyntheticRun:
    trace_style = TraceStyle(offset_us=500, drift_ppm=50)
    return make_run(Scenario(layout, steps=5, trace_style=trace_style, **more))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_aligned_clocks_agree_to_a_few_microseconds(layout: Layout) -> None:
    made = _made(layout)
    clocks = align_clocks(made.run)
    # The same true moments, early and late, as every rank's clock shows them.
    for true_ns in (5e6, 40e6):
        ranks = np.arange(layout.world)
        shown = made.clock.show(ranks, np.full(layout.world, true_ns))
        pairs = zip(shown.tolist(), clocks.offset_us, clocks.drift_ppm, strict=True)
        times = [apply_clock(np.array(s), o, d, clocks.origin_ns) for s, o, d in pairs]
        assert np.ptp(np.array(times, np.int64) - ORIGIN_NS) < 6_000


def test_the_residual_is_that_of_the_ends_and_bounds_what_is_claimed() -> None:
    clocks = align_clocks(_made(LAYOUTS[0]).run)
    assert 0 < max(clocks.residual_us) < 3
    assert 0 < clocks.error_us < 5


def test_no_last_rank_is_certain_within_the_error_of_the_clock() -> None:
    made = _made(LAYOUTS[0])
    matches, clocks = match_collectives(made.run), align_clocks(made.run)
    members = matches.members.to_pylist()
    for item in matches.items.to_pylist():
        starts = sorted(m["start_ns"] for m in members if m["item"] == item["item"])
        lead_us = (starts[-1] - starts[-2]) / 1e3
        assert item["certain"] == (lead_us > clocks.error_us)


def _sure_last_ranks(run: TraceRun) -> dict[int, int]:
    """Who came last, where the lead is more than rounding above the clock's error."""
    matches, clocks = match_collectives(run), align_clocks(run)
    starts: dict[int, list[int]] = {}
    for member in matches.members.to_pylist():
        starts.setdefault(member["item"], []).append(member["start_ns"])
    return {
        row["item"]: row["last_rank"]
        for row in matches.items.to_pylist()
        if np.diff(sorted(starts[row["item"]])[-2:])[0] / 1e3 > clocks.error_us + 0.1
    }


@pytest.mark.parametrize("by_us", [500, -500])
@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_a_shifted_rank_moves_its_offset_and_nothing_else(
    layout: Layout, by_us: int, shifted: Shift
) -> None:
    made = _made(layout, kind=VerdictKind.SLOW_WORKER, seed=3)
    moved = shifted(made.run, 1, by_us * 1000)
    before, after = align_clocks(made.run), align_clocks(moved)
    difference = np.array(after.offset_us) - np.array(before.offset_us)
    others = np.delete(difference, 1)
    assert difference[1] - others.mean() == pytest.approx(by_us, abs=0.1)
    assert np.ptp(others) < 0.1
    assert _sure_last_ranks(moved) == _sure_last_ranks(made.run)
    assert judge(moved) == judge(made.run)


def test_ranks_of_one_host_share_their_drift() -> None:
    clocks = align_clocks(_made(LAYOUTS[0]).run)
    by_host: dict[str, set[float]] = {}
    for host, drift in zip(clocks.hosts, clocks.drift_ppm, strict=True):
        by_host.setdefault(host, set()).add(drift)
    assert all(len(drifts) == 1 for drifts in by_host.values())
    assert len(by_host) == 4


def test_a_run_without_communication_keeps_its_own_clock() -> None:
    made = _made(Layout(data=1))
    clocks = align_clocks(made.run)
    assert clocks.offset_us == (0.0,)
    assert clocks.error_us == 0.0

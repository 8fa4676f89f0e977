"""Verdicts on synthetic runs whose truth is exact; the full score is in bench/trace_verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marey.trace.analysis import analyse, blame, judge
from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic import Layout, Scenario, TraceStyle, make_run, possible_kinds
from marey.trace.synthetic.costs import healthy_step_ns
from marey.trace.synthetic.faults import Conditions, healthy
from marey.trace.synthetic.program import run_program
from marey.trace.synthetic.simulation import Simulation
from marey.trace.synthetic.tables import build_run, make_clock
from marey.trace.verdicts.doubts import DOUBTED_CONFIDENCE, FAULTLESS_KINDS

LAYOUTS = [
    Layout(data=8, ranks_per_host=4),
    Layout(data=4, tensor=2, layers=2, ranks_per_host=4),
    Layout(data=2, pipeline=4, micro_batches=6, layers=2, ranks_per_host=2),
    Layout(data=8, sharded=True, ranks_per_host=2),
]
CASES = [
    pytest.param(
        layout,
        kind,
        id=f"{kind}-{layout.data}x{layout.tensor}x{layout.pipeline}"
        + ("-sharded" if layout.sharded else ""),
    )
    for layout in LAYOUTS
    for kind in possible_kinds(layout)
]


@pytest.mark.parametrize(("layout", "kind"), CASES)
def test_the_injected_cause_is_named_once_with_its_ranks(layout: Layout, kind: VerdictKind) -> None:
    made = make_run(Scenario(layout, kind, seed=987))
    verdicts = judge(made.run)
    bubble = kind == VerdictKind.NONE and layout.pipeline > 1
    assert [v.kind for v in verdicts] == [VerdictKind.PIPELINE_BUBBLE if bubble else kind]
    assert verdicts[0].ranks == made.truth.ranks
    assert 0 < verdicts[0].confidence <= 1
    assert verdicts[0].evidence
    if kind != VerdictKind.NONE:
        assert verdicts[0].recoverable_ms > 0
        assert set(verdicts[0].steps) <= set(made.truth.steps)


@pytest.mark.parametrize("kind", [VerdictKind.SLOW_WORKER, VerdictKind.LATE_START])
def test_old_names_and_missing_identifiers_change_nothing(kind: VerdictKind) -> None:
    layout = LAYOUTS[1]
    today = judge(make_run(Scenario(layout, kind, seed=11)).run)
    old = TraceStyle(kernel_names="yesterday", identifiers="none", described_groups=False)
    yesterday = judge(make_run(Scenario(layout, kind, seed=11, trace_style=old)).run)
    assert [(v.kind, v.ranks, v.steps) for v in yesterday] == [
        (v.kind, v.ranks, v.steps) for v in today
    ]
    assert yesterday[0].recoverable_ms == pytest.approx(today[0].recoverable_ms, rel=0.01)


def test_what_is_recoverable_is_what_the_fault_cost() -> None:
    layout = Layout(data=8)
    healthy = analyse(make_run(Scenario(layout, seed=21)).run)
    faulty = analyse(make_run(Scenario(layout, VerdictKind.SLOW_WORKER, seed=21)).run)

    def span_ms(found: object) -> float:
        steps = found.steps.to_pylist()
        return (max(s["end_ns"] for s in steps) - min(s["start_ns"] for s in steps)) / 1e6

    cost = span_ms(faulty) - span_ms(healthy)
    assert faulty.verdicts[0].recoverable_ms == pytest.approx(cost, rel=0.15)


def _run(layout: Layout, conditions: Conditions) -> TraceRun:
    simulation = Simulation(layout, conditions, 1)
    run_program(simulation, conditions.compute.shape[1])
    clock = make_clock(layout, TraceStyle(), np.random.default_rng(1))
    return build_run(simulation, TraceStyle(), clock)


@pytest.mark.parametrize(("stages", "batches"), [(4, 4), (4, 8), (2, 2)])
def test_a_healthy_pipeline_is_told_how_long_it_stands_empty(stages: int, batches: int) -> None:
    layout = Layout(data=2, pipeline=stages, micro_batches=batches, layers=2)
    verdict = judge(make_run(Scenario(layout, seed=7)).run)[0]
    assert verdict.kind == VerdictKind.PIPELINE_BUBBLE
    theory = (stages - 1) / (batches + stages - 1)
    said = next(line for line in verdict.evidence if "equal stages" in line)
    assert f"empty for {100 * theory:.0f} %" in said
    measured = int(said.rpartition("here it is ")[2].rstrip(" %")) / 100
    assert measured == pytest.approx(theory, abs=0.06)
    assert f"({2 * batches})" in verdict.evidence[-1]


def test_many_micro_batches_leave_no_bubble_worth_naming() -> None:
    layout = Layout(data=2, pipeline=2, micro_batches=16, layers=1)
    assert judge(make_run(Scenario(layout, seed=7)).run)[0].kind == VerdictKind.NONE


def test_without_a_pipeline_no_bubble_is_named() -> None:
    layout = Layout(data=4, tensor=2, layers=2, ranks_per_host=4)
    for kind in (VerdictKind.NONE, VerdictKind.SLOW_WORKER):
        found = judge(make_run(Scenario(layout, kind, seed=7)).run)
        assert VerdictKind.PIPELINE_BUBBLE not in {v.kind for v in found}


def test_two_causes_are_both_named_the_dearer_first() -> None:
    layout = Layout(data=4, pipeline=2, micro_batches=4, layers=2)
    conditions = healthy(layout, 5)
    conditions.stage[1] = 1.5
    conditions.start_ns[0, :] = 0.25 * healthy_step_ns(layout)
    verdicts = judge(_run(layout, conditions))
    assert {(v.kind, v.ranks) for v in verdicts} == {
        (VerdictKind.STAGE_IMBALANCE, (4, 5, 6, 7)),
        (VerdictKind.LATE_START, (0,)),
    }
    assert verdicts[0].recoverable_ms >= verdicts[1].recoverable_ms


def test_the_operators_of_a_slow_worker_are_its_longest_kernels() -> None:
    verdict = judge(make_run(Scenario(LAYOUTS[0], VerdictKind.SLOW_WORKER, seed=4)).run)[0]
    assert any("gemm" in name for name in verdict.operators)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (VerdictKind.SLOW_WORKER, "compute"),
        (VerdictKind.LATE_START, "start"),
    ],
)
def test_blame_goes_to_who_started_it(kind: VerdictKind, cause: str) -> None:
    made = make_run(Scenario(LAYOUTS[0], kind, seed=6))
    rows = blame(made.run).to_pylist()
    total = sum(row["gpu_seconds"] for row in rows)
    theirs = sum(
        row["gpu_seconds"]
        for row in rows
        if row["culprit"] in made.truth.ranks and row["cause"] == cause
    )
    assert theirs > 0.8 * total
    assert all(row["culprit"] != row["victim"] for row in rows)


def test_blame_passes_through_those_who_waited_themselves() -> None:
    # The slow rank delays its tensor partner, which then is late for its own data group.
    made = make_run(Scenario(LAYOUTS[1], VerdictKind.SLOW_WORKER, seed=6))
    rows = blame(made.run).to_pylist()
    by_culprit: dict[int, float] = {}
    for row in rows:
        by_culprit[row["culprit"]] = by_culprit.get(row["culprit"], 0) + row["gpu_seconds"]
    assert max(by_culprit, key=lambda rank: by_culprit[rank]) == made.truth.ranks[0]
    partner = made.truth.ranks[0] ^ 1
    assert by_culprit.get(partner, 0) < 0.3 * by_culprit[made.truth.ranks[0]]
    victims = {row["victim"] for row in rows if row["culprit"] == made.truth.ranks[0]}
    assert len(victims) == 7


def test_a_network_slower_than_any_healthy_one_is_a_slow_link_not_a_bound() -> None:
    # One group only: no other link to compare with, nobody is late, every transfer crawls.
    layout = Layout(data=4)
    conditions = healthy(layout, 4)
    conditions.transfer = 20_000.0
    run = _run(layout, conditions)
    verdicts = judge(run)
    assert [v.kind for v in verdicts] == [VerdictKind.SLOW_LINK]
    assert "MB/s" in verdicts[0].evidence[0]


@pytest.mark.parametrize(
    ("transfer", "kind"), [(20_000.0, VerdictKind.SLOW_LINK), (5_000.0, VerdictKind.NONE)]
)
def test_a_crawling_network_is_named_before_it_bounds_the_run(
    transfer: float, kind: VerdictKind
) -> None:
    # Of a run that computes for two thirds of its time, transfers are no bound; crawling ones are
    # named. The same share on a network that carries 80 MB/s is not.
    layout = Layout(data=4)
    conditions = healthy(layout, 4)
    conditions.transfer = transfer
    conditions.compute *= transfer / 6
    verdicts = judge(_run(layout, conditions))
    assert [v.kind for v in verdicts] == [kind]
    if kind == VerdictKind.SLOW_LINK:
        assert 0.6 <= verdicts[0].confidence < 0.9
        assert "19.9 MB/s" in verdicts[0].evidence[0]


def test_healthy_runs_of_many_seeds_are_called_healthy() -> None:
    for seed in range(300, 312):
        layout = LAYOUTS[seed % len(LAYOUTS)]
        assert judge(make_run(Scenario(layout, seed=seed)).run)[0].kind in FAULTLESS_KINDS


@pytest.mark.parametrize(
    "layout",
    [
        Layout(data=8, layers=16, model="resnet50"),
        Layout(data=2, tensor=2, pipeline=4, micro_batches=2, layers=10, buckets=5.0),
    ],
    ids=["resnet", "language model"],
)
def test_gradients_that_are_all_summed_at_the_end_make_it_unsure_that_nothing_is_wrong(
    layout: Layout,
) -> None:
    (well,) = judge(make_run(Scenario(layout, steps=2, seed=3)).run)
    (badly,) = judge(make_run(Scenario(replace(layout, reduce_at="end"), steps=2, seed=3)).run)
    assert {well.kind, badly.kind} <= set(FAULTLESS_KINDS)
    assert well.confidence > 0.7
    assert badly.confidence <= DOUBTED_CONFIDENCE
    assert "after backward is over, on every rank" in badly.evidence[-1]

"""Many equal ranks are replayed as a few, with the same answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.replay import make_run
from marey.replay.families.data_parallel import (
    DataParallel,
    fold_ranks,
    plan_all_ranks,
    plan_data_parallel,
)
from marey.replay.programs import Graph, step_ms


def _step(graph: Graph) -> float:
    return step_ms(graph, graph.schedule())


def _slow(run: DataParallel, rank: int, factor: float) -> DataParallel:
    own = run.work[rank]
    slower = replace(
        own,
        forward_ms=own.forward_ms * factor,
        backward_ms=own.backward_ms * factor,
        gradient_ms=tuple(ms * factor for ms in own.gradient_ms),
    )
    return replace(run, work={**run.work, rank: slower})


def test_equal_ranks_fold_to_one_with_the_same_step() -> None:
    run = make_run(ranks=48, gradients=20)
    assert len(fold_ranks(run).ranks) == 1
    assert _step(plan_data_parallel(run)) == pytest.approx(_step(plan_all_ranks(run)), rel=1e-9)


def test_a_slow_rank_keeps_its_place_among_many() -> None:
    run = _slow(make_run(ranks=48, gradients=20), 17, 1.3)
    assert fold_ranks(run).ranks == (0, 17)
    assert _step(plan_data_parallel(run)) == pytest.approx(_step(plan_all_ranks(run)), rel=1e-9)


def test_nearly_equal_ranks_differ_by_less_than_half_a_percent() -> None:
    run = make_run(ranks=48, gradients=20)
    for rank in run.ranks:
        run = _slow(run, rank, 1 + 0.0001 * (rank % 7))
    assert _step(plan_data_parallel(run)) == pytest.approx(_step(plan_all_ranks(run)), rel=0.005)

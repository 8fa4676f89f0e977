"""Data-parallel runs: which blocks are recomputed, and what starting a collective costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.replay import make_run
from marey.replay.families.data_parallel import DataParallel, ModelBlock, plan_data_parallel
from marey.replay.programs import step_ms
from marey.replay.recording.link_fitting import fit_links
from marey.replay.timeline import Message, RankStep


def _step(run: DataParallel) -> float:
    graph = plan_data_parallel(run)
    return step_ms(graph, graph.schedule())


def test_every_second_block_is_counted_from_the_models_first() -> None:
    run = make_run(ranks=2, gradients=4)
    # The last block of the forward pass comes first.
    blocks = tuple(ModelBlock(ms, 0.0) for ms in (100.0, 200.0, 400.0, 800.0))
    run = replace(run, work={r: replace(own, blocks=blocks) for r, own in run.work.items()})
    again = _step(replace(run, recompute_every=2)) - _step(run)
    assert again == pytest.approx(800.0 + 200.0)


def _collective(row: int, posted_ms: float, start_ms: float, end_ms: float) -> Message:
    return Message(
        row=row,
        collective="allreduce",
        group="",
        size=1 << 20,
        item_bytes=4,
        peer=-1,
        tag=0,
        post_ms=posted_ms,
        posted_ms=posted_ms,
        start_ms=start_ms,
        end_ms=end_ms,
        thread=1,
    )


def test_waiting_behind_another_collective_is_no_cost_of_starting() -> None:
    # The link is busy from the first to the last: all but the first queue for it.
    messages = tuple(_collective(n, 5.0 * n, max(30.0 * n, 0.2), 30.0 * (n + 1)) for n in range(8))
    step = RankStep(0, 1, 50.0, 250.0, (), messages, (), (), ())
    steps = {rank: [replace(step, rank=rank)] for rank in range(2)}
    assert fit_links(steps).collectives["allreduce"].start_ms == pytest.approx(0.2)

"""Schedules of pipelines: every pass once, messages matched, and known lengths."""

from __future__ import annotations

from collections import Counter

import pytest

from marey.model.errors import InvalidInput
from marey.replay.families.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    Pass,
    Receive,
    Send,
    Shape,
    Turn,
    make_schedule,
    order_by_arrival,
    post_receives_ahead,
)
from marey.replay.recording.blocks import find_repeats

SHAPES = [("gpipe", Shape(4, 1, 8)), ("1f1b", Shape(4, 1, 8)), ("1f1b", Shape(4, 1, 2))]
SHAPES += [("interleaved", Shape(4, 2, 8)), ("interleaved", Shape(2, 3, 4))]


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_every_pass_runs_once_on_its_rank(name: str, shape: Shape) -> None:
    turns = make_schedule(name, shape)
    passes = [t for own in turns for t in own if isinstance(t, Pass)]
    wanted = [
        Pass(kind, stage, n)
        for kind in (FORWARD, BACKWARD)
        for stage in range(shape.stages)
        for n in range(shape.micro_batches)
    ]
    assert Counter(passes) == Counter(wanted)
    for rank, own in enumerate(turns):
        assert {shape.rank_of(t.stage) for t in own if isinstance(t, Pass)} == {rank}


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_every_message_is_sent_and_received_once(name: str, shape: Shape) -> None:
    turns = make_schedule(name, shape)
    sent = Counter(t.made_by for own in turns for t in own if isinstance(t, Send))
    received = Counter(t.made_by for own in turns for t in own if isinstance(t, Receive))
    assert sent == received
    assert set(sent.values()) == {1}


def test_receives_ahead_keep_passes_and_messages() -> None:
    turns = make_schedule("1f1b", Shape(4, 1, 8))
    ahead = post_receives_ahead(turns)
    for before, after in zip(turns, ahead, strict=True):
        assert [t for t in before if isinstance(t, Pass)] == [
            t for t in after if isinstance(t, Pass)
        ]
        count = sum(isinstance(t, Receive) for t in after)
        assert all(isinstance(t, Receive) for t in after[:count])


def test_arrival_order_runs_every_pass_once() -> None:
    shape = Shape(4, 1, 8)
    turns = order_by_arrival(shape, lambda p: 1.0 if p.kind == FORWARD else 2.0, 0.1)
    passes = [t for own in turns for t in own if isinstance(t, Pass)]
    assert len(passes) == len(set(passes)) == 2 * 4 * 8


@pytest.mark.parametrize("shape", [(4, 2, 8), (4, 3, 8), (2, 2, 4), (3, 4, 6), (4, 5, 8)])
def test_interleaved_posts_every_receive_where_torch_does(shape: tuple[int, int, int]) -> None:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    ranks, virtual, micro_batches = shape
    plan = schedules.ScheduleInterleaved1F1B.__new__(schedules.ScheduleInterleaved1F1B)
    plan.pp_group_size, plan.n_local_stages = ranks, virtual
    plan._n_microbatches, plan._num_stages = micro_batches, ranks * virtual
    plan.number_of_rounds = max(1, micro_batches // ranks)
    plan.microbatches_per_round = micro_batches // plan.number_of_rounds
    passes = {
        rank: schedules._add_reduce_grad(
            schedules._add_unshard_reshard(plan._calculate_single_rank_operations(rank)),
            micro_batches,
        )
        for rank in range(ranks)
    }
    wanted = schedules._add_send_recv(passes, lambda stage: stage % ranks, ranks * virtual)
    turns = make_schedule("interleaved", Shape(*shape))
    for rank, own in enumerate(turns):
        names = [name for turn in own if (name := _name_as_torch(turn))]
        assert names == [
            str(one)
            for one in wanted[rank]
            if not str(one).lstrip("0123456789").startswith(("UNSHARD", "RESHARD", "REDUCE"))
        ]


def _name_as_torch(turn: Turn) -> str:
    if isinstance(turn, Pass):
        return f"{turn.stage}{turn.kind}{turn.micro_batch}"
    if isinstance(turn, Send):
        made = turn.made_by
        return f"{made.stage}SEND_{made.kind}{made.micro_batch}"
    if isinstance(turn, Receive):
        made = turn.made_by
        stage = made.stage + (1 if made.kind == FORWARD else -1)
        return f"{stage}RECV_{made.kind}{made.micro_batch}"
    return ""


def test_interleaved_refuses_uneven_rounds() -> None:
    with pytest.raises(InvalidInput, match="equal rounds"):
        make_schedule("interleaved", Shape(4, 2, 9))


@pytest.mark.parametrize(
    ("names", "found"),
    [("xabcabcabcy", (1, 3, 3)), ("aaaa", (0, 1, 4)), ("abc", None), ("abab", (0, 2, 2))],
)
def test_repeated_blocks_are_found(names: str, found: tuple[int, int, int] | None) -> None:
    repeats = find_repeats(list(names))
    assert (repeats and (repeats.first, repeats.period, repeats.count)) == found

"""Words that have no measured counterpart: what they must do whatever the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marey.model.errors import InvalidInput
from marey.replay.changes import WORDS, read_change
from marey.replay.families.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    Pass,
    Shape,
    order_zero_bubble,
)
from marey.replay.model import ReplayModel
from marey.replay.words.apply import APPLY

Read = Callable[[str], ReplayModel]


def test_every_word_is_applied_by_something() -> None:
    assert set(APPLY) == set(WORDS)


@pytest.mark.parametrize(
    "text",
    [
        "launch=x0",
        "precision=fp16",
        "collective=hierarchical:1",
        "zero=3",
        "offload=12GB",
        "loader=2",
    ],
)
def test_a_value_that_a_word_does_not_take_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="takes"):
        read_change(text)


def test_zero_bubble_runs_every_pass_once_and_weights_after_gradients() -> None:
    shape = Shape(4, 1, 8)
    turns = order_zero_bubble(shape, lambda _p: 1.0, 0.1)
    for rank, own in enumerate(turns):
        passes = [turn for turn in own if isinstance(turn, Pass)]
        assert len(passes) == len(set(passes)) == 3 * 8
        for n in range(8):
            order = [passes.index(Pass(kind, rank, n)) for kind in (FORWARD, BACKWARD, WEIGHT)]
            assert order == sorted(order)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ddp-bucket1", "precision=bf16:x0.6"),
        ("ddp-bucket1", "sparsity=0.9"),
        ("ddp-bucket1", "collective=hierarchical:2"),
        ("ddp-bucket1", "launch=off"),
        ("pp-1f1b-m8", "schedule=zero-bubble"),
        ("pp-1f1b-m8", "receives=ahead"),
        ("ps-2servers", "placement=size"),
    ],
)
def test_words_that_take_work_away_never_cost(name: str, changes: str, read_model: Read) -> None:
    made = read_model(name).predict(changes.split())
    assert made.predicted_ms <= made.base_ms * 1.001
    assert made.low_ms < made.predicted_ms < made.high_ms


@pytest.mark.data
def test_spread_and_offloaded_state_cost_time(read_model: Read) -> None:
    model = read_model("ddp-bucket1")
    for change in ("zero=1", "offload=2GB/s", "ranks=8"):
        made = model.predict([change])
        assert made.predicted_ms > made.base_ms
        assert made.extrapolated
    assert (
        model.predict(["offload=2GB/s"]).predicted_ms
        > model.predict(["offload=20GB/s"]).predicted_ms
    )


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("ddp-bucket1", "loader=off", "DataLoader"),
        ("ddp-bucket1", "fix-link=2", "link-of-rank"),
        ("ddp-bucket1", "link-of-rank-2=x3", "slowest link"),
        ("ddp-bucket1", "placement=size", "parameter servers"),
        ("ddp-bucket1", "collective=hierarchical:3", "do not fill"),
        ("pp-1f1b-m8", "collective=tree", "all-reduce"),
        ("ps-1server", "zero=1", "all-reduce"),
    ],
)
def test_a_change_that_the_trace_cannot_support_is_refused(
    name: str, change: str, why: str, read_model: Read
) -> None:
    with pytest.raises(InvalidInput, match=why):
        read_model(name).predict([change])


@pytest.mark.data
def test_a_repaired_stage_works_as_the_others_do(read_model: Read) -> None:
    model = read_model("pp-1f1b-m8")
    slowed = model.predict(["slow-rank=2:x1.5"])
    assert slowed.predicted_ms > model.base_ms * 1.05
    assert model.predict(["fix-rank=2"]).predicted_ms == pytest.approx(model.base_ms, rel=0.02)


def test_every_word_is_in_the_reference() -> None:
    text = (Path(__file__).parents[2] / "docs" / "replay.md").read_text()
    missing = [word for word in WORDS if f"`{word}=" not in text]
    assert not missing

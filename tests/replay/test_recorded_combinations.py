"""Changes together, and in the direction that nobody measured first, on the recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from marey.replay.model import Prediction, ReplayModel

pytestmark = pytest.mark.data
# from, to, changes: every word with others, and back from what a change led to.
PAIRS = [
    ("ddp-bucket1-accumulate4", "ddp-bucket1-link400", "accumulate=1 link=x2"),
    ("ddp-bucket1-checkpoint", "ddp-bucket25", "recompute=off bucket=25MB"),
    ("ddp-bucket1-checkpoint", "ddp-bucket1-accumulate4", "accumulate=4 recompute=off"),
    ("ddp-bucket1-fp16", "ddp-bucket25", "gradients=fp32 bucket=25MB"),
    ("ddp-bucket25", "ddp-bucket1-fp16", "bucket=1MB gradients=fp16"),
    ("ddp-bucket25", "ddp-bucket1-checkpoint", "bucket=1MB recompute=all"),
    ("ddp-bucket1", "ddp-no-overlap", "overlap=off"),
    ("ddp-bucket1", "ddp-bucket1-slow2", "slow-rank=2:x1.5"),
    ("ddp-no-overlap", "ddp-bucket1-fp16", "overlap=on bucket=1MB gradients=fp16"),
    ("ddp-no-overlap", "ddp-bucket1-accumulate4", "overlap=on bucket=1MB accumulate=4"),
    ("ddp-bucket1-slow2", "ddp-bucket1-link400", "fix-rank=2 link=x2"),
    ("ddp-bucket1-link400", "ddp-bucket1-checkpoint", "link=x0.5 recompute=all"),
    ("pp-gpipe-m8", "pp-1f1b-m4", "schedule=1f1b micro-batches=4"),
    ("pp-gpipe-m8", "pp-1f1b-m8-unbalanced", "schedule=1f1b stages=1,2,2,3"),
    ("pp-1f1b-m4", "pp-interleaved-m8", "schedule=interleaved virtual-stages=2 micro-batches=8"),
    ("pp-1f1b-m4", "pp-1f1b-m8-unbalanced", "stages=1,2,2,3 micro-batches=8"),
    ("pp-interleaved-m8", "pp-1f1b-m8", "schedule=1f1b"),
    ("pp-interleaved-m8", "pp-1f1b-m8-unbalanced", "schedule=1f1b stages=1,2,2,3"),
    ("pp-1f1b-m8-unbalanced", "pp-1f1b-m4", "stages=2,2,2,2 micro-batches=4"),
    ("fsdp-keep", "fsdp-reshard", "reshard=on"),
    ("ps-1server-link400", "ps-1server", "link-of-rank-0=x0.5"),
    ("ps-2servers", "ps-1server", "servers=1"),
    ("ps-2servers", "ddp-bucket25", "sync=allreduce bucket=25MB"),
    ("ps-1server", "ddp-bucket1-fp16", "sync=allreduce bucket=1MB gradients=fp16"),
]


@pytest.fixture(scope="module")
def predicted(
    read_model: Callable[[str], ReplayModel], truth: dict[str, Any]
) -> list[tuple[Prediction, float]]:
    return [
        (read_model(source).predict(changes.split()), truth["runs"][target]["step_ms"])
        for source, target, changes in PAIRS
    ]


@pytest.mark.slow
def test_changes_compose_as_they_were_measured(predicted: list[tuple[Prediction, float]]) -> None:
    errors = [abs(made.predicted_ms / true_ms - 1) for made, true_ms in predicted]
    assert np.mean(errors) <= 0.02
    assert max(errors) <= 0.05


@pytest.mark.slow
def test_four_of_five_combinations_lie_in_their_interval(
    predicted: list[tuple[Prediction, float]],
) -> None:
    inside = [made.low_ms <= true_ms <= made.high_ms for made, true_ms in predicted]
    assert np.mean(inside) >= 0.8


def test_combinations_have_the_right_sign(predicted: list[tuple[Prediction, float]]) -> None:
    for made, true_ms in predicted:
        change = true_ms / made.base_ms - 1
        if abs(change) > 0.03:
            assert (made.predicted_ms / made.base_ms - 1) * change > 0, made.changes

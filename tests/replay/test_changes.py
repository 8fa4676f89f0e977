"""The words of a what-if: what they take, and what a run refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from marey.model.errors import InvalidInput
from marey.replay.changes import read_change, read_changes
from marey.replay.model import ReplayModel


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("bucket=1MB", 1 << 20),
        ("bucket=default", -1),
        ("link=x2", 2.0),
        ("fix-rank=1,3", (1, 3)),
        ("recompute=every-2", 2),
        ("gradients=fp16", 2),
        ("stages=2,2,2,2", (2, 2, 2, 2)),
        ("operator=aten::mm:x0.5", ("aten::mm", 0.5)),
    ],
)
def test_a_word_is_read(text: str, value: object) -> None:
    change = read_change(text)
    assert change.value == value
    assert str(change) == text


def test_values_are_taken_as_what_the_word_takes() -> None:
    assert read_change("bucket=1MB").get_count() == 1 << 20
    assert read_change("link=x2").get_number() == 2.0
    assert read_change("fix-rank=1,3").get_counts() == (1, 3)
    assert read_change("slow-rank=2:x1.5").get_scaled_rank() == (2, 1.5)
    assert read_change("operator=aten::mm:x0.5").get_scaled_name() == ("aten::mm", 0.5)
    assert read_change("collective=hierarchical:4").get_algorithm() == ("hierarchical", 4)
    with pytest.raises(TypeError, match="no number"):
        read_change("overlap=on").get_number()
    with pytest.raises(TypeError, match="no parts"):
        read_change("link=x2").get_counts()


def test_a_link_of_one_rank_is_read() -> None:
    change = read_change("link-of-rank-3=x0.5")
    assert (change.word, change.rank, change.value) == ("link", 3, 0.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("buckets=1MB", "did you mean 'bucket'"),
        ("bucket=big", "takes a size"),
        ("link=2", "takes xF"),
        ("link=x0", "takes xF"),
        ("accumulate=0", "takes a count"),
        ("overlap", "takes on or off"),
    ],
)
def test_a_wrong_word_says_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read_change(text)


def test_a_word_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="given twice"):
        read_changes(["bucket=1MB", "bucket=2MB"])


def test_changes_are_applied_in_one_order() -> None:
    assert read_changes(["bucket=1MB", "overlap=on"]) == read_changes(["overlap=on", "bucket=1MB"])


@pytest.mark.data
@pytest.mark.parametrize(
    ("run", "change", "says"),
    [
        ("ddp-bucket1", "schedule=1f1b", "about pipelines"),
        ("ddp-bucket1", "reshard=off", "only sharded training"),
        ("ddp-bucket1", "servers=2", "only a run with parameter servers"),
        ("ddp-bucket1", "fix-link=2", "link-of-rank-N"),
        ("ddp-bucket1", "recompute=off", "nothing is recomputed"),
        ("ddp-bucket1-checkpoint", "recompute=all", "recomputes already"),
        ("ddp-bucket1", "fix-rank=9", "Unknown rank 9"),
        ("ddp-no-overlap", "bucket=1MB", "add overlap=on"),
        ("pp-1f1b-m8", "bucket=1MB", "all-reduce"),
        ("pp-1f1b-m8", "stages=1,2,3,4", "8 layers"),
        ("pp-1f1b-m8", "virtual-stages=3", "too few for 12 stages"),
        ("fsdp-keep", "reshard=off", "already kept"),
        ("fsdp-reshard", "recompute=all", "all-reduce"),
        ("ps-1server", "servers=4", "leave no worker"),
    ],
)
def test_what_a_trace_cannot_support_is_refused(
    run: str, change: str, says: str, read_model: Callable[[str], ReplayModel]
) -> None:
    with pytest.raises(InvalidInput, match=says):
        read_model(run).predict([change])

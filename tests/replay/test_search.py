"""The optimizer: its first proposal wins when measured, limits hold, and nothing is an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Dataflow
from marey.replay.families.pipeline_parallel import Pipeline
from marey.replay.memory import predict_peaks, read_peaks
from marey.replay.model import ReplayModel
from marey.replay.search import Limits, SearchResult, search_changes

pytestmark = pytest.mark.data
Search = Callable[..., SearchResult]


@pytest.fixture
def search(
    read_model: Callable[[str], ReplayModel], read_flow: Callable[[str], Dataflow]
) -> Search:
    def run(name: str, limits: Limits | None = None, **options: Any) -> SearchResult:
        return search_changes(read_model(name), read_flow(name), limits or Limits(), **options)

    return run


@pytest.mark.parametrize(
    ("name", "changes", "measured"),
    [
        ("ddp-bucket25", ("bucket=1MB",), "ddp-bucket1"),
        ("ddp-no-overlap", ("overlap=on", "bucket=1MB"), "ddp-bucket1"),
        ("ps-1server", ("sync=allreduce", "bucket=1MB"), "ddp-bucket1"),
        (
            "pp-1f1b-m8-unbalanced",
            ("schedule=interleaved", "virtual-stages=2"),
            "pp-interleaved-m8",
        ),
    ],
)
def test_the_first_proposal_was_measured_and_wins(
    name: str, changes: tuple[str, ...], measured: str, search: Search, truth: dict[str, Any]
) -> None:
    best = search(name).proposals[0]
    assert best.prediction.changes == changes
    assert truth["runs"][measured]["step_ms"] < truth["runs"][name]["step_ms"]


def test_a_slow_rank_is_proposed_to_be_fixed(search: Search) -> None:
    found = search("ddp-bucket1-slow2")
    assert any("fix-rank=2" in p.prediction.changes for p in found.proposals)


def test_nothing_worth_changing_is_an_answer(search: Search) -> None:
    found = search("ddp-bucket1")
    assert found.proposals == ()
    assert found.finished


def test_a_memory_limit_between_them_excludes_gpipe(search: Search) -> None:
    free = search("pp-1f1b-m8", Limits(allowed=("schedule",)))
    tight = search("pp-1f1b-m8", Limits(memory_bytes=3.5e6, allowed=("schedule",)))
    assert free.excluded_by_memory == 0
    assert tight.excluded_by_memory == 1
    assert all("schedule=gpipe" not in p.prediction.changes for p in tight.proposals)


def test_a_search_ends_when_it_is_cancelled_or_out_of_time(search: Search) -> None:
    assert not search("ddp-bucket25", cancelled=lambda: True).finished
    ticks = iter(range(1000))
    late = search("ddp-bucket25", Limits(budget_s=2.0), clock=lambda: float(next(ticks)))
    assert not late.finished
    assert late.tried < 6


def test_an_unknown_word_to_allow_is_refused(search: Search) -> None:
    with pytest.raises(InvalidInput, match="allowed"):
        search("ddp-bucket25", Limits(allowed=("magic",)))


@pytest.mark.parametrize(
    ("name", "change", "measured"),
    [
        ("pp-gpipe-m8", "schedule=1f1b", "pp-1f1b-m8"),
        ("pp-1f1b-m8", "schedule=gpipe", "pp-gpipe-m8"),
    ],
)
def test_peak_memory_of_another_schedule_is_close_on_every_rank(
    name: str,
    change: str,
    measured: str,
    truth: dict[str, Any],
    read_model: Callable[[str], ReplayModel],
    read_flow: Callable[[str], Dataflow],
) -> None:
    model = read_model(name)
    before, after = model.recorded.workload, model.replay([change]).workload
    assert isinstance(before.plan, Pipeline)
    assert isinstance(after.plan, Pipeline)
    peaks = predict_peaks(read_flow(name), before.timelines, before.plan, after.plan)
    wanted = truth["runs"][measured]["peak_bytes_above_start_of_step_by_rank"]
    for rank, peak in peaks.items():
        assert peak == pytest.approx(wanted[str(rank)], rel=0.1)


def test_recorded_peaks_are_those_measured(
    truth: dict[str, Any],
    read_model: Callable[[str], ReplayModel],
    read_flow: Callable[[str], Dataflow],
) -> None:
    peaks = read_peaks(
        read_flow("pp-gpipe-m8"), read_model("pp-gpipe-m8").recorded.workload.timelines
    )
    wanted = truth["runs"]["pp-gpipe-m8"]["peak_bytes_above_start_of_step_by_rank"]
    assert {str(rank): peak for rank, peak in peaks.items()} == wanted

"""Predictions against runs that were really changed, within the limits the product is held to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marey.replay.model import ReplayModel, replay_model
from marey.replay.pairs import ScoredPair, pairs_document, score_pairs
from marey.replay.recording.workload import Refused
from marey.trace.dataflow import build_dataflow
from marey.trace.run.trace_run import open_run

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def scored(truth: dict[str, Any], read_model: Callable[[str], ReplayModel]) -> list[ScoredPair]:
    return score_pairs(truth, lambda name, _plain: read_model(name))


def _errors(scored: list[ScoredPair], truth: dict[str, Any], *kinds: str) -> list[float]:
    return [
        abs(pair.error)
        for pair in scored
        if pair.error is not None
        and truth["runs"][pair.target]["setting"]["kind"] in kinds
        # A pair that changes the kind of training is judged with the kind it comes from.
        and truth["runs"][pair.source]["setting"]["kind"] in kinds
    ]


def test_every_pair_is_answered_and_the_mean_error_is_small(scored: list[ScoredPair]) -> None:
    document = pairs_document(scored)
    assert document["refused"] == 0
    assert document["mean_error"] <= 0.03


def test_data_parallel_changes_are_predicted_closely(
    scored: list[ScoredPair], truth: dict[str, Any]
) -> None:
    errors = _errors(scored, truth, "ddp")
    assert np.mean(errors) <= 0.02
    assert max(errors) <= 0.05


def test_pipeline_changes_are_predicted_closely(
    scored: list[ScoredPair], truth: dict[str, Any]
) -> None:
    errors = [abs(p.error or 0) for p in scored if p.source.startswith("pp")]
    plain = [
        abs(p.error or 0)
        for p in scored
        if p.source.startswith("pp") and "interleaved" not in p.target
    ]
    assert np.mean(plain) <= 0.03
    assert max(plain) <= 0.06
    assert np.mean(errors) <= 0.06


def test_sharded_and_server_changes_are_predicted(scored: list[ScoredPair]) -> None:
    errors = [abs(p.error or 0) for p in scored if p.source.startswith(("fsdp", "ps"))]
    assert np.mean(errors) <= 0.06


def test_the_sign_of_every_real_change_is_right(
    scored: list[ScoredPair], truth: dict[str, Any]
) -> None:
    for pair in scored:
        before = truth["runs"][pair.source]["step_ms"]
        change = pair.truth_ms / before - 1
        if abs(change) > 0.03 and pair.predicted_ms is not None:
            assert (pair.predicted_ms / before - 1) * change > 0, pair


def test_four_of_five_truths_lie_in_their_interval(scored: list[ScoredPair]) -> None:
    assert pairs_document(scored)["inside_interval"] >= 0.8


def test_changes_may_be_written_as_one_line(
    truth: dict[str, Any], read_model: Callable[[str], ReplayModel]
) -> None:
    pair = {"from": "ddp-bucket25", "to": "ddp-bucket1", "change": "bucket=1MB", "note": "extra"}
    made = score_pairs({**truth, "pairs": [pair]}, lambda name, _plain: read_model(name))
    assert made[0].change == ("bucket=1MB",)
    assert made[0].predicted_ms is not None


def test_a_run_whose_plain_time_is_unknown_is_predicted_from_its_recorded_time(
    truth: dict[str, Any], read_model: Callable[[str], ReplayModel]
) -> None:
    pair = {"from": "ddp-bucket25", "to": "ddp-bucket1", "change": ["bucket=1MB"]}
    runs = {"ddp-bucket1": truth["runs"]["ddp-bucket1"], "ddp-bucket25": {}}
    given: list[float | None] = []

    def read(name: str, plain_ms: float | None) -> ReplayModel:
        given.append(plain_ms)
        return read_model(name)

    assert score_pairs({"runs": runs, "pairs": [pair]}, read)[0].refused is None
    assert given == [None]


def test_more_servers_beside_a_slower_link_of_the_only_one_are_refused(
    read_model: Callable[[str], ReplayModel],
) -> None:
    model = read_model("ps-1server-link400")
    for words in (["servers=2", "link-of-rank-0=x0.5"], ["link-of-rank-0=x0.5", "servers=2"]):
        with pytest.raises(Refused, match="not how fast those of new ones are"):
            model.predict(words)
    assert model.predict(["link-of-rank-0=x0.5"]).predicted_ms > model.base_ms


def test_a_rank_that_was_not_recorded_is_said_and_widens_the_interval(
    recordings: Path, read_model: Callable[[str], ReplayModel], tmp_path: Path
) -> None:
    files = sorted((recordings / "ddp-bucket25").glob("*.gz"))
    part = tmp_path / "run"
    part.mkdir()
    for file in files:
        if file.name != "rank00003.json.gz":
            (part / file.name).symlink_to(file)
    model = replay_model(build_dataflow(open_run(part, cache=tmp_path / "cache")))
    some, whole = model.predict(["bucket=1MB"]), read_model("ddp-bucket25").predict(["bucket=1MB"])
    assert any("rank 3, which was not recorded" in what for what in some.extrapolated)
    assert some.high_ms - some.low_ms > whole.high_ms - whole.low_ms


@pytest.mark.parametrize(
    "name",
    [
        "ddp-bucket25",
        "ddp-bucket1",
        "ddp-bucket1-accumulate4",
        "ddp-bucket1-checkpoint",
        "ddp-bucket1-slow2",
        "ddp-bucket1-link400",
        "ddp-no-overlap",
        "ddp-bucket1-fp16",
    ],
)
def test_an_unchanged_replay_reproduces_a_data_parallel_run(
    name: str, read_model: Callable[[str], ReplayModel]
) -> None:
    assert abs(read_model(name).self_error) <= 0.02


def test_the_best_of_each_family_is_ranked_first(
    scored: list[ScoredPair], truth: dict[str, Any]
) -> None:
    families: dict[str, list[ScoredPair]] = {}
    for pair in scored:
        families.setdefault(pair.source, []).append(pair)
    for pairs in families.values():
        if len(pairs) > 1:
            predicted = min(pairs, key=lambda p: p.predicted_ms or np.inf)
            best = min(p.truth_ms for p in pairs)
            # Two changes may be equal within what two recordings of one run differ by.
            assert predicted.truth_ms <= best * 1.01

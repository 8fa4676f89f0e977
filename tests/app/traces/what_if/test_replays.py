"""Replays by the id of a run: what-ifs are kept, and scored by the run that was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.app.traces.what_if.prediction_log import PredictionLog
from marey.app.traces.what_if.replays import ReplayQueries, replay_model
from marey.model.errors import InvalidInput, NotFound
from marey.replay.search import Limits

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def runs(data_dir: Path) -> Path:
    folder = data_dir / "recordings" / "what-if"
    if not folder.is_dir():
        pytest.skip("real data not found through MAREY_DATA (recordings of changed runs)")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("converted")


@pytest.fixture
def replays(runs: Path, cache: Path, tmp_path: Path) -> ReplayQueries:
    return ReplayQueries(
        lambda run: ([str(runs / run)], cache),
        PredictionLog(tmp_path / "predictions.json"),
        clock_ms=lambda: 1_000,
    )


def test_a_kept_prediction_is_scored_by_the_run_that_was_changed(replays: ReplayQueries) -> None:
    made = replays.what_if("ddp-bucket25", ["bucket=1MB"], plain_step_ms=520.65, keep=True)
    assert made.kept is not None
    assert replays.predictions().predictions[0].measured_ms is None
    replays.replay("ddp-bucket25")
    assert replays.predictions().measured == 0
    replays.replay("ddp-bucket1", plain_step_ms=406.59)
    found = replays.predictions()
    assert found.measured == 1
    assert found.predictions[0].measured_run == "ddp-bucket1"
    assert found.mean_error == pytest.approx(abs(made.predicted_ms / 406.59 - 1))
    assert found.inside_interval == 1.0


def test_a_run_with_other_buckets_scores_nothing(replays: ReplayQueries) -> None:
    replays.what_if("ddp-bucket25", ["bucket=2MB"], keep=True)
    replays.replay("ddp-bucket1")
    assert replays.predictions().measured == 0


def test_a_faster_link_is_scored_when_somebody_names_the_run(replays: ReplayQueries) -> None:
    made = replays.what_if("ddp-bucket1", ["link=x2"], keep=True)
    replays.replay("ddp-bucket1-link400")
    assert replays.predictions().measured == 0
    assert made.kept is not None
    scored = replays.measure(made.kept, "ddp-bucket1-link400")
    assert scored.error is not None
    assert abs(scored.error) < 0.05


def test_a_search_is_ended_by_its_progress(replays: ReplayQueries) -> None:
    class Stop(Exception):
        pass

    def stop(_tried: int, _best: float) -> None:
        raise Stop

    with pytest.raises(Stop):
        replays.search("ddp-bucket25", Limits(), progress=stop)
    found = replays.search("ddp-bucket25", Limits())
    assert found.proposals[0].changes == ["bucket=1MB"]
    assert "bucket_cap_mb=1" in found.proposals[0].how[0]


def test_unknown_predictions_and_broken_books_are_refused(replays: ReplayQueries) -> None:
    with pytest.raises(NotFound):
        replays.book.remove("0" * 16)
    replays.book.path.write_text("{}")
    with pytest.raises(InvalidInput, match="not a file of predictions"):
        replays.predictions()


def test_a_script_replays_a_run_by_its_path(runs: Path, cache: Path) -> None:
    model = replay_model(runs / "ddp-bucket1", cache=cache)
    assert model.replay(["link=x2"]).step_ms < model.replay().step_ms

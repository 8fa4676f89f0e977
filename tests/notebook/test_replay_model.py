"""Replays in a notebook: the model of a run, predictions, and when every task runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.notebook import replay_model

pytestmark = pytest.mark.data


def test_a_run_is_replayed_and_asked_what_if(data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "recordings" / "what-if" / "ddp-bucket25"
    if not folder.is_dir():
        pytest.skip("real data not found through MAREY_DATA (recordings of changed runs)")
    model = replay_model(folder, plain_step_ms=520.65, cache=tmp_path)
    made = model.predict(["bucket=1MB"])
    assert made.low_ms < made.predicted_ms < made.high_ms < model.base_ms
    changed = model.replay(["bucket=1MB"])
    assert changed.schedule.finish.max() > changed.step_ms

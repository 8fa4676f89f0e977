"""The user's own book of predictions, and what a run that was read says about them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from marey.app.traces.what_if.prediction_log import PredictionLog
from marey.cli.output import Output
from marey.replay.model import Prediction, ReplayModel
from marey.replay.verification import keep_prediction


def open_book() -> PredictionLog:
    """Return the user's own book of predictions."""
    root = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return PredictionLog(Path(root) / "marey" / "predictions.json")


def name_run(path: str | Path) -> str:
    """Return the name under which a folder of traces is kept."""
    return str(Path(path).resolve())


def keep_made(model: ReplayModel, made: Prediction, path: str | Path) -> str:
    """Keep a prediction and return its id."""
    now = int(time.time() * 1000)
    kept = keep_prediction(model, made, run=name_run(path), cluster="", made_ms=now)
    open_book().add(kept)
    return kept.id


def score_by_run(model: ReplayModel, path: str | Path, out: Output) -> None:
    """Score the predictions that a run is the changed run of, and say so."""
    now = int(time.time() * 1000)
    for one in open_book().measure_run(model, run=name_run(path), at_ms=now):
        out.print_note(
            f"This is the run that {' '.join(one.changes)} was predicted for: "
            f"{one.predicted_ms:.1f} ms predicted, {one.measured_ms:.1f} ms measured."
        )

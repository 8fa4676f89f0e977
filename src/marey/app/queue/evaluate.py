"""Score the wait forecasts on folders of poll snapshots."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from marey.model.errors import InvalidInput, shown
from marey.queue.forecast.evaluation import evaluate_forecasts
from marey.queue.forecast.forecaster import select_rows
from marey.queue.forecast.poll_files import read_polls

_DAY_S = 86400


def evaluate_folders(
    train: Path, test: Path, *, train_until: str = "", test_from: str = ""
) -> dict[str, Any]:
    """Return the scores of a model fitted to one folder's polls and tested on another's (days
    inclusive, UTC).
    """
    fitted = read_polls(train)
    tested = fitted if test.resolve() == train.resolve() else read_polls(test)
    if train_until:
        fitted = select_rows(
            fitted, fitted.poll_s < _parse_day("--train-until", train_until) + _DAY_S
        )
    if test_from:
        tested = select_rows(tested, tested.poll_s >= _parse_day("--test-from", test_from))
    return evaluate_forecasts(fitted, tested, clock=time.process_time)


def _parse_day(option: str, text: str) -> int:
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(
            f"{option} is '{shown(text)}'; a day such as 2021-05-18 is allowed."
        ) from error
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())

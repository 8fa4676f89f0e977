"""Wait forecasts of 50,000 pending jobs at one poll: CPU seconds against the limit of 0.5 s, and
against asking the same model job by job.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.report import Results, peak_rss_mb, timed
from marey.queue.forecast.forecaster import (
    Forecaster,
    fit_forecaster,
    forecast_polls,
    select_rows,
)
from marey.queue.forecast.poll_features import compute_features
from marey.queue.forecast.poll_files import read_polls
from marey.queue.forecast.poll_table import Floats, PollTable

ROOT = Path(__file__).resolve().parents[1]
PENDING, PLAIN, LIMIT_S = 50_000, 100, 0.5
_DAY_S = 86400


def make_long_line(polls: PollTable, many: int) -> PollTable:
    """Return one poll of so many pending jobs, drawn from real ones and each with its own id."""
    drawn = polls.select(np.random.default_rng(0).integers(0, len(polls), many))
    moment = int(polls.poll_s.max())
    moved = moment - drawn.poll_s
    return replace(
        drawn,
        job=np.arange(many, dtype=np.int64),
        poll_s=np.full(many, moment, np.int64),
        submit_s=drawn.submit_s + moved,
        eligible_s=drawn.eligible_s + moved,
    )


def ask_one_by_one(forecaster: Forecaster, features: Floats) -> list[Floats]:
    """Return the forecasts as a plain loop over the jobs gets them."""
    return [forecaster.predict(row[None, :]) for row in features]


def main() -> int:
    """Print the CPU time of a tick's forecasts, features included, and of the plain loop."""
    results = Results()
    data = Path(os.environ.get("MAREY_DATA", ROOT.parent / "shared" / "data"))
    polls = read_polls(data / "jobs" / "graham-2021-05")
    middle_s = int(polls.poll_s.min()) + 18 * _DAY_S
    forecaster = fit_forecaster(select_rows(polls, polls.poll_s < middle_s), middle_s)
    line = make_long_line(select_rows(polls, polls.poll_s >= middle_s), PENDING)
    spent = timed(lambda: forecast_polls(forecaster, line)).cpu_s
    making = timed(lambda: compute_features(line)).cpu_s
    features, _ = compute_features(line.select(np.arange(PLAIN)))
    plain = timed(lambda: ask_one_by_one(forecaster, features), repeat=1, warm=False).cpu_s
    size = f"{PENDING:,} pending jobs at one poll, Graham May 2021, {forecaster.rows:,} learned"
    results.against(
        f"forecasts of a tick ({spent:.2f} CPU s, of which features {making:.2f})",
        ratio=spent / LIMIT_S,
        target=1.0,
        rival=f"the limit of {LIMIT_S} CPU s",
        size=f"{size}; peak memory {peak_rss_mb():,.0f} MB, the fit included",
        at_10x="linear in the jobs",
        higher_is_better=False,
    )
    each = plain / PLAIN
    results.line(
        "against the same model asked job by job",
        f"{each * PENDING / spent:,.0f}× ({each * 1000:.1f} CPU ms a job)",
        size=f"plain loop: {PLAIN} jobs, its features given",
        at_10x="both linear",
    )
    return results.missed

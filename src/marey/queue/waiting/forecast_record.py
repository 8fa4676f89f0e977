"""Every forecast kept and scored when its workload starts; those still waiting are censored, not
dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

ENOUGH_SCORED = 30


@dataclass(frozen=True, slots=True)
class StartForecast:
    """Seconds until the start at 10, 50 and 90 %; None where no future starts it."""

    workload: str
    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    # Share of the futures in which it starts at all.
    starts: float


@dataclass(frozen=True, slots=True)
class KeptForecast:
    """What was forecast at a moment, and when the workload started (None: it still waits)."""

    workload: str
    made_ms: int
    p10_s: float
    p50_s: float
    p90_s: float
    method: str = "simulation"
    start_ms: int | None = None
    # The scheduler's own estimate at that moment.
    estimate_s: float | None = None
    # The simulation's middle before it was corrected by past misses.
    raw_s: float | None = None
    # The middle that the model learned from the site's history gave, shown or not.
    learned_s: float | None = None


@dataclass(frozen=True, slots=True)
class ForecastScore:
    """How good a site's forecasts have been."""

    scored: int
    waiting: int
    coverage: float | None
    # Of the waiting, those that already outlived their 90 %: they count as misses.
    overdue: int
    within_2x: float | None
    scheduler_scored: int
    scheduler_within_2x: float | None
    # Stated share → share that came true, for the calibration plot.
    calibration: Mapping[str, float]
    sentence: str


def score_forecasts_kept(kept: Sequence[KeptForecast], now_ms: int) -> ForecastScore:
    """Return coverage and error of kept forecasts; who still waits enters with what is known."""
    done = [f for f in kept if f.start_ms is not None]
    open_ = [f for f in kept if f.start_ms is None]
    overdue = [f for f in open_ if (now_ms - f.made_ms) / 1000 > f.p90_s]
    judged = len(done) + len(overdue)
    waits = np.array([((f.start_ms or 0) - f.made_ms) / 1000 for f in done])
    table = np.array([(f.p10_s, f.p50_s, f.p90_s) for f in done]).reshape(len(done), 3)
    inside = int(((waits >= table[:, 0]) & (waits <= table[:, 2])).sum()) if done else 0
    below = {
        str(q): float((waits <= table[:, i]).sum()) / judged if judged else 0.0
        for i, q in enumerate((0.1, 0.5, 0.9))
    }
    estimates = [
        (f.estimate_s, w) for f, w in zip(done, waits, strict=True) if f.estimate_s is not None
    ]
    enough = judged >= ENOUGH_SCORED
    coverage = inside / judged if judged else None
    return ForecastScore(
        scored=judged,
        waiting=len(open_),
        coverage=coverage,
        overdue=len(overdue),
        within_2x=_share_within(list(zip(table[:, 1], waits, strict=True)), len(overdue)),
        scheduler_scored=len(estimates),
        scheduler_within_2x=_share_within(estimates, 0),
        calibration=below,
        sentence=(
            f"Of {judged} past forecasts, {100 * (coverage or 0.0):.0f} % started within their "
            "80 % interval."
            if enough
            else f"Not enough history: {judged} of {ENOUGH_SCORED} forecasts scored so far."
        ),
    )


def _share_within(pairs: Sequence[tuple[float | None, float]], misses: int) -> float | None:
    """Return the share of forecasts within a factor of two (or a minute) of the truth."""
    if not len(pairs) + misses:
        return None
    good = sum(
        abs((reported or 0.0) - wait) <= 60 or 0.5 <= (reported or 0.0) / max(wait, 1.0) <= 2.0
        for reported, wait in pairs
    )
    return float(good) / (len(pairs) + misses)

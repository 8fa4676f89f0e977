"""What was forecast, what came of it and what was free over time: a cluster's record, kept bounded.

A workload is forecast when it is first seen and again whenever it has waited half as long again.
Each forecast is scored when the workload starts; who waits is censored, who was cancelled is
counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marey.queue.waiting.arrivals import RecentArrivals, read_arrivals
from marey.queue.waiting.forecast_record import (
    ENOUGH_SCORED,
    KeptForecast,
    StartForecast,
)
from marey.queue.waiting.free_room import FreeRoom
from marey.queue.waiting.run_shares import GUESSED, RunShares

if TYPE_CHECKING:
    from marey.queue.forecast.forecaster import Forecaster

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
DONE_LIMIT, OPEN_LIMIT, PER_WORKLOAD, ROOM_LIMIT = 4000, 6000, 12, 3000
ENOUGH_DAYS = 2
_AGAIN, _FIRST_GAP_MS = 1.5, 5 * 60_000
_DAY_MS = 86_400_000
_LEAST_S = 30.0
LEARNED, SIMULATION = "learned", "simulation"
# The learned model gives way where the simulation's errors have been this much smaller.
_CLEARLY_SMALLER = 0.9


@dataclass(frozen=True, slots=True)
class RoomSample:
    """What was free of a GPU model in a partition at a moment."""

    time_ms: int
    partition: str
    model: str
    gpus: int
    free: int
    whole_hosts_free: int
    largest_gang: int
    stranded_share: float


@dataclass
class QueueRecord:
    """Forecasts still open, those scored, and samples of the free room."""

    open: dict[str, list[KeptForecast]] = field(default_factory=dict)
    done: deque[KeptForecast] = field(default_factory=lambda: deque(maxlen=DONE_LIMIT))
    rooms: deque[RoomSample] = field(default_factory=lambda: deque(maxlen=ROOM_LIMIT))
    cancelled: int = 0
    # Workloads that were told to start soon, so that nobody is told twice.
    announced: set[str] = field(default_factory=set)
    shares: RunShares = GUESSED
    # Who came lately, so that simulated futures let the like come again.
    recent: RecentArrivals = field(default_factory=RecentArrivals)
    # The model learned from the site's own history, or why there is none; fitted anew after a
    # restart.
    forecaster: Forecaster | None = None
    no_model: str = ""

    def is_due(self, workload: str, submit_ms: int, now_ms: int) -> bool:
        """Return whether a workload should be forecast (again) now."""
        kept = self.open.get(workload)
        if not kept:
            return len(self.open) < OPEN_LIMIT
        last = kept[-1].made_ms
        gap = max(_FIRST_GAP_MS, (_AGAIN - 1.0) * (last - min(submit_ms, last)))
        return len(kept) < PER_WORKLOAD and now_ms - last >= gap

    def keep(self, forecast: KeptForecast) -> None:
        """Keep a forecast until its workload starts."""
        self.open.setdefault(forecast.workload, []).append(forecast)

    def note_start(self, workload: str, start_ms: int) -> None:
        """Score a workload's forecasts: it has started."""
        for kept in self.open.pop(workload, ()):
            if kept.made_ms <= start_ms:
                self.done.append(replace(kept, start_ms=start_ms))
        self.announced.discard(workload)

    def note_cancelled(self, workload: str) -> None:
        """Forget the forecasts of a workload that left the line without a start."""
        self.cancelled += self.open.pop(workload, None) is not None
        self.announced.discard(workload)

    def list_forecasts(self) -> list[KeptForecast]:
        """Return every forecast kept, scored or open."""
        return [*self.done, *(kept for rows in self.open.values() for kept in rows)]

    def note_rooms(self, time_ms: int, rooms: Sequence[FreeRoom]) -> None:
        """Keep a sample of what is free."""
        self.rooms.extend(
            RoomSample(
                time_ms=time_ms,
                partition=room.partition,
                model=room.model,
                gpus=room.gpus,
                free=room.free,
                whole_hosts_free=room.whole_hosts_free,
                largest_gang=room.largest_gang,
                stranded_share=room.stranded_share,
            )
            for room in rooms
        )

    def to_document(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {
            "open": [asdict(kept) for rows in self.open.values() for kept in rows],
            "done": [asdict(kept) for kept in self.done],
            "rooms": [asdict(room) for room in self.rooms],
            "cancelled": self.cancelled,
            "announced": sorted(self.announced),
            "run_shares": [list(shares) for shares in self.shares],
            "recent": asdict(self.recent),
        }


def read_record(document: Mapping[str, Any]) -> QueueRecord:
    """Return the record of a JSON document."""
    record = QueueRecord(
        cancelled=int(document.get("cancelled", 0)),
        announced=set(document.get("announced", ())),
        shares=tuple(tuple(shares) for shares in document.get("run_shares") or GUESSED),
        recent=read_arrivals(document.get("recent")),
    )
    for row in document.get("open", ()):
        record.keep(KeptForecast(**row))
    record.done.extend(KeptForecast(**row) for row in document.get("done", ()))
    record.rooms.extend(RoomSample(**row) for row in document.get("rooms", ()))
    return record


@dataclass(frozen=True, slots=True)
class PastMisses:
    """The 10, 50 and 90 % quantiles of log(true wait / raw middle), and on how many days."""

    low: float
    middle: float
    high: float
    days: int


def correct_forecast(misses: PastMisses | None, forecast: StartForecast) -> StartForecast:
    """Return a simulated forecast corrected by how far the site's past ones were off.

    The quantiles of the misses are put around the middle. Those of a single day may be that day's
    own: they widen the interval only. With too few, the simulation stands as it is.
    """
    if misses is None or forecast.p50_s is None:
        return forecast
    middle = max(forecast.p50_s, _LEAST_S)
    steps = (misses.low, misses.middle, misses.high)
    low, mid, high = (float(middle * np.exp(step)) for step in steps)
    if misses.days >= ENOUGH_DAYS:
        return replace(forecast, p10_s=low, p50_s=mid, p90_s=high)
    known_low, known_high = forecast.p10_s, forecast.p90_s
    return replace(
        forecast,
        p10_s=low if known_low is None else min(low, known_low),
        p90_s=None if known_high is None else max(high, known_high),
    )


def measure_misses(record: QueueRecord) -> PastMisses | None:
    """Return how far the simulation's past middles were off, every day counted alike, if enough.

    Who still waits counts with what is known, a wait so long at least (Kaplan and Meier 1958): of
    what has started alone one would learn of the short waits first.
    """
    kept = [
        one for one in record.list_forecasts() if one.raw_s is not None or one.method == SIMULATION
    ]
    started = np.array([one.start_ms is not None for one in kept], bool)
    if started.sum() < ENOUGH_SCORED:
        return None
    made = np.array([one.made_ms for one in kept])
    ends = np.array([one.start_ms or 0 for one in kept])
    waits = np.where(started, ends, max(made.max(), ends.max())) - made
    middles = np.array([one.p50_s if one.raw_s is None else one.raw_s for one in kept])
    misses = np.log(np.maximum(waits / 1000.0, _LEAST_S) / np.maximum(middles, _LEAST_S))
    days, codes, counts = np.unique(made // _DAY_MS, return_inverse=True, return_counts=True)
    low, middle, high = _find_quantiles(misses, started, 1.0 / counts[codes])
    scored_days = len(np.unique(made[started] // _DAY_MS))
    return PastMisses(low, middle, high, min(scored_days, len(days)))


def _find_quantiles(misses: Floats, started: Flags, weights: Floats) -> tuple[float, float, float]:
    """Return the 10, 50 and 90 % quantiles of misses of which some are lower bounds."""
    order = np.lexsort((~started, misses))
    misses, started, weights = misses[order], started[order], weights[order]
    at_risk = weights.sum() - np.cumsum(weights) + weights
    reached = 1.0 - np.cumprod(np.where(started, 1.0 - weights / at_risk, 1.0))
    last = len(misses) - 1
    # A hair below, for sums that round: 10 of 100 are 10 %.
    places = [min(int(np.searchsorted(reached, q - 1e-9)), last) for q in (0.1, 0.5, 0.9)]
    low, middle, high = (float(misses[place]) for place in places)
    return low, middle, high


def prefer_learned(record: QueueRecord) -> bool:
    """Return whether to show the learned forecasts: unless the simulation's have been better here.

    Both are kept with every forecast, so that each is scored on the same workloads.
    """
    if record.forecaster is None:
        return False
    both = [
        (kept.learned_s, kept.raw_s, ((kept.start_ms or 0) - kept.made_ms) / 1000.0)
        for kept in record.done
        if kept.learned_s is not None and kept.raw_s is not None
    ]
    if len(both) < ENOUGH_SCORED:
        return True
    logs = np.log(np.maximum(np.array(both), _LEAST_S))
    learned, simulated = (np.abs(logs[:, i] - logs[:, 2]).mean() for i in (0, 1))
    return bool(simulated >= _CLEARLY_SMALLER * learned)

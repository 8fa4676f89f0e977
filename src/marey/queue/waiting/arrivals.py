"""What was submitted lately and where it joined the line: simulated futures let the like come
again.

A line that nobody joins any more empties too soon: who comes later with a higher priority goes
ahead, and who is small is backfilled. The last day's submissions come again at their time of day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.tables import WorkloadRow
from marey.queue.waiting.line import Waiter

Floats = NDArray[np.float64]
_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
KEPT_LIMIT = 1000
# How far from its time of yesterday somebody comes today.
_JITTER_MS = 0.5 * _HOUR_MS
_DAYS_AHEAD = 7


@dataclass(frozen=True, slots=True)
class Arrival:
    """What was asked for, when, and which share of those who waited it went ahead of."""

    submit_ms: int
    partition: str
    model: str
    gpus: int
    per_host: int
    limit_s: int | None
    overtakes: float

    def as_waiter(self) -> Waiter:
        """Return the arrival as one who waits, for the questions that are asked of those."""
        return Waiter(
            workload="",
            user="",
            project="",
            partition=self.partition,
            gpus=self.gpus,
            per_host=self.per_host,
            model=self.model,
            limit_s=self.limit_s,
            submit_ms=self.submit_ms,
            priority=0.0,
            reason="",
        )


@dataclass(frozen=True, slots=True)
class RecentArrivals:
    """A sample of the submissions of a period (ms) that ended at a moment; each stands for
    ``weight`` of them.
    """

    rows: tuple[Arrival, ...] = ()
    until_ms: int = 0
    period_ms: int = _DAY_MS
    weight: float = 1.0


def read_arrivals(document: Mapping[str, Any] | None) -> RecentArrivals:
    """Return the sample of a JSON document; none where there is none."""
    if not document:
        return RecentArrivals()
    rows = tuple(Arrival(**row) for row in document.get("rows", ()))
    return RecentArrivals(**{**document, "rows": rows})


def sample_arrivals(rows: Sequence[WorkloadRow], now_ms: int, seed: int = 0) -> RecentArrivals:
    """Return who was submitted in the last day, of the workloads that a store has.

    Of what was submitted before the first end that is known only the long ones are known. With less
    than an hour of history there is nothing to expect.
    """
    known = [row for row in rows if row["submit_ms"] is not None and row["submit_ms"] <= now_ms]
    submit = np.array([row["submit_ms"] for row in known], np.int64)
    ends = [row["end_ms"] for row in rows if row["end_ms"] is not None and row["end_ms"] <= now_ms]
    period = min(_DAY_MS, now_ms - min(ends, default=now_ms))
    if period < _HOUR_MS:
        return RecentArrivals()
    recent = np.flatnonzero((submit > now_ms - period) & [_holds_gpus(row) for row in known])
    many = min(len(recent), KEPT_LIMIT)
    chosen = np.sort(np.random.default_rng(seed).choice(recent, many, replace=False))
    ahead = _measure_overtaking(known, submit, chosen, now_ms)
    return RecentArrivals(
        rows=tuple(
            _make_arrival(known[i], float(share)) for i, share in zip(chosen, ahead, strict=True)
        ),
        until_ms=now_ms,
        period_ms=period,
        weight=len(recent) / max(many, 1),
    )


def draw_arrivals(
    recent: RecentArrivals,
    rows: Sequence[Arrival],
    *,
    demand: float,
    now_ms: int,
    limit: int,
    draws: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return places among ``rows``, and in how many ms each comes, in the order of coming.

    The period comes again and again, each time with other numbers of each (a Poisson bootstrap),
    for a week or until so many have come; ``demand`` times as many of all.
    """
    if not rows or limit <= 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    yesterday = np.array([row.submit_ms for row in rows], np.int64)
    periods = int(np.ceil(limit / max(len(rows) * recent.weight * demand, 1.0))) + 1
    places, times = [], []
    for again in range(1, min(periods, _DAYS_AHEAD * _DAY_MS // recent.period_ms) + 1):
        came = np.repeat(np.arange(len(rows)), draws.poisson(demand * recent.weight, len(rows)))
        jitter = draws.uniform(-_JITTER_MS, _JITTER_MS, len(came)).astype(np.int64)
        places.append(came)
        times.append(yesterday[came] + again * recent.period_ms + jitter - now_ms)
    place, wait = np.concatenate(places), np.concatenate(times)
    place, wait = place[wait > 0], wait[wait > 0]
    order = np.argsort(wait, kind="stable")[:limit]
    return place[order], wait[order]


def _holds_gpus(row: WorkloadRow) -> bool:
    return (row["gpus_requested"] or 0) > 0


def _measure_overtaking(
    rows: Sequence[WorkloadRow], submit: NDArray[np.int64], chosen: NDArray[np.int64], now_ms: int
) -> Floats:
    """Return which share of those who waited in its partition each went ahead of.

    By the priorities last known; where nobody waited, as it was for another of the partition.
    """
    partition = np.unique([row["partition"] or "" for row in rows], return_inverse=True)[1]
    priority = np.array([np.nan if row["priority"] is None else row["priority"] for row in rows])
    left = np.array([_find_leaving(row, now_ms) for row in rows])
    share = np.full(len(chosen), np.nan)
    for place, i in enumerate(chosen.tolist()):
        waited = (submit < submit[i]) & (left > submit[i]) & (partition == partition[i])
        others = priority[waited & np.isfinite(priority)]
        if len(others) and np.isfinite(priority[i]):
            share[place] = float(np.mean(others < priority[i]))
    return _fill_unknown(share, partition[chosen])


def _fill_unknown(share: Floats, partition: NDArray[np.int64]) -> Floats:
    """Return the shares with the unknown ones taken in turn from those of the same partition."""
    out = share.copy()
    for number in np.unique(partition):
        mine = partition == number
        known = share[mine & np.isfinite(share)]
        missing = np.flatnonzero(mine & np.isnan(share))
        out[missing] = np.resize(known, len(missing)) if len(known) else 0.0
    return out


def _find_leaving(row: WorkloadRow, now_ms: int) -> int:
    """Return when a workload left the line, started or not; one that waits has not yet."""
    moments = [row[name] for name in ("start_ms", "end_ms")]
    known = [moment for moment in moments if moment is not None and moment <= now_ms]
    return min(known, default=now_ms + 1)


def _make_arrival(row: WorkloadRow, overtakes: float) -> Arrival:
    gpus = max(row["gpus_requested"] or 0, 1)
    return Arrival(
        submit_ms=row["submit_ms"] or 0,
        partition=row["partition"] or "",
        model=row["gpu_model"] or "",
        gpus=gpus,
        per_host=row["gpus_per_host"] or min(gpus, 8),
        limit_s=row["time_limit_s"],
        overtakes=round(overtakes, 3),
    )

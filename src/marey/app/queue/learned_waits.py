"""The wait model of a site, learned from its own workloads in the store."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from marey.model.errors import MareyError
from marey.model.protocols import Store, WorkloadQuery
from marey.model.tables import WorkloadRow
from marey.model.times import DAY_MS
from marey.queue.forecast.forecaster import Forecaster, fit_forecaster
from marey.queue.forecast.site_polls import (
    HISTORY_DAYS,
    SiteJobs,
    choose_moments,
    find_cancelled,
    forecast_waiting,
    make_jobs,
    take_snapshots,
)
from marey.queue.waiting.forecast_record import StartForecast
from marey.queue.waiting.line import Line
from marey.queue.waiting.queue_record import (
    QueueRecord,
    correct_forecast,
    measure_misses,
    prefer_learned,
)
from marey.queue.waiting.simulated_starts import simulate_starts

WORKLOADS_LIMIT = 200_000
METHOD = "simulation of the queue; too few scored forecasts yet on this site"
WIDENED = "simulation of the queue, widened by {n} scored forecasts of one day"
CORRECTED = "simulation of the queue, corrected by {n} scored forecasts of this site"
LEARNED_FROM = "learned from {rows:,} waits on {days} days of this site's own history"


def fit_site(store: Store, cluster: str, now_ms: int) -> Forecaster:
    """Return a model fitted to what is known now of the last days; raise where that is little."""
    query = WorkloadQuery(
        cluster=cluster,
        from_ms=now_ms - HISTORY_DAYS * DAY_MS,
        to_ms=now_ms,
        limit=WORKLOADS_LIMIT,
    )
    jobs = read_jobs(store.workloads(query), now_ms)
    table = take_snapshots(jobs, choose_moments(jobs, now_ms / 1000.0))
    return fit_forecaster(table, now_ms // 1000, left_out=find_cancelled(jobs, table))


def read_jobs(workloads: pa.Table, now_ms: int) -> SiteJobs:
    """Return stored workloads as columns; what happened after now is not known."""
    rows = [row for row in workloads.to_pylist() if row["submit_ms"] is not None]
    rows = [row for row in rows if row["submit_ms"] <= now_ms]
    return make_jobs(
        [row["workload"] for row in rows],
        times_s=[_read_times(row, now_ms) for row in rows],
        partitions=[row["partition"] or "" for row in rows],
        accounts=[row["project"] or row["user"] or "" for row in rows],
        sizes=[_read_size(row) for row in rows],
    )


def _read_times(row: WorkloadRow, now_ms: int) -> tuple[float, float, float]:
    """Return submission, start and end in seconds; NaN for what has not happened by now."""
    known = [row[name] for name in ("submit_ms", "start_ms", "end_ms")]
    submit, start, end = (np.nan if v is None or v > now_ms else v / 1000.0 for v in known)
    return submit, start, end


def _read_size(row: WorkloadRow) -> tuple[float, float, float | None]:
    gpus = max(row["gpus_requested"] or 0, 0)
    hosts = -(-gpus // row["gpus_per_host"]) if row["gpus_per_host"] else 1
    return gpus, max(hosts, 1), row["time_limit_s"]


def forecast_line(
    line: Line, record: QueueRecord, futures: int, only: str | None = None
) -> dict[str, tuple[StartForecast, StartForecast | None, StartForecast | None]]:
    """Return per waiting workload what is shown, and behind it the simulated and the learned."""
    simulated = (
        simulate_starts(
            line, shares=record.shares, recent=record.recent, only=only, futures=futures
        )
        if line.hosts
        else {}
    )
    learned = forecast_waiting(record.forecaster, line) if record.forecaster else {}
    first, misses = prefer_learned(record), measure_misses(record)
    found = {}
    for name in dict.fromkeys([*simulated, *learned]):
        raw, other = simulated.get(name), learned.get(name)
        never = raw is not None and raw.p50_s is None
        # Who starts in no simulated future is not promised a start by the habit of the site.
        shown = other if first and other is not None and not never else None
        best = shown or (correct_forecast(misses, raw) if raw else other)
        if best is not None:
            found[name] = (best, raw, other)
    return found


def forecast_starts(
    line: Line, record: QueueRecord, futures: int, only: str | None = None
) -> dict[str, StartForecast]:
    """Return the forecast start of each waiting workload."""
    return {name: wait[0] for name, wait in forecast_line(line, record, futures, only).items()}


def learn_if_needed(store: Store, cluster: str, record: QueueRecord, now_ms: int) -> None:
    """Give a record that was read from the store its model, or the reason why there is none."""
    if record.forecaster is None and not record.no_model:
        try:
            record.forecaster = fit_site(store, cluster, now_ms)
        except MareyError as error:
            record.no_model = str(error)

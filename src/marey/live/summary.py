"""The cluster in a few numbers over time: recorded as it lives, or rebuilt from the records."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.live.frames import STATE_CODE, Frame
from marey.model.errors import MareyError
from marey.model.inventory import GpuState
from marey.model.protocols import RecordStore, WorkloadQuery
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.model.workloads import WorkloadState

STEP_MS = 5 * MINUTE_MS
KEPT_HOURS = 31 * 24
DOCUMENT_KIND = "summary"
# Rebuilding a past moment costs a query each: hosts and broken GPUs change slowly.
_REBUILT_MOMENTS = 12

SCHEMA = pa.schema(
    {
        "time_ms": pa.int64(),
        "gpus": pa.int32(),
        "allocated": pa.int32(),
        "idle": pa.int32(),
        # Drained, down, failed or unknown.
        "broken": pa.int32(),
        "running": pa.int32(),
        "waiting": pa.int32(),
        "waiting_gpus": pa.int64(),
        "util": pa.float64(),
    }
)

Row = dict[str, Any]


def summarise(frame: Frame) -> Row:
    """Return one row: GPUs by state, what waits, and the mean utilization of allocated GPUs."""
    rows = frame.units.still.column("row").to_numpy()
    states = frame.units.state[rows]
    counts = np.bincount(states, minlength=len(STATE_CODE))
    allocated = int(counts[STATE_CODE[GpuState.ALLOCATED]])
    idle = int(counts[STATE_CODE[GpuState.IDLE]])
    pending = [
        live for live in frame.workloads.values() if live.status.state is WorkloadState.PENDING
    ]
    busy = frame.values("util")[rows][states == STATE_CODE[GpuState.ALLOCATED]]
    measured = busy[~np.isnan(busy)]
    return {
        "time_ms": frame.time_ms,
        "gpus": len(rows),
        "allocated": allocated,
        "idle": idle,
        "broken": len(rows) - allocated - idle - int(counts[STATE_CODE[GpuState.UNCLAIMED]]),
        "running": len(frame.workloads) - len(pending),
        "waiting": len(pending),
        "waiting_gpus": sum(live.workload.gpus_requested for live in pending),
        "util": round(float(measured.mean()), 2) if len(measured) else None,
    }


class SummaryLog:
    """A row every five minutes per cluster, kept by the hour as documents of the store."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        # (cluster, hour) → rows
        self._hours: dict[tuple[str, int], list[Row]] = {}
        for name, document in store.documents(DOCUMENT_KIND).items():
            cluster, _, hour = name.rpartition("/")
            self._hours[cluster, int(hour)] = document["rows"]

    def add(self, cluster: str, rows: list[Row]) -> None:
        """Take rows that were made elsewhere, in order of time."""
        touched: dict[tuple[str, int], dict[str, Any]] = {}
        with self._lock:
            for row in rows:
                key = (cluster, row["time_ms"] // HOUR_MS)
                hour = self._hours.setdefault(key, [])
                hour.append(row)
                touched[key] = {"rows": list(hour)}
        for (name, number), document in touched.items():
            self._store.put_document(DOCUMENT_KIND, f"{name}/{number}", document)

    def watch(self, frame: Frame) -> None:
        """Record the frame if a new five minutes have begun."""
        key = (frame.cluster, frame.time_ms // HOUR_MS)
        with self._lock:
            rows = self._hours.setdefault(key, [])
            if rows and rows[-1]["time_ms"] // STEP_MS >= frame.time_ms // STEP_MS:
                return
            rows.append(summarise(frame))
            document = {"rows": list(rows)}
        try:
            self._store.put_document(DOCUMENT_KIND, f"{key[0]}/{key[1]}", document)
            self._forget(key)
        except MareyError:
            # A store that cannot write says so through the samples; the row stays in memory.
            return

    def _forget(self, newest: tuple[str, int]) -> None:
        old = [
            key for key in self._hours if key[0] == newest[0] and key[1] <= newest[1] - KEPT_HOURS
        ]
        for key in old:
            with self._lock:
                self._hours.pop(key, None)
            self._store.delete_document(DOCUMENT_KIND, f"{key[0]}/{key[1]}")

    def rows(self, cluster: str, from_ms: int, to_ms: int) -> list[Row]:
        """Return the summaries of this span, in order of time."""
        with self._lock:
            hours = sorted(hour for name, hour in self._hours if name == cluster)
            found = [
                row
                for hour in hours
                if (hour + 1) * HOUR_MS > from_ms and hour * HOUR_MS < to_ms
                for row in self._hours[cluster, hour]
            ]
        return [row for row in found if from_ms <= row["time_ms"] < to_ms]


def thin_rows(rows: list[Row], points: int) -> pa.Table:
    """Return at most ``points`` of the rows, evenly spread, the last one always among them."""
    if len(rows) > points:
        picked = np.unique(np.linspace(0, len(rows) - 1, points).round().astype(int))
        rows = [rows[i] for i in picked]
    return pa.Table.from_pylist(rows, SCHEMA)


def rebuilt(store: RecordStore, *, cluster: str, from_ms: int, to_ms: int, points: int) -> pa.Table:
    """Return the same rows from validity intervals, for imported history.

    Utilization is not known.
    """
    grid = np.linspace(from_ms, to_ms - 1, points).astype(np.int64)
    held = store.allocations(cluster, from_ms=from_ms, to_ms=to_ms)
    allocated = _open_at(grid, held, np.ones(held.num_rows, np.int64))
    states = store.states(cluster, from_ms=from_ms, to_ms=to_ms)
    query = WorkloadQuery(cluster=cluster, from_ms=from_ms, to_ms=to_ms, limit=1_000_000)
    known = store.workloads(query)
    asked = dict(
        zip(known["workload"].to_pylist(), known["gpus_requested"].to_pylist(), strict=True)
    )
    ones = np.ones(states.num_rows, np.int64)
    gpus = np.array([asked.get(w) or 0 for w in states["workload"].to_pylist()], np.int64)
    words = np.array(states["state"].to_pylist(), object)
    pending, running = words == WorkloadState.PENDING.value, words == WorkloadState.RUNNING.value
    totals, broken = _count_hardware(store, cluster, grid)
    return pa.table(
        {
            "time_ms": grid,
            "gpus": totals,
            "allocated": np.minimum(allocated, totals),
            "idle": np.maximum(0, totals - allocated - broken),
            "broken": broken,
            "running": _open_at(grid, states, ones * running),
            "waiting": _open_at(grid, states, ones * pending),
            "waiting_gpus": _open_at(grid, states, gpus * pending),
            "util": pa.nulls(len(grid), pa.float64()),
        }
    ).cast(SCHEMA)


def _open_at(
    grid: NDArray[np.int64], intervals: pa.Table, weights: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the sum of weights of the intervals that are open at each time of the grid."""
    begins = intervals["valid_from_ms"].to_numpy()
    ends = intervals["valid_to_ms"].fill_null(2**62).to_numpy()
    change = np.zeros(len(grid) + 1, np.int64)
    np.add.at(change, np.searchsorted(grid, begins, side="left"), weights)
    np.subtract.at(change, np.searchsorted(grid, ends, side="left"), weights)
    return np.cumsum(change)[:-1]


def _count_hardware(
    store: RecordStore, cluster: str, grid: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    totals, broken = np.zeros(len(grid), np.int64), np.zeros(len(grid), np.int64)
    for part in np.array_split(np.arange(len(grid)), min(_REBUILT_MOMENTS, len(grid))):
        moment = store.moment(cluster, int(grid[part[0]]))
        states: Mapping[str, str] = dict(
            zip(moment.hosts["host"].to_pylist(), moment.hosts["state"].to_pylist(), strict=True)
        )
        totals[part] = moment.gpus.num_rows
        broken[part] = sum(
            bool(failed) or states.get(host, "up") != "up"
            for host, failed in zip(
                moment.gpus["host"].to_pylist(), moment.gpus["failed"].to_pylist(), strict=True
            )
        )
    return totals, broken

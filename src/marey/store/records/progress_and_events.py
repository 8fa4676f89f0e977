"""Progress and events: kept once each, however often they are reported."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from marey.model import tables
from marey.model.names import bounded
from marey.model.observation import Observation
from marey.store.database.facts import clip_int64, keep_finite, limit_gpu_name
from marey.store.database.rows import insert, make_rows_table

EVENT_TEXT_LIMIT = 2_000


class ProgressAndEvents:
    """Knows the newest progress of each workload, so that what is new needs no lookup."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], int] = {}

    def keep(
        self, connection: duckdb.DuckDBPyConnection, cluster: str, observation: Observation
    ) -> None:
        """Keep what is new of an observation."""
        if observation.progress:
            self._keep_progress(connection, cluster, observation)
        if observation.events:
            _keep_events(connection, cluster, observation)

    def _keep_progress(
        self, connection: duckdb.DuckDBPyConnection, cluster: str, observation: Observation
    ) -> None:
        rows = {}
        known = True
        for p in observation.progress:
            key = (bounded(p.workload), int(p.time_ms))
            rows[key] = (
                cluster,
                *key,
                clip_int64(p.step),
                keep_finite(p.throughput),
                bounded(p.unit),
                keep_finite(p.loss),
            )
            newest = self._newest.get((cluster, key[0]))
            known = known and newest is not None and newest < key[1]
            self._newest[cluster, key[0]] = max(key[1], newest or key[1])
        if not known:
            _replace_progress(connection, list(rows.values()))
        insert(connection, "progress", tables.PROGRESS, list(rows.values()))
        if len(self._newest) > 50_000:
            self._newest.clear()


def _replace_progress(connection: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]]) -> None:
    times = [row[2] for row in rows]
    connection.register("told", make_rows_table(rows, tables.PROGRESS))
    connection.execute(
        "DELETE FROM progress p USING told t WHERE p.time_ms >= ? AND p.time_ms <= ? AND "
        "p.time_ms = t.time_ms AND p.workload = t.workload AND p.cluster = t.cluster",
        [min(times), max(times)],
    )
    connection.unregister("told")


def _keep_events(
    connection: duckdb.DuckDBPyConnection, cluster: str, observation: Observation
) -> None:
    rows = {
        (
            cluster,
            int(e.time_ms),
            str(e.kind),
            bounded(e.host),
            limit_gpu_name(e.gpu),
            bounded(e.workload),
            keep_finite(e.value),
            e.text if len(e.text) <= EVENT_TEXT_LIMIT and e.text.isascii() else bounded(e.text),
        ): None
        for e in observation.events
    }
    times = [row[1] for row in rows]
    connection.register("told", _make_events_table(list(rows)))
    connection.execute(
        "INSERT INTO events SELECT * FROM told EXCEPT "
        "SELECT * FROM events WHERE time_ms >= ? AND time_ms <= ?",
        [min(times), max(times)],
    )
    connection.unregister("told")


def _make_events_table(rows: list[tuple[object, ...]]) -> pa.Table:
    return make_rows_table(rows, tables.EVENTS)

"""Reading records: a cluster at any time, one workload, intervals, progress and events."""

from __future__ import annotations

import json
from typing import Any, cast

import duckdb
import pyarrow as pa

from marey.model import tables
from marey.model.errors import NotFound, shown
from marey.model.names import bounded
from marey.model.protocols import Moment
from marey.model.tables import WorkloadRecord
from marey.store.database.database_file import fetch_arrow
from marey.store.database.facts import (
    ALLOCATIONS,
    GPU_STATES,
    GPUS,
    HOST_STATES,
    HOSTS,
    PARTITIONS,
    STATES,
    WORKLOADS,
    Kind,
)


def _select_rows_at(kind: Kind) -> str:
    """Return the rows of a kind that held at ``$time``."""
    columns = ", ".join(f'"{name}"' for name, _ in kind.columns)
    return (
        f"(SELECT cluster, {columns} FROM {kind.now} "
        "WHERE cluster = $cluster AND valid_from_ms <= $time "
        f"UNION ALL SELECT cluster, {columns} FROM {kind.past} "
        "WHERE cluster = $cluster AND valid_from_ms <= $time AND valid_to_ms > $time)"
    )


def _select_intervals(kind: Kind) -> str:
    """Return the rows of a kind with their intervals, whole history."""
    columns = ", ".join(f'"{name}"' for name, _ in kind.columns)
    return (
        f"(SELECT cluster, {columns}, valid_from_ms, NULL::BIGINT AS valid_to_ms FROM {kind.now} "
        f"UNION ALL SELECT cluster, {columns}, valid_from_ms, valid_to_ms FROM {kind.past})"
    )


_HOSTS_AT = (
    "SELECT h.*, coalesce(s.state, 'unknown') AS state, coalesce(s.reason, '') AS reason "
    f"FROM {_select_rows_at(HOSTS)} h LEFT JOIN {_select_rows_at(HOST_STATES)} s "
    "USING (host) ORDER BY host"
)
_GPUS_AT = (
    "SELECT g.*, coalesce(s.failed, false) AS failed, coalesce(s.reason, '') AS failed_reason "
    f"FROM {_select_rows_at(GPUS)} g LEFT JOIN {_select_rows_at(GPU_STATES)} s USING (gpu) "
    'ORDER BY host, "index", instance'
)
# A workload of which only one of facts and state was reported is shown all the same.
STATE_GUESS = (
    "coalesce(s.state, CASE WHEN w.end_ms IS NOT NULL THEN 'completed' "
    "WHEN w.start_ms IS NOT NULL THEN 'running' ELSE 'pending' END)"
)
WORKLOAD_NAMES = [name for name, _ in WORKLOADS.columns if name not in ("workload", "attributes")]
WORKLOAD_FIELDS = (
    "coalesce(w.cluster, s.cluster) AS cluster, coalesce(w.workload, s.workload) AS workload, "
    + ", ".join(f'w."{name}"' for name in WORKLOAD_NAMES)
    + f", {STATE_GUESS} AS state, coalesce(s.reason, '') AS reason, "
    "coalesce(s.priority, 0.0) AS priority, coalesce(w.attributes, '{}') AS attributes"
)
_WORKLOADS_AT = (
    f"SELECT {WORKLOAD_FIELDS} FROM {_select_rows_at(WORKLOADS)} w "
    f"FULL OUTER JOIN {_select_rows_at(STATES)} s ON w.workload = s.workload"
)


def fit_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns and types of a schema; text that is missing is empty."""
    columns = []
    for field in schema:
        column = table.column(field.name).cast(field.type)
        if pa.types.is_string(field.type) and column.null_count:
            column = column.fill_null("")
        columns.append(column)
    return pa.table(columns, schema=schema)


def read_gpus(connection: duckdb.DuckDBPyConnection, cluster: str, time_ms: int) -> pa.Table:
    """Return the GPUs of a cluster at a time."""
    values = {"cluster": bounded(cluster), "time": time_ms}
    return fit_schema(fetch_arrow(connection, _GPUS_AT, values), tables.GPUS)


def read_moment(connection: duckdb.DuckDBPyConnection, cluster: str, time_ms: int) -> Moment:
    """Return the whole cluster at a time."""
    values = {"cluster": bounded(cluster), "time": time_ms}

    def ask(sql: str, schema: pa.Schema) -> pa.Table:
        return fit_schema(fetch_arrow(connection, sql, values), schema)

    live = f"SELECT * FROM ({_WORKLOADS_AT}) WHERE state IN ('pending', 'running')"
    return Moment(
        cluster=cluster,
        time_ms=time_ms,
        hosts=ask(_HOSTS_AT, tables.HOSTS),
        gpus=read_gpus(connection, cluster, time_ms),
        partitions=ask(
            f"SELECT * FROM {_select_rows_at(PARTITIONS)} ORDER BY partition", tables.PARTITIONS
        ),
        workloads=ask(f"{live} ORDER BY workload", tables.WORKLOADS),
        allocations=ask(
            f"SELECT * FROM {_select_intervals(ALLOCATIONS)} WHERE cluster = $cluster AND "
            "valid_from_ms <= $time AND (valid_to_ms IS NULL OR valid_to_ms > $time) "
            "ORDER BY workload, global_rank, gpu",
            tables.ALLOCATIONS,
        ),
    )


def read_workload(connection: duckdb.DuckDBPyConnection, cluster: str, name: str) -> WorkloadRecord:
    """Return one workload with its intervals."""
    values = {"cluster": bounded(cluster), "workload": bounded(name)}
    row = fetch_arrow(
        connection,
        f"SELECT {WORKLOAD_FIELDS} FROM "
        f"(FROM {WORKLOADS.now} WHERE cluster = $cluster AND workload = $workload) w "
        f"FULL OUTER JOIN (FROM {STATES.now} WHERE cluster = $cluster AND workload = $workload) s "
        "ON w.workload = s.workload",
        values,
    )
    if not row.num_rows:
        raise NotFound(f"There is no workload '{shown(name)}' in cluster '{shown(cluster)}'.")
    found: dict[str, Any] = fit_schema(row, tables.WORKLOADS).to_pylist()[0]
    found["attributes"] = json.loads(found["attributes"])
    of_it = "WHERE cluster = $cluster AND workload = $workload"
    for key, kind, schema, order in (
        ("states", STATES, tables.STATES, "valid_from_ms"),
        ("allocations", ALLOCATIONS, tables.ALLOCATIONS, "valid_from_ms, global_rank, gpu"),
    ):
        intervals = fetch_arrow(
            connection, f"SELECT * FROM {_select_intervals(kind)} {of_it} ORDER BY {order}", values
        )
        found[key] = fit_schema(intervals, schema).to_pylist()
    return cast(WorkloadRecord, found)


def read_allocations(
    connection: duckdb.DuckDBPyConnection,
    cluster: str,
    workload: str | None,
    *,
    from_ms: int,
    to_ms: int | None,
) -> pa.Table:
    """Return who held which GPU at some time in the span."""
    return _read_touching(
        connection, ALLOCATIONS, tables.ALLOCATIONS, (cluster, workload, from_ms, to_ms)
    )


def read_states(
    connection: duckdb.DuckDBPyConnection, cluster: str, from_ms: int, to_ms: int
) -> pa.Table:
    """Return state intervals that touch the span."""
    return _read_touching(connection, STATES, tables.STATES, (cluster, None, from_ms, to_ms))


def read_host_states(
    connection: duckdb.DuckDBPyConnection, cluster: str, from_ms: int, to_ms: int
) -> pa.Table:
    """Return state intervals of hosts that touch the span."""
    span = (cluster, None, from_ms, to_ms)
    return _read_touching(connection, HOST_STATES, tables.HOST_STATES, span)


def _read_touching(
    connection: duckdb.DuckDBPyConnection,
    kind: Kind,
    schema: pa.Schema,
    span: tuple[str, str | None, int, int | None],
) -> pa.Table:
    cluster, workload, from_ms, to_ms = span
    values: dict[str, object] = {"cluster": bounded(cluster), "from": from_ms}
    conditions = ["cluster = $cluster", "(valid_to_ms IS NULL OR valid_to_ms > $from)"]
    if workload is not None:
        conditions.append("workload = $workload")
        values["workload"] = bounded(workload)
    if to_ms is not None:
        conditions.append("valid_from_ms < $to")
        values["to"] = to_ms
    keys = ", ".join(kind.keys)
    table = fetch_arrow(
        connection,
        f"SELECT * FROM {_select_intervals(kind)} WHERE {' AND '.join(conditions)} "
        f"ORDER BY valid_from_ms, {keys}",
        values,
    )
    return fit_schema(table, schema)


def read_progress(
    connection: duckdb.DuckDBPyConnection, cluster: str, workload: str, *, from_ms: int, to_ms: int
) -> pa.Table:
    """Return the progress that a workload reported in the span, in order of time."""
    table = fetch_arrow(
        connection,
        "SELECT * FROM progress WHERE cluster = ? AND workload = ? AND time_ms >= ? AND "
        "time_ms < ? ORDER BY time_ms",
        [bounded(cluster), bounded(workload), from_ms, to_ms],
    )
    return fit_schema(table, tables.PROGRESS)


def read_progress_minutes(
    connection: duckdb.DuckDBPyConnection, cluster: str, from_ms: int, to_ms: int
) -> pa.Table:
    """Return the last report of each workload in each minute of the span, in order of time."""
    return fetch_arrow(
        connection,
        "SELECT workload, max(time_ms) AS time_ms FROM progress WHERE cluster = ? AND "
        "time_ms >= ? AND time_ms < ? GROUP BY workload, time_ms // 60000 ORDER BY time_ms",
        [bounded(cluster), from_ms, to_ms],
    )


def read_events(
    connection: duckdb.DuckDBPyConnection,
    cluster: str,
    span: tuple[int, int],
    *,
    workload: str | None,
    limit: int,
) -> pa.Table:
    """Return events of the span in order of time.

    Where there are more than ``limit``, the newest.
    """
    values: dict[str, object] = {
        "cluster": bounded(cluster),
        "from": span[0],
        "to": span[1],
        "limit": max(0, limit),
    }
    which = ""
    if workload is not None:
        which = "AND workload = $workload"
        values["workload"] = bounded(workload)
    order = "time_ms {0}, kind {0}, host {0}, gpu {0}, workload {0}, value {0}, text {0}"
    table = fetch_arrow(
        connection,
        "SELECT * FROM (SELECT * FROM events WHERE cluster = $cluster AND time_ms >= $from AND "
        f"time_ms < $to {which} ORDER BY {order.format('DESC')} LIMIT $limit) "
        f"ORDER BY {order.format('ASC')}",
        values,
    )
    return fit_schema(table, tables.EVENTS)

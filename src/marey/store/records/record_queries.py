"""Reading records: a cluster at any time, workloads, intervals, progress and events."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from marey.model import tables
from marey.model.errors import InvalidInput, NotFound, shown, unknown
from marey.model.names import bounded
from marey.model.predicates import And, Comparison, Not, Or, Predicate, select
from marey.model.protocols import Moment, WorkloadQuery
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
from marey.store.records.predicate_sql import compile_predicate

_ATTRIBUTE = "attributes."


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
_STATE_GUESS = (
    "coalesce(s.state, CASE WHEN w.end_ms IS NOT NULL THEN 'completed' "
    "WHEN w.start_ms IS NOT NULL THEN 'running' ELSE 'pending' END)"
)
_WORKLOAD_NAMES = [name for name, _ in WORKLOADS.columns if name not in ("workload", "attributes")]
_WORKLOAD_FIELDS = (
    "coalesce(w.cluster, s.cluster) AS cluster, coalesce(w.workload, s.workload) AS workload, "
    + ", ".join(f'w."{name}"' for name in _WORKLOAD_NAMES)
    + f", {_STATE_GUESS} AS state, coalesce(s.reason, '') AS reason, "
    "coalesce(s.priority, 0.0) AS priority, coalesce(w.attributes, '{}') AS attributes"
)
_WORKLOADS_AT = (
    f"SELECT {_WORKLOAD_FIELDS} FROM {_select_rows_at(WORKLOADS)} w "
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
        gpus=ask(_GPUS_AT, tables.GPUS),
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


_BEGIN = "coalesce(submit_ms, eligible_ms, start_ms, 0)"


_WAITED = (
    "CASE WHEN start_ms IS NOT NULL THEN start_ms WHEN state = 'pending' THEN $now END - submit_ms"
)
_RAN = "CASE WHEN state = 'running' THEN $now ELSE until_ms END - start_ms"
# What workloads can be ordered by beside their own columns.
_COMPUTED = {"wait_ms": _WAITED, "run_ms": _RAN, "gpu_ms": f"gpus_requested * ({_RAN})"}


def _select_workloads(query: WorkloadQuery) -> tuple[str, list[str], dict[str, Any], bool]:
    """Return the rows a query chooses from, its conditions and values, and whether they say all.

    A predicate over free attributes is none for the database: it is looked at afterwards.
    """
    values: dict[str, Any] = {"cluster": bounded(query.cluster)}
    conditions = ["cluster = $cluster"]
    if query.states:
        conditions.append("state IN (SELECT unnest($states))")
        values["states"] = [str(state) for state in query.states]
    if query.to_ms is not None:
        conditions.append(f"{_BEGIN} < $to")
        values["to"] = query.to_ms
    if query.from_ms is not None:
        conditions.append("(until_ms IS NULL OR until_ms > $from)")
        values["from"] = query.from_ms
    latest = (
        f"SELECT {_WORKLOAD_FIELDS}, coalesce(w.end_ms, CASE WHEN {_STATE_GUESS} NOT IN "
        "('pending', 'running') THEN s.valid_from_ms END) AS until_ms "
        f"FROM {WORKLOADS.now} w FULL OUTER JOIN {STATES.now} s "
        "ON w.cluster = s.cluster AND w.workload = s.workload"
    )
    added = dict(values)
    compiled = compile_predicate(query.where, tables.WORKLOADS, added)
    # A half-compiled predicate leaves values behind that no condition names.
    if compiled is not None:
        values = added
        conditions.append(compiled)
    return latest, conditions, values, compiled is not None


def read_workloads(connection: duckdb.DuckDBPyConnection, query: WorkloadQuery) -> pa.Table:
    """Return workloads with their latest state, newest submission first unless told otherwise."""
    latest, conditions, values, says_all = _select_workloads(query)
    order = f"{_BEGIN} DESC, workload DESC"
    if query.order_by:
        order, values = _order_workloads(query, values)
    if query.after is not None:
        values["after"] = bounded(query.after)
        conditions.append(
            f"({_BEGIN}, workload) < (SELECT ({_BEGIN}, workload) FROM ({latest}) "
            "WHERE cluster = $cluster AND workload = $after)"
        )
    limit = ""
    if says_all:
        limit = "LIMIT $limit OFFSET $offset"
        values |= {"limit": max(0, query.limit), "offset": max(0, query.offset)}
    table = fetch_arrow(
        connection,
        f"SELECT * FROM ({latest}) WHERE {' AND '.join(conditions)} ORDER BY {order} {limit}",
        values,
    )
    found = fit_schema(table, tables.WORKLOADS)
    if not limit:
        kept = np.flatnonzero(select(query.where, add_attributes(found, query.where)))
        found = found.take(kept[query.offset :][: max(0, query.limit)])
    return found


def _order_workloads(query: WorkloadQuery, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the order of a query; those without a value come last either way."""
    known = {*tables.WORKLOADS.names, *_COMPUTED}
    if query.order_by not in known:
        raise InvalidInput(unknown("order", query.order_by, known))
    way = "DESC" if query.descending else "ASC"
    column = _COMPUTED.get(query.order_by, f'"{query.order_by}"')
    if query.order_by in _COMPUTED:
        values = {**values, "now": query.to_ms or time.time_ns() // 1_000_000}
    return f"{column} {way} NULLS LAST, {_BEGIN} DESC, workload DESC", values


def count_workloads(connection: duckdb.DuckDBPyConnection, query: WorkloadQuery) -> dict[str, int]:
    """Return how many workloads a query means in all, by state."""
    latest, conditions, values, says_all = _select_workloads(query)
    if not says_all:
        everything = replace(query, limit=1 << 40, offset=0, after=None, order_by="")
        states = read_workloads(connection, everything)["state"].to_pylist()
        return dict(sorted(Counter(states).items()))
    rows = connection.execute(
        f"SELECT state, count(*) FROM ({latest}) WHERE {' AND '.join(conditions)} GROUP BY state "
        "ORDER BY state",
        values,
    ).fetchall()
    return {str(state): int(count) for state, count in rows}


def add_attributes(table: pa.Table, where: Predicate) -> pa.Table:
    """Return the table with a column for each free attribute that the predicate names."""
    wanted = sorted({f for f in _list_fields(where) if f.startswith(_ATTRIBUTE)})
    if not wanted:
        return table
    parsed = [json.loads(text or "{}") for text in table.column("attributes").to_pylist()]
    for field in wanted:
        values = [attributes.get(field[len(_ATTRIBUTE) :]) for attributes in parsed]
        table = table.append_column(field, pa.array(values, pa.string()))
    return table


def _list_fields(predicate: Predicate) -> Iterator[str]:
    if isinstance(predicate, Comparison):
        yield predicate.field
    elif isinstance(predicate, Not):
        yield from _list_fields(predicate.part)
    elif isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from _list_fields(part)


def read_workload(connection: duckdb.DuckDBPyConnection, cluster: str, name: str) -> dict[str, Any]:
    """Return one workload with its intervals."""
    values = {"cluster": bounded(cluster), "workload": bounded(name)}
    row = fetch_arrow(
        connection,
        f"SELECT {_WORKLOAD_FIELDS} FROM "
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
    return found


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


def _read_touching(
    connection: duckdb.DuckDBPyConnection,
    kind: Kind,
    schema: pa.Schema,
    span: tuple[str, str | None, int, int | None],
) -> pa.Table:
    cluster, workload, from_ms, to_ms = span
    values: dict[str, Any] = {"cluster": bounded(cluster), "from": from_ms}
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
    """Return what a workload said of itself in the span, in order of time."""
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
    values: dict[str, Any] = {
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

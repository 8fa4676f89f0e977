"""Reading workloads in any order, a page at a time, and counting them.

Which workloads a page shows is found from the columns that its order and conditions name; only
their rows are then read whole. That also keeps the sort of a million within the store's memory.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np
import pyarrow as pa

from marey.model import tables
from marey.model.errors import InvalidInput, unknown
from marey.model.names import bounded
from marey.model.predicates import And, Comparison, Not, Or, Predicate, select
from marey.model.protocols import OrderFigures, WorkloadQuery
from marey.model.workloads import WorkloadState
from marey.store.database.database_file import fetch_arrow
from marey.store.database.facts import STATES, WORKLOADS
from marey.store.records.predicate_sql import compile_predicate
from marey.store.records.record_queries import (
    STATE_GUESS,
    WORKLOAD_FIELDS,
    WORKLOAD_NAMES,
    fit_schema,
)

_ATTRIBUTE = "attributes."
# Rows that are read whole at a time.
_CHUNK = 50_000
_COUNTS_KEPT = 64

_BEGIN = "coalesce(submit_ms, eligible_ms, start_ms, 0)"
_WAITED = (
    "CASE WHEN start_ms IS NOT NULL THEN start_ms WHEN state = 'pending' THEN $now END - submit_ms"
)
_RAN = "CASE WHEN state = 'running' THEN $now ELSE until_ms END - start_ms"
_GPU_MS = f"gpus_requested * ({_RAN})"
# Of GPU time without waste nothing was wasted; before there is any, nothing is said.
_EFFICIENCY = f"CASE WHEN {_GPU_MS} > 0 THEN greatest(0, 1 - coalesce(figure, 0) / ({_GPU_MS})) END"
_OVER_USUAL = f"CASE WHEN {_RAN} >= $least_run THEN {_EFFICIENCY} - usual END"
# What workloads can be ordered by beside their own columns.
_COMPUTED = {"wait_ms": _WAITED, "run_ms": _RAN, "gpu_ms": _GPU_MS}
# The same with figures from outside.
_FIGURED = {"figure": "figure", "efficiency": _EFFICIENCY, "over_usual": _OVER_USUAL}
_TIMED_ORDERS = {*_COMPUTED, "efficiency", "over_usual"}
_OF_STATE = {"state", "reason", "priority"}

_FACTS = f"(SELECT * FROM {WORKLOADS.now} WHERE cluster = $cluster)"
_STATES = f"(SELECT * FROM {STATES.now} WHERE cluster = $cluster)"
_LIVE = "('pending', 'running')"


def _select_whole(facts: str = _FACTS, states: str = _STATES) -> str:
    """Return the workloads of which facts, a state or both are known."""
    return (
        f"SELECT {WORKLOAD_FIELDS}, coalesce(w.end_ms, CASE WHEN {STATE_GUESS} NOT IN {_LIVE} "
        f"THEN s.valid_from_ms END) AS until_ms "
        f"FROM {facts} w FULL OUTER JOIN {states} s ON w.workload = s.workload"
    )


_WHOLE = _select_whole()
# The same where every workload has facts and a state: the database can choose before it joins.
_PAIRED_FIELDS = (
    "w.cluster, w.workload, "
    + ", ".join(f'w."{name}"' for name in WORKLOAD_NAMES)
    + ", s.state, s.reason, s.priority, w.attributes, coalesce(w.end_ms, CASE WHEN "
    f"s.state NOT IN {_LIVE} THEN s.valid_from_ms END) AS until_ms"
)
_PAIRED = f"SELECT {_PAIRED_FIELDS} FROM {_FACTS} w JOIN {_STATES} s ON w.workload = s.workload"
# Only the states that times depend on; null for those that are over and say when.
_TIMED = (
    f"SELECT {_PAIRED_FIELDS} FROM {_FACTS} w LEFT JOIN (SELECT * FROM {_STATES} WHERE state IN "
    f"{_LIVE} OR workload IN (SELECT workload FROM {_FACTS} WHERE end_ms IS NULL)) s "
    "ON w.workload = s.workload"
)
_UNPAIRED = (
    f"SELECT 1 FROM {_FACTS} w FULL OUTER JOIN {_STATES} s ON w.workload = s.workload "
    "WHERE w.workload IS NULL OR s.workload IS NULL LIMIT 1"
)


@dataclass(slots=True)
class KnownWorkloads:
    """What was found out about all workloads; it holds until one of them changes."""

    # By cluster: whether every workload has facts and a state.
    _paired: dict[str, bool] = field(default_factory=dict)
    _counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def are_paired(self, connection: duckdb.DuckDBPyConnection, cluster: str) -> bool:
        """Return whether every workload of a cluster has facts and a state."""
        known = self._paired.get(cluster)
        if known is None:
            unpaired = connection.execute(_UNPAIRED, {"cluster": cluster}).fetchall()
            known = self._paired[cluster] = not unpaired
        return known

    def count(self, connection: duckdb.DuckDBPyConnection, query: WorkloadQuery) -> dict[str, int]:
        """Return how many workloads a query means in all, by state."""
        query = replace(query, limit=0, offset=0, after=None, order_by="", descending=True)
        query = replace(query, figures=None, now_ms=None)
        asked = repr(query)
        known = self._counts.get(asked)
        if known is None:
            known = _count_workloads(connection, query, self)
            if len(self._counts) < _COUNTS_KEPT:
                self._counts[asked] = known
        return dict(known)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Rows to choose from, the conditions on them and their values.

    A predicate over free attributes is none for the database: it is looked at afterwards.
    """

    rows: str
    where: str
    values: dict[str, object]
    is_whole: bool


def _choose_workloads(query: WorkloadQuery, rows: str) -> _Choice:
    values: dict[str, object] = {"cluster": bounded(query.cluster)}
    conditions = ["true"]
    if query.states:
        states = ", ".join(f"'{WorkloadState(state)}'" for state in query.states)
        conditions.append(f"state IN ({states})")
    if query.to_ms is not None:
        conditions.append(f"{_BEGIN} < $to")
        values["to"] = query.to_ms
    if query.from_ms is not None:
        conditions.append("(until_ms IS NULL OR until_ms > $from)")
        values["from"] = query.from_ms
    if query.after is not None:
        values["after"] = bounded(query.after)
        last = _select_whole(
            f"(FROM {_FACTS} WHERE workload = $after)", f"(FROM {_STATES} WHERE workload = $after)"
        )
        conditions.append(f"({_BEGIN}, workload) < (SELECT ({_BEGIN}, workload) FROM ({last}))")
    added = dict(values)
    compiled = compile_predicate(query.where, tables.WORKLOADS, added)
    # A half-compiled predicate leaves values behind that no condition names.
    if compiled is not None:
        values = added
        conditions.append(compiled)
    return _Choice(rows, " AND ".join(conditions), values, compiled is not None)


def _select_rows(query: WorkloadQuery, *, paired: bool) -> str:
    """Return the least that has every column which the order and the conditions name."""
    named = {*_list_fields(query.where), query.order_by}
    if not paired:
        return _WHOLE
    if query.states or named & _OF_STATE:
        return _PAIRED
    if query.from_ms is not None or query.order_by in _TIMED_ORDERS:
        return _TIMED
    return _FACTS


def read_workloads(
    connection: duckdb.DuckDBPyConnection, query: WorkloadQuery, known: KnownWorkloads
) -> pa.Table:
    """Return workloads with their latest state, newest submission first unless asked otherwise."""
    found = [tables.WORKLOADS.empty_table(), *_read_chunks(connection, query, known)]
    return pa.concat_tables(found).combine_chunks()


def _read_chunks(
    connection: duckdb.DuckDBPyConnection, query: WorkloadQuery, known: KnownWorkloads
) -> Iterator[pa.Table]:
    """Yield the rows of a page, in its order."""
    names, is_whole = _list_names(connection, query, known)
    chunks = (
        _read_rows(connection, query.cluster, names.slice(first, _CHUNK))
        for first in range(0, len(names), _CHUNK)
    )
    if is_whole:
        yield from chunks
        return
    skipped, wanted = max(0, query.offset), max(0, query.limit)
    for chunk in chunks:
        fitting = np.flatnonzero(select(query.where, add_attributes(chunk, query.where)))
        kept = fitting[skipped:][:wanted]
        yield chunk.take(kept)
        skipped, wanted = max(0, skipped - len(fitting)), wanted - len(kept)
        if not wanted:
            return


def _list_names(
    connection: duckdb.DuckDBPyConnection, query: WorkloadQuery, known: KnownWorkloads
) -> tuple[pa.Table, bool]:
    """Return the names on a page, and True; those that may fit the predicate, and False."""
    paired = known.are_paired(connection, bounded(query.cluster))
    choice = _choose_workloads(query, _select_rows(query, paired=paired))
    rows, order, values = choice.rows, f"{_BEGIN} DESC, workload DESC", choice.values
    if query.order_by:
        order, values = _order_workloads(query, values)
    if query.order_by in _FIGURED:
        rows = _add_figures(connection, rows, query.figures)
    limit = ""
    if choice.is_whole:
        limit = "LIMIT $limit OFFSET $offset"
        values = {**values, "limit": max(0, query.limit), "offset": max(0, query.offset)}
    names = fetch_arrow(
        connection,
        f"SELECT workload FROM ({rows}) WHERE {choice.where} ORDER BY {order} {limit}",
        values,
    )
    return names, choice.is_whole


def _order_workloads(
    query: WorkloadQuery, values: dict[str, object]
) -> tuple[str, dict[str, object]]:
    """Return the order of a query; those without a value come last either way."""
    figures = query.figures
    orders = {**_COMPUTED, **(_FIGURED if figures else {})}
    known = {*tables.WORKLOADS.names, *orders}
    if query.order_by not in known:
        raise InvalidInput(unknown("order", query.order_by, known))
    way = "DESC" if query.descending else "ASC"
    column = orders.get(query.order_by, f'"{query.order_by}"')
    if query.order_by in _TIMED_ORDERS:
        values = {**values, "now": query.now_ms or query.to_ms or time.time_ns() // 1_000_000}
    if figures and query.order_by == "figure":
        column = "coalesce(figure, $others)"
        values = {**values, "others": figures.others}
    if figures and query.order_by == "over_usual":
        values = {**values, "least_run": figures.least_run_ms}
    return f"{column} {way} NULLS LAST, {_BEGIN} DESC, workload DESC", values


def _add_figures(
    connection: duckdb.DuckDBPyConnection, rows: str, figures: OrderFigures | None
) -> str:
    """Return the rows with each workload's figure and what is usual for its size."""
    figures = figures or OrderFigures({})
    by_workload, usual = figures.by_workload, figures.usual
    # A cursor serves one question: after an error there is nothing to take back.
    connection.register(
        "figures",
        pa.table(
            {
                "workload": pa.array(list(by_workload), pa.string()),
                "figure": pa.array(list(by_workload.values()), pa.float64()),
            }
        ),
    )
    connection.register(
        "usual_of_size",
        pa.table(
            {
                "gpu_model": pa.array([model for model, _ in usual], pa.string()),
                "gpus": pa.array([gpus for _, gpus in usual], pa.int64()),
                "usual": pa.array(list(usual.values()), pa.float64()),
            }
        ),
    )
    return (
        f"SELECT r.*, f.figure, u.usual FROM ({rows}) r LEFT JOIN figures f "
        "ON f.workload = r.workload LEFT JOIN usual_of_size u "
        "ON u.gpu_model = coalesce(r.gpu_model, '') AND u.gpus = r.gpus_requested"
    )


def _read_rows(connection: duckdb.DuckDBPyConnection, cluster: str, names: pa.Table) -> pa.Table:
    """Return the whole rows of these workloads, in their order."""
    page = names.append_column("place", pa.array(np.arange(len(names))))
    # A cursor serves one question: after an error there is nothing to take back.
    connection.register("page", page)
    rows = _select_whole(
        f"(FROM {_FACTS} t SEMI JOIN page USING (workload))",
        f"(FROM {_STATES} t SEMI JOIN page USING (workload))",
    )
    found = fetch_arrow(
        connection,
        f"SELECT r.* FROM ({rows}) r JOIN page USING (workload) ORDER BY place",
        {"cluster": bounded(cluster)},
    )
    connection.unregister("page")
    return fit_schema(found, tables.WORKLOADS)


def _count_workloads(
    connection: duckdb.DuckDBPyConnection, query: WorkloadQuery, known: KnownWorkloads
) -> dict[str, int]:
    choice = _choose_workloads(query, _WHOLE)
    if not choice.is_whole:
        states: Counter[str] = Counter()
        for chunk in _read_chunks(connection, replace(query, limit=1 << 40), known):
            states.update(chunk["state"].to_pylist())
        return dict(sorted(states.items()))
    rows = choice.rows
    if known.are_paired(connection, bounded(query.cluster)):
        named = {*_list_fields(query.where)}
        timed = query.from_ms is not None or query.to_ms is not None
        rows = _PAIRED if timed or named - _OF_STATE else _STATES
    counts = connection.execute(
        f"SELECT state, count(*) FROM ({rows}) WHERE {choice.where} GROUP BY state ORDER BY state",
        choice.values,
    ).fetchall()
    return {str(state): int(count) for state, count in counts}


def add_attributes(table: pa.Table, where: Predicate) -> pa.Table:
    """Return the table with a column for each free attribute that the predicate names."""
    wanted = sorted({f for f in _list_fields(where) if f.startswith(_ATTRIBUTE)})
    if not wanted:
        return table
    parsed = [json.loads(text or "{}") for text in table.column("attributes").to_pylist()]
    for name in wanted:
        values = [attributes.get(name[len(_ATTRIBUTE) :]) for attributes in parsed]
        table = table.append_column(name, pa.array(values, pa.string()))
    return table


def _list_fields(predicate: Predicate) -> Iterator[str]:
    if isinstance(predicate, Comparison):
        yield predicate.field
    elif isinstance(predicate, Not):
        yield from _list_fields(predicate.part)
    elif isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from _list_fields(part)

"""Questions about samples: read the columns that matter once, answer in one pass over them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.metrics import Entity, metric_named
from marey.model.names import bounded
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.store.database.rows import fetch_one_row
from marey.store.samples import kernels
from marey.store.samples.columns import Column, make_column, make_writable
from marey.store.samples.sample_tables import SampleTables

# Rows held in memory for one answer; more are read in several parts, entity by entity.
_ROWS_AT_ONCE = 3_000_000
# Rows of a scan's batch: more are little faster. Those of many metrics are fewer, for they are
# sorted and decoded in memory.
_SCAN_ROWS = 500_000
_SCAN_VALUES = 3_000_000
# Up to so many codes are written into the query itself.
_INLINE_CODES = 2_000

_NO_ROWS: NDArray[Any] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """The samples of some entities: stored values per metric, and which entity each row is of."""

    series: NDArray[np.int32]
    time_ms: NDArray[np.int64]
    codes: NDArray[np.int32]
    values: dict[str, NDArray[Any]]
    # Metrics that have a value in every row.
    full: frozenset[str] = frozenset()


class SampleReader:
    """Reads samples through one connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: SampleTables) -> None:
        self._connection = connection
        self._tables = tables

    def columns(self, selection: Selection) -> list[Column]:
        """Return the columns asked for, or all; refuses what is not in the catalogue."""
        known = self._tables.columns[selection.kind]
        for name in selection.metrics:
            if metric_named(name).entity is not selection.kind:
                raise InvalidInput(f"'{name}' is not a metric of a {selection.kind}.")
        names = dict.fromkeys(selection.metrics) if selection.metrics else known
        return [known.get(name) or make_column(name, -1) for name in names]

    def where(self, selection: Selection) -> str | None:
        """Return the condition for raw samples, of integers only; None where nothing can match."""
        return self._add_name_conditions(
            selection,
            [f"time_ms >= {int(selection.from_ms)}", f"time_ms < {int(selection.to_ms)}"],
        )

    def where_reduced(self, selection: Selection) -> str | None:
        """Return the condition for sketches.

        An hour belongs to a span when one of its samples does.
        """
        from_ms, to_ms = int(selection.from_ms), int(selection.to_ms)
        return self._add_name_conditions(
            selection,
            [
                f"hour_ms > {from_ms - HOUR_MS} AND hour_ms < {to_ms}",
                f"hour_ms + last_at >= {from_ms} AND hour_ms + first_at < {to_ms}",
            ],
        )

    def _add_name_conditions(self, selection: Selection, conditions: list[str]) -> str | None:
        scope = (bounded(selection.cluster), str(selection.kind))
        if selection.workload is not None:
            code = self._tables.workloads.find(scope[:1], selection.workload)
            if code is None:
                return None
            conditions.append(f"workload = {code}")
        if selection.entities:
            found = (self._tables.entities.find(scope, name) for name in selection.entities)
            conditions.append(self._select_codes({code for code in found if code is not None}))
        elif selection.workload is None and self._is_one_of_several(scope):
            conditions.append(self._select_codes(set(self._tables.entities.codes(scope).values())))
        return " AND ".join(conditions)

    def _is_one_of_several(self, scope: tuple[str, ...]) -> bool:
        kind = scope[1]
        return any(s[1] == kind and s != scope for s in self._tables.entities.scopes())

    def _select_codes(self, codes: set[int]) -> str:
        if not codes:
            return "false"
        low, high = min(codes), max(codes)
        span = f"entity BETWEEN {low} AND {high}"
        if high - low + 1 == len(codes):
            return span
        if len(codes) <= _INLINE_CODES:
            return f"{span} AND entity IN ({', '.join(map(str, sorted(codes)))})"
        name = f"chosen_{len(codes)}"
        self._connection.register(name, pa.table({"code": pa.array(sorted(codes), pa.int32())}))
        return f"{span} AND entity IN (SELECT code FROM {name})"

    def parts(self, selection: Selection, *, with_time: bool = True) -> Iterator[Rows]:
        """Yield the rows of a selection, in parts by entity where they are too many for one."""
        where = self.where(selection)
        columns = [c for c in self.columns(selection) if c.code >= 0]
        if where is None or not columns:
            return
        names = "".join(f', "{column.name}"' for column in columns)
        wanted = f"entity{', time_ms' if with_time else ''}{names}"
        tables = _select_tables(selection.kind, wanted, where)
        table = self._connection.sql(f"{tables} LIMIT {_ROWS_AT_ONCE + 1}").to_arrow_table()
        if table.num_rows <= _ROWS_AT_ONCE:
            if table.num_rows:
                yield _make_rows(table, columns)
            return
        del table
        for part in self._split_by_entity(_select_tables(selection.kind, "entity", where)):
            tables = _select_tables(selection.kind, wanted, f"{where}{part}")
            yield _make_rows(self._connection.sql(tables).to_arrow_table(), columns)

    def _split_by_entity(self, tables: str) -> list[str]:
        rows = self._connection.execute(
            f"SELECT entity, count(*) FROM ({tables}) GROUP BY entity ORDER BY entity"
        ).fetchall()
        parts, first, size = [], rows[0][0], 0
        for index, (entity, count) in enumerate(rows):
            if size and size + count > _ROWS_AT_ONCE:
                parts.append(f" AND entity BETWEEN {first} AND {rows[index - 1][0]}")
                first, size = entity, 0
            size += count
        return [*parts, f" AND entity BETWEEN {first} AND {rows[-1][0]}"]

    def names(self, codes: NDArray[np.int32]) -> list[str]:
        """Return the names of entities."""
        return [self._tables.entities.names[code] for code in codes.tolist()]

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """Yield the samples themselves, a slice of time after another."""
        where = self.where(selection)
        columns = self.columns(selection)
        if where is None:
            return
        rows_at_once = _count_rows_at_once(sum(column.code >= 0 for column in columns))
        for span in self._list_slices(selection.kind, where, rows_at_once):
            batch = self._read_batch(selection, columns, f"{where} AND {span}")
            if len(batch):
                yield batch

    def _list_slices(self, kind: Entity, where: str, rows_at_once: int) -> list[str]:
        tables = _select_tables(kind, "time_ms", where)
        rows = self._connection.execute(
            f"SELECT time_ms // {HOUR_MS} AS hour, count(*) FROM ({tables}) "
            "GROUP BY hour ORDER BY hour"
        ).fetchall()
        spans: list[tuple[int, int]] = []
        size = 0
        for hour, count in rows:
            from_ms, to_ms = hour * HOUR_MS, (hour + 1) * HOUR_MS
            if spans and size + count <= rows_at_once:
                spans[-1] = (spans[-1][0], to_ms)
                size += count
            else:
                # Parts of an hour cost no more than the hour, and a fraction of its memory.
                step = _round_to_minutes(HOUR_MS * rows_at_once // max(count, 1))
                edges = [*range(from_ms, to_ms, step), to_ms]
                spans += itertools.pairwise(edges)
                size = count
        return [f"time_ms >= {a} AND time_ms < {b}" for a, b in spans]

    def _read_batch(self, selection: Selection, columns: list[Column], where: str) -> SampleBatch:
        stored = [column for column in columns if column.code >= 0]
        names = "".join(f', "{column.name}"' for column in stored)
        tables = _select_tables(selection.kind, f"workload, entity, time_ms{names}", where)
        some = " OR ".join(f'"{column.name}" IS NOT NULL' for column in stored) or "false"
        table = self._connection.sql(
            f"SELECT * FROM ({tables}) WHERE {some} ORDER BY time_ms, entity"
        ).to_arrow_table()
        entity, entities = self._recode_names(table.column("entity"), self._tables.entities.names)
        workload, workloads = self._recode_names(
            table.column("workload"), self._tables.workloads.names
        )
        none = np.full(table.num_rows, np.nan, np.float32)
        values = {c.name: c.decode(c.stored(table.column(c.name))) for c in stored}
        return SampleBatch(
            time_ms=table.column("time_ms").to_numpy(),
            entity=entity,
            entities=entities,
            columns={column.name: values.get(column.name, none) for column in columns},
            kind=selection.kind,
            cluster=selection.cluster,
            workload=workload,
            workloads=workloads,
        )

    def _recode_names(
        self, column: pa.ChunkedArray, names: dict[int, str]
    ) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        codes = column.to_numpy()
        held = codes >= 0
        top = int(codes.max()) + 1 if len(codes) else 0
        numbers = np.full(len(codes), -1, np.int32)
        series, dense = kernels.make_dense_codes(codes[held].astype(np.int32), max(top, 0))
        numbers[held] = series
        return numbers, tuple(names[code] for code in dense.tolist())

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """Return the newest value of every metric of every entity.

        The time is the newest of them.
        """
        everything = Selection((), since_ms, np.iinfo(np.int64).max, kind=kind, cluster=cluster)
        where, columns = self.where(everything), self.columns(everything)
        names = ", ".join(f'"{c.name}"' for c in columns)
        if not columns or where is None:
            return SampleBatch(
                _NO_ROWS, np.zeros(0, np.int32), (), columns={}, kind=kind, cluster=cluster
            )
        newest = ", ".join(f'arg_max("{c.name}", time_ms) AS "{c.name}"' for c in columns)
        table = self._connection.sql(
            f"SELECT entity, max(time_ms) AS time_ms, arg_max(workload, time_ms) AS workload, "
            f"{newest} FROM ({_select_tables(kind, f'workload, entity, time_ms, {names}', where)}) "
            "GROUP BY entity ORDER BY entity"
        ).to_arrow_table()
        entity, entities = self._recode_names(table.column("entity"), self._tables.entities.names)
        workload, workloads = self._recode_names(
            table.column("workload"), self._tables.workloads.names
        )
        return SampleBatch(
            time_ms=table.column("time_ms").to_numpy(),
            entity=entity,
            entities=entities,
            columns={c.name: c.decode(c.stored(table.column(c.name))) for c in columns},
            kind=kind,
            cluster=cluster,
            workload=workload,
            workloads=workloads,
        )

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Return time of the first and last sample of a cluster."""
        top = np.iinfo(np.int64).max
        times: list[int] = []
        for kind in Entity:
            everything = Selection((), 0, top, kind=kind, cluster=cluster)
            if not self._tables.entities.codes((bounded(cluster), str(kind))):
                continue
            alone = not self._is_one_of_several((bounded(cluster), str(kind)))
            where = "true" if alone else self.where(everything)
            reduced = "true" if alone else self.where_reduced(everything)
            for sql in (
                f"SELECT min(time_ms), max(time_ms) FROM {kind}_hot WHERE {where}",
                f"SELECT min(time_ms), max(time_ms) FROM {kind}_cold WHERE {where}",
                f"SELECT min(hour_ms + first_at), max(hour_ms + last_at) FROM {kind}_sketches "
                f"WHERE {reduced}",
            ):
                times += [t for t in fetch_one_row(self._connection, sql) or () if t is not None]
        return (min(times), max(times)) if times else None


def _count_rows_at_once(metrics: int) -> int:
    return min(_SCAN_ROWS, _SCAN_VALUES // max(metrics, 1))


def _round_to_minutes(duration_ms: int) -> int:
    return min(max(duration_ms // MINUTE_MS, 1) * MINUTE_MS, HOUR_MS)


def _make_rows(table: pa.Table, columns: list[Column]) -> Rows:
    entity = make_writable(table.column("entity"))
    series, codes = kernels.make_dense_codes(entity, int(entity.max()) + 1)
    timed = "time_ms" in table.column_names
    return Rows(
        series,
        make_writable(table.column("time_ms")) if timed else _NO_ROWS,
        codes,
        {c.name: c.stored(table.column(c.name)) for c in columns},
        frozenset(c.name for c in columns if not table.column(c.name).null_count),
    )


def _select_tables(kind: Entity, columns: str, where: str) -> str:
    return (
        f"SELECT {columns} FROM {kind}_cold WHERE {where} "
        f"UNION ALL SELECT {columns} FROM {kind}_hot WHERE {where}"
    )


def check_points(points: int) -> int:
    """Return how many points per series an answer may have: at least the four of one bucket."""
    return max(4, min(int(points), 100_000))


def check_quantiles(quantiles: Sequence[float]) -> NDArray[np.float64]:
    """Return quantiles between 0 and 1."""
    asked = np.array(list(quantiles), np.float64)
    if len(asked) and not bool(((asked >= 0) & (asked <= 1)).all()):
        raise InvalidInput(f"Quantiles are {list(quantiles)}; allowed: 0 to 1.")
    return asked

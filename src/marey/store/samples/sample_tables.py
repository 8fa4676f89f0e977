"""Keeping samples: every tick into the hot table, every finished hour rewritten in order.

A long history comes in order already, or nearly so: it goes past the hot table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.metrics import Entity
from marey.model.names import bounded
from marey.model.samples import NO_WORKLOAD, SampleBatch
from marey.model.times import HOUR_MS
from marey.store.database.dictionary import Dictionary
from marey.store.database.facts import limit_gpu_name
from marey.store.database.rows import fetch_one_row
from marey.store.samples.columns import Column, make_column

# Rows rewritten in one transaction: an hour of 10,000 GPUs and then some, within the memory limit.
REWRITE_ROWS = 3_000_000
# Rows that wait for an insert: a group of ticks is written at once, a long history in parts.
INSERT_ROWS = 250_000
# A batch of so many rows over time is history; a tick of a large cluster is one moment.
HISTORY_ROWS = 100_000
_NEVER = np.iinfo(np.int64).min


class SampleTables:
    """The hot and cold tables of GPUs and of hosts, and the codes of what they name."""

    def __init__(self) -> None:
        self.entities = Dictionary("entities", 2, limit_gpu_name)
        self.workloads = Dictionary("workload_names", 1, bounded)
        self.columns: dict[Entity, dict[str, Column]] = {kind: {} for kind in Entity}
        # By entity code: time of its newest sample, so that what is newer needs no lookup.
        self._newest = np.zeros(0, np.int64)
        self._floor: dict[Entity, int] = {}
        # Time of the newest sample there has been.
        self.newest: dict[Entity, int] = {}
        # Encoded rows of this transaction that are not yet in the hot table.
        self._waiting: dict[Entity, list[pa.Table]] = {}
        # Time of the oldest row in the hot table.
        self.oldest_hot: dict[Entity, int] = {}
        # Before this time, raw samples have been reduced.
        self.reduced_before: dict[Entity, int] = {}

    def load(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read codes and columns, and how far the samples reach."""
        self.entities.load(connection)
        self.workloads.load(connection)
        for code, name, kind, type_, resolution in connection.execute(
            "SELECT code, name, kind, type, resolution FROM metrics"
        ).fetchall():
            self.columns[Entity(kind)][name] = Column(name, code, type_, resolution)
        for kind in Entity:
            newest = [_read_max_time(connection, f"{kind}_{part}") for part in ("hot", "cold")]
            self._floor[kind] = max((t for t in newest if t is not None), default=_NEVER)
            self.newest[kind] = self._floor[kind]
            self.note_reduced(connection, kind)
            self._update_hot_span(connection, kind)

    def _update_hot_span(self, connection: duckdb.DuckDBPyConnection, kind: Entity) -> None:
        row = fetch_one_row(connection, f"SELECT min(time_ms) FROM {kind}_hot")
        oldest = row[0] if row else None
        self.oldest_hot[kind] = np.iinfo(np.int64).max if oldest is None else oldest

    def note_reduced(self, connection: duckdb.DuckDBPyConnection, kind: Entity) -> None:
        """Learn up to which time samples have been reduced."""
        row = fetch_one_row(connection, f"SELECT max(hour_ms) FROM {kind}_sketches")
        newest = row[0] if row else None
        self.reduced_before[kind] = _NEVER if newest is None else newest + HOUR_MS

    def append(
        self,
        connection: duckdb.DuckDBPyConnection,
        batch: SampleBatch,
        restored: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Keep a batch inside the caller's transaction; same time, entity and metric replaces.

        Within ``restored`` spans, raw samples take the place of what they were reduced to.
        """
        is_history = len(batch) >= HISTORY_ROWS and batch.time_ms.min() < batch.time_ms.max()
        for begin in range(0, len(batch), INSERT_ROWS):
            part = batch.rows(slice(begin, begin + INSERT_ROWS)).checked()
            rows = self._make_rows(connection, part, restored)
            if rows.num_rows:
                self._append(connection, part.kind, rows, is_history=is_history)

    def _make_rows(
        self,
        connection: duckdb.DuckDBPyConnection,
        batch: SampleBatch,
        restored: Sequence[tuple[int, int]],
    ) -> pa.Table:
        """Return the rows of a batch that are to be kept, as the tables hold them."""
        batch = _drop_empty_rows(batch)
        rows = _drop_duplicates(self._encode(connection, bounded(batch.cluster), batch))
        for span in restored:
            self._forget_sketches(connection, batch.kind, rows, span)
        return self._drop_reduced(connection, batch.kind, rows)

    def _append(
        self,
        connection: duckdb.DuckDBPyConnection,
        kind: Entity,
        rows: pa.Table,
        *,
        is_history: bool,
    ) -> None:
        late = self._find_late_rows(kind, rows)
        if late.any():
            # What they replace may be among those that wait.
            self.flush(connection)
            fresh = rows.filter(pa.array(~late))
            merged = self._merge(connection, kind, rows.filter(pa.array(late)))
            self._insert(connection, kind, [fresh])
            self._insert(connection, kind, [merged])
        elif is_history:
            _insert_rows(connection, f"{kind}_cold", _sort_for_reading(rows))
        else:
            waiting = self._waiting.setdefault(kind, [])
            waiting.append(rows)
            if sum(table.num_rows for table in waiting) >= INSERT_ROWS:
                self.flush(connection)

    def flush(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Write what ``append`` was given: many batches take hardly longer than one."""
        self.entities.flush(connection)
        self.workloads.flush(connection)
        while self._waiting:
            kind, tables = self._waiting.popitem()
            self._insert(connection, kind, tables)

    def _encode(
        self, connection: duckdb.DuckDBPyConnection, cluster: str, batch: SampleBatch
    ) -> pa.Table:
        for name in batch.columns:
            if name not in self.columns[batch.kind]:
                self._add_column(connection, batch.kind, name)
        scope = (cluster, str(batch.kind))
        entity = _map_codes(self.entities.encode(scope, batch.entities), batch.entity)
        workload = np.full(len(batch), NO_WORKLOAD, np.int32)
        if batch.workload is not None and len(batch.workloads):
            codes = self.workloads.encode((cluster,), batch.workloads)
            held = batch.workload >= 0
            workload[held] = _map_codes(codes, batch.workload[held])
        columns = self.columns[batch.kind]
        arrays: dict[str, Any] = {
            "workload": workload,
            "entity": entity,
            "time_ms": np.ascontiguousarray(batch.time_ms, np.int64),
        }
        arrays |= {name: columns[name].encode(v) for name, v in batch.columns.items()}
        return pa.table(arrays)

    def _add_column(self, connection: duckdb.DuckDBPyConnection, kind: Entity, name: str) -> None:
        code = sum(len(columns) for columns in self.columns.values())
        column = make_column(name, code)
        for table in (f"{kind}_hot", f"{kind}_cold"):
            # The name is one of the catalogue's: `checked` has refused every other.
            connection.execute(f'ALTER TABLE {table} ADD COLUMN "{name}" {column.type}')
        connection.execute(
            "INSERT INTO metrics VALUES (?, ?, ?, ?, ?)",
            [code, name, str(kind), column.type, column.resolution],
        )
        self.columns[kind][name] = column

    def _drop_reduced(
        self, connection: duckdb.DuckDBPyConnection, kind: Entity, rows: pa.Table
    ) -> pa.Table:
        """Leave out what belongs to an hour that was reduced: it might be in there already."""
        times = rows.column("time_ms").to_numpy()
        if not len(times) or times.min() >= self.reduced_before[kind]:
            return rows
        connection.register("incoming", rows)
        kept = connection.sql(
            f"SELECT i.* FROM incoming i ANTI JOIN {kind}_sketches s ON s.entity = i.entity "
            f"AND s.hour_ms = i.time_ms - i.time_ms % {HOUR_MS}"
        ).to_arrow_table()
        connection.unregister("incoming")
        return kept

    def _forget_sketches(
        self,
        connection: duckdb.DuckDBPyConnection,
        kind: Entity,
        rows: pa.Table,
        span: tuple[int, int],
    ) -> None:
        """Forget sketches of hours whose samples all come again: those that lie in the span."""
        times = rows.column("time_ms").to_numpy()
        if not len(times) or times.min() >= self.reduced_before[kind]:
            return
        connection.register("incoming", rows.select(["entity", "time_ms"]))
        connection.execute(
            f"DELETE FROM {kind}_sketches s USING (SELECT DISTINCT entity, "
            f"time_ms - time_ms % {HOUR_MS} AS hour_ms FROM incoming) i "
            "WHERE s.entity = i.entity AND s.hour_ms = i.hour_ms "
            "AND s.hour_ms + s.first_at >= ? AND s.hour_ms + s.last_at <= ?",
            list(span),
        )
        connection.unregister("incoming")
        self.note_reduced(connection, kind)

    def _find_late_rows(self, kind: Entity, rows: pa.Table) -> NDArray[np.bool_]:
        """Return which rows are not newer than what their entity has, and may replace something."""
        entity = rows.column("entity").to_numpy()
        time_ms = rows.column("time_ms").to_numpy()
        top = int(entity.max()) + 1
        if top > len(self._newest):
            grown = np.full(max(top, 2 * len(self._newest)), _NEVER, np.int64)
            grown[: len(self._newest)] = self._newest
            self._newest = grown
        late = (time_ms <= self._newest[entity]) | (time_ms <= self._floor[kind])
        np.maximum.at(self._newest, entity, time_ms)
        self.newest[kind] = max(self.newest[kind], int(time_ms.max()))
        return np.asarray(late)

    def _insert(
        self, connection: duckdb.DuckDBPyConnection, kind: Entity, tables: list[pa.Table]
    ) -> None:
        rows = pa.concat_tables(tables, promote_options="default")
        if not rows.num_rows:
            return
        _insert_rows(connection, f"{kind}_hot", rows)
        oldest = int(pc.min(rows.column("time_ms")).as_py())
        self.oldest_hot[kind] = min(self.oldest_hot[kind], oldest)

    def _merge(
        self, connection: duckdb.DuckDBPyConnection, kind: Entity, rows: pa.Table
    ) -> pa.Table:
        """Take out the rows that these replace, and give back both in one: the newer values win."""
        times = rows.column("time_ms").to_numpy()
        span = [int(times.min()), int(times.max())]
        connection.register("incoming", rows)
        merged = rows
        for table in (f"{kind}_hot", f"{kind}_cold"):
            match = (
                f"FROM {table} o JOIN incoming i ON o.entity = i.entity AND o.time_ms = i.time_ms "
                "WHERE o.time_ms >= ? AND o.time_ms <= ?"
            )
            old = connection.sql(
                f"SELECT o.*, o.rowid AS row {match}", params=span
            ).to_arrow_table()
            if old.num_rows:
                merged = _fill_from_old(merged, old.drop_columns(["row"]))
                connection.register("replaced", old.select(["row"]))
                connection.execute(f"DELETE FROM {table} o USING replaced r WHERE o.rowid = r.row")
                connection.unregister("replaced")
        connection.unregister("incoming")
        return merged

    def rewrite(
        self, connection: duckdb.DuckDBPyConnection, kind: Entity, span: tuple[int, int]
    ) -> None:
        """Move the rows of ``[from, to)`` into the cold table, ordered for reading."""
        names = ", ".join(f'"{n}"' for n in ("workload", "entity", "time_ms", *self.columns[kind]))
        where = "WHERE time_ms >= ? AND time_ms < ?"
        connection.execute(
            f"INSERT INTO {kind}_cold ({names}) SELECT {names} FROM {kind}_hot {where} "
            "ORDER BY workload, entity, time_ms",
            list(span),
        )
        connection.execute(f"DELETE FROM {kind}_hot {where}", list(span))
        self._update_hot_span(connection, kind)


def _insert_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    names = ", ".join(f'"{name}"' for name in rows.column_names)
    connection.register("incoming", rows)
    connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM incoming")
    connection.unregister("incoming")


def _sort_for_reading(rows: pa.Table) -> pa.Table:
    """Return rows in the order of the cold table."""
    keys = [rows.column(name).to_numpy() for name in ("time_ms", "entity", "workload")]
    order = np.lexsort(keys)
    in_order = bool((order[1:] > order[:-1]).all())
    return rows if in_order else rows.take(pa.array(order))


def list_hours_before(
    connection: duckdb.DuckDBPyConnection, table: str, cut_ms: int
) -> list[tuple[int, int]]:
    """Return hours with rows older than ``cut_ms``, joined to spans of about ``REWRITE_ROWS``."""
    rows = connection.execute(
        f"SELECT time_ms // {HOUR_MS} AS hour, count(*) FROM {table} WHERE time_ms < ? "
        "GROUP BY hour ORDER BY hour",
        [cut_ms],
    ).fetchall()
    spans: list[tuple[int, int]] = []
    size = 0
    for hour, count in rows:
        from_ms, to_ms = hour * HOUR_MS, (hour + 1) * HOUR_MS
        if spans and size + count <= REWRITE_ROWS and spans[-1][1] == from_ms:
            spans[-1] = (spans[-1][0], to_ms)
            size += count
        else:
            spans.append((from_ms, to_ms))
            size = count
    return spans


def _read_max_time(connection: duckdb.DuckDBPyConnection, table: str) -> int | None:
    row = fetch_one_row(connection, f"SELECT max(time_ms) FROM {table}")
    return row[0] if row else None


def _map_codes(codes: NDArray[np.int32], indices: NDArray[np.int32]) -> NDArray[np.int32]:
    if len(indices) and (indices.min() < 0 or indices.max() >= len(codes)):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise InvalidInput(f"A batch names entity {wrong}; it carries names 0 to {len(codes) - 1}.")
    return codes[indices]


def _drop_empty_rows(batch: SampleBatch) -> SampleBatch:
    """Leave out rows without a single value, and those before 1970: no clock was set so."""
    kept = batch.time_ms >= 0
    # Few rows lack the first metric, and most of those every other one too.
    columns = iter(batch.columns.values())
    first = next(columns, None)
    empty = np.arange(len(batch)) if first is None else np.flatnonzero(np.isnan(first))
    for values in columns:
        empty = empty[np.isnan(values[empty])]
    kept[empty] = False
    return batch if kept.all() else batch.rows(np.flatnonzero(kept))


def _drop_duplicates(rows: pa.Table) -> pa.Table:
    """Return one row per time and entity; of several, the last value of each metric."""
    entity, time_ms = rows.column("entity").to_numpy(), rows.column("time_ms").to_numpy()
    one_tick = len(time_ms) > 0 and bool((time_ms == time_ms[0]).all())
    if not len(time_ms) or (one_tick and np.bincount(entity).max() <= 1):
        return rows
    steps = np.diff(entity)
    if bool(((steps > 0) | ((steps == 0) & (time_ms[1:] > time_ms[:-1]))).all()):
        return rows
    order = np.lexsort((time_ms, entity))
    starts = np.ones(len(order), bool)
    starts[1:] = np.diff(entity[order]).astype(bool) | np.diff(time_ms[order]).astype(bool)
    if starts.all():
        return rows
    rows = rows.take(order)
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(order)) - 1
    columns = []
    for name in rows.column_names:
        column = rows.column(name).combine_chunks()
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        at = np.maximum.accumulate(np.where(valid, np.arange(len(order)), -1))[last]
        columns.append(column.take(pa.array(at, mask=at < first)))
    return pa.table(columns, names=rows.column_names)


def _fill_from_old(new: pa.Table, old: pa.Table) -> pa.Table:
    """Return rows of ``new`` with the values of ``old`` where they have none."""
    both = pa.concat_tables([old, new], promote_options="default")
    # Later rows win, so the new ones come last.
    return _drop_duplicates(both.select([*new.column_names, *_list_other_columns(old, new)]))


def _list_other_columns(old: pa.Table, new: pa.Table) -> list[str]:
    return [name for name in old.column_names if name not in new.column_names]

"""Rows in and out of tables of the file, by way of Arrow."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa


def delete(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    keys: tuple[str, ...],
    rows: list[tuple[Any, ...]],
) -> None:
    """Take the rows with these keys out of a table."""
    if not rows:
        return
    schema = pa.schema([(key, pa.int64() if key.endswith("_ms") else pa.string()) for key in keys])
    connection.register("removed", make_rows_table(rows, schema))
    match = " AND ".join(f't."{key}" = r."{key}"' for key in keys)
    connection.execute(f"DELETE FROM {table} t USING removed r WHERE {match}")
    connection.unregister("removed")


def insert(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    schema: pa.Schema,
    rows: list[tuple[Any, ...]],
) -> None:
    """Put rows into a table whose columns are in the order of the schema."""
    if not rows:
        return
    connection.register("added", make_rows_table(rows, schema))
    connection.execute(f"INSERT INTO {table} SELECT * FROM added")
    connection.unregister("added")


def make_rows_table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Return rows as an Arrow table."""
    columns = zip(*rows, strict=True)
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def fetch_one_row(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any = None
) -> tuple[Any, ...] | None:
    """Return the only row of an answer.

    Reads to its end, since an open answer holds the connection.
    """
    rows = connection.execute(sql, parameters).fetchall()
    return rows[0] if rows else None

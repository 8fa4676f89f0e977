"""The tables of the file."""

from __future__ import annotations

import duckdb

from marey.model.metrics import Entity
from marey.store.database.facts import KINDS

SCHEMA_VERSION = 1

# Samples: `_hot` takes every tick as it comes; `_cold` holds finished hours and long
# histories, each ordered by (workload, entity, time). A metric is a column, added when it first
# appears.
_SAMPLE_KEYS = "workload INTEGER NOT NULL, entity INTEGER NOT NULL, time_ms BIGINT NOT NULL"

_SKETCHES = """
    hour_ms BIGINT NOT NULL, workload INTEGER NOT NULL, entity INTEGER NOT NULL,
    metric INTEGER NOT NULL, count INTEGER NOT NULL, missing INTEGER NOT NULL,
    least FLOAT, greatest FLOAT, sum DOUBLE, sum_squares DOUBLE, first FLOAT, last FLOAT,
    least_at INTEGER, greatest_at INTEGER, first_at INTEGER, last_at INTEGER, bins BLOB
"""

_OTHERS = """
CREATE TABLE clusters (cluster VARCHAR NOT NULL);
CREATE TABLE entities (code INTEGER NOT NULL, cluster VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL);
CREATE TABLE workload_names (code INTEGER NOT NULL, cluster VARCHAR NOT NULL,
    name VARCHAR NOT NULL);
CREATE TABLE metrics (code INTEGER NOT NULL, name VARCHAR NOT NULL, kind VARCHAR NOT NULL,
    type VARCHAR NOT NULL, resolution DOUBLE NOT NULL);
CREATE TABLE progress (cluster VARCHAR NOT NULL, workload VARCHAR NOT NULL,
    time_ms BIGINT NOT NULL, step BIGINT, throughput DOUBLE, unit VARCHAR, loss DOUBLE);
CREATE TABLE events (cluster VARCHAR NOT NULL, time_ms BIGINT NOT NULL, kind VARCHAR NOT NULL,
    host VARCHAR, gpu VARCHAR, workload VARCHAR, value DOUBLE, text VARCHAR);
CREATE TABLE documents (kind VARCHAR NOT NULL, name VARCHAR NOT NULL, body VARCHAR NOT NULL);
"""


def create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Lay out an empty store, as one step."""
    connection.execute("BEGIN")
    for entity in Entity:
        for table in (f"{entity}_hot", f"{entity}_cold"):
            connection.execute(f"CREATE TABLE {table} ({_SAMPLE_KEYS})")
        connection.execute(f"CREATE TABLE {entity}_sketches ({_SKETCHES})")
    for kind in KINDS:
        columns = ", ".join(f'"{name}" {type_}' for name, type_ in kind.columns)
        connection.execute(
            f"CREATE TABLE {kind.now} (cluster VARCHAR NOT NULL, {columns}, valid_from_ms BIGINT)"
        )
        connection.execute(
            f"CREATE TABLE {kind.past} (cluster VARCHAR NOT NULL, {columns}, "
            "valid_from_ms BIGINT, valid_to_ms BIGINT)"
        )
    for statement in _OTHERS.split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.execute("CREATE TABLE marey_store (schema_version INTEGER NOT NULL)")
    connection.execute("INSERT INTO marey_store VALUES (?)", [SCHEMA_VERSION])
    connection.execute("COMMIT")

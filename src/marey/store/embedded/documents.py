"""JSON documents under a kind and a name: saved views, rules, the app's own state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import duckdb

from marey.model.errors import InvalidInput, NotFound, TooLarge, shown
from marey.model.names import bounded
from marey.store.database.rows import fetch_one_row

DOCUMENT_LIMIT_BYTES = 16 * 1024 * 1024


def put(connection: duckdb.DuckDBPyConnection, kind: str, name: str, document: Any) -> None:
    """Keep a document; one of the same kind and name is replaced."""
    put_all(connection, kind, {name: document})


def put_all(connection: duckdb.DuckDBPyConnection, kind: str, named: Mapping[str, Any]) -> None:
    """Keep documents of a kind by name; those of the same names are replaced."""
    bodies = {bounded(name): _encode_body(kind, name, document) for name, document in named.items()}
    names = list(bodies)
    connection.execute(
        "DELETE FROM documents WHERE kind = ? AND name IN (SELECT unnest(?::VARCHAR[]))",
        [bounded(kind), names],
    )
    connection.execute(
        "INSERT INTO documents SELECT ?, unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
        [bounded(kind), names, list(bodies.values())],
    )


def _encode_body(kind: str, name: str, document: Any) -> str:
    try:
        body = json.dumps(document, ensure_ascii=False, allow_nan=False)
        body.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The {shown(kind)} '{shown(name)}' is not JSON: {error}.") from None
    if len(body) > DOCUMENT_LIMIT_BYTES:
        raise TooLarge(
            f"The {shown(kind)} '{shown(name)}' has {len(body)} characters; at most "
            f"{DOCUMENT_LIMIT_BYTES} are kept."
        )
    return body


def get(connection: duckdb.DuckDBPyConnection, kind: str, name: str) -> Any:
    """Return the document of this name."""
    row = fetch_one_row(
        connection,
        "SELECT body FROM documents WHERE kind = ? AND name = ?",
        [bounded(kind), bounded(name)],
    )
    if row is None:
        raise _make_not_found(kind, name)
    return json.loads(row[0])


def list_documents(connection: duckdb.DuckDBPyConnection, kind: str) -> dict[str, Any]:
    """Return every document of a kind by name."""
    rows = connection.execute(
        "SELECT name, body FROM documents WHERE kind = ? ORDER BY name", [bounded(kind)]
    ).fetchall()
    return {name: json.loads(body) for name, body in rows}


def delete(connection: duckdb.DuckDBPyConnection, kind: str, name: str) -> None:
    """Forget a document."""
    gone = connection.execute(
        "DELETE FROM documents WHERE kind = ? AND name = ? RETURNING name",
        [bounded(kind), bounded(name)],
    ).fetchall()
    if not gone:
        raise _make_not_found(kind, name)


def _make_not_found(kind: str, name: str) -> NotFound:
    return NotFound(f"There is no {shown(kind)} named '{shown(name)}'.")

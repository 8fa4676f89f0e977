"""What a client of the live connection does with a message: shared tables, then its own rows."""

from __future__ import annotations

from typing import Any

import msgspec

from marey.live.wire_format import read_table, split_message


def read_tables(data: bytes) -> dict[str, list[dict[str, Any]]]:
    """The units and workloads that a message tells, with one's own in place of masked ones."""
    _, parts = split_message(data)
    tables = {
        name: read_table(parts[name]).to_pylist() if name in parts else []
        for name in ("units", "workloads")
    }
    if "own" in parts:
        put_own(tables, msgspec.json.decode(parts["own"]))
    return tables


def put_own(tables: dict[str, list[dict[str, Any]]], own: dict[str, Any]) -> None:
    """Put a scope's own rows in the place of the masked ones."""
    columns = own["workloads"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if own["at"]:
        for at, row in zip(own["at"], rows, strict=True):
            tables["workloads"][at] = row
    else:
        tables["workloads"] += rows
    for unit in tables["units"]:
        unit["workloads"] = own["holders"].get(str(unit["row"]), unit["workloads"])

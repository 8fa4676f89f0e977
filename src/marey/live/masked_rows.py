"""A table of masked workloads, made once, into which each scope's own rows are put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from marey.live.frames import WORKLOADS_SCHEMA, LiveWorkload, build_column, list_columns


class MaskedRows:
    """Workloads as somebody sees them who knows nobody; nothing real is ever kept in here."""

    def __init__(self, masked: Sequence[LiveWorkload], positions: Mapping[str, int]) -> None:
        self._values = list_columns(masked, positions)
        self._arrays = {
            entry.name: build_column(self._values[entry.name], entry.type)
            for entry in WORKLOADS_SCHEMA
        }

    def put_in(self, own: Mapping[int, LiveWorkload], positions: Mapping[str, int]) -> pa.Table:
        """Return the table with these rows instead of the masked ones."""
        values = list_columns(list(own.values()), positions)
        arrays = [
            self._replace(entry, tuple(own), values[entry.name]) for entry in WORKLOADS_SCHEMA
        ]
        return pa.Table.from_arrays(arrays, schema=WORKLOADS_SCHEMA)

    def list_ids(self, own: Mapping[int, LiveWorkload]) -> tuple[str, ...]:
        """Return the ids, with those of these rows instead of the masked ones."""
        ids: list[str] = self._values["id"].copy()
        for row, live in own.items():
            ids[row] = live.workload.workload
        return tuple(ids)

    def _replace(self, entry: pa.Field, rows: Sequence[int], own: Sequence[Any]) -> pa.Array:
        masked = self._values[entry.name]
        if all(masked[row] == value for row, value in zip(rows, own, strict=True)):
            return self._arrays[entry.name]
        mixed = masked.copy()
        for row, value in zip(rows, own, strict=True):
            mixed[row] = value
        return build_column(mixed, entry.type)

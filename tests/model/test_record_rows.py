"""The rows of the record tables as types: the columns of their schemas, no others."""

from __future__ import annotations

from typing import get_type_hints

import pyarrow as pa
import pytest

from marey.model import tables

ROWS = {
    tables.HostRow: tables.HOSTS,
    tables.GpuRow: tables.GPUS,
    tables.PartitionRow: tables.PARTITIONS,
    tables.WorkloadRow: tables.WORKLOADS,
    tables.StateRow: tables.STATES,
    tables.AllocationRow: tables.ALLOCATIONS,
    tables.ProgressRow: tables.PROGRESS,
    tables.EventRow: tables.EVENTS,
}
PLAIN = {str: pa.types.is_string, int: pa.types.is_integer, float: pa.types.is_floating}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_row_has_the_columns_of_its_schema_with_their_kinds(row: type) -> None:
    fields = get_type_hints(row)
    assert list(fields) == ROWS[row].names
    for name, kind in fields.items():
        plain = next((k for k in PLAIN if kind in (k, k | None)), None)
        assert plain is None or PLAIN[plain](ROWS[row].field(name).type), name


def test_a_record_has_every_column_of_a_workload_and_its_intervals() -> None:
    assert list(get_type_hints(tables.WorkloadRecord)) == [
        *tables.WORKLOADS.names,
        "states",
        "allocations",
    ]

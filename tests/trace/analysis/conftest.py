"""What the tests of the analysis share."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from marey.trace.run.trace_run import TraceRun


@pytest.fixture(scope="session")
def shifted() -> Callable[[TraceRun, int, int], TraceRun]:
    """The same run with one rank's clock moved by so many nanoseconds."""

    def shift(run: TraceRun, rank: int, by_ns: int) -> TraceRun:
        tables = {r: run.events(r) for r in run.ranks}
        table = tables[rank]
        at = table.schema.get_field_index("start_ns")
        moved = pa.array(table["start_ns"].to_numpy() + by_ns)
        tables[rank] = table.set_column(at, table.schema.field(at), moved)
        return TraceRun.from_tables(tables, {r: run.info(r) for r in run.ranks}, run.symbols)

    return shift

"""Strategies that a run states itself: how an operator's inputs are cut, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa

from marey.trace.views.flow.nodes import Sharding

STRATEGIES = pa.schema(
    [
        pa.field("rank", pa.int32()),
        # Row of the rank's event table.
        pa.field("row", pa.int64()),
        # Slices of each dimension of each input, as JSON: [[2, 1], [1, 1]].
        pa.field("inputs", pa.string()),
    ]
)
Slices = tuple[tuple[int, ...], ...]


def tabulate_strategies(rows: Iterable[tuple[int, int, Slices]]) -> pa.Table:
    """Return strategies of rank and row as a table."""
    listed = [
        {"rank": rank, "row": row, "inputs": msgspec.json.encode(inputs).decode()}
        for rank, row, inputs in rows
    ]
    return pa.Table.from_pylist(listed, schema=STRATEGIES)


def read_strategies(table: pa.Table) -> Mapping[tuple[int, int], Sharding]:
    """Return rank and row → how the operator is cut."""
    columns = (table[name].to_pylist() for name in STRATEGIES.names)
    return {
        (rank, row): state_sharding(msgspec.json.decode(inputs, type=Slices))
        for rank, row, inputs in zip(*columns, strict=True)
    }


def state_sharding(inputs: Slices) -> Sharding:
    """Return a stated strategy: the first input that is cut stands for the operator.

    >>> state_sharding(((1, 1), (1, 4))).slices
    (1, 4)
    """
    cut = next((one for one in inputs if any(n > 1 for n in one)), inputs[0])
    written = ", ".join(f"({', '.join(map(str, one))})" for one in inputs)
    return Sharding("exact", cut, f"stated by the run for its inputs: {written}", inputs)

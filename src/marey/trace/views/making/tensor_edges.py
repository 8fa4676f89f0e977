"""Execution traces beside the profiles of a run, joined to its events by their record ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marey.model.errors import NotFound
from marey.trace.readers import reader_for
from marey.trace.readers.execution_edges import TensorFlow, read_tensor_flow
from marey.trace.run.files import find_files, own_parts, rank_in_name
from marey.trace.run.trace_run import TraceRun
from marey.trace.views.making.rank_intervals import find_roots

TENSOR_EDGES = pa.schema(
    [
        pa.field("rank", pa.int32()),
        # Rows of the rank's event table: outermost operators.
        pa.field("source", pa.int64()),
        pa.field("target", pa.int64()),
    ]
)
_COLUMNS = ["record_id", "kind", "device", "stream", "start_ns", "dur_ns"]


@dataclass(frozen=True)
class TensorJoin:
    """The edges of one rank, and how many operators of its execution trace were found."""

    rank: int
    edges: pa.Table
    operators: int
    joined: int
    tensor_inputs: int
    known_inputs: int


def join_execution_traces(run: TraceRun, paths: Iterable[str | Path]) -> list[TensorJoin]:
    """Return the tensor edges of every rank that has an execution trace among these files."""
    try:
        files = find_files(list(paths))
    except NotFound:
        return []
    found = []
    # A run may be nothing but execution traces.
    ranks = {run.info(rank).source: rank for rank in run.ranks}
    for path, own in zip(files, own_parts(files), strict=True):
        rank = ranks.get(path.name, rank_in_name(own))
        reader = reader_for(path)
        if reader is None or reader.NAME != "chakra" or rank not in run.ranks or rank is None:
            continue
        flow = read_tensor_flow(path)
        if flow is not None:
            found.append(join_rank(run, rank, flow))
    return found


def write_tensor_edges(joins: list[TensorJoin], folder: Path) -> None:
    """Keep the edges of all ranks beside the other tables of a run, if there are any."""
    if joins:
        pq.write_table(pa.concat_tables([j.edges for j in joins]), folder / "tensors.parquet")


def join_rank(run: TraceRun, rank: int, flow: TensorFlow) -> TensorJoin:
    """Return the edges of one rank between outermost operators."""
    events = run.events(rank, _COLUMNS)
    record = events["record_id"].to_numpy()
    rows = np.flatnonzero(record >= 0)
    row_of = dict(zip(record[rows].tolist(), rows.tolist(), strict=True))
    roots = find_roots(events)
    pairs = {
        (int(roots[row_of[a]]), int(roots[row_of[b]]))
        for a, b in flow.pairs
        if a in row_of and b in row_of
    }
    kept = sorted(pair for pair in pairs if pair[0] != pair[1])
    edges = pa.table(
        [
            pa.array(np.full(len(kept), rank, np.int32)),
            pa.array([a for a, _ in kept], pa.int64()),
            pa.array([b for _, b in kept], pa.int64()),
        ],
        schema=TENSOR_EDGES,
    )
    return TensorJoin(
        rank=rank,
        edges=edges,
        operators=len(flow.record_ids),
        joined=sum(record in row_of for record in flow.record_ids),
        tensor_inputs=flow.tensor_inputs,
        known_inputs=flow.known_inputs,
    )

"""Runs recorded as op tables: their graph and layout come from what the table states."""

from __future__ import annotations

import numpy as np

from marey.trace.graph.cost_graph import OperationGraph
from marey.trace.graph.operation_tables import (
    COMPUTE_TYPES,
    OPERATION_TYPES,
    Operations,
    operation_graph,
)
from marey.trace.results import Dimension, Parallelism
from marey.trace.run.trace_run import TraceRun

FRAMEWORK = "optable"
FORWARD_TYPE, BACKWARD_TYPE = COMPUTE_TYPES


def is_operation_run(run: TraceRun) -> bool:
    """Return whether every rank was recorded as an op table whose operations are all known.

    A table in words of its own, or without places, is a run like any other.
    """
    infos = [run.info(rank) for rank in run.ranks]
    if not all(i.framework == FRAMEWORK and {"dp", "pp"} <= i.coordinates.keys() for i in infos):
        return False
    found = operations_of(run)
    computing = [n for n, name in enumerate(found.type_names) if name in COMPUTE_TYPES]
    ordered = bool((found.sequence[np.isin(found.type, computing)] >= 0).all())
    known = set(found.type_names) <= set(OPERATION_TYPES)
    return known and ordered and FORWARD_TYPE in found.type_names


def operation_graph_of(run: TraceRun) -> OperationGraph:
    """Return the dependency graph of an op-table run."""
    return operation_graph(operations_of(run))


def operations_of(run: TraceRun) -> Operations:
    """Return the rows of every rank as one op-level table."""
    parts: list[dict[str, np.ndarray]] = []
    for rank in run.ranks:
        table = run.events(rank, ["start_ns", "dur_ns", "name", "step", "sequence"])
        columns = {name: table[name].to_numpy().astype(np.int64) for name in table.column_names}
        place = run.info(rank).coordinates
        for name, value in (("rank", rank), ("replica", place["dp"]), ("stage", place["pp"])):
            columns[name] = np.full(table.num_rows, value, np.int64)
        parts.append(columns)
    joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    codes, kind = np.unique(joined["name"], return_inverse=True)
    return Operations(
        rank=joined["rank"],
        replica=joined["replica"],
        stage=joined["stage"],
        step=joined["step"],
        type=kind.reshape(-1),
        sequence=joined["sequence"],
        start_ns=joined["start_ns"],
        dur_ns=joined["dur_ns"],
        type_names=tuple(run.symbols.text(int(code)) for code in codes),
    )


def operation_parallelism(run: TraceRun) -> Parallelism:
    """Return the layout that the table itself states."""
    stages = {rank: run.info(rank).coordinates["pp"] for rank in run.ranks}
    replicas = {rank: run.info(rank).coordinates["dp"] for rank in run.ranks}
    operations = operations_of(run)
    forward = operations.type_names.index(FORWARD_TYPE)
    mine = operations.type == forward
    batches = int(operations.sequence[mine].max(initial=-1)) + 1
    dimensions = [
        _dimension("data", replicas, stages),
        _dimension("pipeline", stages, replicas),
    ]
    deep = max(stages.values()) > 0
    return Parallelism(
        dimensions=tuple(d for d in dimensions if d.size > 1),
        stages=stages,
        replicas=replicas,
        micro_batches=batches if deep else 0,
        schedule=_schedule(operations) if deep else "none",
        confidence=0.99,
    )


def _dimension(kind: str, along: dict[int, int], across: dict[int, int]) -> Dimension:
    groups: dict[int, list[int]] = {}
    for rank in sorted(along, key=lambda r: along[r]):
        groups.setdefault(across[rank], []).append(rank)
    members = tuple(tuple(group) for _, group in sorted(groups.items()))
    return Dimension(kind, max(along.values()) + 1, members, 0.99, "stated in the table")


def _schedule(operations: Operations) -> str:
    """Tell the schedule: 1F1B starts backward before its last forward on some stage
    but the first.
    """
    names = operations.type_names
    if not set(COMPUTE_TYPES) <= set(names):
        return "none"
    step = operations.step == operations.step.min()
    rank = operations.rank == operations.rank.max()
    start = operations.start_ns
    forward = start[step & rank & (operations.type == names.index(FORWARD_TYPE))]
    backward = start[step & rank & (operations.type == names.index(BACKWARD_TYPE))]
    if not len(forward) or not len(backward):
        return "unknown"
    return "1f1b" if backward.min() < forward.max() else "gpipe"

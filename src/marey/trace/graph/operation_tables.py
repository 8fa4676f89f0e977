"""The dependency graph of an op-level table: one row per forward, backward, transfer of a step.

The dependencies are those of a pipeline-parallel step as "Understanding Stragglers in Large Model
Training Using What-if Analysis" (OSDI 2025) models it. Steps and replicas share one shape, which is
read from the first replica's first step; each then gets its own nodes and costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from marey.model.errors import InvalidInput
from marey.trace.graph.cost_graph import (
    Blocks,
    Delay,
    Flags,
    Floats,
    GraphBuilder,
    Ints,
    NodeKind,
    OperationGraph,
)

FORWARD, BACKWARD = "forward", "backward"
COMPUTE_TYPES = ("forward-compute", "backward-compute")
P2P_TYPES = ("forward-send", "forward-recv", "backward-send", "backward-recv")
GATHER, SCATTER = "params-all-gather", "grads-reduce-scatter"
EMBEDDING, LAYER_NORM = "embedding-grads-all-reduce", "layernorm-grads-all-reduce"
CLIP, OPTIMIZER, COLLECTOR = "optimizer-clip-main-grad", "optimizer", "gc"
# What meets other ranks; the layer-norm all-reduce stays within a tensor group that the table does
# not show, so it is replayed like compute but judged like a transfer.
MEETING_TYPES = (*P2P_TYPES, GATHER, SCATTER, EMBEDDING, CLIP)
TRANSFER_TYPES = (*MEETING_TYPES, LAYER_NORM)
OPERATION_TYPES = (*COMPUTE_TYPES, *TRANSFER_TYPES, OPTIMIZER, COLLECTOR)
# The names that S_t reports: sends and receives of one direction are one link.
REPORTED = {
    "forward-send": "forward-pp-comm",
    "forward-recv": "forward-pp-comm",
    "backward-send": "backward-pp-comm",
    "backward-recv": "backward-pp-comm",
}
PEER_TYPE = {
    "forward-send": ("forward-recv", 1),
    "forward-recv": ("forward-send", -1),
    "backward-send": ("backward-recv", -1),
    "backward-recv": ("backward-send", 1),
}
# A send that ended before its compute, or a receive posted after the last one, moved nothing.
SLACK_NS = 50_000
# Transfers that end long before the last arrival come from clock errors and count as zero.
LARGEST_CLOCK_ERROR_NS = 10_000_000


@dataclass(frozen=True)
class Operations:
    """An op-level table in columns; ``type`` indexes ``type_names``."""

    rank: Ints
    replica: Ints
    stage: Ints
    step: Ints
    type: Ints
    sequence: Ints
    start_ns: Ints
    dur_ns: Ints
    type_names: tuple[str, ...]


Key = tuple[str, int, int]  # type, sequence, stage


@dataclass(frozen=True)
class _Shape:
    """One replica's step: who waits for whom, and who meets."""

    waits: list[tuple[Key, Key]]
    pairs: list[tuple[Key, Key]]


def operation_graph(table: Operations) -> OperationGraph:
    """Return the graph of an op-level table, each step on its own."""
    unknown = sorted(set(table.type_names) - set(OPERATION_TYPES))
    if unknown:
        raise InvalidInput(f"Unknown operation type {unknown[0]!r}; known: {OPERATION_TYPES}.")
    shape = _read_shape(table)
    rows = _Rows(table)
    meets = np.isin(table.type, _codes(table, MEETING_TYPES))
    meeting, start_max = _meetings(table, shape, rows, meets)
    return _assemble(table, shape=shape, rows=rows, meets=meets, meeting=meeting, last=start_max)


def _code(table: Operations, name: str) -> int:
    return table.type_names.index(name) if name in table.type_names else -1


class _Rows:
    """Which row of a table holds an operation in each (step, replica): one matrix of row numbers.

    Operations are (type, sequence, stage); a cell is -1 where a step of a replica lacks one.
    """

    def __init__(self, table: Operations) -> None:
        kinds = np.column_stack([table.type, table.sequence, table.stage])
        operations, kind_of = np.unique(kinds, axis=0, return_inverse=True)
        where = np.column_stack([table.step, table.replica])
        places, place_of = np.unique(where, axis=0, return_inverse=True)
        self.cells = np.full((len(operations), len(places)), -1, np.int64)
        self.cells[kind_of.reshape(-1), place_of.reshape(-1)] = np.arange(len(table.rank))
        self.number: dict[Key, int] = {
            (table.type_names[kind], seq, stage): n
            for n, (kind, seq, stage) in enumerate(operations.tolist())
        }

    def of(self, key: Key) -> Ints:
        """Return the rows of an operation, one per (step, replica), -1 where there is none."""
        found: Ints = self.cells[self.number[key]]
        return found

    def both(self, pairs: list[tuple[Key, Key]]) -> tuple[Ints, Ints]:
        """Return the rows of both sides of every pair, where a step of a replica has the two."""
        known = [(self.number[a], self.number[b]) for a, b in pairs]
        if not known:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        sides = np.array(known, np.int64)
        before, after = self.cells[sides[:, 0]].reshape(-1), self.cells[sides[:, 1]].reshape(-1)
        there = (before >= 0) & (after >= 0)
        return before[there], after[there]


def _read_shape(table: Operations) -> _Shape:
    replica, step = table.replica.min(), table.step.min()
    mine = np.flatnonzero((table.replica == replica) & (table.step == step))
    mine = mine[np.lexsort((table.type[mine], table.sequence[mine], table.start_ns[mine]))]
    last_stage = int(table.stage.max())
    waits: list[tuple[Key, Key]] = []
    valid: dict[tuple[str, int], list[Key]] = {}
    for stage in range(last_stage + 1):
        chosen = mine[table.stage[mine] == stage]
        waits += _StageShape(table, chosen, stage, last_stage).waits(valid)
    return _Shape(waits, _pairs(valid))


def _pairs(valid: dict[tuple[str, int], list[Key]]) -> list[tuple[Key, Key]]:
    """Return the n-th send that moved something meets the n-th such receive of the next stage."""
    pairs = []
    for (kind, stage), sends in valid.items():
        if kind.endswith("-send"):
            other, ahead = PEER_TYPE[kind]
            pairs += list(zip(sends, valid.get((other, stage + ahead), []), strict=False))
    return pairs


class _StageShape:
    """The dependencies within one stage of the step that gives the shape."""

    def __init__(self, table: Operations, rows: Ints, stage: int, last_stage: int) -> None:
        self.stage, self.last_stage = stage, last_stage
        self.start: dict[Key, int] = {}
        self.end: dict[Key, int] = {}
        for row in rows.tolist():
            key = (table.type_names[table.type[row]], int(table.sequence[row]), stage)
            self.start[key] = int(table.start_ns[row])
            self.end[key] = self.start[key] + int(table.dur_ns[row])

    def of(self, *types: str) -> list[Key]:
        """Return the operations of these types in order of start."""
        return [key for key in self.start if key[0] in types]

    def waits(self, valid: dict[tuple[str, int], list[Key]]) -> list[tuple[Key, Key]]:
        """Return every (before, after) of this stage; exchanges that moved data go to ``valid``."""
        compute = self.of(*COMPUTE_TYPES)
        waits = _chain(compute)
        for kind in P2P_TYPES:
            waits += _chain(self.of(kind))
            waits += self._exchange(kind, valid)
        waits += self._first_backward(compute)
        waits += _chain(self.of(GATHER, SCATTER))
        waits += self._gather()
        return waits + self._after_compute(compute)

    def _exchange(
        self, kind: str, valid: dict[tuple[str, int], list[Key]]
    ) -> list[tuple[Key, Key]]:
        direction, way = kind.split("-")
        computes = self.of(f"{direction}-compute")
        if not computes:
            return []
        last_start = max(self.start[c] for c in computes)
        first_end = min(self.end[c] for c in computes)
        moved = [
            key
            for key in self.of(kind)
            if (way == "recv" and self.start[key] <= last_start + SLACK_NS)
            or (way == "send" and self.end[key] >= first_end - SLACK_NS)
        ]
        ahead = PEER_TYPE[kind][1]
        if 0 <= self.stage + ahead <= self.last_stage:
            valid[(kind, self.stage)] = moved
        waits: list[tuple[Key, Key]] = []
        for at, (key, compute) in enumerate(zip(moved, computes, strict=False)):
            if way == "send":
                waits.append((compute, key))
            else:
                waits.append((key, compute))
                waits += [(computes[at - 1], key)] if at else []
        return waits

    def _first_backward(self, compute: list[Key]) -> list[tuple[Key, Key]]:
        """Return the passes; the first backward exchange is posted one forward before its pass."""
        first = next((i for i, key in enumerate(compute) if key[0] == "backward-compute"), 0)
        if first < 2:
            return []
        kinds = ("backward-recv", "backward-send")
        return [
            (compute[first - 2], (kind, 0, self.stage))
            for kind in kinds
            if (kind, 0, self.stage) in self.start
        ]

    def _gather(self) -> list[tuple[Key, Key]]:
        gathers, forwards = self.of(GATHER), self.of("forward-compute")
        return [(gathers[-1], forwards[0])] if gathers and forwards else []

    def _after_compute(self, compute: list[Key]) -> list[tuple[Key, Key]]:
        last = max(compute, key=lambda key: self.end[key])
        tail = [key for kind in (COLLECTOR, LAYER_NORM, EMBEDDING) for key in self.of(kind)]
        tail += [key for kind in (SCATTER, CLIP, OPTIMIZER) for key in self.of(kind)]
        return _chain([last, *tail])


def _chain(keys: list[Key]) -> list[tuple[Key, Key]]:
    return list(pairwise(keys))


def _meetings(table: Operations, shape: _Shape, rows: _Rows, meets: Flags) -> tuple[Ints, Floats]:
    """Return the meeting that each row takes part in (-1: none), and the last arrival at it."""
    meeting = np.full(len(table.rank), -1, np.int64)
    sends, receives = rows.both(shape.pairs)
    meeting[sends] = meeting[receives] = np.arange(len(sends))
    collective = np.flatnonzero(meets & ~np.isin(table.type, _codes(table, P2P_TYPES)))
    groups, place = np.unique(_together(table, collective), axis=0, return_inverse=True)
    meeting[collective] = len(sends) + place.reshape(-1)
    alone = np.flatnonzero(meets & (meeting < 0))
    meeting[alone] = len(sends) + len(groups) + np.arange(len(alone))
    last = np.zeros(int(meeting.max(initial=-1)) + 1)
    joined = meeting >= 0
    np.maximum.at(last, meeting[joined], table.start_ns[joined].astype(np.float64))
    return meeting, last


def _codes(table: Operations, names: Iterable[str]) -> list[int]:
    return [_code(table, name) for name in names]


def _together(table: Operations, rows: Ints) -> Ints:
    """Tell which meet: gradients across replicas, embeddings across stages, clipping across all."""
    kind = table.type[rows]
    across_stages = kind == _code(table, EMBEDDING)
    across_all = kind == _code(table, CLIP)
    shared = np.where(across_stages, table.replica[rows], table.stage[rows])
    keys: Ints = np.column_stack(
        [kind, table.sequence[rows], table.step[rows], np.where(across_all, -1, shared)]
    )
    return keys


def _assemble(
    table: Operations,
    *,
    shape: _Shape,
    rows: _Rows,
    meets: Flags,
    meeting: Ints,
    last: Floats,
) -> OperationGraph:
    builder = GraphBuilder()
    dur = table.dur_ns.astype(np.float64)
    end = table.start_ns + dur
    transfer = np.where(meets, end - np.append(last, 0.0)[meeting], dur)
    transfer[meets & (transfer <= -LARGEST_CLOCK_ERROR_NS)] = 0.0
    every = np.arange(len(table.rank), dtype=np.int64)
    first = np.empty(len(every), np.int64)
    final = np.empty(len(every), np.int64)
    for kind, rows_of in ((NodeKind.COMPUTE, every[~meets]), (NodeKind.TRANSFER, every[meets])):
        final[rows_of] = builder.add(
            kind,
            rank=table.rank[rows_of],
            step=table.step[rows_of],
            start_ns=table.start_ns[rows_of],
            work_ns=transfer[rows_of],
            block=rows_of,
            item=meeting[rows_of],
        )
    first[:] = final
    _add_meetings(
        builder, table=table, rows=every[meets], meeting=meeting, first=first, final=final
    )
    before, after = rows.both(shape.waits)
    builder.join(final[before], first[after])
    graph = builder.build(_blocks(table), chained=False)
    return _with_delays(graph, table, first, final)


def _add_meetings(
    builder: GraphBuilder,
    *,
    table: Operations,
    rows: Ints,
    meeting: Ints,
    first: Ints,
    final: Ints,
) -> None:
    """Put an arrival before each transfer, and one meeting between the two."""
    arrivals = builder.add(
        NodeKind.ARRIVAL,
        rank=table.rank[rows],
        step=table.step[rows],
        start_ns=table.start_ns[rows],
        item=meeting[rows],
    )
    numbers, at = np.unique(meeting[rows], return_inverse=True)
    one = np.zeros(len(numbers), np.int64)
    one[at] = rows
    nodes = builder.add(
        NodeKind.MEETING,
        rank=np.full(len(numbers), -1),
        step=table.step[one],
        start_ns=table.start_ns[one],
        item=numbers,
    )
    builder.join(arrivals, nodes[at])
    builder.join(nodes[at], final[rows])
    first[rows] = arrivals


def _blocks(table: Operations) -> Blocks:
    return Blocks(
        type=table.type,
        rank=table.rank,
        step=table.step,
        micro_batch=table.sequence,
        type_names=table.type_names,
        by_median=np.array([name in TRANSFER_TYPES for name in table.type_names]),
    )


def _with_delays(
    graph: OperationGraph, table: Operations, first: Ints, final: Ints
) -> OperationGraph:
    """Return the graph with each operation's recorded wait beyond its dependencies as a launch
    delay.
    """
    steps, place = np.unique(table.step, return_inverse=True)
    origin = np.full(len(steps), np.inf)
    np.minimum.at(origin, place, table.start_ns.astype(np.float64))
    end = np.zeros(graph.dag.count)
    end[final] = (table.start_ns + table.dur_ns) - origin[place]
    ready = np.zeros(graph.dag.count)
    targets = np.repeat(np.arange(graph.dag.count), np.diff(graph.dag.first))
    np.maximum.at(ready, targets, end[graph.dag.predecessors])
    delay = graph.delay_ns.copy()
    gap = (table.start_ns - origin[place]) - ready[first]
    delay[first, Delay.OTHER] = np.where(gap <= -LARGEST_CLOCK_ERROR_NS, 0.0, gap)
    return replace(graph, delay_ns=delay)

"""The run as a graph of costs: compute, arrivals, meetings and transfers of every rank.

A node ends ``delay + work`` after the last of the nodes it depends on. A communication is three
kinds of node: each rank's *arrival*, one *meeting* that follows every arrival, and each rank's
*transfer* after the meeting. With the recorded costs the graph reproduces the recorded times; with
other costs it says what would have happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from marey.stats.topological import Dag, build_dag, finish_times

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class NodeKind(IntEnum):
    """What a node stands for."""

    COMPUTE = 0
    ARRIVAL = 1
    MEETING = 2
    TRANSFER = 3


class Delay(IntEnum):
    """Why a device had nothing to run although its predecessors were done."""

    INPUT = 0
    HOST = 1
    START = 2
    OTHER = 3


DELAY_NAMES = ("input", "host", "start", "other")


@dataclass(frozen=True)
class Blocks:
    """Work that is compared as one: the forward pass of a micro-batch, or a transfer."""

    type: Ints
    rank: Ints
    step: Ints
    micro_batch: Ints
    type_names: tuple[str, ...]
    # Transfers are judged by their median: one stalled exchange must not raise what is typical.
    by_median: Flags


@dataclass(frozen=True)
class OperationGraph:
    """Nodes in columns; ``block`` is -1 for arrivals and meetings, ``item`` for compute."""

    dag: Dag
    kind: Ints
    rank: Ints
    step: Ints
    block: Ints
    item: Ints
    start_ns: Ints
    work_ns: Floats
    delay_ns: Floats  # nodes × Delay
    blocks: Blocks
    # Whether a step follows the one before it, or each step was recorded alone.
    chained: bool

    @property
    def idle_ns(self) -> Floats:
        """The delays in which a device had nothing to run.

        An op table does not show everything its operations waited for, so its delays may hide
        other operations; they are told (``delay_ns``) but not judged.
        """
        return self.delay_ns if self.chained else np.zeros_like(self.delay_ns)

    def finish(self, work_ns: Floats, delay_ns: Floats | None = None) -> Floats:
        """Return when every node would finish with this work.

        Launch delays are removed unless given.
        """
        cost = work_ns if delay_ns is None else work_ns + delay_ns.sum(axis=1)
        return finish_times(self.dag, cost)

    def step_times(self, finish: Floats) -> Floats:
        """Return the time each step takes, in order of step, given when its nodes finish."""
        order, cuts = self._by_step
        ends = np.maximum.reduceat(finish[order], cuts) if len(cuts) else np.zeros(0)
        ends = np.maximum(ends, 0.0)
        if not self.chained:
            return ends
        return np.diff(np.maximum.accumulate(ends), prepend=0.0)

    @cached_property
    def _by_step(self) -> tuple[Ints, Ints]:
        """The nodes in order of step, and where each step begins among them."""
        order = np.argsort(self.step, kind="stable")
        _, cuts = np.unique(self.step[order], return_index=True)
        return order, cuts.astype(np.int64)

    def step_numbers(self) -> Ints:
        """Return the step numbers that ``step_times`` speaks of."""
        return np.unique(self.step)


def typical_work(graph: OperationGraph) -> Floats:
    """Return each node's work if its block took what is typical of its type over all ranks and
    steps.
    """
    blocks = graph.blocks
    owned = graph.block >= 0
    of = graph.block[owned]
    count = len(blocks.type)
    total: Floats = np.bincount(of, graph.work_ns[owned], count).astype(np.float64)
    nodes = np.maximum(np.bincount(of, minlength=count), 1)
    typical = _typical(total, blocks)[blocks.type]
    work = graph.work_ns.copy()
    scale = np.divide(typical, total, out=np.zeros(count), where=total > 0)
    alone = (nodes == 1) | (total <= 0)
    work[owned] = np.where(alone[of], (typical / nodes)[of], work[owned] * scale[of])
    return work


def _typical(total: Floats, blocks: Blocks) -> Floats:
    kinds = len(blocks.type_names)
    order = np.argsort(blocks.type, kind="stable")
    cuts = np.searchsorted(blocks.type[order], np.arange(kinds + 1))
    typical = np.zeros(kinds)
    for kind in range(kinds):
        values = total[order[cuts[kind] : cuts[kind + 1]]]
        if len(values):
            typical[kind] = np.median(values) if blocks.by_median[kind] else values.mean()
    return typical


class GraphBuilder:
    """Collects nodes and edges as arrays and turns them into an ``OperationGraph`` once."""

    def __init__(self) -> None:
        self.count = 0
        self._nodes: list[tuple[Ints, ...]] = []
        self._costs: list[tuple[Floats, Floats]] = []
        self._edges: list[tuple[Ints, Ints]] = []

    def add(
        self,
        kind: NodeKind,
        *,
        rank: Ints,
        step: Ints,
        start_ns: Ints,
        work_ns: Floats | None = None,
        delay_ns: Floats | None = None,
        block: Ints | None = None,
        item: Ints | None = None,
    ) -> Ints:
        """Return the numbers of the nodes added.

        A column left out is -1, a cost left out is zero.
        """
        n = len(rank)
        none = np.full(n, -1, np.int64)
        self._nodes.append(
            (
                np.full(n, int(kind), np.int64),
                np.asarray(rank, np.int64),
                np.asarray(step, np.int64),
                none if block is None else np.asarray(block, np.int64),
                none if item is None else np.asarray(item, np.int64),
                np.asarray(start_ns, np.int64),
            )
        )
        self._costs.append(
            (
                np.zeros(n) if work_ns is None else np.asarray(work_ns, np.float64),
                np.zeros((n, len(Delay))) if delay_ns is None else np.asarray(delay_ns, np.float64),
            )
        )
        self.count += n
        return np.arange(self.count - n, self.count, dtype=np.int64)

    def join(self, before: Ints, after: Ints) -> None:
        """Make each node of ``after`` wait for its counterpart in ``before``; -1 means none."""
        before, after = np.asarray(before, np.int64), np.asarray(after, np.int64)
        kept = (before >= 0) & (after >= 0)
        self._edges.append((before[kept], after[kept]))

    def build(self, blocks: Blocks, *, chained: bool) -> OperationGraph:
        """Return the graph of everything added."""
        columns = [np.concatenate(c) for c in zip(*self._nodes, strict=True)]
        work, delay = (np.concatenate(c) for c in zip(*self._costs, strict=True))
        edges = self._edges or [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        before, after = (np.concatenate(c) for c in zip(*edges, strict=True))
        dag = build_dag(self.count, before, after)
        kind, rank, step, block, item, start = columns
        return OperationGraph(
            dag=dag,
            kind=kind,
            rank=rank,
            step=step,
            block=block,
            item=item,
            start_ns=start,
            work_ns=work,
            delay_ns=delay,
            blocks=blocks,
            chained=chained,
        )

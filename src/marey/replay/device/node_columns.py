"""The nodes of a run on devices as a sheet that can be rewritten: nodes taken out, put in, moved.

A sheet holds what was recorded, without the arrivals, meetings and ends of steps that a replay
adds. Every host and every stream is a chain; where a node stands in its chain is two numbers, so
that something can be put before or after anything. Closing the sheet makes a run of it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.training.dataflow import DeviceNode
from marey.replay.device.device_nodes import (
    DeviceNodes,
    Flags,
    Floats,
    Ints,
    NodeCosts,
    join_nodes,
)
from marey.replay.device.device_run import DeviceRun, Gradients

Columns = Mapping[str, NDArray[np.generic]]
_CODES = ("rank", "step", "kind", "lane", "phase", "name", "operator", "collective")
_SIZES = ("bytes", "item_bytes", "item")
_TIMES = ("start_ms", "end_ms")
_COSTS = ("work", "loading", "delay")
NAMES = (*_CODES, *_SIZES, *_TIMES, *_COSTS, "other_work", "meets", "place", "turn")


@dataclass(frozen=True)
class NodeColumns:
    """Columns of nodes, and who waits for whom beyond the order of hosts and streams.

    A chain is in order of ``place``, then ``turn``; a node in turn 0 stands where it was recorded.
    """

    columns: Columns
    sources: Ints
    targets: Ints
    gradients: Gradients

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return self.columns[name]

    @property
    def count(self) -> int:
        """Return how many nodes there are."""
        return len(self.columns["rank"])

    def ints(self, name: str) -> Ints:
        """Return a column of whole numbers."""
        found: Ints = self.columns[name].astype(np.int64, copy=False)
        return found

    def floats(self, name: str) -> Floats:
        """Return a column of times."""
        found: Floats = self.columns[name].astype(np.float64, copy=False)
        return found

    @property
    def talks(self) -> Flags:
        """Return which nodes are communications."""
        found: Flags = self.ints("kind") == DeviceNode.COMMUNICATION
        return found

    @property
    def computes(self) -> Flags:
        """Return which nodes are kernels that compute."""
        found: Flags = self.ints("kind") == DeviceNode.KERNEL
        return found

    @property
    def on_host(self) -> Flags:
        """Return which nodes are the host's."""
        found: Flags = self.ints("lane") < 0
        return found

    def find_calls(self) -> Ints:
        """Return the call that launched every node, or -1."""
        calls = np.full(self.count, -1, np.int64)
        host = self.on_host
        launched = host[self.sources] & ~host[self.targets]
        calls[self.targets[launched]] = self.sources[launched]
        return calls

    def find_positions(self) -> Ints:
        """Return the position of every node in the order of ranks, hosts and streams, and time.

        What stands at one place of a host is in order of kind: a call comes before its return.
        """
        late = np.where(self.on_host, self.ints("kind"), 0)
        keys = (self.floats("turn"), self.floats("place"), self.ints("lane"), self.ints("rank"))
        position = np.empty(self.count, np.int64)
        position[np.lexsort((np.arange(self.count), late, *keys))] = np.arange(self.count)
        return position

    def with_columns(self, **columns: NDArray[np.generic]) -> NodeColumns:
        """Return the sheet with other values in some columns."""
        return replace(self, columns={**self.columns, **columns})

    def keep(self, kept: Flags) -> NodeColumns:
        """Return the sheet without all other nodes; a chain closes over those taken out."""
        number = np.cumsum(kept) - 1
        inner = kept[self.sources] & kept[self.targets]
        known = kept[self.gradients.node] if len(self.gradients.node) else np.zeros(0, bool)
        gradients = self.gradients.keep(known)
        return NodeColumns(
            {name: values[kept] for name, values in self.columns.items()},
            number[self.sources[inner]],
            number[self.targets[inner]],
            replace(gradients, node=number[gradients.node]),
        )

    def add(self, columns: Columns) -> tuple[NodeColumns, Ints]:
        """Return the sheet with more nodes, and their numbers."""
        joined = {name: np.concatenate([self.columns[name], columns[name]]) for name in NAMES}
        numbers = self.count + np.arange(len(columns["rank"]), dtype=np.int64)
        return replace(self, columns=joined), numbers

    def wait(self, sources: Ints, targets: Ints) -> NodeColumns:
        """Return the sheet in which the targets wait for the sources too."""
        return replace(
            self,
            sources=np.concatenate([self.sources, sources]),
            targets=np.concatenate([self.targets, targets]),
        )

    def take(self, nodes: Ints) -> dict[str, NDArray[np.generic]]:
        """Return the columns of some nodes."""
        return {name: values[nodes] for name, values in self.columns.items()}

    def copy(
        self, nodes: Ints, *, place: Floats, turn: Floats, batch: Ints | None = None
    ) -> tuple[NodeColumns, Ints]:
        """Return the sheet with copies of nodes put elsewhere.

        Copies of one batch wait for each other as the nodes do; communications meet their partners'
        copies.
        """
        columns = self.take(nodes)
        columns["place"], columns["turn"] = place, turn
        items = self.ints("item")
        own = columns["item"].astype(np.int64)
        columns["item"] = np.where(own >= 0, own + items.max(initial=-1) + 1, -1)
        sheet, numbers = self.add(columns)
        of = np.full(self.count, -1, np.int64)
        of[nodes] = numbers
        both = (of[self.sources] >= 0) & (of[self.targets] >= 0)
        if batch is not None:
            of_batch = np.full(self.count, -1, np.int64)
            of_batch[nodes] = batch
            both &= of_batch[self.sources] == of_batch[self.targets]
        return sheet.wait(of[self.sources[both]], of[self.targets[both]]), numbers


def open_columns(run: DeviceRun) -> NodeColumns:
    """Return the run as a sheet."""
    nodes = run.nodes
    recorded = nodes.recorded
    talks = np.flatnonzero(nodes.item >= 0)
    back = np.arange(nodes.count)
    back[recorded + np.arange(len(talks))] = talks
    raw = (nodes.sources < recorded) & (nodes.targets < recorded + len(talks))
    source, target = nodes.sources[raw], back[nodes.targets[raw]]
    in_chain = (nodes.rank[source] == nodes.rank[target]) & (
        nodes.lane[source] == nodes.lane[target]
    )
    first_meeting = recorded + len(talks)
    met = nodes.targets[(nodes.sources >= first_meeting) & (nodes.targets < recorded)]
    meets = np.zeros(recorded, bool)
    meets[met] = True
    columns = {name: getattr(nodes, name) for name in (*_CODES, *_SIZES, *_TIMES)}
    columns |= {name: getattr(run.costs, name) for name in _COSTS}
    place, turn = nodes.places or (nodes.start_ms, np.zeros(recorded))
    other = run.costs.work if run.other_work is None else run.other_work
    columns |= {"meets": meets, "place": place, "turn": turn, "other_work": other}
    return NodeColumns(columns, source[~in_chain], target[~in_chain], run.gradients)


def close_columns(run: DeviceRun, sheet: NodeColumns) -> DeviceRun:
    """Return the run with the nodes of the sheet."""
    position = sheet.find_positions()
    order = np.argsort(position)
    chained = (np.diff(sheet.ints("lane")[order]) == 0) & (np.diff(sheet.ints("rank")[order]) == 0)
    sheet = sheet.with_columns(item=_number_items(sheet.ints("item")))
    columns: dict[str, Any] = {name: sheet.ints(name) for name in (*_CODES, *_SIZES)}
    times: dict[str, Any] = {name: sheet.floats(name) for name in _TIMES}
    edges = (
        np.concatenate([sheet.sources, order[:-1][chained]]),
        np.concatenate([sheet.targets, order[1:][chained]]),
    )
    meets = sheet.columns["meets"].astype(bool)
    made = join_nodes(columns, edges=edges, meets=meets, order=position)
    nodes = DeviceNodes(
        **columns,
        texts=run.nodes.texts,
        **times,
        sources=made.sources,
        targets=made.targets,
        count=made.count,
        ends=made.ends,
        steps=made.steps,
        places=(sheet.floats("place"), sheet.floats("turn")),
    )
    costs = NodeCosts(**{name: sheet.floats(name) for name in _COSTS})
    other = sheet.floats("other_work")
    return replace(
        run,
        nodes=nodes,
        costs=costs,
        gradients=sheet.gradients,
        other_work=None if np.array_equal(other, costs.work) else other,
    )


def _number_items(items: Ints) -> Ints:
    """Return the same communications under numbers without gaps."""
    known = items >= 0
    numbered = np.full(len(items), -1, np.int64)
    numbered[known] = np.unique(items[known], return_inverse=True)[1]
    return numbered

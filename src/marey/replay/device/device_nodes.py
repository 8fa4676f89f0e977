"""The nodes of a run on devices as arrays, with what each costs beyond what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import DeviceFlow, DeviceNode
from marey.stats.resource_schedule import TaskGraph, build_task_graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
NS_PER_MS = 1e6
# Fewer kernels and copies than this say nothing about a step.
LEAST_WORK = 10


@dataclass(frozen=True)
class DeviceNodes:
    """Who waits for whom; costs are kept apart, so that a change of them needs no other graph.

    Behind the recorded nodes come, for matched communications, one arrival each, one meeting per
    communication, and one node per rank and step that ends the step.
    """

    rank: Ints
    step: Ints
    kind: Ints
    lane: Ints
    phase: Ints
    # Codes of ``texts``.
    name: Ints
    operator: Ints
    collective: Ints
    texts: tuple[str, ...]
    bytes: Ints
    item_bytes: Ints
    item: Ints
    start_ms: Floats
    end_ms: Floats
    # Edges among all nodes, the added ones included; and which recorded edges they stem from.
    sources: Ints
    targets: Ints
    count: int
    # The node that ends each step of each rank, steps in columns.
    ends: Ints
    steps: tuple[int, ...]
    # Where nodes stand in a run that was rewritten, and in which turn at that place; None: in order
    # of their recorded start.
    places: tuple[Floats, Floats] | None = None

    @property
    def recorded(self) -> int:
        """Return how many nodes were recorded; the others were added."""
        return len(self.rank)

    @property
    def computes(self) -> Flags:
        """Return which nodes are kernels that compute."""
        computing: Flags = self.kind == DeviceNode.KERNEL
        return computing

    @property
    def talks(self) -> Flags:
        """Return which nodes are communications."""
        talking: Flags = self.kind == DeviceNode.COMMUNICATION
        return talking

    @property
    def on_host(self) -> Flags:
        """Return which nodes are the host's."""
        return self.lane < 0

    @cached_property
    def tasks(self) -> TaskGraph:
        """Return the graph as it is scheduled."""
        return build_task_graph(
            self.sources,
            targets=self.targets,
            resource=np.full(self.count, -1, np.int64),
            link_first=np.zeros(self.count + 1, np.int64),
            links=np.zeros(0, np.int64),
        )

    def named(self, text: str) -> Flags:
        """Return which kernels have this name, or were launched by an operator of this name."""
        codes = [n for n, known in enumerate(self.texts) if known == text]
        found: Flags = np.isin(self.name, codes) | np.isin(self.operator, codes)
        return found & self.computes


@dataclass(frozen=True)
class NodeCosts:
    """What every recorded node costs, in ms: its own work, loading data, and being late."""

    work: Floats
    loading: Floats
    delay: Floats

    def total(self) -> Floats:
        """Return all of it."""
        return self.work + self.loading + self.delay


def read_nodes(flow: DeviceFlow) -> tuple[DeviceNodes, NodeCosts]:
    """Return the nodes and their recorded costs; refuses a trace without device work."""
    table = flow.nodes
    works = int(np.sum(table["lane"].to_numpy() >= 0))
    if works < LEAST_WORK:
        raise InvalidInput(
            f"The trace shows {works} kernels and copies on devices; a replay needs {LEAST_WORK}."
        )
    _refuse_strangers(table)
    columns: dict[str, Any] = {
        name: table[name].combine_chunks().to_numpy().astype(np.int64)
        for name in ("rank", "step", "kind", "lane", "phase", "bytes", "item_bytes", "item")
    }
    origin = int(table["start_ns"].to_numpy().min())
    start = (table["start_ns"].to_numpy() - origin) / NS_PER_MS
    end = (table["end_ns"].to_numpy() - origin) / NS_PER_MS
    texts, codes = _texts(table)
    edges = flow.edges["source"].to_numpy(), flow.edges["target"].to_numpy()
    meets, begun = _find_meetings(columns["item"], start, end)
    made = join_nodes(columns, edges=edges, meets=meets, order=end)
    nodes = DeviceNodes(
        **columns,
        **codes,
        texts=texts,
        start_ms=start,
        end_ms=end,
        sources=made.sources,
        targets=made.targets,
        count=made.count,
        ends=made.ends,
        steps=made.steps,
    )
    loading = table["loading_ns"].to_numpy() / NS_PER_MS
    return nodes, _read_costs(nodes, loading, begun)


def _refuse_strangers(table: Any) -> None:
    """Refuse ranks that were not recorded at the same time."""
    rank, start, end = (table[name].to_numpy() for name in ("rank", "start_ns", "end_ns"))
    begins = [int(start[rank == one].min()) for one in np.unique(rank)]
    ends = [int(end[rank == one].max()) for one in np.unique(rank)]
    if max(begins) >= min(ends):
        raise InvalidInput(
            "The ranks were not recorded at the same time: these are traces of different runs, or "
            "of different steps."
        )


def _texts(table: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the texts of the coded columns, which share one list."""
    codes: dict[str, Any] = {}
    texts: tuple[str, ...] = ()
    for name in ("name", "operator", "collective"):
        column = table[name].combine_chunks()
        texts = tuple(column.dictionary.to_pylist())
        codes[name] = column.indices.to_numpy().astype(np.int64)
    return texts, codes


@dataclass(frozen=True)
class JoinedEdges:
    """Edges among recorded and added nodes, how many nodes there are, and the ends of steps."""

    sources: Ints
    targets: Ints
    count: int
    ends: Ints
    steps: tuple[int, ...]


def join_nodes(
    columns: dict[str, Ints], *, edges: tuple[Ints, Ints], meets: Flags, order: NDArray[Any]
) -> JoinedEdges:
    """Add arrivals, meetings and ends of steps to nodes.

    ``meets`` says which matched communications wait for their partners, ``order`` what comes last
    on a stream.
    """
    item = columns["item"]
    count = len(item)
    talks = np.flatnonzero(item >= 0)
    waits = talks[meets[talks]]
    alone = talks[~meets[talks]]
    arrival = np.arange(count)
    arrival[talks] = count + np.arange(len(talks))
    meeting = count + len(talks) + item
    added = count + len(talks) + int(item.max(initial=-1)) + 1
    source, target = edges
    steps, last, ends = _end_steps(columns, order, added)
    return JoinedEdges(
        np.concatenate([source, arrival[talks], meeting[waits], arrival[alone], last]),
        np.concatenate([arrival[target], meeting[talks], waits, alone, ends[1]]),
        added + ends[0].size,
        ends[0],
        steps,
    )


def _end_steps(
    columns: dict[str, Ints], order: NDArray[Any], first: int
) -> tuple[tuple[int, ...], Ints, tuple[Ints, Ints]]:
    """Return one node per rank and step, after the last of every stream and of the host."""
    rank, step, lane = (columns[name] for name in ("rank", "step", "lane"))
    ranks = np.unique(rank)
    common = [set(np.unique(step[rank == r]).tolist()) for r in ranks.tolist()]
    steps = sorted(set.intersection(*common))
    if not steps:
        raise InvalidInput("The ranks recorded different steps: there is nothing in common.")
    by_lane = np.lexsort((order, lane, step, rank))
    changes = np.flatnonzero(
        np.append((np.diff(np.stack([rank, step, lane])[:, by_lane]) != 0).any(axis=0), True)
    )
    last = by_lane[changes]
    last = last[np.isin(step[last], steps)]
    made = np.arange(len(ranks) * len(steps), dtype=np.int64)
    ends = (first + made).reshape(len(ranks), len(steps))
    row = np.searchsorted(ranks, rank[last])
    column = np.searchsorted(np.array(steps), step[last])
    return tuple(steps), last, (ends, ends[row, column])


def _find_meetings(item: Ints, start: Floats, end: Floats) -> tuple[Flags, Floats]:
    """Return which communications waited for their last member, and when each transfer began."""
    talks = np.flatnonzero(item >= 0)
    last = np.full(int(item.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(last, item[talks], start[talks])
    meets = np.zeros(len(item), bool)
    # A member that was done before the last one came did not wait for it.
    meets[talks] = end[talks] > last[item[talks]]
    begun = start.copy()
    begun[meets] = last[item[meets]]
    return meets, begun


def _read_costs(nodes: DeviceNodes, loading: Floats, begun: Floats) -> NodeCosts:
    """Return each node's cost without its waits: the usual one over the inner steps."""
    ready = np.zeros(nodes.count)
    # When every node was over; a meeting is over when its last member came.
    over = np.concatenate([nodes.end_ms, np.zeros(nodes.count - nodes.recorded)])
    inner = nodes.targets < nodes.recorded
    plain = inner & (nodes.sources < nodes.recorded)
    np.maximum.at(ready, nodes.targets[plain], over[nodes.sources[plain]])
    arrivals = ~inner & (nodes.sources < nodes.recorded)
    np.maximum.at(ready, nodes.targets[arrivals], over[nodes.sources[arrivals]])
    own = ready[: nodes.recorded].copy()
    # A communication with partners is late at its arrival, which comes right before it.
    talks = np.flatnonzero(nodes.item >= 0)
    own[talks] = ready[nodes.recorded + np.arange(len(talks))]
    host = nodes.on_host
    late = np.maximum(nodes.start_ms - own, 0.0)
    gap = np.maximum(nodes.end_ms - own, 0.0)
    loaded = np.where(host, np.minimum(loading, gap), 0.0)
    costs = NodeCosts(
        work=np.where(host, gap - loaded, nodes.end_ms - begun),
        loading=loaded,
        delay=np.where(host, 0.0, late),
    )
    return _usual_costs(nodes, costs)


def _usual_costs(nodes: DeviceNodes, costs: NodeCosts) -> NodeCosts:
    """Return every node with the median cost of its counterparts in the inner steps."""
    if len(nodes.steps) < 4:
        return costs
    inner = np.isin(nodes.step, nodes.steps[1:-1])
    keys = number_counterparts(nodes)
    size = int(keys.max(initial=0)) + 1
    seen = np.bincount(keys[inner], minlength=size)
    complete = seen == len(nodes.steps) - 2
    usual = {}
    for name in ("work", "loading", "delay"):
        values: Floats = getattr(costs, name)
        middle = group_medians(keys[inner], values[inner], size)
        usual[name] = np.where(complete[keys], middle[keys], values)
    return NodeCosts(**usual)


def number_counterparts(nodes: DeviceNodes, *, over_ranks: bool = False) -> Ints:
    """Return one number for nodes that are the same in every step, or in every step and rank."""
    rank = np.zeros_like(nodes.rank) if over_ranks else nodes.rank
    lane = np.where(nodes.on_host, -1, 0) if over_ranks else nodes.lane
    order = np.lexsort((nodes.start_ms, nodes.rank, nodes.step, nodes.name, lane, nodes.kind, rank))
    same = np.stack([nodes.rank, nodes.step, nodes.name, lane, nodes.kind])[:, order]
    fresh = np.append(True, (np.diff(same) != 0).any(axis=0))
    index = np.arange(len(order))
    ordinal = index - np.maximum.accumulate(np.where(fresh, index, 0))
    key = np.stack([rank[order], nodes.kind[order], lane[order], nodes.name[order], ordinal])
    places = np.lexsort(key[::-1])
    changed = np.append(False, (np.diff(key[:, places]) != 0).any(axis=0))
    numbers = np.empty(len(order), np.int64)
    numbers[order[places]] = np.cumsum(changed)
    return numbers


def group_medians(keys: Ints, values: Floats, size: int) -> Floats:
    """Return the median of the values of every key below ``size``; zero where it has none."""
    order = np.lexsort((values, keys))
    sorted_keys, sorted_values = keys[order], values[order]
    first = np.searchsorted(sorted_keys, np.arange(size))
    after = np.searchsorted(sorted_keys, np.arange(size), side="right")
    found = after > first
    low, high = (first + after - 1) // 2, (first + after) // 2
    middle = np.zeros(size)
    middle[found] = (sorted_values[low[found]] + sorted_values[high[found]]) / 2
    return middle

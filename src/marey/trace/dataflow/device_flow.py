"""Build the data flow of a run on devices: calls of the hosts, work on the streams, who waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.training.dataflow import (
    DEVICE_EDGES,
    DEVICE_GRADIENTS,
    DEVICE_NODES,
    DeviceEdge,
    DeviceFlow,
    DeviceNode,
)
from marey.model.training.symbols import Symbols
from marey.model.training.traces import COMMUNICATION_KINDS, DEVICE_KINDS, EventKind
from marey.stats.intervals import cover, merge, unite
from marey.trace.analysis import AnalysisSteps, reduce_run
from marey.trace.dataflow.device_gradients import find_gradients
from marey.trace.dataflow.thread_pool import assign_lanes, merge_pool_threads
from marey.trace.rank.activity import RankActivity
from marey.trace.rank.device_waits import (
    Columns,
    DeviceWork,
    Waits,
    device_work,
    find_recorded_waits,
    infer_waits,
)
from marey.trace.rank.nesting import operator_of
from marey.trace.rank.operator_graph import GRAPH_COLUMNS
from marey.trace.ranks.clocks import aligned
from marey.trace.readers.kernel_names import dtype_bytes
from marey.trace.run.trace_run import TraceRun

Ints = NDArray[np.int64]
_COLUMNS = (*GRAPH_COLUMNS, "step", "phase", "collective", "bytes", "dtype")
UPDATE = 2
# Clocks of host and device differ by a little: an edge may lead back in time by this much.
COARSE_NS = 2_000
# A silent host that goes on this soon after its device ran dry, or this share of its pause, waited.
SHORTEST_PAUSE_NS, RESUMED_NS, RESUMED_SHARE = 20_000, 50_000, 0.05


@dataclass(frozen=True)
class _Part:
    """One rank's nodes and edges; numbers count from its own first node."""

    columns: dict[str, Any]
    edges: tuple[Ints, Ints, Ints]
    gradients: dict[str, Ints]

    @property
    def count(self) -> int:
        return len(self.columns["kind"])


def build_device_flow(run: TraceRun) -> DeviceFlow:
    """Return the nodes and edges of every rank, with communications matched over ranks."""
    bench = AnalysisSteps(run, reduce_run(run))
    item = bench.matching.item
    firsts = np.concatenate([[0], np.cumsum([len(a.communications) for a in bench.activities])])
    parts = [
        _read_rank(bench, activity, item[firsts[n] : firsts[n + 1]])
        for n, activity in enumerate(bench.activities)
    ]
    nodes, edges = _unite_nodes(parts, run.symbols), _unite_edges(parts)
    return DeviceFlow(nodes, edges, _unite_gradients(parts))


def _unite_nodes(parts: list[_Part], symbols: Symbols) -> pa.Table:
    texts = pa.array([*symbols.texts(), ""])
    columns = {}
    for field in DEVICE_NODES:
        joined = np.concatenate([part.columns[field.name] for part in parts])
        if pa.types.is_dictionary(field.type):
            codes = np.where(joined < 0, len(texts) - 1, joined).astype(np.int32)
            columns[field.name] = pa.DictionaryArray.from_arrays(pa.array(codes), texts)
        else:
            columns[field.name] = joined
    return pa.table(columns).cast(DEVICE_NODES)


def _unite_edges(parts: list[_Part]) -> pa.Table:
    first, made = 0, []
    for part in parts:
        source, target, kind = part.edges
        made.append((source + first, target + first, kind))
        first += part.count
    joined = [np.concatenate(column) for column in zip(*made, strict=True)]
    names = [field.name for field in DEVICE_EDGES]
    return pa.table(dict(zip(names, joined, strict=True))).cast(DEVICE_EDGES)


def _unite_gradients(parts: list[_Part]) -> pa.Table:
    firsts = np.concatenate([[0], np.cumsum([part.count for part in parts])])
    columns = {
        name: np.concatenate([part.gradients[name] for part in parts])
        for name in DEVICE_GRADIENTS.names
    }
    counts = [len(part.gradients["node"]) for part in parts]
    columns["node"] += np.repeat(firsts[:-1], counts)
    return pa.table(columns).cast(DEVICE_GRADIENTS)


def _read_rank(bench: AnalysisSteps, activity: RankActivity, items: Ints) -> _Part:
    run = bench.run
    events = run.events(activity.rank)
    columns: Columns = {name: events[name].to_numpy().astype(np.int64) for name in _COLUMNS}
    if not run.info(activity.rank).has_device:
        columns["device"] = merge_pool_threads(columns)
        columns["stream"] = _pool_streams(columns)
    work = _device_rows(columns)
    recorded = bool((columns["kind"] == EventKind.SYNC).any())
    host_waits, stream_waits = (find_recorded_waits if recorded else infer_waits)(
        columns, work, run.symbols
    )
    if not recorded:
        stream_waits = _with_structure(columns, work, stream_waits)
    calls, returns = _host_rows(columns, work, host_waits)
    pauses = NO_PAUSES if recorded else _silent_waits(columns, work, activity)
    nodes = _Numbers(columns, (calls, returns, pauses.waited), work.rows)
    end = columns["start_ns"] + columns["dur_ns"]
    on_host = np.concatenate([columns["start_ns"][calls], end[returns], pauses.until_ns])
    times = np.concatenate([on_host, columns["start_ns"][work.rows]])
    ends = np.concatenate([on_host, end[work.rows]])
    rows = np.concatenate([calls, returns, pauses.waited, work.rows])
    host_order = nodes.host_order(times)
    made = {
        "rank": np.full(len(rows), activity.rank),
        "step": _fill_steps(columns["step"][rows], times),
        "kind": nodes.kinds,
        "name": columns["name"][rows],
        "operator": _operators(events, columns, rows),
        "start_ns": aligned(bench.clocks, activity.rank, times),
        "end_ns": aligned(bench.clocks, activity.rank, ends),
        "lane": np.concatenate([np.full(nodes.hosts, -1), work.lane]),
        "phase": columns["phase"][rows],
        "collective": np.where(
            nodes.kinds == DeviceNode.COMMUNICATION, columns["collective"][rows], -1
        ),
        "bytes": columns["bytes"][rows],
        "item_bytes": _widths(columns["dtype"][rows], run.symbols),
        "item": _items(activity, items, rows, nodes.kinds),
        "loading_ns": _measure_loading(activity, times, host_order),
    }
    found = _Found(host_order, host_waits, stream_waits, pauses)
    produced = find_gradients(columns, work, run.symbols)
    gradients = {
        "rank": np.full(len(produced.row), activity.rank),
        "step": made["step"][nodes.work[produced.row]],
        "node": nodes.work[produced.row],
        "bytes": produced.bytes,
        "item_bytes": _widths(produced.dtype, run.symbols),
    }
    return _Part(made, _edges(nodes, columns, work, found), gradients)


@dataclass(frozen=True)
class _Pauses:
    """Times until which the host waited without a recorded call, and the work it waited for."""

    until_ns: Ints
    waited: Ints


NO_PAUSES = _Pauses(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class _Found:
    """What the edges of a rank are made from."""

    host_order: Ints
    host_waits: Waits
    stream_waits: Waits
    pauses: _Pauses


def _silent_waits(columns: Columns, work: DeviceWork, activity: RankActivity) -> _Pauses:
    """Return pauses of the host that ended with the last work it had launched.

    Some traces lack the calls that wait. A host that does nothing until its device has run dry, and
    goes on right after, waited for it.
    """
    host = (columns["device"] < 0) & np.isin(columns["kind"], (EventKind.CPU_OP, EventKind.RUNTIME))
    busy = unite(merge(columns["start_ns"][host], columns["dur_ns"][host]), activity.loading)
    begins, ends = busy.end_ns[:-1], busy.start_ns[1:]
    long = ends - begins > SHORTEST_PAUSE_NS
    begins, ends = begins[long], ends[long]
    order = np.argsort(work.launched_ns, kind="stable")
    at = np.searchsorted(work.launched_ns[order], begins, side="right") - 1
    over = np.maximum.accumulate(work.end_ns[order])
    place = np.maximum.accumulate(np.where(work.end_ns[order] == over, np.arange(len(order)), 0))
    known = at >= 0
    at = np.maximum(at, 0)
    dry = over[at] if len(over) else begins
    slack = np.maximum(RESUMED_NS, RESUMED_SHARE * (ends - begins))
    waited = known & (dry > begins) & (dry <= ends) & (ends - dry <= slack)
    return _Pauses(dry[waited], work.rows[order[place[at[waited]]]])


def _device_rows(columns: Columns) -> DeviceWork:
    return device_work(columns, _is_device_work(columns))


def _is_device_work(columns: Columns) -> NDArray[np.bool_]:
    return (columns["device"] >= 0) & np.isin(columns["kind"], DEVICE_KINDS)


def _pool_streams(columns: Columns) -> Ints:
    """Return streams with one number for each thread of a pool that stands for a device."""
    rows = np.flatnonzero(_is_device_work(columns))
    streams = columns["stream"].copy()
    start = columns["start_ns"][rows]
    streams[rows] = assign_lanes(start, start + columns["dur_ns"][rows])
    return streams


def _with_structure(columns: Columns, work: DeviceWork, waits: Waits) -> Waits:
    """Return the waits with those that no time shows, because nobody had to wait.

    A communication follows the work that was launched before it; the update follows every
    communication of its step.
    """
    talks = np.isin(columns["kind"][work.rows], COMMUNICATION_KINDS)
    order = np.argsort(work.launched_ns, kind="stable")
    before = np.full(len(order), -1, np.int64)
    last = -1
    updates: dict[int, int] = {}
    for at in order.tolist():
        if talks[at]:
            before[at] = last
        else:
            last = at
            if columns["phase"][work.rows[at]] == UPDATE:
                updates.setdefault(int(columns["step"][work.rows[at]]), at)
    own = np.flatnonzero(talks)
    sources, targets = [before[own]], [own]
    needed = np.array([updates.get(int(s), -1) for s in columns["step"][work.rows[own]]], np.int64)
    sources.append(np.where(needed >= 0, own, -1))
    targets.append(needed)
    source, target = np.concatenate(sources), np.concatenate(targets)
    kept = (source >= 0) & (target >= 0)
    source, target = source[kept], target[kept]
    kept = work.end_ns[source] <= work.start_ns[target] + COARSE_NS
    source, target = work.rows[source[kept]], work.rows[target[kept]]
    return Waits(np.append(waits.work, source), np.append(waits.waiter, target))


def _host_rows(columns: Columns, work: DeviceWork, waits: Waits) -> tuple[Ints, Ints]:
    """Return the rows of calls that launch or block, and of those that block."""
    launch = columns["launch"][work.rows]
    blocking = np.unique(waits.waiter)
    return np.unique(np.concatenate([launch[launch >= 0], blocking])), blocking


class _Numbers:
    """The number of every call, return, pause and work among a rank's nodes."""

    def __init__(self, columns: Columns, host: tuple[Ints, Ints, Ints], work: Ints) -> None:
        size = len(columns["kind"])
        calls, returns, pauses = host
        self.hosts = len(calls) + len(returns) + len(pauses)
        self.pauses = np.arange(self.hosts - len(pauses), self.hosts)
        self.call = np.full(size, -1, np.int64)
        self.call[calls] = np.arange(len(calls))
        self.returns = np.full(size, -1, np.int64)
        self.returns[returns] = len(calls) + np.arange(len(returns))
        self.work = np.full(size, -1, np.int64)
        self.work[work] = self.hosts + np.arange(len(work))
        kind = columns["kind"][work]
        of_work = np.full(len(work), int(DeviceNode.KERNEL))
        of_work[np.isin(kind, (EventKind.MEMCPY, EventKind.MEMSET))] = DeviceNode.COPY
        of_work[np.isin(kind, COMMUNICATION_KINDS)] = DeviceNode.COMMUNICATION
        self.kinds: Ints = np.concatenate(
            [
                np.full(len(calls), int(DeviceNode.CALL)),
                np.full(len(returns) + len(pauses), int(DeviceNode.RETURN)),
                of_work,
            ]
        ).astype(np.int64)

    def host_order(self, times: Ints) -> Ints:
        """Return the nodes of the host in order of time; a call comes before its return."""
        own = np.arange(self.hosts)
        return np.lexsort((self.kinds[: self.hosts], times[: self.hosts]))[own]


def _fill_steps(step: Ints, times: Ints) -> Ints:
    """Return steps for all nodes: what lies between two belongs to the first of them."""
    order = np.argsort(times, kind="stable")
    known = np.maximum.accumulate(np.where(step[order] >= 0, np.arange(len(step)), -1))
    first = int(step[order][np.argmax(step[order] >= 0)]) if (step >= 0).any() else 0
    filled = np.empty(len(step), np.int64)
    filled[order] = np.where(known >= 0, step[order][known], first)
    return filled


def _operators(events: pa.Table, columns: Columns, rows: Ints) -> Ints:
    """Return the code of the operator that launched each row, or that it is a call of."""
    found = np.asarray(operator_of(events), np.int64)[rows]
    return np.where(found >= 0, columns["name"][found], -1)


def _widths(dtype: Ints, symbols: Symbols) -> Ints:
    width = np.array([*(dtype_bytes(text) for text in symbols.texts()), 0], np.int64)
    return width[dtype]


def _items(activity: RankActivity, items: Ints, rows: Ints, kinds: Ints) -> Ints:
    """Return the number that a communication shares with its partners."""
    size = int(rows.max(initial=0)) + 1
    of_row = np.full(size, -1, np.int64)
    known = activity.communications.row < size
    of_row[activity.communications.row[known]] = items[known]
    return np.where(kinds == DeviceNode.COMMUNICATION, of_row[rows], -1)


def _measure_loading(activity: RankActivity, times: Ints, host_order: Ints) -> Ints:
    """Return how long the host loaded data between each of its nodes and the one before."""
    found = np.zeros(len(times), np.int64)
    if len(host_order) > 1:
        at = times[host_order]
        found[host_order[1:]] = cover(activity.loading, at[:-1], at[1:])
    return found


def _edges(
    nodes: _Numbers, columns: Columns, work: DeviceWork, found: _Found
) -> tuple[Ints, Ints, Ints]:
    host_order, host_waits, stream_waits = found.host_order, found.host_waits, found.stream_waits
    launch = columns["launch"][work.rows]
    known = launch >= 0
    same = work.lane[1:] == work.lane[:-1]
    own = nodes.work[work.rows]
    parts = [
        (host_order[:-1], host_order[1:], DeviceEdge.HOST_ORDER),
        (nodes.call[launch[known]], own[known], DeviceEdge.LAUNCH),
        (own[:-1][same], own[1:][same], DeviceEdge.STREAM_ORDER),
        (nodes.work[stream_waits.work], nodes.work[stream_waits.waiter], DeviceEdge.EVENT),
        (nodes.work[host_waits.work], nodes.returns[host_waits.waiter], DeviceEdge.HOST_WAIT),
        (nodes.work[found.pauses.waited], nodes.pauses, DeviceEdge.HOST_WAIT),
    ]
    source = np.concatenate([part[0] for part in parts])
    target = np.concatenate([part[1] for part in parts])
    kind = np.concatenate([np.full(len(part[0]), int(part[2])) for part in parts])
    kept = (source >= 0) & (target >= 0) & (source != target)
    return source[kept], target[kept], kind[kept]

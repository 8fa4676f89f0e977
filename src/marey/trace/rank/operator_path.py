"""The chain of operators, launches and device work that decided how long one rank took.

The longest weighted path through ``operator_graph``: within a step, within one instance of an
annotation, or through the whole trace. Time that no operator and no device work accounts for (the
host between two operators, mostly Python) is not on the path; it is stated apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from marey.model.errors import InvalidInput, NotFound, shown
from marey.model.training.symbols import Symbols
from marey.model.training.traces import COMMUNICATION_KINDS, EventKind
from marey.stats.compiled import njit
from marey.stats.topological import build_dag
from marey.trace.rank.device_waits import Columns, Flags, Ints
from marey.trace.rank.operator_graph import GRAPH_COLUMNS, EdgeKind, Edges, operator_edges
from marey.trace.rank.steps import STEP_COLUMNS, step_windows

OPERATOR_PATH_COLUMNS = tuple(dict.fromkeys([*GRAPH_COLUMNS, *STEP_COLUMNS]))

# One row per edge of the path, in order.
OPERATOR_PATH = pa.schema(
    [
        # Row of the event whose time it is; of a mere order, of the event it leads to.
        pa.field("event", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        # One of TIMED_KINDS, or without time: sync, order, handover.
        pa.field("kind", pa.string(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
    ]
)
TIMED_KINDS = (
    *("operator", "runtime", "compute", "communication", "copy"),
    *("launch_delay", "stream_delay"),
)
_WORK_KINDS = {
    EventKind.CPU_OP: "operator",
    EventKind.RUNTIME: "runtime",
    EventKind.COMPUTE: "compute",
    EventKind.MEMCPY: "copy",
    EventKind.MEMSET: "copy",
    **dict.fromkeys(COMMUNICATION_KINDS, "communication"),
}
_EDGE_KINDS = {
    EdgeKind.LAUNCH_DELAY: "launch_delay",
    EdgeKind.STREAM_DELAY: "stream_delay",
    EdgeKind.SYNC: "sync",
    EdgeKind.ORDER: "order",
    EdgeKind.HANDOVER: "handover",
}


@dataclass(frozen=True)
class Window:
    """What part of a trace is asked about: one step, one instance of an annotation, or all."""

    step: int | None = None
    # Part of the annotation's name, and which of those found, in order of time.
    annotation: str | None = None
    instance: int = 0

    def words(self) -> str:
        """Return the question in words."""
        if self.step is not None:
            return f"step {self.step}"
        if self.annotation is not None:
            return f"instance {self.instance} of {shown(self.annotation)}"
        return "the whole trace"


@dataclass(frozen=True)
class OperatorPath:
    """The critical path of one rank's window."""

    path: pa.Table
    # Rows of all events that the path passes, sorted.
    events: Ints
    start_ns: int
    end_ns: int

    @property
    def time_ns(self) -> int:
        """How long the path is; never longer than the window's own activity."""
        return int(np.sum(self.path["time_ns"].to_numpy()))

    @property
    def span_ns(self) -> int:
        """From the path's first point to its last: what it explains, gaps included."""
        return self.end_ns - self.start_ns

    def by_kind(self) -> dict[str, int]:
        """Return nanoseconds of the path by kind; ``gap`` is what the path does not account for."""
        sums = self.path.group_by("kind").aggregate([("time_ns", "sum")]).to_pydict()
        found = dict(zip(sums["kind"], sums["time_ns_sum"], strict=True))
        timed = {kind: int(found.get(kind, 0)) for kind in TIMED_KINDS}
        return {**timed, "gap": self.span_ns - self.time_ns}

    def by_name(self) -> pa.Table:
        """Return time on the path and number of events by kind and name, the most costly first."""
        timed = self.path.filter(pa.compute.greater(self.path["time_ns"], 0))
        grouped = timed.group_by(["kind", "name"]).aggregate(
            [("time_ns", "sum"), ("event", "count_distinct")]
        )
        renamed = grouped.rename_columns(["kind", "name", "time_ns", "events"])
        return renamed.sort_by([("time_ns", "descending"), ("name", "ascending")])

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON document."""
        return {
            "time_ms": self.time_ns / 1e6,
            "span_ms": self.span_ns / 1e6,
            "start_ns": self.start_ns,
            "events": len(self.events),
            "by_kind_ms": {kind: ns / 1e6 for kind, ns in self.by_kind().items()},
            "by_name": [
                {key: row[key] for key in ("kind", "name", "events")}
                | {"time_ms": row["time_ns"] / 1e6, "share": row["time_ns"] / max(self.time_ns, 1)}
                for row in self.by_name().to_pylist()
            ],
            "path": self.path.to_pylist(),
        }


def operator_path(events: pa.Table, symbols: Symbols, window: Window | None = None) -> OperatorPath:
    """Return the critical path of one rank's events.

    Needs the columns ``OPERATOR_PATH_COLUMNS``.
    """
    asked = window or Window()
    columns = {name: _column(events, name) for name in GRAPH_COLUMNS}
    chosen = _choose(columns, *_bounds(events, columns, symbols, asked))
    try:
        edges = _longest(columns, operator_edges(columns, chosen, symbols))
    except InvalidInput:
        edges = _longest(columns, operator_edges(columns, chosen, symbols, strict=True))
    if not len(edges.source):
        raise InvalidInput(
            f"There is no critical path in {asked.words()}: it holds no operator, no runtime call "
            "and no device work."
        )
    return _describe(columns, symbols, edges)


def _column(events: pa.Table, name: str) -> Ints:
    return np.asarray(events[name].to_numpy(zero_copy_only=False)).astype(np.int64)


def _bounds(
    events: pa.Table, columns: Columns, symbols: Symbols, window: Window
) -> tuple[int | None, int | None]:
    """Return first and last moment of the window, both inclusive; None for the whole trace."""
    if window.step is not None and window.annotation is not None:
        raise InvalidInput("Ask about a step or about an annotation, not about both.")
    if window.step is not None:
        return _step_bounds(events, symbols, window.step)
    if window.annotation is not None:
        return _annotation_bounds(columns, symbols, window)
    return None, None


def _step_bounds(events: pa.Table, symbols: Symbols, step: int) -> tuple[int, int]:
    windows = step_windows(events.select(STEP_COLUMNS), symbols).to_pydict()
    if step not in windows["step"]:
        known = windows["step"]
        has = f"steps {min(known)} to {max(known)}" if known else "no steps"
        raise NotFound(f"Unknown step {step}; this rank has {has}.")
    at = windows["step"].index(step)
    return windows["start_ns"][at], windows["end_ns"][at]


def _annotation_bounds(columns: Columns, symbols: Symbols, window: Window) -> tuple[int, int]:
    text = window.annotation or ""
    named = symbols.codes_where(lambda name: text in name)
    rows = np.flatnonzero(
        (columns["kind"] == EventKind.ANNOTATION)
        & (columns["device"] < 0)
        & np.isin(columns["name"], named)
    )
    if not len(rows):
        raise NotFound(f"No annotation of this rank contains '{shown(text)}'.")
    if not 0 <= window.instance < len(rows):
        raise NotFound(
            f"Unknown instance {window.instance} of '{shown(text)}'; there are instances "
            f"0 to {len(rows) - 1}."
        )
    row = rows[window.instance]
    start = int(columns["start_ns"][row])
    return start, start + int(columns["dur_ns"][row])


def _choose(columns: Columns, first: int | None, last: int | None) -> Flags:
    """Return host events that start in the window, and the device work they launched."""
    start, launch = columns["start_ns"], columns["launch"]
    if first is None or last is None:
        return np.ones(len(start), bool)
    on_device = columns["device"] >= 0
    begun = np.where(on_device & (launch >= 0), start[np.maximum(launch, 0)], start)
    chosen: Flags = (begun >= first) & (begun <= last)
    return chosen


def _longest(columns: Columns, edges: Edges) -> Edges:
    """Return the edges of the longest path, in order."""
    edges = edges.where(np.argsort(edges.target, kind="stable"))
    used = np.zeros(2 * len(columns["start_ns"]), bool)
    used[edges.source] = used[edges.target] = True
    number = np.cumsum(used) - 1
    points = np.flatnonzero(used)
    source = number[edges.source]
    dag = build_dag(len(points), source, number[edges.target])
    moments = _moments(columns, points)
    path: Ints = _heaviest(dag.first, dag.order, source, edges.time_ns, moments)
    return edges.where(path)


@njit(cache=True, nogil=True)
def _heaviest(first: Ints, order: Ints, source: Ints, time: Ints, moment: Ints) -> Ints:
    """Walk in topological order; of equal predecessors the one that was over last is the cause."""
    length = np.zeros(len(order), np.int64)
    came_by = np.full(len(order), -1, np.int64)
    best = 0
    for k in range(len(order)):
        node = order[k]
        for edge in range(first[node], first[node + 1]):
            before = source[edge]
            reached = length[before] + time[edge]
            known = came_by[node]
            if known < 0 or reached > length[node]:
                length[node], came_by[node] = reached, edge
            elif reached == length[node] and moment[before] > moment[source[known]]:
                came_by[node] = edge
        # The path ends where its time ends, not after points that add nothing.
        if length[node] > length[best]:
            best = node
    steps = 0
    node = best
    while len(order) and came_by[node] >= 0:
        steps += 1
        node = source[came_by[node]]
    path = np.empty(steps, np.int64)
    node = best
    while steps and came_by[node] >= 0:
        steps -= 1
        path[steps] = came_by[node]
        node = source[came_by[node]]
    return path


def _describe(columns: Columns, symbols: Symbols, edges: Edges) -> OperatorPath:
    event = np.where(edges.owner >= 0, edges.owner, edges.target // 2)
    of_work = np.array([_WORK_KINDS.get(kind, "operator") for kind in EventKind])
    kinds = np.array([_EDGE_KINDS.get(kind, "") for kind in EdgeKind])[edges.kind]
    kinds = np.where(edges.kind == EdgeKind.WORK, of_work[columns["kind"][event]], kinds)
    starts = _moments(columns, edges.source)
    codes, place = np.unique(columns["name"][event], return_inverse=True)
    names = pa.array([symbols.text(int(code)) for code in codes], pa.string())
    path = pa.table(
        {
            "event": event,
            "name": names.take(pa.array(place)),
            "kind": kinds,
            "start_ns": starts,
            "time_ns": edges.time_ns,
        }
    ).cast(OPERATOR_PATH)
    ends = _moments(columns, edges.target)
    passed = np.unique(np.concatenate([edges.source, edges.target]) // 2)
    return OperatorPath(path, passed, int(starts.min()), int(ends.max()))


def _moments(columns: Columns, points: Ints) -> Ints:
    rows = points // 2
    return columns["start_ns"][rows] + np.where(points % 2, columns["dur_ns"][rows], 0)

"""One rank's events as the bands and the surface of each of its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.training.traces import NO_VALUE, EventKind
from marey.stats.intervals import Intervals
from marey.trace.rank.activity import BACKWARD_PHASE, FORWARD_PHASE, UPDATE_PHASE
from marey.trace.rank.breakdown import DeviceTime, device_time
from marey.trace.rank.nesting import find_enclosing, operator_of
from marey.trace.rank.reduction import find_backward
from marey.trace.ranks.clocks import aligned
from marey.trace.results import Clocks
from marey.trace.run.trace_run import TraceRun
from marey.trace.views.making.identity import OperatorNumbers
from marey.trace.views.making.micro_batches import number_micro_batches
from marey.trace.views.step_files import BAND, StepWriter
from marey.trace.views.surfaces import flatten
from marey.trace.views.view_kinds import ViewKind, view_kinds

Ints = NDArray[np.int64]
COLUMNS = (
    *(
        "start_ns",
        "dur_ns",
        "kind",
        "name",
        "on_device",
        "stream",
        "launch",
        "external_id",
        "device",
    ),
    *("forward", "step", "micro_batch", "module_path", "collective", "shapes", "phase"),
)
COMPUTE_PART, COMMUNICATION_PART = 0, 1
_OPERATORS = (EventKind.CPU_OP, EventKind.COMPUTE)
_COMMUNICATION = (ViewKind.COLLECTIVE, ViewKind.SEND, ViewKind.RECEIVE)


@dataclass(frozen=True)
class RankIntervals:
    """A rank's device activity in order of start, on the run's clock."""

    rank: int
    start_ns: Ints
    end_ns: Ints
    launched_ns: Ints
    columns: dict[str, Ints]
    time: DeviceTime
    idle: tuple[tuple[ViewKind, Intervals], ...]


def read_intervals(
    run: TraceRun, rank: int, clocks: Clocks, around_ns: tuple[int, int] | None
) -> RankIntervals:
    """Return the intervals of one rank's device; ``around_ns`` is the span of its steps on its own
    clock.
    """
    table = _on_run_clock(run.events(rank, COLUMNS), rank, clocks)
    events = {name: table[name].to_numpy(zero_copy_only=False).astype(np.int64) for name in COLUMNS}
    time = device_time(
        table, run.symbols, has_device=run.info(rank).has_device, around_ns=around_ns
    )
    lasts = (events["dur_ns"] > 0) | (not run.info(rank).timed)
    roots = find_roots(table)
    rows = np.flatnonzero(_find_shown(events, roots) & lasts)
    launch = events["launch"][rows]
    launched = np.where(
        launch >= 0, events["start_ns"][np.maximum(launch, 0)], events["start_ns"][rows]
    )
    columns = {name: events[name][rows] for name in COLUMNS}
    columns["event"] = rows
    columns["kind"] = view_kinds(columns["kind"].astype(np.int8)).astype(np.int64)
    columns["phase"] = _phases(events, rows, launched, run)
    own = operator_of(table)[rows]
    columns["host_operator"] = np.where(own >= 0, events["name"][own], columns["name"])
    columns["root"] = roots[np.where(own >= 0, own, rows)]
    columns["forward"] = find_forward_roots(events["forward"], roots)[columns["root"]]
    # What a call was given says more than what its kernel was; a launch is a part of its operator.
    for caller in (own, launch):
        called = np.where(caller >= 0, events["shapes"][np.maximum(caller, 0)], -1)
        columns["shapes"] = np.where(called >= 0, called, columns["shapes"])
    start, end = columns["start_ns"], columns["start_ns"] + columns["dur_ns"]
    return RankIntervals(
        rank=rank,
        start_ns=start,
        end_ns=np.maximum(end, start + 1),
        launched_ns=launched,
        columns=columns,
        time=time,
        idle=(
            (ViewKind.IDLE_PEERS, time.idle.peers),
            (ViewKind.IDLE_HOST, time.idle.host),
            (ViewKind.IDLE_INPUT, time.idle.input),
            (ViewKind.IDLE_OTHER, time.idle.rest),
        ),
    )


def _find_shown(events: dict[str, Ints], roots: Ints) -> NDArray[np.bool_]:
    """Return the drawn intervals: device work, else the outermost operators of the host."""
    shown: NDArray[np.bool_] = events["on_device"] != 0
    if shown.any():
        return shown
    outermost: NDArray[np.bool_] = roots == np.arange(len(roots))
    outermost &= events["kind"] == EventKind.CPU_OP
    return outermost


def _on_run_clock(table: pa.Table, rank: int, clocks: Clocks) -> pa.Table:
    start = table["start_ns"].to_numpy()
    begun = aligned(clocks, rank, start)
    ended = aligned(clocks, rank, start + table["dur_ns"].to_numpy())
    for name, values in (("start_ns", begun), ("dur_ns", np.maximum(ended - begun, 0))):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values))
    return table


def find_roots(table: pa.Table) -> Ints:
    """Return for each event the outermost operator of its thread that it lies in, or itself."""
    kind = table["kind"].to_numpy()
    device = table["device"].to_numpy()
    host = np.flatnonzero(np.isin(kind, _OPERATORS) & (device < 0))
    roots = np.arange(len(kind), dtype=np.int64)
    picked = table.select(["stream", "start_ns", "dur_ns"]).take(pa.array(host))
    parents = find_enclosing(*(picked[n].to_numpy() for n in ("stream", "start_ns", "dur_ns")))
    top = np.where(parents >= 0, parents, np.arange(len(host)))
    # Parents come before their children: doubling reaches the outermost in few rounds.
    while not np.array_equal(top, top[top]):
        top = top[top]
    roots[host] = host[top]
    return roots


def find_forward_roots(forward: Ints, roots: Ints) -> Ints:
    """Return for each root the root of the forward operator that anything inside it came from."""
    found = np.full(len(forward), NO_VALUE, np.int64)
    linked = np.flatnonzero(forward >= 0)[::-1]
    found[roots[linked]] = roots[forward[linked]]
    return found


def _phases(events: dict[str, Ints], rows: Ints, launched_ns: Ints, run: TraceRun) -> Ints:
    """Return each event's phase as the reader says, else by the thread that launched it.

    What is launched after the last backward pass updates. Launches have one order on all ranks,
    starts on the device have not.
    """
    said = events["phase"][rows]
    if (said >= 0).all():
        return said
    backward = find_backward(events, run.symbols)[rows]
    phase = np.where(backward, BACKWARD_PHASE, FORWARD_PHASE)
    step = events["step"][rows]
    for number in np.unique(step):
        mine = np.flatnonzero(step == number)
        mine = mine[np.argsort(launched_ns[mine], kind="stable")]
        last = np.flatnonzero(phase[mine] == BACKWARD_PHASE)
        if len(last):
            phase[mine[last[-1] + 1 :]] = UPDATE_PHASE
    return np.where(said >= 0, said, phase)


@dataclass(frozen=True)
class StepPlace:
    """Where the rank's part of a step goes."""

    writer: StepWriter
    stage: int
    # Start and end of the rank's own step on the run's clock.
    own_ns: tuple[int, int]
    micro_batches: int


def write_rank_step(
    found: RankIntervals, place: StepPlace, book: OperatorNumbers, items: dict[int, int]
) -> None:
    """Write the bands and the surface of one rank in one step."""
    writer = place.writer
    rows = np.flatnonzero(found.columns["step"] == writer.step)
    if writer.step == NO_VALUE:
        rows = np.arange(len(found.start_ns))
    bands = np.zeros(len(rows), BAND)
    bands["start"] = writer.ticks(found.start_ns[rows])
    bands["end"] = np.maximum(writer.ticks(found.end_ns[rows]), bands["start"] + 1)
    for name in (
        "stream",
        "name",
        "host_operator",
        "shapes",
        "event",
        "kind",
        "phase",
        "root",
        "forward",
    ):
        bands[name] = found.columns[name][rows]
    bands["module"] = found.columns["module_path"][rows]
    bands["item"] = [items.get(event, -1) for event in found.columns["event"][rows].tolist()]
    bands["operator"], confidence = _number_operators(found, rows, place.stage, book)
    bands["confidence"] = np.round(confidence * 255)
    bands["micro_batch"] = number_micro_batches(
        {name: found.columns[name][rows] for name in ("micro_batch", "phase", "kind", "name")},
        found.launched_ns[rows],
        place.micro_batches,
    )
    order = np.argsort(bands["start"], kind="stable")
    start, end, kind = _with_idle(found, place, bands)
    writer.add(found.rank, place.stage, bands[order], flatten(start, end, kind))


def _with_idle(
    found: RankIntervals, place: StepPlace, bands: NDArray[np.void]
) -> tuple[Ints, Ints, Ints]:
    """Return the bands' times and kinds, and after them those of the rank's idle time
    in the step.
    """
    starts, ends = [bands["start"].astype(np.int64)], [bands["end"].astype(np.int64)]
    kinds = [bands["kind"].astype(np.int64)]
    low, high = place.own_ns
    for kind, spans in found.idle:
        begin, stop = np.maximum(spans.start_ns, low), np.minimum(spans.end_ns, high)
        kept = stop > begin
        starts.append(place.writer.ticks(begin[kept]))
        ends.append(place.writer.ticks(stop[kept]))
        kinds.append(np.full(int(kept.sum()), int(kind), np.int64))
    return np.concatenate(starts), np.concatenate(ends), np.concatenate(kinds)


def _number_operators(
    found: RankIntervals, rows: Ints, stage: int, book: OperatorNumbers
) -> tuple[Ints, NDArray[np.float64]]:
    """Return numbers of the operators, computing and communicating ones each in their own order."""
    kind = found.columns["kind"][rows]
    talks = np.isin(kind, _COMMUNICATION)
    numbers = np.full(len(rows), NO_VALUE, np.int64)
    confidence = np.ones(len(rows))
    said = found.columns["collective"][rows]
    for part, chosen in ((COMPUTE_PART, ~talks), (COMMUNICATION_PART, talks)):
        mine = np.flatnonzero(chosen)
        mine = mine[np.lexsort((found.start_ns[rows[mine]], found.launched_ns[rows[mine]]))]
        columns = {c: found.columns[c][rows[mine]] for c in ("name", "kind", "phase")}
        columns["module"] = found.columns["module_path"][rows[mine]]
        if part == COMMUNICATION_PART:
            columns["name"] = np.where(said[mine] >= 0, said[mine], columns["name"])
        numbers[mine], sure = book.number(stage, part, columns)
        confidence[mine] = sure
    return numbers, confidence

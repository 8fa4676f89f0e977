"""What every rank does in a typical step: its own running time, with all waiting taken out.

Each inner step is read as marks on the training thread. Waits are the pauses that end with one of
the rank's own communications; subtracted from the clock they leave *running time*, which depends on
no other rank. A replay derives the waiting again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Dataflow, Phase

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NS_PER_MS = 1e6
LATE_END_NS = 500_000


@dataclass(frozen=True)
class Message:
    """One communication of a rank in one step; times are running time in ms within the step."""

    row: int
    collective: str
    group: str
    size: int
    item_bytes: int
    peer: int
    tag: int
    post_ms: float
    # Times on the rank's own clock, in ms from the start of the step.
    posted_ms: float
    start_ms: float
    end_ms: float
    thread: int
    # How long the rank itself was busy asking.
    call_ms: float = 0.0


@dataclass(frozen=True)
class WaitRow:
    """A pause that ended with communications: when in running time, how long, and for which."""

    at_ms: float
    long_ms: float
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """One operator in running time."""

    name: str
    phase: int
    start_ms: float
    end_ms: float
    # How much of it is the forward pass run again.
    recomputed_ms: float = 0.0
    # Its start and end on the rank's own clock, in ms from the start of the step.
    began_ms: float = 0.0
    ended_ms: float = 0.0


@dataclass(frozen=True)
class Gradient:
    """A gradient that became ready."""

    ready_ms: float
    size: int
    item_bytes: int


@dataclass(frozen=True)
class Span:
    """An annotation in running time."""

    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class RankStep:
    """One step of one rank."""

    rank: int
    step: int
    run_ms: float
    wall_ms: float
    operators: tuple[Operator, ...]
    messages: tuple[Message, ...]
    waits: tuple[WaitRow, ...]
    gradients: tuple[Gradient, ...]
    annotations: tuple[Span, ...]
    # When the step starts on the rank's own clock.
    start_ns: int = 0


class _Clock:
    """Translates a rank's clock into running time within one step."""

    def __init__(self, start_ns: int, begins: Ints, ends: Ints) -> None:
        self.start_ns = start_ns
        self.begins, self.ends = begins, ends
        self.waited = np.concatenate([[0], np.cumsum(ends - begins)])

    def run_ms(self, times_ns: Ints) -> Floats:
        at = np.searchsorted(self.begins, times_ns, side="right")
        before = self.waited[at]
        inside = np.maximum(self.ends[np.maximum(at - 1, 0)] - times_ns, 0) if len(self.ends) else 0
        inside = np.where(at > 0, inside, 0)
        run: Floats = (times_ns - self.start_ns - (before - inside)) / NS_PER_MS
        return run


class _Table:
    """The rows of one rank of a table, as arrays."""

    def __init__(self, table: pa.Table, rank: int) -> None:
        rows = np.flatnonzero(table["rank"].to_numpy() == rank)
        self.rows = rows
        self._table = table
        self._rank_rows = rows

    def __getitem__(self, name: str) -> NDArray[Any]:
        column = self._table[name].combine_chunks()
        if hasattr(column, "dictionary"):
            texts = np.array(column.dictionary.to_pylist(), object)
            values: NDArray[Any] = texts[column.indices.to_numpy()][self.rows]
            return values
        numbers: NDArray[Any] = column.to_numpy()[self.rows]
        return numbers


def read_timelines(dataflow: Dataflow) -> dict[int, list[RankStep]]:
    """Return every rank's inner steps; the first and last absorb the profiler's own edges."""
    timelines = {rank: _rank_steps(dataflow, rank) for rank in dataflow.ranks}
    shortest = min((len(steps) for steps in timelines.values()), default=0)
    if shortest == 0:
        raise InvalidInput(
            "The trace has no complete inner step on every rank; record at least three steps, "
            "marked by the profiler."
        )
    return timelines


def _rank_steps(dataflow: Dataflow, rank: int) -> list[RankStep]:
    steps = _Table(dataflow.steps, rank)
    numbers, starts, ends = steps["step"], steps["start_ns"], steps["end_ns"]
    tables = {
        "operators": _Table(dataflow.operators, rank),
        "messages": _Table(dataflow.communications, rank),
        "gradients": _Table(dataflow.gradients, rank),
        "gaps": _Table(dataflow.gaps, rank),
        "annotations": _Table(dataflow.annotations, rank),
    }
    columns = {name: _columns(table) for name, table in tables.items()}
    # A step lasts until the next one begins: what lies between belongs to it.
    following = np.append(starts[1:], ends[-1:]) if len(starts) else ends
    inner = range(1, len(numbers) - 1) if len(numbers) > 2 else range(0)
    return [
        _read_step(rank, int(numbers[n]), (int(starts[n]), int(following[n])), columns)
        for n in inner
    ]


def _columns(table: _Table) -> dict[str, NDArray[Any]]:
    names = table._table.schema.names
    return {**{name: table[name] for name in names}, "row": table.rows}


Columns = dict[str, dict[str, NDArray[Any]]]


def _read_step(rank: int, number: int, window: tuple[int, int], columns: Columns) -> RankStep:
    start, end = window
    messages = columns["messages"]
    begins, ends, causes = _find_waits(columns["gaps"], messages, window)
    clock = _Clock(start, begins, ends)
    wall = (end - start) / NS_PER_MS
    at = clock.run_ms(begins)
    waits = tuple(
        WaitRow(float(at[n]), float(ends[n] - begins[n]) / NS_PER_MS, causes[n])
        for n in range(len(begins))
    )
    return RankStep(
        rank=rank,
        step=number,
        run_ms=float(clock.run_ms(np.array([end]))[0]),
        wall_ms=wall,
        operators=_operators(columns["operators"], window, clock),
        messages=_messages(messages, window, clock),
        waits=waits,
        gradients=_gradients(columns["gradients"], window, clock),
        annotations=_spans(columns["annotations"], window, clock),
        start_ns=start,
    )


def _find_waits(
    gaps: dict[str, NDArray[Any]],
    messages: dict[str, NDArray[Any]],
    window: tuple[int, int],
) -> tuple[Ints, Ints, list[tuple[int, ...]]]:
    """Return the pauses of the window that end with a communication of the rank's own."""
    start, end = window
    order = np.argsort(messages["end_ns"], kind="stable")
    over, rows = messages["end_ns"][order].astype(np.int64), messages["row"][order]
    posted = messages["post_end_ns"][order].astype(np.int64)
    begins, ends, causes = [], [], []
    inside = np.flatnonzero((gaps["end_ns"] > start) & (gaps["start_ns"] < end))
    for n in inside.tolist():
        low, high = max(int(gaps["start_ns"][n]), start), min(int(gaps["end_ns"][n]), end)
        # The backend's own thread may note the end a little after the waiting thread woke up.
        late = LATE_END_NS if high - low > LATE_END_NS else 0
        first, last = np.searchsorted(over, [low, high + 1 + late])
        mine = [k for k in range(first, last) if posted[k] <= over[k]]
        if not mine:
            continue
        reached = min(int(over[mine[-1]]), high)
        if reached > low:
            begins.append(low)
            ends.append(reached)
            causes.append(tuple(int(rows[k]) for k in mine))
    return np.array(begins, np.int64), np.array(ends, np.int64), causes


def _choose_rows(table: dict[str, NDArray[Any]], key: str, window: tuple[int, int]) -> Ints:
    times = table[key].astype(np.int64)
    return np.flatnonzero((times >= window[0]) & (times < window[1]))


def _operators(
    table: dict[str, NDArray[Any]], window: tuple[int, int], clock: _Clock
) -> tuple[Operator, ...]:
    rows = _choose_rows(table, "start_ns", window)
    starts = clock.run_ms(table["start_ns"][rows].astype(np.int64))
    ends = clock.run_ms(table["end_ns"][rows].astype(np.int64))
    names, phases = table["name"][rows], table["phase"][rows]
    again = table["recomputed_ns"][rows].astype(np.float64) / NS_PER_MS
    began = (table["start_ns"][rows] - clock.start_ns) / NS_PER_MS
    ended = (table["end_ns"][rows] - clock.start_ns) / NS_PER_MS
    return tuple(
        Operator(
            name=str(names[n]),
            phase=int(phases[n]),
            start_ms=float(starts[n]),
            end_ms=float(ends[n]),
            recomputed_ms=float(again[n]),
            began_ms=float(began[n]),
            ended_ms=float(ended[n]),
        )
        for n in range(len(rows))
    )


def _messages(
    table: dict[str, NDArray[Any]], window: tuple[int, int], clock: _Clock
) -> tuple[Message, ...]:
    rows = _choose_rows(table, "posted_ns", window)
    post = clock.run_ms(table["post_end_ns"][rows].astype(np.int64))
    found = []
    for n, row in enumerate(rows.tolist()):
        posted, start, end = (
            (int(table[key][row]) - clock.start_ns) / NS_PER_MS
            for key in ("posted_ns", "start_ns", "end_ns")
        )
        found.append(
            Message(
                row=int(table["row"][row]),
                collective=str(table["collective"][row]),
                group=str(table["group"][row]),
                size=int(table["bytes"][row]),
                item_bytes=int(table["item_bytes"][row]),
                peer=int(table["peer"][row]),
                tag=int(table["tag"][row]),
                post_ms=float(post[n]),
                posted_ms=posted,
                start_ms=start,
                end_ms=end,
                thread=int(table["thread"][row]),
                call_ms=(int(table["post_end_ns"][row]) - int(table["posted_ns"][row])) / NS_PER_MS,
            )
        )
    return tuple(found)


def _gradients(
    table: dict[str, NDArray[Any]], window: tuple[int, int], clock: _Clock
) -> tuple[Gradient, ...]:
    rows = _choose_rows(table, "ready_ns", window)
    ready = clock.run_ms(table["ready_ns"][rows].astype(np.int64))
    return tuple(
        Gradient(float(ready[n]), int(table["bytes"][row]), int(table["item_bytes"][row]))
        for n, row in enumerate(rows.tolist())
    )


def _spans(
    table: dict[str, NDArray[Any]], window: tuple[int, int], clock: _Clock
) -> tuple[Span, ...]:
    rows = _choose_rows(table, "start_ns", window)
    starts = clock.run_ms(table["start_ns"][rows].astype(np.int64))
    ends = clock.run_ms(table["end_ns"][rows].astype(np.int64))
    names = table["name"][rows]
    return tuple(Span(str(names[n]), float(starts[n]), float(ends[n])) for n in range(len(rows)))


def first_backward(step: RankStep) -> float | None:
    """Return when the first backward operator of a step starts, in running time."""
    return next((o.start_ms for o in step.operators if o.phase == Phase.BACKWARD), None)

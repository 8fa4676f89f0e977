"""Build the data-flow tables of a run, rank by rank, from its event tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marey.model.training.dataflow import (
    ALLOCATIONS,
    ANNOTATIONS,
    COMMUNICATIONS,
    GAPS,
    GRADIENTS,
    OPERATORS,
    STEPS,
    Dataflow,
    Phase,
)
from marey.model.training.traces import COMMUNICATION_KINDS, EventKind
from marey.trace.dataflow.device_flow import build_device_flow
from marey.trace.dataflow.gaps import find_gaps
from marey.trace.dataflow.recomputed import find_recomputed
from marey.trace.readers.json.raw_columns import GRADIENT_PREFIX
from marey.trace.readers.kernel_names import dtype_bytes
from marey.trace.readers.kineto.steps_and_modules import is_step
from marey.trace.run.missing_ranks import find_missing_peers
from marey.trace.run.trace_run import TraceRun

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
_COLUMNS = (
    *("start_ns", "dur_ns", "kind", "on_device", "device", "name", "step", "stream", "launch"),
    *("group", "bytes", "dtype", "peer", "tag", "collective"),
)
_BACKWARD = "autograd::engine::evaluate_function"
_UPDATE = "Optimizer.step"
# Operators of which this share runs beside another are those of a pool of threads.
LEAST_OVERLAPPING = 0.2


class _Rank:
    """One rank's columns, and the texts its codes stand for."""

    def __init__(self, run: TraceRun, rank: int) -> None:
        table = run.events(rank, _COLUMNS)
        self.rank = rank
        self.texts = run.symbols.texts()
        self.columns = {n: table[n].to_numpy().astype(np.int64) for n in _COLUMNS}
        self.columns["end_ns"] = self.columns["start_ns"] + self.columns["dur_ns"]

    def __getitem__(self, name: str) -> Ints:
        column: Ints = self.columns[name]
        return column

    def named(self, test: Callable[[str], bool]) -> Flags:
        """Return of every event whether its name passes the test."""
        passing: Flags = np.array([test(t) for t in self.texts] or [False], bool)[self["name"]]
        return passing

    def labels(self, column: str, rows: Ints) -> pa.Array:
        """Return the texts of a coded column; an empty text where there is no code."""
        codes, inverse = np.unique(self[column][rows], return_inverse=True)
        texts = [self.texts[code] if code >= 0 else "" for code in codes]
        return pa.DictionaryArray.from_arrays(pa.array(inverse.astype(np.int32)), pa.array(texts))


def build_dataflow(run: TraceRun) -> Dataflow:
    """Return the data-flow tables of every rank of the run."""
    ranks = [_Rank(run, rank) for rank in run.ranks]
    on_device = any(_works_on_device(rank) or _works_on_pool(rank) for rank in ranks)
    return Dataflow(
        ranks=tuple(run.ranks),
        operators=_unite(OPERATORS, [_operators(r) for r in ranks]),
        communications=_unite(COMMUNICATIONS, [_communications(r) for r in ranks]),
        gradients=_unite(GRADIENTS, [_gradients(r) for r in ranks]),
        gaps=_unite(GAPS, [_gaps(r) for r in ranks]),
        steps=_unite(STEPS, [_steps(r) for r in ranks]),
        annotations=_unite(ANNOTATIONS, [_annotations(r) for r in ranks]),
        allocations=_unite(ALLOCATIONS, [_allocations(run, rank) for rank in run.ranks]),
        on_device=on_device,
        device=build_device_flow(run) if on_device else None,
        missing=find_missing_peers({rank: run.info(rank) for rank in run.ranks}),
    )


def _works_on_device(rank: _Rank) -> bool:
    """Say whether operators ran on devices, or on a pool of threads that stands for one (JAX)."""
    return bool(((rank["device"] >= 0) & (rank["on_device"] != 0)).any())


def _works_on_pool(rank: _Rank) -> bool:
    """Return whether operators ran on several threads at once, in steps that no profiler marked."""
    rows = np.flatnonzero((rank["on_device"] != 0) & (rank["kind"] == EventKind.COMPUTE))
    if rank.named(is_step).any() or len(np.unique(rank["stream"][rows])) < 2:
        return False
    order = rows[np.argsort(rank["start_ns"][rows], kind="stable")]
    over = np.maximum.accumulate(rank["end_ns"][order])[:-1]
    overlapping: Flags = rank["start_ns"][order][1:] < over
    return bool(np.mean(overlapping) > LEAST_OVERLAPPING)


def _unite(schema: pa.Schema, parts: Sequence[dict[str, Any]]) -> pa.Table:
    tables = [pa.table({f.name: part[f.name] for f in schema}).cast(schema) for part in parts]
    return pa.concat_tables(tables).unify_dictionaries() if tables else schema.empty_table()


def _place(rank: _Rank, rows: Ints) -> dict[str, Any]:
    """Return the columns that most tables begin with."""
    return {
        "rank": np.full(len(rows), rank.rank, np.int32),
        "step": rank["step"][rows],
        "start_ns": rank["start_ns"][rows],
        "end_ns": rank["end_ns"][rows],
    }


def _operators(rank: _Rank) -> dict[str, Any]:
    rows = np.flatnonzero((rank["kind"] == EventKind.COMPUTE) & (rank["on_device"] != 0))
    phase = np.full(len(rows), int(Phase.FORWARD), np.int8)
    phase[rank.named(lambda n: n.startswith(_BACKWARD))[rows]] = Phase.BACKWARD
    updating = np.flatnonzero(rank.named(lambda n: n.startswith(_UPDATE)))
    phase[_within(rank, rows, updating)] = Phase.UPDATE
    return {
        **_place(rank, rows),
        "name": rank.labels("name", rows),
        "phase": phase,
        "recomputed_ns": _find_recomputed(rank, rows, phase),
    }


NO_NAME = -1


def _is_gathering(name: str) -> bool:
    return name.startswith("fsdp::")


def _find_recomputed(rank: _Rank, rows: Ints, phase: NDArray[np.int8]) -> Ints:
    """Return the operators that run the forward pass of their step again."""
    found = np.zeros(len(rows), np.int64)
    backward = np.flatnonzero(phase == Phase.BACKWARD)
    if not len(backward):
        return found
    first = rank["step"][rows[backward[0]]]
    ahead = rows[: backward[0]]
    ahead = ahead[rank["step"][ahead] == first]
    # Parameters gathered again before a backward pass are no forward pass run again.
    forward = np.where(rank.named(_is_gathering)[ahead], NO_NAME, rank["name"][ahead]).tolist()
    works = np.isin(rank["kind"], (EventKind.COMPUTE, EventKind.CPU_OP)) & (rank["device"] < 0)
    inner = np.flatnonzero(works & ~np.isin(np.arange(len(works)), rows))
    owners = rank["start_ns"][rows[backward]], rank["end_ns"][rows[backward]]
    events = rank["start_ns"][inner], rank["end_ns"][inner], rank["name"][inner]
    found[backward] = find_recomputed(owners, events, forward)
    return found


def _within(rank: _Rank, rows: Ints, owners: Ints) -> Flags:
    """Return which rows start inside one of the owners, which do not overlap each other."""
    if not len(owners):
        return np.zeros(len(rows), bool)
    at = np.searchsorted(rank["start_ns"][owners], rank["start_ns"][rows], side="right") - 1
    inside: Flags = (at >= 0) & (rank["start_ns"][rows] < rank["end_ns"][owners[at]])
    return inside


def _communications(rank: _Rank) -> dict[str, Any]:
    rows = np.flatnonzero(np.isin(rank["kind"], COMMUNICATION_KINDS) & (rank["on_device"] != 0))
    call = np.where(rank["launch"][rows] >= 0, rank["launch"][rows], rows)
    called = call != rows
    size = np.maximum(rank["bytes"][rows], np.where(called, rank["bytes"][call], -1))
    width = np.array([dtype_bytes(t) for t in rank.texts] + [0], np.int64)
    order = np.argsort(rank["start_ns"][call], kind="stable")
    columns = {
        **_place(rank, rows),
        "collective": rank.labels("collective", rows),
        "group": rank.labels("group", rows),
        "bytes": size,
        "item_bytes": width[rank["dtype"][rows]],
        "peer": rank["peer"][rows],
        "tag": rank["tag"][rows],
        "posted_ns": rank["start_ns"][call],
        "post_end_ns": np.where(called, rank["end_ns"][call], rank["start_ns"][call]),
        "thread": rank["stream"][rows],
    }
    columns["step"] = np.where(called, rank["step"][call], columns["step"])
    return {
        name: values.take(pa.array(order)) if isinstance(values, pa.Array) else values[order]
        for name, values in columns.items()
    }


def _gradients(rank: _Rank) -> dict[str, Any]:
    rows = np.flatnonzero(rank.named(lambda n: n == GRADIENT_PREFIX) & (rank["bytes"] >= 0))
    width = np.array([dtype_bytes(t) for t in rank.texts] + [0], np.int64)
    return {
        **_place(rank, rows),
        "ready_ns": rank["end_ns"][rows],
        "bytes": rank["bytes"][rows],
        "item_bytes": width[rank["dtype"][rows]],
    }


def _gaps(rank: _Rank) -> dict[str, Any]:
    """Return the pauses of the thread that the steps are marked on."""
    stepping = rank["stream"][np.flatnonzero(rank.named(is_step) & (rank["device"] < 0))]
    shown = np.isin(rank["kind"], (EventKind.COMPUTE, EventKind.CPU_OP, EventKind.ANNOTATION))
    rows = np.flatnonzero(shown & (rank["device"] < 0) & np.isin(rank["stream"], stepping))
    rows = rows[np.lexsort((-rank["dur_ns"][rows], rank["start_ns"][rows]))]
    works = rank["kind"][rows] != EventKind.ANNOTATION
    begins, ends = find_gaps(rank["start_ns"][rows], rank["end_ns"][rows], works)
    return {
        "rank": np.full(len(begins), rank.rank, np.int32),
        "start_ns": begins,
        "end_ns": ends,
    }


def _steps(rank: _Rank) -> dict[str, Any]:
    rows = np.flatnonzero(rank.named(is_step) & (rank["device"] < 0))
    return _place(rank, rows)


def _annotations(rank: _Rank) -> dict[str, Any]:
    rows = np.flatnonzero((rank["kind"] == EventKind.ANNOTATION) & ~rank.named(is_step))
    return {**_place(rank, rows), "name": rank.labels("name", rows)}


def _allocations(run: TraceRun, rank: int) -> dict[str, Any]:
    memory = run.memory(rank)
    # Host memory says nothing of the memory that training on devices fills.
    on_device = pc.greater_equal(memory["device"], 0)
    if pc.any(on_device).as_py():
        memory = memory.filter(on_device)
    return {
        "rank": np.full(memory.num_rows, rank, np.int32),
        "time_ns": memory["time_ns"],
        "bytes": memory["bytes"],
        "allocated_bytes": memory["allocated_bytes"],
    }

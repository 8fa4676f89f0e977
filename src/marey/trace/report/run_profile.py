"""What one run did per step, by kernel, operator and module: the side of a comparison.

Sums are kept per step (over ranks) and per rank (over steps), never per event, so a run of any
size is compared in the memory of its names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.errors import NotFound
from marey.model.training.traces import EventKind
from marey.trace.rank.breakdown import BREAKDOWN, breakdown_within, device_time
from marey.trace.rank.nesting import find_enclosing, operator_of
from marey.trace.rank.steps import step_windows, window_span
from marey.trace.run.trace_run import TraceRun, spans

LAYERS = ("kernel", "operator", "module")
Progress = Callable[[float], None]


@dataclass(frozen=True)
class NameCost:
    """One name's cost: milliseconds and calls, per step over all ranks, and per rank."""

    step_ms: NDArray[np.float64]
    step_calls: NDArray[np.float64]
    rank_ms: NDArray[np.float64]


@dataclass(frozen=True)
class RunProfile:
    """A run, reduced to what a comparison needs."""

    ranks: tuple[int, ...]
    # Empty where the trace has no steps: then everything is one sample.
    steps: tuple[int, ...]
    # Layer → name → cost.
    costs: dict[str, dict[str, NameCost]]
    # Part of the breakdown → mean over ranks of the milliseconds in each step.
    parts: dict[str, NDArray[np.float64]]
    notes: tuple[str, ...] = field(default=())


def profile_run(
    run: TraceRun, *, steps: Sequence[int] | None = None, progress: Progress | None = None
) -> RunProfile:
    """Sum a run by name and step; ``steps`` keeps only those, all of them must exist."""
    windows = {rank: _windows(run, rank) for rank in run.ranks}
    known = _common_steps(windows, steps)
    kept = _Sums(len(run.ranks), max(len(known), 1))
    for place, rank in enumerate(run.ranks):
        _add_rank(kept, run=run, place=place, rank=rank, steps=known, windows=windows[rank])
        if progress:
            progress((place + 1) / len(run.ranks))
    return RunProfile(
        ranks=tuple(run.ranks),
        steps=known,
        costs=kept.costs(),
        parts={name: kept.parts[:, at] / len(run.ranks) for at, name in enumerate(BREAKDOWN.names)},
    )


def _windows(run: TraceRun, rank: int) -> pa.Table:
    columns = ["step", "start_ns", "dur_ns", "kind", "name", "on_device"]
    return step_windows(run.events(rank, columns), run.symbols)


def _common_steps(windows: dict[int, pa.Table], wanted: Sequence[int] | None) -> tuple[int, ...]:
    everywhere = [set(table["step"].to_pylist()) for table in windows.values()]
    known = sorted(set.intersection(*everywhere)) if everywhere else []
    if wanted is None:
        return tuple(known)
    missing = sorted(set(wanted) - set(known))
    if missing:
        has = f"steps {spans(known)}" if known else "no steps"
        raise NotFound(f"Unknown step {missing[0]}; this trace has {has} on every rank.")
    return tuple(sorted(set(wanted)))


class _Sums:
    """Grows while ranks are added; names are keys, so runs with different codes compare."""

    def __init__(self, ranks: int, steps: int) -> None:
        self._shape = (ranks, steps)
        self._costs: dict[str, dict[str, NameCost]] = {layer: {} for layer in LAYERS}
        self.parts = np.zeros((steps, len(BREAKDOWN.names)))

    def add(self, layer: str, *, name: str, place: int, ms: Any, calls: Any) -> None:
        known = self._costs[layer]
        cost = known.get(name)
        if cost is None:
            ranks, steps = self._shape
            cost = known[name] = NameCost(np.zeros(steps), np.zeros(steps), np.zeros(ranks))
        cost.step_ms[:] += ms
        cost.step_calls[:] += calls
        cost.rank_ms[place] += ms.sum()

    def costs(self) -> dict[str, dict[str, NameCost]]:
        return self._costs


_COLUMNS = [
    *("on_device", "kind", "name", "stream", "start_ns", "dur_ns"),
    *("launch", "external_id", "module", "step"),
]


def _add_rank(
    sums: _Sums, *, run: TraceRun, place: int, rank: int, steps: tuple[int, ...], windows: pa.Table
) -> None:
    events = run.events(rank, _COLUMNS)
    has_device = run.info(rank).has_device
    slot = _slots(events["step"].to_numpy(), steps)
    kind = events["kind"].to_numpy()
    device = events["on_device"].to_numpy(zero_copy_only=False)
    own_ns = _own_time(events, kind)
    # Where operators stand for the device, they nest: only their own time adds up.
    device_ns = np.where(kind == EventKind.CPU_OP, own_ns, events["dur_ns"].to_numpy())
    name, module = events["name"].to_numpy(), _modules(events)
    layers = (
        ("kernel", device, name, device_ns),
        ("operator", kind == EventKind.CPU_OP, name, own_ns),
        ("module", device & (module >= 0), module, device_ns),
    )
    # What a host did for several devices of its process counts with the first of them.
    repeated = any(
        run.info(other).process == run.info(rank).process
        for other in run.ranks[:place]
        if run.info(rank).device is not None
    )
    for layer, rows, code, cost_ns in layers:
        if repeated and layer == "operator":
            continue
        rows = rows & (slot >= 0)
        _add_layer(
            sums,
            layer=layer,
            place=place,
            run=run,
            code=code[rows],
            slot=slot[rows],
            cost_ns=cost_ns[rows],
        )
    around = window_span(windows)
    time = device_time(events, run.symbols, has_device=has_device, around_ns=around)
    chosen = windows.filter(pa.array(np.isin(windows["step"].to_numpy(), steps))).sort_by("step")
    table = (
        breakdown_within(time, chosen["start_ns"].to_numpy(), chosen["end_ns"].to_numpy())
        if steps
        else breakdown_within(time, *([at] for at in time.span_ns))
    )
    sums.parts += np.column_stack([table[n].to_numpy() for n in BREAKDOWN.names])


def _add_layer(
    sums: _Sums, *, layer: str, place: int, run: TraceRun, code: Any, slot: Any, cost_ns: Any
) -> None:
    codes, inverse = np.unique(code, return_inverse=True)
    width = sums.parts.shape[0]
    cell = inverse * width + slot
    shape = (len(codes), width)
    ms = np.bincount(cell, cost_ns, len(codes) * width).reshape(shape) / 1e6
    calls = np.bincount(cell, minlength=len(codes) * width).reshape(shape)
    for row, symbol in enumerate(codes):
        sums.add(
            layer, name=run.symbols.text(int(symbol)), place=place, ms=ms[row], calls=calls[row]
        )


def _slots(step: Any, steps: tuple[int, ...]) -> Any:
    """Return the position of each event's step, -1 for those outside; without steps all are one."""
    if not steps:
        return np.zeros(len(step), np.int64)
    known = np.array(steps)
    at = np.minimum(np.searchsorted(known, step), len(known) - 1)
    return np.where(known[at] == step, at, -1)


def _own_time(events: pa.Table, kind: Any) -> Any:
    """Return operators' time without the operators they called; zero for everything else."""
    ops = np.flatnonzero(kind == EventKind.CPU_OP)
    own = np.zeros(len(kind))
    picked = events.select(["stream", "start_ns", "dur_ns"]).take(pa.array(ops))
    stream, start, dur = (picked[n].to_numpy() for n in ("stream", "start_ns", "dur_ns"))
    parents = find_enclosing(stream, start, dur)
    nested = parents >= 0
    own[ops] = np.maximum(dur - np.bincount(parents[nested], dur[nested], len(ops)), 0)
    return own


def _modules(events: pa.Table) -> Any:
    """Return the module of each event: its own, or that of the operator that launched it."""
    module = events["module"].to_numpy()
    if (module < 0).all():
        return module
    owner = operator_of(events)
    return np.where(module >= 0, module, np.where(owner >= 0, module[owner], -1))

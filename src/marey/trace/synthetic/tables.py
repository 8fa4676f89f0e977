"""A simulation as event tables: what each rank's profiler would show, on the rank's own clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EVENTS, NO_VALUE, EventKind
from marey.trace.run.trace_run import RankInfo, TraceRun
from marey.trace.synthetic.costs import OPTIMIZER_KERNEL
from marey.trace.synthetic.layout import Ints, Layout
from marey.trace.synthetic.simulation import (
    BACKWARD_THREAD,
    LAUNCH_CALL_NS,
    MAIN_THREAD,
    CallRecord,
    Simulation,
)

ORIGIN_NS = 1_750_000_000_000_000_000
DESCRIPTIONS = {
    "tensor": "TENSOR_MODEL_PARALLEL_GROUP",
    "data": "DATA_PARALLEL_GROUP",
    "pipeline": "PIPELINE_MODEL_PARALLEL_GROUP",
}
TODAY = {
    "AllReduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "AllGather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ReduceScatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)",
    "SendRecv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
YESTERDAY = {
    "AllReduce": "ncclKernel_AllReduce_RING_LL_Sum_bf16(ncclWorkElem)",
    "AllGather": "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)",
    "ReduceScatter": "ncclKernel_ReduceScatter_RING_LL_Sum_bf16(ncclWorkElem)",
    "SendRecv": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
}
KINDS = {
    "compute": EventKind.COMPUTE,
    "memcpy": EventKind.MEMCPY,
    "collective": EventKind.COLLECTIVE,
    "send": EventKind.SEND,
    "recv": EventKind.RECV,
}
GRADIENT = "torch::autograd::AccumulateGrad"
HOST_OPERATOR, LAUNCH, KERNEL, ANNOTATION = range(4)


@dataclass(frozen=True)
class TraceStyle:
    """How the same run may look in a trace: kernel names, identifiers, group names, clocks."""

    kernel_names: str = "today"  # or yesterday
    identifiers: str = "sequence"  # comms_id, sequence or none
    described_groups: bool = True
    offset_us: float = 300.0
    drift_ppm: float = 20.0


class ProcessGroups:
    """The process groups of a layout: number, name, description and members of each."""

    def __init__(self, layout: Layout, trace_style: TraceStyle) -> None:
        self.members: list[tuple[int, ...]] = []
        self.kinds: list[str] = []
        self._of: dict[str, Ints] = {}
        for kind, groups in layout.groups().items():
            of = np.full(layout.world, -1, np.int64)
            for group in groups:
                of[list(group)] = len(self.members)
                self.members.append(group)
                self.kinds.append(kind)
            self._of[kind] = of
        self.described = trace_style.described_groups

    def number(self, kind: str, ranks: Ints) -> Ints:
        """Return the group of this kind that each rank is in."""
        return self._of[kind][ranks]

    def name(self, number: int) -> str:
        """Return a process group's name: PyTorch counts them, 0 is the world."""
        return str(number + 1)

    def description(self, number: int) -> str:
        """Return the training code's name for it."""
        return DESCRIPTIONS[self.kinds[number]] if self.described else "undefined"

    def of_rank(self, rank: int) -> dict[str, tuple[int, ...]]:
        """Return the groups that a rank is in, by name."""
        return {self.name(n): g for n, g in enumerate(self.members) if rank in g}


@dataclass(frozen=True)
class Clock:
    """What each rank's clock shows at a true time."""

    offset_ns: np.ndarray
    drift: np.ndarray

    def show(self, ranks: Ints, times: np.ndarray) -> Ints:
        """Return recorded nanoseconds of true times since the start of the run."""
        shown = times * (1 + self.drift[ranks]) + self.offset_ns[ranks]
        recorded: Ints = ORIGIN_NS + np.rint(shown).astype(np.int64)
        return recorded


def make_clock(layout: Layout, trace_style: TraceStyle, rng: np.random.Generator) -> Clock:
    """Return one clock per host: an offset of up to ``offset_us`` and a drift of up to
    ``drift_ppm``.
    """
    ranks = np.arange(layout.world)
    hosts = layout.host_of(ranks)
    count = int(hosts.max()) + 1
    offset = rng.uniform(-1, 1, count) * trace_style.offset_us * 1e3
    drift = rng.uniform(-1, 1, count) * trace_style.drift_ppm * 1e-6
    return Clock(offset[hosts], drift[hosts])


def build_run(simulation: Simulation, trace_style: TraceStyle, clock: Clock) -> TraceRun:
    """Return the tables of every rank, as a reader would give them."""
    symbols = Symbols()
    columns = _columns(simulation, trace_style, clock, symbols)
    order = np.lexsort((columns["part"], columns["start_ns"], columns["rank"]))
    columns = {name: values[order] for name, values in columns.items()}
    layout = simulation.layout
    cuts = np.searchsorted(columns["rank"], np.arange(layout.world + 1))
    book = ProcessGroups(layout, trace_style)
    tables, infos = {}, {}
    for rank in range(layout.world):
        cut = slice(cuts[rank], cuts[rank + 1])
        tables[rank] = _rank_table({name: values[cut] for name, values in columns.items()})
        infos[rank] = rank_info(layout, book, rank)
    return TraceRun.from_tables(tables, infos, symbols)


def rank_info(layout: Layout, book: ProcessGroups, rank: int) -> RankInfo:
    """Return a rank's description in its trace."""
    groups = {"0": tuple(range(layout.world))} | book.of_rank(rank)
    described = {name: book.description(int(name) - 1) for name in groups if name != "0"}
    return RankInfo(
        rank=rank,
        host=f"node{int(layout.host_of(np.array([rank]))[0]):03d}",
        world_size=layout.world,
        backend="nccl",
        groups=groups,
        group_descriptions={"0": "default_pg"} | described,
    )


@dataclass(frozen=True)
class _Part:
    """The same kind of event on many ranks: scalars for all of them, and what differs."""

    fields: dict[str, int]
    ranks: Ints
    start: np.ndarray
    dur: np.ndarray
    own: dict[str, Ints]


def _columns(
    simulation: Simulation, trace_style: TraceStyle, clock: Clock, symbols: Symbols
) -> dict[str, Ints]:
    book = ProcessGroups(simulation.layout, trace_style)
    names = np.array([symbols.add(book.name(n)) for n in range(len(book.members))], np.int64)
    parts: list[_Part] = []
    for number, emission in enumerate(simulation.emissions):
        parts += _emission_parts(emission, number, trace_style, symbols)
        if simulation.layout.phases:
            for part in parts[-3:]:
                part.fields["phase"] = _phase(emission)
        if emission.call.collective:
            groups = book.number(emission.call.group_kind, emission.ranks)
            parts[-1].own["group"] = names[groups]
    for name, step, ranks, start, dur in simulation.spans:
        fields = {"name": symbols.add(name), "stream": MAIN_THREAD, "step": step}
        fields |= {"kind": EventKind.ANNOTATION, "on_device": 0, "part": ANNOTATION}
        parts.append(_Part(fields, ranks, start, dur, {}))
    parts += [_gradient_part(gradient, symbols) for gradient in simulation.gradients]
    columns = _join_tables(parts, clock)
    host = np.array([symbols.add(f"node{h:03d}") for h in range(simulation.layout.world)])
    columns["host"] = host[simulation.layout.host_of(columns["rank"])]
    _number(columns, trace_style)
    return columns


def _phase(emission: CallRecord) -> int:
    """Return the part of a step: 0 forward, 1 backward, 2 update."""
    if emission.call.name == OPTIMIZER_KERNEL[0]:
        return 2
    return int(emission.call.backward)


def _gradient_part(gradient: tuple[int, Ints, np.ndarray, int], symbols: Symbols) -> _Part:
    """Return a gradient that the hosts pass on, with its size."""
    step, ranks, at, size = gradient
    fields = {"name": symbols.add(GRADIENT), "stream": BACKWARD_THREAD, "step": step}
    fields |= {"kind": EventKind.CPU_OP, "on_device": 0, "part": ANNOTATION, "bytes": size}
    fields["dtype"] = symbols.add("BFloat16")
    return _Part(fields, ranks, at, np.full(len(ranks), 1.0), {})


def _join_tables(parts: list[_Part], clock: Clock) -> dict[str, Ints]:
    counts = np.array([len(part.ranks) for part in parts])
    columns = {}
    for name in (*EVENTS.names, "part"):
        scalars = np.array([part.fields.get(name, NO_VALUE) for part in parts], np.int64)
        columns[name] = np.repeat(scalars, counts)
    for name in ("device", "group", "peer"):
        at = 0
        for part, count in zip(parts, counts.tolist(), strict=True):
            if name in part.own:
                columns[name][at : at + count] = part.own[name]
            at += count
    ranks = np.concatenate([part.ranks for part in parts])
    start = np.concatenate([part.start for part in parts])
    end = start + np.concatenate([part.dur for part in parts])
    columns["rank"], columns["start_ns"] = ranks, clock.show(ranks, start)
    columns["dur_ns"] = clock.show(ranks, end) - columns["start_ns"]
    return columns


def _emission_parts(
    emission: CallRecord, number: int, trace_style: TraceStyle, symbols: Symbols
) -> list[_Part]:
    call, ranks = emission.call, emission.ranks
    thread = BACKWARD_THREAD if call.backward else MAIN_THREAD
    kernels = TODAY if trace_style.kernel_names == "today" else YESTERDAY
    common = {"step": call.step, "correlation": number, "external_id": number, "on_device": 0}
    if call.module:
        path = symbols.add(call.module)
        common |= {"module": path, "module_path": path}
    host = common | {"stream": thread}
    operator = {"kind": EventKind.CPU_OP, "name": symbols.add(call.name), "part": HOST_OPERATOR}
    if call.shapes:
        operator["shapes"] = symbols.add(call.shapes)
    launch = {"kind": EventKind.RUNTIME, "name": symbols.add("cudaLaunchKernel"), "part": LAUNCH}
    kernel = common | {
        "kind": KINDS[call.kind],
        "name": symbols.add(kernels.get(call.kernel, call.kernel)),
        "stream": call.stream,
        "on_device": 1,
        "part": KERNEL,
    }
    if call.collective:
        kernel["collective"] = symbols.add(call.collective)
        kernel |= {"bytes": call.bytes, "dtype": symbols.add("BFloat16")}
    own = {"device": ranks % 8}
    if emission.peers is not None:
        own["peer"] = emission.peers
    begun, cost = emission.host_start, emission.host_dur
    called = np.minimum(LAUNCH_CALL_NS, 0.7 * cost)
    return [
        _Part(host | operator, ranks, begun, cost, {}),
        # An operator prepares first and launches last.
        _Part(host | launch, ranks, begun + cost - called, called, {}),
        _Part(kernel, ranks, emission.start, emission.end - emission.start, own),
    ]


def _number(columns: dict[str, Ints], trace_style: TraceStyle) -> None:
    """Give communications their sequence numbers, per rank and group, in order of launch."""
    chosen = np.flatnonzero(columns["group"] >= 0)
    exchange = columns["peer"][chosen] >= 0
    correlation = columns["correlation"][chosen]
    keys = (correlation, exchange, columns["group"][chosen], columns["rank"][chosen])
    order = np.lexsort(keys)
    changed = np.ones(len(order), bool)
    for key in keys[1:]:
        changed[1:] &= key[order][1:] == key[order][:-1]
    changed = ~changed
    changed[:1] = True
    place = np.arange(len(order))
    number = place - np.maximum.accumulate(np.where(changed, place, 0))
    if trace_style.identifiers in ("sequence", "comms_id"):
        columns["sequence"][chosen[order]] = number
    if trace_style.identifiers == "comms_id":
        group = columns["group"][chosen[order]]
        together = ~exchange[order]
        columns["comms_id"][chosen[order][together]] = (group * 1_000_003 + number)[together]


def _rank_table(columns: dict[str, Ints]) -> pa.Table:
    rows = np.arange(len(columns["rank"]))
    launches = columns["part"] == LAUNCH
    launcher = np.full(int(columns["correlation"].max(initial=0)) + 2, NO_VALUE, np.int64)
    launcher[columns["correlation"][launches]] = rows[launches]
    columns["launch"] = np.where(columns["part"] == KERNEL, launcher[columns["correlation"]], -1)
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in EVENTS]
    return pa.Table.from_arrays(arrays, schema=EVENTS)

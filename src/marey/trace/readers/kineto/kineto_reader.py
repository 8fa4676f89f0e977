"""PyTorch's Kineto traces of every generation: raw columns → the event table."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from marey.model.training.symbols import Symbols
from marey.model.training.traces import MEMORY, NO_VALUE, EventKind
from marey.trace.readers.columns_in_progress import Work
from marey.trace.readers.json.raw_columns import (
    FORWARD_FLOWS,
    NO_TIME,
    Block,
    Codes,
    Ints,
    Lane,
    RawEvents,
    Sparse,
    empty_block,
    narrow,
)
from marey.trace.readers.kernel_names import (
    IGNORED_CATEGORIES,
    MARKER,
    collective_name,
    communication_kind,
    find_category,
    is_communication_call,
    is_communication_kernel,
)
from marey.trace.readers.kineto.communication_columns import fill_communication, link_gloo
from marey.trace.readers.kineto.links import (
    Locator,
    flow_pairs,
    forward_by_sequence,
    launches,
    rows_by_key,
)
from marey.trace.readers.kineto.module_paths import keep_shapes, name_module_paths, name_phases
from marey.trace.readers.kineto.steps_and_modules import is_step, name_modules, number_steps
from marey.trace.readers.spans import Column, RankEvents, order_by_start, sort_again
from marey.trace.readers.thread_nesting import top_level
from marey.trace.readers.trace_info import RankInfo

_NUMBER = re.compile(r"-?[0-9]{1,18}")
# Threads that have no number of their own get one far from any thread id.
_UNNUMBERED = 1 << 40
# Host operators that wait for, or hand over to, another thread: no computation of their own.
_NO_WORK = re.compile(r"c10d|record_param_comms|wait_tensor", re.IGNORECASE)


Step = Callable[[Work], None]


def interpret(raw: RawEvents, info: RankInfo, *, before: Sequence[Step] = ()) -> RankEvents:
    """Return the kinds of raw events, and how the events are connected.

    ``before`` are steps of a dialect of its own, which come first.
    """
    work = _start(raw, info)
    for step in (*before, *STEPS):
        step(work)
    return _finish(work)


def _start(raw: RawEvents, info: RankInfo) -> Work:
    """Keep what is activity of the run, sorted by start, with the kind its category says."""
    spans, raw.spans = raw.spans, empty_block()
    kinds, devices, ignored = _category_tables(raw.texts, spans.category)
    kept = (spans.phase == ord("X")) & (spans.start_ns != NO_TIME) & ~ignored[spans.category]
    order = order_by_start(spans.start_ns, spans.dur_ns)
    order = order[kept[order]]
    del kept
    args = {}
    place = np.full(len(spans.phase), -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    for key in list(spans.args):
        moved = sort_again(spans.args.pop(key), place)
        if len(moved.rows):
            args[key] = moved
    del place

    def column(name: str) -> npt.NDArray[Any]:
        """Return one column in order.

        The unsorted one is let go, so that only one is held twice.
        """
        values: npt.NDArray[Any] = getattr(spans, name)[order]
        object.__setattr__(spans, name, None)
        return values

    category = column("category")
    work = Work(
        raw=raw,
        symbols=Symbols(),
        info=info,
        name=column("name"),
        category=category,
        lane=column("lane"),
        start_ns=column("start_ns"),
        dur_ns=column("dur_ns"),
        args=args,
        kind=kinds[category],
        on_device=devices[category],
        columns={},
        sparse={},
    )
    work.start_ns += np.int64(info.base_ns)
    return work


def _category_tables(texts: list[str], used: Codes) -> tuple[Any, Any, Any]:
    """Return by code of a category's text.

    The kind, whether on a device, whether to leave it out.
    """
    kinds = np.full(len(texts), EventKind.CPU_OP, np.int8)
    devices = np.zeros(len(texts), bool)
    ignored = np.zeros(len(texts), bool)
    for code in np.flatnonzero(np.bincount(used, minlength=1)):
        text = texts[code].lower()
        ignored[code] = text in IGNORED_CATEGORIES
        if category := find_category(text):
            kinds[code], devices[code] = category.kind, category.on_device
    return kinds, devices, ignored


def _place_on_lanes(work: Work) -> None:
    """Set device and stream of device events, thread of host events."""
    tids = narrow(np.array([_tid(lane, n) for n, lane in enumerate(work.raw.lanes)], np.int64))
    pids = narrow(np.array([_pid(lane) for lane in work.raw.lanes], np.int64))
    annotation = np.array([text == "gpu_user_annotation" for text in work.raw.texts])
    beside = work.on_device | work.kinds(EventKind.SYNC) | annotation[work.category]
    for key, of_lane in (("stream", tids), ("device", pids)):
        sparse = work.args.pop(key, None)
        mine = beside[sparse.rows] if sparse is not None else None
        wide = (
            narrow(np.append(of_lane, sparse.values)).dtype if sparse is not None else of_lane.dtype
        )
        column = of_lane.astype(wide)[work.lane]
        if key == "device":
            column[~beside] = NO_VALUE
        if sparse is not None:
            column[sparse.rows[mine]] = sparse.values[mine]
        work.columns[key] = column


def _tid(lane: Lane, position: int) -> int:
    value = lane[1]
    if isinstance(value, int):
        return value
    found = _NUMBER.search(value) if value else None
    return int(found.group()) if found else _UNNUMBERED + position


def _pid(lane: Lane) -> int:
    return lane[0] if isinstance(lane[0], int) and abs(lane[0]) < 2**31 else NO_VALUE


def _name_kernels(work: Work) -> None:
    """Make kernels of communication libraries transfers, whatever the category calls them."""
    kernels = work.on_device & work.kinds(EventKind.COMPUTE)
    talking = kernels & work.names_where(is_communication_kernel)
    work.kind[talking] = _communication_kinds(work, talking)


def _communication_kinds(work: Work, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """Return collective, send or receive, as the names of these rows say."""
    kinds = np.zeros(len(work.raw.texts), np.int8)
    for code in work.used_names:
        kinds[code] = communication_kind(collective_name(work.raw.texts[code]))
    return kinds[work.name[rows]]


def _name_markers(work: Work) -> None:
    """Make steps and the like annotations, also where the category says operator."""
    marks = work.kinds(EventKind.CPU_OP) & work.names_where(lambda n: MARKER.match(n) is not None)
    work.kind[marks] = EventKind.ANNOTATION


def _stand_in_for_devices(work: Work) -> None:
    """Count operators and gloo's run loop as device activity where there are no device events."""
    if work.on_device.any() or not work.size:
        return
    work.info = dataclasses.replace(work.info, has_device=False)
    gloo = work.kinds(EventKind.ANNOTATION, EventKind.CPU_OP) & work.names_where(
        lambda n: n.startswith("gloo:") and is_communication_call(n)
    )
    work.kind[gloo] = _communication_kinds(work, gloo)
    transfers = work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)
    operators = work.kinds(EventKind.CPU_OP)
    rows = np.flatnonzero(operators & _find_computing_lanes(work)[work.lane])
    end_ns = work.start_ns[rows] + work.dur_ns[rows]
    top = rows[top_level(work.lane[rows], work.start_ns[rows], end_ns)]
    idle = work.names_where(lambda n: _NO_WORK.search(n) is not None)
    top = top[~idle[top]]
    work.kind[top] = EventKind.COMPUTE
    work.on_device[top] = True
    work.on_device[transfers] = True


def _find_computing_lanes(work: Work) -> npt.NDArray[np.bool_]:
    """Return threads whose operators are the training itself: those with steps, and autograd's."""
    chosen = np.zeros(len(work.raw.lanes), bool)
    stepping = work.names_where(is_step)
    if not stepping.any():
        return ~chosen
    chosen[np.unique(work.lane[stepping])] = True
    metadata = work.raw.metadata
    names = metadata.args.get("name")
    if names is not None:
        for row, code in zip(names.rows, names.values, strict=True):
            if "pt_autograd" in work.raw.texts[code]:
                chosen[metadata.lane[row]] = True
    return chosen


def _link_launches(work: Work) -> None:
    """Link device events to runtime calls by correlation, runtime calls to operators by External
    id.
    """
    launch = work.column("launch")
    correlation = work.args.get("correlation") or work.args.get("correlation id")
    runtime = work.kinds(EventKind.RUNTIME)
    rows, found = launches(correlation, work.on_device | work.kinds(EventKind.SYNC), runtime)
    launch[rows] = found
    external = _external(work)
    if external is None:
        return
    owners = np.flatnonzero(work.kinds(EventKind.CPU_OP)[external.rows])
    is_owner = external.rows[owners].astype(np.int64)
    missing = launch[external.rows] < 0
    asking = np.flatnonzero(missing & (runtime | work.on_device)[external.rows])
    found = rows_by_key(external.values[owners], is_owner, external.values[asking])
    asked = external.rows[asking]
    good = (found >= 0) & (found != asked)
    # Some generations repeat the correlation as External id: a call must lie in its operator.
    inside = work.start_ns[asked] <= work.start_ns[found] + work.dur_ns[found]
    same = (work.lane[asked] == work.lane[found]) & inside
    good &= (work.start_ns[found] <= work.start_ns[asked]) & (same | ~runtime[asked])
    launch[asked[good]] = found[good]


def _external(work: Work) -> Sparse | None:
    """Return the External id under either of its spellings."""
    return work.args.get("External id") or work.args.get("external id")


def _link_forward(work: Work) -> None:
    """Link backward operators to forward ones: by flows, else by sequence numbers."""
    forward = work.column("forward")
    flows = work.raw.flows
    is_fwdbwd = np.array([t.startswith(FORWARD_FLOWS) for t in work.raw.texts] or [False])
    begins, ends = flow_pairs(flows, is_fwdbwd)
    if len(begins):
        operators = np.flatnonzero(
            work.kinds(EventKind.CPU_OP, EventKind.COMPUTE) & (work.columns["device"] < 0)
        )
        locate = Locator(work.lane, work.start_ns, operators)
        base = np.int64(work.info.base_ns)
        source = locate.find(flows.lane[begins], flows.start_ns[begins] + base)
        target = locate.find(flows.lane[ends], flows.start_ns[ends] + base)
        good = (source >= 0) & (target >= 0) & (source != target)
        forward[target[good]] = source[good]
        return
    backward, found = forward_by_sequence(
        work.args.get("Sequence number"), work.args.get("Fwd thread id"), work.size
    )
    forward[backward] = found


def _keep_ids(work: Work) -> None:
    """Keep the ids that the trace itself uses, and what a synchronisation waits for."""
    for name, sparse in (
        ("correlation", work.args.get("correlation")),
        ("external_id", _external(work)),
        ("wait_stream", work.args.get("wait_on_stream")),
        ("wait_correlation", work.args.get("wait_on_cuda_event_record_corr_id")),
    ):
        if sparse is not None:
            work.sparse[name] = sparse


STEPS: tuple[Step, ...] = (
    _place_on_lanes,
    _name_kernels,
    _name_markers,
    _stand_in_for_devices,
    _link_launches,
    link_gloo,
    _link_forward,
    number_steps,
    name_modules,
    name_phases,
    name_module_paths,
    keep_shapes,
    fill_communication,
    _keep_ids,
)


def _finish(work: Work) -> RankEvents:
    codes = np.zeros(len(work.raw.texts), np.int32)
    for code in work.used_names:
        codes[code] = work.symbols.add(work.raw.texts[code])
    host = work.symbols.add(work.info.host)
    memory = memory_table(work.raw.instants, work.info.base_ns)
    columns: dict[str, Column] = {
        **work.columns,
        **work.sparse,
        "name": codes[work.name],
        "kind": work.kind,
        "on_device": work.on_device,
        "start_ns": work.start_ns,
        "dur_ns": work.dur_ns,
        "rank": work.info.rank,
        "host": host,
    }
    return RankEvents(work.info, work.symbols, columns, memory)


def memory_table(instants: Block, base_ns: int) -> pa.Table:
    """Return the allocations among the instant events."""
    size = instants.args.get("Bytes")
    if size is None:
        return MEMORY.empty_table()
    rows = size.rows[instants.start_ns[size.rows] != NO_TIME]
    rows = rows[np.argsort(instants.start_ns[rows], kind="stable")]

    def column(key: str) -> Ints:
        values = np.full(len(instants.phase), NO_VALUE, np.int64)
        if sparse := instants.args.get(key):
            values[sparse.rows] = sparse.values
        chosen: Ints = values[rows]
        return chosen

    device = np.where(column("Device Type") == 0, NO_VALUE, column("Device Id"))
    columns = [
        instants.start_ns[rows] + base_ns,
        device.astype(np.int32),
        column("Bytes"),
        column("Total Allocated"),
        column("Total Reserved"),
    ]
    return pa.Table.from_arrays([pa.array(c) for c in columns], schema=MEMORY)

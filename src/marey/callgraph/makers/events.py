"""Events of a trace → call graphs: stacks by nesting, kernels under their launch.

The tree is made of host events (Python functions, operators, annotations, runtime calls), nested
by time on their thread. Device work hangs below the call that launched it, or below an explicit
"(unlinked)" root. Backward operators stay on their own thread, or hang below their forward
operator where that is asked for. What is grafted keeps its own time: its caller's does not hold it.

In a trace without a device the outermost operators stand for device work. They are left out of
the tree unless ``all_operators`` asks for them; what they call is there either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.callgraph.names import normalise_names
from marey.callgraph.profiles import Floats, MadeProfiles, Profile, ProfileInfo
from marey.callgraph.trees import KIND_CODES, Tree, Uniter, order_parents_first, sum_up
from marey.model.errors import InvalidInput, shown
from marey.model.training.callgraphs import BACKWARD, UNLINKED, NodeKind
from marey.model.training.traces import DEVICE_KINDS, EventKind
from marey.stats.nesting import find_enclosing

# The columns of ``model.traces.EVENTS`` that the maker reads.
EVENT_COLUMNS = (
    "device on_device stream start_ns dur_ns kind name launch forward step module".split()
)
SPLITS = ("rank", "step", "thread")
METRICS = ("time", "device_time")
HOST_KINDS = (EventKind.RUNTIME, EventKind.CPU_OP, EventKind.ANNOTATION, EventKind.PYTHON)

_NODE_KINDS = {
    EventKind.RUNTIME: NodeKind.RUNTIME,
    EventKind.CPU_OP: NodeKind.OPERATOR,
    EventKind.ANNOTATION: NodeKind.ANNOTATION,
    EventKind.PYTHON: NodeKind.PYTHON,
    EventKind.SYNC: NodeKind.RUNTIME,
    EventKind.COMPUTE: NodeKind.KERNEL,
    EventKind.MEMCPY: NodeKind.KERNEL,
    EventKind.MEMSET: NodeKind.KERNEL,
    EventKind.COLLECTIVE: NodeKind.TRANSFER,
    EventKind.SEND: NodeKind.TRANSFER,
    EventKind.RECV: NodeKind.TRANSFER,
}

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class EventOptions:
    """How events become profiles."""

    # One profile per rank, or per step or thread of it.
    split: str = "rank"
    # time: each call's own clock. device_time: what a call made the device do.
    metric: str = "time"
    backward_under_forward: bool = False
    all_operators: bool = False
    aliases: Mapping[str, str] | None = None


def make_from_events(
    tables: Mapping[int, pa.Table],
    texts: Sequence[str],
    *,
    run: str = "",
    options: EventOptions | None = None,
) -> MadeProfiles:
    """Make the profiles of every rank from its event table and the run's symbol texts."""
    options = options or EventOptions()
    _check(options)
    names = normalise_names(texts, options.aliases)
    profiles: list[Profile] = []
    notes: list[str] = []
    for rank, table in tables.items():
        made, rank_notes = _make_rank(table, names, ProfileInfo(run, rank), options)
        profiles += made
        notes += [f"rank {rank}: {text}" for text in rank_notes]
    return MadeProfiles(profiles, "ns", "trace", tuple(notes))


def _check(options: EventOptions) -> None:
    for word, known in (("split", SPLITS), ("metric", METRICS)):
        if (value := getattr(options, word)) not in known:
            raise InvalidInput(f"Unknown {word} '{shown(value)}'; allowed: {', '.join(known)}.")


@dataclass(frozen=True)
class _Calls:
    """Every event that becomes part of the tree, with its parent among them."""

    # Row in the event table; -1 for a node that was put in.
    row: Rows
    # Row whose step and thread count: the row itself, or that of what a put-in node is for.
    source: Rows
    parent: Rows
    name: Rows
    kind: NDArray[np.int8]
    dur: Floats
    # Time of the events directly inside, on the same thread.
    inner: Floats
    device: NDArray[np.bool_]


def _make_rank(
    table: pa.Table, names: list[str], info: ProfileInfo, options: EventOptions
) -> tuple[list[Profile], list[str]]:
    columns = {
        name: table[name].to_numpy(zero_copy_only=False)
        for name in EVENT_COLUMNS
        if name in table.column_names
    }
    words = [*names, UNLINKED, BACKWARD]
    calls, notes = _collect(columns, len(names), options)
    tree, node_of = _tree(calls, columns.get("module"), words)
    group, infos = _groups(columns, calls, info, options.split)
    return _profiles(
        tree, node_of=node_of, calls=calls, groups=(group, infos), metric=options.metric
    ), notes


def _collect(
    columns: Mapping[str, NDArray[np.int64]], words: int, options: EventOptions
) -> tuple[_Calls, list[str]]:
    """Nest the host's events, then graft what the device did."""
    kind = columns["kind"]
    wanted = [*HOST_KINDS, *((EventKind.COMPUTE,) if options.all_operators else ())]
    host = np.flatnonzero(np.isin(kind, wanted) & (columns["device"] < 0))
    stream, start = columns["stream"][host], columns["start_ns"][host]
    dur = columns["dur_ns"][host]
    order = np.lexsort((-dur, start))
    host, stream, start, dur = host[order], stream[order], start[order], dur[order]
    nested = find_enclosing(stream, start, dur)
    inner = np.bincount(nested[nested >= 0], dur[nested >= 0], minlength=len(host)).astype(float)
    node_kinds = np.array([KIND_CODES[_NODE_KINDS[EventKind(k)]] for k in EventKind], np.int8)
    calls = _Calls(
        row=host,
        source=host,
        parent=nested,
        name=columns["name"][host].astype(np.int64),
        kind=node_kinds[kind[host]]
        if not options.all_operators
        else _operators(node_kinds)[kind[host]],
        dur=dur.astype(float),
        inner=inner,
        device=np.zeros(len(host), bool),
    )
    notes: list[str] = []
    if options.backward_under_forward and "forward" in columns:
        calls = _graft_backward(calls, columns, words + 1, notes)
    return _graft_device(
        calls, columns=columns, node_kinds=node_kinds, word=words, notes=notes
    ), notes


def _operators(node_kinds: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return the kinds with operators that stand for device work called operators."""
    moved = node_kinds.copy()
    moved[EventKind.COMPUTE] = KIND_CODES[NodeKind.OPERATOR]
    return moved


def _place_of_rows(calls: _Calls, size: int) -> Rows:
    place = np.full(size + 1, -1, np.int64)
    own = calls.row >= 0
    place[calls.row[own]] = np.flatnonzero(own)
    place[size] = -1
    return place


def _graft_backward(
    calls: _Calls, columns: Mapping[str, NDArray[np.int64]], word: int, notes: list[str]
) -> _Calls:
    """Hang each backward operator below a "(backward)" node of its forward operator."""
    place = _place_of_rows(calls, len(columns["kind"]))
    forward = place[columns["forward"][calls.row]]
    start = columns["start_ns"]
    linked = np.flatnonzero(forward >= 0)
    # A forward operator started before: what does not is a quirk of ids, and could make a cycle.
    earlier = start[calls.row[forward[linked]]] < start[calls.row[linked]]
    linked = linked[earlier]
    if not len(linked):
        notes.append("no backward operator is linked to its forward")
        return calls
    extra = np.arange(len(linked))
    parent = calls.parent.copy()
    parent[linked] = len(calls.row) + extra
    added = _Calls(
        row=np.full(len(linked), -1, np.int64),
        source=calls.row[linked],
        parent=forward[linked],
        name=np.full(len(linked), word, np.int64),
        kind=np.full(len(linked), KIND_CODES[NodeKind.BACKWARD], np.int8),
        dur=calls.dur[linked],
        inner=calls.dur[linked],
        device=np.zeros(len(linked), bool),
    )
    return _append(replace(calls, parent=parent), added)


def _graft_device(
    calls: _Calls,
    *,
    columns: Mapping[str, NDArray[np.int64]],
    node_kinds: NDArray[np.int8],
    word: int,
    notes: list[str],
) -> _Calls:
    """Hang device work below the call that launched it, the rest below "(unlinked)"."""
    device = np.flatnonzero(np.isin(columns["kind"], DEVICE_KINDS) & (columns["device"] >= 0))
    if not len(device):
        return calls
    place = _place_of_rows(calls, len(columns["kind"]))
    launcher = place[columns["launch"][device]]
    lost = launcher < 0
    notes.append(f"{int((~lost).sum())} of {len(device)} device events have a known launch")
    dur = columns["dur_ns"][device].astype(float)
    count = int(lost.sum())
    roots = _Calls(
        row=np.full(count, -1, np.int64),
        source=device[lost],
        parent=np.full(count, -1, np.int64),
        name=np.full(count, word, np.int64),
        kind=np.full(count, KIND_CODES[NodeKind.UNLINKED], np.int8),
        dur=dur[lost],
        inner=dur[lost],
        device=np.zeros(count, bool),
    )
    launcher[lost] = len(calls.row) + np.arange(count)
    kernels = _Calls(
        row=device,
        source=device,
        parent=launcher,
        name=columns["name"][device].astype(np.int64),
        kind=node_kinds[columns["kind"][device]],
        dur=dur,
        inner=np.zeros(len(device)),
        device=np.ones(len(device), bool),
    )
    return _append(_append(calls, roots), kernels)


def _append(a: _Calls, b: _Calls) -> _Calls:
    joined = [np.concatenate([getattr(a, f.name), getattr(b, f.name)]) for f in fields(_Calls)]
    return _Calls(*joined)


def _tree(
    calls: _Calls, module: NDArray[np.int64] | None, words: list[str]
) -> tuple[Tree, NDArray[np.int32]]:
    """Unite the calls by path; rows come parents first already, but for what was put in."""
    order = (
        np.arange(len(calls.row))
        if bool((calls.parent < np.arange(len(calls.row))).all())
        else order_parents_first(calls.parent.astype(np.int32))
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    parent = calls.parent[order]
    of_module = np.full(len(order), -1, np.int32)
    if module is not None and len(order):
        rows = calls.row[order]
        of_module = np.where(rows >= 0, module[rows], -1).astype(np.int32)
    texts = list(dict.fromkeys(words))
    code_of = {text: code for code, text in enumerate(texts)}
    codes = np.array([code_of[word] for word in words], np.int32)
    rows_tree = Tree(
        np.where(parent >= 0, place[parent], -1).astype(np.int32),
        codes[calls.name[order]] if len(order) else np.empty(0, np.int32),
        texts,
        calls.kind[order],
        np.where(of_module >= 0, codes[of_module], -1).astype(np.int32),
    )
    uniter = Uniter()
    found = uniter.add(rows_tree)
    node_of = np.empty(len(order), np.int32)
    node_of[order] = found
    return uniter.tree(), node_of


def _groups(
    columns: Mapping[str, NDArray[np.int64]], calls: _Calls, info: ProfileInfo, split: str
) -> tuple[Rows, list[ProfileInfo]]:
    """Return the profile of every call (-1: of none), and whose profile each is."""
    if split == "rank":
        return np.zeros(len(calls.row), np.int64), [info]
    column = columns["step" if split == "step" else "stream"]
    own = column[calls.source]
    distinct = np.unique(own[own >= 0]) if split == "step" else np.unique(own)
    group = np.searchsorted(distinct, own)
    group = np.where(np.isin(own, distinct), group, -1)
    if split == "step":
        return group, [ProfileInfo(info.run, info.rank, step=int(s)) for s in distinct]
    return group, [ProfileInfo(info.run, info.rank, thread=int(s)) for s in distinct]


def _profiles(
    tree: Tree,
    *,
    node_of: NDArray[np.int32],
    calls: _Calls,
    groups: tuple[Rows, list[ProfileInfo]],
    metric: str,
) -> list[Profile]:
    group, infos = groups
    made = []
    for number, info in enumerate(infos):
        mine = np.flatnonzero(group == number)
        at, size = node_of[mine], len(tree)
        count = np.bincount(at, minlength=size)
        own = calls.device * calls.dur if metric == "device_time" else calls.dur - calls.inner
        exclusive = np.bincount(at, own[mine].clip(0), minlength=size).astype(float)
        if metric == "device_time":
            inclusive = exclusive.copy()
            sum_up(tree.parent, inclusive)
        else:
            inclusive = np.bincount(at, calls.dur[mine], minlength=size).astype(float)
        kept = np.flatnonzero((count > 0) | (inclusive > 0)).astype(np.int32)
        counted = count[kept].astype(float)
        made.append(
            Profile(
                tree=tree,
                nodes=kept,
                inclusive=inclusive[kept],
                exclusive=exclusive[kept],
                calls=counted,
                info=info,
            )
        )
    return made

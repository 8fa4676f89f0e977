"""PyTorch execution traces (Chakra's JSON): what ran in which order, usually without times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.kernel_names import (
    MARKER,
    collective_name,
    dtype_bytes,
    is_communication_call,
)
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.spans import RankEvents
from marey.trace.readers.streams import TraceBytes
from marey.trace.readers.trace_info import RankInfo

NAME = "chakra"
VERSION = 1
# The whole file is decoded at once; a larger one is refused rather than half read.
LARGEST_BYTES = 2 << 30
# Without times an operation lasts one unit and its place in the order is its start.
UNIT_NS = 1000
_SCHEMA = re.compile(rb'"schema"\s*:\s*"[0-9.]+(?:-chakra[0-9.]*)?"')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')
# A whole model's forward, which holds its operators.
_WHOLE = re.compile(r"^\w+\.forward$")
_GROUP_INIT = "## process_group:init ##"


class ChakraAttribute(msgspec.Struct, gc=False):
    """One attribute of a node."""

    name: str = ""
    value: Any = None


class ChakraNode(msgspec.Struct, gc=False):
    """One operation; ``parent`` and the flat fields are the first schema's, the rest today's."""

    id: int
    name: str = ""
    ctrl_deps: Any = None
    parent: Any = None
    attrs: list[ChakraAttribute] = msgspec.field(default_factory=list)
    inputs: Any = None
    rf_id: int = NO_VALUE
    tid: int = 0
    # Only in traces that were joined with a profile, in microseconds.
    ts: float | None = None
    dur: float | None = None


class Trace(msgspec.Struct, gc=False):
    """The whole file."""

    nodes: list[ChakraNode]
    schema: str = ""
    pid: Any = None


_decoder = msgspec.json.Decoder(Trace)


def sniff(path: Path, head: bytes) -> bool:
    """Return whether this is a schema with Chakra's version, and nodes instead of traceEvents."""
    return _SCHEMA.search(head) is not None and (
        _NODES.search(head) is not None or b"chakra" in head[:4096]
    )


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return the nodes as host events, in their order."""
    with TraceBytes(path) as stream:
        text = stream.read_all(LARGEST_BYTES)
        damage = stream.damage
    if text is None:
        return FileEvents(iter(()), [f"is larger than {LARGEST_BYTES >> 30} GB and is not read"])
    try:
        trace = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = damage or str(error)[:200]
        return FileEvents(iter(()), [f"is not a whole execution trace ({reason})"])
    timed = any(node.ts is not None for node in trace.nodes)
    problems = [] if timed else ["is an execution trace: it has an order, but no times"]
    return FileEvents(_rank(trace, path.name), problems)


def _rank(trace: Trace, source: str) -> Iterator[RankEvents]:
    if not trace.nodes:
        return
    nodes = sorted(trace.nodes, key=lambda node: (node.ts or 0.0, node.id))
    start, dur = _times(nodes)
    symbols = Symbols()
    attributes = [{a.name: a.value for a in node.attrs} for node in nodes]
    groups = _groups(nodes)
    rf_ids = [_int(a.get("rf_id"), node.rf_id) for a, node in zip(attributes, nodes, strict=True)]
    columns: dict[str, Any] = {
        "rank": NO_VALUE,
        "host": symbols.add(""),
        "device": NO_VALUE,
        "on_device": np.zeros(len(nodes), bool),
        "stream": np.array(
            [_int(a.get("tid"), node.tid) for a, node in zip(attributes, nodes, strict=True)]
        ),
        "start_ns": start,
        "dur_ns": dur,
        "kind": np.array([_kind(node.name) for node in nodes], np.int8),
        "name": symbols.add_all([node.name for node in nodes]),
        "external_id": np.array(rf_ids, np.int64),
        "record_id": np.array(rf_ids, np.int64),
        **_communication(nodes, attributes, symbols),
    }
    info = RankInfo(
        rank=-1,
        world_size=max((len(g) for g in groups.values()), default=None),
        framework="chakra",
        groups=groups,
        source=source,
        has_device=False,
        timed=any(node.ts is not None for node in nodes),
    )
    yield RankEvents(info, symbols, columns)


def _times(nodes: list[ChakraNode]) -> tuple[Any, Any]:
    """Return recorded times, or the order: a node starts at its place and lasts over what it
    contains.
    """
    if any(node.ts is not None for node in nodes):
        start = [_ns(node.ts) for node in nodes]
        return np.array(start, np.int64), np.array([_ns(node.dur) for node in nodes], np.int64)
    start_ns = np.arange(len(nodes), dtype=np.int64) * UNIT_NS
    end_ns = start_ns + UNIT_NS
    for row, parent in reversed(list(enumerate(_parents(nodes)))):
        if 0 <= parent < row:
            end_ns[parent] = max(end_ns[parent], end_ns[row])
    return start_ns, end_ns - start_ns


def _ns(microseconds: float | None) -> int:
    value = microseconds or 0.0
    return round(value * 1000) if abs(value) < 9e15 else 0


def _parents(nodes: list[ChakraNode]) -> list[int]:
    """Return the row of each node's parent, or -1."""
    row_of = {node.id: row for row, node in enumerate(nodes)}
    found = []
    for row, node in enumerate(nodes):
        named = node.ctrl_deps if node.ctrl_deps is not None else node.parent
        if isinstance(named, list):
            named = named[0] if named else None
        parent = row_of.get(named, NO_VALUE) if isinstance(named, int) else NO_VALUE
        found.append(parent if parent != row else NO_VALUE)
    return found


def _kind(name: str) -> int:
    if name.startswith(("[pytorch|", "## ", "nccl:")) or MARKER.match(name) or _WHOLE.match(name):
        return EventKind.ANNOTATION
    return EventKind.CPU_OP


def _communication(
    nodes: list[ChakraNode], attributes: list[dict[str, Any]], symbols: Symbols
) -> dict[str, Any]:
    size = len(nodes)
    columns = {
        name: np.full(size, NO_VALUE, np.int64)
        for name in ("group", "bytes", "dtype", "collective")
    }
    for row, (node, known) in enumerate(zip(nodes, attributes, strict=True)):
        stated = known.get("collective_name")
        text = stated if isinstance(stated, str) and stated else ""
        if not text and is_communication_call(node.name):
            text = node.name
        if not (name := collective_name(text)):
            continue
        columns["collective"][row] = symbols.add(name)
        dtype = known.get("dtype")
        if isinstance(dtype, str) and dtype:
            columns["dtype"][row] = symbols.add(dtype)
            count = _int(known.get("in_msg_nelems"), 0) or _int(known.get("out_msg_nelems"), 0)
            if 0 < count < 2**58 and dtype_bytes(dtype):
                columns["bytes"][row] = count * dtype_bytes(dtype)
        group = known.get("pg_name")
        if isinstance(group, str) and group:
            columns["group"][row] = symbols.add(group)
    return columns


def _groups(nodes: list[ChakraNode]) -> dict[str, tuple[int, ...]]:
    """Process groups from the node that describes them; an empty list of ranks means all."""
    for node in nodes:
        if node.name == _GROUP_INIT and isinstance(node.inputs, dict):
            values = node.inputs.get("values")
            text = values[0] if isinstance(values, list) and values else None
            try:
                described = msgspec.json.decode(text) if isinstance(text, str) else []
            except msgspec.MsgspecError:
                described = []
            return dict(
                filter(None, map(_one_group, described if isinstance(described, list) else []))
            )
    return {}


def _one_group(entry: Any) -> tuple[str, tuple[int, ...]] | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("pg_name"), str):
        return None
    ranks = entry.get("ranks")
    listed = tuple(r for r in ranks if type(r) is int) if isinstance(ranks, list) else ()
    size = min(_int(entry.get("group_size"), 0), 1 << 20)
    return entry["pg_name"], listed or tuple(range(size))


def _int(value: Any, missing: int) -> int:
    return value if type(value) is int and abs(value) < 2**63 else missing

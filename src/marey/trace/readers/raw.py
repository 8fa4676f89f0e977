"""Raw columns: what both JSON parsers produce, before anybody says what an event means.

A parser turns a block of Chrome-trace events into a ``Block``. Text is coded in the parser's own
table, a (process, thread) pair is a *lane*. Arguments are sparse: most events have few of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Lane = tuple[int | str | None, int | str | None]

# Arguments read as numbers. A value that is no number, and no text of one, counts as missing.
INT_ARGS = (
    "External id",
    "external id",
    "correlation",
    "stream",
    "device",
    "bytes",
    "Bytes",
    "Device Id",
    "Device Type",
    "Total Allocated",
    "Total Reserved",
    "Sequence number",
    "Fwd thread id",
    "Seq",
    "In msg nelems",
    "Out msg nelems",
    "Group size",
    "Src Rank",
    "Dst Rank",
    "Rank",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
    "device_ordinal",
    "step_num",
    "run_id",
    "group_id",
    "step",
    "mb_id",
    "model_chunk",
    "seq_id",
)
# Arguments read as text and coded; a whole number becomes its digits.
TEXT_ARGS = (
    "name",
    "dtype",
    "Collective name",
    "Process Group Name",
    "Process Group ID",
    "Process Group Description",
    "Process Group Ranks",
    "Comms Id",
    "hlo_op",
    "hlo_module",
    "long_name",
    "tf_op",
    "Module Hierarchy",
)
# Arguments kept as the JSON text they are, and only for events that communicate: an operator's
# shapes are most of a trace's bytes, and only a transfer's size is needed from them.
JSON_ARGS = ("Input Dims", "Input type", "Concrete Inputs")
COMMUNICATION_PREFIXES = ("c10d::", "gloo:", "nccl:", "_c10d_functional::", "record_param_comms")

# Phases that carry something; the rest (counters, clock syncs, …) is passed over.
PHASES = b"XBEsftiIM"
# Above this a double no longer holds microseconds to the nanosecond, so the digits are read.
EXACT_DOUBLE_US = float(2**43)
# A time beyond this (the year 2262) does not fit into nanoseconds: the event has no usable time.
LARGEST_US = 9_000_000_000_000_000
NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Sparse:
    """The rows that have a value, and the values (numbers, or codes of texts)."""

    rows: Codes
    values: Ints


@dataclass(frozen=True)
class Block:
    """The events of one block, one row each, in the order of the file."""

    phase: npt.NDArray[np.uint8]
    category: Codes
    name: Codes
    lane: Codes
    start_ns: Ints
    dur_ns: Ints
    # Key of the argument → values; "id" is the event's own (flows).
    args: dict[str, Sparse]


class Parser(Protocol):
    """Turns the JSON text of an array of events into raw columns."""

    def parse(self, buffer: bytearray, start: int, stop: int) -> Block | None:
        """The events of ``buffer[start:stop]``, a JSON array; None if that is not valid JSON."""

    def texts(self) -> list[str]:
        """Every text coded so far, at the position of its code."""

    def lanes(self) -> list[Lane]:
        """Every (process, thread) seen so far, at the position of its code."""


_DENSE = ("category", "name", "lane", "start_ns", "dur_ns")


@dataclass
class RawEvents:
    """A whole file's raw columns: duration events, flows, allocations and metadata kept apart."""

    texts: list[str]
    lanes: list[Lane]
    spans: Block
    flows: Block
    instants: Block
    metadata: Block


@dataclass
class Collector:
    """Gathers blocks by what they hold, in pieces that are joined once at the end."""

    parts: dict[str, list[Block]] = field(
        default_factory=lambda: {"spans": [], "flows": [], "instants": [], "metadata": []}
    )
    rows: int = 0

    def add(self, block: Block) -> None:
        """Keep the rows of this block that carry something."""
        for part, phases in _PARTS.items():
            rows = np.flatnonzero(np.isin(block.phase, phases))
            if len(rows):
                self.parts[part].append(_take(block, rows, _PART_ARGS[part]))
                self.rows += len(rows)

    def finish(self, parser: Parser) -> RawEvents:
        """Everything that was added, as one set of columns."""
        joined = {part: _join(blocks) for part, blocks in self.parts.items()}
        self.parts = {}
        return RawEvents(parser.texts(), parser.lanes(), **joined)


_PARTS = {
    "spans": np.frombuffer(b"XBE", np.uint8),
    "flows": np.frombuffer(b"sft", np.uint8),
    "instants": np.frombuffer(b"iI", np.uint8),
    "metadata": np.frombuffer(b"M", np.uint8),
}
_MEMORY_ARGS = ("Bytes", "Device Id", "Device Type", "Total Allocated", "Total Reserved")
_PART_ARGS: dict[str, frozenset[str]] = {
    "spans": frozenset(INT_ARGS + TEXT_ARGS + JSON_ARGS) - frozenset(_MEMORY_ARGS),
    "flows": frozenset({"id"}),
    "instants": frozenset(_MEMORY_ARGS),
    "metadata": frozenset({"name"}),
}


def _take(block: Block, rows: npt.NDArray[np.intp], wanted: frozenset[str]) -> Block:
    """The given rows of a block, with the arguments renumbered."""
    everything = len(rows) == len(block.phase)
    place = np.full(len(block.phase), -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    args = {}
    for key, sparse in block.args.items():
        if key not in wanted:
            continue
        if everything:
            args[key] = sparse
            continue
        new = place[sparse.rows]
        kept = new >= 0
        if kept.any():
            args[key] = Sparse(new[kept], sparse.values[kept])
    dense = {name: getattr(block, name)[rows] for name in _DENSE}
    return Block(phase=block.phase[rows], args=args, **dense)


def _join(blocks: list[Block]) -> Block:
    """The blocks one after the other; each piece is let go as soon as it is copied."""
    if not blocks:
        return empty_block()
    starts = np.cumsum([0] + [len(b.phase) for b in blocks])
    keys = sorted({key for b in blocks for key in b.args})
    args = {}
    for key in keys:
        rows = [
            b.args[key].rows + np.int32(s)
            for b, s in zip(blocks, starts, strict=False)
            if key in b.args
        ]
        values = [b.args.pop(key).values for b in blocks if key in b.args]
        args[key] = Sparse(np.concatenate(rows), np.concatenate(values))
        del rows, values
    dense = {}
    for name in ("phase", *_DENSE):
        dense[name] = np.concatenate([getattr(b, name) for b in blocks])
        for b in blocks:
            object.__setattr__(b, name, None)
    return Block(args=args, **dense)


def empty_block() -> Block:
    """No events at all."""
    none = np.empty(0, np.int32)
    times = np.empty(0, np.int64)
    return Block(np.empty(0, np.uint8), none, none, none, times, times, {})

"""Raw columns: what both JSON parsers produce, before anybody says what an event means.

A parser turns a block of Chrome-trace events into a ``Block``. Text is coded in the parser's own
table, a (process, thread) pair is a *lane*. Arguments are sparse: most events have few of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

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
    "correlation id",
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
    "Src Rank",
    "Dst Rank",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
    "device_ordinal",
    "step_num",
    "run_id",
    "Record function id",
)
# Arguments read as text and coded; a whole number becomes its digits.
TEXT_ARGS = (
    "name",
    "dtype",
    "Collective name",
    "Process Group Name",
    "Process Group ID",
    "Comms Id",
    "hlo_op",
    "hlo_module",
    "Module Hierarchy",
)
# Flows that say what nothing else does: forward → backward, and Ascend's launches.
FORWARD_FLOWS, LAUNCH_FLOWS = "fwdbwd", "HostToDevice"
USEFUL_FLOWS = (FORWARD_FLOWS, LAUNCH_FLOWS)
# Arguments kept as the JSON text they are, each text once, and only for operators: those that
# communicate or make a gradient ready are read for sizes, the rest keep their shapes as they are.
JSON_ARGS = ("Input Dims", "Input type", "Concrete Inputs")
COMMUNICATION_PREFIXES = ("c10d::", "gloo:", "nccl:", "_c10d_functional::", "record_param_comms")
GRADIENT_PREFIX = "torch::autograd::AccumulateGrad"
SHAPED_PREFIXES = (*COMMUNICATION_PREFIXES, GRADIENT_PREFIX)
OPERATOR_PREFIXES = (
    *SHAPED_PREFIXES,
    "aten::",
    "fsdp::",
    "autograd::",
    "torch::",
    "flash_attn::",
    "xformers::",
)

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
        """Return the events of ``buffer[start:stop]``, a JSON array.

        None if that is not valid JSON.
        """

    def texts(self) -> list[str]:
        """Return every text coded so far, at the position of its code."""

    def lanes(self) -> list[Lane]:
        """Return every (process, thread) seen so far, at the position of its code."""


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
class BlockCollector:
    """Gathers blocks by what they hold, in pieces that are joined once at the end."""

    parts: dict[str, list[Block]] = field(
        default_factory=lambda: {"spans": [], "flows": [], "instants": [], "metadata": []}
    )
    # By code of a category: whether its flows say something that is not known otherwise.
    _flow_categories: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def add(self, block: Block, parser: Parser) -> None:
        """Keep the rows of this block that carry something."""
        part_of_row = _PART_OF_PHASE[block.phase]
        for number, part in enumerate(_PARTS):
            rows = np.flatnonzero(part_of_row == number)
            if len(rows) and part == "flows":
                rows = rows[self._useful_flows(block.category[rows], parser)]
            if len(rows):
                self.parts[part].append(_take(block, rows, _PART_ARGS[part]))

    def _useful_flows(self, categories: Codes, parser: Parser) -> npt.NDArray[np.bool_]:
        """Return the flows that say something new: Kineto's launches repeat the correlation."""
        if categories.max() >= len(self._flow_categories):
            texts = parser.texts()
            self._flow_categories = np.array([t.startswith(USEFUL_FLOWS) for t in texts], bool)
        useful: npt.NDArray[np.bool_] = self._flow_categories[categories]
        return useful

    def rows(self, part: str) -> int:
        """Return how many rows of a part there are so far."""
        return sum(len(block.phase) for block in self.parts[part])

    def finish(self, parser: Parser) -> RawEvents:
        """Return everything that was added, as one set of columns."""
        joined = {part: _join(self.parts.pop(part)) for part in _PARTS}
        return RawEvents(parser.texts(), parser.lanes(), **joined)


_PARTS = {"spans": b"XBE", "flows": b"sft", "instants": b"iI", "metadata": b"M"}
_PART_OF_PHASE = np.full(256, -1, np.int8)
for _number, _phases in enumerate(_PARTS.values()):
    _PART_OF_PHASE[list(_phases)] = _number
_MEMORY_ARGS = ("Bytes", "Device Id", "Device Type", "Total Allocated", "Total Reserved")
_PART_ARGS: dict[str, frozenset[str]] = {
    "spans": frozenset(INT_ARGS + TEXT_ARGS + JSON_ARGS) - frozenset(_MEMORY_ARGS),
    "flows": frozenset({"id"}),
    "instants": frozenset(_MEMORY_ARGS),
    "metadata": frozenset({"name"}),
}


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Store integers in as few bytes as hold them: two, four or eight."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    for dtype in (np.int16, np.int32):
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return values.astype(dtype, copy=False)
    return values


def take_rows(block: Block, rows: npt.NDArray[np.intp]) -> Block:
    """Return the given rows of a block with everything that belongs to them."""
    return _take(block, rows, frozenset(block.args))


def _take(block: Block, rows: npt.NDArray[np.intp], wanted: frozenset[str]) -> Block:
    """Return the given rows of a block, narrow, with the arguments renumbered."""
    place = np.full(len(block.phase), -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    args = {}
    for key, sparse in block.args.items():
        if key not in wanted:
            continue
        new = place[sparse.rows]
        kept = new >= 0
        # An argument mostly belongs to one part alone.
        if kept.all():
            args[key] = Sparse(new, narrow(sparse.values))
        elif kept.any():
            args[key] = Sparse(new[kept], narrow(sparse.values[kept]))
    return Block(
        phase=block.phase[rows],
        category=narrow(block.category[rows]),
        name=narrow(block.name[rows]),
        lane=narrow(block.lane[rows]),
        start_ns=block.start_ns[rows],
        dur_ns=narrow(block.dur_ns[rows]),
        args=args,
    )


def _join(blocks: list[Block]) -> Block:
    """Return the blocks one after the other; each piece is let go as soon as it is copied."""
    if not blocks:
        return empty_block()
    sizes = [len(b.phase) for b in blocks]
    starts = np.cumsum([0, *sizes[:-1]])
    args = {}
    for key in sorted({key for b in blocks for key in b.args}):
        held = [(b.args.pop(key), s) for b, s in zip(blocks, starts, strict=True) if key in b.args]
        rows = np.concatenate([sparse.rows + np.int32(start) for sparse, start in held])
        args[key] = Sparse(rows, np.concatenate([sparse.values for sparse, _ in held]))
    dense = {}
    for name in ("phase", *_DENSE):
        dense[name] = np.concatenate([getattr(b, name) for b in blocks])
        for b in blocks:
            object.__setattr__(b, name, None)
    return Block(args=args, **dense)


def empty_block() -> Block:
    """Return no events at all."""
    none = np.empty(0, np.int32)
    times = np.empty(0, np.int64)
    return Block(
        phase=np.empty(0, np.uint8),
        category=none,
        name=none,
        lane=none,
        start_ns=times,
        dur_ns=times,
        args={},
    )

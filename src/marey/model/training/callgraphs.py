"""The tables of call graphs: the public contract between makers, analyses and views.

Three tables hold any number of profiles of one program. ``NODES`` is the united calling-context
tree, parents before their children. ``PROFILES`` says whose values there are: one run, rank, step
or thread each. ``VALUES`` is sparse: a call site that a profile never reached has no row, which is
not the same as a row of zero.

A node is identified by the names on its path alone. Siblings of one name are one node, their
values summed and their calls counted; names carry neither addresses nor counters, so that ranks
and runs unite. ``path`` is a fingerprint of the names: equal paths have equal fingerprints in every
run, whatever the node's number is there.

Times are nanoseconds. Work that runs beside its caller (a kernel under its launch, a backward pass
under its forward) is *grafted*: it hangs below its caller but is no part of the caller's time.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class NodeKind(StrEnum):
    """What a call site is."""

    FUNCTION = "function"
    PYTHON = "python"
    OPERATOR = "operator"
    RUNTIME = "runtime"
    ANNOTATION = "annotation"
    MODULE = "module"
    REGION = "region"
    LOOP = "loop"
    STATEMENT = "statement"
    KERNEL = "kernel"
    TRANSFER = "transfer"
    BACKWARD = "backward"
    UNLINKED = "unlinked"


# Work that runs beside its caller; its time is no part of the caller's.
GRAFTED_KINDS = (NodeKind.KERNEL, NodeKind.TRANSFER, NodeKind.BACKWARD)

UNLINKED = "(unlinked)"
BACKWARD = "(backward)"

_WORD = pa.dictionary(pa.int32(), pa.string())

NODES = pa.schema(
    [
        pa.field("node", pa.int32(), nullable=False),
        # -1 for a root; always smaller than ``node``.
        pa.field("parent", pa.int32(), nullable=False),
        pa.field("name", _WORD, nullable=False),
        pa.field("kind", _WORD, nullable=False),
        # The library, file or nn.Module that the call site belongs to, where it is known.
        pa.field("module", _WORD),
        pa.field("depth", pa.int32(), nullable=False),
        pa.field("path", pa.uint64(), nullable=False),
    ]
)

PROFILES = pa.schema(
    [
        pa.field("profile", pa.int32(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("rank", pa.int32()),
        pa.field("step", pa.int32()),
        pa.field("thread", pa.int64()),
        # JSON object of text to text or number.
        pa.field("metadata", pa.string(), nullable=False),
    ]
)

VALUES = pa.schema(
    [
        pa.field("node", pa.int32(), nullable=False),
        pa.field("profile", pa.int32(), nullable=False),
        pa.field("inclusive", pa.float64(), nullable=False),
        pa.field("exclusive", pa.float64(), nullable=False),
        # Null where the profiler does not count calls.
        pa.field("calls", pa.float64()),
    ]
)

# How many nanoseconds each unit of time is.
TIME_UNITS_NS = {
    "ns": 1.0,
    "nanoseconds": 1.0,
    "us": 1e3,
    "µs": 1e3,
    "usec": 1e3,
    "microseconds": 1e3,
    "ms": 1e6,
    "msec": 1e6,
    "milliseconds": 1e6,
    "s": 1e9,
    "sec": 1e9,
    "seconds": 1e9,
}

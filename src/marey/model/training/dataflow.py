"""The global data-flow graph of a run: the tables in which a trace and its replay meet.

``Dataflow`` is what a trace says, rank by rank: operators, communications with their posting,
gradients as they become ready, steps and annotations, each on its rank's own clock. ``NODES``,
``EDGES`` and ``LINKS`` are the graph that a replay runs: work on a thread or transfers over links,
and what waits for what. Where the work ran on devices, ``DEVICE_NODES`` and ``DEVICE_EDGES`` are
the calls of the hosts and the work on the streams of all ranks, on one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import pyarrow as pa


class Phase(IntEnum):
    """What part of a training step an operator belongs to; append only."""

    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2


# Outermost operators of the training threads, in order of start on each rank.
OPERATORS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
        pa.field("name", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("phase", pa.int8(), nullable=False),
        # How much of a backward operator is forward operators run again (recomputed activations).
        pa.field("recomputed_ns", pa.int64(), nullable=False),
    ]
)

# One row per communication of a rank. `posted_ns` is when the rank asked for it, `start_ns` and
# `end_ns` when its backend began and ended; -1 where the trace is silent.
COMMUNICATIONS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("collective", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("group", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("item_bytes", pa.int64(), nullable=False),
        pa.field("peer", pa.int32(), nullable=False),
        pa.field("tag", pa.int32(), nullable=False),
        pa.field("posted_ns", pa.int64(), nullable=False),
        pa.field("post_end_ns", pa.int64(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
        # The thread that carried it out; transfers on different threads may overlap.
        pa.field("thread", pa.int64(), nullable=False),
    ]
)

GRADIENTS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("ready_ns", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("item_bytes", pa.int64(), nullable=False),
    ]
)

# Pauses in which the training thread runs no operator.
GAPS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
    ]
)

STEPS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
    ]
)

ANNOTATIONS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
        pa.field("name", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    ]
)

ALLOCATIONS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("allocated_bytes", pa.int64(), nullable=False),
    ]
)

# The graph of a replay. A node first waits for its predecessors, then for a place on its resource
# (-1: none needed), then works for `work_ms`, then moves `bytes` over its links.
NODES = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("work_ms", pa.float64(), nullable=False),
        pa.field("bytes", pa.float64(), nullable=False),
        pa.field("resource", pa.int32(), nullable=False),
    ]
)
EDGES = pa.schema(
    [
        pa.field("source", pa.int64(), nullable=False),
        pa.field("target", pa.int64(), nullable=False),
    ]
)
LINKS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        # "up" leaves the rank, "down" reaches it.
        pa.field("direction", pa.string(), nullable=False),
        pa.field("bytes_per_ms", pa.float64(), nullable=False),
    ]
)


class DeviceNode(IntEnum):
    """What a node of a run on devices is; append only."""

    # The host reaches a launching or blocking call.
    CALL = 0
    # A blocking call returns.
    RETURN = 1
    KERNEL = 2
    COPY = 3
    COMMUNICATION = 4


class DeviceEdge(IntEnum):
    """Why a node could not come before another; append only."""

    HOST_ORDER = 0
    LAUNCH = 1
    STREAM_ORDER = 2
    EVENT = 3
    HOST_WAIT = 4


# One row per node, by rank; `start_ns` and `end_ns` are on the run's clock, and equal for calls.
DEVICE_NODES = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("name", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        # The operator whose call launched it, where the trace says.
        pa.field("operator", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
        # The stream as a number of the rank; -1 for the host.
        pa.field("lane", pa.int32(), nullable=False),
        # 0 forward, 1 backward, 2 update, -1 unknown.
        pa.field("phase", pa.int8(), nullable=False),
        # Communications: what it is, its bytes, the size of an element, and the number that all
        # its ranks share (-1: no partner was recorded).
        pa.field("collective", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("item_bytes", pa.int64(), nullable=False),
        pa.field("item", pa.int64(), nullable=False),
        # Calls: how much of the host's time since the call before was spent loading data.
        pa.field("loading_ns", pa.int64(), nullable=False),
    ]
)
DEVICE_EDGES = pa.schema(
    [
        pa.field("source", pa.int64(), nullable=False),
        pa.field("target", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
    ]
)

# One row per gradient whose size the trace says: `node` is the kernel that was launched last before
# it became ready.
DEVICE_GRADIENTS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("node", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("item_bytes", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class DeviceFlow:
    """Hosts and streams of all ranks: nodes, edges and gradients of the schemas above."""

    nodes: pa.Table
    edges: pa.Table
    gradients: pa.Table = field(default_factory=DEVICE_GRADIENTS.empty_table)


@dataclass(frozen=True)
class Dataflow:
    """What the traces of a run say about every rank; tables of the schemas above."""

    ranks: tuple[int, ...]
    operators: pa.Table
    communications: pa.Table
    gradients: pa.Table
    gaps: pa.Table
    steps: pa.Table
    annotations: pa.Table
    allocations: pa.Table
    # Whether the operators ran on devices; then host operators only launch them.
    on_device: bool = False
    device: DeviceFlow | None = None
    # Ranks that the recorded ones speak of and nobody recorded.
    missing: tuple[int, ...] = ()

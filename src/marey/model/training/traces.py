"""The event table of a profiled run: the public contract between readers and analyses.

One row per event of one rank. Strings are integer-coded once per run in a symbol table, so an
analysis compares integers and a name is stored once. Times are absolute nanoseconds on the
rank's own clock until ``clocks`` has aligned them.
"""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa


class EventKind(IntEnum):
    """What an event is; the order is part of the stored contract, so append only."""

    COMPUTE = 0
    COLLECTIVE = 1
    SEND = 2
    RECV = 3
    MEMCPY = 4
    MEMSET = 5
    RUNTIME = 6
    CPU_OP = 7
    ANNOTATION = 8
    PYTHON = 9
    SYNC = 10


# What occupies a device; the rest happens on the host.
DEVICE_KINDS = (
    EventKind.COMPUTE,
    EventKind.COLLECTIVE,
    EventKind.SEND,
    EventKind.RECV,
    EventKind.MEMCPY,
    EventKind.MEMSET,
)
COMMUNICATION_KINDS = (EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)

NO_VALUE = -1

EVENTS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("host", pa.int32(), nullable=False, metadata={"symbol": "yes"}),
        # Device index, or -1 for the host; `on_device` says whether it counts as device activity
        # (without device events, operators and gloo run-loop events do).
        pa.field("device", pa.int32(), nullable=False),
        pa.field("on_device", pa.bool_(), nullable=False),
        # CUDA stream of device events, thread id of host events.
        pa.field("stream", pa.int64(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("dur_ns", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("name", pa.int32(), nullable=False, metadata={"symbol": "yes"}),
        # The rank's own row number of the event that launched this one, or -1.
        pa.field("launch", pa.int64(), nullable=False),
        pa.field("correlation", pa.int64(), nullable=False),
        pa.field("external_id", pa.int64(), nullable=False),
        # Forward operator's row for a backward operator, or -1.
        pa.field("forward", pa.int64(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("micro_batch", pa.int32(), nullable=False),
        pa.field("module", pa.int32(), nullable=False, metadata={"symbol": "yes"}),
        # The modules around it, outermost first, joined by dots; in brackets what else it is part
        # of.
        pa.field("module_path", pa.int32(), nullable=False, metadata={"symbol": "yes"}),
        # 0 forward, 1 backward, 2 update, -1 where the trace does not tell.
        pa.field("phase", pa.int8(), nullable=False),
        # Shapes of the inputs as JSON text, and the id that joins an execution trace (`rf_id`).
        pa.field("shapes", pa.int32(), nullable=False, metadata={"symbol": "yes"}),
        pa.field("record_id", pa.int64(), nullable=False),
        # Communication only; -1 elsewhere.
        pa.field("group", pa.int32(), nullable=False, metadata={"symbol": "yes"}),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("comms_id", pa.int64(), nullable=False),
        # Size and dtype of a transfer; also of the gradient that an AccumulateGrad makes ready.
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("dtype", pa.int32(), nullable=False, metadata={"symbol": "yes"}),
        pa.field("peer", pa.int32(), nullable=False),
        # Point-to-point tag, where the trace has one.
        pa.field("tag", pa.int32(), nullable=False),
        # What the communication is, however its kernel is called: "allreduce", "send", ….
        pa.field("collective", pa.int32(), nullable=False, metadata={"symbol": "yes"}),
        # Chunk of the model (interleaved pipelines), or -1.
        pa.field("chunk", pa.int32(), nullable=False),
        # Synchronisation only: the stream, and the correlation of the event record, waited for.
        pa.field("wait_stream", pa.int64(), nullable=False),
        pa.field("wait_correlation", pa.int64(), nullable=False),
    ]
)

# Columns that hold codes of the run's symbol table.
SYMBOL_COLUMNS = tuple(f.name for f in EVENTS if (f.metadata or {}).get(b"symbol"))

# One row per allocation or release the profiler recorded.
MEMORY = pa.schema(
    [
        pa.field("time_ns", pa.int64(), nullable=False),
        # Device index, or -1 for the host's own memory.
        pa.field("device", pa.int32(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        # Totals after this row, or -1 where the profiler does not say.
        pa.field("allocated_bytes", pa.int64(), nullable=False),
        pa.field("reserved_bytes", pa.int64(), nullable=False),
    ]
)

"""The tables that pages of a run read: columns, in one place."""

from __future__ import annotations

import pyarrow as pa

_WORD = pa.dictionary(pa.int32(), pa.string())

OPERATOR_FACTS = pa.schema(
    [
        pa.field("operator", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("module", pa.string()),
        pa.field("kind", pa.int32()),
        pa.field("stage", pa.int32()),
        pa.field("phase", pa.int32()),
        pa.field("position", pa.int32()),
    ]
)
BREAKDOWNS = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("step", pa.int32()),
        pa.field("span_ms", pa.float64()),
        pa.field("compute_ms", pa.float64()),
        pa.field("exposed_communication_ms", pa.float64()),
        pa.field("exposed_copy_ms", pa.float64()),
        pa.field("idle_peers_ms", pa.float64()),
        pa.field("idle_host_ms", pa.float64()),
        pa.field("idle_input_ms", pa.float64()),
        pa.field("idle_other_ms", pa.float64()),
    ]
)
RANK_STEPS = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("step", pa.int32()),
        pa.field("start_ns", pa.int64()),
        pa.field("dur_ns", pa.int64()),
    ]
)
COLLECTIVE_ITEMS = pa.schema(
    [
        pa.field("item", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("group", pa.string()),
        pa.field("point_to_point", pa.bool_()),
        pa.field("bytes", pa.int64()),
        pa.field("dtype", pa.string()),
        pa.field("step", pa.int32()),
        pa.field("participants", pa.int32()),
        pa.field("expected", pa.int32()),
        pa.field("first_arrival_ns", pa.int64()),
        pa.field("last_arrival_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        pa.field("last_rank", pa.int32()),
        pa.field("certain", pa.bool_()),
        pa.field("skew_us", pa.float64()),
        pa.field("transfer_us", pa.float64()),
        # Bus bandwidth, and the best that the same collective and size reached in this run.
        pa.field("bandwidth_gbps", pa.float64()),
        pa.field("best_gbps", pa.float64()),
        pa.field("method", pa.string()),
        pa.field("confidence", pa.float64()),
    ]
)
WAITS = pa.schema(
    [
        pa.field("culprit", pa.int32()),
        pa.field("victim", pa.int32()),
        pa.field("cause", pa.string()),
        pa.field("operator", pa.string()),
        pa.field("gpu_seconds", pa.float64()),
    ]
)
COMMUNICATION_PAIRS = pa.schema(
    [
        pa.field("source", pa.int32()),
        pa.field("target", pa.int32()),
        pa.field("time_ms", pa.float64()),
        pa.field("wait_ms", pa.float64()),
        pa.field("bytes", pa.int64()),
        pa.field("bandwidth_gbps", pa.float64()),
        pa.field("calls", pa.int64()),
        # "exact" for sends and receives; "ring": neighbours in a group, as if it were a ring.
        pa.field("evidence", pa.string()),
    ]
)
COMMUNICATION_NODES = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("host", pa.string()),
        pa.field("stage", pa.int32()),
        pa.field("communication_ms", pa.float64()),
        pa.field("wait_ms", pa.float64()),
        pa.field("bytes", pa.int64()),
        # 1 where the rank waits for nobody: suspected slow.
        pa.field("little_waiting", pa.float64()),
    ]
)
NAME_TIMES = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("module", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("calls", pa.int64()),
        pa.field("total_ms", pa.float64()),
        pa.field("mean_us", pa.float64()),
        pa.field("min_us", pa.float64()),
        pa.field("max_us", pa.float64()),
        pa.field("ranks", pa.int64()),
        pa.field("slowest_rank", pa.int32()),
        # The slowest rank's time over the median rank's.
        pa.field("spread", pa.float64()),
    ]
)
VIEW_ROWS = pa.schema(
    [
        pa.field("position", pa.int32()),
        pa.field("rank", pa.int32()),
        pa.field("host", pa.string()),
        pa.field("stage", pa.int32()),
        pa.field("replica", pa.int32()),
        pa.field("shard", pa.int32()),
        pa.field("cluster", pa.int32()),
        pa.field("exemplar", pa.bool_()),
        pa.field("size", pa.int32()),
        pa.field("outlier", pa.bool_()),
        pa.field("missing", pa.bool_()),
        # How far its own work is from that of its stage's typical rank, as a share of the step.
        pa.field("deviation", pa.float64()),
        # How much later than the first of its group it came to collectives, on average.
        pa.field("lateness_us", pa.float64()),
        # Share of the step in which the device worked.
        pa.field("busy", pa.float64()),
        # Floating-point operations of matrix products per second of the step; null without shapes.
        pa.field("flops", pa.float64()),
        pa.field("peak_memory_bytes", pa.int64()),
        pa.field("streams", pa.list_(pa.int64())),
    ]
)
BANDS = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("step", pa.int32()),
        pa.field("stream", pa.int64()),
        pa.field("start_ns", pa.int64()),
        pa.field("dur_ns", pa.int64()),
        pa.field("kind", pa.int32()),
        pa.field("operator", pa.int32()),
        pa.field("operator_confidence", pa.float64()),
        pa.field("name", _WORD),
        pa.field("module", _WORD),
        pa.field("micro_batch", pa.int32()),
        pa.field("phase", pa.int32()),
        pa.field("item", pa.int64()),
        pa.field("event", pa.int64()),
    ]
)
TIME_SPANS = pa.schema(
    [
        # The stage, or the behaviour cluster.
        pa.field("group", pa.int32()),
        pa.field("step", pa.int32()),
        pa.field("operator", pa.int32()),
        pa.field("name", _WORD),
        pa.field("module", _WORD),
        pa.field("kind", pa.int32()),
        pa.field("micro_batch", pa.int32()),
        pa.field("ranks", pa.int32()),
        pa.field("start_min_ns", pa.int64()),
        pa.field("start_mean_ns", pa.int64()),
        pa.field("start_max_ns", pa.int64()),
        pa.field("end_min_ns", pa.int64()),
        pa.field("end_mean_ns", pa.int64()),
        pa.field("end_max_ns", pa.int64()),
        pa.field("slowest_rank", pa.int32()),
    ]
)

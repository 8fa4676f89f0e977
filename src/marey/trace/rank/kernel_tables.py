"""Which kernels and which operators the time went to: one row per name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EventKind
from marey.trace.rank.nesting import find_enclosing, operator_of

KERNELS = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("count", pa.int64()),
        pa.field("total_ms", pa.float64()),
        pa.field("mean_us", pa.float64()),
        pa.field("min_us", pa.float64()),
        pa.field("max_us", pa.float64()),
        # Of the summed duration of all device activity.
        pa.field("share", pa.float64()),
    ]
)
OPERATORS = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("count", pa.int64()),
        # On the host: with and without the operators it called.
        pa.field("host_total_ms", pa.float64()),
        pa.field("host_self_ms", pa.float64()),
        # Device work launched by the operator itself, not by those it called.
        pa.field("device_ms", pa.float64()),
        pa.field("kernels", pa.int64()),
        pa.field("module", pa.string()),
    ]
)
OPERATOR_COLUMNS = [
    *("on_device", "kind", "name", "stream", "start_ns", "dur_ns"),
    *("launch", "external_id", "module"),
]


def kernel_table(events: pa.Table, symbols: Symbols) -> pa.Table:
    """Return device activity by name, the most costly first."""
    device = events["on_device"].to_numpy(zero_copy_only=False)
    name = events["name"].to_numpy()[device]
    kind = events["kind"].to_numpy()[device].astype(np.int64)
    dur = events["dur_ns"].to_numpy()[device]
    if not len(dur):
        return KERNELS.empty_table()
    # The same name may be of two kinds (a copy and a kernel): they stay apart.
    keys, inverse = np.unique(name.astype(np.int64) * 64 + kind, return_inverse=True)
    total, count, low, high = _per_group(inverse, dur, len(keys))
    order = np.argsort(-total, kind="stable")
    everything = max(float(total.sum()), 1.0)
    return pa.table(
        [
            pa.array([symbols.text(int(k) // 64) for k in keys[order]], pa.string()),
            pa.array([EventKind(int(k) % 64).name.lower() for k in keys[order]], pa.string()),
            pa.array(count[order]),
            pa.array(total[order] / 1e6),
            pa.array(total[order] / count[order] / 1e3),
            pa.array(low[order] / 1e3),
            pa.array(high[order] / 1e3),
            pa.array(total[order] / everything),
        ],
        schema=KERNELS,
    )


def operator_table(events: pa.Table, symbols: Symbols) -> pa.Table:
    """Return operators by name and module, those that cost the device most first."""
    kind = events["kind"].to_numpy()
    name = events["name"].to_numpy()
    dur = events["dur_ns"].to_numpy()
    ops = np.flatnonzero(kind == EventKind.CPU_OP)
    if not len(ops):
        return OPERATORS.empty_table()
    self_ns = _self_time(events, ops)
    device_ns, kernels = _device_work(events, len(kind), dur)
    module = events["module"].to_numpy()
    key = name[ops].astype(np.int64) * (len(symbols) + 1) + module[ops] + 1
    keys, inverse = np.unique(key, return_inverse=True)
    n = len(keys)

    def summed(values: Any) -> NDArray[np.float64]:
        return np.bincount(inverse, values, n).astype(np.float64)

    device, total, own = summed(device_ns[ops]), summed(dur[ops]), summed(self_ns)
    order = np.lexsort((-own, -device))
    texts = [divmod(int(k), len(symbols) + 1) for k in keys[order]]
    return pa.table(
        [
            pa.array([symbols.text(code) for code, _ in texts], pa.string()),
            pa.array(np.bincount(inverse, minlength=n)[order]),
            pa.array(total[order] / 1e6),
            pa.array(own[order] / 1e6),
            pa.array(device[order] / 1e6),
            pa.array(summed(kernels[ops])[order].astype(np.int64)),
            pa.array([symbols.text(code - 1) for _, code in texts], pa.string()),
        ],
        schema=OPERATORS,
    )


def _per_group(inverse: Any, dur: Any, n: int) -> tuple[Any, Any, Any, Any]:
    order = np.argsort(inverse, kind="stable")
    sorted_dur = dur[order]
    first = np.searchsorted(inverse[order], np.arange(n))
    return (
        np.add.reduceat(sorted_dur, first).astype(np.float64),
        np.bincount(inverse, minlength=n),
        np.minimum.reduceat(sorted_dur, first),
        np.maximum.reduceat(sorted_dur, first),
    )


def _self_time(events: pa.Table, ops: Any) -> NDArray[np.float64]:
    picked = events.select(["stream", "start_ns", "dur_ns"]).take(pa.array(ops))
    stream, start, dur = (picked[n].to_numpy() for n in ("stream", "start_ns", "dur_ns"))
    parents = find_enclosing(stream, start, dur)
    nested = parents >= 0
    children = np.bincount(parents[nested], dur[nested], len(ops))
    own: NDArray[np.float64] = np.maximum(dur - children, 0.0)
    return own


def _device_work(events: pa.Table, rows: int, dur: Any) -> tuple[Any, Any]:
    """Return per row: the device time and the count of kernels that the operator in it launched."""
    device = events["on_device"].to_numpy(zero_copy_only=False)
    work = np.flatnonzero(device & (events["kind"].to_numpy() != EventKind.CPU_OP))
    owner = operator_of(events)[work]
    owned = owner >= 0
    return (
        np.bincount(owner[owned], dur[work[owned]], rows),
        np.bincount(owner[owned], minlength=rows),
    )

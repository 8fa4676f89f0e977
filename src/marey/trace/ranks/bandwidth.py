"""What the network delivered: achieved bandwidth of each matched collective, and by kind and size.

*Algorithm* bandwidth is the message over the transfer time; *bus* bandwidth multiplies it by what
each link must carry (2(n-1)/n for an all-reduce, (n-1)/n for a reduce-scatter or all-to-all, n-1
for an all-gather, whose recorded message is what one rank puts in, 1 otherwise), so that
collectives and group sizes can be compared (NVIDIA nccl-tests, PERFORMANCE).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BANDWIDTHS = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("participants", pa.int32()),
        pa.field("bytes", pa.int64()),
        pa.field("count", pa.int64()),
        pa.field("transfer_median_us", pa.float64()),
        pa.field("algorithm_gb_s", pa.float64()),
        pa.field("bus_gb_s", pa.float64()),
        # The slowest decile over the median: how steady the link is.
        pa.field("slow_ratio", pa.float64()),
        # How many groups do the same, and which of them is slowest.
        pa.field("groups", pa.int64()),
        pa.field("slowest_group", pa.string()),
        pa.field("slowest_bus_gb_s", pa.float64()),
    ]
)
_TWICE = ("all_reduce", "allreduce")
_ONCE = ("reduce_scatter", "reducescatter", "all_to_all", "alltoall")
_OF_EACH_OTHER = ("all_gather", "allgather")


def bus_factor(name: str, ranks: int) -> float:
    """Return the bytes on each link as a multiple of the message."""
    share = (ranks - 1) / ranks if ranks > 1 else 0.0
    if name in _OF_EACH_OTHER:
        return max(ranks - 1.0, 0.0)
    return 2 * share if name in _TWICE else share if name in _ONCE else 1.0


def item_bandwidths(items: pa.Table) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return algorithm and bus bandwidth of each item in GB/s.

    NaN where bytes or time are unknown.
    """
    size = items["bytes"].to_numpy().astype(float)
    transfer_us = items["transfer_us"].to_numpy(zero_copy_only=False).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        algorithm = np.where((size > 0) & (transfer_us > 0), size / transfer_us / 1e3, np.nan)
    names, ranks = items["name"].to_pylist(), items["expected"].to_pylist()
    factor = np.array([bus_factor(n, r) for n, r in zip(names, ranks, strict=True)])
    return algorithm, algorithm * factor


def bandwidth_table(items: pa.Table) -> pa.Table:
    """Return matched collectives by name, group size and message size, the most costly first."""
    if not items.num_rows:
        return BANDWIDTHS.empty_table()
    known = ~np.isnan(item_bandwidths(items)[0])
    items = items.filter(pa.array(known))
    algorithm, bus = item_bandwidths(items)
    keys: dict[tuple[Any, ...], list[int]] = {}
    columns = [items[n].to_pylist() for n in ("name", "expected", "bytes")]
    for row, key in enumerate(zip(*columns, strict=True)):
        keys.setdefault(key, []).append(row)
    transfer_us = items["transfer_us"].to_numpy(zero_copy_only=False)
    group = np.array(items["group"].to_pylist(), object)
    rows = [
        _row(
            key, transfer_us=transfer_us[at], algorithm=algorithm[at], bus=bus[at], group=group[at]
        )
        for key, at in keys.items()
    ]
    rows.sort(key=lambda row: -row["count"] * row["transfer_median_us"])
    return pa.Table.from_pylist(rows, schema=BANDWIDTHS)


def _row(
    key: tuple[Any, ...], *, transfer_us: Any, algorithm: Any, bus: Any, group: Any
) -> dict[str, Any]:
    name, participants, size = key
    median = float(np.median(transfer_us))
    names, inverse = np.unique(group.astype(str), return_inverse=True)
    by_group = [float(np.median(bus[inverse == g])) for g in range(len(names))]
    worst = int(np.argmin(by_group))
    return {
        "name": name,
        "participants": participants,
        "bytes": size,
        "count": len(transfer_us),
        "transfer_median_us": median,
        "algorithm_gb_s": float(np.median(algorithm)),
        "bus_gb_s": float(np.median(bus)),
        "slow_ratio": float(np.percentile(transfer_us, 90)) / median if median > 0 else 1.0,
        "groups": len(names),
        "slowest_group": str(names[worst]),
        "slowest_bus_gb_s": by_group[worst],
    }

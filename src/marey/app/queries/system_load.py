"""The load of what all workloads share, the fabric and the file system, from the hosts' samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.metrics import Entity
from marey.model.protocols import Selection, Store
from marey.model.times import HOUR_MS

_LOADS = {
    "fabric_load": ("host_net_rx", "host_net_tx"),
    "file_system_load": ("host_fs_read", "host_fs_write"),
}
# What all share shows on every host; more of them cost time and say the same.
_MOST_HOSTS, _POINTS = 16, 1600


def read_system_load(
    store: Store, cluster: str, moments_ms: NDArray[np.int64], hosts: tuple[str, ...]
) -> dict[str, NDArray[np.float64]]:
    """Return each load in the hour before each moment, against its highest; none without samples.

    A moment whose hour nobody sampled gets the mean: it tells nothing.
    """
    if not len(moments_ms) or not hosts:
        return {}
    chosen = hosts[:: max(1, len(hosts) // _MOST_HOSTS)][:_MOST_HOSTS]
    loads = {}
    for name, metrics in _LOADS.items():
        selection = Selection(
            metrics=metrics,
            from_ms=int(moments_ms.min()) - HOUR_MS,
            to_ms=int(moments_ms.max()),
            entities=chosen,
            kind=Entity.HOST,
            cluster=cluster,
        )
        table = store.series(selection, _POINTS).table
        if table.num_rows:
            loads[name] = average_before(table, moments_ms)
    return loads


def average_before(table: Any, moments_ms: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of what was sampled in the hour before each moment, nothing later."""
    order = np.argsort(table["time_ms"].to_numpy(), kind="stable")
    times = table["time_ms"].to_numpy()[order]
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(table["value"].to_numpy())[order])])
    first = np.searchsorted(times, moments_ms - HOUR_MS, "left")
    end = np.searchsorted(times, moments_ms, "left")
    count = end - first
    means = (sums[end] - sums[first]) / np.maximum(count, 1)
    usual = float(means[count > 0].mean()) if (count > 0).any() else 0.0
    found = np.where(count > 0, means, usual)
    return np.asarray(found / max(float(found.max()), 1e-9))

"""One pass of the scheduler over one partition: who starts now, where, and why others wait.

Order is decided by the caller (FIFO or priority). Gang scheduling: a workload gets all its GPUs
or none. EASY backfill (Lifka 1995): the first workload that does not fit gets a reservation, the
earliest moment at which it will fit by the time limits of what runs; others may start before it
only where they end by then, or leave the reserved hosts alone.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
NEVER_MS = np.int64(1) << 60


class Reason(IntEnum):
    """Why a workload waits; the words are Slurm's."""

    NONE = 0
    RESOURCES = 1
    PRIORITY = 2
    QOS_LIMIT = 3
    DEPENDENCY = 4
    BEGIN_TIME = 5
    NODES_UNAVAILABLE = 6
    PARTITION_CONFIG = 7
    HELD = 8


REASON_WORDS: dict[Reason, str] = {
    Reason.NONE: "None",
    Reason.RESOURCES: "Resources",
    Reason.PRIORITY: "Priority",
    Reason.QOS_LIMIT: "QOSMaxGRESPerUser",
    Reason.DEPENDENCY: "Dependency",
    Reason.BEGIN_TIME: "BeginTime",
    Reason.NODES_UNAVAILABLE: "ReqNodeNotAvail",
    Reason.PARTITION_CONFIG: "PartitionConfig",
    Reason.HELD: "JobHeldUser",
}

_RESOURCES, _PRIORITY = int(Reason.RESOURCES), int(Reason.PRIORITY)
_QOS, _UNAVAILABLE = int(Reason.QOS_LIMIT), int(Reason.NODES_UNAVAILABLE)


@njit(cache=True, nogil=True)
def _count_free(until: Ints, host_first: Ints, host_size: Ints, host_up: Flags, free: Ints) -> None:
    for h in range(len(host_first)):
        free[h] = 0
        if host_up[h]:
            for g in range(host_first[h], host_first[h] + host_size[h]):
                if until[g] == 0:
                    free[h] += 1


@njit(cache=True, nogil=True)
def _choose(
    per_host: int, count: int, free: Ints, reserved: Flags, avoid: bool, spread: bool, chosen: Ints
) -> bool:
    """Fill ``chosen`` with ``count`` hosts that have ``per_host`` free GPUs; say if it worked."""
    found = 0
    if count > 1:
        for h in range(len(free)):
            if free[h] >= per_host and not (avoid and reserved[h]):
                chosen[found] = h
                found += 1
                if found == count:
                    return True
        return False
    best, best_free = -1, 0
    for h in range(len(free)):
        f = free[h]
        if f < per_host or (avoid and reserved[h]):
            continue
        if best < 0 or (f > best_free if spread else f < best_free):
            best, best_free = h, f
            # Nothing can be tighter than an exact fit.
            if not spread and f == per_host:
                break
    chosen[0] = best
    return best >= 0


@njit(cache=True, nogil=True)
def _reserve(
    per_host: int,
    count: int,
    until: Ints,
    host_first: Ints,
    host_size: Ints,
    host_up: Flags,
    reserved: Flags,
) -> np.int64:
    """Mark the hosts that will have room first; return the moment by which they have."""
    hosts = len(host_first)
    ready = np.full(hosts, NEVER_MS)
    ends = np.empty(16, np.int64)
    for h in range(hosts):
        if not host_up[h] or host_size[h] < per_host:
            continue
        size = host_size[h]
        for j in range(size):
            # Insertion sort: a host has at most 16 GPUs.
            value = until[host_first[h] + j]
            k = j
            while k > 0 and ends[k - 1] > value:
                ends[k] = ends[k - 1]
                k -= 1
            ends[k] = value
        ready[h] = ends[per_host - 1]
    order = np.argsort(ready, kind="mergesort")
    for i in range(count):
        reserved[order[i]] = True
    by: np.int64 = ready[order[count - 1]]
    return by


@njit(cache=True, nogil=True)
def run_pass(
    now: int,
    order: Ints,
    gpus: Ints,
    per_host: Ints,
    limit_ms: Ints,
    user: Ints,
    user_gpus: Ints,
    user_cap: int,
    host_first: Ints,
    host_size: Ints,
    host_up: Flags,
    until: Ints,
    spread: bool,
    backfill: bool,
    depth: int,
    reasons: Ints,
    slots: Ints,
    ends: Ints,
    started: Ints,
) -> tuple[int, int, np.int64]:
    """Start what may start; fill slots, ends and started (GPUs); return (count, head, shadow)."""
    hosts = len(host_first)
    free = np.empty(hosts, np.int64)
    _count_free(until, host_first, host_size, host_up, free)
    most = free.max() if hosts else 0
    reserved = np.zeros(hosts, np.bool_)
    chosen = np.empty(max(1, hosts), np.int64)
    up = 0
    for h in range(hosts):
        if host_up[h]:
            up += 1
    count, filled, head, shadow = 0, 0, -1, NEVER_MS
    looked_at = 0
    for i in range(len(order)):
        s = order[i]
        blocked = head >= 0
        if blocked and (not backfill or looked_at >= depth):
            reasons[s] = _PRIORITY
            continue
        if user_gpus[user[s]] + gpus[s] > user_cap:
            reasons[s] = _QOS
            continue
        need = -(-gpus[s] // per_host[s])
        if need > up:
            reasons[s] = _UNAVAILABLE
            continue
        if blocked:
            looked_at += 1
        avoid = blocked and now + limit_ms[s] > shadow
        fits = most >= per_host[s] and _choose(
            per_host[s], need, free, reserved, avoid, spread, chosen
        )
        if not fits:
            if blocked:
                reasons[s] = _PRIORITY
            else:
                head = s
                reasons[s] = _RESOURCES
                if backfill:
                    shadow = _reserve(
                        per_host[s], need, until, host_first, host_size, host_up, reserved
                    )
            continue
        left = gpus[s]
        for k in range(need):
            h = chosen[k]
            take = min(per_host[s], left)
            left -= take
            for g in range(host_first[h], host_first[h] + host_size[h]):
                if take > 0 and until[g] == 0:
                    until[g] = now + limit_ms[s]
                    started[filled] = g
                    filled += 1
                    take -= 1
                    free[h] -= 1
        most = free.max()
        user_gpus[user[s]] += gpus[s]
        reasons[s] = 0
        slots[count] = s
        ends[count] = filled
        count += 1
    return count, head, shadow


# What each factor is worth at most; shaped like a site's PriorityWeight settings.
WEIGHT_AGE, WEIGHT_SIZE, WEIGHT_SHARE, WEIGHT_QOS = 2_000.0, 1_000.0, 4_000.0, 3_000.0
AGE_FULL_MS = 7 * 86_400_000.0
FIFO_FIRST = 4_294_901_760.0
QOS_FACTOR = {"normal": 0.2, "high": 1.0, "low": 0.0, "interactive": 0.7}


def priorities(
    now: int,
    *,
    submit_ms: NDArray[np.int64],
    gpus: NDArray[np.int64],
    share: NDArray[np.float64],
    qos: NDArray[np.float64],
    partition_gpus: int,
) -> NDArray[np.float64]:
    """Compute the multifactor priority: age, size, the user's share left, quality of service."""
    age = np.minimum((now - submit_ms) / AGE_FULL_MS, 1.0)
    size = gpus / partition_gpus
    total: NDArray[np.float64] = np.floor(
        WEIGHT_AGE * age + WEIGHT_SIZE * size + WEIGHT_SHARE * share + WEIGHT_QOS * qos
    )
    return total


class Queue:
    """The eligible workloads of one partition as columns, in order of submission."""

    COLUMNS: tuple[tuple[str, Any], ...] = (
        ("seq", np.int64),
        ("gpus", np.int64),
        ("per_host", np.int64),
        ("limit_ms", np.int64),
        ("submit_ms", np.int64),
        ("user", np.int64),
        ("qos", np.float64),
        # What was last told of it: why it waits, and its priority.
        ("reason", np.int64),
        ("reported", np.float64),
    )

    def __init__(self) -> None:
        self.count = 0
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros(64, kind) for name, kind in self.COLUMNS
        }

    def push(self, **row: float) -> None:
        """Append one workload; rows stay in order of ``seq``."""
        at = self.count
        if at == len(self.columns["seq"]):
            self.columns = {
                name: np.concatenate([column, np.zeros_like(column)])
                for name, column in self.columns.items()
            }
        place = int(np.searchsorted(self.columns["seq"][:at], row["seq"]))
        for name, column in self.columns.items():
            if place < at:
                column[place + 1 : at + 1] = column[place:at].copy()
            column[place] = row[name]
        self.count += 1

    def view(self, name: str) -> NDArray[Any]:
        """Return one column, without the spare room."""
        return self.columns[name][: self.count]

    def drop(self, keep: NDArray[np.bool_]) -> None:
        """Keep only these rows."""
        left = int(keep.sum())
        for column in self.columns.values():
            column[:left] = column[: self.count][keep]
        self.count = left

    def remove(self, seq: int) -> None:
        """Take one workload out, if it is there."""
        self.drop(self.view("seq") != seq)

"""Which communications bring gradients together, and what they cost by their bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from marey.replay.device.device_nodes import DeviceNodes, Flags, Floats, Ints
from marey.replay.device.device_run import DeviceRun
from marey.replay.device.transfers import fit_latencies

# Collectives that bring gradients together.
GRADIENTS = ("allreduce", "reducescatter")
FORWARD, BACKWARD, UPDATE = 0, 1, 2
# A group that moves this share of its bytes in the forward pass does not move gradients.
LEAST_FORWARD = 0.02
# How much of the shortest transfer may be latency where sizes do not tell.
LIKELY_LATENCY = 0.1


def find_collectives(nodes: DeviceNodes, *kinds: str) -> Flags:
    """Return which communications are of these kinds."""
    codes = [n for n, text in enumerate(nodes.texts) if text in kinds]
    found: Flags = nodes.talks & np.isin(nodes.collective, codes)
    return found


def number_groups(nodes: DeviceNodes) -> Ints:
    """Return one number for communications between the same ranks; -1 for those without partners.

    Two groups of the same ranks are told apart by nothing that matters to a replay.
    """
    groups = np.full(nodes.recorded, -1, np.int64)
    talks = np.flatnonzero(nodes.talks & (nodes.item >= 0))
    if not len(talks):
        return groups
    order = talks[np.lexsort((nodes.rank[talks], nodes.item[talks]))]
    cuts = np.flatnonzero(np.diff(nodes.item[order])) + 1
    known: dict[tuple[int, ...], int] = {}
    for members in np.split(order, cuts):
        ranks = tuple(nodes.rank[members].tolist())
        groups[members] = known.setdefault(ranks, len(known))
    return groups


def find_gradient_communications(nodes: DeviceNodes) -> Flags:
    """Return which communications bring gradients together.

    Sums over ranks during the backward pass, by a group that sums nothing of weight in the forward
    pass: tensor parallelism sums activations in both.
    """
    sums = find_collectives(nodes, *GRADIENTS)
    groups = number_groups(nodes)
    found: Flags = sums & (nodes.phase != FORWARD)
    size = np.maximum(nodes.bytes, 1).astype(np.float64)
    for group in np.unique(groups[sums]).tolist():
        own = sums & (groups == group)
        ahead = size[own & (nodes.phase == FORWARD)].sum()
        if ahead > LEAST_FORWARD * size[own].sum():
            found &= ~own
    return found


def is_overlapped(nodes: DeviceNodes) -> bool:
    """Return whether kernels of the backward pass start after gradients began to move."""
    back = nodes.computes & (nodes.phase == BACKWARD)
    first: dict[tuple[int, int], float] = {}
    for at in np.flatnonzero(find_gradient_communications(nodes)).tolist():
        key = (int(nodes.rank[at]), int(nodes.step[at]))
        first[key] = min(first.get(key, np.inf), float(nodes.start_ms[at]))
    return any(
        bool((nodes.start_ms[back & (nodes.rank == rank) & (nodes.step == step)] > begun).any())
        for (rank, step), begun in first.items()
    )


@dataclass(frozen=True)
class SyncCosts:
    """What bringing gradients together takes: a latency and a time per byte, by group."""

    latency_ms: float
    # Per byte, by the number of the group (-1 last).
    ms_per_byte: Floats
    # Whether sizes differed enough to tell the latency from the bytes.
    distinguished: bool
    # The shortest recorded transfer.
    shortest_ms: float

    def explain_otherwise(self) -> SyncCosts:
        """Return costs with a latency that the recorded transfers do not exclude either."""
        if self.distinguished or not self.shortest_ms:
            return self
        latency = LIKELY_LATENCY * self.shortest_ms
        rates = self.ms_per_byte * (1 - LIKELY_LATENCY)
        return replace(self, latency_ms=latency, ms_per_byte=rates)

    def take(self, group: Ints, size: Floats) -> Floats:
        """Return the time of transfers of these groups and sizes."""
        return self.latency_ms + self.ms_per_byte[group] * size


def fit_sync_costs(run: DeviceRun, chosen: Flags) -> SyncCosts:
    """Return the cost of the chosen communications, fitted to themselves."""
    nodes, work = run.nodes, run.costs.work
    chosen = chosen & (nodes.bytes > 0)
    fixed = fit_latencies(run)[chosen]
    latency = float(np.median(fixed)) if len(fixed) else 0.0
    groups = number_groups(nodes)
    rates = np.zeros(int(groups.max(initial=-1)) + 2)
    for group in np.unique(groups[chosen]).tolist():
        own = chosen & (groups == group)
        moving = np.maximum(work[own] - latency, 0.0)
        rates[group] = float(moving.sum() / nodes.bytes[own].sum())
    shortest = float(work[chosen].min()) if chosen.any() else 0.0
    return SyncCosts(latency, rates, latency > 0, shortest)

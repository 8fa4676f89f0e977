"""Overlap of communication and compute on devices, switched on or off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marey.replay.device.device_nodes import DeviceNodes, Flags, Ints
from marey.replay.device.device_run import DeviceRun

UPDATE = 2


def block_on_transfers(run: DeviceRun) -> DeviceRun:
    """Return the run in which compute waits for every communication started before it."""
    nodes = run.nodes
    talks = np.flatnonzero(nodes.talks)
    following = _next_compute(nodes, talks)
    kept = following >= 0
    return _with_edges(
        run,
        np.concatenate([nodes.sources, talks[kept]]),
        np.concatenate([nodes.targets, following[kept]]),
    )


def free_compute(run: DeviceRun, chosen: Flags) -> DeviceRun | None:
    """Return the run in which only the update waits for the chosen communications."""
    nodes = run.nodes
    inner = (nodes.sources < nodes.recorded) & (nodes.targets < nodes.recorded)
    waits = np.zeros(len(nodes.sources), bool)
    source, target = nodes.sources[inner], nodes.targets[inner]
    waits[inner] = chosen[source] & nodes.computes[target] & (nodes.phase[target] != UPDATE)
    if not waits.any():
        return None
    talks = np.flatnonzero(chosen)
    updates = _first_update(nodes, talks)
    kept = updates >= 0
    return _with_edges(
        run,
        np.concatenate([nodes.sources[~waits], talks[kept]]),
        np.concatenate([nodes.targets[~waits], updates[kept]]),
    )


def _with_edges(run: DeviceRun, sources: Ints, targets: Ints) -> DeviceRun:
    return replace(run, nodes=replace(run.nodes, sources=sources, targets=targets))


def _next_compute(nodes: DeviceNodes, talks: Ints) -> Ints:
    """Return the first kernel of the rank that started after each communication did."""
    return _first_after(nodes, talks, np.flatnonzero(nodes.computes))


def _first_update(nodes: DeviceNodes, talks: Ints) -> Ints:
    """Return the first kernel of the update that started after each communication did."""
    return _first_after(nodes, talks, np.flatnonzero(nodes.computes & (nodes.phase == UPDATE)))


def _first_after(nodes: DeviceNodes, talks: Ints, kernels: Ints) -> Ints:
    found = np.full(len(talks), -1, np.int64)
    for rank in np.unique(nodes.rank[talks]).tolist():
        own = kernels[nodes.rank[kernels] == rank]
        own = own[np.argsort(nodes.start_ms[own], kind="stable")]
        mine = np.flatnonzero(nodes.rank[talks] == rank)
        at = np.searchsorted(nodes.start_ms[own], nodes.start_ms[talks[mine]], side="right")
        found[mine] = np.append(own, -1)[at]
    return found

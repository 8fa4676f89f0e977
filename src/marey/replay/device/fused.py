"""Kernels that follow each other on a stream, run as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marey.replay.device.device_nodes import DeviceNodes, Flags
from marey.replay.device.device_run import DeviceRun

# What frameworks name kernels that read and write every element once.
ELEMENTWISE = ("elementwise", "fillfunctor", "dropout", "layer_norm", "softmax", "copy_kernel")


def fuse_kernels(run: DeviceRun, name: str) -> DeviceRun | None:
    """Return the run with neighbours of this kind as one kernel each; None where there are none.

    A fused kernel takes as long as the longest of its parts; the others, their launches and the
    pauses before them take no time.
    """
    nodes = run.nodes
    chosen = _choose_nodes(nodes, name)
    order = np.lexsort((nodes.start_ms, nodes.lane, nodes.rank))
    order = order[~nodes.on_host[order]]
    same = np.diff(np.stack([nodes.rank, nodes.lane])[:, order]) == 0
    follows = np.append(False, same.all(axis=0) & chosen[order][1:] & chosen[order][:-1])
    if not follows.any():
        return None
    heads = np.maximum.accumulate(np.where(~follows, np.arange(len(order)), 0))
    longest = run.costs.work.copy()
    np.maximum.at(longest, order[heads], run.costs.work[order])
    work, delay = longest, run.costs.delay.copy()
    gone = order[follows]
    work[gone], delay[gone] = 0.0, 0.0
    calls = _calls_of(nodes, gone)
    work[calls] = 0.0
    return replace(run, costs=replace(run.costs, work=work, delay=delay))


def _choose_nodes(nodes: DeviceNodes, name: str) -> Flags:
    if name != "elementwise":
        return nodes.named(name)
    codes = [n for n, t in enumerate(nodes.texts) if any(word in t.lower() for word in ELEMENTWISE)]
    chosen: Flags = nodes.computes & np.isin(nodes.name, codes)
    return chosen


def _calls_of(nodes: DeviceNodes, kernels: np.ndarray) -> np.ndarray:
    """Return the calls that launch these kernels."""
    inner = (nodes.sources < nodes.recorded) & (nodes.targets < nodes.recorded)
    source, target = nodes.sources[inner], nodes.targets[inner]
    return np.unique(source[np.isin(target, kernels) & nodes.on_host[source]])

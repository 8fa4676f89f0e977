"""Fill a cluster with pods drawn from a trace until it could be full, under each policy.

The experiment of "Beware of Fragmentation" (USENIX ATC 2023): pods arrive and never leave; what
counts is how much of the GPUs is in use when as much has been asked for as there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from marey.model.errors import InvalidInput, shown
from marey.queue.placement.nodes_and_pods import Nodes, Pods
from marey.queue.placement.placement_kernels import (
    BEST_FIT,
    CLUSTERING,
    DOT_PRODUCT,
    FGD,
    MILLI,
    PACKING,
    RANDOM,
    Curve,
    Floats,
    Ints,
    Requests,
    Room,
    measure_stranded,
    place_pods,
)

POLICIES = {
    "random": RANDOM,
    "dot_product": DOT_PRODUCT,
    "clustering": CLUSTERING,
    "packing": PACKING,
    "best_fit": BEST_FIT,
    "fgd": FGD,
}
# Behind the shuffled trace come pods drawn from it, up to this share of the capacity.
DRAWN_SHARE = 1.3
# Points are means over half a percent of the capacity on either side, as published.
HALF_POINT = 0.5
FULL, STRANDED_AT = 100, 90
FIRST_SEED = 42
# Keeps the draws of the nodes' order apart from those of the pods.
NODE_ORDER = 1


class FillingResult(NamedTuple):
    """Percent of GPUs in use at 100 % asked for, and percent of the free stranded at 90 %."""

    allocated: float
    stranded: float


def compare_placements(
    nodes: Nodes, pods: Pods, policies: Sequence[str] = (), seeds: int = 1
) -> dict[str, Any]:
    """Return for each policy what was allocated and stranded, by seed and on average."""
    chosen = _check_policies(policies or tuple(POLICIES))
    if not 1 <= seeds <= 100:
        raise InvalidInput(f"--seeds is {seeds}; 1 to 100 is allowed.")
    numbers = [FIRST_SEED + i for i in range(seeds)]
    return {
        "nodes": len(nodes.cpu),
        "gpus": int(nodes.gpus.sum()),
        "pods": len(pods.type),
        "seeds": numbers,
        "rows": [_describe(name, [fill(nodes, pods, name, s) for s in numbers]) for name in chosen],
    }


def fill(nodes: Nodes, pods: Pods, policy: str, seed: int) -> FillingResult:
    """Return how full a cluster gets under a policy, with pods and nodes in the order of a seed.

    Among nodes of equal score the first takes the pod, so that the order of the nodes matters too.
    """
    order = draw_arrivals(pods, int(nodes.gpus.sum()), seed)
    nodes = nodes.arrange(np.random.default_rng([seed, NODE_ORDER]).permutation(len(nodes.cpu)))
    requests = build_requests(nodes, pods)
    room = build_room(nodes, requests)
    drawn = (pods.type[order], pods.memory[order])
    return read_curve(place_pods(room, requests, drawn, POLICIES[policy], seed), room)


def draw_arrivals(pods: Pods, gpus: int, seed: int) -> Ints:
    """Return the order of arrival up to 100 %: the trace shuffled, then pods drawn from it."""
    draws = np.random.default_rng(seed)
    asked = pods.gpu_milli
    lacking = DRAWN_SHARE * gpus * MILLI - asked.sum()
    many = max(0, int(2 * lacking / asked.mean()) + 100) if lacking > 0 else 0
    drawn = draws.integers(0, len(asked), many)
    kept = drawn[np.cumsum(asked[drawn]) <= lacking]
    order = np.concatenate([draws.permutation(len(asked)), kept])
    reached = np.cumsum(asked[order]) < (FULL + HALF_POINT) / 100 * gpus * MILLI
    return np.asarray(order[reached])


def build_requests(nodes: Nodes, pods: Pods) -> Requests:
    """Return the types of pods as the kernels take them."""
    return Requests(
        cpu=pods.type_cpu,
        gpus=pods.type_gpus,
        milli=pods.type_milli,
        share=pods.weigh_types(),
        allowed=pods.find_allowed(nodes.models),
    )


def build_room(nodes: Nodes, requests: Requests) -> Room:
    """Return empty nodes."""
    most = int(nodes.gpus.max())
    kinds = max(most, int(requests.gpus.max())) + 1
    gpu = np.where(np.arange(most) < nodes.gpus[:, None], MILLI, 0).astype(np.int64)
    return Room(
        cpu=nodes.cpu.copy(),
        memory=nodes.memory.copy(),
        gpu=gpu,
        size=nodes.gpus,
        model=nodes.model,
        kinds=np.zeros((len(nodes.cpu), kinds), np.int64),
        stranded=_measure_nodes(nodes, requests, gpu),
        changes=np.zeros(len(nodes.cpu), np.int64),
        most=np.array([max(1, int(nodes.cpu.max())), most * MILLI], float),
    )


def read_curve(curve: Curve, room: Room) -> FillingResult:
    """Return the two published points of a curve."""
    capacity = float(room.size.sum() * MILLI)
    arrived = 100 * curve.arrived / capacity
    free = np.maximum(capacity - curve.used, 1.0)
    return FillingResult(
        allocated=_average_near(arrived, 100 * curve.used / capacity, FULL),
        stranded=_average_near(arrived, 100 * curve.stranded / free, STRANDED_AT),
    )


def _average_near(arrived: Floats, values: Floats, point: int) -> float:
    """Return the mean around a point, or the last value before it in a coarse curve."""
    near = np.abs(arrived - point) <= HALF_POINT
    if near.any():
        return float(values[near].mean())
    return float(values[max(0, int(np.searchsorted(arrived, point)) - 1)])


def _measure_nodes(nodes: Nodes, requests: Requests, gpu: Ints) -> Floats:
    return np.array(
        [
            measure_stranded(requests, model, size, cpu, row)
            for model, size, cpu, row in zip(nodes.model, nodes.gpus, nodes.cpu, gpu, strict=True)
        ]
    )


def _check_policies(names: Sequence[str]) -> Sequence[str]:
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        known = ", ".join(POLICIES)
        raise InvalidInput(f"--policy is '{shown(unknown[0])}'; {known} are allowed.")
    return names


def _describe(policy: str, runs: list[FillingResult]) -> dict[str, Any]:
    allocated = np.array([run.allocated for run in runs])
    stranded = np.array([run.stranded for run in runs])
    return {
        "policy": policy,
        "allocated_percent": round(float(allocated.mean()), 2),
        "allocated_spread": round(float(allocated.std()), 2),
        "stranded_percent_at_90": round(float(stranded.mean()), 2),
        "allocated_by_seed": [round(float(value), 2) for value in allocated],
    }

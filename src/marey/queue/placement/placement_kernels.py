"""Pods placed one after another on nodes: what fits, how a policy scores a node, what is stranded.

The scores are those that the authors of FGD published with their results (USENIX ATC 2023): whole
numbers from 0 to 100; among equals the first node. GPUs are in thousandths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
MILLI = 1000
GUESSES = 50
RANDOM, DOT_PRODUCT, CLUSTERING, PACKING, BEST_FIT, FGD = range(6)


class Requests(NamedTuple):
    """Per type of pod: its request, its share of the workload, the GPU models it accepts."""

    cpu: Ints
    gpus: Ints
    milli: Ints
    share: Floats
    allowed: Flags


class Room(NamedTuple):
    """Per node: what is left (GPUs one by one), the pods on it by kind, what is stranded."""

    cpu: Ints
    memory: Ints
    gpu: Ints
    size: Ints
    model: Ints
    kinds: Ints
    stranded: Floats
    changes: Ints
    most: Floats


class Curve(NamedTuple):
    """After each pod: thousandths of GPUs asked for so far, in use, and stranded."""

    arrived: Ints
    used: Ints
    stranded: Floats


@njit(cache=True, nogil=True)
def _count_fitting(gpu: Ints, size: int, milli: int) -> int:
    fitting = 0
    for i in range(size):
        fitting += gpu[i] >= milli
    return fitting


@njit(cache=True, nogil=True)
def _measure_unusable(requests: Requests, t: int, gpu: Ints, size: int) -> int:
    """Return the remainder of GPUs that have too little for one pod of a type."""
    unusable = 0
    for i in range(size):
        if gpu[i] < requests.milli[t]:
            unusable += gpu[i]
    return unusable


@njit(cache=True, nogil=True)
def measure_stranded(requests: Requests, model: int, size: int, cpu: int, gpu: Ints) -> float:
    """Return how much of a node's free GPUs a pod drawn from the workload could not use."""
    free = 0
    for i in range(size):
        free += gpu[i]
    stranded = 0.0
    for t in range(len(requests.cpu)):
        if requests.share[t] == 0.0:
            continue
        fits = (
            requests.gpus[t] > 0
            and cpu >= requests.cpu[t]
            and requests.allowed[t, model]
            and _count_fitting(gpu, size, requests.milli[t]) >= requests.gpus[t]
        )
        lost = _measure_unusable(requests, t, gpu, size) if fits else free
        stranded += requests.share[t] * lost
    return stranded


@njit(cache=True, nogil=True)
def _take_tightest(gpu: Ints, size: int, gpus: int, milli: int) -> None:
    """Take from the GPUs with the least left that suffices, each at most once."""
    taken = np.zeros(size, np.bool_)
    for _ in range(gpus):
        best = -1
        for i in range(size):
            if not taken[i] and gpu[i] >= milli and (best < 0 or gpu[i] < gpu[best]):
                best = i
        taken[best] = True
        gpu[best] -= milli


@njit(cache=True, nogil=True)
def _take_random(gpu: Ints, size: int, milli: int) -> None:
    chosen, seen = -1, 0
    for i in range(size):
        if gpu[i] >= milli:
            seen += 1
            if np.random.randint(seen) == 0:
                chosen = i
    gpu[chosen] -= milli


@njit(cache=True, nogil=True)
def _find_descent(room: Room, requests: Requests, n: int, t: int) -> Any:
    """Return the score of the placement on a node that strands least, and the GPU (-1: any)."""
    size, model, milli = room.size[n], room.model[n], requests.milli[t]
    cpu, gpu = room.cpu[n] - requests.cpu[t], room.gpu[n].copy()
    if requests.gpus[t] != 1 or milli == MILLI:
        _take_tightest(gpu, size, requests.gpus[t], milli)
        after = measure_stranded(requests, model, size, cpu, gpu)
        return _score_descent(room.stranded[n] - after), -1
    score, chosen = -1, -1
    for i in range(size):
        if gpu[i] < milli or _is_repeated(room.gpu[n], i):
            continue
        gpu[i] -= milli
        after = measure_stranded(requests, model, size, cpu, gpu)
        gpu[i] += milli
        found = _score_descent(room.stranded[n] - after)
        if found > score:
            score, chosen = found, i
    return score, chosen


@njit(cache=True, nogil=True)
def _is_repeated(gpu: Ints, i: int) -> bool:
    return bool((gpu[:i] == gpu[i]).any())


@njit(cache=True, nogil=True)
def _score_descent(gain: float) -> int:
    return int(100.0 / (1.0 + np.exp(-gain / MILLI)))


@njit(cache=True, nogil=True)
def _score_dot_product(room: Room, requests: Requests, n: int, t: int) -> int:
    cpu = room.cpu[n] / room.most[0] * requests.cpu[t] / room.most[0]
    asked = requests.gpus[t] * requests.milli[t]
    gpu = room.gpu[n].sum() / room.most[1] * asked / room.most[1]
    return int(100.0 * (1.0 - (cpu + gpu) / 2.0))


@njit(cache=True, nogil=True)
def _score_best_fit(room: Room, requests: Requests, n: int, t: int) -> int:
    asked = requests.gpus[t] * requests.milli[t]
    cpu = (room.cpu[n] - requests.cpu[t]) / room.most[0]
    gpu = (room.gpu[n].sum() - asked) / room.most[1]
    return int((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100.0)


@njit(cache=True, nogil=True)
def find_kind(gpus: int, milli: int) -> int:
    """Return 0 for a share of one GPU, else how many whole GPUs."""
    return 0 if milli < MILLI else gpus


@njit(cache=True, nogil=True)
def _score_clustering(room: Room, requests: Requests, n: int, t: int) -> int:
    """Prefer nodes with pods of the same kind only, then mixed ones, then empty ones."""
    if requests.gpus[t] == 0:
        return 0
    same = room.kinds[n, find_kind(requests.gpus[t], requests.milli[t])] > 0
    kinds = (room.kinds[n] > 0).sum()
    filled = int(25 * (room.most[1] - room.gpu[n].sum()) / room.most[1])
    if same:
        return filled + (75 if kinds == 1 else 50)
    return filled + (25 if kinds == 0 else 0)


@njit(cache=True, nogil=True)
def _score_packing(room: Room, requests: Requests, n: int, t: int) -> int:
    """Prefer GPUs in use, then free GPUs of nodes in use, then empty nodes."""
    size, gpus, milli = room.size[n], requests.gpus[t], requests.milli[t]
    if gpus == 0:
        return 0
    idle = _count_fitting(room.gpu[n], size, MILLI)
    if idle == size:
        return max(33 - idle, idle)
    gpu = room.gpu[n].copy()
    _take_tightest(gpu, size, gpus, milli)
    opened, left = 0, 0
    for i in range(size):
        if gpu[i] != room.gpu[n, i]:
            opened += room.gpu[n, i] == MILLI
            left += room.gpu[n, i] * 100 // MILLI
    return max(50 - opened, 33) if opened > 0 else max(100 - left // 10, 50)


@njit(cache=True, nogil=True)
def _score_node(room: Room, requests: Requests, pod: Any, policy: int) -> int:
    n, t = pod
    if policy == DOT_PRODUCT:
        return _score_dot_product(room, requests, n, t)
    if policy == CLUSTERING:
        return _score_clustering(room, requests, n, t)
    if policy == PACKING:
        return _score_packing(room, requests, n, t)
    if policy == BEST_FIT:
        return _score_best_fit(room, requests, n, t)
    score, _ = _find_descent(room, requests, n, t)
    return int(score)


@njit(cache=True, nogil=True)
def _fits(room: Room, requests: Requests, n: int, t: int) -> bool:
    if room.cpu[n] < requests.cpu[t]:
        return False
    if requests.gpus[t] == 0:
        return True
    fitting = _count_fitting(room.gpu[n], room.size[n], requests.milli[t])
    return bool(requests.allowed[t, room.model[n]] and fitting >= requests.gpus[t])


@njit(cache=True, nogil=True)
def _choose_random(room: Room, requests: Requests, t: int, memory: int) -> int:
    """Return any node that fits: by trying some, then, where few fit, by looking at all."""
    for _ in range(GUESSES):
        n = np.random.randint(len(room.cpu))
        if room.memory[n] >= memory and _fits(room, requests, n, t):
            return n
    chosen, seen = -1, 0
    for n in range(len(room.cpu)):
        if room.memory[n] >= memory and _fits(room, requests, n, t):
            seen += 1
            if np.random.randint(seen) == 0:
                chosen = n
    return chosen


@njit(cache=True, nogil=True)
def _take(room: Room, requests: Requests, pod: Any, policy: int) -> None:
    """Take what a pod asks for from its node, and measure anew what is stranded there."""
    n, t, memory = pod
    gpus, milli, size = requests.gpus[t], requests.milli[t], room.size[n]
    one = -1
    if policy == FGD:
        _, one = _find_descent(room, requests, n, t)
    if one >= 0:
        room.gpu[n, one] -= milli
    elif policy == RANDOM and gpus == 1:
        _take_random(room.gpu[n], size, milli)
    else:
        _take_tightest(room.gpu[n], size, gpus, milli)
    if gpus > 0:
        room.kinds[n, find_kind(gpus, milli)] += 1
    room.cpu[n] -= requests.cpu[t]
    room.memory[n] -= memory
    room.changes[n] += 1
    room.stranded[n] = measure_stranded(requests, room.model[n], size, room.cpu[n], room.gpu[n])


@njit(cache=True, nogil=True)
def place_pods(room: Room, requests: Requests, pods: Any, policy: int, seed: int) -> Curve:
    """Place pods (types, memory) in their order; who fits nowhere is turned away for good.

    A node's score for a type is kept until the node changes.
    """
    np.random.seed(seed)
    types, memory = pods
    nodes, many = len(room.cpu), len(types)
    scores = np.empty((len(requests.cpu), nodes), np.int64)
    scored = np.full((len(requests.cpu), nodes), -1, np.int64)
    curve = Curve(np.zeros(many, np.int64), np.zeros(many, np.int64), np.zeros(many))
    arrived, used, stranded = 0, 0, room.stranded.sum()
    for p in range(many):
        t = types[p]
        chosen, best = -1, -2
        if policy == RANDOM:
            chosen = _choose_random(room, requests, t, memory[p])
        else:
            for n in range(nodes):
                if scored[t, n] != room.changes[n]:
                    scored[t, n] = room.changes[n]
                    able = _fits(room, requests, n, t)
                    scores[t, n] = _score_node(room, requests, (n, t), policy) if able else -2
                if scores[t, n] > best and room.memory[n] >= memory[p]:
                    chosen, best = n, scores[t, n]
        arrived += requests.gpus[t] * requests.milli[t]
        if chosen >= 0:
            used += requests.gpus[t] * requests.milli[t]
            before = room.stranded[chosen]
            _take(room, requests, (chosen, t, memory[p]), policy)
            stranded += room.stranded[chosen] - before
        curve.arrived[p], curve.used[p], curve.stranded[p] = arrived, used, stranded
    return curve

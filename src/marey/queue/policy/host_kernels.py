"""Hosts and their GPUs inside the replay: who holds what until when, where and when a job fits.

Times are integer milliseconds. A reservation keeps whole hosts, as Slurm's backfill plans.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Any: inside the kernels it is an int64, outside mypy sees a scalar of numpy.
NEVER: Any = np.int64(1) << 60
MOST_ALLOCATED, LEAST_ALLOCATED = 0, 1
RESERVATIONS_PER_HOST = 64


class HostState(NamedTuple):
    """Arrays per host (free, first GPU, size), per GPU (holder, until), and reservations."""

    free: Ints
    first: Ints
    size: Ints
    holder: Ints
    until: Ints
    ready: Ints
    gap: Ints
    usable: Flags
    held: Ints
    reserved_from: Ints
    reserved_to: Ints
    stranded: Floats


def build_hosts(sizes: Ints, stranded: Floats) -> HostState:
    """Return empty hosts of so many GPUs each."""
    hosts, gpus = len(sizes), int(sizes.sum())
    return HostState(
        free=sizes.copy(),
        first=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
        size=sizes,
        holder=np.full(gpus, -1, np.int64),
        until=np.zeros(gpus, np.int64),
        ready=np.empty(hosts, np.int64),
        gap=np.empty(hosts, np.int64),
        usable=np.ones(hosts, np.bool_),
        held=np.zeros(hosts, np.int64),
        reserved_from=np.zeros((hosts, RESERVATIONS_PER_HOST), np.int64),
        reserved_to=np.zeros((hosts, RESERVATIONS_PER_HOST), np.int64),
        stranded=stranded,
    )


@njit(cache=True, nogil=True)
def _score_host(state: HostState, h: int, need: int, placement: int) -> float:
    """Return how bad it is to take ``need`` GPUs of a host; lower is better."""
    if placement == MOST_ALLOCATED:
        return float(state.free[h])
    if placement == LEAST_ALLOCATED:
        return float(-state.free[h])
    return float(state.stranded[state.free[h] - need] - state.stranded[state.free[h]])


@njit(cache=True, nogil=True)
def pick_hosts(state: HostState, need: int, chosen: Ints, placement: int) -> bool:
    """Fill ``chosen`` with the best usable hosts; return whether there are so many."""
    for found in range(len(chosen)):
        best, best_score = -1, 0.0
        for h in range(len(state.free)):
            if not state.usable[h] or state.free[h] < need or _is_among(chosen[:found], h):
                continue
            score = _score_host(state, h, need, placement)
            if best < 0 or score < best_score:
                best, best_score = h, score
                if placement == MOST_ALLOCATED and state.free[h] == need:
                    break
        if best < 0:
            return False
        chosen[found] = best
    return True


@njit(cache=True, nogil=True)
def _is_among(chosen: Ints, h: int) -> bool:
    for one in chosen:  # noqa: SIM110 (numba compiles the loop)
        if one == h:
            return True
    return False


@njit(cache=True, nogil=True)
def find_ready(state: HostState, need: int, now: int) -> None:
    """Fill ``ready`` with the moment at which each host has ``need`` GPUs free, by time limits."""
    ends = np.empty(64, np.int64)
    for h in range(len(state.first)):
        state.ready[h] = NEVER
        if state.size[h] < need:
            continue
        if state.free[h] >= need:
            state.ready[h] = now
            continue
        for j in range(state.size[h]):
            value = state.until[state.first[h] + j]
            k = j
            while k > 0 and ends[k - 1] > value:
                ends[k] = ends[k - 1]
                k -= 1
            ends[k] = value
        state.ready[h] = max(ends[need - 1], now)


@njit(cache=True, nogil=True)
def _find_gap(state: HostState, h: int, at: int, span: int) -> int:
    """Return the first moment from ``at`` on with ``span`` ms between a host's reservations."""
    moved = True
    while moved:
        moved = False
        for r in range(state.held[h]):
            if state.reserved_from[h, r] < at + span and state.reserved_to[h, r] > at:
                at = state.reserved_to[h, r]
                moved = True
    return at


@njit(cache=True, nogil=True)
def plan_start(state: HostState, count: int, span: int) -> Any:
    """Return the first moment at which ``count`` hosts are free together; mark them usable."""
    floor = np.int64(0)
    for _ in range(64):
        able = 0
        for h in range(len(state.ready)):
            state.gap[h] = NEVER
            if state.ready[h] < NEVER and state.held[h] < RESERVATIONS_PER_HOST:
                state.gap[h] = _find_gap(state, h, max(state.ready[h], floor), span)
                able += 1
        if able < count:
            return NEVER
        at: Any = np.min(state.gap) if count == 1 else np.sort(state.gap)[count - 1]
        together = 0
        for h in range(len(state.ready)):
            fits = state.gap[h] <= at and _find_gap(state, h, at, span) == at
            state.usable[h] = fits
            together += 1 if fits else 0
        if together >= count:
            return at
        floor = at + 1
    return NEVER


@njit(cache=True, nogil=True)
def reserve_hosts(state: HostState, count: int, at: int, span: int) -> None:
    """Keep the ``count`` usable hosts that are ready first, whole, from ``at`` on."""
    for _ in range(count):
        best = -1
        for h in range(len(state.ready)):
            if state.usable[h] and (best < 0 or state.ready[h] < state.ready[best]):
                best = h
        if best < 0:
            return
        state.usable[best] = False
        state.reserved_from[best, state.held[best]] = at
        state.reserved_to[best, state.held[best]] = at + span
        state.held[best] += 1


@njit(cache=True, nogil=True)
def take_gpus(state: HostState, job: int, need: int, chosen: Ints, until: int) -> None:
    """Give a job its GPUs on the chosen hosts until ``until`` (by its limit)."""
    for h in chosen:
        state.free[h] -= need
        left = need
        for g in range(state.first[h], state.first[h] + state.size[h]):
            if left and state.holder[g] < 0:
                state.holder[g] = job
                state.until[g] = until
                left -= 1


@njit(cache=True, nogil=True)
def give_back(state: HostState, job: int, hosts: Ints) -> None:
    """Take a job's GPUs back."""
    for h in hosts:
        for g in range(state.first[h], state.first[h] + state.size[h]):
            if state.holder[g] == job:
                state.holder[g] = -1
                state.until[g] = 0
                state.free[h] += 1

"""What hosts have left inside a scheduler's pass, and where a request fits.

Hosts with equally many whole free GPUs stand together as bits, so that finding the fullest, the
emptiest or the first host that fits takes a few words instead of a walk over all hosts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marey.sim.passes.compiling import njit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
# Any: inside the kernels it is an int64, outside mypy sees a scalar of numpy.
NEVER: Any = np.int64(1) << 60
MOST_ALLOCATED, LEAST_ALLOCATED, FRAGMENTATION, NODE_ORDER = 0, 1, 2, 3
WHOLE_GPU = 1000
# The lowest set bit times this de Bruijn sequence shows the bit's place in its upper six bits.
_SEQUENCE: Any = np.uint64(0x03F79D71B4CB0A89)
_ONE: Any = np.uint64(1)
_SHIFT: Any = np.uint64(58)


def _list_places() -> NDArray[np.int64]:
    places = np.zeros(64, np.int64)
    for bit in range(64):
        product = ((1 << bit) * int(_SEQUENCE)) & ((1 << 64) - 1)
        places[product >> 58] = bit
    return places


_PLACES = _list_places()


class Requests(NamedTuple):
    """What each job asks for on each of its hosts, and when it must end."""

    gpus: Ints
    # Thousandths of each GPU; less than 1000 only where one GPU per host is asked for.
    share: Ints
    cpus: Ints
    memory: Ints
    hosts: Ints
    # Row of the hosts that it may use (partition and GPU model).
    pool: Ints
    limit: Ints
    owner: Ints
    project: Ints
    partition: Ints
    # Row of its quality of service among the limits, which begin with the partitions'; −1: none.
    qos: Ints
    # Higher ones may evict lower ones.
    tier: Ints
    # Where its hosts stand in the flat list of the hosts in use.
    first: Ints


class Room(NamedTuple):
    """Free GPUs, CPUs and memory per host, and the bits of hosts by whole free GPUs."""

    free: Ints
    cpus: Ints
    memory: Ints
    # Thousandths left per GPU; no column where no GPU is shared.
    left: Ints
    level: Words
    # How many hosts have so many whole free GPUs.
    counts: Ints


def build_room(gpus: Ints, cpus: Ints, memory: Ints, *, shared: bool) -> Room:
    """Return empty hosts."""
    hosts, most = len(gpus), int(gpus.max(initial=0))
    room = Room(
        free=gpus.astype(np.int64),
        cpus=cpus.astype(np.int64),
        memory=memory.astype(np.int64),
        left=np.zeros((hosts, most if shared else 0), np.int64),
        level=np.zeros((most + 1, (hosts + 63) // 64), np.uint64),
        counts=np.bincount(gpus, minlength=most + 1).astype(np.int64),
    )
    for host, size in enumerate(gpus.tolist()):
        room.level[size, host >> 6] |= _ONE << np.uint64(host & 63)
        if shared:
            room.left[host, :size] = WHOLE_GPU
    return room


def build_mask(chosen: NDArray[np.bool_]) -> Words:
    """Return flags of hosts as bits."""
    words = np.zeros((len(chosen) + 63) // 64, np.uint64)
    for host in np.flatnonzero(chosen).tolist():
        words[host >> 6] |= _ONE << np.uint64(host & 63)
    return words


@njit()
def copy_room(source: Room, target: Room) -> None:
    """Make one room equal to another."""
    for host in range(len(source.free)):
        target.free[host] = source.free[host]
        target.cpus[host] = source.cpus[host]
        target.memory[host] = source.memory[host]
        for gpu in range(source.left.shape[1]):
            target.left[host, gpu] = source.left[host, gpu]
    for level in range(len(source.counts)):
        target.counts[level] = source.counts[level]
        for word in range(source.level.shape[1]):
            target.level[level, word] = source.level[level, word]


@njit()
def find_place(bits: Any) -> Any:
    """Return the place of the lowest set bit."""
    low = bits & (~bits + _ONE)
    return _PLACES[np.int64((low * _SEQUENCE) >> _SHIFT)]


@njit()
def is_set(mask: Words, host: int) -> bool:
    """Return whether a host's bit is set."""
    return bool((mask[host >> 6] >> np.uint64(host & 63)) & _ONE)


@njit()
def find_biggest(room: Room) -> int:
    """Return the most whole free GPUs of one host."""
    level = len(room.counts) - 1
    while level > 0 and room.counts[level] == 0:
        level -= 1
    return level


@njit()
def _move(room: Room, host: int, free: int) -> None:
    """Note a new number of whole free GPUs."""
    old = room.free[host]
    if old == free:
        return
    bit = _ONE << np.uint64(host & 63)
    room.level[old, host >> 6] ^= bit
    room.level[free, host >> 6] ^= bit
    room.counts[old] -= 1
    room.counts[free] += 1
    room.free[host] = free


@njit()
def fits_on_host(room: Room, jobs: Requests, job: int, host: int) -> bool:
    """Return whether a host has what a job asks for there."""
    if room.cpus[host] < jobs.cpus[job] or room.memory[host] < jobs.memory[job]:
        return False
    if jobs.share[job] == WHOLE_GPU:
        return bool(room.free[host] >= jobs.gpus[job])
    return _find_gpu(room, host, jobs.share[job]) >= 0


@njit()
def _find_gpu(room: Room, host: int, share: int) -> int:
    """Return the fullest GPU of a host that has a share left."""
    best = -1
    for gpu in range(room.left.shape[1]):
        left = room.left[host, gpu]
        if left >= share and (best < 0 or left < room.left[host, best]):
            best = gpu
    return best


@njit()
def _find_next_level(need: int, last: int, stranded: Floats) -> int:
    """Return the level after another in the order of GPUs that get stranded; −1: none is left."""
    best, least = -1, 0.0
    after = stranded[last - need] - stranded[last] if last >= 0 else 0.0
    for level in range(need, len(stranded)):
        added = stranded[level - need] - stranded[level]
        if last >= 0 and (added < after or (added == after and level <= last)):
            continue
        if best < 0 or added < least:
            best, least = level, added
    return best


@njit()
def pick_hosts(
    room: Room,
    jobs: Requests,
    job: int,
    allowed: Words,
    placement: int,
    stranded: Floats,
    chosen: Ints,
) -> bool:
    """Fill ``chosen`` with the best hosts of a mask; return whether there are enough."""
    if jobs.share[job] < WHOLE_GPU or placement == NODE_ORDER:
        return _pick_in_order(room, jobs, job, allowed, chosen)
    need, wanted, found = jobs.gpus[job], len(chosen), 0
    top = len(room.counts) - 1
    if placement == FRAGMENTATION:
        return _pick_by_score(room, jobs, job, allowed, stranded, chosen)
    level = need if placement == MOST_ALLOCATED else top
    step = 1 if placement == MOST_ALLOCATED else -1
    while need <= level <= top:
        if room.counts[level] > 0:
            for word in range(len(allowed)):
                bits = room.level[level, word] & allowed[word]
                while bits:
                    host = word * 64 + find_place(bits)
                    bits &= bits - _ONE
                    if room.cpus[host] >= jobs.cpus[job] and room.memory[host] >= jobs.memory[job]:
                        chosen[found] = host
                        found += 1
                        if found == wanted:
                            return True
        level += step
    return False


@njit()
def _pick_in_order(room: Room, jobs: Requests, job: int, allowed: Words, chosen: Ints) -> bool:
    """Take the first hosts that fit; shares go to the host whose GPU they fill best."""
    found = 0
    shared = jobs.share[job] < WHOLE_GPU
    best, best_left = -1, WHOLE_GPU + 1
    for word in range(len(allowed)):
        bits = allowed[word]
        while bits:
            host = word * 64 + find_place(bits)
            bits &= bits - _ONE
            if not fits_on_host(room, jobs, job, host):
                continue
            if shared and len(chosen) == 1:
                left = room.left[host, _find_gpu(room, host, jobs.share[job])]
                if left < best_left:
                    best, best_left = host, left
                continue
            chosen[found] = host
            found += 1
            if found == len(chosen):
                return True
    if best >= 0:
        chosen[0] = best
        return True
    return False


@njit()
def _pick_by_score(
    room: Room, jobs: Requests, job: int, allowed: Words, stranded: Floats, chosen: Ints
) -> bool:
    """Take hosts level by level, in the order in which the fewest GPUs get stranded."""
    need, found = jobs.gpus[job], 0
    level = _find_next_level(need, -1, stranded)
    while level >= 0:
        for word in range(len(allowed)):
            bits = room.level[level, word] & allowed[word]
            while bits:
                host = word * 64 + find_place(bits)
                bits &= bits - _ONE
                if fits_on_host(room, jobs, job, host):
                    chosen[found] = host
                    found += 1
                    if found == len(chosen):
                        return True
        level = _find_next_level(need, level, stranded)
    return False


@njit()
def take_room(room: Room, jobs: Requests, job: int, hosts: Ints, gpus_taken: Words) -> None:
    """Give a job its part of each host; note which GPUs, where GPUs are shared."""
    shared = room.left.shape[1] > 0
    for i in range(len(hosts)):
        host = hosts[i]
        room.cpus[host] -= jobs.cpus[job]
        room.memory[host] -= jobs.memory[job]
        if not shared:
            _move(room, host, room.free[host] - jobs.gpus[job])
            continue
        taken = np.uint64(0)
        if jobs.share[job] < WHOLE_GPU:
            gpu = _find_gpu(room, host, jobs.share[job])
            if room.left[host, gpu] == WHOLE_GPU:
                _move(room, host, room.free[host] - 1)
            room.left[host, gpu] -= jobs.share[job]
            taken = _ONE << np.uint64(gpu)
        else:
            wanted = jobs.gpus[job]
            for gpu in range(room.left.shape[1]):
                if wanted and room.left[host, gpu] == WHOLE_GPU:
                    room.left[host, gpu] = 0
                    taken |= _ONE << np.uint64(gpu)
                    wanted -= 1
            _move(room, host, room.free[host] - jobs.gpus[job])
        gpus_taken[i] = taken


@njit()
def give_room(room: Room, jobs: Requests, job: int, hosts: Ints, gpus_taken: Words) -> None:
    """Take a job's part of each host back."""
    shared = room.left.shape[1] > 0
    for i in range(len(hosts)):
        host = hosts[i]
        room.cpus[host] += jobs.cpus[job]
        room.memory[host] += jobs.memory[job]
        if not shared:
            _move(room, host, room.free[host] + jobs.gpus[job])
            continue
        bits, back = gpus_taken[i], 0
        while bits:
            gpu = find_place(bits)
            bits &= bits - _ONE
            room.left[host, gpu] += jobs.share[job]
            back += 1 if room.left[host, gpu] == WHOLE_GPU else 0
        _move(room, host, room.free[host] + back)

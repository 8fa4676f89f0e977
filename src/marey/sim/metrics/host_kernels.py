"""Host metrics from what the GPU states on a host ask of it."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.sim.metrics.sample_kernels import (
    DEAD,
    HOST_CPU,
    HOST_IO,
    K_NVLINK,
    L_CPU,
    L_MEM,
    L_NET,
    L_READ,
    L_WRITE,
    MEM_MIB,
    Ints,
    Singles,
    signed,
)

# Sums are kept in units of 1/1024.
FIXED = np.float32(1024.0)


@njit(cache=True, nogil=True)
def add_hosts(
    gpus: Ints,
    begins: Ints,
    ends: Ints,
    role_of: Ints,
    gpu_states: Singles,
    levels: Singles,
    first: int,
    count: int,
    every: int,
    gpu_host: NDArray[np.int32],
    sums: Ints,
) -> None:
    """Add what each GPU state asks of its host (cores, reads, writes, network) at the host's ticks.

    The sums are integers (fixed point), so they do not depend on the order of the GPU states.
    """
    for i in range(len(gpus)):
        host = gpu_host[gpus[i]]
        if gpu_states[i, DEAD] > 0.0:
            for t in range(max(begins[i], first), min(ends[i], first + count)):
                if t % every == 0:
                    sums[host, t // every - (first + every - 1) // every, 5] += 1
            continue
        cpu, io = gpu_states[i, HOST_CPU], gpu_states[i, HOST_IO]
        for t in range(max(begins[i], first), min(ends[i], first + count)):
            if t % every:
                continue
            r, n = role_of[i], t - first
            into = sums[host, t // every - (first + every - 1) // every]
            into[0] += np.int64(levels[r, L_CPU, n] * cpu * FIXED)
            into[1] += np.int64(levels[r, L_READ, n] * io * FIXED)
            into[2] += np.int64(levels[r, L_WRITE, n] * FIXED)
            into[3] += np.int64(levels[r, L_NET, n] * gpu_states[i, K_NVLINK] * FIXED)
            into[4] += np.int64(levels[r, L_MEM, n] * gpu_states[i, MEM_MIB] * FIXED)


@njit(cache=True, nogil=True)
def finish_hosts(
    sums: Ints,
    sizes: Ints,
    cpus: Singles,
    memory_mib: Singles,
    first_tick: int,
    every: int,
    seed: np.uint64,
    out: Singles,
) -> None:
    """Turn the sums into the eight host metrics, with noise, rounded to their resolution."""
    hosts, ticks = sums.shape[0], sums.shape[1]
    ten, tenth = np.float32(10.0), np.float32(0.1)
    hundred, hundredth = np.float32(100.0), np.float32(0.01)
    half = np.float32(0.5)
    for h in range(hosts):
        for k in range(ticks):
            row = h * ticks + k
            total = sums[h, k]
            # Only a host all of whose GPUs are silent is silent itself.
            if total[5] >= sizes[h]:
                for m in range(8):
                    out[m, row] = np.nan
                continue
            key = np.uint64(seed) + np.uint64(h) * np.uint64(0xA24BAED4963EE407)
            n = np.float32(signed(key, first_tick + k * every))
            n2 = np.float32(signed(key + np.uint64(3), first_tick + k * every))
            busy = np.float32(0.6) + np.float32(total[0]) / FIXED
            cpu = min(hundred, hundred * busy / cpus[h] * (np.float32(1.0) + np.float32(0.06) * n))
            load = busy * (np.float32(1.05) + np.float32(0.1) * n2)
            used = min(
                np.float32(12_000.0) + np.float32(0.55) * np.float32(total[4]) / FIXED,
                memory_mib[h] * np.float32(0.97),
            )
            net = np.float32(total[3]) / FIXED * (
                np.float32(1.0) + np.float32(0.07) * n2
            ) + np.float32(0.3)
            read = np.float32(total[1]) / FIXED * (
                np.float32(1.0) + np.float32(0.15) * n
            ) + np.float32(0.1)
            out[0, row] = np.floor(cpu * ten + half) * tenth
            out[1, row] = np.floor(load * hundred + half) * hundredth
            out[2, row] = np.floor(hundred * used / memory_mib[h] * ten + half) * tenth
            out[3, row] = np.floor(used + half)
            out[4, row] = np.floor(net * ten + half) * tenth
            out[5, row] = (
                np.floor(net * (np.float32(1.0) + np.float32(0.03) * n) * ten + half) * tenth
            )
            out[6, row] = np.floor(read * ten + half) * tenth
            out[7, row] = np.floor(np.float32(total[2]) / FIXED * ten + half) * tenth

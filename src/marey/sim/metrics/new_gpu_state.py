"""New states of GPUs: how ranks are made to differ, and how warm each gets."""

from __future__ import annotations

import numpy as np
from numba import njit

from marey.sim.metrics.sample_kernels import (
    DRAM,
    HEAT_GAIN,
    IDLE_W,
    K_UTIL,
    KELVIN,
    LIMIT_W,
    MEM_CAP,
    MEM_MIB,
    SM,
    STATE_COLUMNS,
    TENSOR,
    UTIL,
    W_DRAM,
    W_SM,
    W_TENSOR,
    W_UTIL,
    WARM,
    Doubles,
    Ints,
    Singles,
)
from marey.sim.random_draws import draw_normal_table


@njit(cache=True, nogil=True)
def switch_states(
    gpus: Ints,
    tick: int,
    fade_per_tick: float,
    begins: Ints,
    role: Ints,
    gpu_state: Singles,
    code: Ints,
    excess: Doubles,
    new_roles: Ints,
    new_states: Singles,
    new_codes: Ints,
    new_excess: Doubles,
) -> None:
    """Give GPUs new GPU states from this tick on; what is left of the old warmth goes along."""
    for i in range(len(gpus)):
        g = gpus[i]
        faded = np.exp(-(tick - begins[g]) * fade_per_tick)
        warm = excess[g] * (1.0 - faded) + gpu_state[g, WARM] * faded
        begins[g] = tick
        role[g] = new_roles[i]
        code[g] = new_codes[i]
        excess[g] = new_excess[i]
        for column in range(STATE_COLUMNS):
            gpu_state[g, column] = new_states[i, column]
        gpu_state[g, WARM] = warm


@njit(cache=True, nogil=True)
def steady_excess(roles: Doubles, role_of: Ints, gpu_states: Singles) -> Doubles:
    """Return how much warmer than idle each GPU state gets when its role goes on."""
    excess = np.empty(len(role_of))
    for i in range(len(role_of)):
        role = roles[role_of[i]]
        share = W_UTIL * role[UTIL] + W_SM * role[SM] + W_TENSOR * role[TENSOR]
        share = min((share + W_DRAM * role[DRAM]) * gpu_states[i, HEAT_GAIN], 1.0)
        excess[i] = gpu_states[i, KELVIN] * (gpu_states[i, LIMIT_W] - gpu_states[i, IDLE_W]) * share
    return excess


@njit(cache=True, nogil=True)
def vary_states(gpu_states: Singles, key: np.uint64, spreads: Doubles, memory_share: float) -> None:
    """Vary the ranks of one workload a little where they do the same; memory hardly at all."""
    noise = draw_normal_table(key, len(gpu_states), 8)
    for i in range(len(gpu_states)):
        for column in range(7):
            gpu_states[i, K_UTIL + column] = 1.0 + spreads[column] * noise[i, column]
        used = memory_share * gpu_states[i, MEM_CAP] * (1.0 + 0.004 * noise[i, 7])
        gpu_states[i, MEM_MIB] = min(used, 0.97 * gpu_states[i, MEM_CAP])

"""Sample values as pure functions of (GPU, tick): what a workload does, and what its GPU shows.

A *role* is what a group of ranks of one workload does over time: phases and levels, no noise of
single GPUs. A *GPU state* is one GPU while it plays a role: multipliers, memory, clocks,
temperature. Every value depends on role, state, tick and a hash only, so any slicing of time gives
equal bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.sim.random_draws import mix

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
Singles = NDArray[np.float32]

# Columns of a role (float64).
(
    START_MS,
    REGIME_MS,
    INIT_MS,
    LOAD_MS,
    TRAIN_MS,
    EVAL_MS,
    CHECKPOINT_MS,
    PATTERN,
    WAVE_MS,
    WAVE_DUTY,
    WAVE_FLOOR,
    WAVE_UTIL,
    UTIL,
    SM,
    TENSOR,
    DRAM,
    NVLINK,
    PCIE_RX,
    PCIE_TX,
    EVAL_UTIL,
    EVAL_WORK,
    NOISE,
    KEY,
    CPU,
    FS_READ,
    FS_WRITE,
    NET,
    WAVE_OFFSET,
) = range(28)
ROLE_COLUMNS = 28

PATTERN_TRAIN, PATTERN_SERVE, PATTERN_NOTEBOOK, PATTERN_FLAT = 0, 1, 2, 3

# Columns of a role's levels at one tick (float32).
(
    L_UTIL,
    L_SM,
    L_TENSOR,
    L_DRAM,
    L_NVLINK,
    L_RX,
    L_TX,
    L_MEM,
    L_HEAT,
    L_CPU,
    L_READ,
    L_WRITE,
    L_NET,
) = range(13)
LEVEL_COLUMNS = 13

# Columns of a GPU state (float32).
(
    K_UTIL,
    K_SM,
    K_TENSOR,
    K_DRAM,
    K_NVLINK,
    K_RX,
    K_TX,
    MEM_MIB,
    LEAK_MIB,
    MEM_CAP,
    JITTER,
    CLOCK,
    IDLE_W,
    LIMIT_W,
    GAIN,
    AMBIENT,
    KELVIN,
    HEAT_GAIN,
    WARM,
    DEAD,
    HOST_CPU,
    HOST_IO,
) = range(22)
STATE_COLUMNS = 22

# How the draw of power follows activity; fitted by eye to the A100 jobs of JUWELS Booster
# (68 % util with little tensor work: 200-250 W of 400; spinning only: about 100 W).
W_UTIL, W_SM, W_TENSOR, W_DRAM = 0.12, 0.20, 0.85, 0.35
TIME_CONSTANT_MS = 75_000.0
COOL_TICKS = 64

_U = 1.0 / 32768.0


@njit(cache=True, nogil=True, inline="always")
def within(x: float, period: float, length: float) -> float:
    """Return how much of [0, x) lies in the last ``length`` of each period."""
    whole = np.floor(x / period)
    rest = x - whole * period - (period - length)
    inside: float = whole * length + (rest if rest > 0.0 else 0.0)
    return inside


@njit(cache=True, nogil=True, inline="always")
def signed(key: np.uint64, n: int | np.int64) -> float:
    """Return a number in [-1, 1) for a key and a counter."""
    h = mix(np.uint64(key) + np.uint64(n) * np.uint64(0xD1342543DE82EF95))
    return np.float64(h >> np.uint64(11)) * (2.0**-52) - 1.0


@njit(cache=True, nogil=True)
def role_levels(
    role: Doubles, time_ms: float, tick_ms: float, out: Singles, r: int, n: int
) -> float:
    """Return the role's average levels over the tick that ends here.

    Returns its share of power.
    """
    key = np.uint64(role[KEY])
    end = time_ms - role[START_MS]
    begin = end - tick_ms
    if begin < 0.0:
        begin = 0.0
    span = end - begin
    if span <= 0.0:
        span = 1.0
        begin = end - 1.0
    warm_end = role[INIT_MS] + role[LOAD_MS]
    # Shares of this tick: initialisation, loading, the rest.
    init = min(max((role[INIT_MS] - begin) / span, 0.0), 1.0)
    load = min(max((warm_end - begin) / span, 0.0), 1.0) - init
    work = 1.0 - init - load
    evaluation, checkpoint = 0.0, 0.0
    pause = role[EVAL_MS] + role[CHECKPOINT_MS]
    if work > 0.0 and pause > 0.0:
        period = role[TRAIN_MS] + pause
        a = max(begin - warm_end, 0.0)
        b = end - warm_end
        pauses = (within(b, period, pause) - within(a, period, pause)) / span
        checkpoint = (
            within(b, period, role[CHECKPOINT_MS]) - within(a, period, role[CHECKPOINT_MS])
        ) / span
        evaluation = pauses - checkpoint
    train = max(work - evaluation - checkpoint, 0.0)
    on, off = train, 0.0
    if role[WAVE_MS] > 0.0:
        period = role[WAVE_MS]
        length = period * (1.0 - role[WAVE_DUTY])
        b = end + role[WAVE_OFFSET]
        idle = (within(b, period, length) - within(b - span, period, length)) / span
        on = train * (1.0 - idle)
        off = train * idle
    minute = np.int64(np.floor(time_ms / 60_000.0))
    tick = np.int64(np.floor(time_ms / tick_ms))
    common = 1.0 + role[NOISE] * (
        0.6 * signed(key, tick) + 0.4 * signed(key + np.uint64(7), minute)
    )
    if role[PATTERN] == PATTERN_SERVE:
        # Requests follow the day and come in bursts.
        hour = time_ms / 3_600_000.0 % 24.0
        day = 0.78 + 0.22 * np.cos((hour - 15.0) * 0.2617993877991494)
        common = common * day * (1.0 + 0.25 * signed(key + np.uint64(9), minute))
    elif role[PATTERN] == PATTERN_NOTEBOOK:
        # Cells run for some minutes, then somebody reads and thinks.
        spell = np.int64(np.floor(time_ms / 240_000.0))
        active = signed(key + np.uint64(11), spell) < role[WAVE_FLOOR]
        short = signed(key + np.uint64(13), minute) < 0.6
        busy = 1.0 if (active and short) else 0.0
        on = train * busy
        off = 0.0
    floor = role[WAVE_FLOOR] if role[WAVE_MS] > 0.0 else 0.0
    work_share = on * common + off * floor + evaluation * role[EVAL_WORK]
    util = (
        role[UTIL] * (on * min(common, 1.03) + evaluation * role[EVAL_UTIL])
        + off * role[WAVE_UTIL]
        + load * 0.08
        + checkpoint * 0.04
    )
    sm = role[SM] * work_share + load * 0.02
    tensor = role[TENSOR] * work_share
    dram = role[DRAM] * work_share + load * 0.01 + checkpoint * 0.03
    out[r, L_UTIL, n] = 100.0 * util
    out[r, L_SM, n] = 100.0 * sm
    out[r, L_TENSOR, n] = 100.0 * tensor
    out[r, L_DRAM, n] = 100.0 * dram
    out[r, L_NVLINK, n] = role[NVLINK] * (on + off * floor + 0.3 * evaluation)
    out[r, L_RX, n] = (
        role[PCIE_RX] * (on + off * floor + evaluation) + load * 3_000.0 + checkpoint * 20.0
    )
    out[r, L_TX, n] = role[PCIE_TX] * (on + off * floor + 0.5 * evaluation) + checkpoint * 4_000.0
    loaded = 1.0 - init
    out[r, L_MEM, n] = 0.012 * init + loaded * (0.55 if work <= 0.0 else 1.0)
    out[r, L_CPU, n] = (
        role[CPU] * (on + off + 0.8 * evaluation + 0.5 * load + 0.3 * checkpoint) + 0.3 * init
    )
    out[r, L_READ, n] = role[FS_READ] * (on + 0.7 * off + evaluation) + load * 350.0
    out[r, L_WRITE, n] = checkpoint * role[FS_WRITE] + 0.05
    out[r, L_NET, n] = role[NET] * (on + off * floor + 0.2 * evaluation)
    power: float = W_UTIL * util + W_SM * sm + W_TENSOR * tensor + W_DRAM * dram
    return power


@njit(cache=True, nogil=True)
def fill_levels(
    rows: Ints,
    roles: Doubles,
    heat_tick: Ints,
    heat: Doubles,
    first: int,
    count: int,
    start_ms: float,
    tick_ms: float,
    levels: Singles,
) -> None:
    """Fill in levels of these roles for ``count`` ticks from ``first``; warmth lags behind power.

    The lag is a recurrence that begins with the role: where the state is behind (after a
    fast-forward), it is replayed from where it stands, so the result never depends on slicing.
    """
    keep = np.float64(np.exp(-tick_ms / TIME_CONSTANT_MS))
    spare = np.empty((1, LEVEL_COLUMNS, 1), np.float32)
    for i in range(len(rows)):
        r = rows[i]
        role = roles[r]
        begin = np.int64(np.ceil((role[REGIME_MS] - start_ms) / tick_ms))
        state = heat[r]
        t = max(begin, heat_tick[r] + 1)
        while t < first:
            power = role_levels(role, start_ms + t * tick_ms, tick_ms, spare, 0, 0)
            state = state * keep + (1.0 - keep) * min(power, 1.0)
            t += 1
        for k in range(count):
            t = first + k
            if t < begin:
                continue
            power = role_levels(role, start_ms + t * tick_ms, tick_ms, levels, r, k)
            if t > heat_tick[r]:
                state = state * keep + (1.0 - keep) * min(power, 1.0)
            levels[r, L_HEAT, k] = state
        heat[r] = state
        heat_tick[r] = max(heat_tick[r], first + count - 1)


@njit(cache=True, nogil=True)
def fill_states(
    low: int,
    high: int,
    gpus: Ints,
    begins: Ints,
    ends: Ints,
    role_of: Ints,
    gpu_states: Singles,
    levels: Singles,
    first: int,
    count: int,
    seed: np.uint64,
    tick_s: float,
    decay: Singles,
    codes: Ints,
    workload: NDArray[np.int32],
    out: Singles,
) -> None:
    """Write the twelve everyday metrics of GPU states ``low`` to ``high`` into rows gpu x tick."""
    one, ten = np.float32(1.0), np.float32(10.0)
    tenth = np.float32(0.1)
    zero, full = np.float32(0.0), np.float32(100.0)
    w_util, w_sm = np.float32(W_UTIL / 100.0), np.float32(W_SM / 100.0)
    w_tensor, w_dram = np.float32(W_TENSOR / 100.0), np.float32(W_DRAM / 100.0)
    unit = np.float32(_U)
    half = np.float32(0.5)
    word = np.uint64(0xFFFF)
    for i in range(low, high):
        a = max(begins[i], first)
        b = min(ends[i], first + count)
        if a >= b:
            continue
        g = gpus[i]
        r = role_of[i]
        gpu_state = gpu_states[i]
        base = g * count - first
        code = codes[i]
        if gpu_state[DEAD] > 0.0:
            for t in range(a, b):
                workload[base + t] = code
                for m in range(12):
                    out[m, base + t] = np.nan
            continue
        key = mix(np.uint64(seed) + np.uint64(g))
        jitter = gpu_state[JITTER] * unit
        calm = min(one, gpu_state[JITTER]) * unit
        idle_w, range_w = gpu_state[IDLE_W], gpu_state[LIMIT_W] - gpu_state[IDLE_W]
        k_util, k_sm, k_tensor, k_dram = (
            gpu_state[K_UTIL],
            gpu_state[K_SM],
            gpu_state[K_TENSOR],
            gpu_state[K_DRAM],
        )
        k_nvlink, k_rx, k_tx = gpu_state[K_NVLINK], gpu_state[K_RX], gpu_state[K_TX]
        mem, leak, cap = (
            gpu_state[MEM_MIB],
            gpu_state[LEAK_MIB] * np.float32(tick_s),
            gpu_state[MEM_CAP],
        )
        gain, heat_gain, warm = gpu_state[GAIN], gpu_state[HEAT_GAIN], gpu_state[WARM]
        cool = gpu_state[AMBIENT] + gpu_state[KELVIN] * idle_w
        kelvin = gpu_state[KELVIN] * range_w
        clock = gpu_state[CLOCK]
        begun = begins[i]
        for t in range(a, b):
            n = t - first
            h = mix(key + np.uint64(t) * np.uint64(0x9E3779B97F4A7C15))
            n0 = np.float32(np.int64(h & word) - 32768)
            n1 = np.float32(np.int64((h >> np.uint64(16)) & word) - 32768)
            n2 = np.float32(np.int64((h >> np.uint64(32)) & word) - 32768)
            n3 = np.float32(np.int64(h >> np.uint64(48)) - 32768)
            h = mix(h)
            n4 = np.float32(np.int64(h & word) - 32768)
            n5 = np.float32(np.int64((h >> np.uint64(16)) & word) - 32768)
            n6 = np.float32(np.int64((h >> np.uint64(32)) & word) - 32768)
            n7 = np.float32(np.int64(h >> np.uint64(48)) - 32768)
            util = levels[r, L_UTIL, n] * k_util * (one + np.float32(0.03) * jitter * n0)
            sm = levels[r, L_SM, n] * k_sm * (one + np.float32(0.05) * jitter * n1)
            tensor = levels[r, L_TENSOR, n] * k_tensor * (one + np.float32(0.06) * jitter * n2)
            dram = levels[r, L_DRAM, n] * k_dram * (one + np.float32(0.05) * jitter * n3)
            util = min(max(util, zero), full)
            sm = min(max(sm, zero), full)
            tensor = min(max(tensor, zero), full)
            dram = min(max(dram, zero), full)
            share = gain * (w_util * util + w_sm * sm + w_tensor * tensor + w_dram * dram)
            share = min(share, one)
            wobble = np.float32(0.02) * calm * n4
            power = idle_w * (one + np.float32(0.3) * wobble) + range_w * share * (one + wobble)
            # Near the limit the device lowers its clock in steps of 15 MHz to stay below it.
            over = max(zero, share - np.float32(0.92))
            speed = clock - np.float32(15.0) * np.floor(clock * over * np.float32(0.7 / 15.0))
            since = t - begun
            # By the end of its first tick the new role has warmed the device for one tick.
            fade = decay[min(since + 1, COOL_TICKS - 1)]
            temp = cool + kelvin * levels[r, L_HEAT, n] * heat_gain + np.float32(0.4) * calm * n4
            temp += warm * fade
            used = min(mem * levels[r, L_MEM, n] + leak * np.float32(since), cap)
            row = base + t
            workload[row] = code
            out[0, row] = np.floor(util + half)
            out[1, row] = np.floor(sm * ten + half) * tenth
            out[2, row] = np.floor(tensor * ten + half) * tenth
            out[3, row] = np.floor(dram * ten + half) * tenth
            out[4, row] = np.floor(used + half)
            out[5, row] = np.floor(np.float32(0.85) * dram + half)
            out[6, row] = np.floor(power + half)
            out[7, row] = np.floor(temp + half)
            out[8, row] = speed
            out[9, row] = np.floor(
                levels[r, L_TX, n] * k_tx * (one + np.float32(0.08) * jitter * n7) + half
            )
            out[10, row] = np.floor(
                levels[r, L_RX, n] * k_rx * (one + np.float32(0.08) * jitter * n6) + half
            )
            out[11, row] = (
                np.floor(
                    levels[r, L_NVLINK, n]
                    * k_nvlink
                    * (one + np.float32(0.06) * jitter * n5)
                    * tenth
                    + half
                )
                * ten
            )

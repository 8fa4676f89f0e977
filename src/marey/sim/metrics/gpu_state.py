"""Who plays which role on which GPU, and since when: the state behind the samples."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.metrics import EVERYDAY, Entity
from marey.model.samples import NO_WORKLOAD, SampleBatch
from marey.sim.config import SimConfig
from marey.sim.hardware import Hardware
from marey.sim.metrics import sample_kernels as k
from marey.sim.metrics.host_kernels import add_hosts, finish_hosts
from marey.sim.metrics.new_gpu_state import steady_excess, switch_states
from marey.sim.random_draws import key
from marey.sim.scheduling.jobs import FIRST_ID

HOST_METRICS = (
    "host_cpu",
    "host_load",
    "host_mem_share",
    "host_mem_used",
    "host_net_rx",
    "host_net_tx",
    "host_fs_read",
    "host_fs_write",
)
IDLE_ROLE = 0
IDLE_MEMORY_MIB = 3.0
CONTEXT_SHARE = 0.02
_FAR_PAST = -(1 << 60)
# Below this, starting a second thread costs more than it gives.
THREADED_ROWS = 60_000


@dataclass(slots=True)
class Regime:
    """How one workload behaves from a moment on: its roles, and each rank's GPU state."""

    roles: NDArray[np.float64]
    role_of: NDArray[np.int64]
    gpu_states: NDArray[np.float32]
    # Steps made per second against the healthy workload.
    rate: float = 1.0
    rows: NDArray[np.int64] | None = None

    def copy(self) -> Regime:
        """Return a copy, to be changed."""
        return Regime(self.roles.copy(), self.role_of.copy(), self.gpu_states.copy(), self.rate)


@dataclass(slots=True)
class _Closed:
    gpus: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    roles: NDArray[np.int64]
    gpu_states: NDArray[np.float32]
    codes: NDArray[np.int64]


@dataclass(slots=True)
class StateSnapshot:
    """The state behind the samples of some ticks, apart from the living cluster."""

    first: int
    count: int
    rows: NDArray[np.int64]
    roles: NDArray[np.float64]
    heat: NDArray[np.float64]
    heat_tick: NDArray[np.int64]
    groups: list[_Closed]
    retired: list[NDArray[np.int64]]


class GpuStates:
    """Every GPU's current GPU state, and those that ended since the last samples were taken."""

    def __init__(self, hardware: Hardware, config: SimConfig) -> None:
        self.hardware, self.config = hardware, config
        count = hardware.gpus
        self.recording = True
        self._gpus = np.arange(count, dtype=np.int64)
        self._begins = np.full(count, self.tick_at(config.start_ms - config.warmup_ms), np.int64)
        self._role = np.zeros(count, np.int64)
        self._code = np.full(count, NO_WORKLOAD, np.int64)
        self._idle, self._busy = self._idle_table(), self._busy_table()
        self._state = self._idle.copy()
        self._excess = np.zeros(count, np.float64)
        self._closed: list[_Closed] = []
        self._roles = np.zeros((256, k.ROLE_COLUMNS), np.float64)
        self._heat = np.zeros(256, np.float64)
        self._heat_tick = np.full(256, _FAR_PAST, np.int64)
        self._used = np.zeros(256, np.bool_)
        self._retired: list[NDArray[np.int64]] = []
        self._free = list(range(255, 0, -1))
        self._used[IDLE_ROLE] = True
        self._roles[IDLE_ROLE, k.REGIME_MS] = config.start_ms - config.warmup_ms
        self._roles[IDLE_ROLE, k.START_MS] = config.start_ms - config.warmup_ms
        ticks = np.arange(k.COOL_TICKS) * config.tick_ms / k.TIME_CONSTANT_MS
        self._decay = np.exp(-ticks).astype(np.float32)
        # Everything later than the table is cold.
        self._decay[-1] = 0.0
        self._seed = np.uint64(key(config.seed, 61))
        self._workers = ThreadPoolExecutor(max(1, min(2, os.cpu_count() or 1)))
        self._numbers: dict[tuple[int, int], NDArray[np.int32]] = {}

    def tick_at(self, time_ms: int) -> int:
        """Return the first tick at or after this moment."""
        return -((self.config.start_ms - time_ms) // self.config.tick_ms)

    def _idle_table(self) -> NDArray[np.float32]:
        hardware = self.hardware
        gpu_states = np.zeros((hardware.gpus, k.STATE_COLUMNS), np.float32)
        gpu_states[:, k.MEM_MIB] = IDLE_MEMORY_MIB
        gpu_states[:, k.MEM_CAP] = hardware.memory_mib
        gpu_states[:, k.JITTER] = 1.0
        gpu_states[:, k.CLOCK] = hardware.idle_clock_mhz
        gpu_states[:, k.IDLE_W] = hardware.idle_w
        gpu_states[:, k.LIMIT_W] = hardware.limit_w
        gpu_states[:, k.GAIN] = hardware.silicon
        gpu_states[:, k.AMBIENT] = hardware.ambient_c
        gpu_states[:, k.KELVIN] = hardware.kelvin_per_w
        return gpu_states

    def _busy_table(self) -> NDArray[np.float32]:
        gpu_states = self._idle_table()
        gpu_states[:, k.CLOCK] = self.hardware.clock_mhz
        # An open context keeps the clocks up, whatever the GPU does.
        gpu_states[:, k.IDLE_W] += CONTEXT_SHARE * self.hardware.limit_w
        gpu_states[:, k.HOST_CPU] = gpu_states[:, k.HOST_IO] = 1.0
        gpu_states[:, k.HEAT_GAIN] = self.hardware.silicon
        return gpu_states

    def make_busy_states(self, gpus: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the devices' part of the GPU states of GPUs that somebody holds."""
        return self._busy[gpus]

    def begin(self, gpus: NDArray[np.int64], regime: Regime, seq: int, time_ms: int) -> None:
        """Let these GPUs behave like this from this moment on, for that workload."""
        rows = self._allocate(regime.roles)
        regime.rows = rows
        excess = steady_excess(regime.roles, regime.role_of, regime.gpu_states)
        codes = np.full(len(gpus), seq, np.int64)
        self._switch(
            gpus,
            roles=rows[regime.role_of],
            gpu_states=regime.gpu_states,
            codes=codes,
            excess=excess,
            time_ms=time_ms,
        )

    def retire(self, regime: Regime) -> None:
        """Retire the regime: its roles may be forgotten once the samples are taken."""
        if regime.rows is not None:
            self._retired.append(regime.rows)
            regime.rows = None
        if not self.recording:
            self._forget()

    def rest(self, gpus: NDArray[np.int64], time_ms: int) -> None:
        """Let these GPUs idle from this moment on."""
        nobody = np.full(len(gpus), NO_WORKLOAD, np.int64)
        self._switch_to_no_role(gpus, gpu_states=self._idle[gpus], codes=nobody, time_ms=time_ms)

    def silence(self, gpus: NDArray[np.int64], time_ms: int) -> None:
        """Silence these GPUs from this moment on, whoever holds them."""
        gpu_states = self._state[gpus]
        gpu_states[:, k.DEAD] = 1.0
        self._switch_to_no_role(
            gpus, gpu_states=gpu_states, codes=self._code[gpus], time_ms=time_ms
        )

    def release(self, gpus: NDArray[np.int64], time_ms: int) -> None:
        """Free silent GPUs: they stay silent, but nobody holds them any more."""
        nobody = np.full(len(gpus), NO_WORKLOAD, np.int64)
        self._switch_to_no_role(gpus, gpu_states=self._state[gpus], codes=nobody, time_ms=time_ms)

    def _switch_to_no_role(
        self,
        gpus: NDArray[np.int64],
        *,
        gpu_states: NDArray[np.float32],
        codes: NDArray[np.int64],
        time_ms: int,
    ) -> None:
        """Give these GPUs values that no role of a workload makes."""
        self._switch(
            gpus,
            roles=np.full(len(gpus), IDLE_ROLE, np.int64),
            gpu_states=gpu_states,
            codes=codes,
            excess=np.zeros(len(gpus)),
            time_ms=time_ms,
        )

    def is_silent(self, gpus: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these GPUs say nothing."""
        silent: NDArray[np.bool_] = self._state[gpus, k.DEAD] > 0.0
        return silent

    def _switch(
        self,
        gpus: NDArray[np.int64],
        *,
        roles: NDArray[np.int64],
        gpu_states: NDArray[np.float32],
        codes: NDArray[np.int64],
        excess: NDArray[np.float64],
        time_ms: int,
    ) -> None:
        tick = self.tick_at(time_ms)
        if self.recording:
            self._closed.append(
                _Closed(
                    gpus=gpus,
                    begins=self._begins[gpus],
                    ends=np.full(len(gpus), tick, np.int64),
                    roles=self._role[gpus],
                    gpu_states=self._state[gpus],
                    codes=self._code[gpus],
                )
            )
        switch_states(
            gpus,
            tick,
            self.config.tick_ms / k.TIME_CONSTANT_MS,
            self._begins,
            self._role,
            self._state,
            self._code,
            self._excess,
            roles,
            gpu_states,
            codes,
            excess,
        )

    def _allocate(self, roles: NDArray[np.float64]) -> NDArray[np.int64]:
        while len(self._free) < len(roles):
            self._grow()
        rows = np.array([self._free.pop() for _ in range(len(roles))], np.int64)
        self._roles[rows] = roles
        self._heat[rows] = 0.0
        self._heat_tick[rows] = _FAR_PAST
        self._used[rows] = True
        return rows

    def _grow(self) -> None:
        size = len(self._roles)
        self._roles = np.concatenate([self._roles, np.zeros_like(self._roles)])
        self._heat = np.concatenate([self._heat, np.zeros_like(self._heat)])
        self._heat_tick = np.concatenate([self._heat_tick, np.full(size, _FAR_PAST, np.int64)])
        self._used = np.concatenate([self._used, np.zeros(size, np.bool_)])
        self._free.extend(range(2 * size - 1, size - 1, -1))

    def _forget(self) -> None:
        self._free_rows(self._retired)
        self._retired = []
        self._closed = []

    def _free_rows(self, retired: list[NDArray[np.int64]]) -> None:
        for rows in retired:
            self._used[rows] = False
            self._free.extend(rows.tolist()[::-1])

    def stop_recording(self) -> None:
        """Stop keeping what samples need: nobody will ask for them (fast-forward)."""
        self._forget()
        self.recording = False

    def start_recording(self) -> None:
        """Keep what samples need from now on."""
        self.recording = True

    def samples(self, first: int, count: int) -> tuple[SampleBatch, ...]:
        """Return samples of every GPU and host for ``count`` ticks from ``first``, then forget
        them.
        """
        shot = self.snapshot(first, count)
        batches = self.render(shot)
        self.finish_snapshot(shot)
        return batches

    def snapshot(self, first: int, count: int) -> StateSnapshot:
        """Copy what samples of these ticks depend on; the cluster may live on while they are made.

        Exactly one snapshot may be open: ``settle`` it before the next is taken.
        """
        rows = np.flatnonzero(self._used)
        shot = StateSnapshot(
            first=first,
            count=count,
            rows=rows,
            roles=self._roles.copy(),
            heat=self._heat.copy(),
            heat_tick=self._heat_tick.copy(),
            groups=self._groups(first + count),
            retired=self._retired,
        )
        self._closed, self._retired = [], []
        return shot

    def finish_snapshot(self, shot: StateSnapshot) -> None:
        """Take over the warmth that ``render`` has computed, and forget ended roles."""
        self._heat[shot.rows] = shot.heat[shot.rows]
        self._heat_tick[shot.rows] = shot.heat_tick[shot.rows]
        self._free_rows(shot.retired)

    def render(self, shot: StateSnapshot) -> tuple[SampleBatch, ...]:
        """Return the samples of a snapshot; touches nothing else, so it may run in a thread."""
        config, count = self.config, shot.count
        levels = np.empty((len(shot.roles), k.LEVEL_COLUMNS, count), np.float32)
        self._each_half(
            len(shot.rows),
            lambda low, high: k.fill_levels(
                shot.rows[low:high],
                shot.roles,
                shot.heat_tick,
                shot.heat,
                shot.first,
                count,
                float(config.start_ms),
                float(config.tick_ms),
                levels,
            ),
            len(shot.rows) * count * 4,
        )
        gpus = self._gpu_batch(shot.groups, levels, shot.first, count)
        hosts = self._host_batch(shot.groups, levels, shot.first, count)
        return (gpus,) if hosts is None else (gpus, hosts)

    def _groups(self, end: int) -> list[_Closed]:
        """Return the ended and the continuing roles, as groups of GPU states with an end."""
        ends = np.full(len(self._gpus), end, np.int64)
        now = _Closed(
            gpus=self._gpus,
            begins=self._begins.copy(),
            ends=ends,
            roles=self._role.copy(),
            gpu_states=self._state.copy(),
            codes=self._code.copy(),
        )
        if not self._closed:
            return [now]
        past = _Closed(
            *(
                np.concatenate([getattr(part, name) for part in self._closed])
                for name in _Closed.__slots__
            )
        )
        return [past, now]

    def _each_half(self, total: int, work: Callable[[int, int], None], rows: int) -> None:
        if rows < THREADED_ROWS or total < 2:
            work(0, total)
            return
        middle = total // 2
        other = self._workers.submit(work, 0, middle)
        work(middle, total)
        other.result()

    def _gpu_batch(
        self, groups: list[_Closed], levels: NDArray[np.float32], first: int, count: int
    ) -> SampleBatch:
        rows = len(self._gpus) * count
        out = np.empty((len(EVERYDAY), rows), np.float32)
        workload = np.empty(rows, np.int32)
        held = np.unique(np.concatenate([group.codes for group in groups]))
        held = held[held != NO_WORKLOAD]
        for group in groups:
            codes = np.searchsorted(held, group.codes)
            codes[group.codes == NO_WORKLOAD] = NO_WORKLOAD

            def work(low: int, high: int, g: _Closed = group, c: NDArray[np.int64] = codes) -> None:
                k.fill_states(
                    low,
                    high,
                    g.gpus,
                    g.begins,
                    g.ends,
                    g.roles,
                    g.gpu_states,
                    levels,
                    first,
                    count,
                    self._seed,
                    self.config.tick_ms / 1000.0,
                    self._decay,
                    c,
                    workload,
                    out,
                )

            self._each_half(len(group.gpus), work, len(group.gpus) * count)
        times = self.config.start_ms + (first + np.arange(count)) * self.config.tick_ms
        return SampleBatch(
            time_ms=np.tile(times.astype(np.int64), len(self._gpus)),
            entity=self._repeat_rows(len(self._gpus), count),
            entities=self.hardware.gpu_names,
            columns={metric: out[i] for i, metric in enumerate(EVERYDAY)},
            cluster=self.config.cluster,
            workload=workload,
            workloads=tuple(str(FIRST_ID + seq) for seq in held.tolist()),
        )

    def _repeat_rows(self, things: int, times: int) -> NDArray[np.int32]:
        """Return 0 0 0 1 1 1 …; kept, because block after block needs the same."""
        if (things, times) not in self._numbers:
            if len(self._numbers) > 8:
                self._numbers.clear()
            numbers = np.repeat(np.arange(things, dtype=np.int32), times)
            numbers.flags.writeable = False
            self._numbers[things, times] = numbers
        return self._numbers[things, times]

    def _host_batch(
        self, groups: list[_Closed], levels: NDArray[np.float32], first: int, count: int
    ) -> SampleBatch | None:
        config, hardware = self.config, self.hardware
        every = config.host_tick_ms // config.tick_ms
        first_host = -(-first // every)
        ticks = -(-(first + count) // every) - first_host
        hosts = len(hardware.host_names)
        if ticks <= 0:
            return None
        sums = np.zeros((hosts, ticks, 6), np.int64)
        for group in groups:
            add_hosts(
                group.gpus,
                group.begins,
                group.ends,
                group.roles,
                group.gpu_states,
                levels,
                first,
                count,
                every,
                hardware.gpu_host,
                sums,
            )
        out = np.empty((len(HOST_METRICS), hosts * ticks), np.float32)
        finish_hosts(
            sums,
            hardware.host_size,
            hardware.host_cpus,
            hardware.host_memory_mib,
            first_host * every,
            every,
            self._seed,
            out,
        )
        times = config.start_ms + (first_host + np.arange(ticks)) * config.host_tick_ms
        return SampleBatch(
            time_ms=np.tile(times.astype(np.int64), hosts),
            entity=self._repeat_rows(hosts, ticks),
            entities=hardware.host_names,
            columns={metric: out[i] for i, metric in enumerate(HOST_METRICS)},
            kind=Entity.HOST,
            cluster=config.cluster,
        )


def nominal_share(roles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of power that roles draw in the middle of their work."""
    share: NDArray[np.float64] = (
        k.W_UTIL * roles[:, k.UTIL]
        + k.W_SM * roles[:, k.SM]
        + k.W_TENSOR * roles[:, k.TENSOR]
        + k.W_DRAM * roles[:, k.DRAM]
    )
    return share

"""What each kind of fault does to a workload's regime: its signature in the metrics.

Each shape changes a copy of the healthy regime and says which ranks are affected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.faults import FAILURES, FaultKind
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.sim.config import FAULTS, FaultPlan
from marey.sim.metrics import sample_kernels as k
from marey.sim.metrics.behaviour import scale_warmth
from marey.sim.metrics.gpu_state import Regime, nominal_share
from marey.sim.random_draws import RandomDraws
from marey.sim.scheduling.jobs import Job, Kind

# Shorter work ends before anybody could see a fault in it.
SHORTEST_MS = 25 * MINUTE_MS
FROM_START = (
    FaultKind.IDLE_GPUS,
    FaultKind.IDLE_SESSION,
    FaultKind.BIASED_LOAD,
    FaultKind.MEMORY_IMBALANCE,
    FaultKind.INPUT_BOUND,
    FaultKind.OVERSIZED,
    FaultKind.UNDERUSED,
    FaultKind.MEMORY_LEAK,
)
# The driver's numbers. Fatal to the device: fallen off the bus, NVLink, double-bit error, GSP.
XID_DEVICE = (79, 74, 48, 119)
# Fatal to the program only: bad access, engine exception, reset.
XID_PROGRAM = (31, 13, 43)
# Survived: a row remapped, an error contained.
XID_SURVIVED = (63, 94)
# What a slow GPU's multiprocessors gain because it waits for nobody, per share of speed lost.
UNWAITED = 0.25
# What a slow fabric sends again and drops, per share of speed lost.
RESENT = 0.2
# How programs fail: an exception, bad arguments, not found, a failed check, a bad access.
EXIT_CODES = (1, 1, 1, 2, 127, 134, 139)


@dataclass(slots=True)
class FaultCase:
    """One workload in which a fault appears, and which of its ranks sit where."""

    job: Job
    regime: Regime
    host_of: NDArray[np.int64]
    dice: RandomDraws
    # Whether the workload begins with it, rather than falling ill in the middle.
    fresh: bool = False

    def draw_rate(self, low: float, high: float) -> float:
        """Return the speed that is left.

        As severe as was asked for, else by chance in this range.
        """
        drawn = self.dice.between(low, high)
        return drawn if self.job.severity is None else max(0.02, 1.0 - self.job.severity)

    @property
    def hosts(self) -> NDArray[np.int64]:
        """The hosts in order."""
        return np.unique(self.host_of)

    def everyone(self) -> NDArray[np.bool_]:
        """Return all ranks."""
        return np.ones(self.job.gpus, np.bool_)

    def one_rank(self) -> NDArray[np.bool_]:
        """Return one rank by chance."""
        ranks = np.zeros(self.job.gpus, np.bool_)
        ranks[self.dice.integer(self.job.gpus)] = True
        return ranks

    def one_host(self) -> NDArray[np.bool_]:
        """Return all ranks of one host by chance."""
        ranks: NDArray[np.bool_] = self.host_of == self.hosts[self.dice.integer(len(self.hosts))]
        return ranks

    def masters(self) -> NDArray[np.bool_]:
        """Return the first rank of every host."""
        ranks = np.zeros(self.job.gpus, np.bool_)
        ranks[np.unique(self.host_of, return_index=True)[1]] = True
        return ranks


def eligible(kind: FaultKind, job: Job) -> bool:
    """Return whether this kind can happen to a workload of this sort and size."""
    hosts = -(-job.gpus // job.per_host)
    if kind is FaultKind.IDLE_SESSION:
        return job.kind is Kind.NOTEBOOK
    if kind in (FaultKind.XID, FaultKind.NODE_FAILURE, *FAILURES):
        return True
    if job.kind is not Kind.TRAIN:
        return False
    return (
        job.gpus >= _LEAST_GPUS.get(kind, 1)
        and hosts >= _LEAST_HOSTS.get(kind, 1)
        and (kind is not FaultKind.BIASED_LOAD or job.per_host >= 2)
    )


_LEAST_GPUS = {
    FaultKind.STALLED: 2,
    FaultKind.IDLE_GPUS: 2,
    FaultKind.BIASED_LOAD: 4,
    FaultKind.MEMORY_IMBALANCE: 4,
    FaultKind.SLOW_GPU: 4,
    FaultKind.THROTTLED_GPU: 2,
    FaultKind.OVERSIZED: 4,
}
_LEAST_HOSTS = {FaultKind.SLOW_NODE: 2, FaultKind.SLOW_FABRIC: 2}


def choose(plan: FaultPlan, job: Job, dice: RandomDraws) -> FaultKind | None:
    """Return the fault that chance has in store for a workload, or none."""
    if plan.rate <= 0.0 or job.duration_ms < SHORTEST_MS or not dice.chance(plan.rate):
        return None
    kinds = [kind for kind in FAULTS if eligible(kind, job) and plan.weight(kind) > 0.0]
    if not kinds:
        return None
    cumulative = np.cumsum([plan.weight(kind) * _COMMON.get(kind, 1.0) for kind in kinds])
    return dice.weighted(kinds, cumulative.tolist())


# A dead node takes every workload on it along: rarer than what happens to one workload.
_COMMON = {FaultKind.NODE_FAILURE: 0.35, FaultKind.XID: 0.7, FaultKind.IDLE_SESSION: 4.0}


def shape(kind: FaultKind, case: FaultCase) -> NDArray[np.bool_]:
    """Give the case's regime the signature of this fault; returns the affected ranks."""
    before = case.regime.copy()
    affected = _SHAPES[kind](case)
    scale_warmth(case.regime, before)
    return affected


def _add_role(regime: Regime, ranks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return a second role for these ranks, to be changed by the caller."""
    regime.roles = np.concatenate([regime.roles, regime.roles[:1].copy()])
    regime.role_of[ranks] = len(regime.roles) - 1
    role: NDArray[np.float64] = regime.roles[-1]
    return role


def _spin(role: NDArray[np.float64], dice: RandomDraws) -> None:
    """Spin in a collective that never ends: the kernel runs, nothing is computed."""
    role[[k.EVAL_MS, k.CHECKPOINT_MS, k.INIT_MS, k.LOAD_MS, k.WAVE_MS]] = 0.0
    role[k.PATTERN] = k.PATTERN_FLAT
    role[k.UTIL], role[k.SM] = 1.0, dice.between(0.02, 0.07)
    role[[k.TENSOR, k.NVLINK, k.NET, k.FS_READ]] = 0.0
    role[k.DRAM] = 0.002
    role[k.NOISE] = 0.004
    role[k.PCIE_RX], role[k.PCIE_TX] = 3.0, 2.0
    role[k.CPU] = 1.0


def stall(case: FaultCase) -> NDArray[np.bool_]:
    """Stall: utilization 100 %, power near idle, no steps."""
    for role in case.regime.roles:
        _spin(role, case.dice)
    case.regime.gpu_states[:, k.K_UTIL] = 1.0
    case.regime.gpu_states[:, k.JITTER] = 0.15
    case.regime.rate = 0.0
    return case.everyone()


def _idle_gpus(case: FaultCase) -> NDArray[np.bool_]:
    """Leave whole hosts, or the later GPUs of the only one, unused though they were asked for."""
    hosts, dice = case.hosts, case.dice
    if len(hosts) > 1 and dice.chance(0.6):
        unused = max(1, round(len(hosts) * dice.between(0.2, 0.5)))
        idle = np.isin(case.host_of, hosts[-unused:])
    else:
        local = np.arange(case.job.gpus) - np.searchsorted(case.host_of, case.host_of)
        idle = local >= max(1, round(case.job.per_host * dice.between(0.25, 0.75)))
        if not idle.any():
            idle[-1] = True
    gpu_states = case.regime.gpu_states
    gpu_states[idle, k.K_UTIL : k.K_TX + 1] = 0.0
    gpu_states[idle, k.HOST_CPU : k.HOST_IO + 1] = 0.0
    # Some frameworks open a context on every visible GPU.
    gpu_states[idle, k.MEM_MIB] = 430.0 if dice.chance(0.5) else 3.0
    return idle


def _idle_session(case: FaultCase) -> NDArray[np.bool_]:
    role = case.regime.roles[0]
    role[k.PATTERN], role[k.WAVE_FLOOR] = k.PATTERN_NOTEBOOK, case.dice.between(-0.995, -0.97)
    return case.everyone()


def _apply_biased_load(case: FaultCase) -> NDArray[np.bool_]:
    """Let everyone else wait again and again while the first GPU of each node works alone."""
    dice, regime, masters = case.dice, case.regime, case.masters()
    follower = regime.roles[0]
    follower[k.WAVE_MS] = dice.between(2.5, 6.0) * MINUTE_MS
    follower[k.WAVE_DUTY] = dice.between(0.35, 0.6)
    follower[k.WAVE_OFFSET] = dice.between(0.0, 3.0) * MINUTE_MS
    follower[k.UTIL] *= dice.between(0.70, 0.80)
    master = _add_role(regime, masters)
    master[k.UTIL] = dice.between(0.95, 0.99)
    master[k.WAVE_FLOOR], master[k.WAVE_UTIL] = dice.between(0.5, 0.7), dice.between(0.94, 0.99)
    gpu_states = regime.gpu_states
    gpu_states[masters, k.MEM_MIB] = np.minimum(
        gpu_states[masters, k.MEM_MIB] * dice.between(1.1, 1.25),
        gpu_states[masters, k.MEM_CAP] * 0.98,
    )
    gpu_states[~masters, k.MEM_MIB] *= dice.between(0.62, 0.78)
    regime.rate = float(follower[k.WAVE_DUTY])
    return masters


def _memory_imbalance(case: FaultCase) -> NDArray[np.bool_]:
    """Let some ranks hold far more than peers in the same place of the model."""
    dice, gpu_states, count = case.dice, case.regime.gpu_states, case.job.gpus
    heavy_count = max(1, round(count * dice.between(0.05, 0.25)))
    order = np.argsort([dice.uniform() for _ in range(count)])
    heavy = np.zeros(count, np.bool_)
    heavy[order[:heavy_count]] = True
    gpu_states[~heavy, k.MEM_MIB] *= dice.between(0.45, 0.6)
    gpu_states[heavy, k.MEM_MIB] = np.minimum(
        gpu_states[heavy, k.MEM_MIB] * dice.between(1.0, 1.15), gpu_states[heavy, k.MEM_CAP] * 0.985
    )
    return heavy


def _input_bound(case: FaultCase) -> NDArray[np.bool_]:
    """Work while a batch is there, idle until the loader has the next one."""
    dice, role = case.dice, case.regime.roles[0]
    role[k.WAVE_MS] = dice.between(50.0, 170.0) * 1000.0
    role[k.WAVE_DUTY] = dice.between(0.28, 0.55)
    role[k.WAVE_OFFSET] = dice.between(0.0, 100.0) * 1000.0
    role[k.WAVE_UTIL] = dice.between(0.0, 0.03)
    # The loader's cores are all busy, and reading is slow rather than fast.
    role[k.CPU] = dice.between(12.5, 15.5)
    role[k.FS_READ] *= dice.between(1.5, 4.0)
    case.regime.rate = float(role[k.WAVE_DUTY])
    return case.everyone()


def _wait(role: NDArray[np.float64], rate: float) -> None:
    """Let peers of someone slower spin in the collective for the rest of each step."""
    role[[k.TENSOR, k.DRAM, k.NVLINK, k.NET, k.PCIE_RX, k.PCIE_TX, k.FS_READ]] *= rate
    role[k.SM] = role[k.SM] * rate + 0.04 * (1.0 - rate)
    # The gaps of a step are as long as ever, and a smaller share of a longer step.
    role[k.UTIL] = 1.0 - (1.0 - role[k.UTIL]) * rate


def _hold_up(
    case: FaultCase, culprits: NDArray[np.bool_], rates: tuple[float, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Let all wait for these ranks at a rate of this range; what all did before, and their role."""
    regime = case.regime
    regime.rate = case.draw_rate(*rates)
    before = regime.roles[0].copy()
    for role in regime.roles:
        _wait(role, regime.rate)
    return before, _add_role(regime, culprits)


def _slow_gpu(case: FaultCase) -> NDArray[np.bool_]:
    """Let a GPU take more time at the same clocks.

    Its kernels stay resident, everyone else waits. It no longer waits itself, so it is a little
    busier than before: the more so the slower it is. It moves as many bytes in a step as its peers.
    """
    victim = case.one_rank()
    before, slow = _hold_up(case, victim, (0.5, 0.75))
    slow[k.SM] = min(0.97, before[k.SM] * (1.0 + UNWAITED * (1.0 - case.regime.rate)))
    return victim


def _apply_throttled_gpu(case: FaultCase) -> NDArray[np.bool_]:
    """Cut clocks by heat or power; the rest wait."""
    dice, regime = case.dice, case.regime
    victim = case.one_rank()
    before, slow = _hold_up(case, victim, (0.5, 0.78))
    slow[k.SM] = min(0.96, before[k.SM] * 1.05)
    slow[k.UTIL] = 0.995
    gpu_states, rate = regime.gpu_states, regime.rate
    gpu_states[victim, k.CLOCK] = np.floor(gpu_states[victim, k.CLOCK] * rate / 15.0) * 15.0
    gpu_states[victim, k.GAIN] *= rate**0.6
    # Hot, although it draws less: its cooling is what has failed.
    draw = gpu_states[victim, k.IDLE_W] + (
        gpu_states[victim, k.LIMIT_W] - gpu_states[victim, k.IDLE_W]
    ) * (nominal_share(slow[None, :])[0] * gpu_states[victim, k.GAIN])
    gpu_states[victim, k.AMBIENT] = dice.between(86.0, 92.0) - gpu_states[victim, k.KELVIN] * draw
    return victim


def _slow_node(case: FaultCase) -> NDArray[np.bool_]:
    """Return one host feeds its GPUs late: gaps there, spinning everywhere else."""
    dice, node = case.dice, case.one_host()
    before, late = _hold_up(case, node, (0.5, 0.75))
    late[k.UTIL] = before[k.UTIL] * case.regime.rate * dice.between(1.0, 1.12)
    late[k.SM] = before[k.SM] * case.regime.rate
    late[k.NOISE] = 0.1
    late[k.CPU] = dice.between(12.0, 15.5)
    late[k.PCIE_RX] *= 0.8
    return node


def _slow_fabric(case: FaultCase) -> NDArray[np.bool_]:
    """Return every rank waits in communication; the network carries less than before."""
    rate = case.draw_rate(0.35, 0.6)
    for role in case.regime.roles:
        _wait(role, rate)
        role[k.NET] *= 1.0 - RESENT * (1.0 - rate)
    case.regime.rate = rate
    return case.everyone()


def _memory_leak(case: FaultCase) -> NDArray[np.bool_]:
    """Let memory grow on every rank until the device is full within some hours."""
    gpu_states = case.regime.gpu_states
    if case.fresh:
        gpu_states[:, k.MEM_MIB] *= case.dice.between(0.55, 0.75)
    room = float((gpu_states[:, k.MEM_CAP] - gpu_states[:, k.MEM_MIB]).min())
    gpu_states[:, k.LEAK_MIB] = room * 1000.0 / (case.dice.between(1.5, 7.0) * HOUR_MS)
    if case.job.severity is not None:
        gpu_states[:, k.LEAK_MIB] = gpu_states[:, k.MEM_CAP] * case.job.severity * 1000.0 / HOUR_MS
    return case.everyone()


def leak_time_ms(regime: Regime) -> int:
    """Return how long after its beginning a leak has filled the first device."""
    gpu_states = regime.gpu_states
    room = gpu_states[:, k.MEM_CAP] - gpu_states[:, k.MEM_MIB]
    return int(float((room / np.maximum(gpu_states[:, k.LEAK_MIB], 1e-9)).min()) * 1000.0)


def _apply_oversized(case: FaultCase) -> NDArray[np.bool_]:
    """Run a small problem on many GPUs: little memory, short bursts, long waits for each other."""
    dice, regime = case.dice, case.regime
    role = regime.roles[0]
    role[k.UTIL] = dice.between(0.12, 0.30)
    role[k.SM], role[k.TENSOR] = dice.between(0.03, 0.08), dice.between(0.004, 0.015)
    role[k.DRAM] = dice.between(0.015, 0.04)
    role[[k.NVLINK, k.NET, k.PCIE_RX, k.PCIE_TX, k.FS_READ]] *= 0.1
    role[k.NOISE] = 0.08
    regime.gpu_states[:, k.MEM_MIB] = regime.gpu_states[:, k.MEM_CAP] * dice.between(0.03, 0.08)
    return case.everyone()


def _apply_underused(case: FaultCase) -> NDArray[np.bool_]:
    """Run always some kernel, always a tiny one."""
    dice, regime = case.dice, case.regime
    role = regime.roles[0]
    role[k.UTIL] = dice.between(0.90, 0.98)
    role[k.SM], role[k.TENSOR] = dice.between(0.14, 0.26), dice.between(0.012, 0.045)
    role[k.DRAM] = dice.between(0.06, 0.13)
    role[[k.NVLINK, k.NET, k.PCIE_RX, k.PCIE_TX]] *= 0.4
    regime.gpu_states[:, k.MEM_MIB] = regime.gpu_states[:, k.MEM_CAP] * dice.between(0.10, 0.22)
    return case.everyone()


def fill_memory(case: FaultCase) -> NDArray[np.bool_]:
    """Fill the devices of one, some or all ranks up to the last mebibyte."""
    share = case.dice.uniform()
    ranks = case.one_rank() if share < 0.4 else case.one_host() if share < 0.7 else case.everyone()
    gpu_states = case.regime.gpu_states
    gpu_states[ranks, k.MEM_MIB] = gpu_states[ranks, k.MEM_CAP] * case.dice.between(0.985, 0.998)
    return ranks


def _nothing(case: FaultCase) -> NDArray[np.bool_]:
    return case.one_rank()


_SHAPES: dict[FaultKind, Callable[[FaultCase], NDArray[np.bool_]]] = {
    FaultKind.STALLED: stall,
    FaultKind.IDLE_GPUS: _idle_gpus,
    FaultKind.IDLE_SESSION: _idle_session,
    FaultKind.BIASED_LOAD: _apply_biased_load,
    FaultKind.MEMORY_IMBALANCE: _memory_imbalance,
    FaultKind.INPUT_BOUND: _input_bound,
    FaultKind.SLOW_GPU: _slow_gpu,
    FaultKind.THROTTLED_GPU: _apply_throttled_gpu,
    FaultKind.SLOW_NODE: _slow_node,
    FaultKind.SLOW_FABRIC: _slow_fabric,
    FaultKind.MEMORY_LEAK: _memory_leak,
    FaultKind.OVERSIZED: _apply_oversized,
    FaultKind.UNDERUSED: _apply_underused,
    FaultKind.XID: _nothing,
    FaultKind.NODE_FAILURE: _nothing,
    FaultKind.OUT_OF_MEMORY: fill_memory,
}

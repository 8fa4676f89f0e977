"""How a healthy workload behaves: phases, levels, and what differs between its ranks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from marey.model.times import MINUTE_MS, SECOND_MS
from marey.sim.hardware import GpuModel
from marey.sim.metrics import sample_kernels as k
from marey.sim.metrics.gpu_state import GpuStates, Regime, nominal_share
from marey.sim.metrics.new_gpu_state import vary_states
from marey.sim.random_draws import RandomDraws, key
from marey.sim.scheduling.jobs import Job, Kind

# NVLink traffic per GPU as a share of what the links can carry, by what the ranks exchange.
NVLINK_SHARE = {"single": 0.0, "ddp": 0.04, "fsdp": 0.14, "tp": 0.34}
# Between hosts, MB/s per GPU.
NET_MB_S = {"single": 0.0, "ddp": 1_900.0, "fsdp": 3_600.0, "tp": 1_400.0}

# How much ranks of one workload differ: util, SM, tensor, DRAM, NVLink, PCIe in and out.
RANK_SPREAD = np.array([0.004, 0.012, 0.012, 0.012, 0.02, 0.05, 0.05])


def healthy(job: Job, gpu_states: GpuStates, model: GpuModel, seed: int) -> Regime:
    """Return the regime of a workload with which nothing is wrong, for the GPUs it has
    been given.
    """
    dice = RandomDraws(seed, 71, job.seq)
    role = _role(job, model, dice, key(seed, 72, job.seq))
    regime = Regime(
        roles=role[None, :],
        role_of=np.zeros(job.gpus, np.int64),
        gpu_states=_make_states(job, gpu_states, dice, seed),
    )
    return regime


def _role(job: Job, model: GpuModel, dice: RandomDraws, noise_key: int) -> NDArray[np.float64]:
    role = np.zeros(k.ROLE_COLUMNS)
    recipe = job.recipe
    assert job.start_ms is not None
    role[k.START_MS] = role[k.REGIME_MS] = job.start_ms
    # Kept exactly by a float64.
    role[k.KEY] = noise_key >> 12
    role[k.NOISE] = dice.between(0.015, 0.05)
    _phases(role, job, dice)
    role[k.UTIL] = min(0.995, recipe.util * dice.between(0.98, 1.02))
    role[k.SM] = recipe.sm * dice.between(0.92, 1.06)
    role[k.TENSOR] = recipe.tensor * dice.between(0.85, 1.12)
    role[k.DRAM] = recipe.dram * dice.between(0.88, 1.10)
    role[k.EVAL_UTIL] = dice.between(0.55, 0.85)
    role[k.EVAL_WORK] = dice.between(0.35, 0.6)
    _traffic(role, job, model, dice)
    if job.kind is Kind.SERVE:
        role[k.PATTERN], role[k.EVAL_MS], role[k.CHECKPOINT_MS] = k.PATTERN_SERVE, 0.0, 0.0
    elif job.kind is Kind.NOTEBOOK:
        role[k.PATTERN], role[k.EVAL_MS], role[k.CHECKPOINT_MS] = k.PATTERN_NOTEBOOK, 0.0, 0.0
        # In two or three of ten spells a cell runs.
        role[k.WAVE_FLOOR] = dice.between(-0.45, 0.2)
    return role


def _phases(role: NDArray[np.float64], job: Job, dice: RandomDraws) -> None:
    """Draw phases: initialisation grows with the number of ranks, large models save
    often and long.
    """
    ranks = math.log2(job.gpus) if job.gpus > 1 else 0.0
    role[k.INIT_MS] = dice.lognormal(25.0 + 9.0 * ranks, 0.35) * SECOND_MS
    role[k.LOAD_MS] = dice.lognormal(20.0 + 8.0 * ranks, 0.5) * SECOND_MS
    role[k.TRAIN_MS] = dice.between(14.0, 55.0) * MINUTE_MS
    role[k.EVAL_MS] = dice.between(45.0, 200.0) * SECOND_MS if dice.chance(0.8) else 0.0
    role[k.CHECKPOINT_MS] = dice.between(12.0, 40.0) * (1.0 + 0.15 * ranks) * SECOND_MS


def _traffic(role: NDArray[np.float64], job: Job, model: GpuModel, dice: RandomDraws) -> None:
    exchange = job.strategy.split("-")[0]
    hosts = -(-job.gpus // job.per_host)
    role[k.NVLINK] = NVLINK_SHARE[exchange] * model.nvlink_mb_s * dice.between(0.7, 1.25)
    if job.gpus == 1:
        role[k.NVLINK] = 0.0
    role[k.NET] = NET_MB_S[exchange] * dice.between(0.75, 1.25) if hosts > 1 else 0.4
    inputs = dice.lognormal(500.0, 0.5)
    role[k.PCIE_RX] = inputs + role[k.NET] * 0.9
    role[k.PCIE_TX] = inputs * 0.25 + role[k.NET] * 0.9
    role[k.CPU] = dice.between(1.5, 5.0) if job.kind is Kind.TRAIN else dice.between(0.4, 2.0)
    role[k.FS_READ] = dice.lognormal(35.0, 0.6) if job.kind is Kind.TRAIN else 1.0
    role[k.FS_WRITE] = job.recipe.memory * 900.0


def _make_states(
    job: Job, gpu_states: GpuStates, dice: RandomDraws, seed: int
) -> NDArray[np.float32]:
    table = gpu_states.make_busy_states(job.gpu_numbers)
    noise_key = np.uint64(key(seed, 73, job.seq))
    vary_states(table, noise_key, RANK_SPREAD, job.recipe.memory * dice.between(0.86, 1.05))
    # The first rank logs, evaluates and keeps a few tensors more.
    table[0, k.MEM_MIB] *= 1.015
    if job.pipeline_parallel > 1:
        _shape_stages(table, stages(job))
    return table


def stages(job: Job) -> NDArray[np.float64]:
    """Return each rank's pipeline stage as a number from 0 (first) to 1 (last)."""
    depth = job.pipeline_parallel
    per_stage = max(1, job.gpus // depth)
    stage = np.minimum(np.arange(job.gpus) // per_stage, depth - 1)
    place: NDArray[np.float64] = stage / max(1, depth - 1)
    return place


def _shape_stages(table: NDArray[np.float32], place: NDArray[np.float64]) -> None:
    """Shape stages: early ones hold more activations, the last computes the loss over the
    vocabulary.
    """
    table[:, k.MEM_MIB] *= 1.0 - 0.16 * place
    table[:, k.K_TENSOR] *= 0.98 + 0.06 * (place >= 1.0)
    table[:, k.K_SM] *= 0.99 + 0.03 * (place >= 1.0)
    table[:, k.HEAT_GAIN] *= 0.99 + 0.03 * (place >= 1.0)


def scale_warmth(regime: Regime, before: Regime) -> None:
    """Scale each GPU state's warmth by how its multipliers differ from the healthy GPU state's."""
    roles = regime.roles[regime.role_of]
    own = roles.copy()
    own[:, k.UTIL] *= regime.gpu_states[:, k.K_UTIL]
    own[:, k.SM] *= regime.gpu_states[:, k.K_SM]
    own[:, k.TENSOR] *= regime.gpu_states[:, k.K_TENSOR]
    own[:, k.DRAM] *= regime.gpu_states[:, k.K_DRAM]
    base = np.maximum(nominal_share(roles), 1e-6)
    gain = regime.gpu_states[:, k.GAIN] / np.maximum(before.gpu_states[:, k.GAIN], 1e-6)
    regime.gpu_states[:, k.HEAT_GAIN] = (
        before.gpu_states[:, k.GAIN] * gain * nominal_share(own) / base
    )

"""The hardware of a simulated cluster: racks, switches, hosts, GPUs, partitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.inventory import Gpu, Host, Inventory, Partition
from marey.sim.config import PartitionPlan, SimConfig
from marey.sim.random_draws import generator, key

HOSTS_PER_RACK = {8: 4, 4: 8}
RACKS_PER_SWITCH = 4
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU as its data sheet and an idle one on the bench describe it."""

    name: str
    power_limit_w: float
    idle_w: float
    memory_mib: float
    clock_mhz: float
    idle_clock_mhz: float
    nvlink_mb_s: float
    # Speed in training against an A100, for throughput figures.
    speed: float


MODELS: dict[str, GpuModel] = {
    "A100": GpuModel(
        name="NVIDIA A100-SXM4-80GB",
        power_limit_w=400.0,
        idle_w=58.0,
        memory_mib=81_920.0,
        clock_mhz=1410.0,
        idle_clock_mhz=210.0,
        nvlink_mb_s=300_000.0,
        speed=1.0,
    ),
    "H100": GpuModel(
        name="NVIDIA H100 80GB HBM3",
        power_limit_w=700.0,
        idle_w=69.0,
        memory_mib=81_559.0,
        clock_mhz=1980.0,
        idle_clock_mhz=345.0,
        nvlink_mb_s=450_000.0,
        speed=2.1,
    ),
    "V100": GpuModel(
        name="Tesla V100-SXM2-32GB",
        power_limit_w=300.0,
        idle_w=43.0,
        memory_mib=32_768.0,
        clock_mhz=1530.0,
        idle_clock_mhz=135.0,
        nvlink_mb_s=150_000.0,
        speed=0.45,
    ),
}


def plan_partitions(gpus: int) -> tuple[PartitionPlan, ...]:
    """Return how a cluster of this size is divided.

    Small and large work apart, three GPU models.
    """
    if gpus < 48:
        return (_plan("a100-small", "A100", gpus, max_gpus=8),)
    v100 = max(8, gpus // 10 // 8 * 8)
    h100 = gpus // 5 // 8 * 8 if gpus >= 256 else 0
    small = max(16, round(gpus * 0.3 / 8) * 8)
    rest = gpus - v100 - h100 - small
    large = rest // 8 * 8
    v100 += rest - large
    plans = [
        _plan("a100-small", "A100", small, max_gpus=8, time_limit_s=DAY_S // 2),
        _plan("a100-large", "A100", large, min_gpus=9, max_gpus=large),
        _plan("h100-large", "H100", h100, min_gpus=9, max_gpus=h100),
        _plan("v100-small", "V100", v100, per_host=4, max_gpus=4, time_limit_s=DAY_S),
    ]
    return tuple(plan for plan in plans if plan.hosts)


def _plan(
    name: str,
    model: str,
    gpus: int,
    *,
    per_host: int = 8,
    min_gpus: int = 1,
    max_gpus: int | None = None,
    time_limit_s: int = 7 * DAY_S,
) -> PartitionPlan:
    hosts = -(-gpus // per_host)
    last = gpus - (hosts - 1) * per_host if hosts else 0
    return PartitionPlan(
        name=name,
        model=model,
        hosts=hosts,
        gpus_per_host=per_host,
        min_gpus=min_gpus,
        max_gpus=max_gpus,
        time_limit_s=time_limit_s,
        last_host_gpus=last,
    )


@dataclass(frozen=True, slots=True)
class PartitionHosts:
    """The part of the hardware that one partition owns, as ranges of the global numbering."""

    plan: PartitionPlan
    model: GpuModel
    first_host: int
    host_count: int
    first_gpu: int
    gpu_count: int


@dataclass(frozen=True, slots=True)
class Hardware:
    """Everything built, with GPUs and hosts numbered from 0 across the whole cluster."""

    inventory: Inventory
    parts: tuple[PartitionHosts, ...]
    gpu_names: tuple[str, ...]
    host_names: tuple[str, ...]
    host_first: NDArray[np.int64]
    host_size: NDArray[np.int64]
    gpu_host: NDArray[np.int32]
    host_cpus: NDArray[np.float32]
    host_memory_mib: NDArray[np.float32]
    # Per GPU: what the kernels need to know of the device and of its place in the rack.
    idle_w: NDArray[np.float32]
    limit_w: NDArray[np.float32]
    memory_mib: NDArray[np.float32]
    clock_mhz: NDArray[np.float32]
    idle_clock_mhz: NDArray[np.float32]
    ambient_c: NDArray[np.float32]
    kelvin_per_w: NDArray[np.float32]
    silicon: NDArray[np.float32]

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.gpu_names)


@dataclass(slots=True)
class _Counters:
    """Numbers that run on while hosts are laid out."""

    rack: int = 0
    by_model: dict[str, int] | None = None


def build(config: SimConfig) -> Hardware:
    """Lay out the cluster that a configuration asks for."""
    plans = config.partitions or plan_partitions(config.gpus)
    hosts: list[Host] = []
    gpus: list[Gpu] = []
    parts: list[PartitionHosts] = []
    counters = _Counters(by_model={})
    for plan in plans:
        first_host, first_gpu = len(hosts), len(gpus)
        _lay_out(plan, hosts=hosts, gpus=gpus, counters=counters, seed=config.seed)
        parts.append(
            PartitionHosts(
                plan=plan,
                model=MODELS[plan.model],
                first_host=first_host,
                host_count=len(hosts) - first_host,
                first_gpu=first_gpu,
                gpu_count=len(gpus) - first_gpu,
            )
        )
    partitions = tuple(
        Partition(p.name, p.min_gpus, p.max_gpus, p.time_limit_s, priority=0) for p in plans
    )
    return _number_hosts(Inventory(tuple(hosts), tuple(gpus), partitions), parts, config.seed)


def _lay_out(
    plan: PartitionPlan, *, hosts: list[Host], gpus: list[Gpu], counters: _Counters, seed: int
) -> None:
    model = MODELS[plan.model]
    per_rack = HOSTS_PER_RACK.get(plan.gpus_per_host, 4)
    assert counters.by_model is not None
    for i in range(plan.hosts):
        number = counters.by_model.get(plan.model, 0) + 1
        counters.by_model[plan.model] = number
        rack = counters.rack + i // per_rack
        name = f"{plan.model.lower()}-{number:04d}"
        count = plan.gpus_per_host
        if i == plan.hosts - 1 and plan.last_host_gpus:
            count = plan.last_host_gpus
        hosts.append(
            Host(
                name,
                rack=f"rack-{rack + 1:03d}",
                switch=f"leaf-{rack // RACKS_PER_SWITCH + 1:02d}",
                nvlink_domain=name,
                partitions=(plan.name,),
                cpus=128 if plan.gpus_per_host == 8 else 48,
                memory_mib=1_048_576 if plan.gpus_per_host == 8 else 393_216,
            )
        )
        first = len(gpus)
        gpus.extend(
            Gpu(
                name,
                j,
                uuid=_uuid(seed, first + j),
                model=model.name,
                power_limit_w=model.power_limit_w,
                memory_mib=model.memory_mib,
            )
            for j in range(count)
        )
    counters.rack += -(-plan.hosts // per_rack)


def _uuid(seed: int, number: int) -> str:
    text = f"{key(seed, 11, number):016x}{key(seed, 12, number):016x}"
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _number_hosts(inventory: Inventory, parts: list[PartitionHosts], seed: int) -> Hardware:
    host_names = tuple(host.host for host in inventory.hosts)
    number = {name: i for i, name in enumerate(host_names)}
    gpu_host = np.array([number[gpu.host] for gpu in inventory.gpus], np.int32)
    sizes = np.bincount(gpu_host, minlength=len(host_names)).astype(np.int64)
    chance = generator(seed, 21)
    count = len(inventory.gpus)
    index = np.array([gpu.index for gpu in inventory.gpus], np.float32)
    racks = np.unique([host.rack for host in inventory.hosts], return_inverse=True)[1]
    # Cold aisle 21-26 °C by rack; the GPUs at the back of the chassis get warmed air.
    ambient = (chance.uniform(21.0, 26.0, racks.max() + 1)[racks])[gpu_host] + index * 0.6
    limit = np.array([gpu.power_limit_w for gpu in inventory.gpus], np.float32)
    models = [part.model for part in parts for _ in range(part.gpu_count)]
    return Hardware(
        inventory=inventory,
        parts=tuple(parts),
        gpu_names=tuple(gpu.gpu for gpu in inventory.gpus),
        host_names=host_names,
        host_first=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
        host_size=sizes,
        gpu_host=gpu_host,
        host_cpus=np.array([h.cpus for h in inventory.hosts], np.float32),
        host_memory_mib=np.array([h.memory_mib for h in inventory.hosts], np.float32),
        idle_w=(
            np.array([m.idle_w for m in models]) * chance.normal(1.0, 0.04, count).clip(0.9, 1.1)
        ).astype(np.float32),
        limit_w=limit,
        memory_mib=np.array([gpu.memory_mib for gpu in inventory.gpus], np.float32),
        clock_mhz=np.array([m.clock_mhz for m in models], np.float32),
        idle_clock_mhz=np.array([m.idle_clock_mhz for m in models], np.float32),
        ambient_c=ambient.astype(np.float32),
        # A full A100 settles near 62 °C, an idle one near 30 °C, whatever the model's limit.
        kelvin_per_w=(38.0 / limit * chance.normal(1.0, 0.05, count).clip(0.85, 1.15)).astype(
            np.float32
        ),
        silicon=chance.normal(1.0, 0.02, count).clip(0.95, 1.05).astype(np.float32),
    )

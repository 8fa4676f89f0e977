"""Small worlds with one thing in them: for tests, benches and the documentation of faults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marey.model.errors import InvalidInput
from marey.model.faults import FaultKind, Truth
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.workloads import Allocation, Progress, Workload
from marey.sim.config import FaultPlan, PartitionPlan, SimConfig
from marey.sim.simulation import Simulation

# The smallest workload in which a kind can show: below, peers or hosts to compare are missing.
LEAST_GPUS = {FaultKind.SLOW_NODE: 16, FaultKind.SLOW_FABRIC: 16}
SPARE_HOSTS = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """One workload's whole life in an otherwise empty cluster, with the truth about it."""

    simulation: Simulation
    workload: Workload
    allocations: tuple[Allocation, ...]
    truth: tuple[Truth, ...]
    observations: tuple[Observation, ...]
    # Samples written while the workload held the GPU, and those of its hosts.
    samples: SampleBatch
    host_samples: SampleBatch
    progress: tuple[Progress, ...]


def one_workload(
    kind: FaultKind | str = FaultKind.HEALTHY,
    *,
    gpus: int = 64,
    hours: float = 4.0,
    seed: int = 0,
    tick_ms: int = 15_000,
    model: str = "A100",
    strategy: str | None = None,
    work: str | None = None,
    severity: float | None = None,
) -> Scenario:
    """Return a workload of this size with this fault (or healthy), from its start for so many
    hours.
    """
    fault = FaultKind(kind)
    if gpus < LEAST_GPUS.get(fault, 1):
        raise InvalidInput(
            f"'{fault}' needs at least {LEAST_GPUS[fault]} GPUs; {gpus} were asked for."
        )
    per_host = 4 if model == "V100" else 8
    hosts = -(-gpus // per_host) + SPARE_HOSTS
    plan = PartitionPlan("only", model, hosts, per_host, user_gpus=gpus)
    simulation = Simulation(
        SimConfig(
            seed=seed,
            tick_ms=tick_ms,
            faults=FaultPlan(0.0),
            load=0.0,
            warmup_ms=0,
            partitions=(plan,),
            maintenance=False,
        )
    )
    default = "notebook" if fault is FaultKind.IDLE_SESSION else "train"
    name = simulation.submit(
        gpus=gpus,
        duration_s=hours * 3600.0,
        kind=work or default,
        strategy=strategy,
        fault=None if fault is FaultKind.HEALTHY else fault.value,
        severity=severity,
    )
    observations = tuple(simulation.history(hours))
    return _report(simulation, name, observations)


def _report(simulation: Simulation, name: str, observations: tuple[Observation, ...]) -> Scenario:
    records = [w for seen in observations for w in seen.workloads if w.workload == name]
    allocations = tuple(a for seen in observations for a in seen.allocations)
    batches = [batch for seen in observations for batch in seen.samples]
    hosts = {a.gpu.rpartition(":")[0] for a in allocations}
    return Scenario(
        simulation=simulation,
        workload=records[-1],
        allocations=allocations,
        truth=tuple(simulation.truth()),
        observations=observations,
        samples=find_held(name, [b for b in batches if b.kind is Entity.GPU]),
        host_samples=of_hosts(hosts, [b for b in batches if b.kind is Entity.HOST]),
        progress=tuple(p for seen in observations for p in seen.progress),
    )


def find_held(workload: str, batches: list[SampleBatch]) -> SampleBatch:
    """Return the rows that were written while this workload held the GPU."""
    kept = []
    for batch in batches:
        code = batch.workloads.index(workload) if workload in batch.workloads else -2
        assert batch.workload is not None
        kept.append(batch.rows(batch.workload == code))
    return _join_columns(kept, workload)


def of_hosts(hosts: set[str], batches: list[SampleBatch]) -> SampleBatch:
    """Return the rows of these hosts."""
    wanted = np.array([name in hosts for name in batches[0].entities])
    return _join_columns([batch.rows(wanted[batch.entity]) for batch in batches], None)


def _join_columns(batches: list[SampleBatch], workload: str | None) -> SampleBatch:
    first = batches[0]
    rows = sum(len(batch) for batch in batches)
    return SampleBatch(
        time_ms=np.concatenate([batch.time_ms for batch in batches]),
        entity=np.concatenate([batch.entity for batch in batches]),
        entities=first.entities,
        columns={n: np.concatenate([batch.columns[n] for batch in batches]) for n in first.columns},
        kind=first.kind,
        cluster=first.cluster,
        workload=None if workload is None else np.zeros(rows, np.int32),
        workloads=() if workload is None else (workload,),
    )

"""What the simulator's tests share: small worlds, and observations as comparable tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.sim import SimConfig, Simulation

MINUTE = 60_000
HOUR = 60 * MINUTE


def small_world(**changes: object) -> Simulation:
    """A cluster of 96 GPUs with many faults."""
    config = SimConfig(gpus=96, seed=3, faults=0.6)
    return Simulation(replace(config, **changes))


def sample_bytes(batches: Iterable[SampleBatch], kind: Entity) -> bytes:
    """All samples of a kind, ordered by entity and time, as bytes."""
    chosen = [batch for batch in batches if batch.kind is kind]
    time_ms = np.concatenate([batch.time_ms for batch in chosen])
    entity = np.concatenate([batch.entity for batch in chosen])
    order = np.lexsort((time_ms, entity))
    parts = [time_ms[order].tobytes(), entity[order].tobytes()]
    parts += [
        np.concatenate([batch.columns[name] for batch in chosen])[order].tobytes()
        for name in chosen[0].columns
    ]
    if kind is Entity.GPU:
        holders = np.concatenate([holder_names(batch) for batch in chosen])[order]
        parts.append("\n".join(holders.tolist()).encode())
    return b"".join(parts)


def holder_names(batch: SampleBatch) -> np.ndarray:
    """The workload of each row by name; an empty one for none."""
    names = np.array([*batch.workloads, ""], dtype=object)
    assert batch.workload is not None
    return names[batch.workload]


def what_happened(observations: Iterable[Observation]) -> tuple[list[object], bytes, bytes]:
    """Records in order, and the samples of GPUs and hosts as bytes."""
    records: list[object] = []
    progress: list[object] = []
    batches: list[SampleBatch] = []
    for seen in observations:
        batches.extend(seen.samples)
        progress.extend(seen.progress)
        bare = replace(seen, samples=(), progress=())
        if bare != Observation(time_ms=seen.time_ms, cluster=seen.cluster):
            records.append(bare)
    progress.sort(key=lambda p: (p.workload, p.time_ms))
    return (
        [records, progress],
        sample_bytes(batches, Entity.GPU),
        sample_bytes(batches, Entity.HOST),
    )

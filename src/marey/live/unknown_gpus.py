"""Samples of GPUs that no inventory names: shown as unknown, bounded, never invented as idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from marey.live.unit_rows import UNKNOWN_GPUS_LIMIT, UnitRows
from marey.model.errors import InvalidInput
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.metrics import Entity
from marey.model.names import GpuName, bounded, parse_gpu_id
from marey.model.observation import Observation
from marey.model.samples import SampleBatch

REASON = "measured, but not in the inventory"


class DropCounter(Protocol):
    """Where samples that could not be kept are counted."""

    dropped_samples: int


def add_unknown_gpus(observation: Observation, units: UnitRows, drops: DropCounter) -> Observation:
    """Return the observation with a host in state unknown for every measured GPU nobody has named.

    Samples whose entity is no GPU name, or beyond the limit of such names, are left out.
    """
    announced = {gpu.gpu for gpu in observation.gpus}
    found: dict[str, GpuName] = {}
    batches = tuple(
        _keep_known(batch, units=units, announced=announced, found=found, drops=drops)
        for batch in observation.samples
    )
    if not found and all(a is b for a, b in zip(batches, observation.samples, strict=True)):
        return observation
    units.unknown_count += len(found)
    hosts = sorted({name.host for name in found.values()} - _list_host_names(observation, units))
    return replace(
        observation,
        samples=tuple(batch for batch in batches if len(batch)),
        hosts=(*observation.hosts, *(Host(host) for host in hosts)),
        gpus=(*observation.gpus, *(Gpu(n.host, n.index, n.instance) for n in found.values())),
        host_states=(
            *observation.host_states,
            *(HostStatus(host, HostState.UNKNOWN, REASON) for host in hosts),
        ),
    )


def _list_host_names(observation: Observation, units: UnitRows) -> set[str]:
    return {host.host for host in observation.hosts} | units.host_names()


def _keep_known(
    batch: SampleBatch,
    *,
    units: UnitRows,
    announced: set[str],
    found: dict[str, GpuName],
    drops: DropCounter,
) -> SampleBatch:
    if batch.kind is not Entity.GPU or units.knows_all(batch.entities):
        return batch
    refused = np.zeros(len(batch.entities), bool)
    for at, entity in enumerate(batch.entities):
        if units.row_of(entity) is not None or entity in announced or entity in found:
            continue
        name = _parse_gpu_name(entity)
        if name is None or len(found) + units.unknown_count >= UNKNOWN_GPUS_LIMIT:
            refused[at] = True
        else:
            found[entity] = name
    if not refused.any():
        return batch
    kept = ~refused[batch.entity]
    drops.dropped_samples += int((~kept).sum())
    return replace(
        batch,
        time_ms=batch.time_ms[kept],
        entity=batch.entity[kept],
        columns={name: values[kept] for name, values in batch.columns.items()},
        workload=None if batch.workload is None else batch.workload[kept],
    )


def _parse_gpu_name(entity: str) -> GpuName | None:
    try:
        return parse_gpu_id(entity) if bounded(entity) == entity else None
    except InvalidInput:
        return None

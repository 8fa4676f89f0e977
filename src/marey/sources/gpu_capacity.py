"""How much memory a GPU has and how much power it may draw, as its own metrics say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from marey.model.inventory import Gpu
from marey.model.metrics import catalogue

# What an exporter counts may differ by rounding from scrape to scrape: that is no other memory.
SAME_MEMORY = 0.02
CAPACITY_METRICS = ("mem_total", "mem_used", "mem_free", "mem_reserved", "power_limit")
# Those without which the others tell nothing.
CAPACITY_REPORTED_BY = ("mem_total", "mem_free", "power_limit")
# Some exporters write the largest number of a type for what they do not know.
MOST_MEMORY_MIB = catalogue()["mem_total"].maximum
MOST_POWER_W = catalogue()["power_limit"].maximum


def measure_capacity(gpu: Gpu, values: Mapping[str, float]) -> Gpu:
    """Return the GPU with the memory and the power limit that its metrics tell.

    Values that are missing or NaN tell nothing; what is known stays.
    """
    memory, limit = _find_memory(values), values.get("power_limit", 0.0)
    known = gpu.memory_mib
    if 0 < memory <= MOST_MEMORY_MIB and (
        known is None or abs(memory - known) > SAME_MEMORY * known
    ):
        gpu = replace(gpu, memory_mib=memory)
    if 0 < limit <= MOST_POWER_W and gpu.power_limit_w != limit:
        gpu = replace(gpu, power_limit_w=limit)
    return gpu


def keep_capacity(gpu: Gpu, known: Gpu | None) -> Gpu:
    """Return the GPU as labels name it now, with the capacity that was measured of it before."""
    if known is None or known.uuid != gpu.uuid:
        return gpu
    return replace(
        gpu,
        memory_mib=gpu.memory_mib or known.memory_mib,
        power_limit_w=gpu.power_limit_w or known.power_limit_w,
    )


def _find_memory(values: Mapping[str, float]) -> float:
    """Return the stated memory, or else used, free and reserved together; 0 is unknown."""
    total = values.get("mem_total", 0.0)
    if total > 0:
        return total
    used, free = values.get("mem_used", -1.0), values.get("mem_free", -1.0)
    if not (used >= 0 and free >= 0):
        return 0.0
    reserved = values.get("mem_reserved", 0.0)
    return round(used + free + (reserved if reserved > 0 else 0.0), 1)

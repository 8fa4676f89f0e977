"""Slurm's generic resources: how many GPUs, of which type, and which of a node's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from marey.model.names import bounded
from marey.sources.slurm.values import expand_numbers

GPUS_PER_NODE_LIMIT = 64
# 22.05 writes gres:gpu:a100:8, 23.02 and later gres/gpu:a100:8, trackable resources gres/gpu=8;
# what stands in brackets (sockets, indices) may hold commas. A type may begin with a digit, as
# 2080ti, 4090 and 1g.10gb do.
_GPU = re.compile(r"(?:^|,)(?:gres[:/])?gpu((?:[:=][^,]*)?)(?=,|$)")
_INDICES = re.compile(r"(?:^|,)gpu(?::(\(null\)|[^:,()]+))?:\d+\(IDX:([^)]*)\)")
_BRACKETS = re.compile(r"\([^)]*\)")
_COUNT = re.compile(r"^(\d{1,6})([kKmMgG]?)$")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Words between type and count that name neither.
_NOT_A_TYPE = ("", "no_consume", "(null)")


@dataclass(frozen=True, slots=True)
class GpuCount:
    """Some GPUs of one type; an empty type is any."""

    model: str
    count: int


@lru_cache(maxsize=4096)
def parse_gpu_counts(gres: str) -> tuple[GpuCount, ...]:
    """Parse the GPUs in ``gpu:a100:8(S:0-1),shard:4`` or ``cpu=4,gres/gpu=16,gres/gpu:a100=16``."""
    plain = _BRACKETS.sub("", gres)
    found = [_make_count(match[1]) for match in _GPU.finditer(plain)]
    typed = [entry for entry in found if entry.model]
    untyped = count_gpus(found) - count_gpus(typed)
    if "=" not in plain or not typed or not untyped:
        return tuple(found)
    # Trackable resources name the total beside its parts.
    rest = untyped - count_gpus(typed)
    return (*typed, GpuCount("", rest)) if rest > 0 else tuple(typed)


def _make_count(asked: str) -> GpuCount:
    """Parse the text behind ``gpu``: ``:a100:8``, ``:8``, ``:a100``, ``:4090=8`` or nothing."""
    words = [word for word in re.split("[:=]", asked) if word not in _NOT_A_TYPE]
    last = _COUNT.match(words[-1]) if words else None
    count = int(last[1]) * _UNITS[last[2].lower()] if last else 1
    types = words[:-1] if last else words
    return GpuCount(types[0] if types else "", count)


def count_gpus(counts: Sequence[GpuCount]) -> int:
    """Return how many GPUs in all."""
    return sum(entry.count for entry in counts)


@lru_cache(maxsize=4096)
def list_node_models(gres: str) -> tuple[str, ...]:
    """Return the model of each GPU of a node, by index."""
    counts = parse_gpu_counts(gres)
    models = [bounded(entry.model) for entry in counts for _ in range(min(entry.count, 999))]
    return tuple(models[:GPUS_PER_NODE_LIMIT])


@lru_cache(maxsize=4096)
def parse_held_indices(gres_detail: str) -> tuple[tuple[int, str], ...]:
    """Return index and type of each GPU in ``gpu:h100:2(IDX:0-1),gpu:h200:1(IDX:4)``.

    A node's own.
    """
    return tuple(
        (int(index), "" if match[1] in (None, *_NOT_A_TYPE) else match[1])
        for match in _INDICES.finditer(gres_detail)
        for index in expand_numbers(match[2], GPUS_PER_NODE_LIMIT)
    )

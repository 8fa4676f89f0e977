"""How a run is split over its ranks: read from process groups, their names and their traffic."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.rank.activity import Flags, Ints
from marey.trace.ranks.communications import Group, Pool
from marey.trace.ranks.pipeline import PipelineStages, find_pipeline
from marey.trace.results import Dimension, Parallelism

# What training code calls its groups. A name is the strongest evidence.
NAMES = (
    ("expert", re.compile(r"expert|(?:^|[_\W])e(?:x)?p(?:$|[_\W\d])|moe", re.I)),
    ("context", re.compile(r"context|(?:^|[_\W])cp(?:$|[_\W\d])|ring_att|ulysses", re.I)),
    ("pipeline", re.compile(r"pipe|(?:^|[_\W])pp(?:$|[_\W\d])|stage", re.I)),
    ("tensor", re.compile(r"tensor|(?:^|[_\W])tp(?:$|[_\W\d])|model_parallel|mp_group", re.I)),
    ("fully_sharded", re.compile(r"fsdp|shard|zero", re.I)),
    ("data", re.compile(r"data|(?:^|[_\W])d(?:d)?p(?:$|[_\W\d])|replicate", re.I)),
)
NAMED, TRAFFIC, WEAK = 0.95, 0.8, 0.5
# Tensor parallelism synchronises inside every layer: more calls per step than gradient buckets.
TENSOR_CALLS_PER_STEP = 8
# So many sums of forward that come back in backward are activations', not gradients'.
TENSOR_MIRRORED = 2
# Below this a call carries a loss or a norm, not activations or gradients.
SMALL_BYTES = 4096


@dataclass(frozen=True)
class _Traffic:
    """What one group carries, per rank and step."""

    group: Group
    calls: dict[str, float]
    bytes: dict[str, float]
    # Share of calls made while forward work was still to come.
    early: float
    # Sums per step made in forward whose sizes come back in backward, as those of activations do.
    mirrored: float


def find_parallelism(
    pool: Pool, item: Ints, symbols: Symbols, *, early: Flags, world: Mapping[int, str]
) -> Parallelism:
    """Return the dimensions of a run.

    ``early`` marks rows called before their step's backward began.
    """
    pipeline = find_pipeline(pool, item)
    dimensions = _dimensions(pool, symbols, early, pipeline)
    if pipeline.stages:
        dimensions.append(_pipeline_dimension(pool, pipeline))
    if not dimensions and len(pool.ranks) > 1:
        everyone = (tuple(pool.ranks),)
        dimensions.append(Dimension("unknown", len(pool.ranks), everyone, 0.2, "no traffic"))
    ranks = tuple(world)
    stages = {rank: pipeline.stages.get(rank, 0) for rank in ranks}
    return Parallelism(
        dimensions=tuple(sorted(dimensions, key=lambda d: d.kind)),
        stages=stages,
        replicas=_replicas(ranks, dimensions, stages),
        micro_batches=pipeline.micro_batches,
        schedule=pipeline.schedule,
        confidence=min((d.confidence for d in dimensions), default=1.0),
    )


def _dimensions(
    pool: Pool, symbols: Symbols, early: Flags, pipeline: PipelineStages
) -> list[Dimension]:
    found: dict[str, list[tuple[tuple[int, ...], float, str]]] = defaultdict(list)
    traffics = _traffics(pool, symbols, early)
    for traffic in traffics:
        kind, confidence, why = _kind_of(traffic, traffics)
        if kind and kind != "pipeline":
            found[kind].append((traffic.group.ranks, confidence, why))
    return [
        Dimension(
            kind=kind,
            size=max(len(ranks) for ranks, _, _ in groups),
            groups=tuple(sorted({ranks for ranks, _, _ in groups})),
            confidence=round(float(np.mean([c for _, c, _ in groups])), 3),
            evidence=Counter(why for _, _, why in groups).most_common(1)[0][0],
        )
        for kind, groups in found.items()
    ]


def _traffics(pool: Pool, symbols: Symbols, early: Flags) -> list[_Traffic]:
    rows = np.flatnonzero(~np.isin(pool.kind, (EventKind.SEND, EventKind.RECV)))
    order = rows[np.argsort(pool.group[rows], kind="stable")]
    cuts = np.searchsorted(pool.group[order], np.arange(len(pool.groups) + 1))
    traffics = []
    for number, group in enumerate(pool.groups):
        mine = order[cuts[number] : cuts[number + 1]]
        if not len(mine):
            continue
        ranks = tuple(np.unique(pool.rank[mine]).tolist())
        per = max(len(ranks), 1) * max(len(np.unique(pool.step[mine])), 1)
        calls: dict[str, float] = defaultdict(float)
        size: dict[str, float] = defaultdict(float)
        for code in np.unique(pool.collective[mine]).tolist():
            of = mine[pool.collective[mine] == code]
            large = of[(pool.bytes[of] > SMALL_BYTES) | (pool.bytes[of] < 0)]
            calls[symbols.text(code)] += len(large) / per
            size[symbols.text(code)] += float(np.maximum(pool.bytes[large], 0).sum()) / per
        known = group if group.ranks else Group(group.name, group.description, ranks)
        sums = mine[pool.collective[mine] == (symbols.code("allreduce") or NO_VALUE)]
        mirrored = _count_mirrored(pool.bytes[sums], early[sums]) / per
        share = float(early[mine].mean())
        traffics.append(_Traffic(known, dict(calls), dict(size), share, mirrored))
    return traffics


def _count_mirrored(sizes: Ints, early: Flags) -> int:
    """Return how many early calls have a later one of the same size, each used once."""
    large = sizes > SMALL_BYTES
    before = Counter(sizes[large & early].tolist())
    after = Counter(sizes[large & ~early].tolist())
    return (before & after).total()


def _kind_of(traffic: _Traffic, others: list[_Traffic]) -> tuple[str, float, str]:
    group, calls = traffic.group, traffic.calls
    if len(group.ranks) < 2 or sum(calls.values()) == 0:
        return "", 0.0, ""
    sharding = _shards(calls)
    text = f"{group.description} {group.name}"
    kind = kind_in_name(text)
    if kind:
        kind = "fully_sharded" if kind == "data" and sharding else kind
        return kind, NAMED, f"groups are called {group.description or group.name!r}"
    if calls.get("alltoall", 0) >= 2:
        return "expert", WEAK, "all-to-all within the groups"
    return _kind_by_traffic(traffic, sharding, others)


def kind_in_name(text: str) -> str:
    """Return the kind of parallelism that a group's name says first, or "".

    >>> kind_in_name("DATA_PARALLEL_GROUP_WITH_CP")
    'data'
    """
    found = [(match.start(), kind) for kind, p in NAMES if (match := p.search(text))]
    return min(found, key=lambda place: place[0])[1] if found else ""


def _shards(calls: dict[str, float]) -> bool:
    """Return parameters gathered and gradients scattered."""
    return calls.get("allgather", 0) > 0 and calls.get("reducescatter", 0) > 0


def _kind_by_traffic(
    traffic: _Traffic, sharding: bool, others: list[_Traffic]
) -> tuple[str, float, str]:
    reduces = traffic.calls.get("allreduce", 0)
    busy = sum(traffic.calls.values())
    quieter = any(
        0 < sum(o.calls.values()) < busy / 2 and set(o.group.ranks) != set(traffic.group.ranks)
        for o in others
    )
    in_forward = traffic.early > 0.2
    inside_layers = in_forward and busy > 4 * TENSOR_CALLS_PER_STEP
    if sharding and not (quieter and inside_layers and reduces == 0):
        return "fully_sharded", TRAFFIC, "gathers parameters and scatters gradients"
    if in_forward and busy >= TENSOR_CALLS_PER_STEP and (reduces > 0 or sharding):
        return "tensor", TRAFFIC, "synchronises inside forward and backward of every layer"
    if in_forward and traffic.mirrored >= TENSOR_MIRRORED:
        return "tensor", TRAFFIC, "sums of the same sizes in forward and in backward"
    if reduces > 0 and not in_forward:
        return "data", TRAFFIC, "reduces gradients during and after backward"
    if reduces > 0:
        return "data", WEAK, "all-reduce within the groups"
    return "unknown", 0.3, "traffic of no known pattern"


def _pipeline_dimension(pool: Pool, pipeline: PipelineStages) -> Dimension:
    depth = max(pipeline.stages.values()) + 1
    return Dimension(
        kind="pipeline",
        size=depth,
        groups=pipeline.chains,
        confidence=pipeline.confidence,
        evidence="point-to-point exchanges form a chain of stages",
    )


def _replicas(
    ranks: tuple[int, ...], dimensions: list[Dimension], stages: Mapping[int, int]
) -> dict[int, int]:
    """Return each rank's place in its data-parallel group.

    Without one every rank is its own worker.
    """
    place: dict[int, int] = {}
    for dimension in dimensions:
        if dimension.kind in ("data", "fully_sharded"):
            for group in dimension.groups:
                for at, rank in enumerate(group):
                    place.setdefault(rank, at)
    if place:
        return {rank: place.get(rank, 0) for rank in ranks}
    within: Counter[int] = Counter()
    for rank in ranks:
        place[rank] = within[stages[rank]]
        within[stages[rank]] += 1
    return place

"""The nodes of the execution flow: operators of a stage, its ranks collapsed to a spread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.trace.views.bands import PHASE_WORDS
from marey.trace.views.step_files import StepView
from marey.trace.views.view_kinds import ViewKind

Ints = NDArray[np.int64]
GATHERS = ("allgather", "all_gather", "_allgather_base")
SCATTERS = ("reducescatter", "reduce_scatter", "_reduce_scatter_base")
REDUCES = ("allreduce", "all_reduce", "reduce")
EXCHANGES = ("alltoall", "all_to_all")


@dataclass(frozen=True)
class Sharding:
    """How a tensor is cut: slices per dimension; exact, inferred or unknown, and why."""

    evidence: Literal["exact", "inferred", "unknown"] = "unknown"
    slices: tuple[int, ...] = ()
    why: str = ""
    # Slices of every input, where the run states them.
    inputs: tuple[tuple[int, ...], ...] = ()


@dataclass
class OperatorNode:
    """One operator of one stage."""

    id: int
    kind: str
    name: str
    module: str
    stage: int
    phase: str
    order: int
    block: int
    micro_batch: int
    operator: int
    ranks: int
    calls: int
    min_ms: float
    median_ms: float
    max_ms: float
    slowest_rank: int
    wait_ms: float
    blame_s: float
    shapes: str
    sharding: Sharding = field(default_factory=Sharding)
    stack: int = -1
    copy: int = -1
    # Ranks of the group that it meets in; 0 where it meets nobody.
    group_size: int = 0


@dataclass(frozen=True)
class FlowContext:
    """What the nodes are made from, beside the step itself."""

    names: pa.Array
    # Item of communication → name, the kind of group it runs in, and that group's size.
    groups: Mapping[int, tuple[str, str, int]]
    # Item and rank → wait in ms; rank and operator's name → GPU-seconds that others waited for it.
    waits: Mapping[tuple[int, int], float]
    blame: Mapping[tuple[int, str], float]
    # Kind of parallelism → its size.
    dimensions: Mapping[str, int]
    # Rank and row of its event table → what the run states itself.
    strategies: Mapping[tuple[int, int], Sharding] = field(default_factory=dict)


def make_nodes(
    view: StepView, stage: int, context: FlowContext, first_id: int
) -> list[OperatorNode]:
    """Return the nodes of one stage in order of execution."""
    ranks = [r for r, s in zip(view.index.ranks, view.index.stages, strict=True) if s == stage]
    bands = np.concatenate([view.bands_of(rank) for rank in ranks])
    of_rank = np.concatenate([np.full(len(view.bands_of(rank)), rank) for rank in ranks])
    order = np.argsort(bands["operator"], kind="stable")
    bands, of_rank = bands[order], of_rank[order]
    cuts = np.flatnonzero(np.append(True, bands["operator"][1:] != bands["operator"][:-1]))
    groups = [
        slice(a, b) for a, b in zip(cuts, [*cuts[1:].tolist(), len(bands)], strict=True) if b > a
    ]
    # In the order the host launched them: what waits for others starts late, but stands where the
    # program has it.
    called = np.array([np.median(bands["root"][g]) for g in groups])
    begun = np.array([np.median(bands["start"][g]) for g in groups])
    places = np.lexsort((begun, called))
    nodes = []
    # A graph without times lies in one nanosecond.
    timed = view.index.end_ns - view.index.start_ns > 1
    unit_ms = view.index.unit_ns / 1e6 if timed else 0.0
    for place, number in enumerate(places.tolist()):
        chosen = groups[number]
        node = _make_node(bands[chosen], of_rank[chosen], context, unit_ms)
        node.stage = stage
        node.id, node.order = first_id + place, place
        nodes.append(node)
    _number_blocks(nodes)
    return nodes


def _make_node(
    bands: NDArray[np.void], ranks: Ints, context: FlowContext, unit_ms: float
) -> OperatorNode:
    lead = bands[0]
    times = (bands["end"].astype(np.int64) - bands["start"]) * unit_ms
    by_rank = np.bincount(np.unique(ranks, return_inverse=True)[1], weights=times)
    known = np.unique(ranks)
    name = context.names[int(lead["name"])].as_py()
    item = int(lead["item"])
    said, group_kind, size = context.groups.get(item, ("", "", 0))
    phase = PHASE_WORDS[lead["phase"]] if lead["phase"] >= 0 else ""
    kind = _node_kind(int(lead["kind"]), said or name, group_kind, phase)
    shapes = context.names[int(lead["shapes"])].as_py() if lead["shapes"] >= 0 else ""
    pairs = zip(bands["item"].tolist(), ranks.tolist(), strict=True)
    waits = [context.waits.get(pair, 0.0) for pair in pairs] if item >= 0 else [0.0]
    return OperatorNode(
        id=-1,
        kind=kind,
        name=kind if kind in ("send", "receive") else said or name,
        module=context.names[int(lead["module"])].as_py() if lead["module"] >= 0 else "",
        stage=0,
        phase=phase,
        order=-1,
        block=0,
        micro_batch=int(lead["micro_batch"]),
        operator=int(lead["operator"]),
        ranks=len(known),
        calls=len(bands),
        min_ms=float(by_rank.min()),
        median_ms=float(np.median(by_rank)),
        max_ms=float(by_rank.max()),
        slowest_rank=int(known[int(by_rank.argmax())]),
        wait_ms=float(np.mean(waits)),
        blame_s=sum(context.blame.get((rank, name), 0.0) for rank in known.tolist()),
        shapes=shapes,
        group_size=size,
        sharding=_find_stated(bands, ranks, context)
        or find_sharding(
            kind, shapes, group_kind=group_kind, size=size, dimensions=context.dimensions
        ),
    )


def _find_stated(bands: NDArray[np.void], ranks: Ints, context: FlowContext) -> Sharding | None:
    """Return the run's own statement on these bands, if any; never one rank's word for all."""
    if not context.strategies:
        return None
    pairs = zip(ranks.tolist(), bands["event"].tolist(), strict=True)
    found = {context.strategies.get(pair) for pair in pairs}
    if len(found) > 1:
        return Sharding(why="ranks state different strategies")
    return found.pop()


def _node_kind(kind: int, name: str, group_kind: str, phase: str) -> str:
    if kind == ViewKind.SEND:
        return "send"
    if kind == ViewKind.RECEIVE:
        return "receive"
    if kind != ViewKind.COLLECTIVE:
        return "optimizer" if phase == "update" else "operator"
    if is_any(name, EXCHANGES):
        return "expert_exchange"
    if is_any(name, GATHERS):
        return "redistribution" if group_kind in ("tensor", "context") else "parameter_gather"
    if is_any(name, (*SCATTERS, *REDUCES)):
        # Gradients are not there yet in forward: what is summed then are activations.
        inside = group_kind in ("tensor", "context", "expert") or phase == "forward"
        return "redistribution" if inside else "gradient_aggregation"
    return "redistribution"


def is_any(name: str, words: tuple[str, ...]) -> bool:
    """Return whether a collective's name is one of these, however it is written."""
    plain = name.lower().replace("_", "")
    return any(word.replace("_", "") in plain for word in words)


def find_sharding(
    kind: str, shapes: str, *, group_kind: str, size: int, dimensions: Mapping[str, int]
) -> Sharding:
    """Return how the tensor of a node is cut: exact where shapes prove it, else what is
    inferred.
    """
    if kind in ("parameter_gather", "redistribution", "gradient_aggregation"):
        ratio = _ratio_of_shapes(shapes)
        if ratio > 1 and (ratio == size or size == 0):
            return Sharding("exact", (ratio,), f"shapes {shapes[:80]} differ by {ratio}")
    if kind == "parameter_gather" and size > 1:
        return Sharding("inferred", (size,), f"gathered over {size} ranks")
    if kind == "gradient_aggregation" and size > 1:
        if group_kind == "fully_sharded":
            return Sharding("inferred", (size,), f"scattered over {size} ranks")
        return Sharding("inferred", (1,), f"the same on {size} ranks")
    if kind in ("operator", "optimizer"):
        return _infer_sharding(kind, dimensions)
    return Sharding()


def _infer_sharding(kind: str, dimensions: Mapping[str, int]) -> Sharding:
    tensor = dimensions.get("tensor", 1)
    if tensor > 1:
        return Sharding(why=f"tensor parallel × {tensor}, but nothing says how this is cut")
    sharded = dimensions.get("fully_sharded", 1)
    if kind == "optimizer" and sharded > 1:
        return Sharding("inferred", (sharded,), f"fully sharded × {sharded}")
    return Sharding()


def _ratio_of_shapes(shapes: str) -> int:
    """Return how many times larger the larger of the first two tensors is; 0 if no whole number.

    >>> _ratio_of_shapes("[[198272], [49568], [], []]")
    4
    """
    try:
        dims = msgspec.json.decode(shapes.encode()) if shapes else []
    except msgspec.DecodeError:
        return 0
    sizes = [_elements(one) for one in dims if isinstance(one, list) and one][:2]
    if len(sizes) < 2 or min(sizes) <= 0 or max(sizes) % min(sizes):
        return 0
    return max(sizes) // min(sizes)


def _elements(dims: list[Any]) -> int:
    flat = [_elements(d) if isinstance(d, list) else d for d in dims]
    if dims and isinstance(dims[0], list):
        return sum(flat)
    return int(np.prod(flat)) if all(isinstance(d, int) for d in flat) else 0


def _number_blocks(nodes: list[OperatorNode]) -> None:
    """Cut the stage where it sends or receives: what lies between two exchanges is a block."""
    block = 0
    for before, node in zip([None, *nodes], nodes, strict=False):
        talks = node.kind in ("send", "receive")
        if before is not None and (talks or before.kind in ("send", "receive")):
            block += 1
        node.block = block

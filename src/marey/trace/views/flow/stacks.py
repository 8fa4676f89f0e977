"""Equal subgraphs shown once: the layers of a model, compared exactly.

Modules of one class below one parent are copies when their nodes are equal one by one (kind, name,
place inside the module, shapes, sharding) and so are the edges among them. Three copies make a
stack; copies with different strategies never do.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from marey.trace.views.flow.edges import Edge
from marey.trace.views.flow.nodes import OperatorNode

FEWEST_COPIES = 3
# A single operator repeated is no part of a model.
FEWEST_NODES = 2
_NUMBER = re.compile(r"_?[0-9]+$")


@dataclass(frozen=True)
class Stack:
    """Copies of one subgraph; the first is the one that is shown."""

    id: int
    name: str
    members: tuple[tuple[int, ...], ...]


def find_stacks(nodes: list[OperatorNode], edges: list[Edge]) -> list[Stack]:
    """Return the stacks, outermost modules first, and note in each node which it belongs to."""
    stacks: list[Stack] = []
    inside = _edges_by_source(edges)
    lanes: dict[tuple[int, str, int], list[OperatorNode]] = defaultdict(list)
    for node in nodes:
        lanes[node.stage, node.phase, node.micro_batch].append(node)
    for lane in lanes.values():
        deepest = max((node.module.count(".") for node in lane), default=0) + 1
        for depth in range(1, deepest + 1):
            _stack_depth(lane, depth, inside, stacks)
    return stacks


def _edges_by_source(edges: list[Edge]) -> dict[int, list[Edge]]:
    found: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        found[edge.source].append(edge)
    return found


def _stack_depth(
    lane: list[OperatorNode], depth: int, inside: dict[int, list[Edge]], stacks: list[Stack]
) -> None:
    modules: dict[str, list[OperatorNode]] = defaultdict(list)
    for node in lane:
        parts = node.module.split(".")
        if node.stack < 0 and len(parts) >= depth and not node.module.startswith("("):
            modules[".".join(parts[:depth])].append(node)
    alike: dict[Any, list[str]] = defaultdict(list)
    for module, members in modules.items():
        parent, _, own = module.rpartition(".")
        key = (parent, _NUMBER.sub("", own), _signature(members, depth, inside))
        alike[key].append(module)
    for (_, name, _), copies in alike.items():
        if len(copies) >= FEWEST_COPIES and len(modules[copies[0]]) >= FEWEST_NODES:
            _add_stack(name, [modules[m] for m in copies], stacks)


def _add_stack(name: str, copies: list[list[OperatorNode]], stacks: list[Stack]) -> None:
    number = len(stacks)
    for copy, members in enumerate(copies):
        for node in members:
            node.stack, node.copy = number, copy
    stacks.append(Stack(number, name, tuple(tuple(n.id for n in members) for members in copies)))


def _signature(members: list[OperatorNode], depth: int, inside: dict[int, list[Edge]]) -> Any:
    """Return the parts that must be equal: the nodes in order and their edges, free of running
    numbers.
    """
    place = {node.id: n for n, node in enumerate(members)}
    renamed: dict[str, str] = {}
    rows = []
    for node in members:
        below = node.module.split(".")[depth:]
        path = tuple(_rename(part, renamed) for part in below)
        cut = (node.sharding.evidence, node.sharding.slices, node.sharding.inputs)
        rows.append((node.kind, node.name, path, node.shapes, cut, node.ranks))
    linked = sorted(
        (place[edge.source], place[edge.target], edge.evidence)
        for node in members
        for edge in inside.get(node.id, ())
        if edge.target in place
    )
    return tuple(rows), tuple(linked)


def _rename(part: str, renamed: dict[str, str]) -> str:
    """Name ``Linear_7`` as the n-th Linear seen here: counters run on over the model."""
    if part not in renamed:
        own = _NUMBER.sub("", part)
        same = sum(1 for known in renamed if _NUMBER.sub("", known) == own)
        renamed[part] = f"{own}#{same}"
    return renamed[part]

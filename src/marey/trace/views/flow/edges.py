"""The edges of the execution flow, each with the evidence it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa

from marey.trace.views.flow.nodes import OperatorNode
from marey.trace.views.step_files import StepView

# An edge over more nodes of its stage than this is hidden until asked for, and one at a hub.
LONG_SPAN = 12
HUB_EDGES = 10
# The surest first: of two edges between the same nodes the first stays.
EdgeEvidence = Literal["tensor", "backward", "communication", "order"]


@dataclass(frozen=True)
class Edge:
    """What follows from what; long edges and those at hubs are hidden until asked for."""

    source: int
    target: int
    evidence: EdgeEvidence
    long: bool = False
    hub: bool = False


def make_edges(view: StepView, nodes: list[OperatorNode], tensors: pa.Table | None) -> list[Edge]:
    """Return all edges between the nodes of a step."""
    by_operator = {node.operator: node for node in nodes}
    pairs: dict[tuple[int, int], EdgeEvidence] = {}

    def add(found: Iterable[tuple[int, int]], evidence: EdgeEvidence) -> None:
        for source, target in found:
            if source != target:
                pairs.setdefault((source, target), evidence)

    leads = _lead_ranks(view, nodes)
    if tensors is not None:
        add(_tensor_edges(view, tensors, by_operator), "tensor")
    for rank in leads:
        add(_backward_edges(view, rank, by_operator), "backward")
    add(_communication_edges(view, by_operator), "communication")
    add(_order_edges(nodes, set(pairs)), "order")
    return _hide(pairs, nodes)


def _lead_ranks(view: StepView, nodes: list[OperatorNode]) -> list[int]:
    """Return one rank per stage: the others ran the same program."""
    wanted = {node.stage for node in nodes}
    first: dict[int, int] = {}
    for rank, stage in zip(view.index.ranks, view.index.stages, strict=True):
        if stage in wanted:
            first.setdefault(stage, rank)
    return list(first.values())


def _backward_edges(
    view: StepView, rank: int, by_operator: dict[int, OperatorNode]
) -> Iterable[tuple[int, int]]:
    bands = view.bands_of(rank)
    roots, operators = bands["root"].tolist(), bands["operator"].tolist()
    last = dict(zip(roots, operators, strict=True))
    seen = set()
    for root, forward, operator in zip(roots, bands["forward"].tolist(), operators, strict=True):
        if forward < 0 or root in seen or forward not in last:
            continue
        seen.add(root)
        source, target = by_operator.get(last[forward]), by_operator.get(operator)
        if source is not None and target is not None:
            yield source.id, target.id


def _communication_edges(
    view: StepView, by_operator: dict[int, OperatorNode]
) -> Iterable[tuple[int, int]]:
    """Draw an edge from the send to the receive of each matched exchange."""
    bands = view.bands
    chosen = np.isin(bands["kind"], (3, 4)) & (bands["item"] >= 0)
    sides: dict[int, dict[str, int]] = {}
    columns = (bands[c][chosen].tolist() for c in ("item", "operator"))
    for item, operator in zip(*columns, strict=True):
        node = by_operator.get(operator)
        if node is not None:
            sides.setdefault(item, {})[node.kind] = node.id
    for found in sides.values():
        if "send" in found and "receive" in found:
            yield found["send"], found["receive"]


def _tensor_edges(
    view: StepView, tensors: pa.Table, by_operator: dict[int, OperatorNode]
) -> Iterable[tuple[int, int]]:
    """Draw edges from the operator that made a tensor to those that read it, by an
    execution trace.
    """
    for rank in np.unique(tensors["rank"].to_numpy()).tolist():
        bands = view.bands_of(rank)
        of_root: dict[int, int] = {}
        for root, operator in zip(bands["root"].tolist(), bands["operator"].tolist(), strict=True):
            of_root.setdefault(root, operator)
        mine = tensors.filter(pa.array(tensors["rank"].to_numpy() == rank))
        rows = zip(mine["source"].to_pylist(), mine["target"].to_pylist(), strict=True)
        for source, target in rows:
            a = by_operator.get(of_root.get(source, -1))
            b = by_operator.get(of_root.get(target, -1))
            if a is not None and b is not None:
                yield a.id, b.id


def _order_edges(
    nodes: list[OperatorNode], known: set[tuple[int, int]]
) -> Iterable[tuple[int, int]]:
    """Draw an edge from each node to the next of its stage, where nothing better leads there."""
    reached = {target for _, target in known}
    by_stage: dict[int, list[OperatorNode]] = {}
    for node in nodes:
        by_stage.setdefault(node.stage, []).append(node)
    for row in by_stage.values():
        for before, after in pairwise(row):
            if after.id not in reached:
                yield before.id, after.id


def _hide(pairs: dict[tuple[int, int], EdgeEvidence], nodes: list[OperatorNode]) -> list[Edge]:
    known = {node.id: node for node in nodes}
    degree = Counter(end for pair in pairs for end in pair)
    edges = []
    for (source, target), evidence in pairs.items():
        a, b = known[source], known[target]
        far = a.stage == b.stage and abs(a.order - b.order) > LONG_SPAN
        hub = max(degree[source], degree[target]) > HUB_EDGES
        edges.append(Edge(source, target, evidence, far, hub))
    return edges

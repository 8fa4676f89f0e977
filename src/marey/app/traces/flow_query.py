"""The execution flow of a step as a document."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from marey.app.traces.trace_documents import (
    ExecutionFlow,
    FlowEdge,
    FlowNode,
    FlowSharding,
    FlowStack,
)
from marey.model.errors import NotFound
from marey.model.predicates import EVERYTHING, matches
from marey.model.training.selections import parse_selection, restrict
from marey.trace.run.trace_run import spans
from marey.trace.views.flow.edges import Edge, make_edges
from marey.trace.views.flow.nodes import FlowContext, OperatorNode, make_nodes
from marey.trace.views.flow.operator_memory import find_operator_memory
from marey.trace.views.flow.placements import FILE, read_placements
from marey.trace.views.flow.stacks import Stack, find_stacks
from marey.trace.views.flow.strategies import read_strategies
from marey.trace.views.flow.tensor_cuts import infer_cuts, place_operators
from marey.trace.views.view_files import RunViews, StepPictures

# Fields of a selection that a node answers to.
NODE_FIELDS = frozenset(("stage", "operator", "name", "module", "phase"))


def ask_flow(
    views: RunViews, pictures: StepPictures, *, stage: int | None, where: str
) -> ExecutionFlow:
    """Return the graph of a step: all stages, or one."""
    view = pictures.view
    known = sorted(set(view.index.stages))
    if stage is not None and stage not in known:
        raise NotFound(f"Unknown stage {stage}; this run has stages {spans(known)}.")
    context = _context(views, view.index.step)
    nodes: list[OperatorNode] = []
    for one in known if stage is None else [stage]:
        made = make_nodes(view, one, context, len(nodes))
        place_operators(made, read_placements(views.folder / FILE))
        infer_cuts(made)
        nodes += made
    tensors = _optional_table(views, "tensors")
    edges = make_edges(view, nodes, tensors)
    stacks = find_stacks(nodes, edges)
    nodes, edges, stacks = _select(nodes, edges, stacks, where)
    memory = find_operator_memory(view, views.table("memory"))
    return ExecutionFlow(
        step=view.index.step,
        stages=known,
        nodes=[_node(node, memory.get(node.operator)) for node in nodes],
        edges=[FlowEdge(e.source, e.target, e.evidence, e.long, e.hub) for e in edges],
        stacks=[
            FlowStack(
                s.id, s.name, len(s.members), list(s.members[0]), [list(m) for m in s.members]
            )
            for s in stacks
        ],
        notes=_notes(edges, tensors) + _strategy_notes(nodes, context),
    )


def _context(views: RunViews, step: int) -> FlowContext:
    items, members, blame = (views.table(n) for n in ("items", "members", "blame"))
    if step >= 0:
        members = members.filter(pa.array(members["step"].to_numpy() == step))
        blame = blame.filter(pa.array(blame["step"].to_numpy() == step))
    dimensions = views.index.parallelism["dimensions"]
    kinds = {frozenset(group): d["kind"] for d in dimensions for group in d["groups"]}
    ranks_of: dict[int, set[int]] = {}
    waits: dict[tuple[int, int], float] = {}
    columns = (members[c].to_pylist() for c in ("item", "rank", "wait_us"))
    for item, rank, wait in zip(*columns, strict=True):
        if item >= 0:
            ranks_of.setdefault(item, set()).add(rank)
            waits[item, rank] = max(wait or 0.0, 0.0) / 1e3
    names = dict(zip(items["item"].to_pylist(), items["name"].to_pylist(), strict=True))
    groups = {
        item: (names.get(item, ""), kinds.get(frozenset(ranks), ""), len(ranks))
        for item, ranks in ranks_of.items()
    }
    blamed: dict[tuple[int, str], float] = {}
    columns = (blame[c].to_pylist() for c in ("culprit", "operator", "gpu_seconds"))
    for rank, operator, seconds in zip(*columns, strict=True):
        blamed[rank, operator] = blamed.get((rank, operator), 0.0) + seconds
    sizes = {d["kind"]: d["size"] for d in dimensions}
    stated = _optional_table(views, "strategies")
    strategies = {} if stated is None else read_strategies(stated)
    return FlowContext(views.names, groups, waits, blamed, sizes, strategies=strategies)


def _optional_table(views: RunViews, name: str) -> pa.Table | None:
    try:
        found = views.table(name)
    except NotFound:
        return None
    return found if found.num_rows else None


def _select(
    nodes: list[OperatorNode], edges: list[Edge], stacks: list[Stack], where: str
) -> tuple[list[OperatorNode], list[Edge], list[Stack]]:
    predicate = restrict(parse_selection(where), NODE_FIELDS)
    if predicate == EVERYTHING:
        return nodes, edges, stacks
    kept = [node for node in nodes if matches(predicate, _row(node))]
    ids = {node.id for node in kept}
    inner = [edge for edge in edges if edge.source in ids and edge.target in ids]
    return kept, inner, [s for s in stacks if all(n in ids for m in s.members for n in m)]


def _row(node: OperatorNode) -> dict[str, Any]:
    return {
        "stage": node.stage,
        "operator": [node.operator, node.name],
        "name": node.name,
        "module": node.module,
        "phase": node.phase,
    }


def _node(node: OperatorNode, memory_bytes: int | None) -> FlowNode:
    cut = node.sharding
    left_out = ("sharding", "group_size")
    fields = {name: value for name, value in vars(node).items() if name not in left_out}
    sharding = FlowSharding(cut.evidence, list(cut.slices), cut.why)
    return FlowNode(**fields, memory_bytes=memory_bytes, sharding=sharding)


def _strategy_notes(nodes: list[OperatorNode], context: FlowContext) -> list[str]:
    stated = sum(bool(node.sharding.inputs) for node in nodes)
    return [f"{stated} operators with strategies the run states"] if context.strategies else []


def _notes(edges: list[Edge], tensors: pa.Table | None) -> list[str]:
    counts: dict[str, int] = {}
    for edge in edges:
        counts[edge.evidence] = counts.get(edge.evidence, 0) + 1
    notes = [f"{count} edges by {evidence}" for evidence, count in sorted(counts.items())]
    if tensors is None:
        notes.append("No execution trace: edges between operators follow their order.")
    return notes

"""MindSpore's parallel strategies: the graph of one rank, and how each operator is cut.

The files have an order but no times, so that every event starts at zero and lasts nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.kernel_names import collective_name, communication_kind
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.spans import RankEvents
from marey.trace.readers.streams import TraceBytes
from marey.trace.readers.trace_info import RankInfo

NAME = "ascend-strategy"
VERSION = 1
FRAMEWORK = "strategy"
LARGEST_BYTES = 1 << 30
MOST_RANKS = 1 << 20
_HEAD = re.compile(rb'^\s*\{\s*"(?:config|graph)"')
_FILE = re.compile(r"^parallel_strategy_")
# MindSpore's names of the strategy it found, or was given.
_STRATEGIES = ("gen_strategy", "in_strategy", "strategy")
_ROOTS = ("Default", "Gradients", "recompute_Default")
_TRANSFER = re.compile(r"^(?:_?Mirror|All|ReduceScatter|Broadcast|Send|Receive|NeighborExchange)")


class _Value(msgspec.Struct):
    values: list[_Value] = []
    intVal: int | str | None = None


class _Attribute(msgspec.Struct):
    name: str = ""
    value: _Value = msgspec.field(default_factory=_Value)


class _Input(msgspec.Struct):
    name: str = ""
    type: str = "DATA_EDGE"


class _Dim(msgspec.Struct):
    size: int | str = 0


class _Dims(msgspec.Struct):
    dim: list[_Dim] = []


class _Tensor(msgspec.Struct):
    shape: _Dims = msgspec.field(default_factory=_Dims)


class _Type(msgspec.Struct):
    tensorType: _Tensor = msgspec.field(default_factory=_Tensor)


class _Node(msgspec.Struct):
    name: str = ""
    opType: str = ""
    scope: str = ""
    input: list[_Input] = []
    attribute: list[_Attribute] = []
    outputType: _Type = msgspec.field(default_factory=_Type)


class _Graph(msgspec.Struct):
    node: list[_Node] = []


class _Config(msgspec.Struct):
    rankId: int | str = NO_VALUE
    stageId: int | str = 0
    stageDevices: list[_Dims] = []


class _File(msgspec.Struct):
    config: _Config = msgspec.field(default_factory=_Config)
    graph: _Graph = msgspec.field(default_factory=_Graph)


@dataclass(frozen=True)
class StrategyOperator:
    """One operator: the rows it reads from, and the slices of each dimension of each input."""

    name: str
    module: str
    phase: int
    sources: tuple[int, ...]
    shapes: str
    inputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class StrategyGraph:
    """What one file says; an operator's row is its place."""

    rank: int
    stage: int
    world_size: int | None
    operators: tuple[StrategyOperator, ...]


def sniff(path: Path, head: bytes) -> bool:
    """Return whether a file is named as MindSpore does, with its configuration or its
    graph first.
    """
    return _FILE.match(path.name) is not None and _HEAD.match(head) is not None


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return the operators in their order; no time is known."""
    graph, problem = read_graph(path)
    if graph is None:
        return FileEvents(iter(()), [problem])
    return FileEvents(_rank(graph, path.name), ["is a parallel strategy: a graph, but no times"])


def read_graph(path: Path) -> tuple[StrategyGraph | None, str]:
    """Return the graph of a file, or why there is none."""
    with TraceBytes(path) as stream:
        content = stream.read_all(LARGEST_BYTES)
    if content is None:
        return None, f"is larger than {LARGEST_BYTES >> 30} GB and is not read"
    try:
        found = msgspec.json.decode(content, type=_File)
        graph = _interpret(found)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return None, f"is not a whole parallel strategy ({str(error)[:200]})"
    if not graph.operators:
        return None, (
            "is a MindSpore parallel strategy without a graph; give the timeline of the same run "
            "(msprof_*.json or ascend_timeline_display_*.json)"
        )
    return graph, ""


def _interpret(found: _File) -> StrategyGraph:
    rows = {node.name: row for row, node in enumerate(found.graph.node)}
    shapes = {node.name: _shape(node.outputType) for node in found.graph.node}
    config = found.config
    devices = {int(dim.size) for stage in config.stageDevices for dim in stage.dim}
    most = max(devices, default=-1)
    return StrategyGraph(
        rank=_number(config.rankId),
        stage=_number(config.stageId),
        world_size=most + 1 if 0 <= most < MOST_RANKS else None,
        operators=tuple(_operator(node, rows, shapes) for node in found.graph.node),
    )


def _number(written: int | str) -> int:
    number = int(written)
    if not NO_VALUE <= number < MOST_RANKS:
        raise ValueError(f"{number} is neither a rank, a stage nor a number of slices")
    return number


def _shape(kind: _Type) -> list[int]:
    return [int(dim.size) for dim in kind.tensorType.shape.dim]


def _operator(node: _Node, rows: dict[str, int], shapes: dict[str, list[int]]) -> StrategyOperator:
    read_from = [one.name for one in node.input if one.type == "DATA_EDGE"]
    dims = [shapes.get(name, []) for name in read_from]
    return StrategyOperator(
        name=node.opType,
        module=_module(node.scope),
        phase=_phase(node.scope),
        sources=tuple(rows[name] for name in read_from if name in rows),
        shapes=json.dumps(dims) if any(dims) else "",
        inputs=_slices(node.attribute),
    )


def _module(scope: str) -> str:
    """Write ``Default/conv1-Conv2d`` as ``conv1-Conv2d``: modules joined by dots.

    >>> _module("Gradients/Default/network-Net/fc-Dense")
    'network-Net.fc-Dense'
    """
    return ".".join(part for part in scope.split("/") if part and part not in _ROOTS)


def _phase(scope: str) -> int:
    if scope.startswith("Gradients"):
        return 1
    return 2 if "optimizer-" in scope else 0


def _slices(attributes: list[_Attribute]) -> tuple[tuple[int, ...], ...]:
    """Return the strategy as it is written: a tuple per input, a number of slices per dimension."""
    known = {attribute.name: attribute.value for attribute in attributes}
    value = next((known[name] for name in _STRATEGIES if name in known), _Value())
    return tuple(
        tuple(_number(one.intVal) for one in each.values if one.intVal is not None)
        for each in value.values
    )


def _rank(graph: StrategyGraph, source: str) -> Iterator[RankEvents]:
    operators = graph.operators
    names = [operator.name for operator in operators]
    symbols = Symbols()
    said = [collective_name(name) if _TRANSFER.match(name) else "" for name in names]
    kinds = [communication_kind(text) if text else EventKind.COMPUTE for text in said]
    nothing = np.zeros(len(operators), np.int64)

    def code(texts: list[str]) -> Any:
        return np.array([symbols.add(t) if t else NO_VALUE for t in texts], np.int32)

    columns: dict[str, Any] = {
        "rank": graph.rank,
        "host": symbols.add(""),
        "device": max(graph.rank, 0),
        "on_device": np.ones(len(operators), bool),
        "start_ns": nothing,
        "dur_ns": nothing,
        "kind": np.array(kinds, np.int8),
        "name": symbols.add_all(names),
        "module_path": code([operator.module for operator in operators]),
        "phase": np.array([operator.phase for operator in operators], np.int8),
        "shapes": code([operator.shapes for operator in operators]),
        "collective": code(said),
    }
    info = RankInfo(
        graph.rank,
        world_size=graph.world_size,
        framework=FRAMEWORK,
        source=source,
        coordinates={"pp": graph.stage},
        timed=False,
    )
    yield RankEvents(info, symbols, columns)

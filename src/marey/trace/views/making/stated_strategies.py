"""Parallel strategies among the files of a run: edges and exact strategies of its operators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from marey.model.errors import NotFound
from marey.trace.readers.ascend import ascend_strategy
from marey.trace.readers.streams import head_of
from marey.trace.results import Analysis
from marey.trace.run.files import find_files, natural_key
from marey.trace.run.trace_run import TraceRun
from marey.trace.views.flow.strategies import tabulate_strategies
from marey.trace.views.making.tensor_edges import TENSOR_EDGES

Graphs = dict[int, ascend_strategy.StrategyGraph]


def read_graphs(run: TraceRun, paths: Iterable[str | Path]) -> Graphs:
    """Return the graph of every rank that was made from a parallel strategy."""
    untimed = {rank for rank in run.ranks if not run.info(rank).timed}
    if not untimed:
        return {}
    try:
        files = find_files(list(paths))
    except NotFound:
        return {}
    found: Graphs = {}
    used = {run.info(rank).source: rank for rank in untimed}
    for path in sorted(files, key=natural_key):
        if path.name not in used or not ascend_strategy.sniff(path, head_of(path)):
            continue
        graph, _ = ascend_strategy.read_graph(path)
        if graph is not None:
            found.setdefault(used[path.name], graph)
    return found


def write_graphs(graphs: Graphs, folder: Path) -> None:
    """Keep edges and strategies beside the other tables of a run, if there are any."""
    if not graphs:
        return
    edges = [
        {"rank": rank, "source": source, "target": row}
        for rank, graph in graphs.items()
        for row, operator in enumerate(graph.operators)
        for source in operator.sources
        if source != row
    ]
    stated = [
        (rank, row, operator.inputs)
        for rank, graph in graphs.items()
        for row, operator in enumerate(graph.operators)
        if any(operator.inputs)
    ]
    pq.write_table(pa.Table.from_pylist(edges, schema=TENSOR_EDGES), folder / "tensors.parquet")
    pq.write_table(tabulate_strategies(stated), folder / "strategies.parquet")


def state_stages(analysis: Analysis, graphs: Graphs) -> Analysis:
    """Return the analysis with the stages that the files state; none can be measured."""
    if not graphs:
        return analysis
    stages = {**analysis.parallelism.stages, **{r: max(g.stage, 0) for r, g in graphs.items()}}
    return replace(analysis, parallelism=replace(analysis.parallelism, stages=stages))

"""MindSpore's parallel strategies as a run: its execution flow has exact strategies."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from marey.app.traces.conversion_process import ConversionResult, ConversionTask, convert
from marey.app.traces.flow_query import ask_flow
from marey.app.traces.trace_documents import ExecutionFlow, FlowNode
from marey.model.errors import InvalidInput
from marey.trace.run.trace_run import open_run
from marey.trace.views.view_files import RunViews

CUT_ROWS, CUT_COLUMNS = ((2, 1), (1, 1)), ((1, 1), (1, 2))


def convert_folder(folder: Path, out: Path) -> tuple[ConversionResult, ExecutionFlow]:
    task = ConversionTask([str(folder)], str(out / "cache"), str(out / "views"))
    result = convert(task, io.StringIO())
    views = RunViews(out / "views")
    return result, ask_flow(views, views.step(None), stage=None, where="")


def make_operator(name: int, kind: str, scope: str, *inputs: int, cut: Any = ()) -> dict[str, Any]:
    slices = [{"values": [{"intVal": str(n)} for n in one]} for one in cut]
    return {
        "name": str(name),
        "opType": kind,
        "scope": scope,
        "input": [{"name": str(n), "type": "DATA_EDGE"} for n in inputs],
        "attribute": [{"name": "gen_strategy", "value": {"values": slices}}] if cut else [],
    }


def write_strategy(folder: Path, rank: int, operators: list[dict[str, Any]], stage: int) -> None:
    devices = [{"dim": [{"size": "0"}, {"size": "1"}]}, {"dim": [{"size": "2"}, {"size": "3"}]}]
    config = {"rankId": rank, "stageId": stage, "stageDevices": devices}
    written = {"config": config, "graph": {"node": operators}}
    (folder / f"parallel_strategy_{rank}.json").write_text(json.dumps(written))


def cut_of(node: FlowNode) -> tuple[str, list[int]]:
    return node.sharding.evidence, node.sharding.slices


def test_stages_edges_and_strategies_are_those_of_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in range(4):
        layers = [
            make_operator(n + 1, kind, f"Default/net-Net/layer{n // 2}-Cell", n, cut=cut)
            for n in range(6)
            for kind, cut in [(("MatMul", CUT_COLUMNS), ("ReLU", CUT_ROWS[:1]))[n % 2]]
        ]
        # The ranks of the second stage disagree about their last operator.
        last = CUT_ROWS if rank == 2 else CUT_COLUMNS
        tail = [
            make_operator(7, "AllReduce", "Gradients/Default/net-Net", 6),
            make_operator(8, "MatMul", "Default/optimizer-Momentum", 2, 7, cut=last),
        ]
        write_strategy(folder, rank, layers + tail, rank // 2)
    result, flow = convert_folder(folder, tmp_path)
    assert (result.ranks, result.steps, result.start_ms) == (4, 0, None)
    assert "no times" in result.verdicts[0]["evidence"][0]
    assert flow.stages == [0, 1]
    first = [node for node in flow.nodes if node.stage == 0]
    assert [node.name for node in first[:3]] == ["MatMul", "ReLU", "MatMul"]
    assert first[0].module == "net-Net.layer0-Cell"
    assert cut_of(first[0]) == ("exact", [1, 2])
    assert cut_of(first[1]) == ("exact", [2, 1])
    assert {node.kind for node in first} >= {"operator", "optimizer", "gradient_aggregation"}
    assert all(node.ranks == 2 and node.max_ms == 0 for node in flow.nodes)
    ids = {node.id: node for node in flow.nodes}
    edges = {(ids[e.source].order, ids[e.target].order): e.evidence for e in flow.edges}
    assert edges[0, 1] == "tensor"
    assert edges[1, 7] == "tensor"
    ends = {node.stage: node for node in flow.nodes if node.kind == "optimizer"}
    assert cut_of(ends[0]) == ("exact", [1, 2])
    assert cut_of(ends[1]) == ("unknown", [])
    assert "different" in ends[1].sharding.why


@pytest.mark.parametrize(
    "content",
    ['{"config": {"rankId": 99999999999}}', '{"config"', '{"config": {"stageId": "x"}}'],
)
def test_a_damaged_strategy_is_refused_in_words(tmp_path: Path, content: str) -> None:
    (tmp_path / "parallel_strategy_0.json").write_text(content)
    with pytest.raises(InvalidInput, match="is not a whole parallel strategy"):
        open_run(tmp_path, cache=tmp_path / "cache")


def test_a_real_strategy_of_mindspore_is_a_graph(data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "recordings" / "ascend" / "parallel_strategy"
    result, flow = convert_folder(folder, tmp_path)
    assert result.ranks == 2
    (convolution,) = [node for node in flow.nodes if node.name == "Conv2D"]
    assert convolution.module == "conv1-Conv2d"
    assert cut_of(convolution) == ("exact", [2, 1, 1, 1])
    assert "(2, 1, 1, 1), (1, 1, 1, 1)" in convolution.sharding.why
    (loading,) = [node for node in flow.nodes if node.name == "GetNext"]
    assert [(e.source, e.target, e.evidence) for e in flow.edges] == [
        (loading.id, convolution.id, "tensor")
    ]

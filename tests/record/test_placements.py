"""Placements of DTensor parameters, written beside the trace by two real torch ranks."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marey.app.traces.conversion_process import ConversionTask, convert
from marey.app.traces.flow_query import ask_flow
from marey.trace.run.trace_run import open_run
from marey.trace.views.view_files import RunViews
from tests.real.torch_launch import run_ranks


@pytest.mark.real
def test_sharded_parameters_are_written_beside_the_trace(
    need_module: Callable[[str], Any], tmp_path: Path
) -> None:
    need_module("torch")
    folder = tmp_path / "traces"
    run_ranks(folder, world=2, script=Path(__file__).with_name("sharded_training.py"))
    for rank in range(2):
        told = json.loads((folder / f"rank{rank:05d}.placements.json").read_text())
        assert told["rank"] == rank
        rows = {tuple(p["shape"]): p for p in told["parameters"]}
        weight = rows[8, 16]
        assert weight["name"] == "0.weight"
        assert weight["local_shape"] == [4, 16]
        assert (weight["mesh"], weight["mesh_names"]) == ([2], ["shard"])
        assert weight["placements"] == ["shard(0)"]
        assert rows[2, 6]["placements"] == ["replicate"]
        assert len(rows) == 5
    run = open_run(folder, cache=tmp_path / "cache")
    assert run.ranks == [0, 1]
    views = tmp_path / "views"
    convert(ConversionTask([str(folder)], str(tmp_path / "cache"), str(views)), io.StringIO())
    opened = RunViews(views)
    flow = ask_flow(opened, opened.step(None), stage=None, where="")
    gathers = [n.sharding for n in flow.nodes if n.name == "fsdp::all_gather_copy_in"]
    assert gathers
    assert {(g.evidence, tuple(g.slices)) for g in gathers} == {("exact", (2, 1))}
    assert "(2, 1), (2), (2, 1), (2)" in gathers[0].why
    assert [note for note in run.notes if "placements" in note.file] == []


@pytest.mark.real
def test_products_of_real_tensor_parallel_layers_show_how_they_are_cut(
    need_module: Callable[[str], Any], tmp_path: Path
) -> None:
    need_module("torch")
    folder = tmp_path / "traces"
    run_ranks(folder, world=2, script=Path(__file__).with_name("tensor_training.py"))
    told = json.loads((folder / "rank00000.placements.json").read_text())
    plain = [p["name"] for p in told["parameters"] if not p["mesh"]]
    assert {name.rpartition(".")[0] for name in plain} == {"0.norm", "1.norm", "2.norm"}
    views = tmp_path / "views"
    convert(ConversionTask([str(folder)], str(tmp_path / "cache"), str(views)), io.StringIO())
    opened = RunViews(views)
    # Six sums a step: three of activations in forward, three of the same sizes in backward.
    (split,) = opened.index.parallelism["dimensions"]
    assert (split["kind"], split["size"], split["confidence"]) == ("tensor", 2, 0.8)
    flow = ask_flow(opened, opened.step(None), stage=None, where="")
    products = [n.sharding for n in flow.nodes if n.name == "aten::linear"]
    assert [tuple(p.slices) for p in products] == [(2, 1), (1, 2)] * 3
    assert {p.evidence for p in products} == {"exact"}
    between = [n.sharding for n in flow.nodes if n.name == "aten::relu"]
    assert {(b.evidence, tuple(b.slices)) for b in between} == {("inferred", (1, 2))}
    sums = [n for n in flow.nodes if n.name == "all_reduce"]
    assert {n.kind for n in sums} == {"redistribution"}

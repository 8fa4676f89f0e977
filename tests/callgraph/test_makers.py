"""Makers on small files whose answer is known by hand."""

from __future__ import annotations

import cProfile
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from marey.app.traces.callgraphs import load_graphs
from marey.callgraph.graphs import CallGraphs, unite_made
from marey.callgraph.makers.events import EventOptions, make_from_events
from marey.callgraph.makers.hatchet import read_graphframe, read_thicket
from marey.callgraph.profiles import ProfileInfo
from marey.model.errors import InvalidInput
from marey.model.training.traces import EVENTS, EventKind

TEXTS = ["step", "aten::mm", "launch", "kernel_0x12", "copy", "MmBackward", "Linear"]


def table_of(rows: list[dict[str, int]]) -> pa.Table:
    plain = {"device": -1, "on_device": 0, "stream": 1, "launch": -1, "forward": -1, "step": 0}
    filled = [dict.fromkeys(EVENTS.names, -1) | plain | row for row in rows]
    return pa.Table.from_pylist(filled)


@pytest.fixture
def events() -> pa.Table:
    """A step that launches a kernel and has one without a launch, and a backward thread."""
    host, device = EventKind.CPU_OP, EventKind.COMPUTE
    return table_of([
        {"start_ns": 0, "dur_ns": 100, "kind": EventKind.ANNOTATION, "name": 0},
        {"start_ns": 10, "dur_ns": 40, "kind": host, "name": 1, "module": 6},
        {"start_ns": 20, "dur_ns": 5, "kind": EventKind.RUNTIME, "name": 2},
        {"start_ns": 60, "dur_ns": 30, "kind": host, "name": 5, "stream": 2, "forward": 1,
         "step": 1},
        {"start_ns": 30, "dur_ns": 70, "kind": device, "name": 3, "device": 0, "on_device": 1,
         "launch": 2, "stream": 7},
        {"start_ns": 40, "dur_ns": 9, "kind": EventKind.MEMCPY, "name": 4, "device": 0,
         "on_device": 1, "stream": 7, "step": 1},
    ])  # fmt: skip


def values(graphs: CallGraphs) -> dict[str, tuple[float, float]]:
    return {
        "/".join(graphs.path(int(n))): (float(i), float(e))
        for n, i, e in zip(graphs.node, graphs.inclusive, graphs.exclusive, strict=True)
    }


def made(table: pa.Table, **options: Any) -> CallGraphs:
    return unite_made([make_from_events({0: table}, TEXTS, options=EventOptions(**options))])


def test_kernels_hang_below_their_launch_beside_the_hosts_time(events: pa.Table) -> None:
    assert values(made(events)) == {
        "step": (100, 60),
        "step/aten::mm": (40, 35),
        "step/aten::mm/launch": (5, 5),
        "step/aten::mm/launch/kernel_0x": (70, 70),
        "MmBackward": (30, 30),
        "(unlinked)": (9, 0),
        "(unlinked)/copy": (9, 9),
    }


def test_device_time_is_what_a_call_made_the_device_do(events: pa.Table) -> None:
    found = values(made(events, metric="device_time"))
    assert found["step"] == (70, 0)
    assert found["step/aten::mm/launch/kernel_0x"] == (70, 70)
    assert found["(unlinked)"] == (9, 0)


def test_backward_hangs_below_its_forward(events: pa.Table) -> None:
    found = values(made(events, backward_under_forward=True))
    assert found["step/aten::mm/(backward)/MmBackward"] == (30, 30)
    assert found["step/aten::mm"] == (40, 35)
    assert "MmBackward" not in found


def test_a_forward_that_comes_later_makes_no_cycle() -> None:
    rows = [
        {"start_ns": 0, "dur_ns": 10, "kind": EventKind.CPU_OP, "name": 1, "forward": 1},
        {"start_ns": 20, "dur_ns": 10, "kind": EventKind.CPU_OP, "name": 5, "forward": 0},
    ]
    found = values(made(table_of(rows), backward_under_forward=True))
    assert set(found) == {"aten::mm", "aten::mm/(backward)", "aten::mm/(backward)/MmBackward"}


def test_steps_and_threads_are_profiles(events: pa.Table) -> None:
    by_step = made(events, split="step")
    assert [info.step for info in by_step.infos] == [0, 1]
    by_thread = made(events, split="thread")
    assert [info.thread for info in by_thread.infos] == [1, 2, 7]


def test_modules_are_kept_and_aliases_unite_renamed_ones(events: pa.Table) -> None:
    graphs = made(events, aliases={"aten::": ""})
    node = next(n for n in range(len(graphs.tree)) if graphs.name(n) == "mm")
    assert graphs.tree.names[graphs.tree.module[node]] == "Linear"


def test_wrong_options_are_refused(events: pa.Table) -> None:
    for options in ({"split": "node"}, {"metric": "power"}):
        with pytest.raises(InvalidInput, match="allowed"):
            made(events, **options)


def test_events_of_no_kind_that_counts_make_an_empty_profile() -> None:
    graphs = made(table_of([{"start_ns": 0, "dur_ns": 1, "kind": EventKind.SYNC, "name": 0}]))
    assert len(graphs.tree) == 0
    assert len(graphs) == 1


def _busy() -> int:
    return sum(len(str(n)) for n in range(20_000))


def test_statistics_of_this_python_are_read(tmp_path: Path) -> None:
    profiler = cProfile.Profile()
    profiler.runcall(_busy)
    file = tmp_path / "run.pstats"
    profiler.dump_stats(file)
    graphs = load_graphs([file])
    names = {graphs.name(n) for n in range(len(graphs.tree))}
    assert any(name.endswith(": _busy") for name in names)
    roots = graphs.tree.parent[graphs.node] < 0
    assert graphs.inclusive[roots].sum() == pytest.approx(graphs.exclusive.sum(), rel=1e-3)


def test_events_of_speedscope_charge_the_innermost_frame(tmp_path: Path) -> None:
    document = {
        "shared": {"frames": [{"name": "a"}, {"name": "b"}]},
        "profiles": [{"type": "evented", "unit": "milliseconds", "startValue": 0, "endValue": 9,
            "events": [
                {"type": "O", "at": 0, "frame": 0}, {"type": "O", "at": 2, "frame": 1},
                {"type": "C", "at": 7, "frame": 1}, {"type": "C", "at": 9, "frame": 0}]}],
    }  # fmt: skip
    file = tmp_path / "events.json"
    file.write_text(json.dumps(document))
    assert values(load_graphs([file])) == {"a": (9e6, 4e6), "a/b": (5e6, 5e6)}


def test_caliper_texts_are_unescaped(tmp_path: Path) -> None:
    file = tmp_path / "escaped.cali"
    file.write_text(
        "__rec=node,id=20,attr=10,data=276,parent=3\n"
        "__rec=node,id=21,attr=8,data=region,parent=20\n"
        "__rec=node,id=22,attr=8,data=sum#time.duration.ns,parent=5\n"
        "__rec=node,id=30,attr=21,data=f(a\\,b) \\= \\\\x\n"
        "__rec=ctx,ref=30,attr=22,data=5\n"
    )
    assert values(load_graphs([file])) == {"f(a,b) = \\x": (5, 5)}


class Frame:
    """As much of a pandas table as the maker uses."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    def reset_index(self) -> Frame:
        return self

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def get(self, name: str) -> Any:
        return self.columns.get(name)

    def __getitem__(self, name: str) -> Any:
        values = self.columns[name]
        return values if isinstance(values[0], SimpleNamespace | str) else _Column(values)


class _Column(list[Any]):
    def to_numpy(self, kind: type) -> np.ndarray[Any, Any]:
        return np.array(self, kind)


@pytest.fixture
def hatchet_graph() -> tuple[Any, list[Any]]:
    leaf = SimpleNamespace(frame={"name": "f", "type": "function"}, children=[])
    root = SimpleNamespace(frame={"name": "main", "type": "region"}, children=[leaf])
    return SimpleNamespace(roots=[root]), [root, leaf]


def test_a_hatchet_graphframe_becomes_profiles_per_rank(hatchet_graph: Any) -> None:
    graph, (root, leaf) = hatchet_graph
    table = Frame({
        "node": [root, leaf, root], "rank": [0, 0, 1],
        "time (inc)": [3.0, 1.0, 5.0], "time": [2.0, 1.0, 5.0],
    })  # fmt: skip
    frame = SimpleNamespace(graph=graph, dataframe=table, inc_metrics=[], exc_metrics=["time"])
    graphs = unite_made([read_graphframe(frame, ProfileInfo("run"))])
    assert [info.rank for info in graphs.infos] == [0, 1]
    assert graphs.inclusive.tolist() == [3e9, 1e9, 5e9]


def test_a_thicket_becomes_its_profiles(hatchet_graph: Any) -> None:
    graph, (root, leaf) = hatchet_graph
    table = Frame({
        "node": [root, root, leaf], "profile": ["x", "y", "y"],
        "time (inc)": [3.0, 5.0, 1.0], "time": [3.0, 4.0, 1.0],
    })  # fmt: skip
    facts = {"x": {"ranks": np.int64(4), "launch": None}}
    metadata = SimpleNamespace(to_dict=lambda orient: facts)
    thicket = SimpleNamespace(
        graph=graph, dataframe=table, inc_metrics=[], exc_metrics=[], metadata=metadata
    )
    graphs = unite_made([read_thicket(thicket)])
    assert [info.run for info in graphs.infos] == ["x", "y"]
    assert [info.metadata for info in graphs.infos] == [{"ranks": 4}, {}]
    assert graphs.exclusive.tolist() == [3e9, 4e9, 1e9]


def test_formats_are_known_by_their_content(tmp_path: Path, graphs: Callable[..., Any]) -> None:
    from marey.callgraph.exports import export
    from marey.callgraph.makers.detection import detect

    one = graphs([{("a", "b"): 1.0}])
    for name, found in (("collapsed", "collapsed"), ("speedscope", "speedscope"),
                        ("hatchet", "hatchet-literal")):  # fmt: skip
        file = tmp_path / "profile"
        file.write_bytes(export(one, name))
        assert detect(file) == found
    file.write_text("nothing of the kind")
    assert detect(file) is None


def test_names_that_look_like_another_format_mislead_nobody(tmp_path: Path) -> None:
    text = '[unknown];main 12\n[libc.so];"shared";speedscope.app 5\n'
    (tmp_path / "perf.txt").write_text(text)
    graphs = load_graphs([tmp_path / "perf.txt"])
    assert graphs.exclusive.sum() == 17
    literal = [{"frame": {"name": '"shared" speedscope.app'}, "metrics": {"time": 2.0}}]
    (tmp_path / "literal.json").write_text(json.dumps(literal))
    assert load_graphs([tmp_path / "literal.json"]).exclusive.sum() == 2e9


def test_hatchets_json_keeps_values_and_refuses_what_it_cannot_tell_apart(tmp_path: Path) -> None:
    graph = [
        {"0": {"data": {"name": "main"}, "children": [1, 2]},
         "1": {"data": {"name": "load"}, "children": [3]},
         "2": {"data": {"name": "solve"}, "children": [3]},
         "3": {"data": {"name": "shared"}, "children": []}},
    ]  # fmt: skip
    times = [(0, 10.0, 1.0), (1, 6.0, 2.0), (2, 3.0, 3.0), (3, 4.0, 4.0)]
    rows = [{"node": n, "time (inc)": whole, "time": own} for n, whole, own in times]
    file = tmp_path / "frame.json"
    file.write_text(json.dumps({"graph": graph, "dataframe": rows}))
    graphs = load_graphs([file])
    found = {
        tuple(graphs.path(int(n))): v for n, v in zip(graphs.node, graphs.exclusive, strict=True)
    }
    assert found["main", "load", "shared"] == 4e9
    assert len(found) == 4
    assert graphs.notes == ("1 call sites of several callers stay at the first",)
    ranks = {"graph": graph, "dataframe": rows, "dataframe_indices": ["node", "rank"]}
    file.write_text(json.dumps(ranks))
    with pytest.raises(InvalidInput, match="one rank at a time"):
        load_graphs([file])
    graph[0]["3"]["children"] = [0]
    file.write_text(json.dumps({"graph": graph, "dataframe": rows}))
    with pytest.raises(InvalidInput, match="cyclic"):
        load_graphs([file])


@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_back_edge_of_hatchets_json_is_refused_and_never_dropped(
    tmp_path: Path, back: int
) -> None:
    graph = {
        "0": {"data": {"name": "main"}, "children": [1, 2]},
        "1": {"data": {"name": "load"}, "children": [3]},
        "2": {"data": {"name": "solve"}, "children": [3]},
        "3": {"data": {"name": "shared"}, "children": [back]},
    }
    rows = [{"node": n, "time (inc)": 4.0 - n, "time": 1.0} for n in range(4)]
    file = tmp_path / "frame.json"
    file.write_text(json.dumps({"graph": [graph], "dataframe": rows}))
    with pytest.raises(InvalidInput, match="cyclic: call site"):
        load_graphs([file])


def test_a_cycle_of_hatchets_objects_is_refused(hatchet_graph: Any) -> None:
    graph, (root, leaf) = hatchet_graph
    leaf.children.append(leaf)
    table = Frame({"node": [root, leaf], "time (inc)": [3.0, 1.0], "time": [2.0, 1.0]})
    frame = SimpleNamespace(graph=graph, dataframe=table, inc_metrics=[], exc_metrics=["time"])
    with pytest.raises(InvalidInput, match="cyclic"):
        read_graphframe(frame, ProfileInfo("run"))


@pytest.mark.parametrize(
    ("values", "inclusive", "word"),
    [([3.0, 1.0], [3e9, 1e9], "inclusive"), ([1.0, 2.0], [3e9, 2e9], "exclusive")],
)
def test_a_column_that_only_sounds_like_time_is_judged_by_its_values(
    hatchet_graph: Any, values: list[float], inclusive: list[float], word: str
) -> None:
    graph, nodes = hatchet_graph
    table = Frame({"node": nodes, "Reps": [9.0, 9.0], "Avg time/rank": values})
    metrics = ["Reps", "Avg time/rank"]
    frame = SimpleNamespace(graph=graph, dataframe=table, inc_metrics=[], exc_metrics=metrics)
    graphs = unite_made([read_graphframe(frame, ProfileInfo("run"))])
    assert graphs.inclusive.tolist() == inclusive
    assert f"Avg time/rank is taken as {word}" in graphs.notes[0]
    frame.dataframe = Frame({"node": nodes, "Reps": [9.0, 9.0]})
    with pytest.raises(InvalidInput, match="no time; its columns: "):
        read_graphframe(frame, ProfileInfo("run"))


def test_a_notebook_takes_hatchets_objects_as_they_are(
    hatchet_graph: Any, need_module: Callable[[str], Any]
) -> None:
    need_module("anywidget")
    from marey.notebook import load

    graph, nodes = hatchet_graph
    table = Frame({"node": nodes, "time (inc)": [3.0, 1.0], "time": [2.0, 1.0]})
    frame = SimpleNamespace(graph=graph, dataframe=table, inc_metrics=[], exc_metrics=["time"])
    graphs = load(frame, frame, unit="ms")
    assert [info.run for info in graphs.infos] == ["run 0", "run 1"]
    assert graphs.inclusive.tolist() == [3e6, 1e6] * 2
    with pytest.raises(InvalidInput, match="A dict cannot be read; allowed: paths"):
        load({})

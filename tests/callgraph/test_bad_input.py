"""Bad input: an answer or an error that names it, never a crash."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.app.traces.callgraphs import load_graphs
from marey.callgraph.analysis.diff import compare_graphs, difference_document
from marey.callgraph.analysis.ensemble import ensemble_document, make_ensemble
from marey.callgraph.analysis.icicle import icicle_document
from marey.callgraph.analysis.supernodes import group_nodes
from marey.callgraph.exports import export
from marey.callgraph.graphs import CallGraphs, unite_made
from marey.callgraph.makers.events import EventOptions, make_from_events
from marey.callgraph.profiles import RawGraph, make_profiles
from marey.callgraph.queries.selection import select_nodes
from marey.callgraph.tables import sites_document
from marey.model.errors import InvalidInput, MareyError
from marey.model.training.traces import EVENTS, EventKind

DEEP = 1_000_000
Maker = Callable[..., CallGraphs]


def test_a_cycle_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cyclic: call site"):
        make_profiles(RawGraph(["a", "b"], [1, 0], [0], exclusive=[1.0]), "test")


def test_a_parent_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="none of the 1"):
        make_profiles(RawGraph(["a"], [7], [0], exclusive=[1.0]), "test")


def test_negative_and_missing_values_are_left_out_and_counted() -> None:
    raw = RawGraph(
        ["a", "b", "c", "d"], [-1, 0, 0, 0], [0, 1, 2, 3],
        exclusive=[1.0, -5.0, float("nan"), float("inf")],
    )  # fmt: skip
    made = make_profiles(raw, "test")
    assert made.notes == (
        "2 values that are no numbers were left out",
        "1 negative values were left out",
    )
    assert unite_made([made]).exclusive.sum() == 1.0


def test_units_of_time_are_converted_and_others_are_not_mixed() -> None:
    def made(unit: str) -> object:
        return make_profiles(RawGraph(["a"], [-1], [0], exclusive=[2.0], unit=unit), unit)

    united = unite_made([made("ms"), made("s"), made("us")])  # type: ignore[list-item]
    assert united.inclusive.tolist() == [2e6, 2e9, 2e3]
    with pytest.raises(InvalidInput, match=r"different things and cannot be united: ns.*samples"):
        unite_made([made("ms"), made("samples")])  # type: ignore[list-item]


def test_sides_of_different_units_are_not_compared(graphs: Maker) -> None:
    with pytest.raises(InvalidInput, match="Cannot compare ns with samples"):
        compare_graphs(graphs([{("a",): 1.0}]), graphs([{("a",): 1.0}], unit="samples"))


def test_different_programs_are_said_to_be_so(graphs: Maker) -> None:
    document = difference_document(
        compare_graphs(graphs([{("a", "b"): 1.0}] * 3), graphs([{("x", "y"): 1.0}] * 3))
    )
    assert document["comparable"] is False
    assert document["reason"].startswith("These look like different programs")
    assert [c["path"] for c in document["appeared"]] == [["x"], ["x", "y"]]


def test_nothing_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no profile to unite"):
        unite_made([])
    (tmp_path / "empty.cali").write_text("")
    with pytest.raises(InvalidInput, match="nothing that can be read"):
        load_graphs([tmp_path], None)
    with pytest.raises(InvalidInput, match="no file or folder"):
        load_graphs([tmp_path / "missing"])


def deep_chain() -> CallGraphs:
    parent = np.arange(-1, DEEP - 1)
    raw = RawGraph(["f", "g"] * (DEEP // 2), parent, [DEEP - 1, 10], exclusive=[3.0, 4.0])
    return unite_made([make_profiles(raw, "deep")])


@pytest.mark.slow
def test_a_million_frames_deep_every_analysis_answers() -> None:
    made = deep_chain()
    assert len(made.tree) == DEEP
    assert made.inclusive[0] == 7.0
    assert made.path(DEEP - 1)[50] == f"… {DEEP - 100} frames …"
    assert select_nodes(made, "g > f").sum() == DEEP - 2
    assert group_nodes(made).inclusive[0].tolist() == [7.0]
    assert len(ensemble_document(make_ensemble(made), made, limit=10)["nodes"]) == 10
    assert sites_document(made, limit=5)["left_out"] == DEEP - 5
    assert len(icicle_document(made)["parent"]) >= 5_000
    assert not difference_document(compare_graphs(made, made))["slower"]
    with pytest.raises(InvalidInput, match="frames; export the Hatchet literal"):
        export(made, "collapsed")


def test_a_collapsed_stack_of_a_million_frames_is_read(tmp_path: Path) -> None:
    file = tmp_path / "deep.collapsed"
    file.write_text(";".join(["f"] * DEEP) + " 12\n")
    made = load_graphs([file])
    assert len(made.tree) == DEEP
    assert made.inclusive[0] == 12


def test_events_nested_a_hundred_thousand_deep_become_a_path() -> None:
    depth = 100_000
    columns = {name: np.full(depth, -1, np.int64) for name in EVENTS.names}
    columns["start_ns"] = np.arange(depth)
    columns["dur_ns"] = 2 * np.arange(depth, 0, -1)
    columns["kind"] = np.full(depth, EventKind.PYTHON)
    columns["name"] = np.zeros(depth, np.int64)
    columns["on_device"] = np.zeros(depth, bool)
    import pyarrow as pa

    table = pa.table(columns)
    made = unite_made([make_from_events({0: table}, ["recurse"], options=EventOptions())])
    assert len(made.tree) == depth
    assert made.exclusive.sum() == pytest.approx(made.inclusive[0])


def test_json_nested_without_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text('[{"frame": {"name": "a"}, "children": ' * 5000 + "[]" + "}]" * 5000)
    with pytest.raises(InvalidInput, match=r"deep\.json"):
        load_graphs([file])


HOSTILE = [
    "\x1b[31mred", "a\nb", "<script>alert(1)</script>", "\u202egnp.exe", "x" * 100_000, "",
    "'; DROP TABLE nodes; --", "../../etc/passwd", "\ud800", "{}", "a;b;c 12", "名前",
]  # fmt: skip


def test_hostile_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    raw = RawGraph(
        HOSTILE, [-1] * len(HOSTILE), range(len(HOSTILE)), exclusive=[1.0] * len(HOSTILE)
    )
    made = unite_made([make_profiles(raw, "hostile")])
    assert made.exclusive.sum() == len(HOSTILE)
    texts = made.tree.names
    assert all(len(text) <= 4096 and text for text in texts)
    assert not any(c in text for text in texts for c in "\x1b\n\u202e\ud800")
    for name in ("collapsed", "speedscope", "pprof", "hatchet"):
        file = tmp_path / f"hostile.{'pb.gz' if name == 'pprof' else 'txt'}"
        file.write_bytes(export(made, name))
        assert load_graphs([file]).exclusive.sum() == len(HOSTILE)
    json.dumps(ensemble_document(make_ensemble(made), made))


STARTS = (
    b"__rec=node,id=1,attr=8,data=x\n__rec=ctx,ref=1,attr=1,data=",
    b'{"data": [[0]], "columns": ["path"], "nodes": [',
    b'[{"frame": {"name": "a"}, "metrics": {"time": 1}',
    b'{"shared": {"frames": [{"name": "a"}]}, "profiles": [{"type": "sampled", "samples": [[0]]',
    b"digraph {\n a [label=",
    b"\xfb)\x03\xfa\x15",
    b"a;b 1\n",
    b"\x1f\x8b\x08\x00",
)


@given(
    st.sampled_from(STARTS), st.binary(max_size=60), st.sampled_from(["x", "x.pb.gz", "p.pstats"])
)
def test_damaged_files_are_read_or_refused_but_never_crash(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, rest: bytes, name: str
) -> None:
    file = tmp_path_factory.mktemp("damaged") / name
    file.write_bytes(start + rest)
    with contextlib.suppress(MareyError):
        load_graphs([file])


def test_an_entity_in_an_experiment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "experiment.xml").write_text(
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    )
    with pytest.raises(InvalidInput, match="declares the entity"):
        load_graphs([tmp_path])


def test_caliper_nodes_that_are_their_own_ancestors_end(tmp_path: Path) -> None:
    file = tmp_path / "loop.cali"
    file.write_text(
        "__rec=node,id=20,attr=10,data=276,parent=3\n"
        "__rec=node,id=21,attr=8,data=region,parent=20\n"
        "__rec=node,id=22,attr=8,data=time.duration.ns,parent=5\n"
        "__rec=node,id=30,attr=21,data=a,parent=31\n"
        "__rec=node,id=31,attr=21,data=b,parent=30\n"
        "__rec=ctx,ref=30,attr=22,data=5\n"
    )
    made = load_graphs([file])
    assert made.exclusive.sum() == 5.0

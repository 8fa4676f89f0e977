"""Views in a notebook without a browser: state, portable selections, tables, sizes, pictures."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marey.callgraph.analysis.outline import METRICS, outline_tree
from marey.callgraph.graphs import CallGraphs, unite, unite_made
from marey.callgraph.makers.stacks import read_collapsed
from marey.callgraph.profiles import Profile, ProfileInfo
from marey.callgraph.trees import Tree
from marey.model.errors import InvalidInput

HOSTILE = "<script>alert(1)</script>"
Views = Any


@pytest.fixture(scope="module")
def views(need_module: Callable[[str], Any]) -> Views:
    need_module("anywidget")
    from marey import notebook
    from marey.notebook.widget_base import BUNDLE

    assert BUNDLE.is_file(), "run `make setup` first"
    return notebook


def graphs(*, extra: str = "", runs: int = 3) -> CallGraphs:
    text = f"main;load;read {{}}\nmain;solve;step 300\nmain;{HOSTILE} 50\n{extra}"
    return unite_made(
        [read_collapsed(text.format(100 + 10 * n), ProfileInfo(f"run{n}")) for n in range(runs)]
    )


def large(nodes: int) -> CallGraphs:
    random = np.random.default_rng(3)
    parent = np.full(nodes, -1, np.int32)
    parent[1:] = (np.arange(1, nodes) * random.random(nodes - 1) ** 0.5).astype(np.int32)
    tree = Tree(
        parent,
        np.arange(nodes, dtype=np.int32),
        [f"package.module_{n % 97}.function_{n}" for n in range(nodes)],
        np.zeros(nodes, np.int8),
        np.full(nodes, -1, np.int32),
    )
    values = random.lognormal(10, 3, nodes)
    return unite([Profile(tree, None, values, values / 2, values, ProfileInfo("one"))])


def test_a_selection_is_portable_and_applies_to_another_run(views: Views) -> None:
    tree = views.CallTreeView(graphs())
    tree.selection = {"paths": [["main", "load", "read"]]}
    assert tree.selected().column("inclusive").to_pylist() == [110.0]
    other = graphs(extra="main;load;more 7\n", runs=1)
    assert tree.selected(graphs=other).column("path").to_pylist() == [["main", "load", "read"]]
    assert tree.selected(by_profile=True).column("run").to_pylist() == ["run0", "run1", "run2"]


def test_a_message_from_the_page_selects_by_conditions(views: Views) -> None:
    tree = views.CallTreeView(graphs())
    tree._query = {"field": "inclusive", "op": "between", "value": [100, 200]}
    assert tree.selected().column("name").to_pylist() == ["load", "read"]
    marked = np.unpackbits(np.frombuffer(tree._marked, np.uint8))[: len(tree.outline)]
    assert marked.sum() == 2


def test_frames_of_pandas_and_polars_hold_the_same(views: Views) -> None:
    tree = views.CallTreeView(graphs())
    tree.selection = "main > solve > *"
    arrow = tree.selected()
    assert tree.selected("pandas")["inclusive"].tolist() == arrow.column("inclusive").to_pylist()
    assert tree.selected("polars")["inclusive"].to_list() == arrow.column("inclusive").to_pylist()
    with pytest.raises(InvalidInput, match="kind of table"):
        tree.selected("excel")


def test_a_state_is_saved_and_taken_by_a_view_of_another_run(views: Views, tmp_path: Path) -> None:
    tree = views.CallTreeView(graphs(), colour="calls", area="exclusive")
    tree.select_pruned("exclusive", 100, 1000)
    tree._view = {**tree._view, "collapsed": [["main", "solve"]]}
    tree.save(tmp_path / "state.json")
    other = views.CallTreeView(graphs(runs=1))
    other.restore(tmp_path / "state.json")
    assert other.state == tree.state
    assert json.loads((tmp_path / "state.json").read_text())["collapsed"] == [["main", "solve"]]


def test_the_scripts_filter_enters_the_view(views: Views) -> None:
    tree = views.CallTreeView(graphs(), where="main > load > *")
    names = [tree.graphs.name(int(node)) for node in tree.outline.node]
    assert names == ["main", "load", "read"]
    tree.where = None
    assert len(tree.outline) == 6


def test_what_is_no_query_or_metric_is_refused(views: Views) -> None:
    tree = views.CallTreeView(graphs())
    with pytest.raises(InvalidInput):
        tree.selection = {"nodes": [1, 2]}
    with pytest.raises(Exception, match="Unknown metric"):
        tree.colour = "colour"


def test_state_is_whole_while_another_thread_selects(views: Views) -> None:
    tree = views.CallTreeView(graphs())
    wanted = [{"paths": [["main", "load"]]}, {"paths": [["main", "solve"]]}]
    wrong: list[Any] = []

    def read() -> None:
        for _ in range(200):
            with tree.lock:
                name = tree.selected().column("name").to_pylist()
                if tree.selection and tree.selection["paths"][0][1:] != name:
                    wrong.append(name)

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(200):
        tree._query = wanted[n % 2]
    reader.join()
    assert wrong == []


def test_a_hundred_thousand_nodes_are_sent_in_two_megabytes(views: Views) -> None:
    tree = views.CallTreeView(large(100_000))
    assert len(tree.outline) == 100_000
    sent = len(tree._data) + len(tree._marked) + len(json.dumps(tree._facts))
    assert sent <= 2_000_000
    # What comes back is a predicate; the page refuses to send one past 90 kB.
    assert len(json.dumps(tree.state)) <= 100_000


def test_packed_values_are_exact_to_a_thousandth(views: Views) -> None:
    from marey.notebook.packing import FIRST, LAST, pack_outline

    outline = outline_tree(large(1_000))
    data, facts = pack_outline(outline)
    raw = zlib.decompress(data)
    rows, length = np.frombuffer(raw, "<u4", 2)
    start = 8 + (int(length) + 3) // 4 * 4 + 20 * int(rows)
    codes = np.frombuffer(raw, "<u2", int(rows), start)
    low, high = facts["ranges"][METRICS[0]]
    values = low * np.exp((codes.astype(float) - FIRST) * np.log(high / low) / (LAST - FIRST))
    assert np.allclose(values, outline.values["inclusive"], rtol=1e-3)


def test_a_picture_needs_no_script_and_carries_names_as_text(views: Views) -> None:
    made = graphs()
    for view in (views.CallTreeView(made), views.SankeyView(made, by="name", least_share=0)):
        bundle, _ = view._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in bundle
        picture = bundle["text/html"]
        assert "<svg" in picture
        assert HOSTILE not in picture
        assert "&lt;script&gt;" in picture
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_a_sankey_is_split_marked_and_gives_its_call_sites(views: Views) -> None:
    sankey = views.SankeyView(graphs(), by="name", least_share=0, target=1)
    read = next(n for n in sankey._document["nodes"] if n["name"] == "read")
    assert read["inclusive"]["of_target"] == 110
    sankey.selected_name = "read"
    assert sankey.selection == {"paths": [["main", "load", "read"]]}
    sankey.split("read", "split_by_caller")
    assert "load › read" in [node["name"] for node in sankey._document["nodes"]]
    with pytest.raises(InvalidInput, match="no supernode"):
        sankey.selected_name = "nothing"


def test_the_bundle_asks_nobody_outside(views: Views) -> None:
    from marey.notebook.widget_base import BUNDLE

    text = BUNDLE.read_text("utf-8")
    assert "fetch(" not in text
    assert "XMLHttpRequest" not in text
    assert "import(" not in text


def test_a_bar_says_how_far_reading_is(
    views: Views, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from marey.notebook import reading

    drawn: list[str] = []

    class Place:
        def update(self, bar: Any) -> None:
            drawn.append(bar._repr_html_())

    monkeypatch.setattr(reading, "_open_display", lambda label: Place())
    for name in ("<a>", "b"):
        (tmp_path / name).write_text("main;load 5\n")
    views.load(tmp_path / "<a>", tmp_path / "b")
    assert ["50 %" in drawn[0], "100 %" in drawn[-1]] == [True, True]
    views.load(tmp_path / "<a>")
    assert "&lt;a&gt;" in drawn[-1]
    assert "<progress" in drawn[-1]

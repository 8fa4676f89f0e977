"""Views of a run and of a store without a browser: state, portable selections, tables, pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from marey.model.errors import InvalidInput, MareyError
from tests.notebook.small_site import SmallSite

Views = Any


@pytest.fixture(scope="module")
def views(need_module: Callable[[str], Any]) -> Views:
    need_module("anywidget")
    from marey import notebook

    return notebook


@pytest.fixture(scope="module")
def run(views: Views, small_site: SmallSite, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return views.open_traces(small_site.traces, cache=tmp_path_factory.mktemp("run"))


def test_a_page_gets_what_it_asks_for_of_a_step(views: Views, run: Any) -> None:
    from marey.live.wire_format import pa

    view = views.MareyView(run)
    asked = {
        "by": "page", "turn": 7, "from": 0, "to": view.window[1], "width": 300, "height": 4,
        "ranks": "0-3", "first": 0, "last": 4, "bands": "0-3", "spans": True, "least": 0,
    }  # fmt: skip
    view._asked = asked
    assert view._answered == {"by": "page", "turn": 7, "error": ""}
    assert view._cells[:4] == b"MCEL"
    bands = pa.ipc.open_stream(view._bands).read_all()
    assert set(bands["rank"].to_pylist()) == {0, 1, 2, 3}
    view._asked = {**asked, "turn": 8, "bands": "0;--"}
    assert "allowed: a list such as 0,5,9-12" in view._answered["error"]
    view._asked = {"by": "page", "turn": 9, "what": "order", "order": "lateness"}
    assert view.order == "lateness"


def test_intervals_of_one_run_are_selected_in_another(views: Views, run: Any) -> None:
    view = views.MareyView(run)
    names = view.selected().column_names
    assert view.selected().num_rows == 0
    view.selection = "rank=1,2"
    found = view.selected()
    assert set(found["rank"].to_pylist()) == {1, 2}
    name = next(one for one in found["name"].to_pylist() if one)
    view.selection = f'rank=1 and name="{name}"'
    assert view.selected("pandas")["name"].unique().tolist() == [name]
    assert view.selected("polars", run=run).columns == names
    with pytest.raises(InvalidInput):
        view.selection = "colour=red"
    with pytest.raises(InvalidInput, match="is empty"):
        view.window = (5, 5)
    assert view.picture().count("rank ") >= 4


def test_a_converted_run_is_opened_again_from_its_folder(views: Views, run: Any) -> None:
    again = views.open_traces("not read again", cache=run.folder.parent)
    assert again.index.ranks == run.index.ranks


def test_gpus_that_behave_alike_are_told_apart_and_selected(
    views: Views, small_site: SmallSite
) -> None:
    view = views.GpuMultiplesView(small_site.store, small_site.workload)
    assert view.gpus.num_rows == 16
    odd = min(set(view.gpus["cluster"].to_pylist()), key=view.gpus["cluster"].to_pylist().count)
    view.selection = {"field": "cluster", "op": "eq", "value": odd}
    assert set(view.selected("pandas")["gpu"]) == small_site.loaded
    view.metric = "power"
    assert view._document["metric"] == "power"
    assert view.picture().count("<text") == 16
    with pytest.raises(MareyError, match="metric"):
        view.metric = "nonsense"


def test_a_predicate_over_gpus_means_the_same_at_another_moment(
    views: Views, small_site: SmallSite
) -> None:
    view = views.ClusterView(small_site.store, layers=["partition", "host"])
    assert view.units.num_rows == 128
    where = {"and": [
        {"field": "workload", "op": "eq", "value": small_site.workload},
        {"field": "util", "op": "gt", "value": 90},
    ]}  # fmt: skip
    view.selection = where
    assert set(view.selected("polars")["gpu"]) == small_site.loaded
    other = views.ClusterView(small_site.store, at="2000-01-01T00:00Z")
    other.selection = view.selection
    assert other.selected().num_rows == 0
    view.colour = "power"
    assert "power" in view.units.column_names
    assert "GPUs by partition" in view.picture()
    with pytest.raises(InvalidInput):
        view.selection = {"field": "gpu", "op": "like", "value": "x"}
    with pytest.raises(MareyError, match="no store"):
        views.ClusterView(small_site.store.with_name("missing.duckdb"))

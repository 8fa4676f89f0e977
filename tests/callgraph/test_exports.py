"""A round trip through each export keeps the values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.app.traces.callgraphs import load_graphs
from marey.callgraph.exports import EXPORTS, export
from marey.callgraph.graphs import CallGraphs
from marey.model.errors import InvalidInput
from tests.callgraph.conftest import graphs_of

Values = dict[tuple[object, ...], tuple[float, float]]
SUFFIX = {"collapsed": "txt", "speedscope": "json", "pprof": "pb.gz", "hatchet": "json"}


def values_by_path(graphs: CallGraphs) -> dict[tuple[object, ...], tuple[float, float]]:
    found = {}
    for row, (node, profile) in enumerate(zip(graphs.node, graphs.profile_of_rows(), strict=True)):
        key = (graphs.infos[profile].rank, *graphs.path(int(node)))
        found[key] = (float(graphs.inclusive[row]), float(graphs.exclusive[row]))
    return found


def there_and_back(graphs: CallGraphs, name: str, folder: Path) -> CallGraphs:
    file = folder / f"graphs.{SUFFIX[name]}"
    file.write_bytes(export(graphs, name))
    return load_graphs([file])


def without_rank(values: Values) -> dict[tuple[object, ...], object]:
    return {key[1:]: pytest.approx(value, rel=1e-12, abs=0.51) for key, value in values.items()}


@pytest.mark.parametrize("name", EXPORTS)
def test_one_profile_comes_back_with_its_values(
    graphs: Callable[..., CallGraphs], name: str, tmp_path: Path
) -> None:
    made = graphs([{("main",): 5, ("main", "f"): 7, ("main", "f", "f g"): 0, ("x;y",): 3}])
    back = there_and_back(made, name, tmp_path)
    wanted = without_rank(values_by_path(made))
    if name == "collapsed":  # a semicolon separates frames there
        wanted = {tuple(str(n).replace(";", ":") for n in k): v for k, v in wanted.items()}
    found = {key[1:]: value for key, value in values_by_path(back).items()}
    assert found == wanted
    assert back.unit == "ns"


@pytest.mark.parametrize("name", ["speedscope", "pprof"])
def test_ranks_and_runs_come_back_apart(
    graphs: Callable[..., CallGraphs], name: str, tmp_path: Path
) -> None:
    made = graphs([{("main",): 5, ("main", "f"): 7}, {("main",): 9}])
    back = there_and_back(made, name, tmp_path)
    assert [(i.run, i.rank) for i in back.infos] == [("run", 0), ("run", 1)]
    assert values_by_path(back) == values_by_path(made)


@pytest.mark.parametrize("name", ["collapsed", "hatchet"])
def test_a_format_of_one_profile_refuses_several(
    graphs: Callable[..., CallGraphs], name: str
) -> None:
    made = graphs([{("a",): 1}, {("a",): 2}])
    with pytest.raises(InvalidInput, match="holds one profile and there are 2"):
        export(made, name)
    assert export(made, name, 1)


@pytest.mark.parametrize("name", EXPORTS)
def test_a_reader_without_a_real_sample_says_so(
    graphs: Callable[..., CallGraphs], name: str, tmp_path: Path
) -> None:
    back = there_and_back(graphs([{("main",): 5}]), name, tmp_path)
    assert any("untested on real data" in note for note in back.notes)


names = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=6)
paths = st.lists(names, min_size=1, max_size=5).map(tuple)


@given(st.dictionaries(paths, st.integers(0, 10**12), min_size=1, max_size=12))
def test_any_names_survive_speedscope_pprof_and_literals(
    tmp_path_factory: pytest.TempPathFactory, values: dict[tuple[str, ...], int]
) -> None:
    made = graphs_of([values])
    folder = tmp_path_factory.mktemp("exports")
    for name in ("speedscope", "pprof", "hatchet"):
        back = there_and_back(made, name, folder)
        found = {key[1:]: value for key, value in values_by_path(back).items()}
        assert found == without_rank(values_by_path(made))


def test_an_unknown_format_is_refused_with_what_is_allowed(
    graphs: Callable[..., CallGraphs],
) -> None:
    with pytest.raises(InvalidInput, match="did you mean 'pprof'"):
        export(graphs([{("a",): 1}]), "pprf")


def test_literals_of_any_depth_are_written(graphs: Callable[..., CallGraphs]) -> None:
    made = graphs([{tuple(f"f{n}" for n in range(400)): 1.0}])
    assert export(made, "hatchet").count(b'"frame"') == 400
    assert np.isfinite(made.inclusive).all()

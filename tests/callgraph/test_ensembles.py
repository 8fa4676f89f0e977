"""Uniting, box plots, differences, supernodes, similarity and scaling on graphs that are known."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.callgraph.analysis.diff import compare_graphs, difference_document
from marey.callgraph.analysis.ensemble import (
    ensemble_document,
    find_suspects,
    make_ensemble,
    stream_ensemble,
)
from marey.callgraph.analysis.icicle import icicle_document
from marey.callgraph.analysis.scaling import (
    describe_scaling,
    find_parameters,
    fit_scaling,
    scaling_document,
)
from marey.callgraph.analysis.similarity import similarity_document
from marey.callgraph.analysis.supernodes import (
    Grouping,
    group_nodes,
    node_histograms,
    sankey_document,
)
from marey.callgraph.graphs import CallGraphs, combine, fingerprints, unite_made
from marey.callgraph.profiles import ProfileInfo, RawGraph, make_profiles
from marey.model.errors import InvalidInput
from marey.model.training.callgraphs import NODES, PROFILES, VALUES
from marey.stats.boxes import box_plots
from marey.stats.significance import benjamini_hochberg, welch_rows
from tests.callgraph.conftest import graphs_of

Maker = Callable[..., CallGraphs]


def test_absent_is_not_zero(graphs: Maker) -> None:
    made = graphs([{("a", "b"): 4.0, ("a",): 1.0}, {("a",): 1.0}, {("a", "b"): 0.0}])
    document = ensemble_document(make_ensemble(made), made)
    box = next(n for n in document["nodes"] if n["path"] == ["a", "b"])["inclusive"]
    assert box["n"] == 2
    assert (box["min"], box["mean"], box["max"]) == (0.0, 2.0, 4.0)


def test_the_tables_keep_their_contract(graphs: Maker) -> None:
    made = graphs([{("a", "b"): 4.0}, {("a", "c"): 1.0}])
    assert made.nodes_table().schema == NODES
    assert made.profiles_table().schema == PROFILES
    assert made.values_table().schema == VALUES
    nodes = made.nodes_table()
    assert (nodes["parent"].to_numpy() < nodes["node"].to_numpy()).all()
    assert nodes["depth"].to_pylist() == [0, 1, 1]
    assert made.values_table()["calls"].null_count == 4


def test_siblings_of_one_name_are_one_call_site(graphs: Maker) -> None:
    raw = RawGraph(
        names=["main", "f at 0x7f12", "f at 0xabcd", "step#1", "step#2"],
        parent=[-1, 0, 0, 0, 0],
        node=[1, 2, 3, 4],
        exclusive=[1.0, 2.0, 4.0, 8.0],
        calls=[1, 1, 1, 1],
    )
    made = unite_made([make_profiles(raw, "test")])
    assert made.paths(range(3)) == [["main"], ["main", "f at 0x"], ["main", "step#"]]
    assert made.exclusive.tolist() == [0.0, 3.0, 12.0]
    assert made.calls[1:].tolist() == [2.0, 2.0]


def test_fingerprints_are_those_of_paths_and_not_of_numbers(graphs: Maker) -> None:
    one = graphs([{("a", "b"): 1.0, ("a", "c"): 1.0}])
    other = graphs([{("z",): 1.0, ("a", "c"): 1.0, ("a", "b"): 1.0}])
    by_path = dict(zip(map(tuple, one.paths(range(3))), fingerprints(one.tree), strict=True))
    again = dict(zip(map(tuple, other.paths(range(4))), fingerprints(other.tree), strict=True))
    assert all(again[path] == mark for path, mark in by_path.items())


names = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)
profile = st.dictionaries(names, st.integers(0, 1000).map(float), min_size=1, max_size=8)


@given(st.lists(profile, min_size=1, max_size=6))
def test_uniting_loses_nothing_whatever_the_order(
    profiles: list[dict[tuple[str, ...], float]],
) -> None:
    forward, back = graphs_of(profiles), graphs_of(profiles[::-1])
    assert forward.exclusive.sum() == sum(sum(values.values()) for values in profiles)
    assert set(map(tuple, forward.paths(range(len(forward.tree))))) == set(
        map(tuple, back.paths(range(len(back.tree))))
    )
    for number, values in enumerate(profiles):
        rows = slice(int(forward.first[number]), int(forward.first[number + 1]))
        found = {tuple(forward.path(int(n))): v for n, v in zip(
            forward.node[rows], forward.exclusive[rows], strict=True)}  # fmt: skip
        assert all(found[path] == value for path, value in values.items())


@given(st.lists(profile, min_size=1, max_size=6))
def test_inclusive_is_exclusive_with_all_that_is_below(
    profiles: list[dict[tuple[str, ...], float]],
) -> None:
    made = graphs_of(profiles)
    matrix = np.nan_to_num(made.dense("inclusive"))
    own = np.nan_to_num(made.dense("exclusive"))
    for node in range(len(made.tree)):
        below = matrix[made.tree.parent == node].sum(axis=0)
        assert matrix[node] == pytest.approx(own[node] + below)


@given(
    st.lists(
        st.lists(st.one_of(st.floats(0, 1e6), st.just(float("nan"))), min_size=7, max_size=7),
        min_size=1,
        max_size=5,
    )
)
def test_box_plots_are_numpys(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    boxes = box_plots(matrix)
    for number, row in enumerate(matrix):
        known = row[~np.isnan(row)]
        assert boxes.n[number] == len(known)
        if not len(known):
            assert np.isnan(boxes.mean[number])
            continue
        q1, median, q3 = np.percentile(known, [25, 50, 75])
        assert boxes.q1[number] == pytest.approx(q1)
        assert boxes.median[number] == pytest.approx(median)
        assert boxes.mean[number] == pytest.approx(known.mean())
        assert row[boxes.max_at[number]] == known.max() == boxes.max[number]
        beyond = (known < q1 - 1.5 * (q3 - q1)) | (known > q3 + 1.5 * (q3 - q1))
        assert (boxes.outlier_row == number).sum() == beyond.sum()


def test_a_streamed_ensemble_is_the_same_in_single_precision(graphs: Maker) -> None:
    random = np.random.default_rng(3)
    made = graphs([
        {("m", f"f{n}"): float(random.random()) for n in range(30) if random.random() < 0.9}
        for _ in range(150)
    ])  # fmt: skip
    whole = make_ensemble(made)
    from marey.callgraph.analysis.ensemble import _split

    streamed = stream_ensemble(_split(made))
    assert streamed.precision == "single"
    for word in ("inclusive", "exclusive"):
        for name in ("mean", "sd", "min", "q1", "median", "q3", "max"):
            assert getattr(getattr(streamed, word), name) == pytest.approx(
                getattr(getattr(whole, word), name), rel=1e-5
            )
    assert (streamed.present == whole.present).all()


def test_steps_and_runs_are_sums_of_their_profiles(graphs: Maker) -> None:
    made = graphs([{("a",): 1.0, ("a", "b"): 2.0}, {("a",): 3.0}])
    summed = combine(made, "run")
    assert len(summed) == 1
    assert summed.inclusive.tolist() == [6.0, 2.0]
    with pytest.raises(InvalidInput, match="No profile says which step"):
        combine(made, "step")


def test_a_profile_that_waits_is_told_from_one_that_works(graphs: Maker) -> None:
    ordinary = {("main", "work"): 100.0, ("main", "MPI_Allreduce"): 50.0}
    slow = {("main", "work"): 145.0, ("main", "MPI_Allreduce"): 5.0}
    idle = {("main", "work"): 70.0, ("main", "MPI_Allreduce"): 80.0}
    made = graphs([dict(ordinary) for _ in range(8)] + [slow, idle])
    found = find_suspects(make_ensemble(made))
    assert [(s.profile, s.reason) for s in found] == [(8, "slower"), (9, "waits")]


def test_time_alone_never_names_one_of_two(graphs: Maker) -> None:
    made = graphs([{("main",): 1.0}, {("main",): 100.0}])
    assert find_suspects(make_ensemble(made)) == []


def test_changes_are_tested_and_too_few_profiles_are_not(graphs: Maker) -> None:
    random = np.random.default_rng(1)

    def side(slow: float, count: int) -> CallGraphs:
        return graphs([
            {("m", "f"): 100 + random.random(), ("m", "g"): slow + random.random()}
            for _ in range(count)
        ])  # fmt: skip

    document = difference_document(compare_graphs(side(100, 6), side(120, 6)))
    assert [c["path"] for c in document["slower"]] == [["m", "g"]]
    assert document["slower"][0]["q"] < 1e-6
    few = difference_document(compare_graphs(side(100, 2), side(120, 2)))
    assert few["test"].startswith("not tested: n = 2")
    assert few["slower"][0]["p"] is None
    assert few["slower"][0]["q"] is None
    back = difference_document(compare_graphs(side(120, 6), side(100, 6)))
    assert [c["path"] for c in back["faster"]] == [["m", "g"]]


def test_what_appeared_and_vanished_is_listed_with_its_count(graphs: Maker) -> None:
    before = graphs([{("m", "f"): 5.0, ("m", "old"): 1.0}] * 3)
    after = graphs([{("m", "f"): 5.0, ("m", "new"): 2.0}, {("m", "f"): 5.0}, {("m", "f"): 5.0}])
    document = difference_document(compare_graphs(before, after))
    assert [(c["path"], c["n"], c["after"]) for c in document["appeared"]] == [
        (["m", "new"], 1, 2.0)
    ]
    assert [(c["path"], c["n"], c["before"]) for c in document["vanished"]] == [
        (["m", "old"], 3, 1.0)
    ]


def test_welch_of_many_rows_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(2)
    a, b = random.normal(0, 1, (50, 9)), random.normal(0.5, 2, (50, 6))
    wanted = stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue
    assert welch_rows(a, b) == pytest.approx(wanted)
    assert np.isnan(welch_rows(a[:, :2], b)).all()
    corrected = stats.false_discovery_control(wanted)
    assert benjamini_hochberg(wanted) == pytest.approx(corrected)
    assert benjamini_hochberg([]) == []


def recursion() -> CallGraphs:
    return graphs_of([
        {
            ("main",): 1.0,
            ("main", "a::f"): 10.0,
            ("main", "a::f", "b::g"): 20.0,
            ("main", "a::f", "b::g", "a::f"): 5.0,
            ("main", "b::g"): 3.0,
            ("main", "b::g", "a::h"): 2.0,
        }
    ])  # fmt: skip


def test_recursion_is_counted_once_and_drawn_as_a_loop() -> None:
    made = group_nodes(recursion(), Grouping(least_share=0.0))
    place = {name: n for n, name in enumerate(made.names)}
    assert made.inclusive[0, place["a"]] == 35.0 + 2.0
    assert made.exclusive[0, place["a"]] == 17.0
    loops = {(made.names[f.source], made.names[f.target]) for f in made.flows if f.loop}
    assert loops == {("b", "a")}


@given(st.lists(profile, min_size=1, max_size=4), st.integers(1, 4))
def test_flows_without_loops_have_no_cycle(
    profiles: list[dict[tuple[str, ...], float]], cap: int
) -> None:
    made = group_nodes(graphs_of(profiles), Grouping("name", 0.0, cap))
    reach = np.zeros((len(made.names), len(made.names)), bool)
    for flow in made.flows:
        if not flow.loop:
            reach[flow.source, flow.target] = True
    for _ in made.names:
        reach |= reach @ reach
    assert not reach.diagonal().any()
    assert len(made.names) <= cap + 1


def test_small_supernodes_are_folded_and_the_rest_is_kept() -> None:
    made = graphs_of([{("main", f"ns{n}::f"): float(n) for n in range(1, 21)}])
    folded = group_nodes(made, Grouping(least_share=0.0, cap=5))
    assert folded.names[-1] == "(rest)"
    assert folded.folded == 16
    assert folded.exclusive.sum() == 210.0


def test_supernodes_are_revealed_and_split() -> None:
    revealed = group_nodes(recursion(), Grouping(least_share=0.0, reveal=("a",)))
    assert {"a: a::f", "a: a::h"} <= set(revealed.names)
    by_caller = group_nodes(recursion(), Grouping(least_share=0.0, split_by_caller=("b",)))
    assert {"a › b", "function › b"} <= set(by_caller.names)
    by_callee = group_nodes(recursion(), Grouping(least_share=0.0, split_by_callee=("a",)))
    assert {"a › b", "a › (itself)"} <= set(by_callee.names)


def test_documents_for_views_are_plain_json(graphs: Maker) -> None:
    made = graphs([{("m", "a::f"): float(n), ("m", "b::g"): 2.0} for n in range(1, 9)])
    sankey = sankey_document(made, target=7)
    node = next(n for n in sankey["nodes"] if n["name"] == "a")
    assert sum(node["inclusive"]["histogram"]["counts"]) == 8
    assert node["inclusive"]["histogram"]["target_bin"] == 19
    icicle = icicle_document(made)
    assert icicle["parent"][0] == -1
    assert icicle["left_out"] == 0
    histograms = node_histograms(made, [1], "exclusive", 0)
    assert histograms[1]["target_bin"] == 0
    for document in (sankey, icicle, similarity_document(made)):
        json.dumps(document, allow_nan=False)


def test_scaling_finds_the_exponent_and_says_when_it_cannot() -> None:
    made = []
    for ranks in (1, 2, 4, 8):
        for rank in range(ranks):
            raw = RawGraph(
                ["m", "grows", "same"], [-1, 0, 0], [0, 1, 2],
                exclusive=[1.0, 3.0 * ranks**1.5, 7.0], infos=[ProfileInfo(f"run{ranks}", rank)],
            )  # fmt: skip
            made.append(make_profiles(raw, "test"))
    united = unite_made(made)
    values, fits = fit_scaling(united, "ranks", "exclusive")
    by_name = {united.name(fit.node): fit for fit in fits}
    assert values.tolist() == [1, 2, 4, 8]
    assert by_name["grows"].exponent == pytest.approx(1.5)
    assert by_name["grows"].trend == "grows"
    assert by_name["same"].trend == "no clear trend"
    json.dumps(scaling_document(united), allow_nan=False)
    with pytest.raises(InvalidInput, match="needs 3 different values"):
        fit_scaling(unite_made(made[:3]), "ranks")
    with pytest.raises(InvalidInput, match="No profile has a number 'batch'"):
        fit_scaling(united, "batch")
    document = describe_scaling(united, None, limit=2)
    assert document["parameters"] == ["ranks"]
    assert [node["path"] for node in document["nodes"]] == [["m"], ["m", "grows"]]
    assert [node["trend"] for node in document["nodes"]] == ["grows", "grows"]
    # Runs whose ranks were summed still know how many they have.
    assert find_parameters(combine(united, "run").infos) == ["ranks"]
    nothing = describe_scaling(unite_made(made[:3]), None, limit=2)
    assert nothing["parameter"] is None
    assert "No parameter has 3 different values" in nothing["reason"]


def test_a_parameter_may_stand_in_the_names_of_runs() -> None:
    made = []
    for batch in (8, 16, 32):
        info = ProfileInfo(f"nightly batch={batch},lr=0.1")
        raw = RawGraph(["m"], [-1], [0], exclusive=[2.0 * batch], infos=[info])
        made.append(make_profiles(raw, "test"))
    united = unite_made(made)
    assert find_parameters(united.infos) == ["batch"]
    document = describe_scaling(united, None, limit=5)
    assert document["values"] == [8, 16, 32]
    assert document["nodes"][0]["exponent"] == pytest.approx(1.0)

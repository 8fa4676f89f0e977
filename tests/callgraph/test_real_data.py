"""What real profiles and traces must say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marey.callgraph.analysis.diff import compare_graphs, difference_document
from marey.callgraph.analysis.ensemble import ensemble_document, make_ensemble
from marey.callgraph.analysis.scaling import describe_scaling
from marey.callgraph.analysis.similarity import similarity_document
from marey.callgraph.graphs import CallGraphs
from marey.callgraph.makers.detection import find_profiles
from marey.callgraph.queries.query import query_document
from marey.callgraph.queries.selection import query_of_nodes, select_nodes

pytestmark = pytest.mark.data
Reader = Callable[..., CallGraphs]
GCC = "callgraphs/thicket/data/quartz/GCC_10.3.1_BaseSeq_08388608"
TORCH = "traces/torch-cpu"
LULESH = "callgraphs/lulesh-scaling"


def document_of(graphs: CallGraphs) -> dict[str, Any]:
    return ensemble_document(make_ensemble(graphs), graphs)


@pytest.mark.parametrize(("run", "nodes"), [("ddp", 1126), ("fsdp2", 5644), ("pp", 1201)])
def test_ranks_of_a_run_unite_to_the_known_number_of_nodes(
    real: Reader, run: str, nodes: int
) -> None:
    graphs = real(f"{TORCH}/{run}")
    assert len(graphs) == 4
    assert len(graphs.tree) == nodes


def test_a_slow_loader_is_named_and_not_those_who_wait_for_it(real: Reader) -> None:
    document = document_of(real(f"{TORCH}/ddp-slow-data"))
    assert [s["rank"] for s in document["suspects"]] == [1]
    suspect = document["suspects"][0]
    assert suspect["path"][-3:] == [
        "train.py(79): step",
        "data_loading",
        "<built-in function sleep>",
    ]
    assert suspect["value"] / 1e6 == pytest.approx(1200.5, abs=0.5)
    assert [s["path"][-1] for s in document["structure"]] == ["<built-in function sleep>"]
    waiting = next(
        n for n in document["nodes"] if n["name"].startswith("<built-in method run_back")
    )
    assert waiting["exclusive"]["max_at"]["rank"] != 1


def test_ranks_that_do_the_same_have_no_structural_difference(real: Reader) -> None:
    document = document_of(real(f"{TORCH}/ddp"))
    assert document["structure"] == []
    assert document["suspects"] == []


def test_the_slow_rank_is_a_cluster_of_its_own(real: Reader) -> None:
    slow = similarity_document(real(f"{TORCH}/ddp-slow-data"))
    assert [p["cluster"] for p in slow["profiles"]] == [0, 1, 0, 0]
    assert similarity_document(real(f"{TORCH}/ddp"))["clusters"] == 1


def test_steps_of_a_run_are_an_ensemble_too(real: Reader) -> None:
    graphs = real(f"{TORCH}/ddp", split="step")
    assert [info.step for info in graphs.infos] == sorted(info.step for info in graphs.infos)
    assert len(graphs) == 4
    whole = real(f"{TORCH}/ddp")
    inside = graphs.inclusive[graphs.tree.parent[graphs.node] < 0].sum()
    assert inside <= whole.inclusive[whole.tree.parent[whole.node] < 0].sum()


def test_backward_hangs_below_its_forward_where_asked(real: Reader) -> None:
    graphs = real(f"{TORCH}/ddp", backward_under_forward=True)
    backward = [n for n in range(len(graphs.tree)) if graphs.name(n) == "(backward)"]
    assert backward
    above = {graphs.name(int(graphs.tree.parent[n])) for n in backward}
    assert any(name.startswith("aten::") for name in above)
    assert not any(graphs.path(n).count("(backward)") > 1 for n in backward)


def test_outermost_operators_are_kept_where_asked(real: Reader) -> None:
    assert len(real(f"{TORCH}/ddp", all_operators=True).tree) == 1222


def test_kernels_hang_below_their_launch_and_the_rest_is_unlinked(real: Reader) -> None:
    graphs = real("traces/tracelens/traces/mi300")
    assert "2685 of 3653 device events have a known launch" in " ".join(graphs.notes)
    document = document_of(graphs)
    kernels = [n for n in document["nodes"] if n["kind"] in ("kernel", "transfer")]
    unlinked = [n for n in kernels if n["path"][0] == "(unlinked)"]
    assert 0 < len(unlinked) < len(kernels)
    rows = np.isin(graphs.tree.kind[graphs.node], [9, 10])
    assert graphs.calls[rows].sum() == 3653


def test_device_time_adds_up_along_the_tree(real: Reader) -> None:
    graphs = real("traces/tracelens/traces/mi300", metric="device_time")
    roots = graphs.tree.parent[graphs.node] < 0
    assert graphs.inclusive[roots].sum() == pytest.approx(graphs.exclusive.sum())


@pytest.mark.parametrize("cores", ["1core", *(f"{n**3}cores" for n in range(2, 9))])
def test_every_lulesh_profile_is_read(real: Reader, cores: str) -> None:
    graphs = real(f"{LULESH}/lulesh-annotation-profile-{cores}.json")
    assert len(graphs) == int(cores.rstrip("cores").rstrip("core"))
    assert len(graphs.tree) == (29 if cores == "1core" else 45)


def test_imbalance_of_an_allreduce_over_512_ranks(real: Reader) -> None:
    document = document_of(real(f"{LULESH}/lulesh-annotation-profile-512cores.json"))
    box = next(n for n in document["nodes"] if n["name"] == "MPI_Allreduce")["inclusive"]
    assert box["imbalance"] == pytest.approx(0.422, abs=5e-4)
    assert box["max_at"]["rank"] == 120
    assert box["n"] == 512
    partial = {(s["path"][-1], s["n"]) for s in document["structure"]}
    assert partial == {("MPI_Wait", 511), ("MPI_Isend", 511), ("MPI_Irecv", 511)}


def _halves(real: Reader, callgraph_dir: Path) -> tuple[CallGraphs, CallGraphs]:
    from marey.app.traces.callgraphs import load_graphs

    files = [found.path for found in find_profiles(callgraph_dir.parent / GCC / "O2")]
    return load_graphs(files[:5]), load_graphs(files[5:])


def test_only_what_really_became_slower_is_named(real: Reader) -> None:
    document = difference_document(compare_graphs(real(f"{GCC}/O1"), real(f"{GCC}/O2")))
    found = {c["path"][-1]: (c["before"] / 1e9, c["after"] / 1e9) for c in document["slower"]}
    assert found.keys() == {"Lcals_DIFF_PREDICT", "Polybench_JACOBI_1D"}
    assert found["Lcals_DIFF_PREDICT"] == pytest.approx((211.741, 227.245), abs=1e-3)
    assert found["Polybench_JACOBI_1D"] == pytest.approx((48.673, 53.497), abs=1e-3)
    assert not document["faster"] + document["appeared"] + document["vanished"]
    assert all(c["n"] == 10 and c["q"] < 0.05 for c in document["slower"])


@pytest.mark.parametrize(("before", "after"), [("O0", "O1"), ("O2", "O3")])
def test_nothing_is_named_where_nothing_changed(real: Reader, before: str, after: str) -> None:
    document = difference_document(compare_graphs(real(f"{GCC}/{before}"), real(f"{GCC}/{after}")))
    assert not any(document[w] for w in ("slower", "faster", "appeared", "vanished"))
    assert document["tested"] == 74


def test_halves_of_one_set_do_not_differ(real: Reader, callgraph_dir: Path) -> None:
    document = difference_document(compare_graphs(*_halves(real, callgraph_dir)))
    assert not any(document[w] for w in ("slower", "faster", "appeared", "vanished"))


def test_figures_of_every_call_site_are_those_known(real: Reader, callgraph_dir: Path) -> None:
    truth = json.loads((callgraph_dir / "gcc-regressions.json").read_text())["O1->O2"]
    before, after = real(f"{GCC}/O1"), real(f"{GCC}/O2")
    means = {}
    for graphs in (before, after):
        matrix = graphs.dense("exclusive").mean(axis=1) / 1e9
        for node, value in enumerate(matrix):
            means.setdefault(tuple(graphs.path(node)), []).append(float(value))
    for row in truth:
        assert means[tuple(row["path"])] == pytest.approx([row["a_s"], row["b_s"]])


def test_two_programs_are_said_not_to_be_comparable(real: Reader) -> None:
    lulesh = real(f"{LULESH}/lulesh-annotation-profile-8cores.json")
    document = difference_document(compare_graphs(real(f"{GCC}/O1"), lulesh))
    assert not document["comparable"]
    assert "different programs" in document["reason"]
    assert not document["slower"]
    assert not document["faster"]
    assert len(document["vanished"]) == 74
    assert len(document["appeared"]) == 45


def test_a_selection_of_one_run_selects_the_same_paths_in_another(real: Reader) -> None:
    one, other = real(f"{TORCH}/ddp"), real(f"{TORCH}/ddp-slow-data")
    nodes = np.flatnonzero(select_nodes(one, "train.py(79): step > * > aten::*"))
    document = query_document(query_of_nodes(one, nodes))
    again = np.flatnonzero(select_nodes(other, json.loads(json.dumps(document))))
    paths = {tuple(path) for path in one.paths(nodes)}
    assert len(nodes) > 100
    assert {tuple(path) for path in other.paths(again)} == paths


READABLE = {
    "caliper-cpi-json": (85, 4),
    "caliper-example-cali": (24, 1),
    "caliper-lulesh-cali": (19, 1),
    "caliper-lulesh-json": (24, 8),
    "caliper-ordered-cali-mpi": (26, 1),
    "caliper-sw4-cuda-activity-cali": (393, 4),
    "hpctoolkit-allgather-database": (428, 20),
    "hpctoolkit-cpi-database": (28, 4),
    "tau-cpi-mpi": (12, 4),
    "gprof2dot-cpi": (125, 1),
    "json": (24, 1),
}


@pytest.mark.parametrize("name", READABLE)
def test_profiles_of_other_tools_are_read_and_add_up(real: Reader, name: str) -> None:
    graphs = real(f"callgraphs/hatchet/{name}")
    assert (len(graphs.tree), len(graphs)) == READABLE[name]
    roots = graphs.tree.parent[graphs.node] < 0
    assert graphs.inclusive[roots].sum() == pytest.approx(graphs.exclusive.sum(), rel=1e-6)
    assert not any("untested" in note for note in graphs.notes)


def test_hpctoolkit_gives_the_times_that_hatchet_gives(real: Reader, callgraph_dir: Path) -> None:
    import csv

    graphs = real("callgraphs/hatchet/hpctoolkit-cpi-database")
    ours: dict[tuple[str, int], float] = {}
    for node, profile, value in zip(
        graphs.node, graphs.profile_of_rows(), graphs.inclusive, strict=True
    ):
        key = (graphs.name(int(node)), graphs.infos[profile].rank or 0)
        ours[key] = max(ours.get(key, 0.0), value)
    with (callgraph_dir / "hatchet" / "hpctoolkit-cpi-graphframe.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["name"] in ("main", "<program root>")]
    # A call site without a sample has no row with us: absent is not zero.
    rows = [row for row in rows if float(row["time (inc)"]) > 0]
    assert len(rows) == 8
    for row in rows:
        key = (row["name"], int(row["rank"]))
        assert ours[key] == pytest.approx(float(row["time (inc)"]) * 1e3)


def test_statistics_of_both_pythons_are_read(real: Reader, callgraph_dir: Path) -> None:
    found = find_profiles(callgraph_dir / "hatchet" / "cprofile-hatchet-pstats")
    assert [one.format for one in found] == ["cprofile", "cprofile"]
    graphs = real("callgraphs/hatchet/cprofile-hatchet-pstats")
    assert {info.run for info in graphs.infos} == {"cprofile-cycle", "cprofile-cycle-py2"}
    assert any("apportioned" in note for note in graphs.notes)


def test_lulesh_scales_over_its_ranks(real: Reader) -> None:
    document = describe_scaling(real(LULESH), None, limit=100)
    assert document["parameter"] == "ranks"
    assert document["values"] == [n**3 for n in range(1, 9)]
    trends = {node["path"][-1]: node for node in document["nodes"]}
    assert trends["MPI_Allreduce"]["trend"] == "grows"
    assert trends["MPI_Isend"]["trend"] == "shrinks"
    assert trends["ApplyMaterialPropertiesForElems"]["trend"] == "no clear trend"
    for node in trends.values():
        pairs = [(x, y) for x, y in zip(document["values"], node["means"], strict=True) if y]
        slope = np.polyfit(*np.log(np.array(pairs)).T, 1)[0]
        assert node["exponent"] == pytest.approx(slope)
        low, high = node["interval"]
        assert low < slope < high

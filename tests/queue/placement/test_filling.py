"""Placement with shares of GPUs: stranded GPUs by hand, FGD's published results, bad files."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.queue.placement.filling import (
    POLICIES,
    build_requests,
    build_room,
    compare_placements,
    draw_arrivals,
)
from marey.queue.placement.nodes_and_pods import Nodes, Pods, read_nodes, read_pods
from marey.queue.placement.placement_kernels import measure_stranded, place_pods

PUBLISHED = dict(
    zip(
        ("01-Random", "02-DotProd", "03-GpuClustering", "04-GpuPacking", "05-BestFit", "06-FGD"),
        POLICIES,
        strict=True,
    )
)
SEEDS = 10


def build_nodes() -> Nodes:
    """Return two nodes of two GPUs; the second has little CPU."""
    return Nodes(
        cpu=np.array([8000, 2000]),
        memory=np.array([1000, 1000]),
        gpus=np.array([2, 2]),
        model=np.array([0, 1]),
        models=("A", "B"),
    )


def build_pods() -> Pods:
    """Return a workload: half ask for 0.6 of a GPU, half for two GPUs and much CPU."""
    return Pods(
        memory=np.array([10, 10]),
        type=np.array([0, 1]),
        type_cpu=np.array([1000, 4000]),
        type_gpus=np.array([1, 2]),
        type_milli=np.array([600, 1000]),
        type_models=("", ""),
    )


def test_stranded_is_what_a_drawn_pod_could_not_use() -> None:
    requests = build_requests(build_nodes(), build_pods())
    room = build_room(build_nodes(), requests)
    # The second node lacks the CPU for two GPUs: half of the workload can use none of its 2.
    assert room.stranded.tolist() == [0.0, 1000.0]
    # 0.4 left on one GPU: useless to both types; the whole one is useless to the second type.
    gpu = np.array([400, 1000])
    assert measure_stranded(requests, 0, 2, 8000, gpu) == 0.5 * 400 + 0.5 * 1400


@pytest.mark.slow
def test_fgd_puts_the_share_where_nothing_more_gets_stranded() -> None:
    """The node that no large pod can use takes the shares; memory turns the third away."""
    nodes, pods = build_nodes(), build_pods()
    requests = build_requests(nodes, pods)
    room = build_room(nodes, requests)
    order = (np.array([0, 0, 1]), np.array([10, 10, 2000]))
    curve = place_pods(room, requests, order, POLICIES["fgd"], 1)
    assert room.gpu.tolist() == [[1000, 1000], [400, 400]]
    assert room.cpu.tolist() == [8000, 0]
    assert curve.arrived.tolist() == [600, 1200, 3200]
    assert curve.used.tolist() == [600, 1200, 1200]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_gives_more_than_there_is(policy: str) -> None:
    nodes, pods = build_nodes(), build_pods()
    requests = build_requests(nodes, pods)
    room = build_room(nodes, requests)
    types = np.random.default_rng(3).integers(0, 2, 40)
    curve = place_pods(room, requests, (types, np.full(40, 10)), POLICIES[policy], 1)
    assert min(room.gpu.min(), room.cpu.min(), room.memory.min()) >= 0
    assert curve.used[-1] == 4000 - room.gpu.sum() > 0
    assert curve.stranded[-1] == pytest.approx(room.stranded.sum())


@pytest.mark.slow
def test_published_results_of_fgd_are_met(data_dir: Path) -> None:
    """Within one point of allocation, in the published order, as much stranded within two points.

    Clustering and packing lie 0.13 points apart: the published order of these two takes ten seeds.
    """
    trace = data_dir / "jobs" / "alibaba-gpu-v2023"
    nodes = read_nodes(trace / "openb_node_list_all_node.csv")
    pods = read_pods(trace / "openb_pod_list_default.csv")
    document = compare_placements(nodes, pods, seeds=SEEDS)
    ours = {row["policy"]: row for row in document["rows"]}
    fgd = data_dir / "jobs" / "fgd"
    allocated = read_published(fgd / "fgd_analysis_allo_discrete.csv", "100")
    stranded = read_published(fgd / "fgd_analysis_frag_ratio_discrete.csv", "90")
    assert document["gpus"] == 6212
    for policy in POLICIES:
        assert abs(ours[policy]["allocated_percent"] - allocated[policy]) <= 1.0, policy
        assert abs(ours[policy]["stranded_percent_at_90"] - stranded[policy]) <= 2.0, policy
    in_order = sorted(POLICIES, key=lambda policy: float(ours[policy]["allocated_percent"]))
    assert in_order == sorted(POLICIES, key=lambda policy: allocated[policy])


def test_among_equals_the_first_in_the_order_of_the_seed_takes_the_pod() -> None:
    nodes, pods = build_nodes(), build_pods()
    turned = nodes.arrange(np.array([1, 0]))
    assert turned.cpu.tolist() == [2000, 8000]
    assert turned.model.tolist() == [1, 0]
    for arranged in (nodes, turned):
        room = build_room(arranged, build_requests(arranged, pods))
        requests = build_requests(arranged, pods)
        place_pods(room, requests, (np.array([0]), np.array([10])), POLICIES["clustering"], 1)
        assert room.gpu[:, 0].tolist() == [400, 1000]


def test_pods_drawn_from_the_trace_come_behind_all_of_it() -> None:
    pods = build_pods()
    order = draw_arrivals(pods, 10, 3)
    assert sorted(order[:2].tolist()) == [0, 1]
    assert order.tolist() != draw_arrivals(pods, 10, 4).tolist()


def read_published(path: Path, point: str) -> dict[str, float]:
    """Return the published mean of each policy at a percentage of the demand."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] == "openb_pod_list_default"]
    return {
        ours: float(np.mean([float(row[point]) for row in rows if row["sc_policy"] == theirs]))
        for theirs, ours in PUBLISHED.items()
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu_milli,memory_mib,num_gpu\n1,1,1\n", "no column 'gpu_milli'"),
        ("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,1,1500\n", "1 to 1000"),
        ("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,x,5\n", "whole number"),
        ("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,0,0\n", "no pod that asks"),
    ],
)
def test_bad_pods_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_pods(path)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(InvalidInput, match="best_fit"):
        compare_placements(build_nodes(), build_pods(), ["tetris"])

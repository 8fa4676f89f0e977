"""Parallelism: recognised from names, and from traffic where names say nothing."""

from __future__ import annotations

import pytest

from marey.trace.analysis import recognise_parallelism
from marey.trace.ranks.parallelism import kind_in_name
from marey.trace.results import Parallelism
from marey.trace.synthetic import Layout, Scenario, TraceStyle, make_run

CASES = [
    (Layout(data=8), {"data": 8}),
    (Layout(data=8, sharded=True), {"fully_sharded": 8}),
    (Layout(data=4, tensor=2), {"data": 4, "tensor": 2}),
    # So few layers that only the sizes, equal in forward and backward, tell activations.
    (Layout(data=2, tensor=2, layers=1), {"data": 2, "tensor": 2}),
    (Layout(data=2, pipeline=4, micro_batches=4, layers=1), {"data": 2, "pipeline": 4}),
    (
        Layout(data=2, tensor=2, pipeline=2, micro_batches=4, layers=2),
        {"data": 2, "tensor": 2, "pipeline": 2},
    ),
]


def _found(layout: Layout, *, described: bool = True) -> Parallelism:
    trace_style = TraceStyle(described_groups=described)
    return recognise_parallelism(make_run(Scenario(layout, steps=3, trace_style=trace_style)).run)


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize(("layout", "sizes"), CASES)
def test_dimensions_are_recognised(layout: Layout, sizes: dict[str, int], described: bool) -> None:
    found = _found(layout, described=described)
    assert {d.kind: d.size for d in found.dimensions} == sizes
    wanted = {kind.replace("fully_sharded", "data") for kind in sizes}
    assert wanted == set(layout.groups())


def test_groups_and_places_are_those_of_the_layout() -> None:
    layout = CASES[-1][0]
    found = _found(layout)
    by_kind = {d.kind: set(d.groups) for d in found.dimensions}
    for kind, groups in layout.groups().items():
        assert by_kind[kind] == set(groups)
    for rank in range(layout.world):
        assert found.stages[rank] == rank // (layout.data * layout.tensor)
        assert found.replicas[rank] == rank // layout.tensor % layout.data


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("CONTEXT_PARALLEL_GROUP", "context"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("mesh_dp_shard", "data"),
        ("mesh_ep", "expert"),
        ("fsdp", "fully_sharded"),
        ("default_pg", ""),
        ("undefined 7", ""),
    ],
)
def test_what_a_name_says_first_is_the_kind(name: str, kind: str) -> None:
    assert kind_in_name(name) == kind


def test_a_name_makes_it_surer_than_traffic_alone() -> None:
    layout = CASES[2][0]
    assert _found(layout).confidence > _found(layout, described=False).confidence


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("micro_batches", [4, 8])
def test_schedule_and_micro_batches_are_read_from_the_order(
    schedule: str, micro_batches: int
) -> None:
    layout = Layout(data=1, pipeline=4, micro_batches=micro_batches, schedule=schedule, layers=1)
    found = _found(layout)
    assert found.schedule == schedule
    assert found.micro_batches == micro_batches
    assert found.stages == {rank: rank for rank in range(4)}


def test_without_a_pipeline_there_is_no_schedule() -> None:
    found = _found(CASES[0][0])
    assert found.schedule == "none"
    assert found.micro_batches == 0
    assert set(found.stages.values()) == {0}

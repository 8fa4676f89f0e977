"""How tensor-parallel operators are cut: inferred from who meets after them, or recorded."""

from __future__ import annotations

import pytest

from marey.trace.views.flow.nodes import OperatorNode, Sharding
from marey.trace.views.flow.placements import Parameter
from marey.trace.views.flow.tensor_cuts import infer_cuts, place_operators


def make_node(name: str, shapes: str = "", **beside: object) -> OperatorNode:
    facts: dict[str, object] = {
        **{"id": 0, "kind": "operator", "module": "", "stage": 0, "phase": "forward"},
        **{"order": 0, "block": 0, "micro_batch": 0, "operator": 0, "ranks": 4, "calls": 4},
        **{"min_ms": 1.0, "median_ms": 1.0, "max_ms": 1.0, "slowest_rank": 0},
        **{"wait_ms": 0.0, "blame_s": 0.0},
    }
    return OperatorNode(name=name, shapes=shapes, **{**facts, **beside})  # type: ignore[arg-type]


def make_sum(ranks: int, **beside: object) -> OperatorNode:
    return make_node("allreduce", kind="redistribution", group_size=ranks, **beside)


def test_rows_and_columns_are_inferred_from_the_sum_that_follows() -> None:
    up = make_node("aten::addmm", "[[128], [64, 64], [64, 128], [], []]")
    relu = make_node("aten::relu", "[[64, 128]]")
    down = make_node("aten::mm", "[[64, 128], [128, 64]]")
    norm = make_node("aten::layer_norm", "[[64, 64], [], [64], [64], [], []]")
    infer_cuts([norm, up, relu, down, make_sum(2)])
    assert [node.sharding.evidence for node in (norm, up, relu, down)] == [
        "unknown", "inferred", "inferred", "inferred",
    ]  # fmt: skip
    # As these products take their weight: (in, out).
    assert up.sharding.slices == (1, 2)
    assert up.sharding.inputs == ((2,), (1, 1), (1, 2))
    assert relu.sharding.slices == (1, 2)
    assert down.sharding.slices == (2, 1)
    assert down.sharding.inputs == ((1, 2), (2, 1))


def test_nothing_is_inferred_past_a_meeting_or_from_other_widths() -> None:
    other = make_node("aten::linear", "[[8, 32], [96, 32]]")
    before = make_node("aten::linear", "[[8, 64], [128, 64]]")
    down = make_node("aten::linear", "[[8, 128], [64, 128]]")
    infer_cuts([before, make_sum(2), other, down, make_sum(2)])
    assert before.sharding.slices == (1, 2)
    assert other.sharding == Sharding()
    assert down.sharding.slices == (1, 2)


def test_an_operator_between_the_product_and_the_sum_ends_the_inference() -> None:
    product = make_node("aten::linear", "[[8, 64], [128, 64]]")
    infer_cuts([product, make_node("aten::softmax", "[[8, 128], [], []]"), make_sum(4)])
    assert product.sharding == Sharding()


def test_what_backward_sums_in_the_shapes_of_forward_is_no_gradient_of_parameters() -> None:
    forward = make_sum(2, shapes="[[[64, 64]]]")
    activation = make_node(
        "allreduce", "[[[64, 64]]]", kind="gradient_aggregation", phase="backward", group_size=2
    )
    gradient = make_node(
        "allreduce", "[[[9000]]]", kind="gradient_aggregation", phase="backward", group_size=2
    )
    infer_cuts([forward, activation, gradient])
    assert (activation.kind, gradient.kind) == ("redistribution", "gradient_aggregation")


@pytest.mark.parametrize(
    ("name", "shapes", "slices"),
    [
        # The whole shapes of a DTensor, and the local ones of what it calls.
        ("aten::linear", "[[8, 64], [256, 64], [256]]", (2, 1)),
        ("aten::linear", "[[8, 64], [128, 64], [128]]", (2, 1)),
        ("aten::addmm", "[[128], [8, 64], [64, 128]]", (1, 2)),
        ("aten::linear", "[[8, 256], [64, 256]]", (1, 2)),
    ],
)
def test_recorded_placements_are_exact(name: str, shapes: str, slices: tuple[int, ...]) -> None:
    node = make_node(name, shapes)
    place_operators([node], [UP, DOWN, PLAIN])
    assert (node.sharding.evidence, node.sharding.slices) == ("exact", slices)


def test_a_shape_that_two_cuts_could_have_is_left_open_unless_the_module_decides() -> None:
    square = Parameter("0.q.weight", (64, 64), (32, 64), (2,), ("shard(0)",))
    turned = Parameter("0.o.weight", (64, 64), (64, 32), (2,), ("shard(1)",))
    node = make_node("aten::linear", "[[8, 64], [64, 64]]")
    place_operators([node], [square, turned])
    assert node.sharding == Sharding()
    known = make_node("aten::linear", "[[8, 64], [64, 64]]", module="Model.0.o")
    place_operators([known], [square, turned])
    assert known.sharding.slices == (1, 2)
    # A plain parameter of that shape is a cut, too: none.
    plain = make_node("aten::linear", "[[8, 64], [128, 64]]")
    place_operators([plain], [UP, Parameter("head.weight", (128, 64), (128, 64), (), ())])
    assert plain.sharding == Sharding()


UP = Parameter("0.up.weight", (256, 64), (128, 64), (2,), ("shard(0)",))
DOWN = Parameter("0.down.weight", (64, 256), (64, 128), (2,), ("shard(1)",))
PLAIN = Parameter("0.norm.weight", (64,), (64,), (), ())

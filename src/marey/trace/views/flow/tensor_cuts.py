"""How tensor-parallel operators are cut: by recorded placements, else by who meets after them.

A product whose output is summed over a group of ranks had its inner dimension cut: each rank holds
a part of the sum. The product before it whose output is that inner dimension had its columns cut,
and so has what lies between the two. Placements that were recorded say the same exactly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from marey.trace.views.flow.nodes import REDUCES, OperatorNode, Sharding, is_any
from marey.trace.views.flow.placements import Parameter, find_gathered

# The operator that is given all local parts of the parameters that are gathered together.
GATHERS = "fsdp::all_gather_copy_in"
_PRODUCT = re.compile(r"^aten::(linear|addmm|mm|matmul)$")
# What a tensor library puts between a product and its meeting: no work on the numbers.
_WRAPPER = re.compile(
    r"^(_?To|_?From)TorchTensor|^Redistribute|^aten::(view|t|reshape|contiguous)$"
)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """A product of activations and a weight: the weight's dimensions as (out, in)."""

    out: int
    inner: int
    # Whether the weight stands as (in, out), as products other than linear take it.
    turned: bool
    inputs: tuple[Shape, ...]
    # Which of the inputs is the weight.
    weight: int

    def describe_cut(self, out: int, inner: int) -> tuple[Shape, ...]:
        """Return the slices of every input where the weight has these many of (out, in)."""
        found: list[Shape] = []
        for place, shape in enumerate(self.inputs):
            if place == self.weight:
                found.append((inner, out) if self.turned else (out, inner))
            elif len(shape) == 1:
                found.append((out,))
            else:
                found.append((1,) * (len(shape) - 1) + (inner,))
        return tuple(found)


def place_operators(nodes: Sequence[OperatorNode], parameters: list[Parameter]) -> None:
    """Give gathers and products the strategy that marey.record wrote down, where it is certain."""
    known = [one for one in parameters if one.mesh]
    for node in nodes if known else ():
        if node.name == GATHERS:
            node.sharding = find_gathered(node.shapes, known) or node.sharding
        elif node.phase == "forward" and (product := read_product(node)) is not None:
            node.sharding = _find_placed(node, product, parameters) or node.sharding


def _find_placed(
    node: OperatorNode, product: Product, parameters: list[Parameter]
) -> Sharding | None:
    """Find the cut of the parameter that this is the weight of, if all it could be are
    cut alike.
    """
    wanted = (product.out, product.inner)
    alike = [one for one in parameters if wanted in (one.shape, one.local_shape)]
    named = [one for one in alike if _is_of_module(one.name, node.module)]
    slices = {one.count_slices() for one in named or alike}
    if len(slices) != 1:
        return None
    out, inner = slices.pop()
    cut = product.describe_cut(out, inner)
    name = (named or alike)[0].name if len(named or alike) == 1 else "its weight"
    why = f"recorded placement of {name}: {out} × {inner} slices of (out, in)"
    return Sharding("exact", cut[product.weight], why, cut)


def _is_of_module(parameter: str, module: str) -> bool:
    path = parameter.rpartition(".")[0]
    return bool(path) and (module == path or module.endswith(f".{path}"))


def infer_cuts(nodes: Sequence[OperatorNode]) -> None:
    """Infer how products of a stage are cut from the reductions that follow them in forward."""
    lanes: dict[int, list[OperatorNode]] = {}
    for node in nodes:
        if node.phase == "forward":
            lanes.setdefault(node.micro_batch, []).append(node)
    _rename_reductions(nodes)
    for lane in lanes.values():
        segment: list[OperatorNode] = []
        for node in lane:
            if node.kind == "redistribution":
                if is_any(node.name, REDUCES) and node.group_size > 1:
                    _infer_segment(segment, node.group_size)
                segment = []
            elif not _WRAPPER.match(node.name):
                segment.append(node)


def _rename_reductions(nodes: Sequence[OperatorNode]) -> None:
    """Rename sums of shapes in backward that forward sums too.

    They are no gradients of parameters.
    """
    summed = {
        (node.shapes, node.group_size)
        for node in nodes
        if node.kind == "redistribution" and node.phase == "forward" and node.shapes
    }
    for node in nodes:
        if node.kind == "gradient_aggregation" and (node.shapes, node.group_size) in summed:
            node.kind, node.sharding = "redistribution", Sharding()


def _infer_segment(segment: list[OperatorNode], ranks: int) -> None:
    """Infer from one meeting to the next: rows of the last product, columns of the one that feeds
    it.
    """
    last = read_product(segment[-1]) if segment else None
    if last is None:
        return
    _state(segment[-1], last.describe_cut(1, ranks), last.weight, f"summed over {ranks} ranks")
    for place in range(len(segment) - 2, -1, -1):
        node = segment[place]
        product = read_product(node)
        if product is not None:
            if product.out in (last.inner, last.inner // ranks, last.inner * ranks):
                why = f"its output enters a product that is summed over {ranks} ranks"
                _state(node, product.describe_cut(ranks, 1), product.weight, why)
            return
        shapes = read_shapes(node.shapes)
        if shapes and shapes[0] and shapes[0][-1] in (last.inner, last.inner // ranks):
            cut = tuple((1,) * (len(s) - 1) + (ranks,) for s in shapes if len(s) > 1)
            _state(node, cut, 0, f"enters a product that is summed over {ranks} ranks")


def _state(node: OperatorNode, cut: tuple[Shape, ...], place: int, why: str) -> None:
    if node.sharding.evidence == "unknown" and cut:
        node.sharding = Sharding("inferred", cut[place], why, cut)


def read_product(node: OperatorNode) -> Product | None:
    """Return the product that an operator is, if its shapes say it."""
    found = _PRODUCT.match(node.name)
    if found is None:
        return None
    shapes = read_shapes(node.shapes)
    weight = 2 if found.group(1) == "addmm" else 1
    if len(shapes) <= weight or len(shapes[weight]) != 2 or len(shapes[weight - 1]) < 2:
        return None
    turned = found.group(1) != "linear"
    first, second = shapes[weight]
    out, inner = (second, first) if turned else (first, second)
    if shapes[weight - 1][-1] != inner:
        return None
    return Product(out, inner, turned, tuple(s for s in shapes if s), weight)


def read_shapes(text: str) -> list[Shape]:
    """Return the shapes of inputs; those of lists and of what is no tensor are empty."""
    try:
        dims = msgspec.json.decode(text.encode()) if text else []
    except msgspec.DecodeError:
        return []
    if not isinstance(dims, list):
        return []
    return [
        tuple(one) if isinstance(one, list) and all(type(d) is int for d in one) else ()
        for one in dims
    ]

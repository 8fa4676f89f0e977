"""Floating-point operations of matrix products, from the shapes that a trace recorded."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from marey.trace.views.step_files import StepView

_PRODUCTS = re.compile(r"^aten::(mm|addmm|bmm|baddbmm|matmul|linear|_scaled_mm)$")


def count_flops(view: StepView, names: pa.Array) -> list[float | None]:
    """Return each rank's operations per second of the step; None where shapes say nothing."""
    codes = np.unique(view.bands["host_operator"])
    product = {
        int(code): found.group(1)
        for code in codes.tolist()
        if code >= 0 and (found := _PRODUCTS.match(names[code].as_py()))
    }
    seconds = max((view.index.end_ns - view.index.start_ns) / 1e9, 1e-12)
    cost: dict[tuple[int, int], float] = {}
    rates: list[float | None] = []
    for rank in view.index.ranks:
        bands = view.bands_of(rank)
        chosen = np.isin(bands["host_operator"], list(product)) & (bands["shapes"] >= 0)
        total = 0.0
        columns = (bands["host_operator"][chosen].tolist(), bands["shapes"][chosen].tolist())
        for name, shape in zip(*columns, strict=True):
            if (name, shape) not in cost:
                cost[name, shape] = product_flops(product[name], names[shape].as_py())
            total += cost[name, shape]
        rates.append(total / seconds if total else None)
    return rates


@cache
def product_flops(operator: str, shapes: str) -> float:
    """Return the operations of one product: 2 × rows × columns × the dimension summed over.

    >>> product_flops("mm", "[[4, 8], [8, 2]]")
    128.0
    """
    try:
        dims = msgspec.json.decode(shapes.encode())
    except msgspec.DecodeError:
        return 0.0
    factors = _factors(operator, dims)
    if factors is None:
        return 0.0
    left, right = factors
    summed = left[-1]
    outer = right[0] if operator == "linear" else right[-1]
    return 2.0 * math.prod(left[:-1]) * summed * outer


def _factors(operator: str, dims: Any) -> tuple[list[int], list[int]] | None:
    """Return the shapes of the two factors; additions carry what they add to before them."""
    if not isinstance(dims, list):
        return None
    begin = 1 if operator in ("addmm", "baddbmm") else 0
    pair = dims[begin : begin + 2]
    if len(pair) < 2 or not all(_is_shape(one) for one in pair):
        return None
    return pair[0], pair[1]


def _is_shape(dims: Any) -> bool:
    return isinstance(dims, list) and len(dims) >= 2 and all(isinstance(d, int) for d in dims)

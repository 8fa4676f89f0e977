"""Three-valued logic over arrays: false, not judged, true. *Not judged* never becomes a verdict.

Kleene's strong logic: NOT keeps *not judged*; AND is false as soon as one part is; OR is true as
soon as one part is. Encoded so that AND is the minimum, OR the maximum, NOT the mirror image.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marey.rules.engine.allocations import AllocationLayout
from marey.rules.language.expressions import Quantifier, Reach
from marey.stats.groups import count_per_group

FALSE, UNKNOWN, TRUE = 0, 1, 2
Truth = Literal["no", "not judged", "yes"]
WORDS: dict[int, Truth] = {FALSE: "no", UNKNOWN: "not judged", TRUE: "yes"}

Truths = NDArray[np.uint8]


def compare(left: NDArray[np.float64], op: str, right: NDArray[np.float64] | float) -> Truths:
    """Return the truth of ``left op right``; not judged where either is NaN."""
    with np.errstate(invalid="ignore"):
        held = {
            "<": np.less,
            "<=": np.less_equal,
            ">": np.greater,
            ">=": np.greater_equal,
            "=": np.equal,
            "!=": np.not_equal,
        }[op](left, right)
    truths = np.where(held, np.uint8(TRUE), np.uint8(FALSE))
    truths[np.isnan(left) | np.isnan(right)] = UNKNOWN
    return truths


def negate(truths: Truths) -> Truths:
    """Negate truths."""
    return np.asarray(TRUE - truths, np.uint8)


def quantify(quantifier: Quantifier, truths: Truths, layout: AllocationLayout) -> Truths:
    """Reduce the truth per GPU to the truth per workload."""
    if quantifier.reach is Reach.ANY_NODE:
        nodes = _check_all(truths, np.ones(len(truths), bool), layout.node_first)
        owner = layout.workload[layout.node_first[:-1]]
        first = np.searchsorted(owner, np.arange(len(layout.running) + 1))
        return _check_at_least(nodes, np.ones(len(layout.running)), first)
    if quantifier.reach is Reach.ALL:
        return _check_all(truths, np.ones(len(truths), bool), layout.first)
    if quantifier.reach is Reach.ALL_BUT_FIRST_RANK:
        others = np.ones(len(truths), bool)
        others[_take_first_rank(layout)] = False
        return _check_all(truths, others, layout.first)
    sizes = np.diff(layout.first).astype(float)
    needed = {
        Reach.ANY: np.ones(len(sizes)),
        Reach.AT_LEAST: np.full(len(sizes), quantifier.amount),
        Reach.AT_LEAST_SHARE: np.maximum(np.ceil(sizes * quantifier.amount / 100 - 1e-9), 1.0),
    }[quantifier.reach]
    return _check_at_least(truths, needed, layout.first)


def _take_first_rank(layout: AllocationLayout) -> NDArray[np.int64]:
    """Return the sorted row of each workload's first GPU, in the order in which it was admitted."""
    if not len(layout):
        return np.zeros(0, np.int64)
    order = np.lexsort((layout.rank, layout.workload))
    return np.asarray(order[layout.first[:-1]], np.int64)


def _check_all(truths: Truths, taken: NDArray[np.bool_], first: NDArray[np.int64]) -> Truths:
    false = count_per_group(taken & (truths == FALSE), first)
    true = count_per_group(taken & (truths == TRUE), first)
    size = count_per_group(taken, first)
    verdict = np.full(len(size), UNKNOWN, np.uint8)
    verdict[(true == size) & (size > 0)] = TRUE
    verdict[false > 0] = FALSE
    return verdict


def _check_at_least(
    truths: Truths, needed: NDArray[np.float64], first: NDArray[np.int64]
) -> Truths:
    true = count_per_group(truths == TRUE, first)
    possible = true + count_per_group(truths == UNKNOWN, first)
    verdict = np.full(len(true), UNKNOWN, np.uint8)
    verdict[true >= needed] = TRUE
    verdict[possible < needed] = FALSE
    return verdict

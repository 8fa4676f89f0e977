"""Calling-context trees as arrays, parents first, and how many of them become one.

Nodes are inserted into one hash table by (united parent, name). Profiles of one program have
almost the same tree in almost the same order, so the node after the last one found is tried
before the table: uniting then reads two arrays in step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.training.callgraphs import NodeKind

Ints = NDArray[np.int32]
KINDS = tuple(NodeKind)
KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
NO_PARENT = -1
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree whose siblings have different names; ``parent[i] < i``, or -1 for a root."""

    parent: Ints
    # Position in ``names``.
    name: Ints
    names: list[str]
    # Position in ``KINDS``.
    kind: NDArray[np.int8]
    # Position in ``names``, or -1.
    module: Ints

    def __len__(self) -> int:
        return len(self.parent)

    def same_as(self, other: Tree) -> bool:
        """Return whether both have the same nodes in the same order."""
        return self is other or (
            len(self) == len(other)
            and (self.names is other.names or self.names == other.names)
            and np.array_equal(self.parent, other.parent)
            and np.array_equal(self.name, other.name)
        )


@njit(cache=True, nogil=True)
def _insert(
    parent: Ints,
    name: Ints,
    keys: NDArray[np.uint64],
    slots: Ints,
    out_parent: Ints,
    out_name: Ints,
    count: int,
    found: Ints,
) -> int:
    mask = np.uint64(len(keys) - 1)
    last = -1
    for row in range(len(parent)):
        up = -1 if parent[row] < 0 else found[parent[row]]
        word = name[row]
        near = last + 1
        if near < count and out_parent[near] == up and out_name[near] == word:
            last = near
            found[row] = near
            continue
        key = (np.uint64(up + 1) << np.uint64(32)) | np.uint64(word)
        place = key * _MIX
        place = (place ^ (place >> np.uint64(32))) & mask
        while slots[place] >= 0 and keys[place] != key:
            place = (place + np.uint64(1)) & mask
        if slots[place] < 0:
            slots[place] = count
            keys[place] = key
            out_parent[count] = up
            out_name[count] = word
            count += 1
        last = slots[place]
        found[row] = last
    return count


@dataclass
class Uniter:
    """The united tree under construction: trees are added, and each learns where its nodes are."""

    names: list[str] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._keys = np.zeros(2048, np.uint64)
        self._slots = np.full(2048, -1, np.int32)
        self._parent = np.empty(1024, np.int32)
        self._name = np.empty(1024, np.int32)
        self._kind = np.empty(1024, np.int8)
        self._module = np.empty(1024, np.int32)
        self._last: tuple[Tree, Ints] | None = None
        self._coded: tuple[list[str], Ints] | None = None

    def add(self, tree: Tree) -> Ints:
        """Add a tree and return the united node of each of its nodes."""
        if self._last is not None and self._last[0].same_as(tree):
            return self._last[1]
        self._make_room(len(tree))
        before = self.count
        found = np.empty(len(tree), np.int32)
        codes = self._code(tree.names)
        self.count = _insert(
            tree.parent,
            codes[tree.name] if len(tree) else tree.name,
            self._keys,
            self._slots,
            self._parent,
            self._name,
            before,
            found,
        )
        if self.count > before:
            self._describe(tree, codes, found, before)
        self._last = (tree, found)
        return found

    def _code(self, names: list[str]) -> Ints:
        # Profiles of one program mostly name the same functions in the same order.
        if self._coded is not None and (self._coded[0] is names or self._coded[0] == names):
            return self._coded[1]
        known, texts = self._codes, self.names
        codes = np.empty(len(names), np.int32)
        for position, text in enumerate(names):
            code = known.get(text)
            if code is None:
                code = known[text] = len(texts)
                texts.append(text)
            codes[position] = code
        self._coded = (names, codes)
        return codes

    def _describe(self, tree: Tree, codes: Ints, found: Ints, before: int) -> None:
        """Give new nodes the kind and module of the tree that brought them."""
        new = np.flatnonzero(found >= before)
        # Backwards, so that of siblings merged into one node the first stays.
        at, new = found[new][::-1], new[::-1]
        self._kind[at] = tree.kind[new]
        module = tree.module[new]
        self._module[at] = np.where(module >= 0, codes[module], -1) if len(codes) else -1

    def _make_room(self, more: int) -> None:
        needed = self.count + more
        if needed > len(self._parent):
            size = max(needed, 2 * len(self._parent))
            for name in ("_parent", "_name", "_kind", "_module"):
                old = getattr(self, name)
                new = np.empty(size, old.dtype)
                new[: self.count] = old[: self.count]
                setattr(self, name, new)
        if 2 * needed > len(self._keys):
            self._rehash(1 << int(2 * needed).bit_length())

    def _rehash(self, size: int) -> None:
        self._keys = np.zeros(size, np.uint64)
        self._slots = np.full(size, -1, np.int32)
        _refill(self._parent[: self.count], self._name[: self.count], self._keys, self._slots)

    def tree(self) -> Tree:
        """Return the united tree as it is now."""
        n = self.count
        return Tree(
            self._parent[:n].copy(),
            self._name[:n].copy(),
            list(self.names),
            self._kind[:n].copy(),
            self._module[:n].copy(),
        )


@njit(cache=True, nogil=True)
def _refill(parent: Ints, name: Ints, keys: NDArray[np.uint64], slots: Ints) -> None:
    mask = np.uint64(len(keys) - 1)
    for node in range(len(parent)):
        key = (np.uint64(parent[node] + 1) << np.uint64(32)) | np.uint64(name[node])
        place = key * _MIX
        place = (place ^ (place >> np.uint64(32))) & mask
        while slots[place] >= 0:
            place = (place + np.uint64(1)) & mask
        slots[place] = node
        keys[place] = key


def depths(parent: Ints) -> Ints:
    """Return how deep each node lies, 0 for a root; parents first."""
    out = np.zeros(len(parent), np.int32)
    _depths_in_order(np.asarray(parent, np.int32), out)
    return out


@njit(cache=True, nogil=True)
def _depths_in_order(parent: Ints, out: Ints) -> None:
    for node in range(len(parent)):
        if parent[node] >= 0:
            out[node] = out[parent[node]] + 1


@njit(cache=True, nogil=True)
def _depths_any_order(parent: Ints, depth: Ints, stack: Ints) -> int:
    """Fill depths whatever the order; the answer is a node of a cycle, or -1."""
    for first in range(len(parent)):
        height = 0
        node = first
        while node >= 0 and depth[node] < 0:
            if depth[node] == -2:
                return int(node)
            depth[node] = -2
            stack[height] = node
            height += 1
            node = parent[node]
        base = -1 if node < 0 else depth[node]
        while height:
            height -= 1
            base += 1
            depth[stack[height]] = base
    return -1


def order_parents_first(parent: Ints) -> NDArray[np.int64]:
    """Return the rows with every parent before its children; refuse a cycle."""
    parent = np.asarray(parent, np.int32)
    count = len(parent)
    if count and (parent.max() >= count or parent.min() < NO_PARENT):
        raise InvalidInput(f"A call site names a parent that is none of the {count} there are.")
    depth = np.full(count, -1, np.int32)
    at = _depths_any_order(parent, depth, np.empty(count, np.int32))
    if at >= 0:
        raise InvalidInput(f"The call graph is cyclic: call site {at} is its own ancestor.")
    return np.argsort(depth, kind="stable")


@njit(cache=True, nogil=True)
def sum_up(parent: Ints, values: NDArray[np.float64]) -> None:
    """Add each node's value to its parent's, children first: exclusive becomes inclusive."""
    for node in range(len(parent) - 1, -1, -1):
        if parent[node] >= 0:
            values[parent[node]] += values[node]


def children_sums(parent: Ints, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each node the sum of its children's values."""
    below = parent >= 0
    sums = np.bincount(parent[below], values[below], minlength=len(parent))
    return np.asarray(sums, np.float64)

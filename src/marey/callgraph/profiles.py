"""What a maker makes: profiles, each with a tree and the values of the nodes it reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.names import normalise_names
from marey.callgraph.trees import (
    KIND_CODES,
    Tree,
    Uniter,
    children_sums,
    order_parents_first,
    sum_up,
)
from marey.model.errors import InvalidInput
from marey.model.training.callgraphs import GRAFTED_KINDS, TIME_UNITS_NS, NodeKind

Floats = NDArray[np.float64]
UNTESTED = "untested on real data"
_GRAFTED = np.isin(np.arange(len(KIND_CODES)), [KIND_CODES[kind] for kind in GRAFTED_KINDS])


@dataclass(frozen=True)
class ProfileInfo:
    """Whose values they are."""

    run: str = ""
    rank: int | None = None
    step: int | None = None
    thread: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def label(self) -> str:
        """Name it as a person would: ``run a, rank 3``."""
        words = {word: getattr(self, word) for word in ("rank", "step", "thread")}
        parts = [f"{word} {value}" for word, value in words.items() if value is not None]
        return ", ".join([*([self.run] if self.run else []), *parts]) or "the only profile"


@dataclass(frozen=True, eq=False)
class Profile:
    """One profile: the nodes of its tree that it reached, and their values."""

    tree: Tree
    # None where it reached every node.
    nodes: NDArray[np.int32] | None
    inclusive: Floats
    exclusive: Floats
    # NaN where calls are not counted.
    calls: Floats
    info: ProfileInfo


@dataclass(frozen=True)
class MadeProfiles:
    """The profiles of one file or folder, with what has to be known about them."""

    profiles: Sequence[Profile]
    unit: str
    format: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RawGraph:
    """What a maker read: call sites with parents in any order, and records of their values.

    ``inclusive`` or ``exclusive`` may be left out: the other is then derived from the tree.
    """

    names: Sequence[str]
    parent: Sequence[int] | NDArray[Any]
    # One record per (call site, profile); several of one pair are summed.
    node: Sequence[int] | NDArray[Any]
    profile: Sequence[int] | NDArray[Any] | None = None
    inclusive: Sequence[float] | Floats | None = None
    exclusive: Sequence[float] | Floats | None = None
    calls: Sequence[float] | Floats | None = None
    kinds: Sequence[str] | str = NodeKind.FUNCTION
    modules: Sequence[str | None] | None = None
    infos: Sequence[ProfileInfo] = (ProfileInfo(),)
    unit: str = "ns"
    aliases: Mapping[str, str] | None = None


def make_profiles(raw: RawGraph, format_name: str, notes: Sequence[str] = ()) -> MadeProfiles:
    """Normalise names, merge siblings of one name, sum records and derive what is missing."""
    tree, node_of = make_tree(raw)
    factor, unit = time_factor(raw.unit)
    node = np.asarray(raw.node, np.int64)
    if len(node) and (node.min() < 0 or node.max() >= len(node_of)):
        raise InvalidInput(f"A value names a call site that is none of the {len(node_of)}.")
    profile = np.zeros(len(node), np.int64) if raw.profile is None else np.asarray(raw.profile)
    columns = {
        word: np.asarray(values, np.float64) * (1.0 if word == "calls" else factor)
        for word in ("inclusive", "exclusive", "calls")
        if (values := getattr(raw, word)) is not None
    }
    if not columns.keys() & {"inclusive", "exclusive"}:
        raise InvalidInput("A call graph needs inclusive or exclusive values; it has neither.")
    good, value_notes = check_values(columns)
    summed = _sum_records(
        node_of[node[good]], profile[good], {k: v[good] for k, v in columns.items()}, len(tree)
    )
    profiles = [_profile(tree, summed, p, info) for p, info in enumerate(raw.infos)]
    return MadeProfiles(profiles, unit, format_name, (*notes, *value_notes))


def make_tree(raw: RawGraph) -> tuple[Tree, NDArray[np.int32]]:
    """Return the tree of the call sites, and the node of each of them."""
    parent = np.asarray(raw.parent, np.int32)
    if len(raw.names) != len(parent):
        raise InvalidInput(f"{len(raw.names)} names for {len(parent)} call sites.")
    order = order_parents_first(parent)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    ordered = parent[order]
    codes, texts = _encode(raw, order)
    kinds = [raw.kinds] * len(order) if isinstance(raw.kinds, str) else raw.kinds
    kind = np.array([KIND_CODES[NodeKind(k)] for k in kinds], np.int8)[order]
    rows = Tree(
        np.where(ordered >= 0, place[ordered], -1).astype(np.int32),
        codes[0],
        texts,
        kind,
        codes[1],
    )
    uniter = Uniter()
    found = uniter.add(rows)
    node_of = np.empty(len(order), np.int32)
    node_of[order] = found
    return uniter.tree(), node_of


def _encode(
    raw: RawGraph, order: NDArray[np.int64]
) -> tuple[tuple[NDArray[np.int32], NDArray[np.int32]], list[str]]:
    """Return codes of names and modules in the given order, and the texts they stand for."""
    modules = raw.modules if raw.modules is not None else [None] * len(raw.names)
    distinct = dict.fromkeys([*raw.names, *(m for m in modules if m)])
    clean = normalise_names(distinct, raw.aliases)
    texts = list(dict.fromkeys(clean))
    code_of = {text: code for code, text in enumerate(texts)}
    of_raw = {text: code_of[new] for text, new in zip(distinct, clean, strict=True)}
    name = np.array([of_raw[text] for text in raw.names], np.int32)
    module = np.array([of_raw[m] if m else -1 for m in modules], np.int32)
    return (name[order], module[order]), texts


def time_factor(unit: str) -> tuple[float, str]:
    """Return the factor to nanoseconds; 1 for a unit that is no time."""
    factor = TIME_UNITS_NS.get(unit)
    return (1.0, unit) if factor is None else (factor, "ns")


def check_values(columns: Mapping[str, Floats]) -> tuple[NDArray[np.bool_], list[str]]:
    """Return which records can be used, and what to say about the others."""
    size = len(next(iter(columns.values())))
    finite, positive = np.ones(size, bool), np.ones(size, bool)
    for word, values in columns.items():
        if len(values) != size:
            raise InvalidInput(f"{len(values)} values of {word} for {size} records.")
        if word == "calls":
            continue
        finite &= np.isfinite(values)
        positive &= ~(values < 0)
    notes = []
    if not finite.all():
        notes.append(f"{int((~finite).sum())} values that are no numbers were left out")
    if not positive.all():
        notes.append(f"{int((~positive).sum())} negative values were left out")
    return finite & positive, notes


Summed = tuple[NDArray[np.int64], NDArray[np.int64], dict[str, Floats]]


def _sum_records(
    node: NDArray[Any], profile: NDArray[Any], columns: Mapping[str, Floats], count: int
) -> Summed:
    """Return one record per (profile, node), sorted by both."""
    key = profile.astype(np.int64) * max(count, 1) + node
    if len(key) < 2 or bool((np.diff(key) > 0).all()):
        return profile.astype(np.int64), node.astype(np.int64), dict(columns)
    distinct, inverse = np.unique(key, return_inverse=True)
    sums = {
        word: np.asarray(np.bincount(inverse, values, minlength=len(distinct)), np.float64)
        for word, values in columns.items()
    }
    return distinct // max(count, 1), distinct % max(count, 1), sums


def _profile(tree: Tree, summed: Summed, number: int, info: ProfileInfo) -> Profile:
    low, high = np.searchsorted(summed[0], [number, number + 1])
    nodes = summed[1][low:high].astype(np.int32)
    values = {word: column[low:high] for word, column in summed[2].items()}
    calls = values.get("calls", np.full(len(nodes), np.nan))
    if "exclusive" not in values:
        exclusive = derive_exclusive(tree, nodes, values["inclusive"])
        return Profile(
            tree=tree,
            nodes=nodes,
            inclusive=values["inclusive"],
            exclusive=exclusive,
            calls=calls,
            info=info,
        )
    if "inclusive" in values:
        return Profile(
            tree=tree,
            nodes=nodes,
            inclusive=values["inclusive"],
            exclusive=values["exclusive"],
            calls=calls,
            info=info,
        )
    return _with_ancestors(tree, nodes=nodes, exclusive=values["exclusive"], calls=calls, info=info)


def derive_exclusive(tree: Tree, nodes: NDArray[np.int32], inclusive: Floats) -> Floats:
    """Return each node's time without its children's; never below zero."""
    whole = np.zeros(len(tree))
    whole[nodes] = inclusive
    # What was grafted is no part of its caller's time.
    inside = np.where(_GRAFTED[tree.kind], 0.0, whole)
    return np.asarray((whole - children_sums(tree.parent, inside))[nodes].clip(0))


def _with_ancestors(
    tree: Tree, *, nodes: NDArray[np.int32], exclusive: Floats, calls: Floats, info: ProfileInfo
) -> Profile:
    """Return a profile from exclusive values alone: what led to a node was reached too."""
    own, reached = np.zeros(len(tree)), np.zeros(len(tree))
    counted = np.full(len(tree), np.nan)
    own[nodes], reached[nodes], counted[nodes] = exclusive, 1.0, calls
    inclusive = own.copy()
    sum_up(tree.parent, inclusive)
    sum_up(tree.parent, reached)
    kept = np.flatnonzero(reached).astype(np.int32)
    return Profile(
        tree=tree,
        nodes=kept,
        inclusive=inclusive[kept],
        exclusive=own[kept],
        calls=counted[kept],
        info=info,
    )

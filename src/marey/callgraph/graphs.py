"""Profiles united into one tree with sparse values: the tables of ``model.callgraphs``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from marey.callgraph.profiles import MadeProfiles, Profile, ProfileInfo
from marey.callgraph.trees import KINDS, Tree, Uniter, depths
from marey.model.errors import InvalidInput, shown
from marey.model.training.callgraphs import NODES, PROFILES, VALUES

Floats = NDArray[np.float64]
# A path with more frames is shown by its ends: a million of them help nobody.
LONGEST_PATH = 1_000
SHOWN_ENDS = 50


@dataclass(frozen=True, eq=False)
class CallGraphs:
    """Profiles of one program over one united tree; rows of values are sorted by profile."""

    tree: Tree
    infos: Sequence[ProfileInfo]
    # Rows ``first[p]`` to ``first[p + 1]`` are those of profile ``p``.
    first: NDArray[np.int64]
    node: NDArray[np.int32]
    inclusive: Floats
    exclusive: Floats
    calls: Floats
    unit: str = "ns"
    notes: tuple[str, ...] = ()
    # By node: whether a selection chose it; None where nothing was selected.
    chosen: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """Return how many profiles there are."""
        return len(self.infos)

    def profile_of_rows(self) -> NDArray[np.int32]:
        """Return the profile of every row of values."""
        return np.repeat(np.arange(len(self.infos), dtype=np.int32), np.diff(self.first))

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return self.tree.names[int(self.tree.name[node])]

    def path(self, node: int) -> list[str]:
        """Return the names from the root to a node; of a very long path both ends."""
        parent, name, names = self.tree.parent, self.tree.name, self.tree.names
        codes = []
        while node >= 0:
            codes.append(name[node])
            node = parent[node]
        texts = [names[code] for code in reversed(codes)]
        if len(texts) <= LONGEST_PATH:
            return texts
        left_out = f"… {len(texts) - 2 * SHOWN_ENDS} frames …"
        return [*texts[:SHOWN_ENDS], left_out, *texts[-SHOWN_ENDS:]]

    def paths(self, nodes: Iterable[int]) -> list[list[str]]:
        """Return the path of each of these nodes."""
        return [self.path(int(node)) for node in nodes]

    def nodes_table(self) -> pa.Table:
        """Return the united tree in the schema ``NODES``."""
        tree = self.tree
        count = len(tree)
        arrays = [
            pa.array(np.arange(count, dtype=np.int32)),
            pa.array(tree.parent),
            _dictionary(tree.name, tree.names),
            _dictionary(tree.kind.astype(np.int32), [str(kind) for kind in KINDS]),
            _dictionary(tree.module, tree.names),
            pa.array(depths(tree.parent)),
            pa.array(fingerprints(tree)),
        ]
        return pa.Table.from_arrays(arrays, schema=NODES)

    def profiles_table(self) -> pa.Table:
        """Return whose values there are, in the schema ``PROFILES``."""
        rows = [
            {
                "profile": number,
                "run": info.run,
                "rank": info.rank,
                "step": info.step,
                "thread": info.thread,
                "metadata": json.dumps(dict(info.metadata), default=str),
            }
            for number, info in enumerate(self.infos)
        ]
        return pa.Table.from_pylist(rows, schema=PROFILES)

    def values_table(self) -> pa.Table:
        """Return the sparse values in the schema ``VALUES``."""
        arrays = [
            pa.array(self.node),
            pa.array(self.profile_of_rows()),
            pa.array(self.inclusive),
            pa.array(self.exclusive),
            pa.array(self.calls, mask=np.isnan(self.calls)),
        ]
        return pa.Table.from_arrays(arrays, schema=VALUES)

    def dense(self, word: str) -> Floats:
        """Return one metric as nodes × profiles, NaN where a profile has no such node."""
        matrix = np.full((len(self.tree), len(self.infos)), np.nan)
        matrix[self.node, self.profile_of_rows()] = getattr(self, word)
        return matrix


def _dictionary(codes: NDArray[np.int32], texts: list[str]) -> pa.Array:
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def unite(profiles: Iterable[Profile], unit: str = "ns", notes: Sequence[str] = ()) -> CallGraphs:
    """Unite profiles into one tree with their values; what a profile lacks has no row."""
    uniter = Uniter()
    infos, nodes, inclusive, exclusive, calls = [], [], [], [], []
    for profile in profiles:
        found = uniter.add(profile.tree)
        nodes.append(found if profile.nodes is None else found[profile.nodes])
        inclusive.append(profile.inclusive)
        exclusive.append(profile.exclusive)
        calls.append(profile.calls)
        infos.append(profile.info)
    if not infos:
        raise InvalidInput("There is no profile to unite.")
    sizes = np.array([len(part) for part in nodes], np.int64)
    return CallGraphs(
        tree=uniter.tree(),
        infos=infos,
        first=np.concatenate([[0], np.cumsum(sizes)]),
        node=np.concatenate(nodes),
        inclusive=np.concatenate(inclusive),
        exclusive=np.concatenate(exclusive),
        calls=np.concatenate(calls),
        unit=unit,
        notes=tuple(notes),
    )


def unite_made(made: Sequence[MadeProfiles]) -> CallGraphs:
    """Unite what several makers made; refuse quantities that cannot be added to each other."""
    units = {one.unit: one for one in made if one.profiles}
    if len(units) > 1:
        listed = ", ".join(f"{shown(unit)} ({one.format})" for unit, one in units.items())
        raise InvalidInput(
            f"These profiles measure different things and cannot be united: {listed}; "
            "allowed: profiles of one unit (units of time are converted)."
        )
    notes = tuple(dict.fromkeys(note for one in made for note in one.notes))
    profiles = [profile for one in made for profile in one.profiles]
    return unite(profiles, next(iter(units), "ns"), notes)


@njit(cache=True, nogil=True)
def _fingerprints(
    parent: NDArray[np.int32], word: NDArray[np.uint64], out: NDArray[np.uint64]
) -> None:
    for node in range(len(parent)):
        up = np.uint64(0xCBF29CE484222325) if parent[node] < 0 else out[parent[node]]
        mixed = (up ^ word[node]) * np.uint64(0x9E3779B97F4A7C15)
        out[node] = mixed ^ (mixed >> np.uint64(29))


def fingerprints(tree: Tree) -> NDArray[np.uint64]:
    """Return a number for each path: the same names give the same number in every run."""
    digests = [
        int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())
        for text in tree.names
    ]
    words = np.array(digests, np.uint64)
    out = np.empty(len(tree), np.uint64)
    if len(tree):
        _fingerprints(tree.parent, words[tree.name], out)
    return out


def combine(graphs: CallGraphs, by: str) -> CallGraphs:
    """Sum the profiles that agree in ``by``: run, rank, step or thread."""
    if by not in ("run", "rank", "step", "thread"):
        raise InvalidInput(f"Cannot split by '{shown(by)}'; allowed: run, rank, step, thread.")
    keys = [getattr(info, by) for info in graphs.infos]
    if all(key is None for key in keys):
        raise InvalidInput(f"No profile says which {by} it is of; it cannot be split by {by}.")
    distinct = sorted(set(keys), key=lambda key: (key is None, key))
    group = np.array([distinct.index(key) for key in keys])[graphs.profile_of_rows()]
    composed = group.astype(np.int64) * max(len(graphs.tree), 1) + graphs.node
    cells, inverse = np.unique(composed, return_inverse=True)
    sums = [
        np.asarray(np.bincount(inverse, column, minlength=len(cells)), np.float64)
        for column in (graphs.inclusive, graphs.exclusive, graphs.calls)
    ]
    first = np.searchsorted(cells, np.arange(len(distinct) + 1) * max(len(graphs.tree), 1))
    shared = {info.run for info in graphs.infos}
    run = next(iter(shared)) if len(shared) == 1 else ""
    members = [[i for i, k in zip(graphs.infos, keys, strict=True) if k == d] for d in distinct]
    infos = [
        replace(ProfileInfo(run, metadata=_find_shared_facts(some, by)), **{by: key})
        for key, some in zip(distinct, members, strict=True)
    ]
    node = (cells % max(len(graphs.tree), 1)).astype(np.int32)
    return replace(
        graphs,
        infos=infos,
        first=first,
        node=node,
        inclusive=sums[0],
        exclusive=sums[1],
        calls=sums[2],
    )


def _find_shared_facts(infos: Sequence[ProfileInfo], by: str) -> dict[str, Any]:
    """Return the metadata that summed profiles agree in; of a run also how many ranks it has."""
    first = infos[0].metadata
    facts = {key: v for key, v in first.items() if all(i.metadata.get(key) == v for i in infos)}
    ranks = {info.rank for info in infos if info.rank is not None}
    return {**facts, "ranks": len(ranks)} if by == "run" and ranks else facts


def take_profiles(graphs: CallGraphs, numbers: Sequence[int]) -> CallGraphs:
    """Return only these profiles, in this order, over the same tree."""
    wrong = [n for n in numbers if not 0 <= n < len(graphs)]
    if wrong:
        raise InvalidInput(f"Unknown profile {wrong[0]}; there are 0-{len(graphs) - 1}.")
    if not numbers:
        raise InvalidInput("No profile was chosen; choose at least one.")
    parts = [np.arange(graphs.first[n], graphs.first[n + 1]) for n in numbers]
    rows = np.concatenate(parts)
    return replace(
        graphs,
        infos=[graphs.infos[n] for n in numbers],
        first=np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64),
        node=graphs.node[rows],
        inclusive=graphs.inclusive[rows],
        exclusive=graphs.exclusive[rows],
        calls=graphs.calls[rows],
    )

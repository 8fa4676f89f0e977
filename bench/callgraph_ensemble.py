"""A thousand profiles of a hundred thousand call sites: united, with box plots, in bounded memory.

The rival is named for what it is: a straightforward implementation with NumPy that holds the
whole matrix and asks ``np.percentile``. It is measured on a part of the profiles and scaled up.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.report import Results, peak_rss_mb
from marey.callgraph.analysis.ensemble import stream_ensemble
from marey.callgraph.profiles import Profile, ProfileInfo
from marey.callgraph.trees import Tree

PROFILES = 1_000
NODES = 100_000
NAMES = 5_000
RIVAL_NODES = 5_000


def whole_tree(nodes: int) -> Tree:
    """A random tree of moderate depth, siblings named apart."""
    random = np.random.default_rng(11)
    parent = np.full(nodes, -1, np.int32)
    parent[1:] = (np.arange(1, nodes) * random.random(nodes - 1) ** 0.5).astype(np.int32)
    name = _names_apart(parent)
    kind, module = np.zeros(nodes, np.int8), np.full(nodes, -1, np.int32)
    return Tree(parent, name, [f"function_{n}" for n in range(int(name.max()) + 1)], kind, module)


def _names_apart(parent: np.ndarray) -> np.ndarray:
    order = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[order], parent[order])
    among = np.empty(len(parent), np.int64)
    among[order] = np.arange(len(parent)) - first
    # Families begin at different names, so that the same names occur under many parents.
    names: NDArray[np.int32] = (
        (among + (parent.astype(np.int64) + 1) * 7919 % NAMES) % max(NAMES, among.max() + 1)
    ).astype(np.int32)
    return names


def profiles(count: int, nodes: int) -> Iterator[Profile]:
    """Profiles that each lack a hundredth of the tree, other parts of it each."""
    tree, random = whole_tree(nodes), np.random.default_rng(12)
    for number in range(count):
        lost = np.zeros(nodes, bool)
        lost[random.integers(1, nodes, nodes // 300)] = True
        while (more := lost[1:] | lost[tree.parent[1:]]).sum() > lost[1:].sum():
            lost[1:] = more  # what a lost call site called is lost too
        yield _profile(tree, ~lost, number, random)


def _profile(tree: Tree, kept: np.ndarray, number: int, random: np.random.Generator) -> Profile:
    rows = np.flatnonzero(kept)
    parent = tree.parent[rows]
    place = np.full(len(tree), -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    smaller = Tree(
        np.where(parent >= 0, place[np.maximum(parent, 0)], -1).astype(np.int32),
        tree.name[rows],
        tree.names,
        tree.kind[rows],
        tree.module[rows],
    )
    # Half the memory of what a reader would make, as a bench of size must take.
    own: NDArray[Any] = random.random(len(rows), np.float32)
    whole: NDArray[Any] = own * 3
    return Profile(smaller, None, whole, own, own, ProfileInfo("run", number))


def _measure(count: int, nodes: int, pipe: multiprocessing.connection.Connection) -> None:
    stream_ensemble(profiles(2, 100))  # compiled before the clock starts
    made = time.process_time()
    for _ in profiles(count, nodes):
        pass
    making = time.process_time() - made
    before = time.process_time()
    found = stream_ensemble(profiles(count, nodes))
    spent = time.process_time() - before - making
    pipe.send((spent, peak_rss_mb(), len(found.tree), making))


def measure(count: int, nodes: int) -> tuple[float, float, int, float]:
    """CPU seconds without making the profiles, peak memory, united nodes; in a fresh process."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_measure, args=(count, nodes, theirs))
    process.start()
    answer: tuple[float, float, int, float] = ours.recv()
    process.join()
    return answer


def straightforward_s(count: int, nodes: int) -> float:
    """CPU seconds of dictionaries by path and ``np.percentile`` over the whole matrix."""
    made = list(profiles(count, nodes))
    before = time.process_time()
    known: dict[tuple[int, int], int] = {}
    values = np.full((nodes, count), np.nan)
    own = np.full((nodes, count), np.nan)
    for number, profile in enumerate(made):
        at: list[int] = []
        parents, names = profile.tree.parent.tolist(), profile.tree.name.tolist()
        for parent, name in zip(parents, names, strict=True):
            key = (at[parent] if parent >= 0 else -1, name)
            at.append(known.setdefault(key, len(known)))
        values[at, number], own[at, number] = profile.inclusive, profile.exclusive
    for matrix in (values, own):
        np.nanpercentile(matrix, [25, 50, 75], axis=1)
        np.nanmean(matrix, axis=1), np.nanstd(matrix, axis=1)
        np.nanmin(matrix, axis=1), np.nanmax(matrix, axis=1)
    return time.process_time() - before


def main() -> int:
    """Time and memory of the whole ensemble, and the ratio to the straightforward way."""
    results = Results()
    cpu_s, peak_mb, nodes, making = measure(PROFILES, NODES)
    size = f"{PROFILES:,} profiles × {nodes:,} united call sites, both metrics, no two trees alike"
    at_10x = "linear in time and in the temporary file; memory as here"
    print(f"  (making the profiles took {making:.1f} s more, which is not counted)", flush=True)
    results.against(
        "unite and describe, CPU",
        ratio=cpu_s / 15,
        target=1.0,
        rival=f"the limit of 15 s ({cpu_s:.1f} s)",
        size=size,
        at_10x=at_10x,
        higher_is_better=False,
    )
    results.against(
        "peak memory",
        ratio=peak_mb / 1024,
        target=1.0,
        rival=f"the limit of 1 GB ({peak_mb:.0f} MB)",
        size=size,
        at_10x=at_10x,
        higher_is_better=False,
    )
    rival_s = straightforward_s(PROFILES, RIVAL_NODES)
    ours_s, *_ = measure(PROFILES, RIVAL_NODES)
    results.against(
        "unite and describe",
        ratio=rival_s / ours_s,
        target=5.0,
        rival=f"dictionaries and np.nanpercentile ({rival_s:.1f} s; ours {ours_s:.2f} s)",
        size=f"{PROFILES:,} profiles × {RIVAL_NODES:,} call sites",
        at_10x="both linear; the rival's matrix outgrows memory",
    )
    return results.missed


if __name__ == "__main__":
    main()

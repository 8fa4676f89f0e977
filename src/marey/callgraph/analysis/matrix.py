"""The node × profile matrix of an ensemble, in memory or beside it.

Profiles come one by one; box plots need all values of a node. A small matrix is kept whole in
double precision. A large one is written to a temporary file as it comes, transposed in blocks of
profiles and in single precision, and read back a few nodes at a time: memory is bounded by a
block, whatever the number of profiles.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.graphs import CallGraphs
from marey.callgraph.profiles import Profile, ProfileInfo
from marey.callgraph.trees import Tree, Uniter
from marey.model.errors import InvalidInput

# More cells than this (both metrics: 320 MB) are kept in a file, in single precision.
MOST_CELLS_IN_MEMORY = 20_000_000
BLOCK_PROFILES = 64
CHUNK_CELLS = 4_000_000
WORDS = ("inclusive", "exclusive")

Chunk = tuple[int, dict[str, NDArray[Any]]]
# Profiles of a block, with the united nodes of their values.
Waiting = list[tuple[NDArray[np.int32], Profile]]


@dataclass
class ProfileSpill:
    """Blocks of profiles in a temporary file, rows of nodes together."""

    file: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    # Of each block: its place, the nodes known by then, its profiles.
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    size: int = 0
    # Used for every block again: fresh memory costs more than the values.
    rows: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    turned: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))

    def write(self, waiting: Waiting, nodes: int) -> None:
        """Write a block of profiles, nodes × profiles of one metric after the other."""
        cells = len(waiting) * nodes
        if cells > len(self.rows):
            self.rows = np.empty(cells, np.float32)
            self.turned = np.empty(cells, np.float32)
        rows = self.rows[:cells].reshape(len(waiting), nodes)
        turned = self.turned[:cells].reshape(nodes, len(waiting))
        self.blocks.append((self.size, nodes, len(waiting)))
        for word in WORDS:
            rows.fill(np.nan)
            for number, (at, profile) in enumerate(waiting):
                rows[number, at] = getattr(profile, word)
            np.copyto(turned, rows.T)
            self.file.write(turned.data)
            self.size += turned.nbytes

    def read(self, word: str, first: int, last: int, profiles: int) -> NDArray[np.float32]:
        """Return the rows of some nodes, NaN where a profile has no value."""
        out = np.full((last - first, profiles), np.nan, np.float32)
        column = 0
        for place, nodes, count in self.blocks:
            known = min(last, nodes) - first
            if known > 0:
                start = place + 4 * count * (nodes * WORDS.index(word) + first)
                self.file.seek(start)
                data = self.file.read(4 * count * known)
                block = np.frombuffer(data, np.float32).reshape(known, count)
                out[:known, column : column + count] = block
            column += count
        return out


@dataclass(frozen=True)
class Matrix:
    """Both metrics of an ensemble, read in chunks of nodes."""

    tree: Tree
    infos: list[ProfileInfo]
    unit: str
    whole: dict[str, NDArray[np.float64]] | None
    spill: ProfileSpill | None

    @property
    def precision(self) -> str:
        """Return how exact the values are."""
        return "double" if self.spill is None else "single"

    def chunks(self) -> Iterator[Chunk]:
        """Yield (first node, rows of both metrics) in order."""
        count, profiles = len(self.tree), len(self.infos)
        if self.whole is not None:
            yield 0, self.whole
            return
        assert self.spill is not None
        step = max(1, CHUNK_CELLS // max(profiles, 1))
        self.spill.file.flush()
        for first in range(0, count, step):
            last = min(first + step, count)
            yield first, {w: self.spill.read(w, first, last, profiles) for w in WORDS}


def matrix_of(graphs: CallGraphs) -> Matrix:
    """Return the matrix of graphs that are in memory already."""
    whole = {word: graphs.dense(word) for word in WORDS}
    return Matrix(graphs.tree, list(graphs.infos), graphs.unit, whole, None)


def stream_matrix(profiles: Iterable[Profile], unit: str = "ns") -> Matrix:
    """Unite profiles as they come; none of them is kept."""
    uniter, spill = Uniter(), ProfileSpill()
    infos: list[ProfileInfo] = []
    waiting: Waiting = []
    for profile in profiles:
        found = uniter.add(profile.tree)
        waiting.append((found if profile.nodes is None else found[profile.nodes], profile))
        infos.append(profile.info)
        if len(waiting) == BLOCK_PROFILES:
            spill.write(waiting, uniter.count)
            waiting.clear()
    if not infos:
        raise InvalidInput("There is no profile to unite.")
    if waiting:
        spill.write(waiting, uniter.count)
    spill.rows = spill.turned = np.empty(0, np.float32)
    return Matrix(uniter.tree(), infos, unit, None, spill)

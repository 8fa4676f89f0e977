"""Where each rank of a synthetic run stands: coordinates, host and groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Rank = (stage × data + replica) × tensor + shard, so that tensor groups share a host."""

    data: int = 8
    tensor: int = 1
    pipeline: int = 1
    # Parameters sharded over the data dimension, with gathers and scatters instead of all-reduce.
    sharded: bool = False
    micro_batches: int = 1
    schedule: str = "1f1b"  # or gpipe
    layers: int = 4  # per stage
    ranks_per_host: int = 8
    model: str = "transformer"  # or resnet50, which has 16 blocks
    # Where gradients are reduced: after each layer beside the backward that follows, or all of them
    # in one all-reduce after the last backward, with nothing left to hide it.
    reduce_at: str = "layer"  # or end
    # The gradients of a layer, in buckets.
    buckets: float = 1.0
    # Tensors of a layer whose gradients a profiler with shapes would show; then gradients are
    # reduced in buckets of this many bytes, as they become ready.
    tensors: int = 0
    bucket_bytes: int = 64 << 20
    # Batches before each update, the forward pass of layers run again, parameters let go between
    # the passes.
    accumulate: int = 1
    recompute: bool = False
    reshard: bool = True
    # Whether the trace tells forward, backward and update apart.
    phases: bool = False

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self.data * self.tensor * self.pipeline

    @cached_property
    def grid(self) -> Ints:
        """stage × replica × shard → rank."""
        shape = (self.pipeline, self.data, self.tensor)
        return np.arange(self.world, dtype=np.int64).reshape(shape)

    def stage_ranks(self, stage: int) -> Ints:
        """Return the ranks of one stage, by replica and shard."""
        ranks: Ints = self.grid[stage].reshape(-1)
        return ranks

    def replica_of(self, ranks: Ints) -> Ints:
        """Return the data-parallel index of ranks."""
        return (ranks // self.tensor) % self.data

    def host_of(self, ranks: Ints) -> Ints:
        """Return the host of ranks."""
        return ranks // self.ranks_per_host

    def groups(self) -> dict[str, list[tuple[int, ...]]]:
        """Map each kind to its groups of ranks; kinds of size one are left out."""
        found: dict[str, list[tuple[int, ...]]] = {}
        if self.tensor > 1:
            found["tensor"] = [tuple(g) for g in self.grid.reshape(-1, self.tensor).tolist()]
        if self.data > 1:
            across = np.swapaxes(self.grid, 1, 2).reshape(-1, self.data)
            found["data"] = [tuple(g) for g in across.tolist()]
        if self.pipeline > 1:
            along = self.grid.reshape(self.pipeline, -1).T
            found["pipeline"] = [tuple(g) for g in along.tolist()]
        return found

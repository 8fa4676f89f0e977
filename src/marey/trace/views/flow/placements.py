"""Placements that marey.record wrote: which parameters are gathered, and how they are cut."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from marey.model.errors import NotFound
from marey.trace.run.files import PLACEMENTS_SUFFIX, find_files
from marey.trace.views.flow.nodes import Sharding
from marey.trace.views.flow.strategies import state_sharding

FILE = "placements.json"
LARGEST_BYTES = 64 << 20
_SHARD = re.compile(r"^shard\((\d+)\)$")


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of the model."""

    name: str
    shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    mesh: tuple[int, ...]
    placements: tuple[str, ...]

    def count_slices(self) -> tuple[int, ...]:
        """Return the number of slices of each dimension."""
        slices = [1] * len(self.shape)
        for size, placement in zip(self.mesh, self.placements, strict=False):
            found = _SHARD.match(placement)
            if found is not None and int(found.group(1)) < len(slices):
                slices[int(found.group(1))] *= size
        return tuple(slices)


class PlacementFile(msgspec.Struct):
    """What one rank wrote."""

    parameters: list[Parameter] = []


def copy_placements(paths: Iterable[str | Path], folder: Path) -> None:
    """Keep the placements of the first rank that has them beside the tables of the run."""
    try:
        files = [f for f in find_files(list(paths)) if f.name.endswith(PLACEMENTS_SUFFIX)]
    except NotFound:
        return
    for path in files:
        found = read_placements(path)
        if found:
            (folder / FILE).write_bytes(msgspec.json.encode(PlacementFile(found)))
            return


def read_placements(path: Path) -> list[Parameter]:
    """Return the parameters of a file; none where it is missing or damaged."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return []
        return msgspec.json.decode(path.read_bytes(), type=PlacementFile).parameters
    except (OSError, msgspec.MsgspecError):
        return []


def find_gathered(shapes: str, parameters: list[Parameter]) -> Sharding | None:
    """Return how the parameters of a gather are cut, if their local sizes say which they are."""
    try:
        given = msgspec.json.decode(shapes, type=list[list[int | list[int]]])[0]
    except (msgspec.MsgspecError, IndexError):
        return None
    sizes = [math.prod(one) for one in given if isinstance(one, list)]
    local = [math.prod(one.local_shape) for one in parameters]
    starts = range(len(local) - len(sizes) + 1) if sizes else ()
    found = {
        tuple(one.count_slices() for one in parameters[n : n + len(sizes)])
        for n in starts
        if local[n : n + len(sizes)] == sizes
    }
    return state_sharding(found.pop()) if len(found) == 1 else None

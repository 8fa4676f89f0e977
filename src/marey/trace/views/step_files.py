"""The intervals of a step, of all ranks: records in two files that are mapped, not read.

Rank after rank, so that writing holds one rank in memory and a picture touches only what it shows.
Times are ticks since the step began (a tick is a nanosecond unless the step is longer than four
seconds).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from marey.model.errors import NotFound
from marey.model.system.atomic_file import write_file
from marey.trace.views.cells import StepSurfaces
from marey.trace.views.surfaces import SURFACE, Surface, majority

# Raise when what is written changes; older files are made again.
VIEWS_FORMAT = 1
Ints = NDArray[np.int64]
BAND = np.dtype(
    [
        ("start", np.uint32),
        ("end", np.uint32),
        ("stream", np.int64),
        ("name", np.int32),
        # The host operator that launched it; codes as `name`.
        ("host_operator", np.int32),
        ("module", np.int32),
        ("shapes", np.int32),
        ("operator", np.int32),
        ("item", np.int32),
        ("event", np.int32),
        # The outermost host operator that it runs in or was launched from, and that of its forward.
        ("root", np.int32),
        ("forward", np.int32),
        ("micro_batch", np.int16),
        ("kind", np.uint8),
        ("phase", np.int8),
        ("confidence", np.uint8),
        # Which of several steps on one axis it is in; 0 where there is one.
        ("nth_step", np.uint8),
    ]
)
# The majority of a stage is taken over at most this many of its ranks, evenly chosen.
VOTERS = 63


class StepIndex(msgspec.Struct):
    """What a step's files hold."""

    step: int
    start_ns: int
    end_ns: int
    unit_ns: int
    ranks: list[int]
    stages: list[int]
    band_offsets: list[int]
    surface_offsets: list[int]
    format: int = VIEWS_FORMAT
    # The steps on this axis and when each began; empty where there is one.
    steps: list[int] = []
    step_starts_ns: list[int] = []

    def list_steps(self) -> list[int]:
        """Return the steps on this axis, in order."""
        return self.steps or [self.step]

    def list_starts_ns(self) -> list[int]:
        """Return when each of them began, on the run's clock."""
        return self.step_starts_ns or [self.start_ns]


@dataclass
class StepWriter:
    """Appends one rank after the other to a step's files."""

    folder: Path
    step: int
    start_ns: int
    end_ns: int
    # Where several steps share an axis: which, and when each began.
    steps: list[int] = field(default_factory=list)
    step_starts_ns: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    _bands: list[int] = field(default_factory=lambda: [0])
    _pieces: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("bands", "surface"):
            (self.folder / f"{name}.bin").write_bytes(b"")

    @property
    def unit_ns(self) -> int:
        """How many nanoseconds a tick is."""
        return max(1, -(-(self.end_ns - self.start_ns) // (2**32 - 2)))

    def ticks(self, times_ns: Ints) -> Ints:
        """Return times on the run's clock as ticks of this step, cut to its span."""
        inside = np.clip(times_ns, self.start_ns, self.end_ns) - self.start_ns
        ticks: Ints = inside // self.unit_ns
        return ticks

    def add(self, rank: int, stage: int, bands: NDArray[np.void], surface: Surface) -> None:
        """Keep one rank."""
        for name, rows, offsets in (
            ("bands", bands, self._bands),
            ("surface", surface, self._pieces),
        ):
            with (self.folder / f"{name}.bin").open("ab") as file:
                _append(file, rows)
            offsets.append(offsets[-1] + len(rows))
        self.ranks.append(rank)
        self.stages.append(stage)

    def close(self) -> None:
        """Write the index: only now the step can be opened."""
        index = StepIndex(
            step=self.step,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            unit_ns=self.unit_ns,
            ranks=self.ranks,
            stages=self.stages,
            band_offsets=self._bands,
            surface_offsets=self._pieces,
            steps=self.steps,
            step_starts_ns=self.step_starts_ns,
        )
        write_file(self.folder / "index.json", msgspec.json.encode(index))


def _append(file: BinaryIO, rows: NDArray[np.void]) -> None:
    if len(rows):
        file.write(np.ascontiguousarray(rows).tobytes())


@dataclass(frozen=True)
class StepView:
    """A step's intervals, opened without reading them."""

    index: StepIndex
    bands: NDArray[np.void]
    pieces: Surface
    folder: Path | None = None

    @property
    def span(self) -> int:
        """The whole step in ticks."""
        return (self.index.end_ns - self.index.start_ns) // self.index.unit_ns

    @cached_property
    def rank_places(self) -> dict[int, int]:
        """Rank → its place in the files."""
        return {rank: place for place, rank in enumerate(self.index.ranks)}

    def bands_of(self, rank: int) -> NDArray[np.void]:
        """Return the bands of one rank."""
        place = self.rank_places.get(rank)
        if place is None:
            return np.empty(0, BAND)
        offsets = self.index.band_offsets
        return self.bands[offsets[place] : offsets[place + 1]]

    def pieces_of(self, rank: int) -> Surface:
        """Return the surface of one rank."""
        place = self.rank_places.get(rank)
        if place is None:
            return np.empty(0, SURFACE)
        offsets = self.index.surface_offsets
        return self.pieces[offsets[place] : offsets[place + 1]]

    @cached_property
    def surfaces(self) -> StepSurfaces:
        """The surfaces of all ranks, with what most ranks of each stage show."""
        offsets = np.array(self.index.surface_offsets, np.int64)
        stages = np.array(self.index.stages, np.int64)
        numbers, of = np.unique(stages, return_inverse=True)
        references = [
            self._reference(np.flatnonzero(of == n), offsets) for n in range(len(numbers))
        ]
        lengths = np.array([0, *(len(r) for r in references)], np.int64)
        joined = np.concatenate(references) if references else np.empty(0, SURFACE)
        return StepSurfaces(
            pieces=self.pieces,
            offsets=offsets,
            reference_pieces=joined,
            reference_offsets=np.cumsum(lengths),
            reference_of=of.astype(np.int64).reshape(-1),
            span=max(self.span, 1),
        )

    def _reference(self, places: Ints, offsets: Ints) -> Surface:
        chosen = places[np.linspace(0, len(places) - 1, min(VOTERS, len(places))).astype(np.int64)]
        return majority([np.asarray(self.pieces[offsets[p] : offsets[p + 1]]) for p in chosen])


def open_step(folder: Path) -> StepView:
    """Open a step's files; an error where they were never written or were written by an older
    Marey.
    """
    try:
        index = msgspec.json.decode((folder / "index.json").read_bytes(), type=StepIndex)
    except (OSError, msgspec.MsgspecError):
        index = None
    if index is None or index.format != VIEWS_FORMAT:
        raise NotFound(f"Step {folder.name} of this run has no intervals; convert the run again.")
    return StepView(
        index, _map(folder / "bands.bin", BAND), _map(folder / "surface.bin", SURFACE), folder
    )


def _map(path: Path, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")

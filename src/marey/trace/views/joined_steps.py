"""Several steps of a run on one axis of time: their intervals written as if they were one step."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.trace.views.step_files import BAND, StepView, StepWriter, open_step
from marey.trace.views.surfaces import SURFACE, Surface, flatten

Ints = NDArray[np.int64]
# A band says in one byte which of the steps it is in; more than these are not told apart anyway.
MOST_STEPS = 64
# Two gigabytes of bands.
MOST_BANDS = 40_000_000


def join_steps(views: Sequence[StepView], folder: Path) -> StepView:
    """Return neighbouring steps as one view; it is written to ``folder`` the first time.

    Times count from the start of the first step. A band keeps the number of its operator and says
    which of the steps it is in. Where the end of one step overlaps the start of the next on a rank,
    the surface shows what the view draws first, as within a step.
    """
    if not (folder / "index.json").exists():
        _check_size(views)
        draft = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
        try:
            _write(views, draft)
            if not folder.exists():
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return open_step(folder)


def _check_size(views: Sequence[StepView]) -> None:
    bands = sum(len(view.bands) for view in views)
    if len(views) > MOST_STEPS or bands > MOST_BANDS:
        raise InvalidInput(
            f"{len(views)} steps with {bands:,} intervals do not fit on one axis; "
            f"allowed: {MOST_STEPS} steps and {MOST_BANDS:,} intervals. Choose fewer steps."
        )


def _write(views: Sequence[StepView], folder: Path) -> None:
    indexes = [view.index for view in views]
    first = indexes[0]
    writer = StepWriter(
        folder,
        first.step,
        min(index.start_ns for index in indexes),
        max(index.end_ns for index in indexes),
        steps=[index.step for index in indexes],
        step_starts_ns=[index.start_ns for index in indexes],
    )
    stages = {
        rank: stage
        for index in indexes
        for rank, stage in zip(index.ranks, index.stages, strict=True)
    }
    for rank in sorted(stages):
        bands, surface = _join_rank(views, rank, writer)
        writer.add(rank, stages[rank], bands, surface)
    writer.close()


def _join_rank(
    views: Sequence[StepView], rank: int, writer: StepWriter
) -> tuple[NDArray[np.void], Surface]:
    bands, pieces = [np.empty(0, BAND)], [np.empty(0, SURFACE)]
    for nth, view in enumerate(views):
        own = _move(view.bands_of(rank), view, writer)
        own["nth_step"] = nth
        bands.append(own)
        pieces.append(_move(view.pieces_of(rank), view, writer))
    joined = np.concatenate(bands)
    flat = np.concatenate(pieces)
    surface = flatten(
        flat["start"].astype(np.int64), flat["end"].astype(np.int64), flat["kind"].astype(np.int64)
    )
    return joined[np.argsort(joined["start"], kind="stable")], surface


def _move(rows: NDArray[np.void], view: StepView, writer: StepWriter) -> NDArray[np.void]:
    """Return rows with their times in ticks of the joined view."""
    moved = np.array(rows)
    index = view.index
    for side in ("start", "end"):
        times_ns = index.start_ns + rows[side].astype(np.int64) * index.unit_ns
        moved[side] = writer.ticks(times_ns)
    return moved

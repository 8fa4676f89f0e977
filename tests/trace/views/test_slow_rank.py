"""One slow rank among 1,024: a row of its own, seen in every window, at every height of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from marey.trace.views.bands import BandWindow, list_bands
from marey.trace.views.cells import Cells, CellWindow
from marey.trace.views.clusters import find_clusters
from marey.trace.views.orders import find_order
from marey.trace.views.step_files import BAND, StepIndex, StepView
from marey.trace.views.surfaces import SURFACE
from marey.trace.views.view_files import RunViews, StepPictures
from marey.trace.views.view_kinds import FIRST_IDLE, ViewKind

pytestmark = pytest.mark.slow

RANKS, STAGES, OPERATORS, SLOW = 1024, 8, 512, 389
EVERY = 8
SLOWER = 1.3


class Ordered(StepPictures):
    """A step whose ranks stand in the order of their numbers."""

    def order(self, name: str) -> NDArray[np.int64]:
        return np.arange(RANKS, dtype=np.int64)


def make_step() -> StepView:
    """Ranks that meet after every eighth operator; one computes 30 % longer until it meets them."""
    rng = np.random.default_rng(11)
    lasts = rng.integers(30_000, 90_000, OPERATORS).reshape(-1, EVERY)
    meets = np.arange(EVERY) == EVERY - 1
    own = np.repeat(lasts[None], RANKS, axis=0).astype(float)
    own *= rng.uniform(0.99, 1.01, own.shape)
    own[SLOW, :, :-1] *= SLOWER
    ends_compute = own[:, :, :-1].sum(axis=2)
    bound = np.cumsum(ends_compute.max(axis=0) + lasts[:, -1])
    begin = np.concatenate([[0], bound[:-1]])
    starts = begin[None, :, None] + np.cumsum(own, axis=2) - own
    ends = starts + own
    ends[:, :, -1] = bound
    kinds = np.where(meets, ViewKind.COLLECTIVE, ViewKind.COMPUTE)
    pieces = np.zeros((RANKS, OPERATORS), SURFACE)
    bands = np.zeros((RANKS, OPERATORS), BAND)
    for rows in (pieces, bands):
        rows["start"], rows["end"] = starts.reshape(RANKS, -1), ends.reshape(RANKS, -1)
        rows["kind"] = np.tile(kinds, OPERATORS // EVERY)
    bands["operator"] = np.arange(OPERATORS)
    bands["confidence"] = 255
    offsets = list(range(0, RANKS * OPERATORS + 1, OPERATORS))
    index = StepIndex(
        step=1,
        start_ns=0,
        end_ns=int(bound[-1]),
        unit_ns=1,
        ranks=list(range(RANKS)),
        stages=(np.arange(RANKS) * STAGES // RANKS).tolist(),
        band_offsets=offsets,
        surface_offsets=offsets,
    )
    return StepView(index, bands.reshape(-1), pieces.reshape(-1))


STEP = make_step()
PICTURES = Ordered(RunViews(Path()), STEP)
NAMES = pa.array(["operator"])


def find_deviations() -> NDArray[np.int64]:
    """Return start and end of every stretch in which the slow rank does not do what its stage does.

    Counted moment by moment from both surfaces, without the code that draws.
    """
    own = STEP.pieces_of(SLOW)
    stage = STEP.index.stages[SLOW]
    surfaces = STEP.surfaces
    place = sorted(set(STEP.index.stages)).index(stage)
    low, high = surfaces.reference_offsets[place : place + 2]
    theirs = surfaces.reference_pieces[low:high]
    edges = np.unique(np.concatenate([p[side] for p in (own, theirs) for side in ("start", "end")]))
    middle = (edges[:-1].astype(float) + edges[1:]) / 2

    def kind_at(pieces: NDArray[np.void]) -> NDArray[np.int64]:
        at = np.searchsorted(pieces["start"], middle, side="right") - 1
        inside = (at >= 0) & (middle < pieces["end"][np.maximum(at, 0)])
        kind = np.where(inside, pieces["kind"][np.maximum(at, 0)], 0).astype(np.int64)
        return np.where(kind >= FIRST_IDLE, 0, kind)

    differs = kind_at(own) != kind_at(theirs)
    changes = np.diff(np.concatenate([[0], differs.astype(np.int8), [0]]))
    first, last = np.flatnonzero(changes == 1), np.flatnonzero(changes == -1)
    return np.stack([edges[first], edges[last]], axis=1).astype(np.int64)


DEVIATIONS = find_deviations()


def test_the_slow_rank_and_nobody_else_is_named_in_every_order() -> None:
    behaviour = find_clusters(STEP)
    assert np.flatnonzero(behaviour.outlier).tolist() == [SLOW]
    ranks = np.arange(RANKS)
    columns = {
        "rank": ranks,
        "stage": np.array(STEP.index.stages),
        "replica": ranks % 16,
        "shard": ranks % 8,
        "host": np.array([f"node{r // 8}" for r in ranks], object),
    }
    for order in ("stage", "host", "lateness", "cluster"):
        places = find_order(order, columns, behaviour, np.zeros(RANKS))
        assert sorted(places.tolist()) == ranks.tolist()
    assert behaviour.size[SLOW] == 1
    assert behaviour.exemplar[SLOW]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    which=st.integers(0, len(DEVIATIONS) - 1),
    zoom=st.floats(0, 4),
    offset=st.floats(0, 1),
    rows=st.integers(1, RANKS),
    columns=st.integers(50, 2000),
)
def test_a_deviation_wider_than_a_pixel_is_seen_in_every_window_and_row_height(
    which: int, zoom: float, offset: float, rows: int, columns: int
) -> None:
    first, last = DEVIATIONS[which]
    width = max(columns, int(STEP.span / 10**zoom))
    start = int(np.clip(first - offset * width, 0, STEP.span - width))
    window = CellWindow(start, start + width, columns, rows)
    seen = min(last, window.end) - max(first, window.start)
    cells = PICTURES.cells("stage", 0, RANKS, window)
    strongest = int(find_row(cells).max())
    # What is a pixel wide lies in one column or across two: at least half of one of them.
    if seen >= width / columns:
        assert strongest >= 127
    # Its bands come too, as wide as they are.
    bands, _ = list_bands(
        STEP,
        [SLOW],
        BandWindow(window.start, window.end, int(width / columns * 0.5)),
        names=NAMES,
    )
    own = STEP.bands_of(SLOW)
    inside = (own["end"] > window.start) & (own["start"] < window.end)
    wide = inside & (own["end"].astype(np.int64) - own["start"] >= width / columns)
    assert set(own["operator"][wide].tolist()) <= set(bands["operator"].to_pylist())


def find_row(cells: Cells) -> NDArray[np.uint8]:
    """Return the deviations of the row that holds the slow rank."""
    row = int(np.searchsorted(cells.bounds, SLOW, side="right")) - 1
    deviations: NDArray[np.uint8] = cells.deviation[row]
    return deviations


@pytest.mark.parametrize("rows", [1, 8, 100, 1024])
def test_the_whole_step_shows_it_from_the_pyramid_too(rows: int) -> None:
    window = CellWindow(0, STEP.span, 1200, rows)
    cells = PICTURES.cells("stage", 0, RANKS, window)
    assert cells.from_pyramid
    assert find_row(cells).max() >= 127

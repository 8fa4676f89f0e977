"""Cells equal a brute-force count, from intervals and from the pyramid, and hide no deviation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from marey.trace.views.cells import (
    HEADER,
    Cells,
    CellWindow,
    StepSurfaces,
    build_pyramid,
    draw_cells,
    draw_from_pyramid,
)
from marey.trace.views.surfaces import SURFACE, flatten, majority
from marey.trace.views.view_files import RunViews
from marey.trace.views.view_kinds import FIRST_IDLE, KIND_COUNT, ViewKind

SPAN = 100_000


def make_surfaces(ranks: int, seed: int, *, slow: int = -1) -> StepSurfaces:
    """Return ranks that alternate between kinds; ``slow`` computes one piece longer than the
    rest.
    """
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice(np.arange(1, SPAN), 400, replace=False))
    kinds = rng.integers(0, KIND_COUNT, len(edges) - 1)
    parts = []
    for rank in range(ranks):
        start, end = edges[:-1].astype(np.int64), edges[1:].astype(np.int64)
        kind = kinds.copy()
        if rank == slow:
            kind[100:110] = ViewKind.COMPUTE
        parts.append(flatten(start, end, kind))
    offsets = np.cumsum([0, *(len(p) for p in parts)]).astype(np.int64)
    reference = majority(parts)
    return StepSurfaces(
        pieces=np.concatenate(parts),
        offsets=offsets,
        reference_pieces=reference,
        reference_offsets=np.array([0, len(reference)], np.int64),
        reference_of=np.zeros(ranks, np.int64),
        span=SPAN,
    )


def paint(pieces: np.ndarray) -> np.ndarray:
    """Return the kind of every tick."""
    kinds = np.zeros(SPAN, np.int64)
    for piece in pieces:
        kinds[piece["start"] : piece["end"]] = piece["kind"]
    return kinds


def check_against_ticks(cells: Cells, surfaces: StepSurfaces, members: np.ndarray) -> None:
    """Count tick by tick what each cell covers, and compare kind, level and deviation."""
    painted = [paint(surfaces.pieces[a:b]) for a, b in pairwise(surfaces.offsets)]
    reference = paint(surfaces.reference_pieces)
    window = cells.window
    edges = np.linspace(window.start, window.end, window.columns + 1)
    for row in range(len(cells.bounds) - 1):
        ranks = members[cells.bounds[row] : cells.bounds[row + 1]]
        for column in range(window.columns):
            low, high = round(edges[column]), round(edges[column + 1])
            own = np.stack([painted[rank][low:high] for rank in ranks])
            count = np.bincount(own.reshape(-1), minlength=KIND_COUNT) / own.size
            kind, level = cells.kinds[row, column] >> 4, cells.kinds[row, column] & 15
            assert abs(level / 15 - count[1:].max()) <= 1.51 / 15
            if kind:
                assert count[kind] >= count[1:].max() - 1 / 15
            idle = (own >= FIRST_IDLE) | (own == 0)
            there = reference[low:high]
            same = (own == there) | (idle & ((there >= FIRST_IDLE) | (there == 0)))
            most = (~same).mean(axis=1).max()
            if not cells.from_pyramid:
                assert abs(cells.deviation[row, column] / 255 - most) < 0.01
            assert cells.deviation[row, column] / 255 >= most - 0.01


@pytest.mark.parametrize(("start", "end", "columns"), [(0, SPAN, 50), (12_000, 52_000, 40)])
def test_cells_equal_a_count_tick_by_tick(start: int, end: int, columns: int) -> None:
    surfaces = make_surfaces(6, 3, slow=4)
    members = np.array([0, 4, 2, 3, 1, 5], np.int64)
    cells = draw_cells(surfaces, members, CellWindow(start, end, columns, 3))
    assert cells.kinds.shape == (3, columns)
    check_against_ticks(cells, surfaces, members)


def test_cells_from_the_pyramid_equal_a_count_too() -> None:
    surfaces = make_surfaces(8, 4, slow=5)
    members = np.arange(8)
    pyramid = build_pyramid(surfaces, members, bins=4000)
    cells = draw_from_pyramid(pyramid, CellWindow(20_000, 70_000, 900, 4), 0, 8)
    assert cells is not None
    assert cells.from_pyramid
    assert cells.window.start <= 20_000
    assert cells.window.end >= 70_000
    assert cells.kinds.shape[1] >= 900
    check_against_ticks(cells, surfaces, members)


def test_a_window_finer_than_the_pyramid_is_not_drawn_from_it() -> None:
    pyramid = build_pyramid(make_surfaces(4, 1), np.arange(4), bins=2048)
    assert draw_from_pyramid(pyramid, CellWindow(0, 1000, 500, 4), 0, 4) is None


def test_one_deviating_rank_among_many_is_seen_at_every_zoom() -> None:
    surfaces = make_surfaces(256, 9, slow=170)
    members = np.arange(256)
    pyramid = build_pyramid(surfaces, members, bins=2048)
    own = surfaces.pieces[surfaces.offsets[170] : surfaces.offsets[171]]
    reference = paint(surfaces.reference_pieces)
    differs = np.flatnonzero(paint(own) != reference)
    for zoom in (1, 4, 8):
        width = SPAN // zoom
        start = max(0, min(int(differs[0]) - width // 2, SPAN - width))
        window = CellWindow(start, start + width, 200, 60)
        for cells in (
            draw_cells(surfaces, members, window),
            draw_from_pyramid(pyramid, window, 0, 256),
        ):
            assert cells is not None
            row = int(np.searchsorted(cells.bounds, 170, side="right")) - 1
            assert cells.deviation[row].max() >= 100
            quiet = np.delete(cells.deviation, row, axis=0)
            assert quiet.max() == 0


def test_a_rank_that_was_not_traced_is_an_empty_row() -> None:
    surfaces = make_surfaces(3, 2)
    cells = draw_cells(surfaces, np.array([0, -1, 2]), CellWindow(0, SPAN, 20, 3))
    assert not cells.kinds[1].any()
    assert cells.kinds[0].any()


def test_a_picture_travels_with_its_size_and_what_each_row_covers() -> None:
    cells = draw_cells(make_surfaces(5, 2), np.arange(5), CellWindow(10, 510, 7, 2))
    sent = cells.encode(3)
    head = np.frombuffer(sent[: HEADER.itemsize], HEADER)[0]
    assert HEADER.itemsize == 40
    assert (head["magic"], head["rows"], head["columns"]) == (b"MCEL", 2, 7)
    assert (head["from_ns"], head["to_ns"], head["ranks"]) == (30, 1530, 5)
    bounds = np.frombuffer(sent[40:52], "<u4")
    assert bounds.tolist() == [0, 2, 5]
    planes = np.frombuffer(sent[52:], np.uint8).reshape(2, 2, 7)
    assert np.array_equal(planes[0], cells.kinds)
    assert np.array_equal(planes[1], cells.deviation)


def test_where_streams_overlap_compute_is_drawn() -> None:
    start, end = np.array([0, 5, 30]), np.array([20, 40, 35])
    kind = np.array([ViewKind.COMPUTE, ViewKind.COLLECTIVE, ViewKind.SEND])
    pieces = flatten(start, end, kind)
    assert pieces.dtype == SURFACE
    assert [tuple(map(int, p)) for p in pieces] == [
        (0, 20, ViewKind.COMPUTE),
        (20, 30, ViewKind.COLLECTIVE),
        (30, 35, ViewKind.SEND),
        (35, 40, ViewKind.COLLECTIVE),
    ]


def test_a_slow_rank_stands_out_in_every_step_of_a_written_run(slow_views: RunViews) -> None:
    for row in slow_views.index.steps:
        pictures = slow_views.step(row["step"])
        ranks = len(pictures.view.index.ranks)
        cells = pictures.cells("stage", 0, ranks, CellWindow(0, pictures.view.span, 300, 8))
        assert cells.deviation.max() > 128

"""A rank whose clock is wrong by half a millisecond stands where it stood, within the stated
error.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from marey.trace.analysis import analyse
from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic import Layout, Scenario, make_run
from marey.trace.views.making.view_writer import write_views
from marey.trace.views.view_files import RunViews

# A host per rank: ranks of one host have one clock, which none of them can shift alone.
LAYOUT = Layout(data=4, tensor=2, layers=4, ranks_per_host=1)
SHIFTED = 5


@pytest.fixture(scope="module")
def recorded() -> TraceRun:
    return make_run(Scenario(LAYOUT, steps=3, seed=8)).run


def shift_rank(run: TraceRun, rank: int, shift_ns: int) -> TraceRun:
    """Return the run as it had been recorded with one clock ahead by so much."""
    tables = {one: run.events(one) for one in run.ranks}
    events = tables[rank]
    place = events.schema.get_field_index("start_ns")
    moved = pa.array(events["start_ns"].to_numpy() + shift_ns)
    tables[rank] = events.set_column(place, events.schema.field(place), moved)
    return TraceRun.from_tables(tables, {one: run.info(one) for one in run.ranks}, run.symbols)


def write(run: TraceRun, folder: Path) -> RunViews:
    write_views(run, analyse(run), folder)
    return RunViews(folder)


@pytest.mark.parametrize("shift_ns", [500_000, -500_000])
@pytest.mark.parametrize("rank", [0, SHIFTED])
def test_bands_and_surfaces_move_by_no_more_than_the_stated_error(
    recorded: TraceRun, tmp_path: Path, rank: int, shift_ns: int
) -> None:
    before = write(recorded, tmp_path / "before")
    after = write(shift_rank(recorded, rank, shift_ns), tmp_path / "after")
    # Each picture is right within its own error.
    allowed_ns = 1e3 * (before.index.clock["error_us"] + after.index.clock["error_us"]) + 2
    assert allowed_ns < 0.1 * abs(shift_ns)
    for step in (0, 1, 2):
        old, new = before.step(step).view, after.step(step).view
        for one in old.index.ranks:
            bands, moved = old.bands_of(one), new.bands_of(one)
            bands, moved = bands[np.argsort(bands["event"])], moved[np.argsort(moved["event"])]
            assert np.array_equal(bands["operator"], moved["operator"])
            for side in ("start", "end"):
                apart = bands[side].astype(np.int64) - moved[side]
                assert np.abs(apart).max() <= allowed_ns
        assert [r["outlier"] for r in before.step(step).rows("stage").to_pylist()] == [
            r["outlier"] for r in after.step(step).rows("stage").to_pylist()
        ]

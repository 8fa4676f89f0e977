"""What was written for a run, opened: tables when asked for, steps as mapped files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, NotFound
from marey.trace.run.trace_run import spans
from marey.trace.views.cells import (
    PYRAMID_BINS,
    Cells,
    CellWindow,
    Pyramid,
    build_pyramid,
    draw_cells,
    draw_from_pyramid,
)
from marey.trace.views.clusters import RankClusters, find_clusters
from marey.trace.views.flops import count_flops
from marey.trace.views.joined_steps import join_steps
from marey.trace.views.orders import find_order, measure_lateness, rank_columns, tabulate_rows
from marey.trace.views.step_files import VIEWS_FORMAT, StepView, open_step
from marey.trace.views.view_index import ViewIndex

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# Below this many pieces in a window they are drawn as they are; above, from the pyramid.
WORTH_A_PYRAMID = 400_000
# Each is some hundred megabytes of a large run.
MOST_PYRAMIDS = 2


@dataclass
class RunViews:
    """The views of one run; safe to ask from several threads."""

    folder: Path
    _steps: dict[tuple[int, int], StepPictures] = field(default_factory=dict)
    _pyramids: OrderedDict[tuple[int, int, str], Pyramid] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def index(self) -> ViewIndex:
        """The facts about the run."""
        try:
            found = msgspec.json.decode((self.folder / "index.json").read_bytes(), type=ViewIndex)
        except (OSError, msgspec.MsgspecError):
            found = None
        if found is None or found.format != VIEWS_FORMAT:
            raise NotFound("This run has not been converted yet; convert it first.")
        return found

    def table(self, name: str) -> pa.Table:
        """Return one of the tables that were written."""
        try:
            return pq.read_table(self.folder / f"{name}.parquet", partitioning=None)
        except FileNotFoundError:
            raise NotFound("This run was deleted or is being converted again.") from None

    def count_operators(self) -> int:
        """Return how many operators have a number; all are smaller than that."""
        return int(pq.read_metadata(self.folder / "operators.parquet").num_rows)

    @cached_property
    def names(self) -> pa.Array:
        """The texts of the run's symbols."""
        return self.table("names")["text"].combine_chunks()

    @cached_property
    def stages(self) -> dict[int, int]:
        """Rank → stage."""
        return {row["rank"]: row["stage"] for row in self.index.ranks}

    @cached_property
    def first_step(self) -> int | None:
        """The step that is shown first: the second, which is no warm-up, if anything ran in it."""
        known = [row["step"] for row in self.index.steps]
        # Of a long run only the first steps have intervals.
        written = [s for s in known if (self.folder / "steps" / str(s) / "index.json").exists()]
        for step in [*written[1:], *written[:1]]:
            if len(open_step(self.folder / "steps" / str(step)).bands):
                return int(step)
        return int(known[0]) if known else None

    def step(self, step: int | None, through: int | None = None) -> StepPictures:
        """Return a step, or all from one through another on one axis of time.

        Where none is named it is the one that is shown first.
        """
        known = [row["step"] for row in self.index.steps]
        if step is None:
            step = self.first_step if self.first_step is not None else -1
        last = step if through is None else through
        for one in (step, last):
            if one not in known:
                raise NotFound(f"Unknown step {one}; this run has steps {spans(sorted(known))}.")
        chosen = known[known.index(step) : known.index(last) + 1]
        if not chosen:
            raise InvalidInput(f"through={last} comes before step={step}.")
        with self._lock:
            if (step, last) not in self._steps:
                self._steps[step, last] = StepPictures(self, self._open(chosen))
            return self._steps[step, last]

    def _open(self, steps: list[int]) -> StepView:
        folder = self.folder / "steps"
        views = [open_step(folder / str(step)) for step in steps]
        if len(views) == 1:
            return views[0]
        return join_steps(views, folder / f"{steps[0]}-{steps[-1]}")

    def pyramid(self, pictures: StepPictures, order: str, places: Ints) -> Pyramid:
        """Return the pyramid of a step in an order; the last few stay in memory."""
        steps = pictures.view.index.list_steps()
        key = (steps[0], steps[-1], order)
        with self._lock:
            if key not in self._pyramids:
                self._pyramids[key] = build_pyramid(
                    pictures.view.surfaces, places, bins=PYRAMID_BINS
                )
            self._pyramids.move_to_end(key)
            while len(self._pyramids) > MOST_PYRAMIDS:
                self._pyramids.popitem(last=False)
            return self._pyramids[key]


@dataclass
class StepPictures:
    """Everything that is drawn of one step."""

    run: RunViews
    view: StepView

    @cached_property
    def behaviour(self) -> RankClusters:
        """Which ranks behave alike."""
        return find_clusters(self.view)

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Where each rank stands."""
        return rank_columns(self.run.index.ranks, self.view)

    @cached_property
    def lateness_us(self) -> Floats:
        """How late each rank comes to collectives."""
        members, items = self.run.table("members"), self.run.table("items")
        index = self.view.index
        return measure_lateness(members, items, index.list_steps(), index.ranks)

    def order(self, name: str) -> Ints:
        """Return the places of the step's ranks in an order."""
        return find_order(name, self.columns, self.behaviour, self.lateness_us)

    def rows(self, order: str) -> pa.Table:
        """Return the rows of the view."""
        ranks = self.view.index.ranks
        peaks = self._peaks()
        beside: dict[str, list[Any]] = {
            "lateness_us": self.lateness_us.tolist(),
            "flops": count_flops(self.view, self.run.names),
            "peak_memory_bytes": [peaks.get(rank) for rank in ranks],
            "streams": [np.unique(self.view.bands_of(rank)["stream"]).tolist() for rank in ranks],
        }
        return tabulate_rows(
            self.order(order),
            self.columns,
            self.behaviour,
            beside=beside,
            missing=self.run.index.missing,
        )

    def _peaks(self) -> Mapping[int, int]:
        memory = self.run.table("memory")
        index = self.view.index
        time = memory["time_ns"].to_numpy()
        inside = memory.filter(pa.array((time >= index.start_ns) & (time <= index.end_ns)))
        found = inside.group_by("rank").aggregate([("allocated_bytes", "max")])
        return dict(
            zip(found["rank"].to_pylist(), found["allocated_bytes_max"].to_pylist(), strict=True)
        )

    def cells(self, order: str, first: int, last: int, window: CellWindow) -> Cells:
        """Return the picture of positions ``first … last - 1`` of an order."""
        places = self.order(order)
        first, last = max(0, first), min(len(places), last)
        if self._is_heavy(last - first, window):
            found = draw_from_pyramid(self.run.pyramid(self, order, places), window, first, last)
            if found is not None:
                return found
        return draw_cells(self.view.surfaces, places[first:last], window)

    def cells_of(self, ranks: list[int], window: CellWindow) -> Cells:
        """Return the picture of these ranks in this order; a rank that was not traced is empty."""
        known = self.view.rank_places
        places = np.array([known.get(rank, -1) for rank in ranks], np.int64)
        return draw_cells(self.view.surfaces, places, window)

    def _is_heavy(self, ranks: int, window: CellWindow) -> bool:
        everything = len(self.view.pieces) / max(len(self.view.index.ranks), 1) * ranks
        share = (window.end - window.start) / max(self.view.span, 1)
        return everything * min(share, 1.0) > WORTH_A_PYRAMID

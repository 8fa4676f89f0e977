"""The Marey view of a step as a widget: ranks as rows, operators as bands through them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import traitlets

from marey.app.queries.table_queries import Reply
from marey.app.traces.trace_queries import ask_bands, ask_rows, ask_time_spans, draw
from marey.live.wire_format import arrow_stream
from marey.model.errors import InvalidInput, MareyError, unknown
from marey.model.training.selections import parse_selection
from marey.notebook.run_pictures import draw_ranks
from marey.notebook.selected_tables import Table, convert_table
from marey.notebook.widget_base import STATIC, NotebookView
from marey.trace.views.bands import BandWindow, list_bands
from marey.trace.views.cells import CellWindow
from marey.trace.views.view_files import RunViews, StepPictures

ORDERS = ("stage", "host", "lateness", "cluster")
LONGEST_NS = 1 << 62
# A page asks for what it shows; more columns or rows than this no screen has.
MOST_CELLS = 4096
MOST_BANDS = 60_000


class MareyView(NotebookView):
    """A step of a run, every rank a row.

    The page asks for what it shows, so a run of any size opens at once. ``selection`` is the text
    that the web app and ``marey trace`` take: ranks, operators and names, never row numbers.
    """

    bundle = STATIC / "runs.js"
    _kind = traitlets.Unicode("marey").tag(sync=True)
    _document = traitlets.Dict().tag(sync=True)
    _asked = traitlets.Dict().tag(sync=True)
    _answered = traitlets.Dict().tag(sync=True)
    _cells = traitlets.Bytes(b"").tag(sync=True)
    _bands = traitlets.Bytes(b"").tag(sync=True)
    _spans = traitlets.Bytes(b"").tag(sync=True)
    _where = traitlets.Unicode("").tag(sync=True)
    # Nanoseconds of the step; empty for all of it.
    _window: Any = traitlets.List().tag(sync=True)

    def __init__(self, run: RunViews, *, step: int | None = None, order: str = "stage") -> None:
        super().__init__()
        self.run = run
        self._order = order
        self.step = step

    @property
    def step(self) -> int:
        """The step that is shown."""
        return int(self._pictures.view.index.step)

    @step.setter
    def step(self, step: int | None) -> None:
        with self.lock:
            self._pictures: StepPictures = self.run.step(step)
            self._window = []
            self._describe()

    @property
    def order(self) -> str:
        """How ranks are ordered: by stage, host, lateness or cluster."""
        return self._order

    @order.setter
    def order(self, order: str) -> None:
        with self.lock:
            self._order = order
            self._describe()

    def _describe(self) -> None:
        if self._order not in ORDERS:
            raise InvalidInput(unknown("order", self._order, ORDERS))
        steps = [row["step"] for row in self.run.index.steps]
        answer = ask_rows(self._pictures, self._order).document()
        self._document = {**answer, "steps": steps, "order": self._order}

    @property
    def selection(self) -> str:
        """What is selected, such as ``rank=3 and name="aten::mm"``; empty for nothing."""
        with self.lock:
            return self._where

    @selection.setter
    def selection(self, where: str) -> None:
        parse_selection(where)
        with self.lock:
            self._where = where

    @property
    def window(self) -> tuple[int, int]:
        """The nanoseconds of the step that are looked at."""
        with self.lock:
            whole = (0, int(self._document["end_ns"] - self._document["start_ns"]))
            return (int(self._window[0]), int(self._window[1])) if self._window else whole

    @window.setter
    def window(self, window: tuple[int, int] | None) -> None:
        if window is not None and window[1] <= window[0]:
            raise InvalidInput(f"The window from {window[0]} to {window[1]} ns is empty.")
        with self.lock:
            self._window = [] if window is None else [int(window[0]), int(window[1])]

    @traitlets.observe("_asked")
    def _answer(self, change: Any) -> None:
        """Give the page the pictures of what it shows; another step or order is taken first."""
        asked = change["new"]
        with self.lock:
            if not asked:
                return
            error = ""
            parts: dict[str, bytes] = {"_cells": b"", "_bands": b"", "_spans": b""}
            try:
                if self._take(asked):
                    return
                parts |= make_parts(self._pictures, self._order, asked)
            except (MareyError, KeyError, TypeError, ValueError) as problem:
                error = str(problem)
            with self.hold_sync():
                for name, value in parts.items():
                    self.set_trait(name, value)
                self._answered = {"by": asked.get("by"), "turn": asked.get("turn"), "error": error}

    def _take(self, asked: dict[str, Any]) -> bool:
        """Go to the step or order that the page chose; True if that was what it asked for."""
        if asked.get("what") == "step":
            self.step = int(asked["step"])
            return True
        if asked.get("what") == "order":
            self.order = str(asked["order"])
            return True
        return False

    def selected(
        self, kind: Literal["arrow", "pandas", "polars"] = "arrow", *, run: RunViews | None = None
    ) -> Table:
        """Return the intervals of the selection in this step, here or in another run."""
        with self.lock:
            where, pictures = self._where, self._pictures
        pictures = pictures if run is None else run.step(pictures.view.index.step)
        table = selected_intervals(pictures, where)
        return convert_table(table, kind)

    def picture(self) -> str:
        """Return the step as an SVG."""
        with self.lock:
            return draw_ranks(self._pictures, self._document)


def selected_intervals(pictures: StepPictures, where: str) -> pa.Table:
    """Return the intervals that a selection means; without one, none."""
    window = BandWindow(-LONGEST_NS, LONGEST_NS, 0, 1 << 31)
    ranks = list(pictures.view.index.ranks) if where else []
    found, _ = list_bands(
        pictures.view, ranks, window, names=pictures.run.names, where=parse_selection(where)
    )
    return found


def make_parts(pictures: StepPictures, order: str, asked: dict[str, Any]) -> dict[str, bytes]:
    """Return cells, bands and time-spans of a window as the routes of the server send them."""
    low, high = int(asked["from"]), int(asked["to"])
    window = BandWindow(low, high, max(0, int(asked["least"])), MOST_BANDS)
    parts = {"_cells": _draw_cells(pictures, order, asked)}
    if asked.get("bands"):
        parts["_bands"] = _arrow(ask_bands(pictures, window, ranks=asked["bands"], where=""))
    if asked.get("spans"):
        parts["_spans"] = _arrow(ask_time_spans(pictures, window, by="cluster"))
    return parts


def _draw_cells(pictures: StepPictures, order: str, asked: dict[str, Any]) -> bytes:
    unit, span = pictures.view.index.unit_ns, pictures.view.span
    begin, end = max(0, int(asked["from"]) // unit), min(span, -(-int(asked["to"]) // unit))
    if end <= begin:
        return b""
    size = np.clip([int(asked["width"]), int(asked["height"])], 1, MOST_CELLS).tolist()
    window = CellWindow(begin, end, size[0], size[1])
    place = (int(asked["first"]), int(asked["last"]))
    return draw(pictures, window, order=order, ranks=str(asked["ranks"]), place=place)


def _arrow(answer: Reply) -> bytes:
    table = answer.table.unify_dictionaries().combine_chunks()
    facts = {key: str(value) for key, value in answer.facts.items()}
    return bytes(arrow_stream(table.replace_schema_metadata(facts)))

"""One step of the Marey view as data that stands inside a report: few rows, bounded bands."""

from __future__ import annotations

import tempfile
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from marey.app.queries.drawing_code import read_drawing_code
from marey.app.traces.trace_queries import ask_rows
from marey.live.wire_format import arrow_stream
from marey.trace.report.report_html import DrawnStep
from marey.trace.results import Analysis
from marey.trace.run.trace_run import TraceRun
from marey.trace.views.bands import BandWindow, list_bands
from marey.trace.views.cells import CellWindow
from marey.trace.views.making.view_writer import write_views
from marey.trace.views.view_files import RunViews, StepPictures

MOST_ROWS = 64
MOST_BANDS = 20_000
# Fewer ranks than this are shown one by one.
GROUPED_FROM = 24
LONGEST_NAME = 160
CELLS_WIDE = 1600
COLUMNS = ("rank", "start_ns", "dur_ns", "kind", "operator", "name", "module", "micro_batch")

Row = dict[str, Any]


def draw_step(
    run: TraceRun, analysis: Analysis, progress: Callable[[float], None] | None = None
) -> DrawnStep | None:
    """Return the step that a verdict names, or an ordinary one; none without drawing code."""
    drawing = read_drawing_code("trace")
    if drawing is None:
        return None
    with tempfile.TemporaryDirectory(prefix="marey-") as folder:
        chosen: list[int] = []

        def choose(known: Sequence[int]) -> int:
            chosen.append(choose_step(analysis, known))
            return chosen[0]

        write_views(run, analysis, Path(folder), progress, choose=choose)
        return DrawnStep(describe_step(RunViews(Path(folder)).step(chosen[0])), drawing)


def choose_step(analysis: Analysis, known: Sequence[int]) -> int:
    """Return the first step that a verdict names, else the first that is no warm-up."""
    named = (step for verdict in analysis.verdicts for step in verdict.steps)
    return next((step for step in named if step in known), known[min(1, len(known) - 1)])


def describe_step(pictures: StepPictures) -> dict[str, Any]:
    """Return everything that the drawing of a step needs, as JSON values."""
    facts = ask_rows(pictures, "stage").document()
    rows, whole = choose_rows(facts["rows"])
    ranks = [row["rank"] for row in rows if row["kind"] != "missing"]
    length = max(1, facts["end_ns"] - facts["start_ns"])
    names = pc.utf8_slice_codeunits(pictures.run.names, 0, LONGEST_NAME)
    bands, left = list_bands(
        pictures.view, ranks, BandWindow(0, length, 0, MOST_BANDS), names=names
    )
    window = CellWindow(0, pictures.view.span, CELLS_WIDE, max(1, len(ranks)))
    cells = pictures.cells_of(ranks, window).encode(pictures.view.index.unit_ns)
    return {
        "heading": f"Step {facts['step']}, rank by rank" if facts["step"] >= 0 else "Rank by rank",
        "summary": _describe_rows(rows, whole, len(facts["rows"])),
        "step": facts["step"],
        "length_ns": length,
        "clock_error_us": facts["clock_error_us"],
        "left_out": left,
        "rows": rows,
        "bands": _encode(_pack(bands.select(COLUMNS))),
        "cells": _encode(cells),
    }


def choose_rows(ranks: Sequence[Mapping[str, Any]]) -> tuple[list[Row], int]:
    """Return at most ``MOST_ROWS`` rows, and how many there would be.

    Ranks that behave alike stand as one row with an exemplar. Where there are too many rows,
    outliers come first, then the rows that stand for most ranks.
    """
    grouped = len(ranks) >= GROUPED_FROM
    rows = _group_rows(ranks) if grouped else [_describe_row(rank) for rank in ranks]
    first = sorted(range(len(rows)), key=lambda n: (not rows[n]["outlier"], -rows[n]["count"]))
    kept = [rows[place] for place in sorted(first[:MOST_ROWS])]
    return kept, len(rows)


def _group_rows(ranks: Sequence[Mapping[str, Any]]) -> list[Row]:
    clusters: dict[tuple[int, int], list[Mapping[str, Any]]] = defaultdict(list)
    for rank in ranks:
        if not rank["outlier"] and not rank["missing"]:
            clusters[rank["stage"] or 0, rank["cluster"]].append(rank)
    rows = []
    for rank in ranks:
        same = clusters.get((rank["stage"] or 0, rank["cluster"]), [])
        if rank["outlier"] or rank["missing"] or len(same) < 3:
            rows.append(_describe_row(rank))
        elif rank is next((one for one in same if one["exemplar"]), same[0]):
            rows.append(_describe_row(rank) | {"kind": "cluster", "count": len(same)})
    return rows


def _describe_row(rank: Mapping[str, Any]) -> Row:
    return {
        "kind": "missing" if rank["missing"] else "rank",
        "rank": rank["rank"],
        "stage": -1 if rank["missing"] else rank["stage"] or 0,
        "count": 1,
        "outlier": rank["outlier"],
    }


def _describe_rows(rows: Sequence[Row], whole: int, ranks: int) -> str:
    said = (
        "Every rank is a row, every operator a band through the rows: upright bands are in step, "
        "slanted ones late, flared ones slower."
    )
    if any(row["kind"] == "cluster" for row in rows):
        said += f" Of {ranks} ranks, those that behave alike stand as one row."
    if len(rows) < whole:
        said += f" {len(rows)} of {whole} rows are shown: outliers and the largest groups."
    return said


def _pack(table: pa.Table) -> bytes:
    plain = table.unify_dictionaries().combine_chunks().replace_schema_metadata({})
    return bytes(arrow_stream(plain))


def _encode(data: bytes) -> str:
    return b64encode(data).decode("ascii")

"""Pictures of runs and clusters as SVG without scripts: what a saved notebook shows."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from marey.notebook.pictures import fill_colour, format_amount, wrap_svg
from marey.trace.views.cells import CellWindow
from marey.trace.views.view_files import StepPictures
from marey.trace.views.view_kinds import KIND_NAMES

# The Marey view's colours of a light page, in the order of its kinds.
KIND_COLOURS = (
    "#ffffff", "#3a86b8", "#de8c00", "#be5c92", "#008c64",
    "#7668c8", "#deb296", "#c4a0ba", "#a8a01e", "#d8dee4",
)  # fmt: skip
MOST_RANKS = 40
MOST_PLOTS = 64
MOST_GROUPS = 40
_COLUMNS = 200
_LINE = 14
_LEFT = 90
_WIDTH = 720


def draw_ranks(pictures: StepPictures, document: Mapping[str, Any]) -> str:
    """Return a picture of each rank's step; ranks beyond the first 40 are counted."""
    rows = [row for row in document["rows"] if not row["missing"]]
    ranks = [row["rank"] for row in rows[:MOST_RANKS]]
    window = CellWindow(0, max(1, pictures.view.span), _COLUMNS, max(1, len(ranks)))
    kinds = (
        pictures.cells_of(ranks, window).kinds >> 4 if ranks else np.zeros((0, _COLUMNS), np.uint8)
    )
    parts = [_rank_row(line, rank, kinds[line]) for line, rank in enumerate(ranks)]
    seen = sorted({int(kind) for kind in np.unique(kinds)} - {0})
    span = format_amount(float(document["end_ns"] - document["start_ns"]), "ns")
    more = len(rows) - len(ranks)
    caption = (
        f"Step {document['step']}, {span}, {len(rows)} ranks."
        + (f" {more:,} more ranks are not drawn." if more else "")
        + " Colours: "
        + ", ".join(f"{KIND_NAMES[kind].replace('_', ' ')}" for kind in seen)
        + "."
    )
    legend = "".join(
        f'<rect x="{_LEFT + 100 * at}" y="{_LINE * len(ranks) + 4}" width="10" height="10" '
        f'fill="{KIND_COLOURS[kind]}"/><text x="{_LEFT + 100 * at + 14}" '
        f'y="{_LINE * len(ranks) + 13}" font-size="10">{KIND_NAMES[kind].replace("_", " ")}</text>'
        for at, kind in enumerate(seen[:6])
    )
    return wrap_svg([*parts, legend], caption, "Marey view", _LINE * (len(ranks) + 1) + 8)


def _rank_row(line: int, rank: int, kinds: Any) -> str:
    y, scale = _LINE * line, (_WIDTH - _LEFT) / len(kinds)
    bars = "".join(
        f'<rect x="{_LEFT + first * scale:.1f}" y="{y + 1}" width="{(last - first) * scale:.1f}" '
        f'height="{_LINE - 2}" fill="{KIND_COLOURS[kind]}"/>'
        for first, last, kind in _runs(kinds)
        if kind
    )
    return f'<text x="0" y="{y + 11}" font-size="11">rank {rank}</text>{bars}'


def _runs(kinds: Any) -> Iterator[tuple[int, int, int]]:
    """Yield where neighbours of one kind begin and end."""
    edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
    for first, last in itertools.pairwise(edges):
        yield first, last, int(kinds[first])


def draw_multiples(document: Mapping[str, Any]) -> str:
    """Return the histogram of each GPU; GPUs beyond the first 64 are counted."""
    gpus = document["gpus"][:MOST_PLOTS]
    most = max((max(gpu["counts"], default=0) for gpu in gpus), default=0)
    parts = [_histogram(at, gpu, most) for at, gpu in enumerate(gpus)]
    more = len(document["gpus"]) - len(gpus)
    low, high = document["limits"]
    caption = (
        f"{document['label']} of {len(document['gpus'])} GPUs of workload {document['workload']}, "
        f"{low:g} to {high:g} {document['unit']}; colours are {len(document['clusters'])} clusters."
        + (f" {more:,} more GPUs are not drawn." if more else "")
    )
    return wrap_svg(parts, caption, "GPUs", 54 * -(-len(gpus) // 8) + 4)


def _histogram(at: int, gpu: Mapping[str, Any], most: int) -> str:
    x, y, counts = 90 * (at % 8), 54 * (at // 8), gpu["counts"]
    wide = 82 / max(1, len(counts))
    colour = KIND_COLOURS[1 + gpu["cluster"] % 5]
    bars = "".join(
        f'<rect x="{x + n * wide:.1f}" y="{y + 50 - tall:.1f}" width="{max(wide, 0.7):.1f}" '
        f'height="{tall:.1f}" fill="{colour}"/>'
        for n, count in enumerate(counts)
        if (tall := 34 * (count / most) ** 0.5 if most else 0) > 0
    )
    name = html.escape(str(gpu["gpu"])[-14:])
    return f'<text x="{x}" y="{y + 11}" font-size="10">{name}</text>{bars}'


def draw_groups(groups: Sequence[tuple[str, int, float | None]], *, what: str, metric: str) -> str:
    """Return groups of GPUs as bars: length is how many, colour the mean of a metric (0-1)."""
    shown = sorted(groups, key=lambda group: -group[1])[:MOST_GROUPS]
    most = max((count for _, count, _ in shown), default=1)
    parts = [
        f'<rect x="0" y="{_LINE * line + 1}" width="{max(1.0, 300 * count / most):.1f}" '
        f'height="{_LINE - 2}" fill="{fill_colour(np.nan if mean is None else mean)}"/>'
        f'<text x="{306}" y="{_LINE * line + 11}" font-size="11">'
        f"{html.escape(name[:60])}: {count:,} GPUs</text>"
        for line, (name, count, mean) in enumerate(shown)
    ]
    more = len(groups) - len(shown)
    caption = f"GPUs by {what}; brighter is more {metric}." + (f" {more:,} more." if more else "")
    return wrap_svg(parts, caption, "Cluster", _LINE * len(shown) + 4)

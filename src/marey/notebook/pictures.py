"""Pictures of call graphs as SVG without scripts: what a saved notebook shows.

Colours are those of a light page. Every text is escaped: names come from anywhere.
"""

from __future__ import annotations

import html
from collections.abc import Collection
from typing import Any

import numpy as np

from marey.callgraph.analysis.outline import Outline

MOST_ROWS = 40
_LINE = 20
_RAMP = ((31, 85, 132), (46, 138, 140), (143, 181, 131), (236, 214, 124))
_UNITS = ((60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def format_amount(value: float | None, unit: str) -> str:
    """Return an amount as a person reads it: times in the unit that suits them."""
    if value is None or not np.isfinite(value):
        return "–"
    if unit != "ns":
        return f"{value:,.4g} {unit}".rstrip()
    size, word = next(((s, w) for s, w in _UNITS if abs(value) >= s), _UNITS[-1])
    return f"{value / size:,.3g} {word}"


def draw_tree(outline: Outline, *, colour: str, area: str, selected: Collection[int] = ()) -> str:
    """Return the heaviest call sites as an indented list: bar = area metric, fill = colour."""
    rows = range(min(len(outline), MOST_ROWS))
    areas, colours = outline.values[area], outline.values[colour]
    most = _greatest(areas)
    low, high = _least(colours), _greatest(colours)
    unit = outline.graphs.unit
    parts = []
    for line, row in enumerate(rows):
        share = (colours[row] - low) / (high - low) if high > low else 0.5
        label = outline.graphs.name(int(outline.node[row]))
        text = f"{label}  {format_amount(float(areas[row]), unit)}"
        if outline.hidden[row]:
            text += f"  (+{outline.hidden[row]} hidden)"
        parts.append(
            _row(
                line,
                indent=12 * min(int(outline.depth[row]), 20),
                width=160 * (float(areas[row]) / most if most > 0 and areas[row] > 0 else 0),
                fill=fill_colour(share),
                text=text,
                bold=row in selected,
            )
        )
    more = len(outline) - len(rows)
    caption = (
        f"Bar: {area}. Colour: {colour}, {format_amount(low, unit)} to {format_amount(high, unit)}."
        + (f" {more:,} more call sites." if more > 0 else "")
    )
    return wrap_svg(parts, caption, "Call tree", len(parts) * _LINE + 4)


def draw_supernodes(document: dict[str, Any]) -> str:
    """Return supernodes as bars of inclusive time with the box plot of the ensemble."""
    nodes = sorted(document["nodes"], key=lambda node: -node["inclusive"]["mean"])[:MOST_ROWS]
    most = max((node["inclusive"]["max"] for node in nodes), default=0.0)
    parts = []
    for line, node in enumerate(nodes):
        box = node["inclusive"]
        scale = 160 / most if most > 0 else 0.0
        text = f"{node['name']}  {format_amount(box['mean'], document['unit'])}"
        parts.append(
            _row(
                line,
                indent=0,
                width=box["mean"] * scale,
                fill=fill_colour(0.3),
                text=text,
                bold=False,
            )
            + _box(line, {word: box[word] * scale for word in ("min", "q1", "median", "q3", "max")})
        )
    caption = (
        f"Inclusive time of {len(document['profiles'])} profiles: mean as bar, box plot above it. "
        f"{document['folded']} small modules are in (rest)."
    )
    return wrap_svg(parts, caption, "Modules by inclusive time", len(parts) * _LINE + 4)


def _greatest(values: Any) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0


def _least(values: Any) -> float:
    known = values[np.isfinite(values)]
    return float(known.min()) if len(known) else 0.0


def fill_colour(share: float) -> str:
    """Return the colour of a share between 0 and 1; grey where it is not known."""
    if not np.isfinite(share):
        return "#cccccc"
    place = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    at = min(int(place), len(_RAMP) - 2)
    pairs = zip(_RAMP[at], _RAMP[at + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - at)):02x}" for a, b in pairs)


def _row(line: int, *, indent: int, width: float, fill: str, text: str, bold: bool) -> str:
    y = line * _LINE
    weight = ' font-weight="700"' if bold else ""
    return (
        f'<rect x="{indent}" y="{y + 3}" width="{max(width, 1):.1f}" height="14" fill="{fill}"/>'
        f'<text x="{indent + max(width, 1) + 6:.1f}" y="{y + 14}"{weight}>'
        f"{html.escape(text[:200])}</text>"
    )


def _box(line: int, at: dict[str, float]) -> str:
    y = line * _LINE + 10
    return (
        f'<path d="M{at["min"]:.1f} {y}H{at["max"]:.1f}M{at["median"]:.1f} {y - 4}v8" '
        f'stroke="#1b242d" fill="none"/><rect x="{at["q1"]:.1f}" y="{y - 3}" '
        f'width="{max(at["q3"] - at["q1"], 0.5):.1f}" height="6" fill="#ffffff80" '
        f'stroke="#1b242d"/>'
    )


def wrap_svg(parts: list[str], caption: str, title: str, height: int) -> str:
    """Return a figure without scripts: the drawing, and what it shows in words."""
    return (
        f'<figure style="margin:0;background:#fff;color:#1b242d;font:12px sans-serif">'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="720" height="{height}" '
        f'viewBox="0 0 720 {height}" font-size="12" font-family="sans-serif" fill="#1b242d">'
        f"<title>{html.escape(title)}</title>{''.join(parts)}</svg>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )

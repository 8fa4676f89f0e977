"""The pictures of a report as SVG text, made of numbers and of our own words only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from marey.model.times import parse_time

WIDTH, HEIGHT = 84, 44
STRIP_WIDTH = 900
# Okabe and Ito's colours, told apart by colour-blind readers too; as the page uses them.
CLUSTER_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#b8a800")
PHASE_COLOURS = {
    "waiting": "#9aa5b1",
    "initialisation": "#8ea3c8",
    "training": "#2f9e77",
    "evaluation": "#56b4e9",
    "checkpoint": "#cc79a7",
    "pause": "#e0b040",
    "stall": "#d9480f",
}


def colour_of(cluster: int) -> str:
    """The colour of a cluster."""
    return CLUSTER_COLOURS[cluster % len(CLUSTER_COLOURS)]


def histogram_svg(gpu: Mapping[str, Any], limits: Sequence[float]) -> str:
    """One GPU's histogram; heights by square root, so that rare values stay visible."""
    counts = gpu["counts"]
    most, bar = max([*counts, 1]), WIDTH / max(1, len(counts))
    bars = "".join(
        f"M{i * bar:.1f} {HEIGHT}v-{max(1.0, (count / most) ** 0.5 * (HEIGHT - 2)):.1f}h{bar:.1f}"
        f"V{HEIGHT}z"
        for i, count in enumerate(counts)
        if count
    )
    return _framed(f'<path d="{bars}" fill="{colour_of(gpu["cluster"])}"/>')


def line_svg(gpu: Mapping[str, Any], limits: Sequence[float]) -> str:
    """One GPU's metric over time."""
    low, high = limits
    span = max(high - low, 1e-9)
    step = WIDTH / max(1, len(gpu["line"]) - 1)
    path, pen = [], False
    for i, value in enumerate(gpu["line"]):
        if value is None:
            pen = False
            continue
        y = HEIGHT - 1 - (min(high, max(low, value)) - low) / span * (HEIGHT - 2)
        path.append(f"{'L' if pen else 'M'}{i * step:.1f} {y:.1f}")
        pen = True
    return _framed(f'<path d="{"".join(path)}" fill="none" stroke="{colour_of(gpu["cluster"])}"/>')


def _framed(inner: str) -> str:
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#8882"/>{inner}</svg>'
    )


def life_svg(life: Sequence[Mapping[str, str]], events: Sequence[Mapping[str, Any]]) -> str:
    """The phases as a strip with the events on it; long waiting takes a fifth at most."""
    spans = [(s["phase"], parse_time(s["from"]), parse_time(s["to"])) for s in life]
    begin, end = spans[0][1], spans[-1][2]
    start = spans[0][2] if spans[0][0] == "waiting" else begin
    whole = max(1, end - begin)
    waiting = min(STRIP_WIDTH / 5, (start - begin) / whole * STRIP_WIDTH) if start < end else 0.0

    def place(time_ms: int) -> float:
        if time_ms <= start:
            return max(0, time_ms - begin) / max(1, start - begin) * waiting
        share = min(1.0, (time_ms - start) / max(1, end - start))
        return waiting + share * (STRIP_WIDTH - waiting)

    parts = [
        f'<rect x="{place(a):.1f}" y="6" width="{max(0.8, place(b) - place(a)):.1f}" height="16" '
        f'fill="{PHASE_COLOURS[phase]}"><title>{phase}</title></rect>'
        for phase, a, b in spans
    ]
    parts += [
        f'<rect x="{place(parse_time(e["time"])) - 1:.1f}" y="2" width="2" height="24" '
        f'fill="#d9480f"><title>{escape(e["kind"])}</title></rect>'
        for e in events
        if e["kind"] not in ("checkpoint", "evaluation")
    ]
    legend, x = [], 0
    for phase in dict.fromkeys(phase for phase, _, _ in spans):
        legend.append(
            f'<rect x="{x}" y="32" width="10" height="10" fill="{PHASE_COLOURS[phase]}"/>'
            f'<text x="{x + 14}" y="41" font-size="11" fill="currentColor">{phase}</text>'
        )
        x += 26 + 7 * len(phase)
    return (
        f'<svg width="{STRIP_WIDTH}" height="46" viewBox="0 0 {STRIP_WIDTH} 46">'
        f"{''.join(parts)}{''.join(legend)}</svg>"
    )

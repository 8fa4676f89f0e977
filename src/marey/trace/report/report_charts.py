"""The small pictures of a report as SVG text: no script, no font, nothing from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from marey.model.system.percentages import format_percent
from marey.trace.report.verdict_words import duration

# Parts of a rank's time, in the order they are stacked; colours told apart without red and green.
PARTS: tuple[tuple[str, str, str], ...] = (
    ("compute_ms", "compute", "#3b6fb6"),
    ("exposed_transfer_ms", "exposed transfer", "#e08e2b"),
    ("exposed_wait_ms", "waiting for peers", "#f2c688"),
    ("exposed_memcpy_ms", "exposed copies", "#8c6bb1"),
    ("idle_input_ms", "idle: input", "#c2413f"),
    ("idle_peers_ms", "idle: peers", "#d98bb0"),
    ("idle_host_ms", "idle: host", "#8a8f98"),
    ("idle_start_ms", "idle: between steps", "#6f9a8d"),
    ("idle_other_ms", "idle: queued", "#c9cdd3"),
    ("idle_unexplained_ms", "idle: unexplained", "#4b4f57"),
)
WIDTH = 920
_LABEL = 150
_ROW = 22


def part_ms(row: Mapping[str, Any], part: str) -> float:
    """Return a part of a rank's or a step's time.

    Transfer is what of exposed communication is no wait.
    """
    if part == "exposed_transfer_ms":
        return max(float(row["exposed_comm_ms"]) - float(row["exposed_wait_ms"]), 0.0)
    return float(row[part])


def legend(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the colours of the parts that occur."""
    shown = [part for part in PARTS if any(part_ms(row, part[0]) > 0 for row in rows)]
    items = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{escape(label)}</span>'
        for _, label, colour in shown
    )
    return f'<p class="legend">{items}</p>'


def draw_stacked_bars(rows: Sequence[Mapping[str, Any]], *, marked: frozenset[int]) -> str:
    """Return one bar per rank, split into the parts of its time.

    Ranks with a verdict are marked.
    """
    longest = max((row["span_ms"] for row in rows), default=0.0) or 1.0
    room = WIDTH - _LABEL - 80
    lines = []
    for at, row in enumerate(rows):
        y = at * _ROW
        who = f"rank {row['rank']}"
        flag = "<tspan class='flag'> ●</tspan>" if row["rank"] in marked else ""
        title = f"{who} on {row['host']}" if row["host"] else who
        lines.append(
            f"<text x='{_LABEL - 10}' y='{y + 15}' text-anchor='end'>{escape(who)}{flag}"
            f"<title>{escape(title)}</title></text>"
        )
        lines.append(_segments(row, y, room / longest))
        end = _LABEL + row["span_ms"] * room / longest
        lines.append(
            f"<text class='soft' x='{end + 6:.1f}' y='{y + 15}'>{escape(duration(row['span_ms']))}"
            "</text>"
        )
    return _svg(len(rows) * _ROW, "time of each rank by what it was spent on", lines)


def _segments(row: Mapping[str, Any], y: float, scale: float) -> str:
    x, out = float(_LABEL), []
    for key, label, colour in PARTS:
        ms = part_ms(row, key)
        if ms * scale > 0.05:
            share = ms / (row["span_ms"] or 1.0)
            tip = f"rank {row['rank']}: {label} {duration(ms)} ({format_percent(share)})"
            out.append(
                f"<rect x='{x:.2f}' y='{y + 3}' width='{ms * scale:.2f}' height='{_ROW - 6}' "
                f"fill='{colour}'><title>{escape(tip)}</title></rect>"
            )
        x += ms * scale
    return "".join(out)


def step_columns(steps: Sequence[Mapping[str, Any]]) -> str:
    """Return one column per step: the mean parts of its time over ranks, and the spread of its
    length.
    """
    numbers = sorted({row["step"] for row in steps})
    by_step: dict[int, list[Mapping[str, Any]]] = {n: [] for n in numbers}
    for row in steps:
        by_step[row["step"]].append(row)
    height, left, bottom = 180.0, 70.0, 24.0
    tallest = max((row["duration_ms"] for row in steps), default=0.0) or 1.0
    scale = (height - 14) / tallest
    wide = min((WIDTH - left) / max(len(numbers), 1), 120.0)
    lines = _grid(tallest, scale, height, left)
    every = max(1, round(30 / wide))
    for at, number in enumerate(numbers):
        x = left + at * wide
        lines.append(
            _column(number, rows=by_step[number], x=x, wide=wide, height=height, scale=scale)
        )
        if at % every == 0:
            lines.append(
                f"<text class='soft' x='{x + wide / 2:.1f}' y='{height + 17}' "
                f"text-anchor='middle'>{number}</text>"
            )
    return _svg(height + bottom, "length of each step by what it was spent on", lines)


def _grid(tallest: float, scale: float, height: float, left: float) -> list[str]:
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = height - tallest * share * scale
        lines.append(f"<line class='grid' x1='{left}' x2='{WIDTH}' y1='{y:.1f}' y2='{y:.1f}'/>")
        lines.append(
            f"<text class='soft' x='{left - 8}' y='{y + 4:.1f}' text-anchor='end'>"
            f"{escape(duration(tallest * share)) if share else '0'}</text>"
        )
    return lines


def _column(
    number: int,
    *,
    rows: Sequence[Mapping[str, Any]],
    x: float,
    wide: float,
    height: float,
    scale: float,
) -> str:
    y, out = height, []
    pad = wide * 0.15
    for key, label, colour in PARTS:
        ms = sum(part_ms(row, key) for row in rows) / len(rows)
        if ms * scale > 0.05:
            y -= ms * scale
            tip = f"step {number}: {label} {duration(ms)} (mean of {len(rows)} ranks)"
            out.append(
                f"<rect x='{x + pad:.1f}' y='{y:.2f}' width='{wide - 2 * pad:.1f}' "
                f"height='{ms * scale:.2f}' fill='{colour}'><title>{escape(tip)}</title></rect>"
            )
    lengths = [row["duration_ms"] for row in rows]
    middle = x + wide / 2
    if max(lengths) > min(lengths):
        top, low = height - max(lengths) * scale, height - min(lengths) * scale
        tip = f"step {number}: ranks between {duration(min(lengths))} and {duration(max(lengths))}"
        out.append(
            f"<line class='whisker' x1='{middle:.1f}' x2='{middle:.1f}' y1='{top:.1f}' "
            f"y2='{low:.1f}'><title>{escape(tip)}</title></line>"
        )
    return "".join(out)


def area(levels: Sequence[float], label: str) -> str:
    """Return a filled curve of one quantity over time."""
    tallest = max(levels, default=0.0) or 1.0
    height = 90.0
    points = [
        f"{WIDTH * at / max(len(levels) - 1, 1):.1f},{height - (height - 4) * level / tallest:.1f}"
        for at, level in enumerate(levels)
    ]
    path = f"M0,{height} L" + " L".join(points) + f" L{WIDTH},{height} Z"
    return _svg(height, label, [f"<path class='area' d='{path}'/>"])


def _svg(height: float, label: str, lines: Sequence[str]) -> str:
    return (
        f"<svg viewBox='0 0 {WIDTH} {height:.0f}' role='img' aria-label='{escape(label)}'>"
        + "".join(lines)
        + "</svg>"
    )

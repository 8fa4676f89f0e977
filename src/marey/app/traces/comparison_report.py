"""A comparison of runs as one HTML file without scripts: figures, tests, curves of the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from marey.compare.comparison_documents import (
    LossCurve,
    TrainingComparison,
    TrainingFigure,
    TrainingRunFigures,
)
from marey.model.system.html_templates import open_template

COLOURS = ("#1c6f99", "#b25d00", "#1a7f5a", "#a83210", "#6650b8", "#7c5a00")
FIGURE_WORDS = {
    "throughput": "Throughput",
    "step_ms": "Time per step (ms)",
    "peak_memory_bytes": "Peak memory (bytes)",
    "communication_share": "Exposed communication (share)",
    "final_loss": "Final loss",
    "hours_to_loss": "Hours to target loss",
    "samples_to_loss": "Samples to target loss",
    "gpu_hours_to_loss": "GPU-hours to target loss",
}
_WIDTH, _HEIGHT = 520, 240
_STYLE = (
    "body{font:14px/1.5 sans-serif;max-width:1100px;margin:24px auto;color:#1b242d;padding:0 16px}"
    "table{border-collapse:collapse;margin:8px 0 24px}td,th{padding:4px 10px;text-align:right;"
    "border-bottom:1px solid #dfe4e9}td:first-child,th:first-child{text-align:left}"
    "small{color:#556270}figure{display:inline-block;margin:0 16px 16px 0}"
)


@dataclass(frozen=True)
class _Line:
    """The loss of one run in the drawing's own coordinates."""

    name: str
    colour: str
    points: str


@dataclass(frozen=True)
class _Curve:
    """The loss of every run along hours or samples; marks are the texts at the axes."""

    words: str
    lines: Sequence[_Line]
    marks: Sequence[tuple[int, int, str, str]]


def write_comparison(document: TrainingComparison, path: Path) -> None:
    """Write the report; every name in it is text."""
    path.write_text(make_report(document), "utf-8")


def make_report(document: TrainingComparison) -> str:
    """Return the whole page."""
    colours = {g.label: COLOURS[n % len(COLOURS)] for n, g in enumerate(document.groups)}
    curves = (
        _draw_curve(document.runs, colours, "hours", lambda curve: curve.hours),
        _draw_curve(document.runs, colours, "samples", lambda curve: curve.samples),
    )
    return open_template("marey.app.traces", "comparison_report.html").render(
        style=_STYLE,
        baseline=document.baseline,
        test=document.test,
        labels=[group.label for group in document.groups],
        rows=[
            (words, [_describe_figure(group.figures[name]) for group in document.groups])
            for name, words in FIGURE_WORDS.items()
            if any(group.figures[name].n for group in document.groups)
        ],
        curves=[curve for curve in curves if curve is not None],
        legend=list(colours.items()),
        width=_WIDTH,
        height=_HEIGHT,
        notes=list(dict.fromkeys(f"{r.name}: {n}" for r in document.runs for n in r.notes)),
    )


def _describe_figure(figure: TrainingFigure) -> tuple[str, str]:
    """Return the value of a group, and in small what it is held against."""
    if not figure.n or figure.mean is None:
        return "–", ""
    spread = "" if figure.sd is None else f" ± {figure.sd:.3g}"
    small = f"n = {figure.n}"
    if figure.change is not None:
        test = figure.said if figure.q is None else f"q = {figure.q:.2g}, {small}"
        small = f"{figure.change:+.1%}, {test}"
    return f"{figure.mean:,.4g}{spread}", small


def _draw_curve(
    runs: Sequence[TrainingRunFigures],
    colours: dict[str, str],
    words: str,
    along: Callable[[LossCurve], list[float | None]],
) -> _Curve | None:
    """Return the loss of every run along hours or samples; None where nothing is known of it."""
    drawn = [
        [(x, y) for x, y in zip(along(run.curve), run.curve.loss, strict=True) if x is not None]
        for run in runs
    ]
    points = [point for line in drawn for point in line]
    if len(points) < 2:
        return None
    (x0, x1), (y0, y1) = _find_extent(p[0] for p in points), _find_extent(p[1] for p in points)
    lines = []
    for run, line in zip(runs, drawn, strict=True):
        path = " ".join(
            f"{40 + (x - x0) / (x1 - x0) * (_WIDTH - 50):.1f},"
            f"{_HEIGHT - 30 - (y - y0) / (y1 - y0) * (_HEIGHT - 45):.1f}"
            for x, y in line
        )
        lines.append(_Line(run.name, colours[run.label], path))
    marks = (
        (40, _HEIGHT - 12, "start", _print_number(x0)),
        (_WIDTH - 10, _HEIGHT - 12, "end", f"{_print_number(x1)} {words}"),
        (36, _HEIGHT - 30, "end", _print_number(y0)),
        (36, 16, "end", _print_number(y1)),
    )
    return _Curve(words, lines, marks)


def _print_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _find_extent(values: Iterable[float]) -> tuple[float, float]:
    listed = list(values)
    low, high = min(listed), max(listed)
    return (low, high) if high > low else (low, low + 1.0)

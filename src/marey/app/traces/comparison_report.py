"""A comparison of runs as one HTML file without scripts: figures, tests, curves of the loss."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marey.compare.comparison_documents import LossCurve, TrainingComparison, TrainingFigure

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


def write_comparison(document: TrainingComparison, path: Path) -> None:
    """Write the report; every name in it is text."""
    path.write_text(make_report(document), "utf-8")


def make_report(document: TrainingComparison) -> str:
    """Return the whole page."""
    labels = [group.label for group in document.groups]
    head = "".join(f"<th>{_text(label)}</th>" for label in labels)
    rows = "".join(
        _row(document, name, words)
        for name, words in FIGURE_WORDS.items()
        if _has_figure(document, name)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Runs compared</title>'
        f"<style>{_STYLE}</style><h1>Runs compared</h1>"
        f"<p>Baseline: {_text(document.baseline)}. {_text(document.test)}.</p>"
        f"<table><thead><tr><th>Figure</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"{_curve(document, lambda curve: curve.hours, 'hours')}"
        f"{_curve(document, lambda curve: curve.samples, 'samples')}"
        f"{_notes(document)}</html>"
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


def _has_figure(document: TrainingComparison, name: str) -> bool:
    return any(group.figures[name].n for group in document.groups)


def _row(document: TrainingComparison, name: str, words: str) -> str:
    cells = "".join(_cell(group.figures[name]) for group in document.groups)
    return f"<tr><td>{words}</td>{cells}</tr>"


def _cell(figure: TrainingFigure) -> str:
    if not figure.n:
        return "<td>–</td>"
    spread = "" if figure.sd is None else f" ± {figure.sd:.3g}"
    small = f"n = {figure.n}"
    if figure.change is not None:
        small = f"{figure.change:+.1%}, " + (
            _text(figure.said) if figure.q is None else f"q = {figure.q:.2g}, {small}"
        )
    return f"<td>{figure.mean:,.4g}{spread}<br><small>{small}</small></td>"


def _curve(
    document: TrainingComparison, along: Callable[[LossCurve], list[float | None]], words: str
) -> str:
    """Draw the loss of every run along hours or samples."""
    runs = [
        (
            run,
            [
                (x, y)
                for x, y in zip(along(run.curve), run.curve.loss, strict=True)
                if x is not None
            ],
        )
        for run in document.runs
    ]
    points = [point for _, line in runs for point in line]
    if len(points) < 2:
        return ""
    (x0, x1), (y0, y1) = _extent(p[0] for p in points), _extent(p[1] for p in points)
    colours = {g.label: COLOURS[n % len(COLOURS)] for n, g in enumerate(document.groups)}
    lines = []
    for run, line in runs:
        path = " ".join(
            f"{40 + (x - x0) / (x1 - x0) * (_WIDTH - 50):.1f},"
            f"{_HEIGHT - 30 - (y - y0) / (y1 - y0) * (_HEIGHT - 45):.1f}"
            for x, y in line
        )
        lines.append(
            f'<polyline points="{path}" fill="none" stroke="{colours[run.label]}">'
            f"<title>{_text(run.name)}</title></polyline>"
        )
    axis = (
        f'<text x="40" y="{_HEIGHT - 12}">{x0:.3g}</text>'
        f'<text x="{_WIDTH - 60}" y="{_HEIGHT - 12}">{x1:.3g} {words}</text>'
        f'<text x="2" y="{_HEIGHT - 30}">{y0:.3g}</text><text x="2" y="16">{y1:.3g}</text>'
    )
    legend = "".join(
        f'<span style="color:{colour}">■</span> {_text(label)} '
        for label, colour in colours.items()
    )
    return (
        f'<figure><figcaption>Loss against {words}. {legend}</figcaption><svg width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-label="Loss against {words}" font-size="11">'
        f"{''.join(lines)}{axis}</svg></figure>"
    )


def _extent(values: Any) -> tuple[float, float]:
    listed = list(values)
    low, high = min(listed), max(listed)
    return (low, high) if high > low else (low, low + 1.0)


def _notes(document: TrainingComparison) -> str:
    notes = dict.fromkeys(f"{r.name}: {n}" for r in document.runs for n in r.notes)
    return "".join(f"<p><small>{_text(note)}</small></p>" for note in notes)

"""``marey compare``: training runs side by side, and which differences are real."""

from __future__ import annotations

import argparse
from pathlib import Path

from marey.app.traces.comparison_report import write_comparison
from marey.app.traces.run_readers import ReadOptions, read_runs
from marey.cli.output import Output
from marey.cli.store_arguments import add_store
from marey.compare.comparison import compare_runs
from marey.compare.comparison_documents import TrainingComparison, TrainingFigure
from marey.model.system.percentages import format_percent

DESCRIPTION = """\
Compare training runs: throughput, time per step, memory, communication, scaling, loss over time
and samples, and GPU-hours to a given loss. Runs with the same label are repetitions; each run is
one sample, and significance is tested only with at least three runs per side.

RUN is [LABEL=]PLACE; a place is a folder of TensorBoard event files, a folder of profiler traces,
mlflow:URL#EXPERIMENT, or workload:ID of the store."""
EXAMPLES = """\
  marey compare runs/base runs/new
  marey compare base=runs/a base=runs/b base=runs/c new=runs/d new=runs/e new=runs/f --loss 2.5
  marey compare mlflow:http://127.0.0.1:5000#pretraining --html runs.html
  marey compare workload:4711 workload:4712 --store site.duckdb --json"""
# Figure → its name for people, what to multiply by, and the unit.
WORDS = {
    "throughput": ("throughput", 1.0, ""),
    "step_ms": ("time per step", 1.0, "ms"),
    "peak_memory_bytes": ("peak memory", 2.0**-30, "GiB"),
    "communication_share": ("exposed communication", 100.0, "%"),
    "final_loss": ("final loss", 1.0, ""),
    "hours_to_loss": ("hours to the loss", 1.0, "h"),
    "samples_to_loss": ("samples to the loss", 1.0, ""),
    "gpu_hours_to_loss": ("GPU-hours to target loss", 1.0, "GPU-h"),
    "hours": ("length of the run", 1.0, "h"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="[LABEL=]PLACE")
    parser.add_argument("--baseline", metavar="LABEL", help="label to compare with (the first)")
    parser.add_argument(
        "--loss", type=float, metavar="L", help="target loss, for the cost of reaching it"
    )
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="GPU count for runs that do not report one"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write an HTML report")
    add_store(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Read, compare, print."""
    options = ReadOptions(args.store, args.cluster, args.gpus)
    document = compare_runs(read_runs(args.runs, options), baseline=args.baseline, loss=args.loss)
    if args.html is not None:
        write_comparison(document, args.html)
        out.print_note(f"Report written to {args.html}.")
    out.answer(document, comparison_text(document))


def comparison_text(document: TrainingComparison) -> str:
    """Return groups and changes as a person reads them."""
    test = document.test
    lines = [f"Baseline: {document.baseline}. {test[0].upper()}{test[1:]}."]
    for name, (word, factor, unit) in WORDS.items():
        rows = [
            f"  {group.label}: {_figure_text(group.figures[name], factor, unit)}"
            for group in document.groups
            if group.figures[name].n
        ]
        if rows:
            lines += ["", word.capitalize(), *rows]
    shares = [g for g in document.groups if g.efficiency is not None]
    if shares:
        lines += ["", "Scaling efficiency (throughput per GPU)"]
        lines += [
            f"  {g.label}: {format_percent(g.efficiency, 1)} at {g.gpus} GPUs" for g in shares
        ]
    notes = dict.fromkeys(f"{r.label}: {n}" for r in document.runs for n in r.notes)
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _figure_text(figure: TrainingFigure, factor: float, unit: str) -> str:
    text = f"{(figure.mean or 0.0) * factor:,.4g} {unit}".rstrip()
    if figure.sd is not None:
        text += f" ± {figure.sd * factor:.3g}"
    text += f" (n = {figure.n})"
    if figure.change is None:
        return text
    text += f", {figure.change:+.1%}"
    if figure.q is None:
        return f"{text}, {figure.said}"
    verdict = "significant" if figure.significant else "not significant"
    return f"{text}, {verdict} (q = {figure.q:.2g})"

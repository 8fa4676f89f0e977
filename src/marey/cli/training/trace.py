"""``marey trace``: from every rank's profile to who makes whom wait."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marey.cli.help_format import add_question
from marey.cli.output import Output
from marey.cli.training.trace_runs import (
    add_runs_arguments,
    add_table_arguments,
    list_runs,
    print_table,
)
from marey.cli.training.trace_text import (
    collectives_text,
    critical_path_text,
    diff_text,
    report_text,
    steps_text,
)
from marey.model.errors import InvalidInput
from marey.model.training.selections import parse_selection, select_documents
from marey.trace.analysis import analyse
from marey.trace.rank.operator_path import OPERATOR_PATH_COLUMNS, Window, operator_path
from marey.trace.rank.steps import step_statistics
from marey.trace.report.diff import compare
from marey.trace.report.report_document import clean, report_document
from marey.trace.report.report_html import report_html
from marey.trace.report.report_types import ReportDocument
from marey.trace.report.run_profile import RunProfile, profile_run
from marey.trace.run.trace_run import TraceRun, open_run

DESCRIPTION = """\
Read the profiler traces of a training run, one per rank, and report how the time was spent,
which rank, operator or link holds the others back, and what fixing it would gain.

PATH is a file, a folder or a quoted glob: PyTorch (Kineto), JAX, Chakra, Chrome traces, plain or
compressed. Traces are converted once into a cache; nothing is written beside them."""
# More than any recording has; a range is not to fill the memory.
MOST_STEPS = 100_000
EXAMPLES = """\
  marey trace report traces/                     the verdict, then the figures
  marey trace report traces/ --html report.html  one page to send to a colleague
  marey trace report traces/ --json | jq .verdicts
  marey trace diff before/ after/                what appeared, disappeared or got slower
  marey trace diff run/ run/ --steps-a 3-5 --steps-b 8-10
  marey trace steps traces/ --where "rank=3,7-9 and step=5"
  marey trace collectives traces/
  marey trace critical-path traces/ --rank 3 --step 8
  marey trace convert traces/ --out events/      one Parquet file per rank
  marey trace runs --store site.duckdb           the runs on the server's Traces page
  marey trace table RUN waits --where "rank=3"   a table of one of them, with the same selection"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the questions one can ask of a trace."""
    questions = parser.add_subparsers(dest="question", metavar="QUESTION", required=True)
    report = _add_question(
        questions, "report", "where the time went, and which rank holds the others back"
    )
    _add_path(report)
    report.add_argument("--html", metavar="FILE", type=Path, help="write one self-contained page")
    steps = _add_question(questions, "steps", "the duration and breakdown of every step")
    _add_path(steps)
    _add_where(steps)
    collectives = _add_question(
        questions, "collectives", "collectives matched across ranks, with waits and bandwidth"
    )
    _add_path(collectives)
    _add_where(collectives)
    collectives.add_argument("--limit", type=_count, default=20, metavar="N", help="rows to show")
    _add_critical_path(questions)
    diff = _add_question(questions, "diff", "differences between runs A and B")
    _add_path(diff, "a")
    _add_path(diff, "b")
    diff.add_argument("--steps-a", type=step_list, metavar="STEPS", help="of A, such as 3-5 or 3,7")
    diff.add_argument("--steps-b", type=step_list, metavar="STEPS", help="of B")
    diff.add_argument("--limit", type=_count, default=25, metavar="N", help="rows to show")
    _add_run_questions(questions)
    convert = _add_question(questions, "convert", "the event table of every rank, as Parquet")
    _add_path(convert)
    convert.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="where the tables are written"
    )


def _add_run_questions(questions: Any) -> None:
    runs = _add_question(questions, "runs", "the runs that a server has", reads_files=False)
    add_runs_arguments(runs)
    table = _add_question(
        questions, "table", "a table of a run that a server has", reads_files=False
    )
    add_table_arguments(table)


def _add_critical_path(questions: Any) -> None:
    path = _add_question(
        questions, "critical-path", "the chain of work that determines a rank's time"
    )
    _add_path(path)
    path.add_argument("--rank", type=int, metavar="R", help="which rank (default: the first)")
    path.add_argument("--step", type=int, metavar="N", help="only this step")
    path.add_argument("--annotation", metavar="TEXT", help="only within an annotation so named")
    path.add_argument(
        "--instance", type=int, default=0, metavar="K", help="which of its occurrences, from 0"
    )
    path.add_argument("--limit", type=_count, default=20, metavar="N", help="rows to show")


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--where",
        default="",
        metavar="SELECTION",
        help='only these, such as "rank=3,7-9 and step=5" (docs/traces-api.md)',
    )


def _add_path(parser: argparse.ArgumentParser, name: str = "path") -> None:
    parser.add_argument(
        name, metavar=name.upper(), help="a file, a folder or a quoted glob of traces"
    )


def _add_question(
    questions: Any, name: str, summary: str, *, reads_files: bool = True
) -> argparse.ArgumentParser:
    parser = add_question(questions, "trace", name, summary, examples=EXAMPLES)
    if reads_files:
        parser.add_argument(
            "--cache",
            metavar="DIR",
            type=Path,
            help="cache for converted traces (default: the user's cache)",
        )
    return parser


def run(args: argparse.Namespace, out: Output) -> None:
    """Answer the question."""
    ANSWERS[args.question](args, out)


def _report(args: argparse.Namespace, out: Output) -> None:
    target = args.html
    if target is not None:
        _check_writable(target)
    document = _write_document(args, out) if target is None else _write_page(args, out, target)
    out.answer(document, report_text(document))


def _write_page(args: argparse.Namespace, out: Output, target: Path) -> ReportDocument:
    # Imported here: most questions draw no step.
    from marey.app.traces.reports.step_picture import draw_step

    with _show_progress(out, "reading") as progress:
        opened = _open(args.path, args.cache, lambda share: progress(0.5 * share))
        analysis = analyse(opened, lambda _, share: progress(0.5 + 0.2 * share))
        document = report_document(
            opened, progress=lambda share: progress(0.4 + 0.4 * share), analysis=analysis
        )
        drawn = draw_step(opened, analysis, lambda share: progress(0.8 + 0.2 * share))
    page = report_html(document, name=_name_run(args.path), drawn=drawn)
    target.write_text(page, encoding="utf-8")
    out.print_note(f"Written to {target}.")
    return document


def _check_writable(target: Path) -> None:
    """Refuse a bad target before minutes of work, not after."""
    if target.is_dir():
        raise InvalidInput(f"Cannot write to {target}: it is a folder; give the name of a file.")
    if not target.parent.is_dir():
        raise InvalidInput(f"Cannot write to {target}: there is no folder {target.parent}.")


def _name_run(path: str) -> str:
    return Path(os.path.abspath(path)).name


def _run_steps(args: argparse.Namespace, out: Output) -> None:
    parse_selection(args.where)
    document = _write_document(args, out)
    marked = bool(document["steps"])
    steps = select_documents(document["steps"], args.where)
    time = step_statistics([row["duration_ms"] for row in steps])
    kept = {"step_time": time, "steps": steps}
    nothing = marked and not steps
    out.answer(kept, "No step fits the selection." if nothing else steps_text(kept))


def _run_collectives(args: argparse.Namespace, out: Output) -> None:
    parse_selection(args.where)
    document = _write_document(args, out)
    items = document["collectives"]
    items["items"] = select_documents(items["items"], args.where)
    kept = {
        "collectives": document["collectives"],
        "bandwidth": document["bandwidth"],
        "clock": document["clock"],
        "clock_error_us": document["clock_error_us"],
    }
    out.answer(kept, collectives_text(document, args.limit))


def _write_document(args: argparse.Namespace, out: Output) -> ReportDocument:
    with _show_progress(out, "reading") as progress:
        return report_document(args.path, args.cache, progress)


def _run_critical_path(args: argparse.Namespace, out: Output) -> None:
    window = Window(args.step, args.annotation, args.instance)
    with _show_progress(out, "reading") as progress:
        opened = _open(args.path, args.cache, progress)
    rank = opened.ranks[0] if args.rank is None else args.rank
    events = opened.events(rank, OPERATOR_PATH_COLUMNS)
    found = operator_path(events, opened.symbols, window)
    document = {"rank": rank, "window": window.words(), **clean(found.as_dict())}
    out.answer(document, critical_path_text(document, args.limit))


def _run_diff(args: argparse.Namespace, out: Output) -> None:
    a = _open_side(args.a, steps=args.steps_a, cache=args.cache, out=out, label="reading A")
    b = _open_side(args.b, steps=args.steps_b, cache=args.cache, out=out, label="reading B")
    document = {"a": args.a, "b": args.b, **clean(compare(a, b).as_dict())}
    out.answer(document, diff_text(document, args.limit))


def _open_side(
    path: str, *, steps: list[int] | None, cache: Path | None, out: Output, label: str
) -> RunProfile:
    with _show_progress(out, label) as progress:
        opened = _open(path, cache, lambda share: progress(0.7 * share))
        return profile_run(opened, steps=steps, progress=lambda s: progress(0.7 + 0.3 * s))


def _open(path: str, cache: Path | None, progress: Callable[[float], None]) -> TraceRun:
    return open_run(path, cache=cache, progress=progress)


def _convert(args: argparse.Namespace, out: Output) -> None:
    # Imported here: the other questions never write tables.
    from marey.trace.run.parquet_export import write_tables

    with _show_progress(out, "converting") as progress:
        opened = _open(args.path, args.cache, lambda share: progress(0.8 * share))
        written = write_tables(opened, args.out, progress=lambda s: progress(0.8 + 0.2 * s))
    events = sum(file["events"] for file in written["files"])
    text = (
        f"{len(written['files'])} ranks, {events:,} events → {args.out}\n"
        "Names are integer codes: their texts are in symbols.parquet, at the row of the code."
    )
    out.answer(written, text)


@contextmanager
def _show_progress(out: Output, label: str) -> Iterator[Callable[[float], None]]:
    with out.progress(label, 1.0) as bar:
        yield bar.update


def step_list(text: str) -> list[int]:
    """Parse ``3-5,8`` as numbers."""
    steps: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            steps += range(int(first), int(last or first) + 1)[: MOST_STEPS + 1]
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a list such as 3-5,8") from None
    if not steps:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' names no step")
    if len(steps) > MOST_STEPS:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' names more than {MOST_STEPS} steps")
    return steps


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a count from 1 to 100000")
    return int(text)


ANSWERS: dict[str, Callable[[argparse.Namespace, Output], None]] = {
    "report": _report,
    "steps": _run_steps,
    "collectives": _run_collectives,
    "critical-path": _run_critical_path,
    "diff": _run_diff,
    "runs": list_runs,
    "table": print_table,
    "convert": _convert,
}

"""Convert one run: a process of its own, so that it can be cancelled and its memory comes back.

``python -m marey.app.traces.conversion_process`` reads a task as JSON from stdin, writes one line
of progress per stage to stdout, and leaves the views of the run in the folder it was given.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from marey.app.traces.children.limited_child import describe_failure
from marey.model.errors import MareyError
from marey.model.system.process_limits import (
    WORK_SECONDS,
    choose_memory_limit,
    limit_this_process,
)
from marey.trace.analysis import analyse
from marey.trace.results import Analysis, Verdict, VerdictKind, VerdictRecord, make_verdict_record
from marey.trace.run.trace_run import TraceRun, open_run
from marey.trace.views.flow.placements import copy_placements
from marey.trace.views.making.stated_strategies import read_graphs, state_stages, write_graphs
from marey.trace.views.making.tensor_edges import join_execution_traces, write_tensor_edges
from marey.trace.views.making.view_writer import write_views
from marey.trace.views.view_index import ViewIndex


class ConversionTask(msgspec.Struct):
    """What is converted, and where to."""

    paths: list[str]
    cache: str
    views: str
    memory_bytes: int = 0
    cpu_seconds: int = WORK_SECONDS


class ConversionLine(msgspec.Struct):
    """One line that the process says."""

    progress: float = 0.0
    doing: str = ""
    error: str = ""
    result: ConversionResult | None = None


class ConversionResult(msgspec.Struct):
    """What the list of runs shows of a converted run."""

    ranks: int
    steps: int
    start_ms: int | None
    end_ms: int | None
    verdicts: list[VerdictRecord]
    warnings: list[str]
    # What marey.record says it belongs to, or "".
    workload: str
    cluster: str


def convert(task: ConversionTask, out: TextIO) -> ConversionResult:
    """Open, analyse and write a run, and say how far it is."""

    def report(progress: float, doing: str) -> None:
        line = ConversionLine(progress=round(progress, 4), doing=doing)
        out.write(msgspec.json.encode(line).decode() + "\n")
        out.flush()

    report(0.0, "reading files")
    run = open_run(
        list(task.paths), cache=task.cache, progress=lambda s: report(0.5 * s, "reading files")
    )
    analysis = analyse(run, lambda what, share: report(0.5 + 0.25 * share, what))
    draft = Path(task.views + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    joins, graphs = join_execution_traces(run, task.paths), read_graphs(run, task.paths)
    analysis = state_stages(analysis, graphs)
    index = write_views(run, analysis, draft, lambda s: report(0.75 + 0.24 * s, "writing pictures"))
    write_tensor_edges(joins, draft)
    write_graphs(graphs, draft)
    copy_placements(task.paths, draft)
    views = Path(task.views)
    shutil.rmtree(views, ignore_errors=True)
    draft.rename(views)
    return describe(run, analysis, index)


# Clocks that count from the start of a machine are no dates: nothing was recorded before 2000.
EARLIEST_NS = 946_684_800_000_000_000


def describe(run: TraceRun, analysis: Analysis, index: ViewIndex) -> ConversionResult:
    """Return the entry of the list of runs."""
    starts = [row["start_ns"] for row in index.steps]
    ends = [row["end_ns"] for row in index.steps]
    timed = bool(starts) and max(ends) - min(starts) > 1
    dated = timed and min(starts) >= EARLIEST_NS
    said = _labels(run)
    return ConversionResult(
        ranks=len(run.ranks),
        steps=sum(row["step"] >= 0 for row in index.steps),
        start_ms=min(starts) // 1_000_000 if dated else None,
        end_ms=max(ends) // 1_000_000 if dated else None,
        verdicts=[make_verdict_record(v) for v in (analysis.verdicts if timed else (_UNTIMED,))],
        warnings=_warnings(run, index),
        workload=said.get("workload", ""),
        cluster=said.get("cluster", ""),
    )


_UNTIMED = Verdict(VerdictKind.NONE, evidence=("This trace has no times, so nothing is judged.",))


def _labels(run: TraceRun) -> Mapping[str, str]:
    """Return the workload and cluster that the recording itself names, the most frequent over
    ranks.
    """
    found: dict[str, Counter[str]] = {"workload": Counter(), "cluster": Counter()}
    for rank in run.ranks:
        record = run.info(rank).clock_sync or {}
        labels = record.get("labels")
        for name, counts in found.items():
            value = labels.get(name) if isinstance(labels, dict) else None
            if isinstance(value, str) and value:
                counts[value] += 1
    return {name: counts.most_common(1)[0][0] for name, counts in found.items() if counts}


def _warnings(run: TraceRun, index: ViewIndex) -> list[str]:
    warnings = []
    outlines = {note.file for note in run.notes if "execution trace" in note.text}
    again = sum(" again; " in n.text and n.file not in outlines for n in run.notes)
    if again:
        warnings.append(
            f"{again} files repeat a rank: several runs seem to be mixed; one of each rank is used."
        )
    unread = sum("is not a trace" in note.text for note in run.notes)
    if unread:
        warnings.append(f"{unread} files are no traces and were left out.")
    cut = sum("truncated" in n.text or "ends early" in n.text for n in run.notes)
    if cut:
        warnings.append(f"{cut} files end too early; what could be read of them is used.")
    if index.missing:
        warnings.append(f"{len(index.missing)} ranks of the run were not traced.")
    return warnings


def main() -> int:
    """Convert what stdin asks for; errors are a last line, never a traceback alone."""
    out = sys.stdout
    try:
        task = msgspec.json.decode(sys.stdin.buffer.read(), type=ConversionTask)
        limit_this_process(task.memory_bytes or choose_memory_limit(), task.cpu_seconds)
        line = ConversionLine(progress=1.0, doing="done", result=convert(task, out))
    except MareyError as error:
        line = ConversionLine(error=str(error))
    except Exception as error:  # the server shows it, and goes on
        line = ConversionLine(error=describe_failure(error))
    out.write(msgspec.json.encode(line).decode() + "\n")
    out.flush()
    return 1 if line.error else 0


if __name__ == "__main__":
    sys.exit(main())

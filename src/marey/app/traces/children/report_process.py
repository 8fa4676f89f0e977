"""Report on the traces in a folder, or compare two runs: a process of its own, with limits.

``python -m marey.app.traces.children.report_process`` reads a task as JSON from stdin, writes its
progress as lines to stdout, and leaves the document as JSON in the file it was given.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from marey.app.traces.children.limited_child import (
    describe_end,
    describe_failure,
    run_child_task,
    start_child,
)
from marey.model.errors import InvalidInput, MareyError
from marey.model.system.process_limits import (
    WORK_SECONDS,
    choose_memory_limit,
    limit_this_process,
)

if TYPE_CHECKING:
    from marey.trace.report.diff import DifferenceDocument
    from marey.trace.report.report_types import ReportDocument

MODULE = "marey.app.traces.children.report_process"


class ReportFolder(msgspec.Struct, tag="report"):
    """A folder to be reported on."""

    folder: str
    cache: str


class RunSide(msgspec.Struct):
    """One of two runs, with those of its steps that count."""

    paths: list[str]
    cache: str
    steps: list[int] | None = None


class RunPair(msgspec.Struct, tag="difference"):
    """Two runs to be compared."""

    a: RunSide
    b: RunSide


class ReportTask(msgspec.Struct):
    """What is asked, and where the answer goes."""

    subject: ReportFolder | RunPair
    output: str
    memory_bytes: int
    cpu_seconds: int = WORK_SECONDS


class ReportLine(msgspec.Struct):
    """One line that the process says."""

    progress: float = 0.0
    error: str = ""


def make_report(
    folder: Path, cache: Path, progress: Callable[[float, float], None]
) -> ReportDocument:
    """Return the document of `marey trace report --json`, made by a child process."""
    document: ReportDocument = _ask_child(ReportFolder(str(folder), str(cache)), progress)
    return document


def make_difference(a: RunSide, b: RunSide) -> DifferenceDocument:
    """Return how run ``b`` differs from run ``a``, computed by a child process."""
    document: DifferenceDocument = _ask_child(RunPair(a, b), lambda done, total: None)
    return document


def _ask_child(subject: ReportFolder | RunPair, progress: Callable[[float, float], None]) -> Any:
    said = ReportLine()

    def listen(line: bytes) -> None:
        nonlocal said
        said = msgspec.json.decode(line, type=ReportLine)
        progress(said.progress, 1.0)

    with tempfile.TemporaryDirectory(prefix="marey-report-") as place:
        output = Path(place) / "report.json"
        task = ReportTask(subject, str(output), choose_memory_limit())
        with start_child(MODULE) as process:
            run_child_task(process, msgspec.json.encode(task), listen)
        if said.error or process.returncode:
            raise InvalidInput(said.error or describe_end(process.returncode))
        return msgspec.json.decode(output.read_bytes())


def _write_report(subject: ReportFolder, send_line: Callable[[ReportLine], None]) -> ReportDocument:
    from marey.trace.report.report_document import report_document

    return report_document(
        Path(subject.folder),
        cache=Path(subject.cache),
        progress=lambda share: send_line(ReportLine(round(share, 4))),
    )


def _write_difference(pair: RunPair) -> DifferenceDocument:
    from marey.trace.report.diff import compare
    from marey.trace.report.report_document import clean
    from marey.trace.report.run_profile import profile_run
    from marey.trace.run.trace_run import open_run

    sides = (
        profile_run(open_run(side.paths, cache=side.cache), steps=side.steps)
        for side in (pair.a, pair.b)
    )
    document: DifferenceDocument = clean(compare(*sides).as_dict())
    return document


def main() -> int:
    """Write the document that stdin asks for; an error is a last line."""

    def send_line(line: ReportLine) -> None:
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()

    try:
        task = msgspec.json.decode(sys.stdin.buffer.read(), type=ReportTask)
        limit_this_process(task.memory_bytes, task.cpu_seconds)
        subject = task.subject
        document: ReportDocument | DifferenceDocument = (
            _write_difference(subject)
            if isinstance(subject, RunPair)
            else _write_report(subject, send_line)
        )
        Path(task.output).write_bytes(msgspec.json.encode(document))
    except MareyError as error:
        send_line(ReportLine(error=str(error)))
        return 1
    except Exception as error:  # the server shows it, and goes on
        send_line(ReportLine(error=describe_failure(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Report on the traces in a folder: a process of its own, with limits.

``python -m marey.app.traces.children.report_process`` reads a task as JSON from stdin, writes its
progress as lines to stdout, and leaves the report as JSON in the file it was given.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from marey.app.traces.children.limited_child import (
    describe_end,
    describe_failure,
    start_child,
    talk_to_child,
)
from marey.model.errors import InvalidInput, MareyError
from marey.model.system.process_limits import (
    WORK_SECONDS,
    choose_memory_limit,
    limit_this_process,
)

MODULE = "marey.app.traces.children.report_process"


class ReportTask(msgspec.Struct):
    """What is reported on, and where the report goes."""

    folder: str
    cache: str
    output: str
    memory_bytes: int
    cpu_seconds: int = WORK_SECONDS


class ReportLine(msgspec.Struct):
    """One line that the process says."""

    progress: float = 0.0
    error: str = ""


def make_report(
    folder: Path, cache: Path, progress: Callable[[float, float], None]
) -> dict[str, Any]:
    """Return the document of `marey trace report --json`, made by a child process."""
    said = ReportLine()

    def listen(line: bytes) -> None:
        nonlocal said
        said = msgspec.json.decode(line, type=ReportLine)
        progress(said.progress, 1.0)

    with tempfile.TemporaryDirectory(prefix="marey-report-") as place:
        output = Path(place) / "report.json"
        task = ReportTask(str(folder), str(cache), str(output), choose_memory_limit())
        with start_child(MODULE) as process:
            talk_to_child(process, msgspec.json.encode(task), listen)
        if said.error or process.returncode:
            raise InvalidInput(said.error or describe_end(process.returncode))
        document: dict[str, Any] = msgspec.json.decode(output.read_bytes())
    return document


def main() -> int:
    """Write the report that stdin asks for; an error is a last line."""
    from marey.trace.report.report_document import report_document

    def say(line: ReportLine) -> None:
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()

    try:
        task = msgspec.json.decode(sys.stdin.buffer.read(), type=ReportTask)
        limit_this_process(task.memory_bytes, task.cpu_seconds)
        report = report_document(
            Path(task.folder),
            cache=Path(task.cache),
            progress=lambda share: say(ReportLine(round(share, 4))),
        )
        Path(task.output).write_bytes(msgspec.json.encode(report))
    except MareyError as error:
        say(ReportLine(error=str(error)))
        return 1
    except Exception as error:  # the server shows it, and goes on
        say(ReportLine(error=describe_failure(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

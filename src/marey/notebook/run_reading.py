"""A run of profiler traces opened in a notebook: converted once, with a bar, then looked at."""

from __future__ import annotations

import io
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

import msgspec

from marey.app.traces.conversion_process import ConversionLine, ConversionTask, convert
from marey.model.errors import InvalidInput, NotFound
from marey.notebook.reading import show_progress
from marey.trace.views.view_files import RunViews


def open_traces(*paths: str | Path, cache: str | Path | None = None) -> RunViews:
    """Read a run of traces for ``MareyView``.

    Where ``cache`` names a folder, what was converted stays there for the next time; else it is
    deleted when nobody uses the run any more.
    """
    if not paths:
        raise InvalidInput("Name at least one file or folder with traces.")
    folder = Path(cache) if cache is not None else Path(tempfile.mkdtemp(prefix="marey-"))
    run = RunViews(folder / "views")
    if cache is None:
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    elif _is_converted(run):
        return run
    folder.mkdir(parents=True, exist_ok=True)
    names = [str(path) for path in paths]
    task = ConversionTask(names, str(folder / "tables"), str(folder / "views"))
    convert(task, _ProgressLines(show_progress(f"Reading {names[0]}")))
    return RunViews(run.folder) if cache is not None else run


def _is_converted(run: RunViews) -> bool:
    try:
        return bool(run.index.ranks)
    except NotFound:
        return False


class _ProgressLines(io.StringIO):
    """Takes the lines that a conversion says, and draws how far it is."""

    def __init__(self, update: Callable[[float], None]) -> None:
        super().__init__()
        self._update = update

    def write(self, text: str) -> int:
        """Show the progress of a line."""
        if text.strip():
            self._update(msgspec.json.decode(text, type=ConversionLine).progress)
        return len(text)

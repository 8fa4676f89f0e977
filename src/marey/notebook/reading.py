"""Profiles and traces read in a notebook, with a bar that says how far it is."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marey.app.traces.callgraphs import LoadOptions, load_graphs
from marey.callgraph.graphs import CallGraphs, combine, unite_made
from marey.callgraph.makers.hatchet import read_frame_object
from marey.callgraph.profiles import ProfileInfo
from marey.model.system.percentages import format_percent


def load(
    *paths: Any, split: str | None = None, metric: str | None = None, unit: str = "s"
) -> CallGraphs:
    """Read profiles or traces and unite them; ``split`` is rank, step, thread or run.

    GraphFrames of Hatchet and Thickets are taken as they are (``pip install marey[hatchet]``);
    they carry no unit, so that ``unit`` has to say it where their times are not seconds.
    """
    if paths and not any(isinstance(path, str | Path) for path in paths):
        graphs = unite_made(
            [read_frame_object(one, ProfileInfo(f"run {n}"), unit) for n, one in enumerate(paths)]
        )
        return combine(graphs, split) if split in ("run", "step") else graphs
    label = f"Reading {len(paths)} paths" if len(paths) != 1 else f"Reading {paths[0]}"
    return load_graphs(paths, LoadOptions(split=split, metric=metric), show_progress(label))


def show_progress(label: str) -> Callable[[float], None]:
    """Return a function that draws how far something is, in the cell that runs; else nothing."""
    handle: Any = _open_display(label)

    def update(share: float) -> None:
        if handle is not None:
            handle.update(_Bar(label, share))

    return update


class _Bar:
    """A progress bar in plain HTML: no widget, no script."""

    def __init__(self, label: str, share: float) -> None:
        self.label = label
        self.share = min(1.0, max(0.0, share))

    def _repr_html_(self) -> str:
        text = html.escape(self.label)
        share = format_percent(self.share)
        return f'<progress value="{self.share:.3f}" max="1"></progress> {text} {share}'

    def __repr__(self) -> str:
        return f"{self.label}: {format_percent(self.share)}"


def _open_display(label: str) -> Any:
    """Return the place of a bar in the cell's output; None outside a notebook."""
    try:
        from IPython import display as shown
        from IPython.core.getipython import get_ipython
    except ImportError:
        return None
    if get_ipython() is None:
        return None
    show: Any = shown.display
    return show(_Bar(label, 0.0), display_id=True)

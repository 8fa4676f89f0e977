"""Files of any kind → united call graphs: profiles by their makers, traces through their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from marey.callgraph.graphs import CallGraphs, combine, unite_made
from marey.callgraph.makers.detection import FORMATS, find_profiles, read_profiles, run_names
from marey.callgraph.makers.events import EVENT_COLUMNS, EventOptions, make_from_events
from marey.callgraph.profiles import MadeProfiles
from marey.model.errors import InvalidInput, shown
from marey.trace.run.trace_run import open_run

SPLITS = ("rank", "step", "thread", "run")


@dataclass(frozen=True)
class LoadOptions:
    """How files become profiles."""

    # One profile per rank, step, thread or run.
    split: str | None = None
    metric: str | None = None
    backward_under_forward: bool = False
    all_operators: bool = False
    aliases: Mapping[str, str] | None = None
    cache: Path | None = None


def load_graphs(
    paths: Sequence[str | Path],
    options: LoadOptions | None = None,
    progress: Callable[[float], None] | None = None,
    *,
    names: Sequence[str | None] = (),
) -> CallGraphs:
    """Read every path and unite what they hold into one graph.

    ``names`` says what the runs of traces are called where their folders do not.
    """
    options = options or LoadOptions()
    if not paths:
        raise InvalidInput("Name at least one file or folder with profiles or traces.")
    if options.split is not None and options.split not in SPLITS:
        raise InvalidInput(
            f"Cannot split by '{shown(options.split)}'; allowed: {', '.join(SPLITS)}."
        )
    made: list[MadeProfiles] = []
    for number, (path, name) in enumerate(zip_longest(paths, names)):
        made += _load(Path(path), options, name)
        if progress is not None:
            progress((number + 1) / len(paths))
    graphs = unite_made(made)
    return combine(graphs, options.split) if options.split in ("run", "step") else graphs


def _load(path: Path, options: LoadOptions, run: str | None) -> list[MadeProfiles]:
    found = find_profiles(path)
    if found:
        names = run_names(found)
        return [
            read_profiles(one, name, options.metric) for one, name in zip(found, names, strict=True)
        ]
    return [_load_trace(path, options, run or path.resolve().name.split(".")[0])]


def _load_trace(path: Path, options: LoadOptions, name: str) -> MadeProfiles:
    """Read a run of profiler traces through its event tables."""
    try:
        run = open_run(path, cache=options.cache)
    except InvalidInput as error:
        raise InvalidInput(
            f"{shown(str(path))} holds nothing that can be read: {error} "
            f"Profiles that can: {FORMATS}; and profiler traces."
        ) from None
    how = EventOptions(
        split=options.split if options.split in ("step", "thread") else "rank",
        metric=options.metric or "time",
        backward_under_forward=options.backward_under_forward,
        all_operators=options.all_operators,
        aliases=options.aliases,
    )
    tables = {rank: run.events(rank, EVENT_COLUMNS) for rank in run.ranks}
    return make_from_events(tables, run.symbols.texts(), run=name, options=how)

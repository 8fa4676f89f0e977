"""Small graphs and the real ones, each read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from marey.app.traces.callgraphs import LoadOptions, load_graphs
from marey.callgraph.graphs import CallGraphs, unite_made
from marey.callgraph.profiles import ProfileInfo, RawGraph, make_profiles

Maker = Callable[..., CallGraphs]


def graphs_of(
    profiles: Sequence[dict[tuple[str, ...], float]], *, run: str = "run", unit: str = "ns"
) -> CallGraphs:
    """United graphs from the exclusive values of paths, one dictionary per profile."""
    made = []
    for rank, values in enumerate(profiles):
        known: dict[tuple[str, ...], int] = {}
        for path in values:
            for end in range(1, len(path) + 1):
                known.setdefault(path[:end], len(known))
        raw = RawGraph(
            names=[path[-1] for path in known],
            parent=[known.get(path[:-1], -1) for path in known],
            node=[known[path] for path in values],
            exclusive=list(values.values()),
            infos=[ProfileInfo(run, rank)],
            unit=unit,
        )
        made.append(make_profiles(raw, "test"))
    return unite_made(made)


@pytest.fixture
def graphs() -> Maker:
    """A maker of united graphs from exclusive values by path."""
    return graphs_of


@pytest.fixture(scope="session")
def callgraph_dir(data_dir: Path) -> Path:
    """The folder of real profiles."""
    return data_dir / "callgraphs"


@pytest.fixture(scope="session")
def real(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CallGraphs]:
    """A reader of real profiles and traces; each is read once in a session."""
    cache, known = tmp_path_factory.mktemp("traces"), {}

    def read(path: str, **options: object) -> CallGraphs:
        key = (path, tuple(sorted(options.items())))
        if key not in known:
            how = LoadOptions(cache=cache, **options)  # type: ignore[arg-type]
            known[key] = load_graphs([data_dir / path], how)
        return known[key]

    return read

"""Questions about the call graphs of uploaded profiles and traces, answered with documents."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from marey.app.traces import callgraph_documents as documents
from marey.app.traces.callgraphs import LoadOptions, load_graphs
from marey.app.traces.trace_library import TraceLibrary
from marey.callgraph.analysis.diff import compare_graphs, difference_document
from marey.callgraph.analysis.ensemble import ensemble_document, make_ensemble, profile_document
from marey.callgraph.analysis.outline import (
    METRICS,
    Outline,
    describe_values,
    outline_tree,
    values_by_profile,
)
from marey.callgraph.analysis.scaling import describe_scaling
from marey.callgraph.analysis.similarity import similarity_document
from marey.callgraph.analysis.supernodes import Grouping, sankey_document
from marey.callgraph.graphs import CallGraphs, take_profiles
from marey.callgraph.queries.query import parse_query, query_document
from marey.callgraph.queries.selection import select_nodes
from marey.callgraph.tables import sites_document
from marey.callgraph.trees import KINDS
from marey.model.errors import InvalidInput, NotFound, shown

# Graphs are kept while somebody looks at them; a page asks for several views of the same.
KEPT_GRAPHS = 4
PREFIX = "callgraph:"
RUN = "run:"
KindT = TypeVar("KindT")


@dataclass(frozen=True)
class AskedProfiles:
    """Which profiles a question is about."""

    sources: tuple[str, ...]
    split: str | None = None
    metric: str | None = None
    # Numbers of profiles; None for all.
    profiles: tuple[int, ...] | None = None


class SentFile(Protocol):
    """A file that somebody sent."""

    @property
    def name(self) -> str:
        """What its sender called it."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    @property
    def time_ms(self) -> int:
        """When it came."""


class SentFiles(Protocol):
    """Where files that people sent are kept."""

    def owners(self, prefix: str) -> list[str]:
        """Return who has files."""

    def files(self, owner: str) -> Sequence[SentFile]:
        """Return the files of an owner."""

    def as_named(self, owner: str, name: str) -> Path:
        """Return a file under the name it was sent with."""


class CallGraphCache:
    """Call graphs read once and kept for the next questions, the least recently asked put away."""

    def __init__(
        self,
        uploads: SentFiles,
        runs: TraceLibrary | None = None,
        *,
        beside: CallGraphCache | None = None,
    ) -> None:
        self._uploads = uploads
        self._runs = runs
        # One that stands beside another has the same graphs in memory, whoever looks at them.
        self._kept: OrderedDict[tuple[Any, ...], CallGraphs] = OrderedDict()
        self._lock = threading.Lock()
        if beside is not None:
            self._kept, self._lock = beside._kept, beside._lock

    def sources(self) -> list[documents.CallGraphSource]:
        """Return the runs of traces, newest first, then the profiles that were uploaded."""
        found = [
            documents.CallGraphSource(
                source=f"{RUN}{run.id}",
                name=run.name,
                files=run.files,
                bytes=run.bytes,
                time_ms=run.created_ms,
            )
            for run in (self._runs.list_runs() if self._runs else ())
        ]
        for prefix in (PREFIX, "trace:"):
            for owner in self._uploads.owners(prefix):
                files = self._uploads.files(owner)
                found.append(
                    documents.CallGraphSource(
                        source=owner,
                        name=owner.partition(":")[2],
                        files=len(files),
                        bytes=sum(file.size for file in files),
                        time_ms=max(file.time_ms for file in files),
                    )
                )
        return found

    def graphs(self, asked: AskedProfiles) -> CallGraphs:
        """Return the united graphs of these sources."""
        if not asked.sources:
            raise InvalidInput("Name at least one source of profiles.")
        # One at a time: reading the same files twice at once helps nobody.
        with self._lock:
            graphs = self._read(asked)
        return graphs if asked.profiles is None else take_profiles(graphs, asked.profiles)

    def _read(self, asked: AskedProfiles) -> CallGraphs:
        places = [self._place(source) for source in asked.sources]
        key = (asked.split, asked.metric, *(stamp for _, stamp in places))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        options = LoadOptions(split=asked.split, metric=asked.metric, cache=self._cache(asked))
        names = self._name_runs(asked.sources)
        graphs = load_graphs([path for path, _ in places], options, names=names)
        self._kept[key] = graphs
        while len(self._kept) > KEPT_GRAPHS:
            self._kept.popitem(last=False)
        return graphs

    def _name_runs(self, sources: Sequence[str]) -> list[str | None]:
        """Return the name of each run of traces; runs of one name get their id added."""
        ids = [source.removeprefix(RUN) if source.startswith(RUN) else None for source in sources]
        names = [self._runs.get(one).name if one and self._runs else None for one in ids]
        return [
            f"{name} ({one})" if name is not None and names.count(name) > 1 else name
            for name, one in zip(names, ids, strict=True)
        ]

    def _cache(self, asked: AskedProfiles) -> Path | None:
        """Return where the converted tables of a run are; other traces use the user's cache."""
        runs = [s.removeprefix(RUN) for s in asked.sources if s.startswith(RUN)]
        return self._runs.trace_paths(runs[0])[1] if runs and self._runs else None

    def _place(self, source: str) -> tuple[Path, tuple[Any, ...]]:
        """Return where a source's files are, and what tells them from a later state of them."""
        if source.startswith(RUN) and self._runs is not None:
            paths = [Path(path) for path in self._runs.trace_paths(source.removeprefix(RUN))[0]]
            stamps = tuple((str(path), path.stat().st_mtime_ns) for path in paths)
            # Files that were sent lie in one folder of their run.
            return (paths[0] if len(paths) == 1 else paths[0].parent), (source, *stamps)
        if not source.startswith((PREFIX, "trace:")):
            known = ", ".join((RUN, PREFIX, "trace:"))
            raise InvalidInput(f"'{shown(source)}' is no source; it begins with one of: {known}")
        files = self._uploads.files(source)
        if not files:
            raise NotFound(f"There are no uploaded files of '{shown(source)}'.")
        named = [self._uploads.as_named(source, file.name) for file in files]
        return named[0].parent, (source, *((f.name, f.size, f.time_ms) for f in files))


def _convert(document: object, kind: type[KindT]) -> KindT:
    return msgspec.convert(document, kind, strict=False)


def ask_ensemble(graphs: CallGraphs, limit: int) -> documents.CallGraphEnsemble:
    """Return box plots per call site, those with most time, and who stands out."""
    document = ensemble_document(make_ensemble(graphs), graphs, limit=limit)
    return _convert(document, documents.CallGraphEnsemble)


def ask_sankey(
    graphs: CallGraphs, grouping: Grouping, target: int | None
) -> documents.CallGraphSankey:
    """Return supernodes and flows."""
    return _convert(
        sankey_document(graphs, grouping, target=target),
        documents.CallGraphSankey,
    )


def ask_map(graphs: CallGraphs, metric: str, clusters: int | None) -> documents.CallGraphMap:
    """Return the map of the profiles with their clusters."""
    return _convert(similarity_document(graphs, metric, clusters=clusters), documents.CallGraphMap)


def ask_scaling(
    graphs: CallGraphs, parameter: str | None, of: str, limit: int
) -> documents.CallGraphScaling:
    """Return how call sites scale with a parameter of the profiles, and which there are."""
    document = describe_scaling(graphs, parameter, of, limit=limit)
    return _convert(document, documents.CallGraphScaling)


def ask_difference(before: CallGraphs, after: CallGraphs) -> documents.CallGraphDifference:
    """Return the call sites that became slower or faster, appeared or vanished."""
    document = difference_document(compare_graphs(before, after))
    return _convert(document, documents.CallGraphDifference)


def ask_selection(graphs: CallGraphs, where: str, limit: int) -> documents.CallGraphSelection:
    """Return the nodes that a query selects, and their time in each profile."""
    query = parse_query(where)
    chosen = select_nodes(graphs, query)
    values = {
        word: {"by_profile": _plain(row), **describe_values(row)}
        for word, row in values_by_profile(graphs, chosen).items()
    }
    sites = sites_document(graphs, chosen=chosen, limit=limit)
    text = msgspec.json.encode(query_document(query)).decode()
    return _convert({"query": text, **sites, **values}, documents.CallGraphSelection)


def ask_tree(
    graphs: CallGraphs, *, limit: int, where: str | None, target: int | None
) -> documents.CallGraphTree:
    """Return the united tree as columns, the heaviest call sites of it."""
    chosen = None if where is None else select_nodes(graphs, parse_query(where))
    outline = outline_tree(graphs, limit=limit, chosen=chosen)
    columns = {word: _plain(outline.values[word]) for word in METRICS}
    codes, name = np.unique(graphs.tree.name[outline.node], return_inverse=True)
    return documents.CallGraphTree(
        unit=graphs.unit,
        total=outline.total,
        profiles=[
            _convert(profile_document(n, info), documents.CallGraphProfile)
            for n, info in enumerate(graphs.infos)
        ],
        nodes=len(graphs.tree),
        names=[graphs.tree.names[code] for code in codes],
        depth=outline.depth.tolist(),
        name=name.tolist(),
        kind=[str(KINDS[code]) for code in graphs.tree.kind[outline.node]],
        inclusive=columns["inclusive"],
        exclusive=columns["exclusive"],
        calls=columns["calls"],
        imbalance=columns["imbalance"],
        count=outline.count.tolist(),
        hidden=outline.hidden.tolist(),
        hidden_inclusive=outline.hidden_inclusive.tolist(),
        of_target=_values_of_target(outline, target),
        notes=list(graphs.notes),
    )


def _values_of_target(outline: Outline, target: int | None) -> list[float | None]:
    if target is None:
        return [None] * len(outline)
    one = take_profiles(outline.graphs, [target])
    values = np.full(len(outline.graphs.tree), np.nan)
    values[one.node] = one.inclusive
    return _plain(values[outline.node])


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    return [value if value == value else None for value in values.tolist()]


def parse_profiles(text: str | None) -> tuple[int, ...] | None:
    """Read numbers of profiles: ``0,3,5-9``."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(first + last) > 12:
            raise InvalidInput(f"'{shown(part)}' is no number of a profile; write 0,3,5-9.")
        found += range(int(first), min(int(last or first), int(first) + 100_000) + 1)
    return tuple(dict.fromkeys(found))

"""A graph of functions → a tree of calls, where the profiler kept callers but no stacks.

cProfile and gprof know how much time each caller spent in each callee, not along which path. The
tree assumes that a function's time splits over its callers' paths as it splits over its callers.
A function that is already on the path (recursion) is not entered again, and branches below a
ten-thousandth of the whole are not opened: both keep their time as their own, so sums hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from marey.callgraph.profiles import MadeProfiles, ProfileInfo, RawGraph, make_profiles
from marey.callgraph.trees import NO_PARENT
from marey.model.errors import InvalidInput

SMALLEST_SHARE = 1e-4
MOST_NODES = 200_000
NOTE = "callers only, no stacks: times along a path are apportioned, recursion is folded"


@dataclass(frozen=True)
class Function:
    """One function of the graph: its own time, its time with callees, its calls."""

    name: str
    exclusive: float
    inclusive: float
    calls: float = float("nan")
    module: str | None = None


@dataclass
class FunctionGraph:
    """Functions by key, and what each caller spent in each callee: (inclusive, calls)."""

    functions: dict[str, Function] = field(default_factory=dict)
    edges: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)

    def add_edge(self, caller: str, callee: str, inclusive: float, calls: float) -> None:
        """Note what a caller spent in a callee."""
        self.edges.setdefault(caller, {})[callee] = (inclusive, calls)

    def roots(self) -> list[str]:
        """Return the functions that nobody else calls; of a cycle, the one with most time."""
        called = {b for a, callees in self.edges.items() for b in callees if a != b}
        found = [key for key in self.functions if key not in called]
        reached = self._find_reached(found)
        rest = [key for key in self.functions if key not in reached]
        while rest:
            best = max(rest, key=lambda key: self.functions[key].inclusive)
            found.append(best)
            reached |= self._find_reached([best])
            rest = [key for key in rest if key not in reached]
        return found

    def _find_reached(self, starts: Sequence[str]) -> set[str]:
        seen, waiting = set(starts), list(starts)
        while waiting:
            for callee in self.edges.get(waiting.pop(), {}):
                if callee not in seen:
                    seen.add(callee)
                    waiting.append(callee)
        return seen


@dataclass
class _Expansion:
    names: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    modules: list[str | None] = field(default_factory=list)
    inclusive: list[float] = field(default_factory=list)
    exclusive: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)

    def add(self, function: Function, parent: int, whole: float, calls: float) -> int:
        self.names.append(function.name)
        self.parent.append(parent)
        self.modules.append(function.module)
        self.inclusive.append(whole)
        self.exclusive.append(whole)
        self.calls.append(calls)
        return len(self.names) - 1


def expand(graph: FunctionGraph, info: ProfileInfo, unit: str, format_name: str) -> MadeProfiles:
    """Return the tree of calls of a graph of functions."""
    if not graph.functions:
        raise InvalidInput(f"The {format_name} profile names no function.")
    out = _Expansion()
    roots = graph.roots()
    smallest = SMALLEST_SHARE * sum(graph.functions[key].inclusive for key in roots)
    for key in roots:
        function = graph.functions[key]
        _open(
            graph,
            root=key,
            first=out.add(function, NO_PARENT, function.inclusive, function.calls),
            out=out,
            smallest=smallest,
        )
    raw = RawGraph(
        names=out.names,
        parent=out.parent,
        node=range(len(out.names)),
        inclusive=out.inclusive,
        exclusive=out.exclusive,
        calls=out.calls,
        modules=out.modules,
        infos=[info],
        unit=unit,
    )
    return make_profiles(raw, format_name, [NOTE])


def _open(graph: FunctionGraph, *, root: str, first: int, out: _Expansion, smallest: float) -> None:
    """Open the branches below a root, depth first without recursion."""
    path: set[str] = set()
    waiting: list[tuple[str, int, bool]] = [(root, first, True)]
    while waiting:
        key, at, enter = waiting.pop()
        if not enter:
            path.discard(key)
            continue
        path.add(key)
        waiting.append((key, at, False))
        function = graph.functions[key]
        scale = out.inclusive[at] / function.inclusive if function.inclusive > 0 else 0.0
        if len(out.names) > MOST_NODES:
            continue
        for callee, (whole, calls) in graph.edges.get(key, {}).items():
            known = graph.functions.get(callee)
            spent = min(whole * scale, out.exclusive[at])
            if known is None or callee in path or spent < smallest:
                continue
            out.exclusive[at] -= spent
            waiting.append((callee, out.add(known, at, spent, calls * scale), True))

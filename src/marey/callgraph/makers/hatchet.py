"""Hatchet: its literal (nested dictionaries), and its GraphFrames and Thickets as objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.profiles import UNTESTED, MadeProfiles, ProfileInfo, RawGraph, make_profiles
from marey.callgraph.trees import NO_PARENT
from marey.model.errors import InvalidInput, allowed
from marey.model.training.callgraphs import NodeKind

_KINDS = {str(kind): kind for kind in NodeKind}


def read_literal(
    roots: Sequence[Mapping[str, Any]], info: ProfileInfo, unit: str = "s"
) -> MadeProfiles:
    """Read a literal: ``[{"frame": {"name": …}, "metrics": {"time": …}, "children": […]}]``."""
    names, parent, kinds, modules = [], [], [], []
    columns: dict[str, list[float]] = {"time (inc)": [], "time": [], "calls": []}
    for place, above in _walk(roots):
        frame, metrics = place.get("frame", {}), place.get("metrics", {})
        names.append(str(frame.get("name", "")))
        parent.append(above)
        kinds.append(_KINDS.get(str(frame.get("type", "")), NodeKind.FUNCTION))
        modules.append(frame.get("module") or None)
        unit = str(metrics.get("unit", unit))
        for word, values in columns.items():
            values.append(float(metrics.get(word, "nan")))
    made_by = ("hatchet-literal", [UNTESTED + ": Hatchet literal"])
    return _make_raw((names, parent, kinds, modules), columns, info, unit=unit, made_by=made_by)


def read_hatchet_json(
    document: Mapping[str, Any], info: ProfileInfo, unit: str = "s"
) -> MadeProfiles:
    """Read what ``GraphFrame.to_json`` writes: nodes by number, and a table of their times.

    A node of several callers stays at the first, which a note says; a cycle is refused, and so is
    a frame of several ranks, because the numbers of its rows do not say which is which.
    """
    if document.get("dataframe_indices", ["node"]) != ["node"]:
        raise InvalidInput(
            "A Hatchet JSON of several ranks is not read; export one rank at a time."
        )
    nodes = {int(k): v for tree in document["graph"] for k, v in tree.items()}
    called = {int(child) for node in nodes.values() for child in node["children"]}
    below = {key: [int(child) for child in node["children"]] for key, node in nodes.items()}
    order, parent = _order_nodes(below, [key for key in nodes if key not in called])
    times = {int(row["node"]): row for row in document["dataframe"]}
    columns = {
        word: [float(_fill_missing(times.get(key, {}).get(word))) for key in order]
        for word in ("time (inc)", "time", "calls")
    }
    frames = [nodes[key]["data"] for key in order]
    names = [str(frame.get("name", "")) for frame in frames]
    kinds = [_KINDS.get(str(frame.get("type", "")), NodeKind.FUNCTION) for frame in frames]
    modules: list[str | None] = [frame.get("module") or None for frame in frames]
    sites = (names, parent, kinds, modules)
    return _make_raw(
        sites, columns, info, unit=unit, made_by=("hatchet-json", _describe_shared(below))
    )


def _fill_missing(value: Any) -> Any:
    return float("nan") if value is None else value


def _order_nodes(
    below: Mapping[int, Sequence[int]], roots: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the nodes parents first, and the place of each one's first caller.

    A call site that is its own caller, directly or through others, belongs in no tree of paths:
    refused, and named by its number.
    """
    order: list[int] = []
    parent: list[int] = []
    place: dict[int, int] = {}
    open_sites: set[int] = set()
    waiting: list[tuple[int, int]] = [(root, NO_PARENT) for root in reversed(roots)]
    while waiting:
        key, above = waiting.pop()
        if key < 0:
            open_sites.discard(~key)
            continue
        if key in open_sites:
            raise InvalidInput(f"The graph is cyclic: call site {key} calls itself through others.")
        if key in place:
            continue
        place[key] = len(order)
        order.append(key)
        parent.append(above)
        open_sites.add(key)
        # Behind its callees comes the mark that closes it.
        waiting.append((~key, NO_PARENT))
        waiting.extend((child, place[key]) for child in reversed(below[key]))
    if len(order) < len(below):
        lost = len(below) - len(order)
        raise InvalidInput(f"The graph is cyclic: no root leads to {lost} of its call sites.")
    return order, parent


def _describe_shared(below: Mapping[int, Sequence[int]]) -> list[str]:
    """Return the note on call sites of several callers, if there are any."""
    callers = Counter(child for children in below.values() for child in set(children))
    several = sum(count > 1 for count in callers.values())
    return [f"{several} call sites of several callers stay at the first"] if several else []


def _make_raw(
    sites: tuple[list[str], list[int], list[Any], list[str | None]],
    columns: Mapping[str, list[float]],
    info: ProfileInfo,
    *,
    unit: str,
    made_by: tuple[str, list[str]],
) -> MadeProfiles:
    maker, notes = made_by
    whole, own = np.array(columns["time (inc)"]), np.array(columns["time"])
    known = ~np.isnan(whole) if (~np.isnan(whole)).any() else ~np.isnan(own)
    rows = np.flatnonzero(known)
    raw = RawGraph(
        names=sites[0],
        parent=sites[1],
        node=rows,
        inclusive=whole[rows] if not np.isnan(whole[rows]).any() else None,
        exclusive=own[rows] if not np.isnan(own[rows]).any() else None,
        calls=np.array(columns["calls"])[rows],
        kinds=sites[2],
        modules=sites[3],
        infos=[info],
        unit=unit,
    )
    return make_profiles(raw, maker, notes)


def _walk(roots: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield every place with the number of the one above it, parents first."""
    if not isinstance(roots, list):
        raise InvalidInput("A Hatchet literal is a list of roots.")
    waiting: list[tuple[Any, int]] = [(root, NO_PARENT) for root in reversed(roots)]
    number = 0
    while waiting:
        place, above = waiting.pop()
        if not isinstance(place, dict):
            raise InvalidInput("A place of a Hatchet literal is an object with a frame.")
        yield place, above
        children = place.get("children") or []
        waiting.extend((child, number) for child in reversed(children))
        number += 1


def read_frame_object(frame: Any, info: ProfileInfo, unit: str = "s") -> MadeProfiles:
    """Read a GraphFrame or a Thicket, whichever the object is."""
    try:
        has_profiles = "profile" in frame.dataframe.reset_index()
        return read_thicket(frame, unit) if has_profiles else read_graphframe(frame, info, unit)
    except AttributeError:
        raise InvalidInput(
            f"A {type(frame).__name__} cannot be read; allowed: paths of files and folders, "
            "GraphFrames of Hatchet, Thickets."
        ) from None


def read_graphframe(frame: Any, info: ProfileInfo, unit: str = "s") -> MadeProfiles:
    """Read a Hatchet GraphFrame: its graph and the time columns of its dataframe."""
    table = frame.dataframe.reset_index()
    ranks = table.get("rank")
    infos = _infos(ranks, info)
    number_of = {one.rank: n for n, one in enumerate(infos)}
    profile = None if ranks is None else [number_of[int(rank)] for rank in ranks]
    return _read_object(frame, infos=infos, profile=profile, unit=unit, maker="hatchet")


def _infos(ranks: Any, info: ProfileInfo) -> list[ProfileInfo]:
    if ranks is None:
        return [info]
    return [ProfileInfo(info.run, int(rank), metadata=info.metadata) for rank in sorted(set(ranks))]


def read_thicket(thicket: Any, unit: str = "s") -> MadeProfiles:
    """Read a Thicket: one profile per profile of it, named by its index, with its metadata."""
    table = thicket.dataframe.reset_index()
    profiles = list(dict.fromkeys(table["profile"]))
    number_of = {profile: n for n, profile in enumerate(profiles)}
    facts = thicket.metadata.to_dict("index")
    infos = [ProfileInfo(str(one), metadata=_choose_plain(facts.get(one, {}))) for one in profiles]
    profile = [number_of[one] for one in table["profile"]]
    return _read_object(thicket, infos=infos, profile=profile, unit=unit, maker="thicket")


def _choose_plain(facts: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the facts that are texts or numbers; numpy's own become Python's."""
    plain = {
        str(key): value.item() if isinstance(value, np.generic) else value
        for key, value in facts.items()
    }
    return {key: value for key, value in plain.items() if isinstance(value, str | int | float)}


def _read_object(
    frame: Any,
    *,
    infos: Sequence[ProfileInfo],
    profile: Sequence[int] | None,
    unit: str,
    maker: str,
) -> MadeProfiles:
    nodes, parent, notes = _number_nodes(frame.graph)
    table = frame.dataframe.reset_index()
    place = {id(node): number for number, node in enumerate(nodes)}
    rows = np.array([place[id(node)] for node in table["node"]], np.int64)
    inclusive, exclusive = _find_columns(frame, table)
    if inclusive is None and exclusive is None:
        column = _find_other_time(table)
        values = table[column].to_numpy(float)
        columns: dict[str, Any] = {"inclusive": values}
        how = "inclusive: no call site has less than its callees"
        if not _holds_callees(np.array(parent), rows, profile or [0] * len(rows), values):
            columns, how = {"exclusive": values}, "exclusive: callees have more than their callers"
        notes = [*notes, f"{column} is taken as {how}"]
    else:
        columns = {
            word: table[column].to_numpy(float)
            for word, column in (("inclusive", inclusive), ("exclusive", exclusive))
            if column is not None
        }
    raw = RawGraph(
        names=[str(node.frame.get("name", "")) for node in nodes],
        parent=parent,
        node=rows,
        profile=profile,
        kinds=[_KINDS.get(str(n.frame.get("type", "")), NodeKind.FUNCTION) for n in nodes],
        infos=infos,
        unit=unit,
        **columns,
    )
    return make_profiles(raw, maker, notes)


def _find_columns(frame: Any, table: Any) -> tuple[str | None, str | None]:
    """Return the columns of inclusive and exclusive time, by the names that Hatchet gives them."""
    inclusive = next((c for c in ("time (inc)", *_times(frame.inc_metrics)) if c in table), None)
    exclusive = next((c for c in ("time (exc)", "time") if c in table), None)
    return inclusive, exclusive


def _times(columns: Iterable[Any]) -> list[str]:
    return sorted(str(column) for column in columns if "time" in str(column).lower())


def _find_other_time(table: Any) -> str:
    """Return a column that is a time by its name: totals before means before extremes."""
    times = _times(table.columns)
    if not times:
        listed = allowed([str(c) for c in table.columns])
        raise InvalidInput(f"The frame has no time; its columns: {listed}.")
    words = ("total", "sum", "avg", "mean", "max", "min")
    order = [next((n for n, w in enumerate(words) if w in c.lower()), len(words)) for c in times]
    return times[order.index(min(order))]


def _holds_callees(
    parent: NDArray[np.int64],
    rows: NDArray[np.int64],
    profile: Sequence[int],
    values: NDArray[np.float64],
) -> bool:
    """Return whether every call site has at least the sum of its callees.

    Hatchet lists Caliper's inclusive columns (``Avg time/rank``) as exclusive, so that the values
    themselves have to say what they are.
    """
    most = max(profile, default=0) + 1
    cell = rows * most + np.asarray(profile, np.int64)
    known = np.isfinite(values)
    own = np.bincount(cell[known], values[known], minlength=len(parent) * most)
    called = known & (parent[rows] >= 0)
    above = parent[rows[called]] * most + np.asarray(profile, np.int64)[called]
    below = np.bincount(above, values[called], minlength=len(own))
    # Sums of rounded values may be off by their last digits.
    return bool(np.all(below <= own * (1 + 1e-3)))


def _number_nodes(graph: Any) -> tuple[list[Any], list[int], list[str]]:
    """Return the nodes of a Hatchet graph parents first, their first callers, and notes."""
    nodes = _find_nodes(graph.roots)
    number = {id(node): n for n, node in enumerate(nodes)}
    below = {n: [number[id(child)] for child in node.children] for n, node in enumerate(nodes)}
    roots = [number[id(root)] for root in graph.roots]
    order, parent = _order_nodes(below, roots)
    return [nodes[n] for n in order], parent, _describe_shared(below)


def _find_nodes(roots: Sequence[Any]) -> list[Any]:
    """Return every node that the roots lead to, once."""
    nodes: list[Any] = []
    seen: set[int] = set()
    waiting = list(reversed(roots))
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            nodes.append(node)
            waiting.extend(reversed(node.children))
    return nodes

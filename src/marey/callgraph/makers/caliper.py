"""Caliper profiles: the ``.cali`` stream of records, and the JSON that ``cali-query`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marey.callgraph.profiles import MadeProfiles, ProfileInfo, RawGraph, make_profiles
from marey.model.errors import InvalidInput, allowed, shown
from marey.model.training.callgraphs import NodeKind

# Ids that every Caliper stream begins with: name and properties of an attribute.
_NAME, _PROPERTIES = "8", "10"
# The bit that says "regions of this attribute nest": they make the path.
_NESTED = 256
# Which of several aggregations of a time is the time: totals before means before extremes.
_PREFERRED = ("sum", "", "avg", "any", "max", "min")
_REGION_KINDS = {"loop": NodeKind.LOOP, "statement": NodeKind.STATEMENT}


@dataclass(frozen=True)
class Attribute:
    """A column of a Caliper profile."""

    name: str
    nested: bool = False
    alias: str = ""
    unit: str = ""

    def unit_of_time(self) -> str:
        """Return the unit that the attribute states, or an empty text."""
        return self.unit or ("ns" if self.name.endswith(".ns") else "")


def read_cali(text: str, info: ProfileInfo, metric: str | None = None) -> MadeProfiles:
    """Read the records of a ``.cali`` file."""
    stream = _Stream()
    for line in text.splitlines():
        if line.startswith("__rec="):
            stream.add(line)
    return _make_cali(stream, info, metric)


@dataclass
class _Stream:
    """The records of a ``.cali`` file as they come."""

    # Node id → (attribute id, data, parent id).
    nodes: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    records: list[tuple[Sequence[str], Sequence[str], Sequence[str]]] = field(default_factory=list)
    globals: list[tuple[Sequence[str], Sequence[str], Sequence[str]]] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def add(self, line: str) -> None:
        if "\\" in line:
            self._add_escaped(line)
            return
        parts = [part.split("=") for part in line[6:].split(",")]
        self._keep(parts[0][0], {part[0]: part[1:] for part in parts[1:]})

    def _add_escaped(self, line: str) -> None:
        fields = [_split_escaped(part, "=") for part in _split_escaped(line[6:], ",", keep=True)]
        self._keep(fields[0][0], {part[0]: part[1:] for part in fields[1:]})

    def _keep(self, kind: str, fields: Mapping[str, Sequence[str]]) -> None:
        if kind == "node":
            one = {key: values[0] for key, values in fields.items() if values}
            if "id" in one:
                self.nodes[one["id"]] = (
                    one.get("attr", ""),
                    one.get("data", ""),
                    one.get("parent", ""),
                )
        else:
            record = (fields.get("ref", ()), fields.get("attr", ()), fields.get("data", ()))
            (self.records if kind == "ctx" else self.globals).append(record)

    def attribute(self, number: str) -> Attribute:
        """Return the facts of an attribute; an unknown one has an empty name."""
        known = self.attributes.get(number)
        if known is None:
            known = self.attributes[number] = self._describe(number)
        return known

    def _describe(self, number: str) -> Attribute:
        if self.nodes.get(number, ("", "", ""))[0] != _NAME:
            return Attribute("")
        _, name, at = self.nodes[number]
        words = {"attribute.alias": "", "attribute.unit": ""}
        properties, seen = 0, {number}
        while at in self.nodes and at not in seen:
            seen.add(at)
            attribute, data, parent = self.nodes[at]
            if attribute == _PROPERTIES:
                properties |= int(data) if data.isdigit() else 0
            elif attribute in self.nodes and self.nodes[attribute][1] in words:
                words[self.nodes[attribute][1]] = data
            at = parent
        nested = bool(properties & _NESTED)
        return Attribute(name, nested, words["attribute.alias"], words["attribute.unit"])


def _split_escaped(text: str, mark: str, *, keep: bool = False) -> list[str]:
    """Split where the mark is not escaped; ``keep`` leaves the escapes for a second split."""
    parts, now, skip = [], "", False
    for letter in text:
        if skip:
            now += letter if not keep else "\\" + letter
            skip = False
        elif letter == "\\":
            skip = True
        elif letter == mark:
            parts.append(now)
            now = ""
        else:
            now += letter
    return [*parts, now]


@dataclass
class _Table:
    """Records with a path each, whatever the file's dialect was."""

    names: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    modules: list[str | None] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    rank: list[int | None] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    outside: int = 0


def _make_cali(stream: _Stream, info: ProfileInfo, metric: str | None) -> MadeProfiles:
    used = dict.fromkeys(number for _, attrs, _ in stream.records for number in attrs)
    attributes = {number: stream.attribute(number) for number in used}
    table = _Table()
    places: dict[str, int] = {"": -1}
    columns = [n for n, a in attributes.items() if a.name and not _is_key(a.name)]
    rank_of = next((n for n, a in attributes.items() if a.name == "mpi.rank"), None)
    table.values = {number: [] for number in columns}
    for refs, attrs, data in stream.records:
        node, rank = _path_of(stream, refs, places, table)
        cells = dict(zip(attrs, data, strict=False))
        if node < 0:
            table.outside += 1
            continue
        table.node.append(node)
        table.rank.append(_whole(cells.get(rank_of, "")) if rank_of in cells else rank)
        for number in columns:
            table.values[number].append(_number(cells.get(number)))
    chosen = {attributes[n]: values for n, values in table.values.items()}
    return _finish(
        table, columns=chosen, info=_metadata(stream, info), metric=metric, format_name="caliper"
    )


def _path_of(
    stream: _Stream, refs: Sequence[str], places: dict[str, int], table: _Table
) -> tuple[int, int | None]:
    """Return the call site of a record's references, and the rank among them."""
    found, rank = -1, None
    for reference in refs:
        at = _place(stream, reference, places, table)
        found = at if at >= 0 else found
        node = stream.nodes.get(reference)
        if node and stream.attribute(node[0]).name == "mpi.rank":
            rank = _whole(node[1])
    return found, rank


def _place(stream: _Stream, reference: str, places: dict[str, int], table: _Table) -> int:
    """Return the call site of a node of the stream: itself, or the nearest region above it."""
    chain = []
    while reference not in places:
        chain.append(reference)
        # A node that is its own ancestor would never end.
        places[reference] = -1
        reference = stream.nodes.get(reference, ("", "", ""))[2]
    at = places[reference]
    for number in reversed(chain):
        attribute, data, _ = stream.nodes.get(number, ("", "", ""))
        described = stream.attribute(attribute)
        if described.nested:
            table.names.append(data)
            table.parent.append(at)
            table.kinds.append(_REGION_KINDS.get(described.name, NodeKind.REGION))
            table.modules.append(None)
            at = len(table.names) - 1
        places[number] = at
    return at


def _metadata(stream: _Stream, info: ProfileInfo) -> ProfileInfo:
    known: dict[str, Any] = {}
    for refs, attrs, data in stream.globals:
        for number, value in zip(attrs, data, strict=False):
            known[stream.attribute(number).name] = value
        for start in refs:
            reference, seen = start, set()
            while reference in stream.nodes and reference not in seen:
                seen.add(reference)
                attribute, data_text, reference = stream.nodes[reference]
                known.setdefault(stream.attribute(attribute).name, data_text)
    known.pop("", None)
    return ProfileInfo(info.run, info.rank, info.step, info.thread, {**info.metadata, **known})


def read_caliper_json(document: Any, info: ProfileInfo, metric: str | None = None) -> MadeProfiles:
    """Read the split JSON that ``cali-query`` writes: data, columns and nodes."""
    columns, nodes, data = document["columns"], document["nodes"], document["data"]
    described = document.get("column_metadata") or [{}] * len(columns)
    attributes = [_column(n, d) for n, d in zip(columns, described, strict=True)]
    values = [n for n, d in enumerate(described) if d.get("is_value", True)]
    path = _path_column(columns, values)
    table = _Table()
    of_node = _json_tree(nodes, columns[path], table)
    rank_at = columns.index("mpi.rank") if "mpi.rank" in columns else None
    kept = [n for n in values if n not in (path, rank_at) and not _is_key(columns[n])]
    table.values = {str(n): [] for n in kept}
    for row in data:
        node = of_node.get(row[path]) if isinstance(row[path], int) else None
        if node is None:
            table.outside += 1
            continue
        table.node.append(node)
        table.rank.append(_whole(row[rank_at]) if rank_at is not None else None)
        for n in kept:
            table.values[str(n)].append(_number(row[n]))
    extra = {k: v for k, v in document.items() if isinstance(v, str | int | float)}
    info = ProfileInfo(info.run, info.rank, info.step, info.thread, {**info.metadata, **extra})
    chosen = {attributes[int(n)]: column for n, column in table.values.items()}
    return _finish(table, columns=chosen, info=info, metric=metric, format_name="caliper-json")


def _column(name: str, described: Mapping[str, Any]) -> Attribute:
    alias, unit = described.get("attribute.alias", ""), described.get("attribute.unit", "")
    return Attribute(name, False, str(alias), str(unit))


def _path_column(columns: Sequence[str], values: Sequence[int]) -> int:
    paths = [n for n, name in enumerate(columns) if n not in values]
    for wanted in ("path", "callpath"):
        for n in paths:
            if wanted in columns[n]:
                return n
    if not paths:
        raise InvalidInput(f"The Caliper JSON has no path; its columns: {allowed(columns)}.")
    return paths[0]


def _json_tree(nodes: Sequence[Mapping[str, Any]], column: str, table: _Table) -> dict[int, int]:
    """Keep the nodes of the path's column; return where each went."""
    at = {n: i for i, n in enumerate(n for n, d in enumerate(nodes) if d.get("column") == column)}
    for number in at:
        node = nodes[number]
        table.names.append(str(node.get("label", "")))
        table.parent.append(at.get(node.get("parent", -1), -1))
        table.kinds.append(NodeKind.REGION if column == "path" else NodeKind.FUNCTION)
        table.modules.append(None)
    return at


def _finish(
    table: _Table,
    *,
    columns: Mapping[Attribute, list[float]],
    info: ProfileInfo,
    metric: str | None,
    format_name: str,
) -> MadeProfiles:
    """Choose the columns that are the time and the calls, one profile per rank."""
    inclusive, exclusive = _choose(columns, metric)
    calls = next((a for a in columns if a.name.split("#")[-1] == "count"), None)
    known = inclusive or exclusive
    assert known is not None
    unit, notes = _unit(known, columns[known])
    if table.outside:
        notes.append(f"records outside any region, left out: {table.outside}")
    ranks = sorted({rank for rank in table.rank if rank is not None})
    infos = [ProfileInfo(info.run, rank, info.step, info.thread, info.metadata) for rank in ranks]
    if None in table.rank or not infos:
        infos.append(info)
    place = {one.rank: n for n, one in enumerate(infos)}
    # A record that lacks the time (one of another channel) is no record of a call.
    kept = np.flatnonzero(~np.isnan(np.array(columns[known], float)))
    raw = RawGraph(
        names=table.names,
        parent=table.parent,
        node=np.array(table.node, np.int64)[kept],
        profile=np.array([place[r if r in place else info.rank] for r in table.rank], int)[kept],
        inclusive=None if inclusive is None else np.array(columns[inclusive])[kept],
        exclusive=None if exclusive is None else np.array(columns[exclusive])[kept],
        calls=None if calls is None else np.array(columns[calls])[kept],
        kinds=table.kinds,
        modules=table.modules,
        infos=infos,
        unit=unit,
    )
    return make_profiles(raw, format_name, notes)


def _choose(
    columns: Mapping[Attribute, list[float]], metric: str | None
) -> tuple[Attribute | None, Attribute | None]:
    """Return the attributes of inclusive and exclusive time, or of the metric asked for."""
    if metric not in (None, "time"):
        found = [a for a in columns if metric in (a.name, a.alias)]
        if not found:
            names = sorted({a.alias or a.name for a in columns})
            raise InvalidInput(f"Unknown metric '{shown(metric)}'; allowed: {allowed(names)}.")
        whole = _is_inclusive(found[0])
        return (found[0], None) if whole else (None, found[0])
    times = [a for a in columns if _is_time(a)]
    if not times:
        names = sorted({a.alias or a.name for a in columns})
        raise InvalidInput(f"The Caliper profile has no time; its columns: {allowed(names)}.")
    times.sort(key=_preference)
    inclusive = next((a for a in times if _is_inclusive(a)), None)
    exclusive = next((a for a in times if not _is_inclusive(a)), None)
    if inclusive and exclusive and _preference(inclusive) != _preference(exclusive):
        exclusive = None
    return inclusive, exclusive


def _is_time(attribute: Attribute) -> bool:
    last = attribute.name.split("#")[-1]
    return last in ("time", "time (inc)", "time (exc)") or (
        last.endswith((".duration", ".duration.ns")) and not attribute.name.startswith("scale")
    )


def _is_inclusive(attribute: Attribute) -> bool:
    return "inclusive" in attribute.name or attribute.alias == "time (inc)"


def _preference(attribute: Attribute) -> tuple[bool, int]:
    """Order times: the host's before a device's, totals before means before extremes."""
    words = attribute.name.split("#")
    operations = [w for w in words[:-1] if w != "inclusive"]
    first = operations[0] if operations else ""
    last = words[-1].split(".")[0]
    rank = _PREFERRED.index(first) if first in _PREFERRED else len(_PREFERRED)
    return (last not in ("time", "time (inc)", "time (exc)"), rank)


def _unit(attribute: Attribute, values: Sequence[float]) -> tuple[str, list[str]]:
    if unit := attribute.unit_of_time():
        return unit, []
    if not _is_time(attribute):
        return attribute.alias or attribute.name, []
    whole = bool(np.all(np.mod(np.nan_to_num(np.array(values, float)), 1.0) == 0))
    # CUPTI's clocks count nanoseconds, Caliper's own of old microseconds, today's seconds.
    unit = ("ns" if "cupti" in attribute.name else "us") if whole else "sec"
    reason = "all values are whole" if whole else "values have fractions"
    return unit, [f"{attribute.name} states no unit; taken as {unit}, because {reason}"]


def _is_key(name: str) -> bool:
    return name in ("mpi.rank", "Node order") or name.startswith("cali.")


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if np.isfinite(number) else None


def _number(value: Any) -> float:
    if value is None:
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")

"""Finding things by a piece of their name."""

from __future__ import annotations

from typing import Any

from marey.app.frames import Frame
from marey.model.predicates import Comparison, Or
from marey.model.protocols import RecordStore, WorkloadQuery

_FIELDS = ("workload", "name", "user", "project", "experiment")
_KINDS = {"user": "user", "project": "project", "experiment": "experiment"}


def search(
    store: RecordStore, frame: Frame | None, cluster: str, text: str, limit: int
) -> list[dict[str, Any]]:
    """At most ``limit`` hits: ``{kind, id, label, field}``, exact and early matches first."""
    if not text.strip():
        return []
    needle = text.strip().casefold()
    hits = _workload_hits(store, cluster, needle, limit) + _unit_hits(frame, needle)
    hits.sort(key=lambda hit: _rank(hit, needle))
    return hits[:limit]


def _workload_hits(
    store: RecordStore, cluster: str, needle: str, limit: int
) -> list[dict[str, Any]]:
    where = Or(tuple(Comparison(field, "contains", needle) for field in _FIELDS))
    query = WorkloadQuery(cluster=cluster, where=where, limit=max(limit, 100))
    hits: dict[tuple[str, str], dict[str, Any]] = {}
    for row in store.workloads(query).to_pylist():
        for field in _FIELDS:
            value = row[field] or ""
            if needle not in value.casefold():
                continue
            kind = _KINDS.get(field, "workload")
            name = row["workload"] if kind == "workload" else value
            label = row["name"] or name if kind == "workload" else value
            hits.setdefault((kind, name), {"kind": kind, "id": name, "label": label})
    return list(hits.values())


def _unit_hits(frame: Frame | None, needle: str) -> list[dict[str, Any]]:
    if frame is None:
        return []
    still = frame.units.still
    hits = []
    for kind in ("host", "rack", "switch", "partitions", "model"):
        column = still[kind].combine_chunks()
        if kind == "partitions":
            names = set(column.flatten().to_pylist())
        else:
            names = set(column.unique().to_pylist())
        label = kind.removesuffix("s")
        hits += [
            {"kind": label, "id": name, "label": name}
            for name in names
            if name and needle in name.casefold()
        ]
    # A GPU's name is its host's and an index: only a text with the colon asks for one.
    if ":" in needle:
        hits += [
            {"kind": "gpu", "id": name, "label": name}
            for name in still["gpu"].to_pylist()
            if needle in name.casefold()
        ]
    return hits


def _rank(hit: dict[str, Any], needle: str) -> tuple[int, int, str, str]:
    name = str(hit["id"]).casefold()
    label = str(hit["label"]).casefold()
    if needle in (name, label):
        place = 0
    elif name.startswith(needle) or label.startswith(needle):
        place = 1
    else:
        place = 2
    return (place, len(name), name, hit["kind"])

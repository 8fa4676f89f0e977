"""Finding things by a piece of their name."""

from __future__ import annotations

from marey.live.frames import Frame
from marey.model.documents import Document
from marey.model.predicates import Comparison, Or
from marey.model.protocols import RecordStore, WorkloadQuery

_FIELDS = ("workload", "name", "user", "project", "experiment")
_KINDS = {"user": "user", "project": "project", "experiment": "experiment"}


class SearchHit(Document):
    """Something that was found: a workload, user, project, host, GPU and so on."""

    kind: str
    id: str
    label: str


def search(
    store: RecordStore, frame: Frame | None, cluster: str, *, text: str, limit: int
) -> list[SearchHit]:
    """Return at most ``limit`` hits, exact and early matches first."""
    if not text.strip():
        return []
    needle = text.strip().casefold()
    hits = _find_workloads(store, cluster, needle, limit) + _find_units(frame, needle)
    hits.sort(key=lambda hit: _get_rank(hit, needle))
    return hits[:limit]


def _find_workloads(store: RecordStore, cluster: str, needle: str, limit: int) -> list[SearchHit]:
    where = Or(tuple(Comparison(field, "contains", needle) for field in _FIELDS))
    query = WorkloadQuery(cluster=cluster, where=where, limit=max(limit, 100))
    hits: dict[tuple[str, str], SearchHit] = {}
    for row in store.workloads(query).to_pylist():
        for field in _FIELDS:
            value = row[field] or ""
            if needle not in value.casefold():
                continue
            kind = _KINDS.get(field, "workload")
            name = row["workload"] if kind == "workload" else value
            label = row["name"] or name if kind == "workload" else value
            hits.setdefault((kind, name), SearchHit(kind, name, label))
    return list(hits.values())


def _find_units(frame: Frame | None, needle: str) -> list[SearchHit]:
    if frame is None:
        return []
    still = frame.units.still
    hits: list[SearchHit] = []
    for kind in ("host", "rack", "switch", "partitions", "model"):
        column = still[kind].combine_chunks()
        if kind == "partitions":
            names = set(column.flatten().to_pylist())
        else:
            names = set(column.unique().to_pylist())
        label = kind.removesuffix("s")
        hits += [
            SearchHit(label, name, name) for name in names if name and needle in name.casefold()
        ]
    # A GPU's name is its host's and an index: only a text with the colon asks for one.
    if ":" in needle:
        hits += [
            SearchHit("gpu", name, name)
            for name in still["gpu"].to_pylist()
            if needle in name.casefold()
        ]
    return hits


def _get_rank(hit: SearchHit, needle: str) -> tuple[int, int, str, str]:
    name = hit.id.casefold()
    label = hit.label.casefold()
    if needle in (name, label):
        place = 0
    elif name.startswith(needle) or label.startswith(needle):
        place = 1
    else:
        place = 2
    return (place, len(name), name, hit.kind)

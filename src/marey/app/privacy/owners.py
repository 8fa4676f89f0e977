"""Whose work a workload is, looked up once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from marey.model.access.pseudonyms import NameKind, Pseudonyms
from marey.model.predicates import Comparison
from marey.model.protocols import RecordStore, WorkloadQuery

Owner = tuple[str, str]
NOBODY: Owner = ("", "")
_CHUNK = 5_000
_REMEMBERED = 500_000
_PAGE = 20_000
_PROJECTS_S = 60.0


class WorkloadOwners:
    """User and project by workload, for every scope alike."""

    def __init__(self, store: RecordStore, pseudonyms: Pseudonyms) -> None:
        self._store = store
        self._pseudonyms = pseudonyms
        self._known: dict[tuple[str, str], Owner] = {}
        self._reading = threading.Lock()
        self._projects: dict[str, tuple[float, frozenset[str]]] = {}
        # Up to which submission the names of a cluster have been read for links from earlier.
        self._read: dict[str, int] = {}

    def find(self, cluster: str, workloads: Iterable[str]) -> dict[str, Owner]:
        """Return user and project of each workload that the store knows."""
        wanted = {name for name in workloads if name}
        missing = sorted(name for name in wanted if (cluster, name) not in self._known)
        for at in range(0, len(missing), _CHUNK):
            self._read_chunk(cluster, missing[at : at + _CHUNK])
        return {name: self._known.get((cluster, name), NOBODY) for name in wanted}

    def find_anywhere(self, workload: str) -> list[Owner]:
        """Return the owners of the workloads of this name in every cluster."""
        return [self.find(cluster, [workload])[workload] for cluster in self._store.clusters()]

    def _read_chunk(self, cluster: str, names: list[str]) -> None:
        query = WorkloadQuery(cluster, where=Comparison("workload", "in", names), limit=_CHUNK)
        table = self._store.workloads(query)
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        columns = [table[name].to_pylist() for name in ("workload", "user", "project")]
        for workload, user, project in zip(*columns, strict=True):
            # Facts may come late: whoever has no owner yet is asked for again.
            if user or project:
                self._known[cluster, workload] = (user or "", project or "")

    def find_projects(self, user: str) -> frozenset[str]:
        """Return the projects that a user's newest work was charged to; looked up now and then."""
        now = time.monotonic()
        found = self._projects.get(user)
        if found is None or now - found[0] > _PROJECTS_S:
            names: set[str] = set()
            for cluster in self._store.clusters():
                query = WorkloadQuery(cluster, where=Comparison("user", "eq", user), limit=1000)
                names.update(self._store.workloads(query)["project"].to_pylist())
            found = self._projects[user] = (now, frozenset(name for name in names if name))
        return found[1]

    def find_real(self, cluster: str, kind: NameKind, shown: str) -> str | None:
        """Return whose made-up name this is; one of an earlier start is looked for in the store."""
        found = self._pseudonyms.find(kind, shown)
        if found is not None or not shown.startswith(f"{kind}-"):
            return found
        with self._reading:
            self._learn_names(cluster)
        return self._pseudonyms.find(kind, shown)

    def _learn_names(self, cluster: str) -> None:
        """Make the names of every workload submitted since this was last done."""
        since_ms = self._read.get(cluster)
        query = WorkloadQuery(cluster, from_ms=since_ms, limit=_PAGE)
        while True:
            table = self._store.workloads(query)
            columns = {n: table[n].to_pylist() for n in ("workload", "user", "project")}
            for kind, column in zip(NameKind, ("user", "project", "workload"), strict=True):
                for name in set(columns[column]):
                    self._pseudonyms.make(kind, name or "")
            submitted = [ms for ms in table["submit_ms"].to_pylist() if ms is not None]
            self._read[cluster] = max([self._read.get(cluster, 0), *submitted])
            if table.num_rows < _PAGE:
                return
            query = WorkloadQuery(
                cluster, from_ms=since_ms, limit=_PAGE, after=columns["workload"][-1]
            )

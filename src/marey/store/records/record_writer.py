"""Taking over observations: facts with validity intervals, progress and events, as one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from marey.model.names import bounded
from marey.model.observation import Observation
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.store.database.facts import (
    ALLOCATIONS,
    GPU_STATES,
    GPUS,
    HOST_STATES,
    HOSTS,
    KINDS,
    PARTITIONS,
    STATES,
    WORKLOADS,
    Key,
    Kind,
)
from marey.store.database.rows import delete, insert
from marey.store.records.intervals import Interval, Timeline, change_intervals
from marey.store.records.progress_and_events import ProgressAndEvents

GONE_REASON = "no longer reported"

# How many ended workloads stay in memory, so that sources may repeat them without a lookup.
_ENDED_KEPT = 2_000


class Records:
    """What holds now, in memory; every observation becomes a few batched edits of the file."""

    def __init__(self) -> None:
        self._timelines = {kind.name: Timeline(kind) for kind in KINDS}
        self._clusters: set[str] = set()
        self._complete_ms: dict[str, int] = {}
        self._ended: dict[tuple[str, str], None] = {}
        self._by_workload: dict[str, dict[str, set[Key]]] = {}
        self._happenings = ProgressAndEvents()
        self._unseen: set[tuple[str, str, Key]] = set()

    def load(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read what holds now; ended workloads are looked up when they are named again."""
        for kind in KINDS:
            alive = f"workload IN (SELECT workload FROM {STATES.now} WHERE {_LIVE})"
            where = f"WHERE {alive}" if kind in (WORKLOADS, STATES) else ""
            rows = connection.execute(f"SELECT * FROM {kind.now} {where}").fetchall()
            for row in rows:
                self._timelines[kind.name].load(row[0], kind.from_row(row[1:-1]), row[-1])
        for cluster, held in self._timelines[ALLOCATIONS.name].open.items():
            for key in held:
                self._get_holders(cluster).setdefault(key[0], set()).add(key)
        self._clusters = {row[0] for row in connection.execute("SELECT * FROM clusters").fetchall()}

    @property
    def workload_changes(self) -> int:
        """How often facts or states of workloads were changed so far."""
        return sum(self._timelines[kind.name].changes for kind in (WORKLOADS, STATES))

    def _get_holders(self, cluster: str) -> dict[str, set[Key]]:
        return self._by_workload.setdefault(cluster, {})

    def apply(self, connection: duckdb.DuckDBPyConnection, observation: Observation) -> None:
        """Take over one observation inside the caller's transaction."""
        self.apply_all(connection, (observation,))

    def apply_all(
        self, connection: duckdb.DuckDBPyConnection, observations: Sequence[Observation]
    ) -> None:
        """Take over observations inside the caller's transaction: in memory, then in one go."""
        self._unseen = self._find_unseen(connection, observations)
        for observation in observations:
            self._take(connection, observation)
        for kind in KINDS:
            write_edits(connection, self._timelines[kind.name])
        self._unseen = set()
        for reported in _merge_reports_by_cluster(observations):
            self._happenings.keep(connection, bounded(reported.cluster), reported)

    def _take(self, connection: duckdb.DuckDBPyConnection, observation: Observation) -> None:
        cluster, time_ms = bounded(observation.cluster), int(observation.time_ms)
        self.note_cluster(connection, cluster)
        for kind, values in _list_reported_facts(observation):
            timeline = self._timelines[kind.name]
            if not timeline.is_reported(cluster, values, time_ms):
                self._put_all(connection, kind, cluster, values=values, time_ms=time_ms)
        if observation.complete and time_ms >= self._complete_ms.get(cluster, time_ms):
            self._complete_ms[cluster] = time_ms
            self._close_missing(connection, cluster, observation, time_ms)
        self._release_idle(cluster, observation, time_ms)
        self._allocate(connection, cluster, observation, time_ms)
        for kind, values in _list_reported_facts(observation)[:3]:
            timeline = self._timelines[kind.name]
            timeline.note_reported(cluster, values, time_ms, observation.complete)
        self._forget_ended(cluster, observation.statuses)

    def _find_unseen(
        self, connection: duckdb.DuckDBPyConnection, observations: Sequence[Observation]
    ) -> set[tuple[str, str, Key]]:
        """Return keys that neither memory nor file has: what is new needs no look at its past."""
        asked: dict[tuple[Kind, str], set[Key]] = {}
        for observation in observations:
            cluster = bounded(observation.cluster)
            for kind, values in (
                *_list_reported_facts(observation),
                (ALLOCATIONS, observation.allocations),
            ):
                timeline = self._timelines[kind.name]
                if timeline.is_reported(cluster, values, observation.time_ms):
                    continue
                held = timeline.held(cluster)
                reported = (kind.key_of(value) for value in values)
                keys = {kind.clean_key(key) for key in reported if key not in held}
                if keys:
                    asked.setdefault((kind, cluster), set()).update(keys)
        unseen: set[tuple[str, str, Key]] = set()
        for (kind, cluster), keys in asked.items():
            new = keys - find_known_keys(connection, kind, cluster, list(keys))
            unseen.update((kind.name, cluster, key) for key in new)
        return unseen

    def note_cluster(self, connection: duckdb.DuckDBPyConnection, cluster: str) -> None:
        """Remember that there is such a cluster."""
        if cluster not in self._clusters:
            connection.execute("INSERT INTO clusters VALUES (?)", [cluster])
            self._clusters.add(cluster)

    def _put_all(
        self,
        connection: duckdb.DuckDBPyConnection,
        kind: Kind,
        cluster: str,
        *,
        values: Sequence[Any],
        time_ms: int,
    ) -> None:
        timeline = self._timelines[kind.name]
        unsettled = [value for value in values if not timeline.put(cluster, value, time_ms)]
        if not unsettled:
            return
        cleaned = {kind.key_of(value): value for value in map(kind.clean, unsettled)}
        for key in [key for key in cleaned if (kind.name, cluster, key) in self._unseen]:
            self._unseen.discard((kind.name, cluster, key))
            timeline.start(cluster, cleaned.pop(key), time_ms)
        if not cleaned:
            return
        # The past of a key is in the file only once what is waiting has been written.
        write_edits(connection, timeline)
        past = read_past_intervals(connection, kind, cluster, keys=list(cleaned), time_ms=time_ms)
        for key, value in cleaned.items():
            if key not in past:
                timeline.start(cluster, value, time_ms)
            else:
                self._change_late(timeline, cluster, past[key], (key, value, time_ms))

    def _change_late(
        self,
        timeline: Timeline,
        cluster: str,
        old: list[Interval],
        change: tuple[Key, Any, int],
    ) -> None:
        key, value, time_ms = change
        held = timeline.held(cluster).get(key)
        new = change_intervals(old, time_ms, value, held.confirmed_ms if held else None)
        if new != old:
            timeline.replace(cluster, key, old, new)
        elif held is None and old[-1].to_ms is None:
            timeline.load(cluster, old[-1].value, old[-1].from_ms)

    def _close_missing(
        self,
        connection: duckdb.DuckDBPyConnection,
        cluster: str,
        observation: Observation,
        time_ms: int,
    ) -> None:
        for kind, values in ((HOSTS, observation.hosts), (GPUS, observation.gpus)):
            timeline = self._timelines[kind.name]
            if timeline.is_reported(cluster, values, time_ms, as_all=True):
                continue
            held = timeline.held(cluster)
            there = {timeline.key(held, value) for value in values}
            for key in [key for key in held if key not in there]:
                timeline.end(cluster, key, time_ms)
        reported = {bounded(w.workload) for w in observation.workloads}
        reported |= {bounded(s.workload) for s in observation.statuses}
        states = self._timelines[STATES.name]
        vanished = [
            WorkloadStatus(key[0], WorkloadState.COMPLETED, GONE_REASON)
            for key, held in states.held(cluster).items()
            if not held.value.state.ended and key[0] not in reported
        ]
        self._put_all(connection, STATES, cluster, values=vanished, time_ms=time_ms)
        for status in vanished:
            self._release_gpus(cluster, status.workload, time_ms)
        holding = {bounded(w) for w in {a.workload for a in observation.allocations}}
        for workload in [w for w in self._get_holders(cluster) if w not in holding]:
            self._release_gpus(cluster, workload, time_ms)

    def _release_idle(self, cluster: str, observation: Observation, time_ms: int) -> None:
        """Free the GPUs of a workload that does not run, from its end on."""
        workloads = self._timelines[WORKLOADS.name].held(cluster)
        for status in observation.statuses:
            if status.state is WorkloadState.RUNNING:
                continue
            name = bounded(status.workload)
            if name not in self._get_holders(cluster):
                continue
            facts = workloads.get((name,))
            self._release_gpus(cluster, name, _find_end(facts.value if facts else None, time_ms))

    def _release_gpus(self, cluster: str, workload: str, time_ms: int) -> None:
        timeline = self._timelines[ALLOCATIONS.name]
        for key in self._get_holders(cluster).pop(workload, ()):
            timeline.end(cluster, key, time_ms)

    def _allocate(
        self,
        connection: duckdb.DuckDBPyConnection,
        cluster: str,
        observation: Observation,
        time_ms: int,
    ) -> None:
        """Replace the allocations that a workload had."""
        if not observation.allocations:
            return
        if self._timelines[ALLOCATIONS.name].is_reported(cluster, observation.allocations, time_ms):
            return
        wanted: dict[str, dict[Key, Allocation]] = {}
        timeline = self._timelines[ALLOCATIONS.name]
        held = timeline.held(cluster)
        for allocation in observation.allocations:
            named = timeline.key(held, allocation)
            wanted.setdefault(named[0], {})[named] = allocation
        ended = self._find_ended(cluster, wanted, time_ms)
        for workload, allocations in wanted.items():
            if workload in ended:
                continue
            for key in self._get_holders(cluster).get(workload, set()) - allocations.keys():
                if timeline.held(cluster)[key].from_ms <= time_ms:
                    timeline.end(cluster, key, time_ms)
        values = [a for w, own in wanted.items() if w not in ended for a in own.values()]
        self._put_all(connection, ALLOCATIONS, cluster, values=values, time_ms=time_ms)
        self._update_index(cluster, wanted)
        if not ended:
            timeline.note_reported(cluster, observation.allocations, time_ms, observation.complete)

    def _update_index(self, cluster: str, wanted: dict[str, dict[Key, Allocation]]) -> None:
        held = self._timelines[ALLOCATIONS.name].held(cluster)
        holders = self._get_holders(cluster)
        for workload, allocations in wanted.items():
            named = holders.pop(workload, set()) | allocations.keys()
            holding = {key for key in named if key in held}
            if holding:
                holders[workload] = holding

    def _find_ended(self, cluster: str, workloads: Iterable[str], time_ms: int) -> set[str]:
        """Return those that are known to have ended by then.

        A late allocation must not revive them.
        """
        states = self._timelines[STATES.name].held(cluster)
        found = ((name, states.get((name,))) for name in workloads)
        return {
            name
            for name, held in found
            if held is not None and held.value.state.ended and held.from_ms <= time_ms
        }

    def _forget_ended(self, cluster: str, statuses: Iterable[WorkloadStatus]) -> None:
        for status in statuses:
            name = (cluster, bounded(status.workload))
            if status.state.ended:
                self._ended[name] = None
            else:
                self._ended.pop(name, None)
        surplus = len(self._ended) - _ENDED_KEPT
        for name in list(self._ended)[: max(0, surplus)]:
            del self._ended[name]
            for kind in (WORKLOADS, STATES):
                self._timelines[kind.name].forget(name[0], [(name[1],)])


_LIVE = "state IN ('pending', 'running')"


def _list_reported_facts(observation: Observation) -> list[tuple[Kind, Sequence[Any]]]:
    """Return the reported facts, the inventory first: sources repeat it as the very same tuples."""
    return [
        (HOSTS, observation.hosts),
        (GPUS, observation.gpus),
        (PARTITIONS, observation.partitions),
        (HOST_STATES, observation.host_states),
        (GPU_STATES, observation.gpu_states),
        (WORKLOADS, observation.workloads),
        (STATES, observation.statuses),
    ]


def _merge_reports_by_cluster(observations: Sequence[Observation]) -> list[Observation]:
    """Return progress and events of many observations as one per cluster."""
    together: dict[str, tuple[list[Any], list[Any]]] = {}
    for observation in observations:
        progress, events = together.setdefault(observation.cluster, ([], []))
        progress.extend(observation.progress)
        events.extend(observation.events)
    return [
        Observation(0, cluster, progress=tuple(progress), events=tuple(events))
        for cluster, (progress, events) in together.items()
    ]


def find_known_keys(
    connection: duckdb.DuckDBPyConnection, kind: Kind, cluster: str, keys: list[Key]
) -> set[Key]:
    """Return which of these keys the file has, now or in the past."""
    wanted = pa.table(
        {
            name: pa.array(c, pa.string())
            for name, c in zip(kind.keys, zip(*keys, strict=True), strict=True)
        }
    )
    columns = ", ".join(f't."{key}"' for key in kind.keys)
    match = " AND ".join(f't."{key}" = w."{key}"' for key in kind.keys)
    part = f"SELECT {columns} FROM {{table}} t JOIN wanted w ON {match} WHERE t.cluster = $cluster"
    connection.register("wanted", wanted)
    try:
        rows = connection.execute(
            f"{part.format(table=kind.past)} UNION {part.format(table=kind.now)}",
            {"cluster": cluster},
        ).fetchall()
    finally:
        connection.unregister("wanted")
    return {tuple(row) for row in rows}


def _find_end(workload: Workload | None, time_ms: int) -> int:
    end_ms = workload.end_ms if workload is not None else None
    return end_ms if end_ms is not None and end_ms <= time_ms else time_ms


def read_past_intervals(
    connection: duckdb.DuckDBPyConnection,
    kind: Kind,
    cluster: str,
    *,
    keys: list[Key],
    time_ms: int,
) -> dict[Key, list[Interval]]:
    """Return the intervals of these keys that reach to this time or beyond, in order of time."""
    wanted = pa.table(
        {
            name: pa.array(c, pa.string())
            for name, c in zip(kind.keys, zip(*keys, strict=True), strict=True)
        }
    )
    columns = ", ".join(f't."{name}"' for name, _ in kind.columns)
    match = " AND ".join(f't."{key}" = w."{key}"' for key in kind.keys)
    connection.register("wanted", wanted)
    try:
        rows = connection.execute(
            f"SELECT {columns}, valid_from_ms, valid_to_ms FROM {kind.past} t JOIN wanted w "
            f"ON {match} WHERE t.cluster = $cluster AND valid_to_ms >= $time "
            f"UNION ALL SELECT {columns}, valid_from_ms, NULL FROM {kind.now} t JOIN wanted w "
            f"ON {match} WHERE t.cluster = $cluster",
            {"cluster": cluster, "time": time_ms},
        ).fetchall()
    finally:
        connection.unregister("wanted")
    found: dict[Key, list[Interval]] = {}
    for row in sorted(rows, key=lambda row: int(row[-2])):
        value = kind.from_row(row[:-2])
        found.setdefault(kind.key_of(value), []).append(Interval(row[-2], row[-1], value))
    return found


def write_edits(connection: duckdb.DuckDBPyConnection, timeline: Timeline) -> None:
    """Bring the edits of a kind into the file."""
    kind, edits = timeline.kind, timeline.take_edits()
    if not edits:
        return
    removed_now = [(cluster, *key) for cluster, key in edits.removed_now]
    delete(connection, kind.now, ("cluster", *kind.keys), removed_now)
    removed_past = [(cluster, *key, start) for cluster, key, start in edits.removed_past]
    delete(connection, kind.past, ("cluster", *kind.keys, "valid_from_ms"), removed_past)
    past = [(cluster, *kind.to_row(i.value), i.from_ms, i.to_ms) for cluster, i in edits.added_past]
    insert(connection, kind.past, kind.schema("valid_from_ms", "valid_to_ms"), past)
    now = [
        (cluster, *kind.to_row(value), start)
        for (cluster, _), (value, start) in edits.added_now.items()
    ]
    insert(connection, kind.now, kind.schema("valid_from_ms"), now)

"""A partition's own recorded workloads, laid out for a replay: who came and left, which hosts were
in service, and what the scheduler said of priorities and limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from marey.app.queries.workspace import Workspace
from marey.app.queue.live_line import read_line
from marey.model.errors import InvalidInput, unknown
from marey.model.inventory import HostState
from marey.model.protocols import Store, WorkloadQuery
from marey.model.tables import StateRow
from marey.model.times import DAY_MS
from marey.model.workloads import WorkloadState
from marey.queue.policy.inferred_priority import (
    RAN_BEFORE,
    FittedPriority,
    ReportedPriorities,
    fit_priority,
)
from marey.queue.policy.recorded_jobs import (
    NOT_YET_MS,
    UNKNOWN_MS,
    Hosts,
    Ints,
    OtherUse,
    Outages,
    RecordedJobs,
)
from marey.queue.waiting.explanation import is_limit, is_out_of_line
from marey.queue.waiting.line import HostRoom

# More than these are not replayed: the newest count.
JOBS_LIMIT = 20_000
# Every partition at once, on the hosts that they share.
ALL_PARTITIONS = "*"
_NO_LIMIT_S = 365 * 86400
_LEAST_JOBS = 20
_RUN_MS = 3_600_000
_OUT_OF_SERVICE = (HostState.DRAINED, HostState.DOWN)


class HistoryRow(TypedDict, total=False):
    """A workload of the store (its nullable columns are Any), with what is found out of it here."""

    workload: str
    user: Any
    project: Any
    partition: Any
    qos: Any
    gpus_requested: int
    gpus_per_host: Any
    gpu_model: Any
    time_limit_s: Any
    submit_ms: Any
    eligible_ms: Any
    start_ms: Any
    end_ms: Any
    state: str
    reason: str
    priority: Any
    # The last reason why it waited, and how long it should run if it has not ended.
    waited_for: str
    guessed_ms: int


@dataclass(frozen=True)
class SiteHistory:
    """The recorded workloads that share hosts with a partition, and what was said of them."""

    jobs: RecordedJobs
    # Of which jobs an answer about the partition is, and what the scheduler told of them.
    asked: NDArray[np.bool_]
    reported: ReportedPriorities
    # How the whole site's priorities are computed, with the parts of these jobs.
    priority: FittedPriority | None


@dataclass(frozen=True)
class _Span:
    from_ms: int
    to_ms: int


def read_site_history(
    workspace: Workspace, cluster: str, partition: str, days: float
) -> SiteHistory:
    """Return a partition's requests and run times of the last days.

    Those that ran when the span began hold their GPUs from its first moment. Those that still wait
    are in the line too, else whoever starves would be missing: they run as others did. Those that
    were cancelled while they waited leave the line when they left it.
    """
    line = read_line(workspace, cluster)
    every = partition == ALL_PARTITIONS
    together = _find_sharing(line.hosts, partition)
    hosts = [
        host
        for host in line.hosts
        if every or not host.partitions or together.intersection(host.partitions)
    ]
    if not hosts:
        names = sorted({p for host in line.hosts for p in host.partitions})
        raise InvalidInput(unknown("partition", partition, names))
    store = workspace.store_for_sums()
    to_ms = line.time_ms
    states = store.states(cluster, from_ms=to_ms - int(days * DAY_MS), to_ms=to_ms).to_pylist()
    # What ended before the first record is not known, though it held GPUs then.
    asked_ms = to_ms - int(days * DAY_MS)
    first = min((row["valid_from_ms"] for row in states), default=to_ms)
    rows = _read_rows(store, cluster, _Span(asked_ms, to_ms), states)
    # Unless it was imported: then what ended before is there.
    ended = [
        row["start_ms"] for row in rows if row["start_ms"] and (row["end_ms"] or to_ms) < first
    ]
    span = _Span(max(asked_ms, min([first, *ended])), to_ms)
    asked = sum(
        row["start_ms"] is not None and (every or row["partition"] == partition) for row in rows
    )
    if asked < _LEAST_JOBS:
        raise InvalidInput(
            f"Not enough history: {asked} workloads ran in '{partition}' in this time; "
            f"a replay needs {_LEAST_JOBS}.",
            code="no_history",
        )
    _guess_runs(rows, span)
    rows.sort(key=lambda row: _sort_key(row, span))
    chosen = np.array([every or row["partition"] in together for row in rows])
    mine = [row for row, ours in zip(rows, chosen, strict=True) if ours]
    others = [row for row, ours in zip(rows, chosen, strict=True) if not ours and row["start_ms"]]
    site = _Builder(workspace, span, rows, [], hosts=line.hosts)
    reported = site.list_reported_priorities(states)
    fitted = fit_priority(site.build({}, Outages()), reported)
    builder = _Builder(workspace, span, mine, others, hosts=hosts)
    return SiteHistory(
        jobs=builder.build(
            _read_first_hosts(store, cluster, span, hosts),
            _read_outages(store, cluster, span, hosts),
        ),
        asked=np.array([every or row["partition"] == partition for row in mine]),
        reported=builder.list_reported_priorities(states),
        priority=fitted and replace(fitted, own=fitted.own[chosen]),
    )


def _find_sharing(hosts: Sequence[HostRoom], partition: str) -> set[str]:
    """Return the partitions whose hosts are, over others, those of a partition."""
    found, more = set[str](), {partition}
    while more:
        found |= more
        more = {p for host in hosts if found.intersection(host.partitions) for p in host.partitions}
        more -= found
    return found


def _read_rows(
    store: Store, cluster: str, span: _Span, states: Sequence[StateRow]
) -> list[HistoryRow]:
    """Return the workloads that ran or stood in line, with the last reason why they waited."""
    query = WorkloadQuery(
        cluster=cluster,
        from_ms=span.from_ms,
        to_ms=span.to_ms,
        limit=JOBS_LIMIT,
        order_by="submit_ms",
    )
    reasons = {
        row["workload"]: row["reason"] for row in states if row["state"] == WorkloadState.PENDING
    }
    kept = []
    for row in store.workloads(query).to_pylist():
        row["waited_for"] = reasons.get(row["workload"], row["reason"])
        if row["gpus_requested"] > 0 and (row["start_ms"] or _stood_in_line(row)):
            kept.append(row)
    return kept


def _stood_in_line(row: HistoryRow) -> bool:
    """Return whether a workload that never started was eligible to, and when it left is known."""
    return not is_out_of_line(row["waited_for"]) and (
        row["state"] == WorkloadState.PENDING or row["end_ms"] is not None
    )


def _guess_runs(rows: Sequence[HistoryRow], span: _Span) -> None:
    """Note how long each workload should run that has not ended: the usual part of its limit.

    One that has used half of its limit is none of those that end after a tenth.
    """
    ended = [row for row in rows if row["start_ms"] and row["end_ms"]]
    runs = np.sort([max(0, row["end_ms"] - row["start_ms"]) for row in ended])
    limited = [row for row in ended if row["time_limit_s"]]
    parts = np.sort(
        [(row["end_ms"] - row["start_ms"]) / (1000.0 * row["time_limit_s"]) for row in limited]
    )
    for row in rows:
        if row["start_ms"] and row["end_ms"]:
            continue
        passed = max(0, span.to_ms - row["start_ms"]) if row["start_ms"] else 0
        if row["time_limit_s"]:
            limit = 1000.0 * row["time_limit_s"]
            row["guessed_ms"] = max(passed, round(limit * _find_middle(parts, passed / limit, 1.0)))
        else:
            row["guessed_ms"] = round(_find_middle(runs, passed, max(_RUN_MS, 2 * passed)))


def _find_middle(values: np.ndarray[Any, Any], above: float, otherwise: float) -> float:
    """Return the median of the sorted values above one; something else where there is none."""
    left = values[np.searchsorted(values, above, side="right") :]
    return float(np.median(left)) if len(left) else otherwise


def _sort_key(row: HistoryRow, span: _Span) -> tuple[int, bool, int, str]:
    before = bool(row["start_ms"]) and row["start_ms"] < span.from_ms
    joined = span.from_ms if before else max(_find_eligible(row), span.from_ms)
    return joined, not before, row["submit_ms"] or 0, row["workload"]


def _find_eligible(row: HistoryRow) -> int:
    """Return from when a workload stood in line: a dependency is no wait of the policy."""
    joined = max(row["eligible_ms"] or 0, row["submit_ms"] or 0)
    if not row["start_ms"]:
        return joined
    start = int(row["start_ms"])
    return min(joined, start) if joined else start


def _read_outages(store: Store, cluster: str, span: _Span, hosts: Sequence[HostRoom]) -> Outages:
    """Return when hosts took no new work; nobody knows what is after the record."""
    places = {host.host: i for i, host in enumerate(hosts)}
    rows = [
        (
            places[row["host"]],
            max(row["valid_from_ms"], span.from_ms) - span.from_ms,
            min(row["valid_to_ms"] or span.to_ms, span.to_ms) - span.from_ms,
        )
        for row in store.host_states(cluster, from_ms=span.from_ms, to_ms=span.to_ms).to_pylist()
        if row["state"] in _OUT_OF_SERVICE and row["host"] in places
    ]
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return Outages(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


def _read_first_hosts(
    store: Store, cluster: str, span: _Span, hosts: Sequence[HostRoom]
) -> dict[str, tuple[int, ...]]:
    """Return the hosts (by place) of what ran when the span began."""
    places = {host.host: i for i, host in enumerate(hosts)}
    held: dict[str, set[int]] = defaultdict(set)
    table = store.allocations(cluster, from_ms=span.from_ms, to_ms=span.from_ms + 1)
    for row in table.to_pylist():
        host = row["gpu"].rpartition(":")[0]
        if host in places:
            held[row["workload"]].add(places[host])
    return {workload: tuple(sorted(found)) for workload, found in held.items()}


class _Builder:
    """Lays rows of the store out as columns."""

    def __init__(
        self,
        workspace: Workspace,
        span: _Span,
        rows: Sequence[HistoryRow],
        others: Sequence[HistoryRow],
        *,
        hosts: Sequence[HostRoom],
    ) -> None:
        self.span, self.rows, self.others, self.hosts = span, rows, others, hosts
        everybody = sorted({(row["user"] or "", row["project"] or "") for row in [*rows, *others]})
        users = sorted({user for user, _ in everybody})
        self.number = {user: i for i, user in enumerate(users)}
        shown = {user: workspace.show_owner(user, project)[0] for user, project in everybody}
        self.owners = tuple(shown[user] for user in users)
        projects = sorted({project for _, project in everybody})
        self.project_number = {project: i for i, project in enumerate(projects)}
        names = {project: workspace.show_owner(user, project)[1] for user, project in everybody}
        self.projects = tuple(names[project] for project in projects)
        self.qos = sorted({row["qos"] or "" for row in rows})

    def build(self, first_hosts: Mapping[str, tuple[int, ...]], outages: Outages) -> RecordedJobs:
        """Return the jobs as columns of a replay."""
        rows, span = self.rows, self.span
        begin = self._take([max(_find_eligible(row), span.from_ms) for row in rows])
        start = self._take([row["start_ms"] or span.to_ms for row in rows])
        late = np.array([not row["start_ms"] for row in rows])
        before = ~late & (start < span.from_ms)
        begin[before] = span.from_ms
        end = self._take(
            [row["end_ms"] or (row["start_ms"] or 0) + row["guessed_ms"] for row in rows]
        )
        guessed = self._take([row.get("guessed_ms", _RUN_MS) for row in rows])
        run = np.maximum(1000, np.where(late, guessed, end - np.maximum(start, span.from_ms)))
        limit = self._take([row["time_limit_s"] or _NO_LIMIT_S for row in rows]) * 1000
        limit -= np.where(before, span.from_ms - start, 0)
        gpus_per_host, hosts = self._shape_gangs()
        known = {host.model for host in self.hosts}
        return RecordedJobs(
            ids=tuple(row["workload"] for row in rows),
            submit_ms=begin - span.from_ms,
            start_ms=np.where(late, NOT_YET_MS, np.where(before, UNKNOWN_MS, start - span.from_ms)),
            run_ms=run,
            limit_ms=np.maximum(run, limit),
            gpus_per_host=gpus_per_host,
            hosts=hosts,
            owner=self._take([self.number[row["user"] or ""] for row in rows]),
            owners=self.owners,
            host_gpus=self._take([max(1, host.gpus) for host in self.hosts]),
            # Those that already ran come first whatever the order is.
            priority=np.where(before, RAN_BEFORE, [_read_priority(row) for row in rows]),
            project=self._take([self.project_number[row["project"] or ""] for row in rows]),
            projects=self.projects,
            partition=tuple(row["partition"] or "" for row in rows),
            gpu_model=tuple(row["gpu_model"] if row["gpu_model"] in known else "" for row in rows),
            qos=self._take([self.qos.index(row["qos"] or "") for row in rows]),
            qos_names=tuple(self.qos),
            leave_ms=self._take(
                [
                    row["end_ms"] - span.from_ms if not row["start_ms"] and row["end_ms"] else -1
                    for row in rows
                ]
            ),
            aged_ms=self._take([max(0, span.from_ms - _find_eligible(row)) for row in rows]),
            first_hosts=tuple(
                first_hosts.get(row["workload"], ()) if ran else ()
                for row, ran in zip(rows, before.tolist(), strict=True)
            ),
            site=Hosts(
                names=tuple(host.host for host in self.hosts),
                models=tuple(host.model for host in self.hosts),
                partitions=tuple(host.partitions for host in self.hosts),
            ),
            outages=outages,
            other_use=self._sum_other_use(),
            notes=self._list_notes(before, outages),
        )

    def _take(self, values: Sequence[int]) -> Ints:
        return np.array(values, np.int64)

    def _shape_gangs(self) -> tuple[Ints, Ints]:
        largest = max(max(1, host.gpus) for host in self.hosts)
        asked = self._take([row["gpus_requested"] for row in self.rows])
        given = self._take([row["gpus_per_host"] or 0 for row in self.rows])
        need = np.clip(np.where(given > 0, given, np.minimum(asked, largest)), 1, None)
        return np.minimum(need, asked), np.maximum(1, -(-asked // need))

    def _sum_other_use(self) -> OtherUse:
        """Return the use of owners elsewhere and before the span, as far as it is known."""
        changes = []
        before = np.zeros(len(self.number))
        for row in [*self.others, *self.rows]:
            if row["start_ms"] and row["start_ms"] < self.span.from_ms:
                held = self.span.from_ms - row["start_ms"]
                before[self.number[row["user"] or ""]] += held * row["gpus_requested"]
        for row in self.others:
            owner, gpus = self.number[row["user"] or ""], row["gpus_requested"]
            begin = max(row["start_ms"], self.span.from_ms) - self.span.from_ms
            end = (row["end_ms"] or self.span.to_ms) - self.span.from_ms
            changes += [(begin, owner, gpus), (max(begin, end), owner, -gpus)]
        columns = np.array(sorted(changes), np.int64).reshape(-1, 3)
        return OtherUse(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy(), before)

    def list_reported_priorities(self, states: Sequence[StateRow]) -> ReportedPriorities:
        """Return the priorities and limits that were reported while these workloads waited."""
        places = {row["workload"]: i for i, row in enumerate(self.rows)}
        job, moment, value = [], [], []
        limited: list[tuple[int, int]] = []
        for row in states:
            place = places.get(row["workload"])
            if place is None or row["valid_from_ms"] < self.span.from_ms:
                continue
            if row["state"] == WorkloadState.PENDING and is_limit(row["reason"] or ""):
                limited.append((place, row["valid_from_ms"] - self.span.from_ms))
            waiting = row["state"] in (WorkloadState.PENDING, WorkloadState.RUNNING)
            if waiting and row["priority"] and np.isfinite(row["priority"]):
                job.append(place)
                moment.append(row["valid_from_ms"] - self.span.from_ms)
                value.append(row["priority"])
        return ReportedPriorities(
            self._take(job),
            self._take(moment),
            np.array(value),
            limited=self._take([place for place, _ in limited]),
            limited_ms=self._take([at_ms for _, at_ms in limited]),
        )

    def _list_notes(self, before: Any, outages: Outages) -> tuple[str, ...]:
        rows = self.rows
        endless = sum(not row["time_limit_s"] for row in rows)
        gone = sum(not row["start_ms"] and row["end_ms"] is not None for row in rows)
        late = sum(not row["start_ms"] and row["end_ms"] is None for row in rows)
        out = len(np.unique(outages.host))
        said = (
            (endless, "{} workloads have no time limit: planned as a year."),
            (int(before.sum()), "{} workloads ran already when the span began: not scored."),
            (
                late,
                "{} workloads still wait: they are replayed too, as if they ran for the usual "
                "part of their limits, and not scored.",
            ),
            (
                gone,
                "{} workloads were cancelled while they waited: they leave the replayed line when "
                "they left the real one, and are not counted.",
            ),
            (out, "{} hosts were out of service for a time: nothing starts there then."),
        )
        return tuple(words.format(many) for many, words in said if many)


def _read_priority(row: HistoryRow) -> float:
    value = row["priority"]
    return float(value) if value is not None and np.isfinite(value) else 0.0

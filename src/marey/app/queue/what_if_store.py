"""What another policy would have done with a cluster's own recorded workloads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from marey.app.queries.workspace import Workspace
from marey.app.queue.live_line import read_line
from marey.app.queue.queue_documents import ComparedWaits, PolicyAnswer, PolicyDocument
from marey.app.queue.queue_queries import QueueQuestion
from marey.model.errors import InvalidInput, shown, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.protocols import WorkloadQuery
from marey.model.tables import WorkloadRow
from marey.model.times import DAY_MS
from marey.queue.policy.gains_and_losses import describe_size, judge_change, mean_wait
from marey.queue.policy.policy import BACKFILLS, Policy, parse_policy
from marey.queue.policy.policy_replay import replay_policy
from marey.queue.policy.recorded_jobs import NOT_YET_MS, UNKNOWN_MS, Hosts, RecordedJobs
from marey.queue.policy.what_if import (
    LowFidelity,
    check_fidelity,
    compare_replays,
    list_doubts,
    score_replay,
)
from marey.queue.waiting.explanation import is_eligible
from marey.queue.waiting.line import HostRoom

# More than these are not replayed: the newest count.
JOBS_LIMIT = 20_000
_NO_LIMIT_S = 365 * 86400
_LEAST_JOBS = 20
# Every partition at once, on the hosts that they share.
ALL_PARTITIONS = "*"
# Shaped like a site's PriorityWeight settings: share counts most, then age, then size.
MULTIFACTOR_WEIGHTS = {"age": 1000.0, "fairshare": 2000.0, "size": 500.0}


@dataclass(frozen=True)
class AskPolicy(QueueQuestion):
    """What another policy would have done with a partition's own workloads."""

    PATH: ClassVar[str] = "/queue-whatif"
    partition: str = ""
    days: int = 7
    order: str = "fifo"
    backfill: str = "easy"
    placement: str = "most_allocated"
    favor_small: bool = False
    add_hosts: int = 0
    # More or fewer of this GPU model; "" is any.
    add_model: str = ""
    # A whole policy as JSON; it stands in place of the settings above.
    policy: str = ""
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> PolicyAnswer:
        """Replay the recorded policy, then this one; below the stated fidelity say only that."""
        partition = self.partition or find_busiest_partition(workspace, self.cluster)
        jobs = read_recorded_jobs(workspace, self.cluster, partition, self.days)
        jobs, current, fidelity = infer_conditions(jobs)
        policy = parse_policy(self._make_document(), current)
        now = replay_policy(jobs, current)
        then, refused = now, ""
        try:
            check_fidelity(fidelity)
            then = replay_policy(jobs, policy)
        except LowFidelity as error:
            refused = str(error)
        compared = {} if refused else compare_replays(jobs, now, then)
        return PolicyAnswer(
            partition=partition,
            jobs=len(jobs),
            policy=PolicyDocument(policy.order, policy.backfill, policy.placement),
            current=PolicyDocument(current.order, current.backfill, current.placement),
            recorded_mean_wait_s=fidelity["recorded_mean_wait_s"],
            replayed_mean_wait_s=fidelity["replayed_mean_wait_s"],
            current_mean_wait_s=mean_wait(now.wait_s),
            error=fidelity["error"],
            near=fidelity["near"],
            refused=refused,
            mean_wait_s=mean_wait(then.wait_s) if compared else None,
            p90_wait_s=compared.get("p90_wait_s"),
            utilization=compared.get("utilization"),
            current_utilization=now.utilization,
            stranded=compared.get("stranded"),
            current_stranded=now.stranded,
            evictions=compared.get("evictions", 0.0),
            lost_gpu_hours=compared.get("lost_gpu_hours", 0.0),
            never_start=int(np.isnan(then.wait_s).sum()) if compared else 0,
            losses=compared.get("losses", []),
            gains=compared.get("gains", []),
            notes=[*jobs.notes, *([] if refused else list_doubts(fidelity))],
            by_size=_list_compared(compared, "by_size", "gpus_from"),
            by_user=_list_compared(compared, "by_owner", "owner")[:20],
            by_project=_list_compared(compared, "by_project", "project")[:20],
        )

    def _make_document(self) -> dict[str, Any]:
        """Return the asked policy as a document; what it leaves open stays as it is."""
        if self.policy:
            try:
                found = json.loads(self.policy)
            except ValueError as error:
                raise InvalidInput(f"The policy is not JSON: {shown(str(error))}") from error
            return found if isinstance(found, dict) else {"": found}
        document: dict[str, Any] = {
            "order": self.order,
            "backfill": self.backfill,
            "placement": self.placement,
            "favor_small": self.favor_small,
            "weights": MULTIFACTOR_WEIGHTS if self.order == "multifactor" else {},
        }
        if self.add_hosts:
            document["add_hosts"] = [{"count": self.add_hosts, "model": self.add_model}]
        return document


def _list_compared(compared: dict[str, Any], part: str, name: str) -> list[ComparedWaits]:
    return [
        ComparedWaits(
            name=describe_size(row[name]) if name == "gpus_from" else str(row[name]),
            jobs=row["jobs"],
            mean_wait_now_s=row["mean_wait_now_s"],
            mean_wait_s=row["mean_wait_s"],
            change_s=row["change_s"],
            p90_wait_now_s=row["p90_wait_now_s"],
            p90_wait_s=row["p90_wait_s"],
            never_start=row["never_start"],
            verdict=judge_change(row),
        )
        for row in compared.get(part, ())
    ]


def find_busiest_partition(workspace: Workspace, cluster: str) -> str:
    """Return the partition that most workloads wait for, or the first there is."""
    line = read_line(workspace, cluster)
    asked: Counter[str] = Counter()
    for waiter in line.waiters:
        asked[waiter.partition] += 1
    names = sorted({p for host in line.hosts for p in host.partitions})
    known = [name for name, _ in asked.most_common() if name in names]
    return (known or names or [""])[0]


def read_recorded_jobs(
    workspace: Workspace, cluster: str, partition: str, days: float
) -> RecordedJobs:
    """Return what a partition's workloads asked for and how long they ran in the last days.

    Those that ran when the span began hold their GPUs from its first moment. Those that still wait
    are in the line too, else whoever starves would be missing: they run as others did.
    """
    line = read_line(workspace, cluster)
    every = partition == ALL_PARTITIONS
    hosts = [
        host for host in line.hosts if every or not host.partitions or partition in host.partitions
    ]
    if not hosts:
        names = sorted({p for host in line.hosts for p in host.partitions})
        raise InvalidInput(unknown("partition", partition, names))
    from_ms = line.time_ms - int(days * DAY_MS)
    query = WorkloadQuery(
        cluster=cluster, from_ms=from_ms, to_ms=line.time_ms, limit=JOBS_LIMIT, order_by="submit_ms"
    )
    rows = [
        row
        for row in workspace.workloads_for_sums(query).to_pylist()
        if (every or row["partition"] == partition) and row["gpus_requested"] > 0
    ]
    ran = [row for row in rows if row["start_ms"]]
    if len(ran) < _LEAST_JOBS:
        raise InvalidInput(
            f"Not enough history: {len(ran)} workloads ran in '{partition}' in this time; "
            f"a replay needs {_LEAST_JOBS}.",
            code="no_history",
        )
    waiting = {waiter.workload for waiter in line.waiters if is_eligible(waiter)}
    late = [row for row in rows if not row["start_ms"] and row["workload"] in waiting]
    for row in late:
        row["guessed_ms"] = _guess_run_ms(row, ran)
    rows = sorted([*ran, *late], key=lambda row: _sort_key(row, from_ms))
    return _build_jobs(rows, from_ms, line.time_ms, hosts)


def _guess_run_ms(row: WorkloadRow, ran: Sequence[WorkloadRow]) -> int:
    """Return how long a workload should run: the usual part of its limit, or the usual time."""
    ended = [
        (other["end_ms"] - other["start_ms"], other["time_limit_s"])
        for other in ran
        if other["end_ms"] and other["start_ms"]
    ]
    if row["time_limit_s"]:
        parts = [run_ms / (1000.0 * limit_s) for run_ms, limit_s in ended if limit_s]
        part = float(np.median(parts)) if parts else 1.0
        return round(1000 * int(row["time_limit_s"]) * part)
    runs = [run_ms for run_ms, _ in ended]
    return round(float(np.median(runs))) if runs else 3_600_000


def _ran_before(row: WorkloadRow, from_ms: int) -> bool:
    return bool(row["start_ms"] and row["start_ms"] < from_ms)


def _sort_key(row: WorkloadRow, from_ms: int) -> tuple[int, bool]:
    ran_before = _ran_before(row, from_ms)
    return from_ms if ran_before else max(_find_eligible(row), from_ms), not ran_before


def _build_jobs(
    rows: Sequence[WorkloadRow], from_ms: int, to_ms: int, hosts: Sequence[HostRoom]
) -> RecordedJobs:
    sizes = [max(1, host.gpus) for host in hosts]
    largest = max(sizes)
    projects = tuple(sorted({row["project"] or "" for row in rows}))
    known = {host.model for host in hosts}
    owners = tuple(sorted({row["user"] or "" for row in rows}))
    number = {owner: i for i, owner in enumerate(owners)}
    late = np.array([not row["start_ms"] for row in rows])
    start = np.array([row["start_ms"] or to_ms for row in rows], np.int64)
    submit = np.array([_find_eligible(row) for row in rows], np.int64)
    end = np.array([row["end_ms"] or to_ms for row in rows], np.int64)
    asked = np.array([row["gpus_requested"] for row in rows], np.int64)
    given = np.array([row["gpus_per_host"] or 0 for row in rows], np.int64)
    need = np.clip(np.where(given > 0, given, np.minimum(asked, largest)), 1, None)
    limit = np.array([row["time_limit_s"] or _NO_LIMIT_S for row in rows], np.int64) * 1000
    before = start < from_ms
    begin = np.where(before, from_ms, np.maximum(submit, from_ms))
    guessed = np.array([row.get("guessed_ms", 0) for row in rows], np.int64)
    run = np.maximum(1000, np.where(late, guessed, end - np.maximum(start, from_ms)))
    return RecordedJobs(
        ids=tuple(row["workload"] for row in rows),
        submit_ms=begin - from_ms,
        start_ms=np.where(late, NOT_YET_MS, np.where(before, UNKNOWN_MS, start - from_ms)),
        run_ms=run,
        limit_ms=np.maximum(run, limit),
        gpus_per_host=need,
        hosts=np.maximum(1, -(-asked // need)),
        owner=np.array([number[row["user"] or ""] for row in rows], np.int64),
        owners=owners,
        host_gpus=np.array(sizes, np.int64),
        # Those that already ran come first whatever the order is.
        priority=np.where(before, 1e9, [_read_priority(row) for row in rows]),
        project=np.array([projects.index(row["project"] or "") for row in rows], np.int64),
        projects=projects,
        partition=tuple(row["partition"] or "" for row in rows),
        gpu_model=tuple(row["gpu_model"] if row["gpu_model"] in known else "" for row in rows),
        site=Hosts(
            names=tuple(host.host for host in hosts),
            models=tuple(host.model for host in hosts),
            partitions=tuple(host.partitions for host in hosts),
            out_of_service=np.array([not host.usable for host in hosts]),
        ),
        notes=_list_notes(rows, from_ms),
    )


def _list_notes(rows: Sequence[WorkloadRow], from_ms: int) -> tuple[str, ...]:
    endless = sum(not row["time_limit_s"] for row in rows)
    before = sum(_ran_before(row, from_ms) for row in rows)
    late = sum(not row["start_ms"] for row in rows)
    notes = []
    if endless:
        notes.append(f"{endless} workloads have no time limit: planned as a year.")
    if before:
        notes.append(f"{before} workloads ran already when the span began: not scored.")
    if late:
        notes.append(
            f"{late} workloads still wait: they are replayed too, as if they ran for the usual "
            "part of their limits, and not scored."
        )
    return tuple(notes)


def _find_eligible(row: WorkloadRow) -> int:
    """Return from when a workload stood in line: a dependency is no wait of the policy."""
    joined = max(row["eligible_ms"] or 0, row["submit_ms"] or 0)
    if not row["start_ms"]:
        return joined
    start = int(row["start_ms"])
    return min(joined, start) if joined else start


def _read_priority(row: WorkloadRow) -> float:
    value = row["priority"]
    return float(value) if value is not None and np.isfinite(value) else 0.0


def infer_conditions(jobs: RecordedJobs) -> tuple[RecordedJobs, Policy, dict[str, float]]:
    """Return the policy that explains the record best, on all hosts or on those in service now."""
    found = (jobs, *infer_policy(jobs))
    if not jobs.site.out_of_service.any() or jobs.site.out_of_service.all():
        return found
    fewer = drop_hosts_out_of_service(jobs)
    other = (fewer, *infer_policy(fewer))
    return min(found, other, key=lambda entry: _rate_fidelity(entry[2]))


def _rate_fidelity(fidelity: dict[str, float]) -> float:
    return abs(fidelity["error"]) + fidelity["size_error"] - fidelity["near"]


def drop_hosts_out_of_service(jobs: RecordedJobs) -> RecordedJobs:
    """Return the jobs on the hosts that take work now, and say so."""
    kept = np.flatnonzero(~jobs.site.out_of_service)
    site = Hosts(
        names=tuple(jobs.site.names[i] for i in kept),
        models=tuple(jobs.site.models[i] for i in kept),
        partitions=tuple(jobs.site.partitions[i] for i in kept),
        out_of_service=jobs.site.out_of_service[kept],
    )
    gone = len(jobs.host_gpus) - len(kept)
    note = f"Out of service now and left out, which is nearer to the record: {gone} of the hosts."
    return replace(jobs, host_gpus=jobs.host_gpus[kept], site=site, notes=(*jobs.notes, note))


def infer_policy(jobs: RecordedJobs) -> tuple[Policy, dict[str, float]]:
    """Return the order and backfill whose replay comes nearest to the recorded waits, and score.

    A store does not say by which policy its workloads were scheduled; the error tells how well the
    guess explains them.
    """
    capped = {"max_gpus_per_user": float(find_largest_hold(jobs))}
    orders: list[dict[str, Any]] = [
        {},
        {"order": "multifactor", "weights": MULTIFACTOR_WEIGHTS},
        {"order": "multifactor", "weights": {"recorded": 1.0}},
        # Recorded priorities hold what is not known otherwise, such as quality of service.
        {"order": "multifactor", "weights": {**MULTIFACTOR_WEIGHTS, "recorded": 0.5}},
    ]
    candidates = [
        Policy(backfill=backfill, limits=limits, **order)
        for order in orders
        for backfill in BACKFILLS
        for limits in ({}, capped)
    ]
    scored = [(p, score_replay(jobs, replay_policy(jobs, p, replays=1))) for p in candidates]
    return min(scored, key=lambda entry: _rate_fidelity(entry[1]))


def find_largest_hold(jobs: RecordedJobs) -> int:
    """Return the most GPUs that one user held at once: the limit per user, if there is one."""
    held = jobs.start_ms != NOT_YET_MS
    begin = np.where(jobs.start_ms >= 0, jobs.start_ms, jobs.submit_ms)
    moments = np.concatenate([begin, begin + jobs.run_ms])
    changes = np.concatenate([jobs.gpus, -jobs.gpus])
    owners = np.concatenate([jobs.owner, jobs.owner])
    most = 0
    for owner in range(len(jobs.owners)):
        mine = np.flatnonzero((owners == owner) & np.tile(held, 2))
        order = mine[np.lexsort((changes[mine], moments[mine]))]
        most = max(most, int(np.cumsum(changes[order]).max(initial=0)))
    return most

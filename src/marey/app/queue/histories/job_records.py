"""Records of a Slurm site's jobs, whichever listing they come from, as columns for a replay."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from marey.app.queue.histories.slurm_config import ConfiguredHost, SlurmConfig
from marey.model.errors import InvalidInput
from marey.queue.policy.recorded_jobs import UNKNOWN_MS, Hosts, RecordedJobs

# A job without a limit is planned as if it ran a year, which is how Slurm treats UNLIMITED.
NO_LIMIT_S = 365 * 86400
# A start so soon after an end in its place was waiting for it.
_NEXT_START_S = 3


@dataclass(frozen=True)
class JobRecord:
    """One job of a listing: times in whole seconds, None where it did not happen."""

    id: str
    order: int
    name: str
    user: str
    project: str
    partition: str
    submit_s: int
    start_s: int | None
    run_s: int | None
    limit_s: int
    gpus_per_host: int
    model: str
    hosts: int
    cpus_per_host: int
    memory_mb_per_host: int
    nodes: tuple[str, ...]
    backfilled: bool = False
    requeued: bool = False


def parse_time(text: str) -> int | None:
    """Return seconds of ``2026-11-16T14:19:45``; a listing has no zone, and needs none here."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def parse_span(text: str) -> int:
    """Return the seconds of ``2-03:04:05`` or ``00:01:00``; a year where there is no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?", text)
    if not match:
        return NO_LIMIT_S
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if match[4] is None and match[1] is None:
        days, hours, minutes, seconds = 0, 0, hours, minutes
    return max(1, days * 86400 + hours * 3600 + minutes * 60 + seconds)


def parse_memory_mb(text: str) -> int:
    """Return the megabytes of ``4G``, ``512M`` or ``1.5T``."""
    match = re.fullmatch(r"([\d.]+)([KMGTP]?)[nc]?", text)
    if not match:
        return 0
    return int(float(match[1]) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20, "P": 1 << 30}[match[2]])  # fmt: skip  # noqa: E501


def build_recorded_jobs(
    records: Sequence[JobRecord], config: SlurmConfig, notes: Sequence[str] = ()
) -> RecordedJobs:
    """Return the columns of the jobs that ran, in the order of submission."""
    kept = sorted(
        (record for record in records if record.run_s is not None),
        key=lambda record: (record.submit_s, record.order),
    )
    if not kept:
        raise InvalidInput("No job of the history has run; nothing can be replayed.", code="no_history")  # fmt: skip  # noqa: E501
    hosts = config.list_hosts() or _find_most_at_once(kept)
    if not hosts:
        raise InvalidInput(
            "The history names no host with GPUs: neither slurm.conf nor the jobs' NodeList tell."
        )
    users, projects = _number([r.user for r in kept]), _number([r.project for r in kept])

    def column(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    starts = [_find_start_ms(record) for record in kept]
    return RecordedJobs(
        ids=tuple(record.id for record in kept),
        submit_ms=column([record.submit_s * 1000 for record in kept]),
        start_ms=column(starts),
        run_ms=column([(record.run_s or 0) * 1000 for record in kept]),
        limit_ms=column([max(record.limit_s, 1) * 1000 for record in kept]),
        gpus_per_host=column([record.gpus_per_host for record in kept]),
        hosts=column([record.hosts for record in kept]),
        owner=column([users[record.user] for record in kept]),
        owners=tuple(users),
        host_gpus=column([host.gpus for host in hosts.values()]),
        priority=np.zeros(len(kept)),
        project=column([projects[record.project] for record in kept]),
        projects=tuple(projects),
        cpus_per_host=column([record.cpus_per_host for record in kept]),
        memory_mb_per_host=column([record.memory_mb_per_host for record in kept])
        if config.counts_memory
        else np.zeros(0, np.int64),
        partition=tuple(record.partition for record in kept),
        gpu_model=tuple(record.model for record in kept),
        site=_describe_hosts(list(hosts.values()), config, kept),
        lag_s=measure_lag(kept),
        resolution_s=1.0,
        notes=(*notes, *_list_notes(records, kept)),
    )


def _number(names: Sequence[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(sorted(set(names)))}


def _find_start_ms(record: JobRecord) -> int:
    """Return the start that a replay is scored by; none of a job whose wait is not one wait."""
    if record.start_s is None or record.requeued or record.start_s < record.submit_s:
        return UNKNOWN_MS
    return record.start_s * 1000


def _list_notes(records: Sequence[JobRecord], kept: Sequence[JobRecord]) -> list[str]:
    notes = []
    left_out = len(records) - len(kept)
    if left_out:
        notes.append(f"{left_out} jobs that have not run (or not ended) are left out.")
    requeued = sum(record.requeued for record in kept)
    if requeued:
        notes.append(f"{requeued} jobs were requeued: replayed, but not scored.")
    early = sum(r.start_s is not None and r.start_s < r.submit_s for r in kept)
    if early:
        notes.append(f"{early} jobs start before they were submitted (a clock was set): not scored.")  # fmt: skip  # noqa: E501
    endless = sum(record.limit_s >= NO_LIMIT_S for record in kept)
    if endless:
        notes.append(f"{endless} jobs have no time limit: planned as a year.")
    return notes


def _describe_hosts(
    hosts: Sequence[ConfiguredHost], config: SlurmConfig, records: Sequence[JobRecord]
) -> Hosts:
    partitions: dict[str, list[str]] = defaultdict(list)
    for rule in config.list_partitions():
        for name in rule.hosts:
            partitions[name].append(rule.name)
    if not partitions:
        # Without slurm.conf a host is in the partitions whose jobs ran there.
        for record in records:
            for node in record.nodes:
                if record.partition and record.partition not in partitions[node]:
                    partitions[node].append(record.partition)
    has_cpus = any(host.cpus for host in hosts)
    return Hosts(
        names=tuple(host.name for host in hosts),
        models=tuple(host.model for host in hosts),
        cpus=np.array([host.cpus for host in hosts] if has_cpus else [], np.int64),
        memory_mb=np.array([h.memory_mb for h in hosts] if config.counts_memory else [], np.int64),
        partitions=tuple(tuple(partitions[host.name]) for host in hosts),
    )


def _find_most_at_once(records: Sequence[JobRecord]) -> dict[str, ConfiguredHost]:
    """Return the hosts that jobs ran on, with the most GPUs that were ever held on one of them."""
    changes: dict[str, Counter[int]] = defaultdict(Counter)
    for record in records:
        for node in record.nodes:
            if record.start_s is not None and record.run_s is not None:
                changes[node][record.start_s] += record.gpus_per_host
                changes[node][record.start_s + record.run_s] -= record.gpus_per_host
    most = 0
    for at in changes.values():
        held = np.cumsum([at[moment] for moment in sorted(at)])
        most = max(most, int(held.max(initial=0)))
    # One kind of host is far likelier than one that was never full.
    return {name: ConfiguredHost(name, most, "", 0, 0) for name in sorted(changes)}


def measure_lag(records: Sequence[JobRecord]) -> float:
    """Return the mean seconds from an end to the start that it made possible; NaN if unseen.

    Both are cut to whole seconds, which leaves the mean of their difference as it was.
    """
    ends: dict[str, list[int]] = defaultdict(list)
    for record in records:
        for node in record.nodes:
            if record.start_s is not None and record.run_s is not None:
                ends[node].append(record.start_s + record.run_s)
    for one in ends.values():
        one.sort()
    lags = []
    for record in records:
        if record.start_s is None or record.start_s <= record.submit_s:
            continue
        before = [
            ends[node][at - 1]
            for node in record.nodes
            if (at := bisect_right(ends[node], record.start_s))
        ]
        last = max(before, default=-1)
        if last > record.submit_s and record.start_s - last <= _NEXT_START_S:
            lags.append(record.start_s - last)
    return float(np.mean(lags)) if len(lags) >= 5 else float("nan")

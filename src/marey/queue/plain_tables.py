"""The questions about a waiting line asked of plain tables, for a notebook without server or store.

A table is a list of dicts, a pyarrow Table, or a DataFrame of pandas or polars; the answers are
pyarrow Tables. Times are seconds, on any clock that all tables share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from marey.model.errors import InvalidInput
from marey.queue.policy.policy import parse_policy
from marey.queue.policy.recorded_jobs import UNKNOWN_MS, RecordedJobs, shape_gangs
from marey.queue.policy.what_if import compute_what_if
from marey.queue.waiting.explanation import explain_wait
from marey.queue.waiting.free_room import measure_free_room
from marey.queue.waiting.line import Holder, HostRoom, Line, Waiter, sort_line
from marey.queue.waiting.simulated_starts import FUTURES, simulate_starts

Row = Mapping[str, Any]


def make_line(waiting: Any, hosts: Any, running: Any = (), *, now_s: float = 0.0) -> Line:
    """Return the line of three tables.

    ``waiting``: workload, gpus; optional gpus_per_host, user, project, partition, model, limit_s,
    submit_s, priority, reason. ``hosts``: host, gpus; optional model, partition, usable.
    ``running``: workload, host, gpus; optional ends_s.
    """
    places = _read_rows(hosts, "hosts", ("host", "gpus"))
    held = _group_holders(_read_rows(running, "running", ("workload", "host", "gpus")))
    rooms = [_make_room(row, held.get(str(row["host"]), ())) for row in places]
    largest = max((room.gpus for room in rooms), default=1)
    rows = _read_rows(waiting, "waiting", ("workload", "gpus"))
    waiters = [_make_waiter(row, largest) for row in rows]
    return Line(_to_ms(now_s), sort_line(waiters), rooms)


def explain_line(line: Line) -> pa.Table:
    """Return why each workload waits: its place, who is ahead of it, the verdict in words."""
    rows = []
    for place in range(len(line.waiters)):
        why = explain_wait(line, place)
        rows.append(
            {
                "position": why.position,
                "workload": why.workload,
                "verdict": why.verdict,
                "ahead_jobs": why.ahead.jobs,
                "ahead_gpus": why.ahead.gpus,
                "ahead_gpu_hours": why.ahead.gpu_hours,
                "blocking_workloads": list(why.blocking_workloads),
                "sentence": " ".join(why.sentences),
            }
        )
    return pa.Table.from_pylist(rows)


def forecast_line(line: Line, *, futures: int = FUTURES, seed: int = 0) -> pa.Table:
    """Return seconds until each start at 10, 50 and 90 %, by simulation; null where not known."""
    found = simulate_starts(line, futures=futures, seed=seed)
    names = [waiter.workload for waiter in line.waiters]
    starts = [found.get(name) for name in names]
    spans = {
        "p10_s": [start.p10_s if start else None for start in starts],
        "p50_s": [start.p50_s if start else None for start in starts],
        "p90_s": [start.p90_s if start else None for start in starts],
    }
    arrays = {name: pa.array(values, pa.float64()) for name, values in spans.items()}
    return pa.table({"workload": pa.array(names, pa.string()), **arrays})


def tabulate_free_room(line: Line) -> pa.Table:
    """Return what is free per partition and GPU model: largest gang, whole hosts, stranded GPUs."""
    return pa.Table.from_pylist(
        [
            {
                "partition": room.partition,
                "model": room.model,
                "gpus": room.gpus,
                "free": room.free,
                "whole_hosts_free": room.whole_hosts_free,
                "largest_gang": room.largest_gang,
                "stranded": room.stranded,
                "stranded_share": room.stranded_share,
            }
            for room in measure_free_room(line)
        ]
    )


def compare_policies(history: Any, host_gpus: Sequence[int], current: Row, other: Row) -> pa.Table:
    """Return mean waits by size under the policy that was in force and under another one.

    ``history``: workload, gpus, submit_s, start_s, run_s; optional limit_s, user. The current
    policy is replayed first; where that misses the recorded waits, ``LowFidelity`` is raised.
    """
    columns = ("workload", "gpus", "submit_s", "start_s", "run_s")
    jobs = _make_jobs(_read_rows(history, "history", columns), host_gpus)
    answer = compute_what_if(jobs, parse_policy(dict(other)), parse_policy(dict(current)))
    return pa.Table.from_pylist(answer["by_size"])


def _read_rows(table: Any, name: str, needed: Sequence[str]) -> list[Row]:
    """Return a table as rows, and say which column it lacks."""
    rows = list(table) if isinstance(table, list | tuple) else pa.table(table).to_pylist()
    missing = [column for column in needed if any(column not in row for row in rows)]
    if missing:
        raise InvalidInput(f"The table '{name}' has no column {', '.join(missing)}.")
    return rows


def _to_ms(seconds: float) -> int:
    return round(float(seconds) * 1000)


def _read_text(row: Row, name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value)


def _group_holders(rows: Sequence[Row]) -> dict[str, tuple[Holder, ...]]:
    held: dict[str, tuple[Holder, ...]] = {}
    for row in rows:
        ends = row.get("ends_s")
        one = Holder(str(row["workload"]), int(row["gpus"]), None if ends is None else _to_ms(ends))
        held[str(row["host"])] = (*held.get(str(row["host"]), ()), one)
    return held


def _make_room(row: Row, holders: Sequence[Holder]) -> HostRoom:
    partition = _read_text(row, "partition")
    return HostRoom(
        host=str(row["host"]),
        model=_read_text(row, "model"),
        partitions=(partition,) if partition else (),
        gpus=int(row["gpus"]),
        free=max(0, int(row["gpus"]) - sum(holder.gpus for holder in holders)),
        usable=row.get("usable") is not False,
        holders=tuple(holders),
    )


def _make_waiter(row: Row, largest: int) -> Waiter:
    gpus, limit = int(row["gpus"]), row.get("limit_s")
    return Waiter(
        workload=str(row["workload"]),
        user=_read_text(row, "user"),
        project=_read_text(row, "project"),
        partition=_read_text(row, "partition"),
        gpus=gpus,
        per_host=int(row.get("gpus_per_host") or max(1, min(gpus, largest))),
        model=_read_text(row, "model"),
        limit_s=None if limit is None else int(limit),
        submit_ms=_to_ms(row.get("submit_s") or 0.0),
        priority=float(row.get("priority") or 0.0),
        reason=_read_text(row, "reason"),
    )


def _make_jobs(rows: Sequence[Row], host_gpus: Sequence[int]) -> RecordedJobs:
    """Return the recorded jobs of a table, in the order of submission."""
    rows = sorted(rows, key=lambda row: float(row["submit_s"]))
    gpus = np.array([int(row["gpus"]) for row in rows], np.int64)
    need, count = shape_gangs(gpus, max(host_gpus, default=1))
    users = [_read_text(row, "user") for row in rows]
    owners = tuple(sorted(set(users)))
    starts = [UNKNOWN_MS if r["start_s"] is None else _to_ms(r["start_s"]) for r in rows]
    limits = [_to_ms(row.get("limit_s") or row["run_s"]) for row in rows]
    return RecordedJobs(
        ids=tuple(str(row["workload"]) for row in rows),
        submit_ms=np.array([_to_ms(row["submit_s"]) for row in rows], np.int64),
        start_ms=np.array(starts, np.int64),
        run_ms=np.array([_to_ms(row["run_s"]) for row in rows], np.int64),
        limit_ms=np.array(limits, np.int64),
        gpus_per_host=need,
        hosts=count,
        owner=np.array([owners.index(user) for user in users], np.int64),
        owners=owners,
        host_gpus=np.array(host_gpus, np.int64),
        priority=np.zeros(len(rows)),
    )

"""The waiting line of a cluster at a moment, from what is live or kept."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from marey.app.queries.workspace import Workspace
from marey.live.frames import Frame, LiveWorkload
from marey.model.errors import MareyError
from marey.model.inventory import GpuState
from marey.model.times import parse_time
from marey.model.workloads import AGE_WEIGHT, MAX_AGE, Workload, WorkloadState
from marey.queue.waiting.line import Holder, HostRoom, Line, RunningJob, Waiter, sort_line

_PRIORITY = "priority."
_OPEN = (GpuState.IDLE.value, GpuState.ALLOCATED.value)


def read_line(workspace: Workspace, cluster: str, at_ms: int | None = None) -> Line:
    """Return who waits and what is free, now or at a past moment."""
    return build_line_of(workspace.frame_for_sums(workspace.check_cluster(cluster), at_ms))


def build_line_of(frame: Frame) -> Line:
    """Return the line of a frame."""
    pending = [w for w in frame.workloads.values() if w.status.state is WorkloadState.PENDING]
    units = frame.units.table().to_pylist()
    sizes = _find_host_sizes(units)
    waiters = sort_line([_make_waiter(live, sizes) for live in pending])
    running = [
        _make_running(live.workload, live.workload.start_ms)
        for live in frame.workloads.values()
        if live.status.state is WorkloadState.RUNNING and live.workload.start_ms is not None
    ]
    return Line(frame.time_ms, waiters, _list_rooms(frame, units), running)


def _make_running(workload: Workload, start_ms: int) -> RunningJob:
    return RunningJob(
        workload=workload.workload,
        account=workload.project or workload.user,
        partition=workload.partition,
        gpus=max(workload.gpus_requested, 0),
        start_ms=start_ms,
        limit_s=workload.time_limit_s,
        user=workload.user,
    )


def _find_host_sizes(units: list[dict[str, Any]]) -> int:
    """Return the GPUs of the largest host, which bounds what a request may ask of one."""
    counts: dict[str, int] = defaultdict(int)
    for unit in units:
        counts[unit["host"]] += 1
    return max(counts.values(), default=8)


def _make_waiter(live: LiveWorkload, host_gpus: int) -> Waiter:
    workload, attributes = live.workload, live.workload.attributes
    gpus = max(workload.gpus_requested, 0)
    priority = live.status.priority
    return Waiter(
        workload=workload.workload,
        user=workload.user,
        project=workload.project,
        partition=workload.partition,
        gpus=gpus,
        per_host=workload.gpus_per_host or max(1, min(gpus, host_gpus)),
        model=workload.gpu_model,
        limit_s=workload.time_limit_s,
        submit_ms=workload.submit_ms or 0,
        priority=0.0 if math.isnan(priority) else priority,
        reason=live.status.reason,
        factors=_read_factors(attributes),
        estimate_ms=_read_moment(attributes.get("estimated_start", "")),
        reason_text=attributes.get("reason_text", ""),
        age_weight=_read_number(attributes.get(AGE_WEIGHT, "")),
        max_age_s=_read_number(attributes.get(MAX_AGE, "")),
        dependency=attributes.get("dependency", ""),
        reservation=attributes.get("reservation", ""),
    )


def _read_factors(attributes: Any) -> dict[str, float]:
    found = {}
    for name, value in attributes.items():
        if name.startswith(_PRIORITY):
            try:
                found[name.removeprefix(_PRIORITY)] = float(value)
            except ValueError:
                continue
    return found


def _read_number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _read_moment(text: str) -> int | None:
    if not text:
        return None
    try:
        return int(parse_time(text))
    except MareyError:
        return None


def _list_rooms(frame: Frame, units: list[dict[str, Any]]) -> list[HostRoom]:
    hosts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for unit in units:
        hosts[unit["host"]].append(unit)
    return [_make_room(frame, host, gpus) for host, gpus in sorted(hosts.items())]


def _make_room(frame: Frame, host: str, gpus: list[dict[str, Any]]) -> HostRoom:
    held: dict[str, int] = defaultdict(int)
    for gpu in gpus:
        for name in gpu["workloads"] or ():
            held[name] += 1
    usable = any(gpu["state"] in _OPEN for gpu in gpus)
    # A host that drains keeps its jobs and takes no more, which its free GPUs tell.
    drains = any(gpu["state"] == GpuState.DRAINED.value for gpu in gpus)
    return HostRoom(
        host=host,
        model=gpus[0]["model"] or "",
        partitions=tuple(gpus[0]["partitions"] or ()),
        gpus=len(gpus),
        free=sum(gpu["state"] == GpuState.IDLE.value for gpu in gpus),
        usable=usable and not drains,
        reason=next((gpu["state_reason"] for gpu in gpus if gpu["state_reason"]), ""),
        holders=tuple(_make_holder(frame, name, many) for name, many in held.items()),
    )


def _make_holder(frame: Frame, name: str, gpus: int) -> Holder:
    live = frame.workloads.get(name)
    if live is None or live.workload.start_ms is None or not live.workload.time_limit_s:
        return Holder(name, gpus, None)
    limit_ms = live.workload.time_limit_s * 1000
    return Holder(name, gpus, live.workload.start_ms + limit_ms, limit_ms)

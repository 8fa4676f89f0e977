"""A job document → workloads, their state and the GPUs that they hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marey.model.errors import InvalidInput
from marey.model.inventory import resource_type
from marey.model.names import bounded, gpu_id
from marey.model.times import format_time
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus, parse_state
from marey.sources.slurm.documents import Job
from marey.sources.slurm.gres import GpuCount, gpu_counts, held_indices, total
from marey.sources.slurm.values import (
    exit_status,
    expand_hosts,
    expand_numbers,
    number,
    text,
    time_ms,
    whole,
    words,
)

# Tasks of one waiting array that are told one by one; the rest is a number on the last of them.
ARRAY_LIMIT = 1_000
# Slurm has one base state per job and flags beside it; these are flags.
FLAGS = frozenset(
    "COMPLETING CONFIGURING EXPEDITING LAUNCH_FAILED POWER_UP_NODE RECONFIG_FAIL REQUEUED "
    "REQUEUE_FED REQUEUE_HOLD RESIZING RESV_DEL_HOLD SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED "
    "UPDATE_DB".split()
)


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A workload as the controller tells it at one moment."""

    workload: Workload
    status: WorkloadStatus
    allocations: tuple[Allocation, ...] = ()


def seen_jobs(job: Job) -> list[SeenJob]:
    """The workloads of one record: one, or one per waiting task of an array."""
    state = job_state(job)
    if state is None:
        return []
    gpus = requested_gpus(job)
    held = held_gpus(job) if state is WorkloadState.RUNNING else []
    return [_seen(job, name, extra, state, gpus, held) for name, extra in _names(job)]


def with_priority(seen: SeenJob, job: Job) -> SeenJob:
    """The same job with the priority that it has now: the one fact that changes all the time."""
    priority = number(job.priority) or 0.0
    if seen.status.priority == priority:
        return seen
    old = seen.status
    status = WorkloadStatus(old.workload, old.state, old.reason, priority)
    return SeenJob(seen.workload, status, seen.allocations)


def job_state(job: Job) -> WorkloadState | None:
    """The base state; None for a word of a version that is not known yet."""
    found = words(job.job_state)
    base = [word for word in found if word not in FLAGS] or found
    for word in base:
        try:
            return parse_state(word)
        except InvalidInput:
            continue
    return None


def _names(job: Job) -> list[tuple[str, dict[str, str]]]:
    """Slurm's own way of naming: ``16``, ``20_3`` for a task, ``30+1`` for a part of a het job."""
    job_id = whole(job.job_id) or 0
    array, task = whole(job.array_job_id), whole(job.array_task_id)
    het, offset = whole(job.het_job_id), whole(job.het_job_offset)
    extra = {"slurm_job_id": str(job_id)}
    if array and task is not None:
        return [(f"{array}_{task}", extra)]
    waiting = text(job.array_task_string).partition("%")[0].strip("[]")
    tasks = expand_numbers(waiting, ARRAY_LIMIT + 1) if array and waiting else []
    if tasks:
        names = [(f"{array}_{task}", extra) for task in tasks[:ARRAY_LIMIT]]
        if len(tasks) > ARRAY_LIMIT:
            names[-1] = (names[-1][0], {**extra, "array_tasks": text(job.array_task_string)})
        return names
    if het:
        return [(f"{het}+{offset or 0}", {**extra, "het_job_id": str(het)})]
    return [(str(job_id), extra)]


@dataclass(frozen=True, slots=True)
class Request:
    """The GPUs a job asks for."""

    gpus: int
    per_host: int
    model: str


def requested_gpus(job: Job) -> Request:
    """From the trackable resources, else from the request itself, else from what it holds."""
    nodes = whole(job.node_count) or 1
    per_node = gpu_counts(text(job.tres_per_node))
    choices = (
        (gpu_counts(text(job.tres_req_str)), 1),
        (gpu_counts(text(job.tres_per_job)), 1),
        (per_node, nodes),
        (gpu_counts(text(job.tres_per_task)), whole(job.tasks) or 1),
        (gpu_counts(text(job.tres_per_socket)), nodes),
    )
    gpus, counts = next(((total(c) * times, c) for c, times in choices if c), (0, ()))
    held = [len(held_indices(text(entry))) for entry in _details(job)]
    gpus = gpus or sum(held)
    per_host = total(per_node) or max(held, default=0) or math.ceil(gpus / nodes)
    return Request(gpus, per_host, _model(job, counts, per_node))


def _model(job: Job, *asked: Sequence[GpuCount]) -> str:
    models = {entry.model for counts in asked for entry in counts if entry.model}
    models |= {model for entry in _details(job) for _, model in held_indices(text(entry)) if model}
    return bounded(",".join(sorted(models)))


def _details(job: Job) -> list[Any]:
    return job.gres_detail if isinstance(job.gres_detail, list) else []


def held_gpus(job: Job) -> list[tuple[str, int]]:
    """Host and index of every GPU the job holds: ``gres_detail`` stands in the order of nodes."""
    hosts = expand_hosts(_node_list(job))
    return [
        (host, index)
        for host, detail in zip(hosts, _details(job), strict=False)
        for index, _ in held_indices(text(detail))
    ]


def _node_list(job: Job) -> str:
    return text(job.nodes)


def _seen(
    job: Job,
    name: str,
    extra: Mapping[str, str],
    state: WorkloadState,
    gpus: Request,
    held: list[tuple[str, int]],
) -> SeenJob:
    facts, attributes = _metadata(job)
    start, waiting = time_ms(job.start_time), state is WorkloadState.PENDING
    if waiting and start is not None:
        # Of a waiting job this is the scheduler's guess, not a fact.
        attributes["estimated_start"] = format_time(start)
    if gpus.gpus and state is WorkloadState.RUNNING and not held:
        attributes["gpu_indices"] = "not told by Slurm"
    minutes = number(job.time_limit)
    workload = Workload(
        workload=name,
        name=bounded(text(job.name)),
        user=bounded(text(job.user_name)),
        project=bounded(facts["project"]),
        experiment=bounded(facts["experiment"]),
        partition=bounded(text(job.partition)),
        qos=bounded(text(job.qos)),
        gpus_requested=gpus.gpus,
        gpus_per_host=gpus.per_host,
        gpu_model=gpus.model,
        resource_type=resource_type(gpus.model, gpus.per_host) if gpus.gpus else "",
        time_limit_s=None if minutes is None else round(minutes * 60),
        submit_ms=time_ms(job.submit_time),
        eligible_ms=time_ms(job.eligible_time),
        start_ms=None if waiting else start,
        end_ms=time_ms(job.end_time) if state.ended else None,
        exit_code=exit_status(job.exit_code) if state.ended else None,
        attributes={**attributes, **extra},
    )
    reason = text(job.state_reason)
    status = WorkloadStatus(
        name, state, bounded("" if reason == "None" else reason), number(job.priority) or 0.0
    )
    return SeenJob(workload, status, _allocations(name, held))


def _allocations(name: str, held: list[tuple[str, int]]) -> tuple[Allocation, ...]:
    local: dict[str, int] = {}
    allocations = []
    for rank, (host, index) in enumerate(held):
        at = local.get(host, 0)
        local[host] = at + 1
        allocations.append(Allocation(name, bounded(gpu_id(host, index)), rank, at))
    return tuple(allocations)


def _metadata(job: Job) -> tuple[dict[str, str], dict[str, str]]:
    """Project and experiment, and everything else people wrote into the job's comments."""
    comment, admin = text(job.comment), text(job.admin_comment)
    told = _pairs(comment)
    # An asterisk marks a key that Slurm filled in by default.
    wckey = text(job.wckey).lstrip("*")
    facts = {
        "project": told.pop("project", "") or wckey or text(job.account),
        "experiment": told.pop("experiment", "") or ("" if _pairs(comment) else comment),
    }
    attributes = {
        "account": text(job.account),
        "wckey": wckey,
        "dependency": text(job.dependency),
        "reservation": text(job.resv_name),
        "restarts": str(whole(job.restart_cnt) or ""),
        **told,
        **{f"admin.{key}": value for key, value in _pairs(admin).items()},
        "admin_comment": "" if _pairs(admin) else admin,
    }
    return facts, {bounded(k): bounded(v) for k, v in attributes.items() if v}


def _pairs(comment: str) -> dict[str, str]:
    """A comment that is a JSON object, as text pairs."""
    if not comment.startswith("{") or len(comment) > 65_536:
        return {}
    try:
        document = json.loads(comment)
    except (ValueError, RecursionError):
        return {}
    plain = {k: v for k, v in document.items() if isinstance(v, str | int | float)}
    return {key: str(value) for key, value in list(plain.items())[:64]}

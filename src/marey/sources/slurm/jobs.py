"""A job document → workloads, their state and the GPUs that they hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from marey.model.errors import InvalidInput
from marey.model.inventory import resource_type
from marey.model.names import bounded, gpu_id
from marey.model.times import format_time
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus, parse_state
from marey.sources.slurm.documents import Job
from marey.sources.slurm.gres import GpuCount, gpu_counts, held_indices, total
from marey.sources.slurm.making import quick_maker
from marey.sources.slurm.values import (
    exit_status,
    expand_hosts,
    expand_numbers,
    is_zero,
    number,
    text,
    time_ms,
    whole,
    word,
    words,
)

# A look into an enumeration costs more than a name of the module.
PENDING, RUNNING = WorkloadState.PENDING, WorkloadState.RUNNING
# Tasks of one waiting array that are told one by one; the rest is a number on the last of them.
ARRAY_LIMIT = 1_000
# Slurm has one base state per job and flags beside it; these are flags.
FLAGS = frozenset(
    "COMPLETING CONFIGURING EXPEDITING LAUNCH_FAILED POWER_UP_NODE RECONFIG_FAIL REQUEUED "
    "REQUEUE_FED REQUEUE_HOLD RESIZING RESV_DEL_HOLD SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED "
    "UPDATE_DB".split()
)
# Jobs resemble each other: what a request or a comment means is worked out once.
_MEMORY = 16_384
_workload, _status = quick_maker(Workload), quick_maker(WorkloadStatus)
_allocation = quick_maker(Allocation)


class SeenJob(msgspec.Struct, frozen=True, gc=False):
    """A workload as the controller tells it at one moment."""

    workload: Workload
    status: WorkloadStatus
    allocations: tuple[Allocation, ...] = ()


def seen_jobs(job: Job, ahead_ms: int = 0) -> list[SeenJob]:
    """The workloads of one record: one, or one per waiting task of an array.

    ``ahead_ms`` is how far Slurm's clock is ahead of ours: its times are told in ours.
    """
    facts = _shared_facts(job)
    if facts.state is None:
        return []
    held = held_gpus(job) if facts.state is RUNNING else ()
    names = _names(job)
    seen = _seen(job, facts, facts.state, names[0], held, ahead_ms)
    return [seen] if len(names) == 1 else [seen, *(_named(seen, name) for name in names[1:])]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a job shares with many others: all but its names, its times and its priority."""

    state: WorkloadState | None
    reason: str
    user: str
    partition: str
    qos: str
    gpus: Request
    about: Metadata
    time_limit_s: int | None


_FACTS: dict[Any, _Facts] = {}


def _shared_facts(job: Job) -> _Facts:
    told, details = job.job_state, job.gres_detail
    key = (
        tuple(told) if type(told) is list else told,
        job.state_reason, job.user_name, job.partition, job.qos, job.account, job.time_limit,
        job.tres_req_str, job.tres_per_job, job.tres_per_node, job.tres_per_task,
        job.tres_per_socket, job.node_count, job.tasks,
        tuple(details) if details and type(details) is list else None,
        job.comment, job.admin_comment, job.wckey, job.dependency, job.resv_name, job.restart_cnt,
    )  # fmt: skip
    try:
        found = _FACTS.get(key)
    except TypeError:
        # Something is not what it always was, and cannot be looked up.
        return _read_facts(job)
    if found is None:
        if len(_FACTS) >= _MEMORY:
            _FACTS.clear()
        found = _FACTS[key] = _read_facts(job)
    return found


def _read_facts(job: Job) -> _Facts:
    minutes, reason = number(job.time_limit), word(job.state_reason)
    about = metadata(
        text(job.comment),
        text(job.admin_comment),
        text(job.wckey),
        text(job.account),
        text(job.dependency),
        text(job.resv_name),
        whole(job.restart_cnt) or 0,
    )
    return _Facts(
        base_state(job.job_state),
        "" if reason == "None" else reason,
        word(job.user_name),
        word(job.partition),
        word(job.qos),
        requested_gpus(job),
        about,
        None if minutes is None else round(minutes * 60),
    )


def _named(seen: SeenJob, name: str) -> SeenJob:
    """Another task of the same waiting array."""
    return SeenJob(replace(seen.workload, workload=name), replace(seen.status, workload=name))


def with_priority(seen: list[SeenJob], job: Job) -> list[SeenJob]:
    """The same job with the priority that it has now: the one fact that changes all the time."""
    priority = number(job.priority) or 0.0
    if not seen or seen[0].status.priority == priority:
        return seen
    found = []
    for one in seen:
        old = one.status
        status = _status(old.workload, old.state, old.reason, priority)
        found.append(SeenJob(one.workload, status, one.allocations))
    return found


def base_state(told: Any) -> WorkloadState | None:
    """The state behind ``"RUNNING"``, or since 23.11 ``["COMPLETED", "COMPLETING"]``.

    None for a word of a version that is not known yet.
    """
    listed = told if isinstance(told, list) else [told]
    return _base_state(tuple(word for word in listed if isinstance(word, str)))


@lru_cache(maxsize=1024)
def _base_state(told: tuple[str, ...]) -> WorkloadState | None:
    found = words(list(told))
    base = [each for each in found if each not in FLAGS] or found
    for each in base:
        try:
            return parse_state(each)
        except InvalidInput:
            continue
    return None


def _names(job: Job) -> list[str]:
    """Slurm's own way of naming: ``16``, ``20_3`` for a task, ``30+1`` for a part of a het job."""
    if is_zero(job.array_job_id) and is_zero(job.het_job_id):
        return [str(whole(job.job_id) or 0)]
    array = whole(job.array_job_id)
    if array:
        task = whole(job.array_task_id)
        if task is not None:
            return [f"{array}_{task}"]
        waiting = text(job.array_task_string).partition("%")[0].strip("[]")
        tasks = expand_numbers(waiting, ARRAY_LIMIT) if waiting else []
        if tasks:
            return [f"{array}_{task}" for task in tasks]
    het = whole(job.het_job_id)
    if het:
        return [f"{het}+{whole(job.het_job_offset) or 0}"]
    return [str(whole(job.job_id) or 0)]


@dataclass(frozen=True, slots=True)
class Request:
    """The GPUs a job asks for."""

    gpus: int
    per_host: int
    model: str
    resource_type: str


def requested_gpus(job: Job) -> Request:
    """From the trackable resources, else from the request itself, else from what it holds."""
    details = job.gres_detail
    return _requested(
        text(job.tres_req_str),
        text(job.tres_per_job),
        text(job.tres_per_node),
        text(job.tres_per_task),
        text(job.tres_per_socket),
        whole(job.node_count) or 1,
        whole(job.tasks) or 1,
        tuple(map(text, details)) if details and isinstance(details, list) else (),
    )


@lru_cache(maxsize=_MEMORY)
def _requested(
    tres: str,
    per_job: str,
    per_node: str,
    per_task: str,
    per_socket: str,
    nodes: int,
    tasks: int,
    details: tuple[str, ...],
) -> Request:
    on_node = gpu_counts(per_node)
    choices = (
        (gpu_counts(tres), 1),
        (gpu_counts(per_job), 1),
        (on_node, nodes),
        (gpu_counts(per_task), tasks),
        (gpu_counts(per_socket), nodes),
    )
    gpus, counts = next(((total(c) * times, c) for c, times in choices if c), (0, ()))
    held = [held_indices(entry) for entry in details]
    gpus = gpus or sum(map(len, held))
    per_host = total(on_node) or max(map(len, held), default=0) or math.ceil(gpus / nodes)
    model = _model(held, counts, on_node)
    named = resource_type(model, per_host) if gpus else ""
    return Request(gpus, per_host, model, named)


def _model(held: list[tuple[tuple[int, str], ...]], *asked: Sequence[GpuCount]) -> str:
    models = {entry.model for counts in asked for entry in counts if entry.model}
    models |= {model for entry in held for _, model in entry if model}
    return bounded(",".join(sorted(models)))


Held = tuple[tuple[str, int], ...]


def held_gpus(job: Job) -> Held:
    """GPU and its number on its host, of every GPU the job holds."""
    details = job.gres_detail
    if not details or not isinstance(details, list):
        return ()
    return _held(text(job.nodes), tuple(map(text, details)))


@lru_cache(maxsize=_MEMORY)
def _held(nodes: str, details: tuple[str, ...]) -> Held:
    # gres_detail stands in the order of nodes.
    return tuple(
        (bounded(gpu_id(host, index)), at)
        for host, detail in zip(expand_hosts(nodes), details, strict=False)
        for at, (index, _) in enumerate(held_indices(detail))
    )


def _seen(
    job: Job, facts: _Facts, state: WorkloadState, name: str, held: Held, ahead_ms: int
) -> SeenJob:
    gpus, about = facts.gpus, facts.about
    # The name is the id, but of a task of an array or a part of a heterogeneous job.
    own = name if name.isdecimal() else str(whole(job.job_id) or 0)
    attributes = {**about.attributes, "slurm_job_id": own}
    start, waiting = time_ms(job.start_time), state is PENDING
    submit, eligible = time_ms(job.submit_time), time_ms(job.eligible_time)
    if ahead_ms:
        start, submit, eligible = (_less(t, ahead_ms) for t in (start, submit, eligible))
    if waiting and start is not None:
        # Of a waiting job this is the scheduler's guess, not a fact.
        attributes["estimated_start"] = _written(start)
    if job.state_description or job.array_task_string or job.het_job_id:
        _add_remarks(job, attributes)
    if not held and gpus.gpus and state is RUNNING:
        attributes["gpu_indices"] = "not told by Slurm"
    ended = not waiting and state is not RUNNING
    workload = _workload(
        name,
        bounded(text(job.name)),
        facts.user,
        about.project,
        about.experiment,
        facts.partition,
        facts.qos,
        gpus.gpus,
        gpus.per_host,
        gpus.model,
        gpus.resource_type,
        facts.time_limit_s,
        submit,
        eligible,
        None if waiting else start,
        _less(time_ms(job.end_time), ahead_ms) if ended else None,
        exit_status(job.exit_code) if ended else None,
        attributes,
    )
    status = _status(name, state, facts.reason, number(job.priority) or 0.0)
    if not held:
        return SeenJob(workload, status)
    ranks = tuple([_allocation(name, gpu, rank, at) for rank, (gpu, at) in enumerate(held)])
    return SeenJob(workload, status, ranks)


def _less(moment: int | None, ahead_ms: int) -> int | None:
    return None if moment is None else moment - ahead_ms


def _add_remarks(job: Job, attributes: dict[str, str]) -> None:
    if job.state_description:
        attributes["reason_text"] = word(job.state_description)
    het = whole(job.het_job_id)
    if het:
        attributes["het_job_id"] = str(het)
    waiting = job.array_task_string
    if waiting and len(expand_numbers(_tasks(waiting), ARRAY_LIMIT + 1)) > ARRAY_LIMIT:
        attributes["array_tasks"] = word(waiting)


def _tasks(waiting: Any) -> str:
    return text(waiting).partition("%")[0].strip("[]")


@lru_cache(maxsize=_MEMORY)
def _written(moment_ms: int) -> str:
    return format_time(moment_ms)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Project, experiment, and everything else people wrote into a job's comments."""

    project: str
    experiment: str
    attributes: Mapping[str, str]


@lru_cache(maxsize=_MEMORY)
def metadata(
    comment: str = "",
    admin: str = "",
    wckey: str = "",
    account: str = "",
    dependency: str = "",
    reservation: str = "",
    restarts: int = 0,
) -> Metadata:
    """From a comment that is a JSON object or plain words, the key for accounting, the account."""
    pairs, by_admin = _pairs(comment), _pairs(admin)
    told = dict(pairs)
    # An asterisk marks a key that Slurm filled in by default.
    key = wckey.lstrip("*")
    project = told.pop("project", "") or key or account
    experiment = told.pop("experiment", "") or ("" if pairs else comment)
    attributes = {
        "account": account,
        "wckey": key,
        "dependency": dependency,
        "reservation": reservation,
        "restarts": str(restarts or ""),
        **told,
        **{f"admin.{key}": value for key, value in by_admin.items()},
        "admin_comment": "" if by_admin else admin,
    }
    kept = {bounded(k): bounded(v) for k, v in attributes.items() if v}
    return Metadata(bounded(project), bounded(experiment), kept)


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

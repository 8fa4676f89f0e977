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
from marey.model.workloads import (
    FAILED_NODE,
    Allocation,
    Workload,
    WorkloadState,
    WorkloadStatus,
    parse_state,
)
from marey.sources.slurm.gres import GpuCount, count_gpus, parse_gpu_counts, parse_held_indices
from marey.sources.slurm.slurm_json import Job
from marey.sources.slurm.values import (
    exit_status,
    expand_hosts,
    expand_numbers,
    is_zero,
    parse_number,
    parse_text,
    parse_time_ms,
    parse_whole,
    parse_word,
    parse_words,
)

# A look into an enumeration costs more than a name of the module.
PENDING, RUNNING = WorkloadState.PENDING, WorkloadState.RUNNING
# Tasks of one waiting array that are listed one by one; the rest is a number on the last of them.
ARRAY_LIMIT = 1_000
# Slurm has one base state per job and flags beside it; these are flags.
FLAGS = frozenset(
    "COMPLETING CONFIGURING EXPEDITING LAUNCH_FAILED POWER_UP_NODE RECONFIG_FAIL REQUEUED "
    "REQUEUE_FED REQUEUE_HOLD RESIZING RESV_DEL_HOLD SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED "
    "UPDATE_DB".split()
)
# Ends that are one state for us: the word says which it was.
REPORTED_STATES = frozenset(
    "OUT_OF_MEMORY PREEMPTED BOOT_FAIL DEADLINE LAUNCH_FAILED REVOKED".split()
)
# Jobs resemble each other: what a request or a comment means is worked out once.
_MEMORY = 16_384


class SeenJob(msgspec.Struct, frozen=True, gc=False):
    """A workload as the controller tells it at one moment."""

    workload: Workload
    status: WorkloadStatus
    allocations: tuple[Allocation, ...] = ()


def seen_jobs(job: Job, ahead_ms: int = 0) -> list[SeenJob]:
    """Return the workloads of one record: one, or one per waiting task of an array.

    ``ahead_ms`` is how far Slurm's clock is ahead of ours: its times are told in ours.
    """
    facts = _read_shared_facts(job)
    if facts.state is None:
        return []
    held = list_held_gpus(job) if facts.state is RUNNING else ()
    names = _list_names(job)
    seen = _make_seen_job(job, facts, facts.state, name=names[0], held=held, ahead_ms=ahead_ms)
    return [seen] if len(names) == 1 else [seen, *(_rename_job(seen, name) for name in names[1:])]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a job shares with many others: all but its names, its times and its priority."""

    state: WorkloadState | None
    reason: str
    user: str
    # Slurm's own word for the state, where it says more than ours (OUT_OF_MEMORY, PREEMPTED).
    reported_state: str
    partition: str
    qos: str
    gpus: Request
    about: Metadata
    time_limit_s: int | None


_FACTS: dict[Any, _Facts] = {}


def _read_shared_facts(job: Job) -> _Facts:
    reported, details = job.job_state, job.gres_detail
    key = (
        tuple(reported) if type(reported) is list else reported,
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
    minutes, reason = parse_number(job.time_limit), parse_word(job.state_reason)
    about = parse_metadata(
        parse_text(job.comment),
        parse_text(job.admin_comment),
        parse_text(job.wckey),
        account=parse_text(job.account),
        dependency=parse_text(job.dependency),
        reservation=parse_text(job.resv_name),
        restarts=parse_whole(job.restart_cnt) or 0,
    )
    return _Facts(
        parse_base_state(job.job_state),
        "" if reason == "None" else reason,
        parse_word(job.user_name),
        reported_state=describe_state(job.job_state),
        partition=parse_word(job.partition),
        qos=parse_word(job.qos),
        gpus=count_requested_gpus(job),
        about=about,
        time_limit_s=None if minutes is None else round(minutes * 60),
    )


def _rename_job(seen: SeenJob, name: str) -> SeenJob:
    """Return another task of the same waiting array."""
    return SeenJob(replace(seen.workload, workload=name), replace(seen.status, workload=name))


def set_priority(seen: list[SeenJob], job: Job) -> list[SeenJob]:
    """Return the same job with the priority that it has now.

    The one fact that changes all the time.
    """
    priority = parse_number(job.priority) or 0.0
    if not seen or seen[0].status.priority == priority:
        return seen
    found = []
    for one in seen:
        old = one.status
        status = WorkloadStatus(old.workload, old.state, old.reason, priority)
        found.append(SeenJob(one.workload, status, one.allocations))
    return found


def parse_base_state(reported: Any) -> WorkloadState | None:
    """Return the state behind ``"RUNNING"``, or since 23.11 ``["COMPLETED", "COMPLETING"]``.

    None for a word of a version that is not known yet.
    """
    listed = reported if isinstance(reported, list) else [reported]
    return _parse_base_state(tuple(word for word in listed if isinstance(word, str)))


@lru_cache(maxsize=1024)
def _parse_base_state(reported: tuple[str, ...]) -> WorkloadState | None:
    found = parse_words(list(reported))
    base = [each for each in found if each not in FLAGS] or found
    for each in base:
        try:
            return parse_state(each)
        except InvalidInput:
            continue
    return None


def describe_state(reported: Any) -> str:
    """Return Slurm's word for an end that several words stand for; empty for all others."""
    listed = reported if isinstance(reported, list) else [reported]
    words = parse_words([word for word in listed if isinstance(word, str)])
    return next((word for word in words if word in REPORTED_STATES), "")


def _list_names(job: Job) -> list[str]:
    """Return Slurm's own way of naming.

    ``16``, ``20_3`` for a task, ``30+1`` for a part of a het job.
    """
    if is_zero(job.array_job_id) and is_zero(job.het_job_id):
        return [str(parse_whole(job.job_id) or 0)]
    array = parse_whole(job.array_job_id)
    if array:
        task = parse_whole(job.array_task_id)
        if task is not None:
            return [f"{array}_{task}"]
        waiting = parse_text(job.array_task_string).partition("%")[0].strip("[]")
        tasks = expand_numbers(waiting, ARRAY_LIMIT) if waiting else []
        if tasks:
            return [f"{array}_{task}" for task in tasks]
    het = parse_whole(job.het_job_id)
    if het:
        return [f"{het}+{parse_whole(job.het_job_offset) or 0}"]
    return [str(parse_whole(job.job_id) or 0)]


@dataclass(frozen=True, slots=True)
class Request:
    """The GPUs a job asks for."""

    gpus: int
    per_host: int
    model: str
    resource_type: str


def count_requested_gpus(job: Job) -> Request:
    """Count from the trackable resources, else from the request itself, else from what it holds."""
    details = job.gres_detail
    return _count_requested(
        parse_text(job.tres_req_str),
        parse_text(job.tres_per_job),
        parse_text(job.tres_per_node),
        per_task=parse_text(job.tres_per_task),
        per_socket=parse_text(job.tres_per_socket),
        nodes=parse_whole(job.node_count) or 1,
        tasks=parse_whole(job.tasks) or 1,
        details=tuple(map(parse_text, details)) if details and isinstance(details, list) else (),
    )


@lru_cache(maxsize=_MEMORY)
def _count_requested(
    tres: str,
    per_job: str,
    per_node: str,
    *,
    per_task: str,
    per_socket: str,
    nodes: int,
    tasks: int,
    details: tuple[str, ...],
) -> Request:
    on_node = parse_gpu_counts(per_node)
    choices = (
        (parse_gpu_counts(tres), 1),
        (parse_gpu_counts(per_job), 1),
        (on_node, nodes),
        (parse_gpu_counts(per_task), tasks),
        (parse_gpu_counts(per_socket), nodes),
    )
    gpus, counts = next(((count_gpus(c) * times, c) for c, times in choices if c), (0, ()))
    held = [parse_held_indices(entry) for entry in details]
    gpus = gpus or sum(map(len, held))
    per_host = count_gpus(on_node) or max(map(len, held), default=0) or math.ceil(gpus / nodes)
    model = _find_model(held, counts, on_node)
    named = resource_type(model, per_host) if gpus else ""
    return Request(gpus, per_host, model, named)


def _find_model(held: list[tuple[tuple[int, str], ...]], *asked: Sequence[GpuCount]) -> str:
    models = {entry.model for counts in asked for entry in counts if entry.model}
    models |= {model for entry in held for _, model in entry if model}
    return bounded(",".join(sorted(models)))


Held = tuple[tuple[str, int], ...]


def list_held_gpus(job: Job) -> Held:
    """Return GPU and its number on its host, of every GPU the job holds."""
    details = job.gres_detail
    if not details or not isinstance(details, list):
        return ()
    return _list_held(parse_text(job.nodes), tuple(map(parse_text, details)))


@lru_cache(maxsize=_MEMORY)
def _list_held(nodes: str, details: tuple[str, ...]) -> Held:
    # gres_detail stands in the order of nodes.
    return tuple(
        (bounded(gpu_id(host, index)), at)
        for host, detail in zip(expand_hosts(nodes), details, strict=False)
        for at, (index, _) in enumerate(parse_held_indices(detail))
    )


def _make_seen_job(
    job: Job, facts: _Facts, state: WorkloadState, *, name: str, held: Held, ahead_ms: int
) -> SeenJob:
    gpus, about = facts.gpus, facts.about
    # The name is the id, but of a task of an array or a part of a heterogeneous job.
    own = name if name.isdecimal() else str(parse_whole(job.job_id) or 0)
    attributes = {**about.attributes, "slurm_job_id": own}
    start, waiting = parse_time_ms(job.start_time), state is PENDING
    submit, eligible = parse_time_ms(job.submit_time), parse_time_ms(job.eligible_time)
    if ahead_ms:
        start, submit, eligible = (_subtract_offset(t, ahead_ms) for t in (start, submit, eligible))
    if waiting and start is not None:
        # Of a waiting job this is the scheduler's guess, not a fact.
        attributes["estimated_start"] = _format_moment(start)
    if job.state_description or job.array_task_string or job.het_job_id or job.failed_node:
        _add_comments(job, attributes)
    if not held and gpus.gpus and state is RUNNING:
        attributes["gpu_indices"] = "not reported by Slurm"
    ended = not waiting and state is not RUNNING
    if facts.reported_state and ended:
        attributes["scheduler_state"] = facts.reported_state
    workload = Workload(
        workload=name,
        name=bounded(parse_text(job.name)),
        user=facts.user,
        project=about.project,
        experiment=about.experiment,
        partition=facts.partition,
        qos=facts.qos,
        gpus_requested=gpus.gpus,
        gpus_per_host=gpus.per_host,
        gpu_model=gpus.model,
        resource_type=gpus.resource_type,
        time_limit_s=facts.time_limit_s,
        submit_ms=submit,
        eligible_ms=eligible,
        start_ms=None if waiting else start,
        end_ms=_subtract_offset(parse_time_ms(job.end_time), ahead_ms) if ended else None,
        exit_code=exit_status(job.exit_code) if ended else None,
        attributes=attributes,
    )
    status = WorkloadStatus(name, state, facts.reason, parse_number(job.priority) or 0.0)
    if not held:
        return SeenJob(workload, status)
    ranks = tuple([Allocation(name, gpu, rank, at) for rank, (gpu, at) in enumerate(held)])
    return SeenJob(workload, status, ranks)


def _subtract_offset(moment: int | None, ahead_ms: int) -> int | None:
    return None if moment is None else moment - ahead_ms


def _add_comments(job: Job, attributes: dict[str, str]) -> None:
    if job.state_description:
        attributes["reason_text"] = parse_word(job.state_description)
    if job.failed_node:
        attributes[FAILED_NODE] = parse_word(job.failed_node)
    het = parse_whole(job.het_job_id)
    if het:
        attributes["het_job_id"] = str(het)
    waiting = job.array_task_string
    if waiting and len(expand_numbers(_describe_tasks(waiting), ARRAY_LIMIT + 1)) > ARRAY_LIMIT:
        attributes["array_tasks"] = parse_word(waiting)


def _describe_tasks(waiting: Any) -> str:
    return parse_text(waiting).partition("%")[0].strip("[]")


@lru_cache(maxsize=_MEMORY)
def _format_moment(moment_ms: int) -> str:
    return format_time(moment_ms)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Project, experiment, and everything else people wrote into a job's comments."""

    project: str
    experiment: str
    attributes: Mapping[str, str]


@lru_cache(maxsize=_MEMORY)
def parse_metadata(
    comment: str = "",
    admin: str = "",
    wckey: str = "",
    *,
    account: str = "",
    dependency: str = "",
    reservation: str = "",
    restarts: int = 0,
) -> Metadata:
    """Parse a comment that is a JSON object or plain words, the key for accounting, the account."""
    pairs, by_admin = _parse_pairs(comment), _parse_pairs(admin)
    reported = dict(pairs)
    # An asterisk marks a key that Slurm filled in by default.
    key = wckey.lstrip("*")
    project = reported.pop("project", "") or key or account
    experiment = reported.pop("experiment", "") or ("" if pairs else comment)
    attributes = {
        "account": account,
        "wckey": key,
        "dependency": dependency,
        "reservation": reservation,
        "restarts": str(restarts or ""),
        **reported,
        **{f"admin.{key}": value for key, value in by_admin.items()},
        "admin_comment": "" if by_admin else admin,
    }
    kept = {bounded(k): bounded(v) for k, v in attributes.items() if v}
    return Metadata(bounded(project), bounded(experiment), kept)


def _parse_pairs(comment: str) -> dict[str, str]:
    """Return a comment that is a JSON object, as text pairs."""
    if not comment.startswith("{") or len(comment) > 65_536:
        return {}
    try:
        document = json.loads(comment)
    except (ValueError, RecursionError):
        return {}
    plain = {k: v for k, v in document.items() if isinstance(v, str | int | float)}
    return {key: str(value) for key, value in list(plain.items())[:64]}

"""Accounting (``sacct --json``, slurmdbd over REST): jobs that have ended, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.inventory import resource_type
from marey.model.names import bounded
from marey.model.workloads import (
    CANCELLED_BY,
    FAILED_NODE,
    Workload,
    WorkloadState,
    WorkloadStatus,
)
from marey.sources.slurm.jobs import (
    SeenJob,
    describe_state,
    parse_base_state,
    parse_metadata,
)
from marey.sources.slurm.slurm_json import find_slurm_code, list_problems, read_json
from marey.sources.slurm.values import (
    exit_status,
    parse_number,
    parse_text,
    parse_time_ms,
    parse_whole,
)

NO_INDICES = "not kept by Slurm's accounting"
OUT_OF_MEMORY = "OUT_OF_MEMORY"
_TIMES = ("submission", "eligible", "start", "end")


class PastJob(msgspec.Struct):
    """A job of the accounting database; every field as loosely typed as the versions are."""

    job_id: Any = 0
    name: Any = ""
    user: Any = ""
    association: Any = None
    account: Any = ""
    partition: Any = ""
    qos: Any = ""
    priority: Any = None
    state: Any = None
    time: Any = None
    exit_code: Any = None
    nodes: Any = ""
    allocation_nodes: Any = None
    array: Any = None
    het: Any = None
    tres: Any = None
    comment: Any = None
    wckey: Any = None
    reservation: Any = None
    steps: Any = None
    failed_node: Any = ""
    kill_request_user: Any = ""


class _History(msgspec.Struct):
    jobs: list[PastJob] | None = None
    errors: Any = None


def parse_history(body: bytes) -> list[PastJob]:
    """Return the jobs of the document; one that is none is ``Unavailable``."""
    try:
        document = read_json(body, _History)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unavailable(f"Slurm's history cannot be read: {shown(str(error))}") from None
    if document.jobs is None:
        why = list_problems(document.errors) or "it holds no jobs"
        code = find_slurm_code(why)
        raise Unavailable(f"Slurm did not tell its history: {shown(why)}.", code=code)
    return document.jobs


def list_ended_jobs(
    past: Iterable[PastJob], *, gpu_only: bool = True, ahead_ms: int = 0
) -> Iterator[SeenJob]:
    """Yield every job that has ended; where its GPUs were is known by node only.

    ``ahead_ms`` is how far Slurm's clock is ahead of ours: its times are told in ours.
    """
    for job in past:
        state = parse_base_state(_get_inside(job.state, "current"))
        if state is None or not state.ended:
            continue
        seen = _make_seen_job(
            job, WorkloadStatus(_make_name(job), state, _find_reason(job)), ahead_ms
        )
        if seen.workload.end_ms is not None and (seen.workload.gpus_requested or not gpu_only):
            yield seen


def _make_seen_job(job: PastJob, status: WorkloadStatus, ahead_ms: int) -> SeenJob:
    gpus, model = _count_gpus(job)
    hosts = parse_whole(job.allocation_nodes) or 1
    about = parse_metadata(
        parse_text(_get_inside(job.comment, "job")),
        parse_text(_get_inside(job.comment, "administrator")),
        parse_text(_get_inside(job.wckey, "wckey") if isinstance(job.wckey, dict) else job.wckey),
        account=parse_text(job.account),
        dependency="",
        reservation=parse_text(_get_inside(job.reservation, "name")),
    )
    reported = {key: parse_time_ms(_get_inside(job.time, key)) for key in _TIMES}
    times = {key: None if at is None else at - ahead_ms for key, at in reported.items()}
    limit = parse_number(_get_inside(job.time, "limit"))
    nodes = "" if parse_text(job.nodes) == "None assigned" else parse_text(job.nodes)
    extra = {"slurm_job_id": str(parse_whole(job.job_id) or 0), "nodes": nodes}
    extra["scheduler_state"] = _describe_end(job, status.state)
    extra[FAILED_NODE] = parse_text(job.failed_node)
    if status.state is WorkloadState.CANCELLED:
        extra[CANCELLED_BY] = parse_text(job.kill_request_user)
    if gpus and times["start"] is not None:
        extra["gpu_indices"] = NO_INDICES
    workload = Workload(
        workload=status.workload,
        name=bounded(parse_text(job.name)),
        user=bounded(parse_text(job.user) or parse_text(_get_inside(job.association, "user"))),
        project=about.project,
        experiment=about.experiment,
        partition=bounded(parse_text(job.partition)),
        qos=bounded(parse_text(job.qos)),
        gpus_requested=gpus,
        gpus_per_host=-(-gpus // hosts),
        gpu_model=bounded(model),
        resource_type=resource_type(model, -(-gpus // hosts)) if gpus else "",
        time_limit_s=None if limit is None else round(limit * 60),
        submit_ms=times["submission"],
        eligible_ms=times["eligible"],
        start_ms=times["start"],
        end_ms=times["end"],
        exit_code=_exit_code(job, status.state),
        attributes={**about.attributes, **{k: bounded(v) for k, v in extra.items() if v}},
    )
    ended = WorkloadStatus(
        status.workload, status.state, status.reason, parse_number(job.priority) or 0
    )
    return SeenJob(workload, ended)


def _describe_end(job: PastJob, state: WorkloadState) -> str:
    """Return Slurm's own word for the end.

    Of a job that failed, that of a step which ran out of memory: the job itself is only FAILED.
    """
    word = describe_state(_get_inside(job.state, "current"))
    steps = job.steps if isinstance(job.steps, list) else []
    states = (describe_state(_get_inside(step, "state")) for step in steps)
    return OUT_OF_MEMORY if not word and ends_by_memory(state, states) else word


def ends_by_memory(state: WorkloadState, steps: Iterable[str]) -> bool:
    """Return whether a job that failed had a step which ran out of memory."""
    return state is WorkloadState.FAILED and OUT_OF_MEMORY in steps


def _exit_code(job: PastJob, state: WorkloadState) -> int | None:
    code = exit_status(job.exit_code)
    # sacct's JSON of 22.05 writes 0 for a job that failed with another code.
    return None if code == 0 and state is WorkloadState.FAILED else code


def _make_name(job: PastJob) -> str:
    """Make ``16``, ``20_3`` for a task of an array, ``30+1`` for a part of a heterogeneous job."""
    array, task = (
        parse_whole(_get_inside(job.array, "job_id")),
        parse_whole(_get_inside(job.array, "task_id")),
    )
    het, offset = (
        parse_whole(_get_inside(job.het, "job_id")),
        parse_whole(_get_inside(job.het, "job_offset")),
    )
    if array and task is not None:
        return f"{array}_{task}"
    if het:
        return f"{het}+{offset or 0}"
    return str(parse_whole(job.job_id) or 0)


def _find_reason(job: PastJob) -> str:
    reason = parse_text(_get_inside(job.state, "reason"))
    return bounded("" if reason == "None" else reason)


def _count_gpus(job: PastJob) -> tuple[int, str]:
    """Return how many GPUs, and of which types, were allocated, or asked for where none were."""
    for key in ("allocated", "requested"):
        listed = _get_inside(job.tres, key)
        entries = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
        named = {parse_text(e.get("name")): parse_whole(e.get("count")) or 0 for e in entries}
        typed = {name.partition(":")[2]: n for name, n in named.items() if name[:4] == "gpu:"}
        gpus = named.get("gpu", 0) or sum(typed.values())
        if gpus:
            return gpus, ",".join(sorted(typed))
    return 0, ""


def _get_inside(group: Any, key: str) -> Any:
    return group.get(key) if isinstance(group, dict) else None


def read_history(body: bytes, name: str) -> list[SeenJob]:
    """Return the ended GPU jobs in a file that ``sacct --json`` wrote."""
    try:
        past = parse_history(body)
    except Unavailable as error:
        raise InvalidInput(f"{name}: {error}") from None
    if past and all(job.state is None for job in past) and b'"job_state"' in body:
        raise InvalidInput(
            f"{name} is what squeue --json prints, which forgets jobs that have ended; ask for: "
            "sacct --json --allusers --starttime now-7days."
        )
    return list(list_ended_jobs(past))

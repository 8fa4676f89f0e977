"""Accounting (``sacct --json``, slurmdbd over REST): jobs that have ended, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.inventory import resource_type
from marey.model.names import bounded
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from marey.sources.slurm.documents import problems_of, read_json
from marey.sources.slurm.jobs import SeenJob, base_state, metadata
from marey.sources.slurm.values import exit_status, number, text, time_ms, whole

NO_INDICES = "not kept by Slurm's accounting"
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


class _History(msgspec.Struct):
    jobs: list[PastJob] | None = None
    errors: Any = None


def parse_history(body: bytes) -> list[PastJob]:
    """The jobs of the document; one that is none is ``Unavailable``."""
    try:
        document = read_json(body, _History)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unavailable(f"Slurm's history cannot be read: {shown(str(error))}") from None
    if document.jobs is None:
        why = problems_of(document.errors) or "it holds no jobs"
        raise Unavailable(f"Slurm did not tell its history: {shown(why)}.")
    return document.jobs


def ended_jobs(
    past: Iterable[PastJob], *, gpu_only: bool = True, ahead_ms: int = 0
) -> Iterator[SeenJob]:
    """Every job that has ended; where its GPUs were is told by node only.

    ``ahead_ms`` is how far Slurm's clock is ahead of ours: its times are told in ours.
    """
    for job in past:
        state = base_state(_inside(job.state, "current"))
        if state is None or not state.ended:
            continue
        seen = _seen(job, WorkloadStatus(_name(job), state, _reason(job)), ahead_ms)
        if seen.workload.end_ms is not None and (seen.workload.gpus_requested or not gpu_only):
            yield seen


def _seen(job: PastJob, status: WorkloadStatus, ahead_ms: int) -> SeenJob:
    gpus, model = _gpus(job)
    hosts = whole(job.allocation_nodes) or 1
    about = metadata(
        text(_inside(job.comment, "job")),
        text(_inside(job.comment, "administrator")),
        text(_inside(job.wckey, "wckey") if isinstance(job.wckey, dict) else job.wckey),
        text(job.account),
        "",
        text(_inside(job.reservation, "name")),
    )
    told = {key: time_ms(_inside(job.time, key)) for key in _TIMES}
    times = {key: None if at is None else at - ahead_ms for key, at in told.items()}
    limit = number(_inside(job.time, "limit"))
    nodes = "" if text(job.nodes) == "None assigned" else text(job.nodes)
    extra = {"slurm_job_id": str(whole(job.job_id) or 0), "nodes": nodes}
    if gpus and times["start"] is not None:
        extra["gpu_indices"] = NO_INDICES
    workload = Workload(
        workload=status.workload,
        name=bounded(text(job.name)),
        user=bounded(text(job.user) or text(_inside(job.association, "user"))),
        project=about.project,
        experiment=about.experiment,
        partition=bounded(text(job.partition)),
        qos=bounded(text(job.qos)),
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
    ended = WorkloadStatus(status.workload, status.state, status.reason, number(job.priority) or 0)
    return SeenJob(workload, ended)


def _exit_code(job: PastJob, state: WorkloadState) -> int | None:
    code = exit_status(job.exit_code)
    # sacct's JSON of 22.05 writes 0 for a job that failed with another code.
    return None if code == 0 and state is WorkloadState.FAILED else code


def _name(job: PastJob) -> str:
    """``16``, ``20_3`` for a task of an array, ``30+1`` for a part of a heterogeneous job."""
    array, task = whole(_inside(job.array, "job_id")), whole(_inside(job.array, "task_id"))
    het, offset = whole(_inside(job.het, "job_id")), whole(_inside(job.het, "job_offset"))
    if array and task is not None:
        return f"{array}_{task}"
    if het:
        return f"{het}+{offset or 0}"
    return str(whole(job.job_id) or 0)


def _reason(job: PastJob) -> str:
    reason = text(_inside(job.state, "reason"))
    return bounded("" if reason == "None" else reason)


def _gpus(job: PastJob) -> tuple[int, str]:
    """How many GPUs, and of which types, were allocated, or asked for where none were."""
    for key in ("allocated", "requested"):
        listed = _inside(job.tres, key)
        entries = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
        named = {text(e.get("name")): whole(e.get("count")) or 0 for e in entries}
        typed = {name.partition(":")[2]: n for name, n in named.items() if name[:4] == "gpu:"}
        gpus = named.get("gpu", 0) or sum(typed.values())
        if gpus:
            return gpus, ",".join(sorted(typed))
    return 0, ""


def _inside(group: Any, key: str) -> Any:
    return group.get(key) if isinstance(group, dict) else None


def read_history(body: bytes, name: str) -> list[SeenJob]:
    """The ended GPU jobs in a file that ``sacct --json`` wrote."""
    try:
        return list(ended_jobs(parse_history(body)))
    except Unavailable as error:
        raise InvalidInput(f"{name}: {error}") from None

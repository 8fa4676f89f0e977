"""Slurm's JSON documents (command line and REST, 22.05 to 25.11), only the fields that are used."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

from marey.model.errors import Unavailable, shown
from marey.model.system.failure_codes import FORBIDDEN, UNAUTHORIZED
from marey.model.system.garbage import collecting_paused
from marey.model.system.native import native_module

# gc=False: what comes of JSON holds no cycles, so that the collector need not walk through it.


class Number(msgspec.Struct, gc=False, frozen=True):
    """A number since 23.02: it may be not set, or infinite."""

    set: bool = True
    infinite: bool = False
    number: int | float | None = None


class Node(msgspec.Struct, gc=False):
    """A node; every field as loosely typed as the versions are."""

    name: Any = ""
    state: Any = ""
    state_flags: Any = None
    gres: Any = ""
    reason: Any = ""
    partitions: Any = None
    cpus: Any = 0
    real_memory: Any = 0


class Partition(msgspec.Struct):
    """A partition; flat in 22.05, grouped since 23.02."""

    name: Any = ""
    max_time_limit: Any = None
    maximums: Any = None
    priority_tier: Any = None
    priority: Any = None


class SlurmReservation(msgspec.Struct):
    """Hosts kept for somebody; the same in every version."""

    name: Any = ""
    start_time: Any = None
    end_time: Any = None
    node_list: Any = ""
    users: Any = ""
    accounts: Any = ""
    flags: Any = None


class Job(msgspec.Struct, gc=False):
    """A job, an array task, or what is left of an array."""

    job_id: Any = 0
    array_job_id: Any = None
    array_task_id: Any = None
    array_task_string: Any = ""
    het_job_id: Any = None
    het_job_offset: Any = None
    name: Any = ""
    user_name: Any = ""
    account: Any = ""
    partition: Any = ""
    qos: Any = ""
    job_state: Any = ""
    state_reason: Any = ""
    state_description: Any = ""
    priority: Any = None
    dependency: Any = ""
    submit_time: Any = None
    eligible_time: Any = None
    start_time: Any = None
    end_time: Any = None
    time_limit: Any = None
    exit_code: Any = None
    nodes: Any = ""
    node_count: Any = None
    tasks: Any = None
    gres_detail: Any = None
    tres_req_str: Any = ""
    tres_per_job: Any = ""
    tres_per_node: Any = ""
    tres_per_task: Any = ""
    tres_per_socket: Any = ""
    comment: Any = ""
    admin_comment: Any = ""
    wckey: Any = ""
    resv_name: Any = ""
    restart_cnt: Any = 0
    failed_node: Any = ""


_OptionalNumber = int | float | Number | None


class _UsualJob(Job):
    """A job whose numbers are numbers and whose words are words, as every version has them."""

    job_id: _OptionalNumber = 0
    array_job_id: _OptionalNumber = None
    array_task_id: _OptionalNumber = None
    het_job_id: _OptionalNumber = None
    het_job_offset: _OptionalNumber = None
    priority: _OptionalNumber = None
    submit_time: _OptionalNumber = None
    eligible_time: _OptionalNumber = None
    start_time: _OptionalNumber = None
    end_time: _OptionalNumber = None
    time_limit: _OptionalNumber = None
    node_count: _OptionalNumber = None
    tasks: _OptionalNumber = None
    restart_cnt: _OptionalNumber = 0


class _UsualDocument(msgspec.Struct):
    jobs: list[_UsualJob] | None = None
    errors: Any = None


class SlurmDocument(msgspec.Struct):
    """Any answer of the controller; None is "not in it", which is not the same as empty."""

    nodes: list[Node] | None = None
    jobs: list[Job] | None = None
    partitions: list[Partition] | None = None
    reservations: list[SlurmReservation] | None = None
    errors: Any = None


T = TypeVar("T")
_USUAL = msgspec.json.Decoder(_UsualDocument)
_ANYTHING = msgspec.json.Decoder()
# What the native reader is asked for: a field, what reads it, and what it is where it is missing.
_WISHES = [
    (field.name, msgspec.json.Decoder(field.type).decode, field.default)
    for field in msgspec.structs.fields(_UsualJob)
]

# What Slurm says in words of its own, read here and nowhere else.
_SLURM_WORDS = (
    (r"fetch_config|resolve_ctls|slurm\.conf", "slurm_not_configured"),
    (r"[Uu]nable to contact slurm controller|slurm_load", "controller_silent"),
    (r"[Aa]uthentication|munge", "slurm_authentication"),
    (r"[Uu]nauthorized|[Ee]xpired", UNAUTHORIZED),
    (r"[Ff]orbidden|[Aa]ccess.*denied", FORBIDDEN),
    (r"[Cc]onnection refused", "connection_refused"),
    (r"timed out", "timeout"),
)


def parse_document(body: bytes, what: str) -> SlurmDocument:
    """Return the document, which must hold ``what``.

    An answer full of errors is ``Unavailable``.
    """
    try:
        with collecting_paused():
            document = _read(body, what)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unavailable(
            f"Slurm's answer for {what} cannot be read: {shown(str(error))}"
        ) from None
    problems = list_problems(document.errors)
    held = getattr(document, what)
    if held is None or (not held and problems):
        why = problems or f"it holds no {what}"
        code = find_slurm_code(why)
        raise Unavailable(f"Slurm did not tell its {what}: {shown(why)}.", code=code)
    return document


def _read(body: bytes, what: str) -> SlurmDocument:
    usual = _read_usual_jobs(body) if what == "jobs" else None
    return usual or read_json(body, SlurmDocument)


def _read_usual_jobs(body: bytes) -> SlurmDocument | None:
    """Return the jobs, read the fast way; None where something is not what it always was."""
    try:
        return read_jobs_in_native(body) or read_jobs_in_python(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def read_jobs_in_python(body: bytes) -> SlurmDocument:
    """Return the jobs where they are as usual; what is not raises."""
    found = _USUAL.decode(body)
    jobs: list[Any] | None = found.jobs
    return SlurmDocument(jobs=jobs, errors=found.errors)


def read_jobs_in_native(body: bytes) -> SlurmDocument | None:
    """Read the same in a quarter of the time; None where it was not built or cannot.

    Values that are written alike are one object in all the jobs.
    """
    module = native_module()
    if module is None:
        return None
    found = module.read_records(body, "jobs", "errors", _WISHES, _UsualJob, _ANYTHING.decode)
    return SlurmDocument(jobs=found[0], errors=found[1]) if found else None


def read_json(body: bytes, shape: type[T]) -> T:
    """Return Slurm's JSON, decoded into this type."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError:
        # Some versions write NaN or Infinity, which is no JSON; Python reads them.
        return msgspec.convert(json.loads(body), shape, strict=False)


def list_problems(errors: Any) -> str:
    """Return the first few errors that an answer names."""
    listed = errors if isinstance(errors, list) else []
    texts = [
        str(entry.get("description") or entry.get("error") or entry)
        + (f" ({entry['error']})" if entry.get("description") and entry.get("error") else "")
        if isinstance(entry, dict)
        else str(entry)
        for entry in listed
    ]
    return "; ".join(texts[:3])


def find_slurm_code(said: str, default: str = "unavailable") -> str:
    """Return the code behind what one of Slurm's programs said."""
    return next((code for words, code in _SLURM_WORDS if re.search(words, said)), default)

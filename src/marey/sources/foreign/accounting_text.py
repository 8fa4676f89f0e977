"""What ``sacct -P`` prints (columns between bars): ended jobs, without their steps."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from marey.model.errors import InvalidInput, allowed
from marey.model.inventory import resource_type
from marey.model.names import bounded
from marey.model.times import parse_time
from marey.model.workloads import (
    CANCELLED_BY,
    FAILED_NODE,
    Workload,
    WorkloadState,
    WorkloadStatus,
    parse_state,
)
from marey.sources.foreign.refusals import SACCT_COLUMNS
from marey.sources.slurm.gres import count_gpus, parse_gpu_counts
from marey.sources.slurm.history import NO_INDICES, OUT_OF_MEMORY, ends_by_memory
from marey.sources.slurm.jobs import SeenJob, describe_state, parse_metadata

REQUIRED = ("JobID", "State", "Start", "End")
_LIMIT = re.compile(r"^(?:(\d{1,5})-)?(\d{1,3}):(\d{2}):(\d{2})$")
_CANCELLED_BY = re.compile(r"^CANCELLED by (\S+)$")
_NO_TIME = frozenset(("", "unknown", "none", "n/a", "invalid"))
# Where the reader puts fields beyond the header's; a line may also end with a bar.
_SURPLUS = "surplus fields"
FIELD_LIMIT = 16 << 20


def is_accounting_text(path: Path) -> bool:
    """Return whether a file begins with the header line of ``sacct -P``."""
    with path.open("rb") as file:
        head = file.readline(1 << 16).decode("utf-8", "replace").strip().split("|")
    return len(head) > 1 and "JobID" in head and "State" in head


def read_accounting_text(path: Path, *, gpu_only: bool = True) -> list[SeenJob]:
    """Return the ended jobs of a file.

    Steps (``16.batch``) belong to their jobs: of one that failed they may tell that it was memory.
    """
    csv.field_size_limit(FIELD_LIMIT)
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(
            file, delimiter="|", quoting=csv.QUOTE_NONE, restkey=_SURPLUS, restval=""
        )
        missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
        if missing:
            raise InvalidInput(
                f"{path.name} has no column {allowed(missing)}; "
                f"ask for: sacct -P -o {SACCT_COLUMNS}"
            )
        if gpu_only and not {"AllocTRES", "ReqTRES"} & set(reader.fieldnames or ()):
            raise InvalidInput(
                f"{path.name} has neither AllocTRES nor ReqTRES, which tell a job's GPUs; ask for: "
                f"sacct -P -o {SACCT_COLUMNS}"
            )
        steps: dict[str, set[str]] = {}
        jobs = list(_list_jobs(reader, path.name, steps, gpu_only=gpu_only))
    return [_add_steps(job, steps.get(job.workload.workload, set())) for job in jobs]


def _list_jobs(
    reader: csv.DictReader[str], name: str, steps: dict[str, set[str]], *, gpu_only: bool
) -> Iterator[SeenJob]:
    """Yield the jobs, and put the states of their steps into ``steps``."""
    names = list(reader.fieldnames or ())
    for row in map(partial(_mend_bars, names), reader):
        job = row["JobID"].strip()
        if "." in job:
            steps.setdefault(job.partition(".")[0], set()).add(_get(row, "State").partition(" ")[0])
            continue
        # An array that has not been split into tasks yet.
        if not job or "[" in job:
            continue
        try:
            seen = _make_job(job, row)
        except InvalidInput as error:
            raise InvalidInput(f"{name}, line {reader.line_num}: {error}") from None
        if seen is not None and (seen.workload.gpus_requested or not gpu_only):
            yield seen


def _add_steps(seen: SeenJob, states: set[str]) -> SeenJob:
    """Return the job; a step that ran out of memory becomes its scheduler state."""
    if not ends_by_memory(seen.status.state, states):
        return seen
    attributes = {"scheduler_state": OUT_OF_MEMORY, **seen.workload.attributes}
    workload = dataclasses.replace(seen.workload, attributes=attributes)
    return SeenJob(workload, seen.status, seen.allocations)


def _mend_bars(names: Sequence[str], row: dict[str, Any]) -> Mapping[str, str]:
    """Return a row whose job's name holds the bar that parts columns, put together again."""
    surplus = row.pop(_SURPLUS, None)
    if not surplus or "JobName" not in names or surplus == [""]:
        return row
    fields = [*(row[name] for name in names), *surplus]
    at = names.index("JobName")
    rest = len(fields) - len(names)
    fields[at : at + rest + 1] = ["|".join(fields[at : at + rest + 1])]
    return dict(zip(names, fields, strict=True))


def _make_job(job: str, row: Mapping[str, str]) -> SeenJob | None:
    state = parse_state(row["State"])
    end_ms = _read_time(row, "End")
    if not state.ended or end_ms is None:
        return None
    counts = parse_gpu_counts(_get(row, "AllocTRES")) or parse_gpu_counts(_get(row, "ReqTRES"))
    gpus = count_gpus(counts)
    hosts = int(_get(row, "NNodes") or 1) if (_get(row, "NNodes") or "1").isdecimal() else 1
    per_host = -(-gpus // max(1, hosts))
    model = bounded(",".join(sorted({entry.model for entry in counts if entry.model})))
    about = parse_metadata(
        _get(row, "Comment"), _get(row, "AdminComment"), _get(row, "WCKey"),
        account=_get(row, "Account"), reservation=_get(row, "Reservation"),
    )  # fmt: skip
    limit_s = _read_limit(row)
    nodes = _get(row, "NodeList")
    extra = {
        "slurm_job_id": _get(row, "JobIDRaw") or job,
        "nodes": "" if nodes == "None assigned" else nodes,
        "scheduler_state": describe_state(row["State"].split()[0].rstrip("+")),
        "gpu_indices": NO_INDICES if gpus and _read_time(row, "Start") is not None else "",
        FAILED_NODE: _get(row, "FailedNode"),
    }
    killer = _CANCELLED_BY.match(row["State"].strip())
    if killer is not None:
        extra[CANCELLED_BY] = killer[1]
    reason = _get(row, "Reason")
    workload = Workload(
        bounded(job),
        name=bounded(_get(row, "JobName")),
        user=bounded(_get(row, "User")),
        project=about.project,
        experiment=about.experiment,
        partition=bounded(_get(row, "Partition")),
        qos=bounded(_get(row, "QOS")),
        gpus_requested=gpus,
        gpus_per_host=per_host,
        gpu_model=model,
        resource_type=resource_type(model, per_host) if gpus else "",
        time_limit_s=limit_s,
        submit_ms=_read_time(row, "Submit"),
        eligible_ms=_read_time(row, "Eligible"),
        start_ms=_read_time(row, "Start"),
        end_ms=end_ms,
        exit_code=_read_exit(row, state),
        attributes={**about.attributes, **{k: bounded(v) for k, v in extra.items() if v}},
    )
    said = "" if reason in ("None", "") else bounded(reason)
    return SeenJob(workload, WorkloadStatus(workload.workload, state, said))


def _get(row: Mapping[str, str], name: str) -> str:
    return (row.get(name) or "").strip()


def _read_time(row: Mapping[str, str], name: str) -> int | None:
    """Return a time of sacct, which is the local time of whoever asked unless it names a zone."""
    text = _get(row, name)
    return None if text.lower() in _NO_TIME else int(parse_time(text))


def _read_limit(row: Mapping[str, str]) -> int | None:
    """Return the time limit in seconds: raw minutes, or ``days-hours:minutes:seconds``."""
    raw = _get(row, "TimelimitRaw")
    if raw.isdecimal():
        return int(raw) * 60
    found = _LIMIT.match(_get(row, "Timelimit"))
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _read_exit(row: Mapping[str, str], state: WorkloadState) -> int | None:
    """Return ``code:signal`` as a shell tells it; a failure without either tells nothing."""
    code, _, signal = _get(row, "ExitCode").partition(":")
    if signal.isdecimal() and int(signal):
        return 128 + int(signal)
    if not code.isdecimal() or (code == "0" and state is WorkloadState.FAILED):
        return None
    return int(code)

"""Read what ``scontrol show jobs`` printed, with the workload that was sent where it is there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from marey.app.queue.histories.job_records import (
    JobRecord,
    parse_memory_mb,
    parse_span,
    parse_time,
)
from marey.app.queue.histories.slurm_config import PAIR
from marey.model.errors import InvalidInput, shown
from marey.sources.slurm.gres import GpuCount, count_gpus, parse_gpu_counts
from marey.sources.slurm.values import expand_hosts

JOBS_FILE, WORKLOAD_FILE = "scontrol-show-jobs.txt", "workload.json"


def read_scontrol_jobs(folder: Path) -> list[JobRecord]:
    """Return the jobs of a folder that asked for GPUs."""
    path = folder / JOBS_FILE
    texts = _split_records(path.read_text("utf-8", "replace"))
    # What was printed twice is one job.
    records = [one for one in map(_parse_record, dict.fromkeys(texts)) if one is not None]
    if not records:
        raise InvalidInput(
            f"{shown(str(path))} holds no job; nothing can be replayed.", code="no_history"
        )
    return _fill_from_workload(records, _read_workload(folder))


def _split_records(text: str) -> list[str]:
    """Return one text per job, whether it was printed on one line (``-o``) or on several."""
    lines = text.splitlines()
    if sum(line.startswith("JobId=") for line in lines) == sum(bool(line.strip()) for line in lines):  # fmt: skip  # noqa: E501
        return [line for line in lines if line.strip()]
    joined = re.sub(r"\s+", " ", text)
    return [f"JobId={part}" for part in re.split(r"(?:^|\s)JobId=", joined)[1:]]


def _parse_record(line: str) -> JobRecord | None:
    """Return a job as a replay needs it; None for one without GPUs or a submit time."""
    fields = dict(PAIR.findall(line))
    submit = parse_time(fields.get("SubmitTime", ""))
    if submit is None:
        return None
    hosts = _read_count(fields.get("NumNodes", "1")) or 1
    counts = _parse_request(fields, hosts)
    if not count_gpus(counts):
        return None
    start, end = parse_time(fields.get("StartTime", "")), parse_time(fields.get("EndTime", ""))
    ended = fields.get("JobState", "").split()[0:1] not in (["PENDING"], ["RUNNING"])
    ran = start is not None and end is not None and ended and end >= start
    eligible = parse_time(fields.get("EligibleTime", ""))
    tres = dict(PAIR.findall((fields.get("ReqTRES") or fields.get("TRES", "")).replace(",", " ")))
    return JobRecord(
        id=fields["JobId"],
        order=_read_count(fields["JobId"]),
        name=fields.get("JobName", ""),
        user=re.sub(r"\(.*", "", fields.get("UserId", "")) or "unknown",
        project=fields.get("Account", "").replace("(null)", ""),
        partition=fields.get("Partition", ""),
        # Who waits for a dependency or a begin time does not stand in line yet.
        submit_s=max(submit, eligible) if eligible is not None else submit,
        start_s=start if ran else None,
        run_s=end - start if ran and start is not None and end is not None else None,
        limit_s=parse_span(fields.get("TimeLimit", "")),
        gpus_per_host=count_gpus(counts),
        model=next((entry.model for entry in counts if entry.model), ""),
        hosts=hosts,
        cpus_per_host=-(-_read_count(fields.get("NumCPUs", "0")) // hosts),
        memory_mb_per_host=-(-parse_memory_mb(tres.get("mem", "")) // hosts),
        nodes=tuple(expand_hosts(fields.get("NodeList", "").replace("(null)", ""))) if ran else (),
        backfilled=fields.get("Scheduler", "") == "Backfill",
        requeued=_read_count(fields.get("Restarts", "0")) > 0,
    )


def _parse_request(fields: dict[str, str], hosts: int) -> tuple[GpuCount, ...]:
    """Return the GPUs asked for on each host."""
    # Until Slurm 18 the request stands under Gres.
    per_node = parse_gpu_counts(
        (fields.get("TresPerNode") or fields.get("Gres", "")).replace("(null)", "")
    )
    if count_gpus(per_node):
        return per_node
    total = parse_gpu_counts(
        fields.get("TresPerJob", "") or fields.get("ReqTRES", "") or fields.get("TRES", "")
    )
    return tuple(GpuCount(entry.model, -(-entry.count // hosts)) for entry in total)


def _read_count(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def _read_workload(folder: Path) -> list[list[float]]:
    """Return submit, GPUs, seconds and limit in minutes of each job as it was sent, where the
    folder tells.
    """
    for path in (folder / WORKLOAD_FILE, folder.parent / WORKLOAD_FILE):
        if path.is_file():
            try:
                found = json.loads(path.read_text("utf-8"))
                return [[float(value) for value in row] for row in found]
            except (ValueError, TypeError) as error:
                raise InvalidInput(
                    f"{shown(str(path))} is not a list of [submit, GPUs, seconds, minutes]."
                ) from error
    return []


def _fill_from_workload(records: list[JobRecord], workload: list[list[float]]) -> list[JobRecord]:
    """Give jobs that have not run yet the seconds they were sent with (job ``jN`` is row N)."""
    filled = []
    for record in records:
        number = re.fullmatch(r"j(\d+)", record.name)
        row = workload[int(number[1])] if number and int(number[1]) < len(workload) else []
        if record.run_s is None and len(row) > 2:
            filled.append(replace(record, run_s=int(row[2])))
        else:
            filled.append(record)
    return filled

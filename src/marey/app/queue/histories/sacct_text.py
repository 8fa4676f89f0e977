"""Read what ``sacct --parsable2`` printed: one line per job, a header that names the columns."""

from __future__ import annotations

import re
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

SACCT_FILE = "sacct.txt"
# What a replay cannot do without; `sacct --parsable2 --allocations --format=…` prints them.
NEEDED = ("JobID", "Submit", "Start", "End", "Timelimit")
FORMAT = (
    "JobID,User,Account,Partition,Submit,Eligible,Start,End,State,Timelimit,NNodes,ReqCPUS,"
    "ReqTRES,NodeList"
)


def read_sacct_text(path: Path) -> list[JobRecord]:
    """Return the jobs of a sacct listing that asked for GPUs; steps are left out."""
    lines = path.read_text("utf-8", "replace").splitlines()
    header = lines[0].split("|") if lines else []
    missing = [name for name in NEEDED if name not in header]
    if not {"ReqTRES", "AllocTRES", "ReqGRES"} & set(header):
        missing.append("ReqTRES")
    if missing:
        raise InvalidInput(
            f"{shown(str(path))} has no column {', '.join(missing)}; print it with "
            f"`sacct --parsable2 --allocations --format={FORMAT}`."
        )
    records = []
    for line in lines[1:]:
        fields = dict(zip(header, line.split("|"), strict=False))
        # 123.batch and 123.0 are steps of 123.
        if "." not in fields.get("JobID", "") and (record := _parse_row(fields)):
            records.append(record)
    if not records:
        raise InvalidInput(f"{shown(str(path))} holds no job with GPUs.", code="no_history")
    return records


def _parse_row(fields: dict[str, str]) -> JobRecord | None:
    submit = parse_time(fields["Submit"])
    asked = fields.get("ReqTRES") or fields.get("AllocTRES") or fields.get("ReqGRES", "")
    counts = parse_gpu_counts(asked)
    if submit is None or not count_gpus(counts):
        return None
    start, end = parse_time(fields["Start"]), parse_time(fields["End"])
    ran = start is not None and end is not None and end >= start
    hosts = _read_count(fields.get("NNodes", "1")) or 1
    per_host = [GpuCount(entry.model, -(-entry.count // hosts)) for entry in counts]
    tres = dict(PAIR.findall(asked.replace(",", " ")))
    cpus = _read_count(fields.get("ReqCPUS", "") or tres.get("cpu", "0"))
    eligible = parse_time(fields.get("Eligible", ""))
    nodes = fields.get("NodeList", "").replace("None assigned", "")
    return JobRecord(
        id=fields["JobID"],
        order=_read_count(fields["JobID"]),
        name="",
        user=fields.get("User", "") or "unknown",
        project=fields.get("Account", ""),
        partition=fields.get("Partition", ""),
        submit_s=max(submit, eligible) if eligible is not None else submit,
        start_s=start if ran else None,
        run_s=end - start if ran and start is not None and end is not None else None,
        limit_s=parse_span(fields["Timelimit"]),
        gpus_per_host=count_gpus(per_host),
        model=next((entry.model for entry in per_host if entry.model), ""),
        hosts=hosts,
        cpus_per_host=-(-cpus // hosts),
        memory_mb_per_host=-(-parse_memory_mb(tres.get("mem", "")) // hosts),
        nodes=tuple(expand_hosts(nodes)) if ran else (),
        requeued="REQUEUED" in fields.get("State", ""),
    )


def _read_count(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0

"""Read a folder of a Slurm site's history: its jobs as scontrol prints them, and its policy."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from marey.model.errors import InvalidInput, NotFound, shown
from marey.queue.policy.policy import Policy, parse_policy
from marey.queue.policy.recorded_jobs import UNKNOWN_MS, RecordedJobs
from marey.sources.slurm.gres import count_gpus, parse_gpu_counts
from marey.sources.slurm.values import expand_hosts

JOBS_FILE, WORKLOAD_FILE, CONFIG_FILE = "scontrol-show-jobs.txt", "workload.json", "slurm.conf"
_PAIR = re.compile(r"(\S+?)=(\S*)")
# A job without a limit is planned as if it ran a year, which is how Slurm treats UNLIMITED.
_NO_LIMIT_S = 365 * 86400


def read_history(folder: Path) -> tuple[RecordedJobs, Policy]:
    """Return the jobs of a folder and the policy they were scheduled by."""
    path = folder / JOBS_FILE
    if not path.is_file():
        raise NotFound(
            f"{shown(str(folder))} has no {JOBS_FILE} (the output of `scontrol -o show jobs`)."
        )
    lines = _split_records(path.read_text("utf-8", "replace"))
    records = [record for record in map(_parse_record, lines) if record is not None]
    if not records:
        raise InvalidInput(
            f"{shown(str(path))} holds no job; nothing can be replayed.", code="no_history"
        )
    _fill_from_workload(records, _read_workload(folder))
    kept = [record for record in records if record["run_s"] is not None]
    if not kept:
        raise InvalidInput(
            f"No job of {shown(str(path))} has run; nothing can be replayed.", code="no_history"
        )
    kept.sort(key=lambda record: (record["submit_s"], record["order"]))
    config = _read_config(folder)
    return _build_jobs(kept, _find_hosts(kept, config)), _find_policy(records, config)


def read_policy(path: Path) -> Policy:
    """Return the policy of a JSON file."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{shown(str(path))} is not JSON: {shown(str(error))}") from error
    return parse_policy(document)


def _split_records(text: str) -> list[str]:
    """Return one text per job, whether it was printed on one line (``-o``) or on several."""
    joined = re.sub(r"\s+", " ", text)
    return [f"JobId={part}" for part in re.split(r"(?:^|\s)JobId=", joined)[1:]]


def _parse_record(line: str) -> dict[str, Any] | None:
    """Return what a replay needs of a job; nothing for one that asked for no GPU."""
    fields = dict(_PAIR.findall(line))
    submit = _parse_time(fields.get("SubmitTime", ""))
    if submit is None:
        return None
    gpus, hosts = _parse_request(fields)
    if gpus <= 0:
        return None
    start, end = _parse_time(fields.get("StartTime", "")), _parse_time(fields.get("EndTime", ""))
    ended = fields.get("JobState", "").split()[0:1] not in (["PENDING"], ["RUNNING"])
    ran = start is not None and end is not None and ended and end >= start
    number = re.match(r"\d+", fields["JobId"])
    return {
        "id": fields["JobId"],
        "order": int(number[0]) if number else 0,
        "name": fields.get("JobName", ""),
        "user": re.sub(r"\(.*", "", fields.get("UserId", "")) or "unknown",
        "submit_s": submit,
        "start_s": start if ran else None,
        "run_s": end - start if ran and start is not None and end is not None else None,
        "limit_s": _parse_span(fields.get("TimeLimit", "")),
        "gpus_per_host": gpus,
        "hosts": hosts,
        "nodes": tuple(expand_hosts(fields.get("NodeList", "").replace("(null)", "")))
        if ran
        else (),
        "scheduler": fields.get("Scheduler", ""),
    }


def _parse_request(fields: dict[str, str]) -> tuple[int, int]:
    hosts = max(1, int(re.match(r"\d+", fields.get("NumNodes", "1") or "1")[0]))  # type: ignore[index]
    per_node = count_gpus(parse_gpu_counts(fields.get("TresPerNode", "")))
    if per_node:
        return per_node, hosts
    total = count_gpus(
        parse_gpu_counts(
            fields.get("TresPerJob", "") or fields.get("ReqTRES", "") or fields.get("TRES", "")
        )
    )
    return -(-total // hosts), hosts


def _parse_time(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def _parse_span(text: str) -> int:
    """Return the seconds of ``2-03:04:05`` or ``00:01:00``; a year where there is no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?", text)
    if not match:
        return _NO_LIMIT_S
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return max(1, days * 86400 + hours * 3600 + minutes * 60 + seconds)


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


def _fill_from_workload(records: list[dict[str, Any]], workload: list[list[float]]) -> None:
    """Give jobs that have not run yet the seconds they were sent with (job ``jN`` is row N)."""
    for record in records:
        number = re.fullmatch(r"j(\d+)", record["name"])
        if (
            record["run_s"] is None
            and number
            and int(number[1]) < len(workload)
            and len(workload[int(number[1])]) > 2
        ):
            record["run_s"] = int(workload[int(number[1])][2])


def _read_config(folder: Path) -> dict[str, list[str]]:
    """Return the lines of slurm.conf by their first key, lower case."""
    path = folder / CONFIG_FILE
    found: dict[str, list[str]] = defaultdict(list)
    if path.is_file():
        for line in path.read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition("#")[0].strip().partition("=")
            if value:
                found[key.strip().lower()].append(value.strip())
    return found


def _find_hosts(records: list[dict[str, Any]], config: dict[str, list[str]]) -> dict[str, int]:
    """Return the GPUs of each host: by the configuration, else by what ran there at once."""
    hosts: dict[str, int] = {}
    for line in config.get("nodename", []):
        fields = dict(_PAIR.findall(f"NodeName={line}"))
        gpus = count_gpus(parse_gpu_counts(fields.get("Gres", "")))
        hosts |= dict.fromkeys(expand_hosts(fields["NodeName"]), gpus)
    hosts = {name: gpus for name, gpus in hosts.items() if gpus}
    return hosts or _find_most_at_once(records)


def _find_most_at_once(records: list[dict[str, Any]]) -> dict[str, int]:
    changes: dict[str, Counter[int]] = defaultdict(Counter)
    for record in records:
        for node in record["nodes"]:
            changes[node][record["start_s"]] += record["gpus_per_host"]
            changes[node][record["start_s"] + record["run_s"]] -= record["gpus_per_host"]
    most = {}
    for node, at in changes.items():
        held = np.cumsum([at[moment] for moment in sorted(at)])
        most[node] = int(held.max(initial=0))
    # One kind of host is far likelier than one that was never full.
    return dict.fromkeys(most, max(most.values(), default=0))


def _build_jobs(records: list[dict[str, Any]], hosts: dict[str, int]) -> RecordedJobs:
    if not hosts:
        raise InvalidInput(
            "The history names no host with GPUs: neither slurm.conf nor the jobs' NodeList tell."
        )
    owners = sorted({record["user"] for record in records})

    def column(name: str) -> Any:
        return np.array([record[name] for record in records], np.int64)

    start = [
        UNKNOWN_MS if record["start_s"] is None else record["start_s"] * 1000 for record in records
    ]
    return RecordedJobs(
        ids=tuple(record["id"] for record in records),
        submit_ms=column("submit_s") * 1000,
        start_ms=np.array(start, np.int64),
        run_ms=column("run_s") * 1000,
        limit_ms=column("limit_s") * 1000,
        gpus_per_host=column("gpus_per_host"),
        hosts=column("hosts"),
        owner=np.array([owners.index(record["user"]) for record in records], np.int64),
        owners=tuple(owners),
        host_gpus=np.array([hosts[name] for name in sorted(hosts)], np.int64),
        priority=np.zeros(len(records)),
    )


def _find_policy(records: list[dict[str, Any]], config: dict[str, list[str]]) -> Policy:
    """Return the recorded policy: by the configuration, else by who started the jobs."""
    kind = (config.get("schedulertype") or [""])[-1]
    filled = any(record["scheduler"] == "Backfill" for record in records)
    backfill = "none" if kind.endswith("builtin") or (not kind and not filled) else "conservative"
    if "multifactor" not in (config.get("prioritytype") or [""])[-1]:
        return Policy(backfill=backfill)
    weights = {}
    for ours, theirs in (
        ("age", "priorityweightage"),
        ("size", "priorityweightjobsize"),
        ("fairshare", "priorityweightfairshare"),
    ):
        value = (config.get(theirs) or ["0"])[-1]
        weights[ours] = float(value) if value.isdigit() else 0.0
    small = (config.get("priorityfavorsmall") or ["no"])[-1].lower() in ("yes", "true", "1")
    return Policy(order="multifactor", backfill=backfill, weights=weights, favor_small=small)

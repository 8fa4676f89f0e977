"""Read a history for a policy replay: a folder of a Slurm site, a sacct listing, a public trace."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from marey.app.queue.histories.job_records import JobRecord, build_recorded_jobs
from marey.app.queue.histories.public_traces import (
    HELIOS_COLUMNS,
    PHILLY_COLUMNS,
    POD_COLUMNS,
    read_alibaba_pods,
    read_helios_log,
    read_philly_jobs,
    read_table,
    refuse_sums,
)
from marey.app.queue.histories.sacct_text import SACCT_FILE, read_sacct_text
from marey.app.queue.histories.scontrol_jobs import JOBS_FILE, read_scontrol_jobs
from marey.app.queue.histories.slurm_config import find_policy, guess_pace, read_slurm_config
from marey.model.errors import InvalidInput, NotFound, shown
from marey.queue.policy.policy import Policy, parse_policy
from marey.queue.policy.recorded_jobs import RecordedJobs

CONFIG_FILE = "slurm.conf"
KINDS = (
    f"a folder with {JOBS_FILE} (`scontrol -o show jobs`) or {SACCT_FILE} (`sacct --parsable2`), "
    "and slurm.conf beside it; Alibaba's node and pod lists; Helios' cluster_log.csv; Philly's jobs"
)


def read_history(path: Path) -> tuple[RecordedJobs, Policy]:
    """Return the jobs of a history and the policy they were scheduled by."""
    if not path.exists():
        raise NotFound(f"There is no {shown(str(path))}.")
    folder = path if path.is_dir() else path.parent
    if path.name == JOBS_FILE or (path.is_dir() and (path / JOBS_FILE).is_file()):
        records = read_scontrol_jobs(folder)
        backfilled = any(record.backfilled for record in records)
        return _join_config(records, folder, backfilled=backfilled)
    listing = path / SACCT_FILE if path.is_dir() else path
    if listing.is_file() and _is_sacct(listing):
        # A listing does not say who started a job; what Slurm does unless told otherwise counts.
        return _join_config(read_sacct_text(listing), folder, backfilled=True)
    return _read_trace(path), Policy(placement="most_allocated")


def _join_config(
    records: list[JobRecord], folder: Path, *, backfilled: bool
) -> tuple[RecordedJobs, Policy]:
    """Return the jobs and the policy, as slurm.conf tells it, or else as the jobs let one guess."""
    config = read_slurm_config(folder / CONFIG_FILE)
    policy = find_policy(config, backfilled=backfilled)
    if config.lines:
        return build_recorded_jobs(records, config), policy
    runs = [record.run_s for record in records if record.run_s is not None]
    policy = guess_pace(policy, float(np.median(runs)) if runs else 0.0)
    order = "planned backfill" if backfilled else "strict order"
    note = (
        f"There is no {CONFIG_FILE}: the jobs are taken to have been scheduled in {order}, "
        f"{f'every {policy.interval_s:g} s, ' if backfilled else ''}"
        "on the hosts that they name."
    )
    return build_recorded_jobs(records, config, [note]), policy


def read_policy(path: Path, base: Policy | None = None) -> Policy:
    """Return the policy of a JSON file or slurm.conf; what it leaves open stays as in ``base``."""
    if not path.is_file():
        raise NotFound(f"There is no policy file {shown(str(path))}.")
    if path.suffix == ".conf":
        return find_policy(read_slurm_config(path))
    try:
        document = json.loads(path.read_text("utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{shown(str(path))} is not JSON: {shown(str(error))}") from error
    return parse_policy(document, base)


def _is_sacct(path: Path) -> bool:
    with path.open("rb") as file:
        return b"JobID" in file.readline(4096)


def _read_trace(path: Path) -> RecordedJobs:
    """Return the jobs of a public trace, which is recognised by the columns of its tables."""
    names = ("*.csv", "*.csv.gz")
    files = sorted(f for name in names for f in path.glob(name)) if path.is_dir() else [path]
    pods = nodes = None
    for file in files:
        columns = list(read_table(file))
        if all(name in columns for name in POD_COLUMNS):
            pods = file
        elif all(name in columns for name in ("sn", "gpu", "model")):
            nodes = file
        elif all(name in columns for name in HELIOS_COLUMNS):
            return read_helios_log(file)
        elif all(name in columns for name in PHILLY_COLUMNS):
            return read_philly_jobs(file)
        elif "running_gpujob_num" in columns:
            raise refuse_sums(file, columns)
    if pods and nodes:
        return read_alibaba_pods(nodes, pods)
    raise NotFound(f"{shown(str(path))} holds no history that can be replayed. It can be: {KINDS}.")

"""Recorded jobs replayed (Philly on 800 GPUs): jobs per CPU second, and against a plain Python
loop.

The plain loop is asked for the same 20,000 jobs in strict order. Measured on 2 busy cores: 4 to 5
million jobs per CPU second against its 40,000, which is 99.8× to 123× by what else the machine
does. The loop is not made slower than a person would write it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from bench.report import Results
from marey.queue.policy.policy import Policy
from marey.queue.policy.policy_replay import replay_policy
from marey.queue.policy.recorded_jobs import RecordedJobs, shape_gangs

ROOT = Path(__file__).resolve().parents[1]
JOBS, HOSTS, GPUS_PER_HOST = 20_000, 100, 8
# A replay takes milliseconds: the mean of so many is told.
TIMES = 10
PLAIN_JOBS = JOBS


def read_philly(path: Path, many: int) -> RecordedJobs:
    """Return the first jobs of Philly by submission, on hosts of eight GPUs."""
    table = pacsv.read_csv(path)
    submit = pc.cast(pc.cast(table["timestamp"], "timestamp[ms]"), "int64").to_numpy()
    order = np.argsort(submit, kind="stable")[:many]
    gpus = np.minimum(table["num_gpus"].to_numpy()[order].astype(np.int64), HOSTS * GPUS_PER_HOST)
    run = np.maximum(1.0, table["duration"].to_numpy()[order]) * 1000.0
    need, count = shape_gangs(np.maximum(gpus, 1), GPUS_PER_HOST)
    return RecordedJobs(
        ids=tuple(map(str, range(len(order)))),
        submit_ms=submit[order] - submit[order[0]],
        start_ms=np.full(len(order), -1, np.int64),
        run_ms=run.astype(np.int64),
        # Philly has no limits: twice the run time stands for one.
        limit_ms=(run * 2).astype(np.int64),
        gpus_per_host=need,
        hosts=count,
        owner=np.zeros(len(order), np.int64),
        owners=("all",),
        host_gpus=np.full(HOSTS, GPUS_PER_HOST, np.int64),
        priority=np.zeros(len(order)),
    )


def replay_plainly(jobs: RecordedJobs) -> list[float]:
    """Return the waits in strict order by a straightforward event loop over Python lists."""
    free = [GPUS_PER_HOST] * HOSTS
    waiting: list[int] = []
    running: list[tuple[float, int, list[int]]] = []
    start = [-1.0] * len(jobs)
    submit, run = jobs.submit_ms.tolist(), jobs.run_ms.tolist()
    need, count = jobs.gpus_per_host.tolist(), jobs.hosts.tolist()
    next_job = 0
    while next_job < len(submit) or running:
        coming = submit[next_job] if next_job < len(submit) else float("inf")
        ending = min((end for end, _, _ in running), default=float("inf"))
        now = min(coming, ending)
        for entry in [entry for entry in running if entry[0] <= now]:
            running.remove(entry)
            for host in entry[2]:
                free[host] += need[entry[1]]
        while next_job < len(submit) and submit[next_job] <= now:
            waiting.append(next_job)
            next_job += 1
        while waiting:
            job = waiting[0]
            able = sorted((h for h in range(HOSTS) if free[h] >= need[job]), key=lambda h: free[h])
            if len(able) < count[job]:
                break
            chosen = able[: count[job]]
            for host in chosen:
                free[host] -= need[job]
            running.append((now + run[job], job, chosen))
            start[job] = now
            waiting.pop(0)
    return [(s - b) / 1000.0 for s, b in zip(start, submit, strict=True)]


def measure_cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> int:
    """Print jobs per CPU second for each way to pass, and the ratio to the plain loop."""
    results = Results()
    data = Path(os.environ.get("MAREY_DATA", ROOT.parent / "shared" / "data"))
    jobs = read_philly(data / "jobs" / "philly" / "philly.csv.gz", JOBS)
    size = f"{JOBS:,} Philly jobs, {HOSTS} hosts × {GPUS_PER_HOST} GPUs"
    rates = {}
    for backfill in ("none", "easy", "conservative"):
        policy = Policy(backfill=backfill, start_lag_s=(0.0, 0.0), depth=100)
        replay_policy(jobs, policy, replays=1)
        work = partial(replay_policy, jobs, policy, replays=1)
        rates[backfill] = JOBS / (sum(measure_cpu(work) for _ in range(TIMES)) / TIMES)
        results.against(
            f"{backfill}: jobs per CPU second",
            ratio=rates[backfill] / 10_000,
            target=1.0,
            rival="10,000 jobs per CPU second",
            size=size,
            at_10x="linear in events while the line is short",
        )
    few = read_philly(data / "jobs" / "philly" / "philly.csv.gz", PLAIN_JOBS)
    plain = PLAIN_JOBS / measure_cpu(lambda: replay_plainly(few))
    results.against(
        "against a straightforward Python event loop (strict order)",
        ratio=rates["none"] / plain,
        target=100.0,
        rival=f"plain loop at {plain:,.0f} jobs per CPU second",
        size=f"{size}; plain: {PLAIN_JOBS:,} jobs",
        at_10x="the plain loop grows with what runs and waits",
    )
    return results.missed

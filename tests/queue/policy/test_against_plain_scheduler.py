"""The replay's kernels beside a scheduler in plain Python, on drawn histories of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marey.queue.policy.policy import parse_policy
from marey.queue.policy.policy_replay import replay_policy
from marey.queue.policy.recorded_jobs import Hosts, RecordedJobs
from tests.queue.policy.plain_scheduler import Kept, PlainHost, PlainJob, PlainScheduler

HOSTS, GPUS, CPUS, MEMORY = 5, 4, 16, 64
FEATURES = ("plain", "cpus", "shares", "partitions", "reservations", "all")


def draw_jobs(seed: int, features: str) -> list[PlainJob]:
    """Return forty requests that compete for five hosts."""
    draws = np.random.default_rng([seed, len(features)])
    every = features == "all"
    jobs = []
    for submit in np.sort(draws.integers(0, 400, 40)).tolist():
        run = int(draws.integers(5, 120))
        gpus, hosts = [(1, 1), (2, 1), (4, 1), (4, 2)][draws.choice(4, p=[0.5, 0.2, 0.15, 0.15])]
        job = PlainJob(submit, run, int(run * draws.uniform(1.0, 3.0)), gpus, hosts)
        job.owner = int(draws.integers(0, 3))
        if features == "cpus" or every:
            job.cpus, job.memory = int(draws.integers(1, 9)), int(draws.integers(1, 40))
        if (features == "shares" or every) and gpus == 1:
            job.share = int(draws.choice([250, 500, 1000]))
        if features == "partitions" or every:
            job.partition = int(draws.integers(0, 2)) if hosts == 1 else 0
        jobs.append(job)
    return jobs


def build_history(jobs: list[PlainJob]) -> RecordedJobs:
    """Return the same requests as columns; the second partition has only the first three hosts."""

    def column(name: str) -> Any:
        return np.array([getattr(job, name) for job in jobs], np.int64)

    return RecordedJobs(
        ids=tuple(map(str, range(len(jobs)))),
        submit_ms=column("submit") * 1000,
        start_ms=np.full(len(jobs), -1, np.int64),
        run_ms=column("run") * 1000,
        limit_ms=column("limit") * 1000,
        gpus_per_host=column("gpus"),
        hosts=column("hosts"),
        owner=column("owner"),
        owners=("a", "b", "c"),
        host_gpus=np.full(HOSTS, GPUS, np.int64),
        priority=np.zeros(len(jobs)),
        cpus_per_host=column("cpus"),
        memory_mb_per_host=column("memory"),
        gpu_share=column("share"),
        partition=tuple("pq"[job.partition] for job in jobs),
        site=Hosts(
            names=tuple(f"n{i}" for i in range(HOSTS)),
            cpus=np.full(HOSTS, CPUS, np.int64),
            memory_mb=np.full(HOSTS, MEMORY, np.int64),
            partitions=tuple(("p", "q") if i < 3 else ("p",) for i in range(HOSTS)),
        ),
    )


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_waits_are_those_of_the_plain_scheduler(backfill: str, features: str) -> None:
    reserves = features in ("reservations", "all")
    settings: dict[str, Any] = {"backfill": backfill, "placement": "node_order", "start_lag_s": 0}
    if reserves:
        settings["reservations"] = [
            {"begin_s": 100, "end_s": 220, "hosts": ["n0", "n1"], "user": "b"},
            {"begin_s": 150, "end_s": 180, "hosts": ["n4"]},
        ]
    for seed in range(6):
        jobs = draw_jobs(seed, features)
        first = jobs[0].submit
        kept = [
            Kept(first + 100, first + 220, [0, 1], owner=1),
            Kept(first + 150, first + 180, [4]),
        ]
        hosts = [
            PlainHost([1000] * GPUS, CPUS, MEMORY, (0, 1) if i < 3 else (0,)) for i in range(HOSTS)
        ]
        plain = PlainScheduler(jobs, hosts, backfill, kept if reserves else []).replay()
        replayed = replay_policy(build_history(jobs), parse_policy(settings), replays=1)
        told = [None if np.isnan(wait) else round(wait) for wait in replayed.wait_s.tolist()]
        assert told == plain, (seed, features)

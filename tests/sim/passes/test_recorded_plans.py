"""Planned starts beside those that a real Slurm printed every ten seconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marey.app.queue.histories.job_records import JobRecord, parse_time
from marey.app.queue.histories.scontrol_jobs import read_scontrol_jobs
from marey.sim.passes.host_room import NODE_ORDER, Requests, build_mask, build_room, take_room
from marey.sim.passes.planned_starts import (
    CONSERVATIVE,
    NEVER,
    Rules,
    Site,
    add_running,
    build_plans,
    build_running,
    keep_hosts,
    plan_start,
)

HOSTS, GPUS, WINDOW_S = 4, 4, 3600
RULES = Rules(CONSERVATIVE, NODE_ORDER, 1000, WINDOW_S, 1, 0, 0, 0, 0)


def build_requests(records: list[JobRecord]) -> Requests:
    """Return the jobs as columns of the kernels."""
    zero = np.zeros(len(records), np.int64)
    hosts = np.array([record.hosts for record in records], np.int64)
    return Requests(
        gpus=np.array([record.gpus_per_host for record in records], np.int64),
        share=zero + 1000,
        cpus=zero,
        memory=zero,
        hosts=hosts,
        pool=zero,
        limit=np.array([record.limit_s for record in records], np.int64),
        owner=zero,
        project=zero,
        partition=zero,
        qos=zero - 1,
        tier=zero,
        first=np.cumsum(hosts) - hosts,
    )


def build_site(jobs: Requests) -> Site:
    """Return four empty hosts."""
    gpus, much = np.full(HOSTS, GPUS), np.full(HOSTS, 1 << 40)
    pool = build_mask(np.ones(HOSTS, np.bool_))[None, :]
    scratch = [np.zeros(1, np.uint64) for _ in range(3)]
    held = int(jobs.hosts.sum())
    return Site(
        build_room(gpus, much, much, shared=False),
        build_room(gpus, much, much, shared=False),
        build_running(len(jobs.gpus)),
        build_plans(1000, 1),
        np.zeros(held, np.int64),
        np.zeros(held, np.uint64),
        pool,
        np.array([HOSTS]),
        pool,
        np.zeros(GPUS + 1),
        *scratch,
    )


def plan_line(records: list[JobRecord], jobs: Requests, now_s: int) -> dict[str, int]:
    """Return the planned start of everybody who waited at a moment, in order."""
    site = build_site(jobs)
    for i, record in enumerate(records):
        if record.start_s is not None and record.start_s <= now_s < record.start_s + record.run_s:
            rows = slice(int(jobs.first[i]), int(jobs.first[i] + jobs.hosts[i]))
            # easy1 is the first host.
            site.held[rows] = [int(node[4:]) - 1 for node in record.nodes]
            take_room(site.room, jobs, i, site.held[rows], site.taken[rows])
            add_running(site.running, i, record.start_s + record.limit_s)
    planned = {}
    for i, record in enumerate(records):
        if record.start_s is None or not record.submit_s <= now_s < record.start_s:
            continue
        rows = slice(int(jobs.first[i]), int(jobs.first[i] + jobs.hosts[i]))
        at = plan_start(site, jobs, RULES, i, now_s, site.held[rows])
        if now_s < at < NEVER:
            keep_hosts(site.plans, at, at + record.limit_s, site.held[rows])
        planned[record.id] = int(at)
    return planned


@pytest.mark.data
def test_every_start_that_slurm_planned_is_met(data_dir: Path) -> None:
    """Slurm recomputes a moment before it prints: any of the last three seconds may be meant."""
    folder = data_dir / "jobs" / "slurm-policies" / "easy"
    records = sorted(read_scontrol_jobs(folder), key=lambda record: record.order)
    jobs = build_requests(records)
    polls = json.loads((folder / "squeue-pending-every-10s.json").read_text())
    met = told = 0
    for moment, text in polls:
        rows = [row.split("|") for row in text.splitlines()]
        wanted = {row[0]: parse_time(row[2]) for row in rows if row[2] != "N/A"}
        told += len(wanted)
        best = 0
        for lag in range(3):
            planned = plan_line(records, jobs, int(moment) - lag)
            near = [abs(planned.get(job, 0) - (at or 0)) <= 2 for job, at in wanted.items()]
            best = max(best, sum(near))
        met += best
    assert (met, told) == (237, 237)

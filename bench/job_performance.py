"""Run times of applications never seen, in fresh simulated worlds of 60 days with a known cause.

Other seeds than the tests': MAREY_BENCH_FIRST_SEED=2000 chooses worlds that nobody has looked at.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import numpy as np

from bench.report import Results
from marey.app.queue.performance_queries import AskPerformance
from marey.queue.performance.prediction import HOST_SLOWNESS, fit_performance
from marey.queue.performance.runs import RunTable, measure_against_own
from marey.queue.performance.slow_hosts import DAY_S, find_slow_hosts
from marey.sim.scheduling.control_jobs import ControlPlan, ControlWorld, simulate_control_jobs
from marey.store.embedded.embedded_store import open_store
from tests.app.queue.stored_world import open_world

FIRST_SEED, SEEDS = int(os.environ.get("MAREY_BENCH_FIRST_SEED", "1000")), 20
TOP = {"hosts": HOST_SLOWNESS, "fabric": "fabric_load", "file_system": "file_system_load"}
NO_CAUSE = "none"
STORED, STORED_SEEDS = ControlPlan(), 7


class Judged(NamedTuple):
    """One world: the first feature, the error against the own mean's, what was claimed."""

    top: str
    error_share: float
    gain_claimed: bool
    hosts_right: bool


def main() -> int:
    """Print how often the cause is found, the error, and what is claimed where there is none."""
    results = Results()
    began = time.process_time()
    for cause, feature in TOP.items():
        judge_cause(cause, feature, results)
    judge_nothing(results)
    judge_stored(results)
    spent = time.process_time() - began
    results.line(
        "all worlds",
        f"{spent:.0f} CPU s",
        size=f"{SEEDS * 4} worlds of 60 days with 1,440 runs on 32 hosts, and stored ones",
        at_10x="linear in the worlds",
    )
    return results.missed


def judge_cause(cause: str, feature: str, results: Results) -> None:
    """Print what was found in the worlds with one cause."""
    worlds = [judge_world(cause, seed) for seed in list_seeds()]
    size = f"{SEEDS} worlds, seeds from {FIRST_SEED}; each application left out in turn"
    results.against(
        f"{cause}: first feature is {feature}",
        ratio=float(np.mean([world.top == feature for world in worlds])),
        target=0.9,
        rival="all worlds",
        size=size,
        at_10x="the same share",
    )
    shares = [world.error_share for world in worlds]
    results.against(
        f"{cause}: largest error (median {np.median(shares):.2f})",
        ratio=max(shares),
        target=0.5,
        higher_is_better=False,
        rival="own history's mean",
        size=size,
        at_10x="smaller with more runs",
    )
    results.against(
        f"{cause}: exactly the slow hosts are found",
        ratio=float(np.mean([world.hosts_right for world in worlds])),
        target=0.9,
        rival="all worlds",
        size=size,
        at_10x="the same share",
    )


def judge_nothing(results: Results) -> None:
    """Print in how many worlds without a cause a gain was claimed or a host called slow."""
    worlds = [judge_world(NO_CAUSE, seed) for seed in list_seeds()]
    wrong = [world.gain_claimed or not world.hosts_right for world in worlds]
    results.against(
        "no cause: a gain claimed or a host called slow",
        ratio=float(np.mean(wrong)),
        target=0.0,
        higher_is_better=False,
        rival="all worlds",
        size=f"{SEEDS} worlds, seeds from {FIRST_SEED}",
        at_10x="the same share",
    )


def judge_stored(results: Results) -> None:
    """Print the same of worlds that went through a store: runs, allocations, samples."""
    right, claimed, shares = [], [], []
    for seed in range(FIRST_SEED, FIRST_SEED + STORED_SEEDS):
        for cause in (*TOP, NO_CAUSE):
            world = simulate_control_jobs(cause, seed, STORED)
            with open_store(None) as store:
                reported = AskPerformance().ask(open_world(store, world, STORED.days))
            if cause == NO_CAUSE:
                claimed.append(reported.gain_claimed or bool(reported.slow_hosts))
            else:
                right.append(reported.features[0].name == TOP[cause])
                shares.append((reported.error or 0.0) / (reported.own_error or 1.0))
    size = (
        f"{len(right)} worlds with a cause, {len(claimed)} without, of {STORED.days} days and "
        f"{STORED.hosts} hosts, seeds from {FIRST_SEED}"
    )
    results.against(
        "from a store: the cause is the first feature",
        ratio=float(np.mean(right)),
        target=0.9,
        rival="all worlds",
        size=size,
        at_10x="the same share",
    )
    results.against(
        f"from a store: largest error (median {np.median(shares):.2f})",
        ratio=max(shares),
        target=0.5,
        higher_is_better=False,
        rival="own history's mean",
        size=size,
        at_10x="smaller with more runs",
    )
    results.against(
        "from a store, no cause: a gain claimed or a host called slow",
        ratio=float(np.mean(claimed)),
        target=0.0,
        higher_is_better=False,
        rival="all worlds",
        size=size,
        at_10x="the same share",
    )


def list_seeds() -> range:
    """Return the seeds of the worlds."""
    return range(FIRST_SEED, FIRST_SEED + SEEDS)


def judge_world(cause: str, seed: int) -> Judged:
    """Return what a model of one world says, against what was injected."""
    world = simulate_control_jobs(cause, seed)
    runs = make_table(world)
    model = fit_performance(runs)
    found = find_slow_hosts(runs, measure_against_own(runs), 60 * DAY_S)
    return Judged(
        top=next(iter(model.importance)),
        error_share=model.error / model.own_error,
        gain_claimed=model.gain_claimed,
        hosts_right=set(found) == set(world.slow_hosts),
    )


def make_table(world: ControlWorld) -> RunTable:
    """Return the runs of a world, without its truth."""
    return RunTable(
        application=world.application,
        start_s=world.start_s,
        run_s=world.run_s,
        gpus=world.gpus,
        hosts=world.hosts,
        first=world.first,
        state={"fabric_load": world.fabric_load, "file_system_load": world.file_system_load},
    )

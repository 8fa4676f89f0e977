"""What is submitted, and when: sizes, durations and rhythm shaped like the public traces.

Fitted figures (from the traces, see docs/simulator.md): one-GPU work of Philly has a median of
1,117 s and a log-sigma of 1.97, taken over as they are; work of 2-4 and of 8 GPUs is bimodal
there (medians 367 s and 23,683 s, log-sigmas 3.8 and 2.8), taken between its modes with a sigma
that a time limit of days can hold. Weekdays are Philly's; the day's wave is Helios' and Philly's
mean amplitude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.inventory import resource_type
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.model.workloads import WorkloadState
from marey.sim.config import PartitionPlan
from marey.sim.hardware import PartitionHosts
from marey.sim.random_draws import RandomDraws, generator
from marey.sim.scheduling.jobs import Job, Kind
from marey.sim.scheduling.people import LARGE, NOTEBOOK, SERVING, SMALL, Recipe, User

# Monday to Sunday, submissions per day against the mean (Philly).
WEEK = (0.86, 1.07, 1.14, 1.29, 1.44, 0.61, 0.59)
DAY_AMPLITUDE, BUSIEST_HOUR = 0.35, 15.0

SIZES_SMALL = {1: 0.62, 2: 0.12, 4: 0.12, 8: 0.14}
SIZES_LARGE = {16: 0.36, 32: 0.27, 64: 0.21, 128: 0.11, 256: 0.04, 512: 0.01}

# Median in minutes and log-sigma by size; the last entry is for everything larger.
DURATIONS = {1: (18.6, 1.97), 2: (40.0, 2.0), 4: (50.0, 2.0), 8: (75.0, 1.5), 16: (210.0, 1.5)}
NOTEBOOK_MINUTES, SERVE_MINUTES = (90.0, 0.8), (480.0, 1.0)

LIMIT_HOURS = np.array([1, 2, 4, 8, 12, 24, 48, 72, 96, 120, 168], np.float64)
OUTCOMES = (WorkloadState.COMPLETED, WorkloadState.FAILED, WorkloadState.CANCELLED)
OUTCOME_SHARES = (0.73, 0.15, 0.12)
QOS = ("normal", "high", "low")
SHORTEST_MS = 20_000


def rhythm(time_ms: int) -> float:
    """Return how busy people are at this moment against the mean."""
    hours = time_ms / HOUR_MS
    # 1970-01-01 was a Thursday.
    weekday = int(hours // 24 + 3) % 7
    wave = 1.0 + DAY_AMPLITUDE * math.cos(2 * math.pi * (hours % 24 - BUSIEST_HOUR) / 24)
    return WEEK[weekday] * wave


@dataclass(frozen=True, slots=True)
class Draws:
    """Submissions before they have names: one array per property."""

    gpus: NDArray[np.int64]
    kind: NDArray[np.int64]
    duration_ms: NDArray[np.int64]
    limit_ms: NDArray[np.int64]
    outcome: NDArray[np.int64]
    user: NDArray[np.int64]
    qos: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> Draws:
        """Return only these rows."""
        return Draws(*(getattr(self, name)[rows] for name in self.__slots__))


_KINDS = (Kind.TRAIN, Kind.NOTEBOOK, Kind.SERVE)


class Demand:
    """The stream of submissions of one partition."""

    def __init__(self, part: PartitionHosts, number: int, users: tuple[User, ...], seed: int):
        self.part, self.number, self.users, self.seed = part, number, users, seed
        self._sizes, self._size_shares = _sizes_for(part.plan, part.gpu_count)
        weights = np.array([user.weight for user in users])
        self._user_shares = weights / weights.sum()
        # A trial draw gives the mean work of a submission, so that demand can meet capacity.
        trial = self.draw(generator(seed, 41, number), 20_000)
        run = np.minimum(trial.duration_ms, trial.limit_ms)
        self.mean_gpu_ms = float((trial.gpus * run).mean())

    def draw(self, chance: np.random.Generator, count: int) -> Draws:
        """Draw this many submissions."""
        large = self.part.plan.min_gpus > 8
        gpus = chance.choice(self._sizes, count, p=self._size_shares)
        kind = np.zeros(count, np.int64) if large else chance.choice(3, count, p=(0.8, 0.13, 0.07))
        gpus = np.where(kind == 1, np.minimum(gpus, 2), gpus)
        gpus = np.where(kind == 2, np.minimum(gpus, 4), gpus)
        median, sigma = _duration_figures(gpus, kind)
        minutes = median * np.exp(sigma * chance.standard_normal(count))
        longest = self.part.plan.time_limit_s * 1000
        wanted = np.clip(minutes * MINUTE_MS, SHORTEST_MS, longest).astype(np.int64)
        outcome = chance.choice(3, count, p=OUTCOME_SHARES)
        # Failures come early (a typo, out of memory), cancellations at any time.
        early = np.minimum(wanted, (4.0 * MINUTE_MS * np.exp(1.5 * chance.standard_normal(count))))
        share = chance.random(count)
        run = np.where(outcome == 1, early, np.where(outcome == 2, wanted * share, wanted))
        duration = np.maximum(run, SHORTEST_MS).astype(np.int64)
        # People ask for more than they need; three in a hundred for too little.
        factor = np.where(chance.random(count) < 0.03, 0.6, 1.1 + 3.0 * chance.random(count) ** 2)
        hours = wanted * factor / HOUR_MS
        step = np.minimum(np.searchsorted(LIMIT_HOURS, hours), len(LIMIT_HOURS) - 1)
        limit = np.minimum(LIMIT_HOURS[step] * HOUR_MS, longest).astype(np.int64)
        user = chance.choice(len(self.users), count, p=self._user_shares)
        qos = chance.choice(3, count, p=(0.84, 0.08, 0.08))
        return Draws(
            gpus=gpus,
            kind=kind,
            duration_ms=duration,
            limit_ms=limit,
            outcome=outcome,
            user=user,
            qos=qos,
        )

    def arrivals(
        self, hour_ms: int, load: float, waiting_share: float
    ) -> tuple[Draws, NDArray[np.int64]]:
        """Return submissions of the hour that begins here; fewer when the queue is already long."""
        elastic = min(2.0, max(0.1, 1.0 + 1.2 * (0.8 - waiting_share)))
        capacity = self.part.gpu_count * float(HOUR_MS)
        mean = load * capacity / self.mean_gpu_ms * rhythm(hour_ms) * elastic
        chance = generator(self.seed, 42, self.number, hour_ms)
        count = int(chance.poisson(mean))
        times = np.sort(chance.integers(hour_ms, hour_ms + HOUR_MS, count))
        return self.draw(chance, count), times

    def already_there(self, load: float) -> Draws:
        """Work that fills the partition from the first moment, caught in the middle of its life."""
        chance = generator(self.seed, 43, self.number)
        pool = self.draw(chance, 6_000)
        run = np.minimum(pool.duration_ms, pool.limit_ms).astype(np.float64)
        # A long workload is more likely to be met running: length-biased, with residual life.
        rows = chance.choice(len(run), len(run), p=run / run.sum())
        picked = pool.take(rows)
        enough = np.searchsorted(
            np.cumsum(picked.gpus), self.part.gpu_count * min(load, 1.0) * 1.35
        )
        first = picked.take(np.arange(min(int(enough), len(rows))))
        left = np.maximum(first.duration_ms * chance.random(len(first.gpus)), SHORTEST_MS)
        return Draws(
            gpus=first.gpus,
            kind=first.kind,
            duration_ms=left.astype(np.int64),
            limit_ms=first.limit_ms,
            outcome=first.outcome,
            user=first.user,
            qos=first.qos,
        )

    def job(self, draws: Draws, row: int, seq: int, submit_ms: int) -> Job:
        """Return one submission with its names."""
        gpus = int(draws.gpus[row])
        kind = _KINDS[int(draws.kind[row])]
        user = int(draws.user[row])
        job = new_job(
            seq=seq,
            part=self.part,
            number=self.number,
            user_number=user,
            user=self.users[user],
            kind=kind,
            gpus=gpus,
            submit_ms=submit_ms,
            limit_ms=int(draws.limit_ms[row]),
            duration_ms=int(draws.duration_ms[row]),
            outcome=OUTCOMES[int(draws.outcome[row])],
            seed=self.seed,
        )
        job.qos = "interactive" if kind is Kind.NOTEBOOK else QOS[int(draws.qos[row])]
        return job


def _sizes_for(
    plan: PartitionPlan, gpu_count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    table = SIZES_LARGE if plan.min_gpus > 8 else SIZES_SMALL
    most = min(plan.max_gpus or gpu_count, gpu_count if plan.min_gpus <= 8 else gpu_count // 2)
    if plan.min_gpus <= 8:
        most = min(most, plan.gpus_per_host)
    kept = {size: share for size, share in table.items() if size <= most} or {
        max(1, min(plan.gpus_per_host, gpu_count)): 1.0
    }
    shares = np.array(list(kept.values()))
    return np.array(list(kept), np.int64), shares / shares.sum()


def _duration_figures(
    gpus: NDArray[np.int64], kind: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    steps = np.array(list(DURATIONS))
    figures = np.array(list(DURATIONS.values()))[np.searchsorted(steps[:-1], gpus)]
    median, sigma = figures[:, 0].copy(), figures[:, 1].copy()
    for code, (minutes, spread) in ((1, NOTEBOOK_MINUTES), (2, SERVE_MINUTES)):
        median[kind == code], sigma[kind == code] = minutes, spread
    return median, sigma


def new_job(
    *,
    seq: int,
    part: PartitionHosts,
    number: int,
    user_number: int,
    user: User,
    kind: Kind,
    gpus: int,
    submit_ms: int,
    limit_ms: int,
    duration_ms: int,
    outcome: WorkloadState,
    seed: int,
    strategy: str | None = None,
) -> Job:
    """Return a workload with names, a recipe and a parallel strategy that suit its size."""
    dice = RandomDraws(seed, 51, seq)
    recipe = _recipe(dice, kind, gpus)
    if strategy is None:
        strategy = _strategy(dice, kind, gpus)
    tensor, pipeline = _degrees(dice, strategy, gpus, part.plan.gpus_per_host)
    lr = recipe.lr * dice.pick((0.3, 0.5, 1.0, 1.0, 2.0))
    run = dice.integer(40) + 1
    experiment = f"{recipe.model}-{recipe.dataset}" if kind is Kind.TRAIN else recipe.model
    name = f"{recipe.model}-{strategy}-r{run}" if kind is Kind.TRAIN else f"{recipe.model}-{run}"
    return Job(
        seq=seq,
        partition=number,
        partition_name=part.plan.name,
        gpu_model=part.model.name,
        user_number=user_number,
        user=user,
        kind=kind,
        recipe=recipe,
        name=name,
        experiment=f"{user.project}/{experiment}",
        qos="normal",
        gpus=gpus,
        per_host=min(gpus, part.plan.gpus_per_host),
        submit_ms=submit_ms,
        eligible_ms=submit_ms,
        limit_ms=limit_ms,
        duration_ms=duration_ms,
        outcome=outcome,
        attributes=_attributes(
            dice,
            kind=kind,
            recipe=recipe,
            strategy=strategy,
            gpus=gpus,
            tensor=tensor,
            pipeline=pipeline,
            lr=lr,
        ),
        resource_type=resource_type(part.model.name, min(gpus, part.plan.gpus_per_host)),
        strategy=strategy,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
    )


def _recipe(dice: RandomDraws, kind: Kind, gpus: int) -> Recipe:
    if kind is Kind.NOTEBOOK:
        return NOTEBOOK
    if kind is Kind.SERVE:
        return dice.pick(SERVING)
    return dice.pick(LARGE if gpus > 8 else SMALL)


def _strategy(dice: RandomDraws, kind: Kind, gpus: int) -> str:
    if kind is not Kind.TRAIN or gpus == 1:
        return "single" if gpus == 1 else "tp" if kind is Kind.SERVE else "ddp"
    if gpus <= 8:
        return dice.pick(("ddp", "ddp", "fsdp"))
    return dice.pick(("fsdp", "tp-dp", "tp-pp-dp", "tp-pp-dp", "ddp"))


def _degrees(dice: RandomDraws, strategy: str, gpus: int, host_size: int) -> tuple[int, int]:
    """Return tensor- and pipeline-parallel degrees; data parallel is what is left."""
    words = strategy.split("-")
    tensor = min(gpus, host_size) if "tp" in words else 1
    pipeline = 1
    if "pp" in words:
        room = max(1, gpus // tensor)
        pipeline = dice.pick([p for p in (2, 4, 8) if p <= room] or [1])
    return tensor, pipeline


def _attributes(
    dice: RandomDraws,
    *,
    kind: Kind,
    recipe: Recipe,
    strategy: str,
    gpus: int,
    tensor: int,
    pipeline: int,
    lr: float,
) -> dict[str, str]:
    if kind is not Kind.TRAIN:
        return {"model": recipe.model, "kind": kind.value}
    return {
        "kind": kind.value,
        "model": recipe.model,
        "dataset": recipe.dataset,
        "strategy": strategy,
        "lr": f"{lr:g}",
        "batch_size": str(recipe.batch * max(1, gpus // (tensor * pipeline) // 4)),
        "precision": recipe.precision,
        "optimizer": dice.pick(("adamw", "adamw", "lamb", "sgd")),
        "seed": str(dice.integer(10_000)),
        "tensor_parallel": str(tensor),
        "pipeline_parallel": str(pipeline),
        "data_parallel": str(max(1, gpus // (tensor * pipeline))),
        "framework": dice.pick(("pytorch 2.13", "pytorch 2.13", "jax 0.8")),
    }

"""The waiting line as Marey answers it, beside what ``squeue`` and ``sprio`` print just then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.slurm_rig import Rig
from tests.real.slurm_watch import Watch, same_reason, watching

# How often the controller may have moved between the looks before and after an answer.
LOOKS = 8
# Slurm's letters for the weighted factors, and Marey's names for them.
FACTORS = {"age": "%A", "fairshare": "%F", "job_size": "%J", "partition": "%P", "qos": "%Q"}


@dataclass(frozen=True)
class PrintedLine:
    """Jobs in the scheduler's order with priority and reason, and their factors."""

    jobs: tuple[tuple[str, int, str], ...]
    factors: dict[str, dict[str, float]]


def print_line(rig: Rig) -> PrintedLine:
    """Everybody who waits as Slurm's own tools print it; priority first, then the lower id."""
    rows = rig.call(
        "squeue", "--all", "--array", "--noheader", "--states=PENDING", "--sort=-p,i",
        "--format=%i|%Q|%r",
    ).splitlines()  # fmt: skip
    jobs = tuple((job, int(priority), why) for job, priority, why in (r.split("|") for r in rows))
    return PrintedLine(jobs, print_factors(rig))


def print_factors(rig: Rig) -> dict[str, dict[str, float]]:
    """The weighted factors of each waiting job that has a priority, those of 0 left out."""
    form = "|".join(("%i", *FACTORS.values()))
    found = {}
    for row in rig.call("sprio", "--noheader", f"--format={form}").splitlines():
        job, *values = (part.strip() for part in row.split("|"))
        told = {name: float(value) for name, value in zip(FACTORS, values, strict=True)}
        found[job] = {name: value for name, value in told.items() if value}
    return found


def answer_line(watch: Watch) -> list[dict[str, Any]]:
    """The line as the API tells it."""
    reply = watch.client.get("/api/v1/queue")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["rows"])


def answer_why(watch: Watch, job: int | str) -> dict[str, Any]:
    """Why one job waits, as the API tells it."""
    reply = watch.client.get(f"/api/v1/queue/{job}")
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def find_differences(watch: Watch) -> list[object] | None:
    """What differs between Marey and Slurm after a tick; None where Slurm moved meanwhile."""
    before = print_line(watch.rig)
    watch.answered_tick()
    rows, known = answer_line(watch), watch.workloads()
    whys = {row["workload"]: answer_why(watch, row["workload"]) for row in rows}
    if print_line(watch.rig) != before:
        return None
    shown = [(row["workload"], int(row["priority"])) for row in rows]
    printed = [(job, priority) for job, priority, _ in before.jobs]
    if shown != printed:
        return [(shown, printed)]
    differ: list[object] = []
    for place, (job, _, reason) in enumerate(before.jobs, start=1):
        row, why = rows[place - 1], whys[job]
        # sprio prints an array once, under the id that its tasks begin with.
        expected = (place, place, before.factors.get(job.split("_")[0], {}))
        factors = {name: value for name, value in why["factors"].items() if name in FACTORS}
        told = (row["position"], why["position"], factors)
        # squeue prints the controller's sentence in place of some reasons.
        reasons = row["reason"] == why["reason"] and same_reason({**known[job], **row}, reason)
        if told != expected or not reasons:
            differ.append((job, told, expected, row["reason"], reason))
    return differ


@contextlib.contextmanager
def watching_line(rig: Rig, folder: Path) -> Iterator[tuple[Watch, PrintedLine]]:
    """Look until Slurm stood still for a look and Marey said the same; else say what differs.

    Each look is a new service: one that runs asks for the factors once a minute only.
    """
    looks: list[object] = []
    for look in range(LOOKS):
        with watching(rig, folder / str(look)) as watch:
            differ = find_differences(watch)
            if differ == []:
                yield watch, print_line(rig)
                return
        looks.append("moved" if differ is None else differ)
    raise AssertionError(looks)

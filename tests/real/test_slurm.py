"""A real Slurm with sixteen nodes of eight GPUs: what Marey shows is what its own tools print.

``make soak`` runs the random part for ten minutes (MAREY_SOAK_S); as a test it takes two, beside
a minute of the other tests.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marey.app.history.backfill import HistoryFilling
from marey.app.settings.source_settings import SlurmSettings
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS, parse_time
from marey.sources.slurm.commands import run_tool
from marey.sources.slurm.history import read_history
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from tests.conftest import IN_CI
from tests.real.slurm_activity import Activity
from tests.real.slurm_line import answer_why, watching_line
from tests.real.slurm_rig import (
    PEOPLE,
    PROGRAMS,
    REST_USER,
    Rig,
    RigError,
    obstacle,
    running_slurm,
    wait_until,
)
from tests.real.slurm_watch import Compared, Watch, compare, indices_printed, watching

pytestmark = [pytest.mark.real, pytest.mark.timeout(1_200)]

# Of fourteen kinds of acts, so many at least.
KINDS = 10
SOAK_S = float(os.environ.get("MAREY_SOAK_S", "120"))


@pytest.fixture(scope="module")
def rig(need_program: Callable[..., str]) -> Iterator[Rig]:
    for name in PROGRAMS:
        need_program(name)
    why = obstacle()
    if why and IN_CI:
        pytest.fail(why)
    if why:
        pytest.skip(why)
    with running_slurm() as made:
        made.start_rest()
        yield made


@pytest.fixture(autouse=True)
def tools_find_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marey's own calls find this cluster; its zone is one with summer time, on purpose."""
    monkeypatch.setenv("SLURM_CONF", rig.environment["SLURM_CONF"])
    monkeypatch.setenv("TZ", "America/New_York")


def submit_one_for_each_reason(rig: Rig) -> dict[str, int]:
    """A full cluster, and a job that waits for each reason there is to reach."""
    games, man, mail = PEOPLE
    one = "--gres=gpu:1"
    rig.call(
        "scontrol", "create", "reservation", "reservationname=later", "starttime=now+60minutes",
        "duration=60", f"nodes={rig.names[15]}", f"users={man}",
    )  # fmt: skip
    rig.call("scontrol", "update", f"nodename={rig.names[14]}", "state=drain", "reason=XID 79")
    jobs = {
        "running": rig.submit("-N", "12", "--gres=gpu:a100:8", "--time=30", user=games),
        "indices": rig.submit("-w", rig.names[12], "--gres=gpu:3", "--time=30", user=man),
    }
    wait_until(lambda: rig.state(jobs["indices"]) == "RUNNING", "a job runs")
    waiting = {
        "Resources": rig.submit("-N", "3", "--gres=gpu:8", "--qos=high", "--time=30", user=man),
        "Dependency": rig.submit(one, f"--dependency=afterok:{jobs['running']}"),
        "BeginTime": rig.submit(one, "--begin=now+2hours"),
        "JobHeldUser": rig.submit(one, "--hold"),
        "JobHeldAdmin": rig.submit(one, "--begin=now+3hours"),
        "QOSMaxGRESPerUser": rig.submit("--gres=gpu:3", "--qos=small", user=games),
        "AssocGrpGRES": rig.submit("-N", "3", "--gres=gpu:8", user=mail),
        "ReqNodeNotAvail": rig.submit(one, "-w", rig.names[14]),
        "Reservation": rig.submit(one, "--reservation=later", "--time=10", user=man),
        "PartitionTimeLimit": rig.submit(one, "--partition=debug", "--time=2:00:00"),
    }
    rig.call("scontrol", "hold", str(waiting["JobHeldAdmin"]))
    waiting["Priority"] = rig.submit("-N", "4", "--gres=gpu:8", "--time=30", user=games)
    return jobs | waiting


def told_reasons(rig: Rig, jobs: dict[str, int]) -> dict[str, str]:
    """Why squeue says each of them waits, without the explanation that it adds to some."""
    rows = {row["job"]: row for row in rig.squeue()}
    waiting = {name: rows[str(job)] for name, job in jobs.items() if name[0].isupper()}
    return {name: row["reason"].split(",")[0] for name, row in waiting.items()}


def test_every_state_and_reason_is_what_squeue_says(rig: Rig, tmp_path: Path) -> None:
    jobs = submit_one_for_each_reason(rig)
    array = rig.submit("--array=0-5%2", "--gres=gpu:1", "-w", rig.names[12], "--time=30")
    ends = {
        "failed": rig.submit("--gres=gpu:1", "-w", rig.names[12], run="exit 3"),
        "completed": rig.submit("--gres=gpu:1", "-w", rig.names[12], run="exit 0"),
        "cancelled": rig.submit("--gres=gpu:1", "--hold"),
    }
    rig.call("scancel", str(ends["cancelled"]))
    reasons = {name: name for name in jobs if name[0].isupper()}
    with watching(rig, tmp_path / "commands") as watch:
        wait_until(lambda: rig.state(ends["failed"]) == "FAILED", "a job fails")
        told: dict[str, str] = {}

        def told_all() -> bool:
            told.update(told_reasons(rig, jobs))
            return told == reasons

        with contextlib.suppress(RigError):
            wait_until(told_all, "the reasons")
        assert told == reasons
        done = compare(watch)
        assert done.jobs >= len(jobs) + len(ends)
        assert done.gpus >= 12 * 8 + 3
        assert done.nodes == 16
        # The controller goes back and forth between two reasons that both hold.
        wait_until(lambda: _shown_reasons(watch, jobs) == reasons, "every reason on show")
        shown = watch.workloads()
        states = {name: shown[str(job)]["state"] for name, job in ends.items()}
        assert states == {name: name for name in ends}
        assert shown[str(ends["failed"])]["exit_code"] == 3
        assert {shown[f"{array}_{task}"]["state"] for task in range(2)} == {"running"}
        assert {shown[f"{array}_{task}"]["reason"] for task in range(2, 6)} == {"JobArrayTaskLimit"}
        hosts = watch.hosts()
        assert hosts[rig.names[14]] == ("drained", "XID 79")
        assert hosts[rig.names[15]][1].startswith("reservation later, 20")
        factors = watch.workload(jobs["Resources"])["attributes"]
        assert factors["priority.qos"] == "3000"
        assert watch.workload(jobs["Dependency"])["attributes"]["dependency"].startswith("afterok:")
        assert watch.source()["error"] == ""
    rig.call("scancel", *(str(job) for job in (*jobs.values(), array)))
    rig.call("scontrol", "update", f"nodename={rig.names[14]}", "state=resume")
    wait_until(lambda: "later" in rig.call("scontrol", "show", "reservation"), "the reservation")
    wait_until(lambda: not rig.live(), "everything ends")
    rig.call("scontrol", "delete", "reservationname=later")


def _shown_reasons(watch: Watch, jobs: dict[str, int]) -> dict[str, str]:
    watch.tick()
    shown = watch.workloads()
    return {name: shown[str(job)]["reason"] for name, job in jobs.items() if name[0].isupper()}


def submit_a_line(rig: Rig) -> dict[str, int]:
    """A full cluster, and a line in which each factor of the priority differs for somebody."""
    games, man, _ = PEOPLE
    holder = rig.submit("-N", "16", "--gres=gpu:a100:8", "--time=30", user=games)
    wait_until(lambda: rig.state(holder) == "RUNNING", "the cluster is full")
    return {
        "holder": holder,
        "plain": rig.submit("--gres=gpu:1", "--time=20", user=games),
        "large": rig.submit("-N", "6", "--gres=gpu:8", "--time=20", user=man),
        "high": rig.submit("--gres=gpu:2", "--qos=high", "--time=20", user=man),
        "debug": rig.submit("--gres=gpu:4", "--partition=debug", "--time=20", user=man),
        "array": rig.submit("--array=0-11", "--gres=gpu:1", "--time=20", user=games),
        "held": rig.submit("--gres=gpu:1", "--hold", user=man),
        "after": rig.submit("--gres=gpu:1", f"--dependency=afterok:{holder}", user=man),
    }


def test_the_line_is_the_one_of_squeue_and_the_factors_are_those_of_sprio(
    rig: Rig, tmp_path: Path
) -> None:
    wait_until(lambda: not rig.live(), "nothing is left of another test")
    jobs = submit_a_line(rig)
    with watching_line(rig, tmp_path) as (watch, printed):
        assert len(printed.jobs) == 18
        told = {name for factors in printed.factors.values() for name in factors}
        assert told >= {"job_size", "partition", "qos"}
        order = [job for job, _, _ in printed.jobs]
        places = [order.index(str(jobs[name])) for name in ("high", "debug", "large", "held")]
        assert places == sorted(places)
        for name in ("high", "large", "plain"):
            # One job has every GPU: nobody else can be what blocks.
            assert answer_why(watch, jobs[name])["blocking_workloads"] == [str(jobs["holder"])]
        aging = answer_why(watch, jobs["plain"])["aging"]
        # A weight of 1000 over Slurm's own seven days.
        assert aging["per_day"] == pytest.approx(1000 / 7)
        verdicts = {name: answer_why(watch, jobs[name])["verdict"] for name in ("held", "after")}
        assert verdicts == {"held": "held", "after": "held"}
    rig.call("scancel", *(str(job) for job in jobs.values()))


def test_a_job_that_is_requeued_and_a_node_that_dies_are_followed(rig: Rig, tmp_path: Path) -> None:
    victim, other = rig.names[3], rig.names[4]
    again = rig.submit("--gres=gpu:2", "-w", other, "--requeue")
    doomed = rig.submit("--gres=gpu:5", "-w", victim, "--no-requeue")
    parts = rig.call(
        "sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:2", "-w", rig.names[5], ":",
        "--gres=gpu:1", "-w", rig.names[6], user=PEOPLE[0], text="#!/bin/sh\nexec sleep 600\n",
    ).strip()  # fmt: skip
    with watching(rig, tmp_path) as watch:
        wait_until(lambda: rig.state(f"{parts}+1") == "RUNNING", "the heterogeneous job runs")
        wait_until(lambda: rig.state(doomed) == "RUNNING", "the job runs")
        compare(watch)
        assert len(watch.held()[str(doomed)]) == 5
        assert watch.held()[f"{parts}+0"] == {f"{rig.names[5]}:0", f"{rig.names[5]}:1"}
        rig.stop_daemon(victim, signal.SIGKILL)
        rig.call("scontrol", "requeue", str(again))
        compare(watch)
        # sinfo may call a lost node "mixed*" as long as its job is not cleared away.
        wait_until(lambda: rig.node_state(victim).endswith("*"), "the node is down")
        wait_until(lambda: rig.state(doomed) == "NODE_FAIL", "the job is lost")
        compare(watch)
        shown = watch.workload(doomed)
        assert shown["state"] == "node_fail"
        assert watch.hosts()[victim][0] == "down"
        assert str(doomed) not in watch.held()
        assert watch.workload(again)["attributes"]["restarts"] == "1"
        rig.start_node(victim)
        wait_until(lambda: rig.node_state(victim) == "idle", "the node is back")
        compare(watch)
        assert watch.hosts()[victim][0] == "up"
    rig.call("scancel", str(again), parts)


def test_a_controller_that_is_away_is_stale_and_ends_nothing(rig: Rig, tmp_path: Path) -> None:
    job = rig.submit("--gres=gpu:4")
    wait_until(lambda: rig.state(job) == "RUNNING", "the job runs")
    with watching(rig, tmp_path) as watch:
        compare(watch)
        rig.stop_daemon("slurmctld")
        # A tool that looks for the controller may be given up first, on a busy machine.
        wait_until(lambda: _error_says(watch, "Is the controller up?"), "the controller's absence")
        assert watch.source()["failures"] >= 1
        assert watch.workload(job)["state"] == "running"
        assert len(watch.held()[str(job)]) == 4
        rig.start_controller()
        wait_until(lambda: rig.state(job) == "RUNNING", "the controller remembers")
        wait_until(lambda: _answers(watch), "Marey asks again")
        compare(watch)
        assert watch.workload(job)["state"] == "running"
    rig.call("scancel", str(job))


def running_with_gpus(rig: Rig, *options: str) -> int:
    """A job that runs and has its GPUs: a controller just restarted starts some without any."""
    for _ in range(20):
        job = rig.submit(*options)
        wait_until(lambda job=job: rig.state(job) == "RUNNING", "the job runs")
        if indices_printed(rig).get(str(job)):
            return job
        rig.call("scancel", str(job))
        time.sleep(2)
    pytest.fail("twenty jobs were started without their GPUs")


def _answers(watch: Watch) -> bool:
    watch.tick()
    return watch.source()["state"] == "fresh" and not watch.source()["error"]


def test_slurmrestd_with_a_token_that_expires_and_is_renewed(rig: Rig, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    job = running_with_gpus(rig, "--gres=gpu:2", "--comment=" + json.dumps({"experiment": "e1"}))
    token_file.write_text(rig.token(lifespan_s=30))
    with watching(rig, tmp_path / "rest", token_file=token_file) as watch:
        wait_until(lambda: compare(watch).gpus >= 2, "the job's GPUs are compared")
        assert watch.workload(job)["experiment"] == "e1"
        wait_until(lambda: _error_says(watch, "expired"), "the token expires")
        assert "The Slurm token expired at 20" in watch.source()["error"]
        assert watch.workload(job)["state"] == "running"
        token_file.write_text(rig.token())
        wait_until(lambda: _answers(watch), "the new token")
        compare(watch)
        token_file.write_text("not.a.token")
        wait_until(lambda: _error_says(watch, "status 500"), "the refusal")
    rig.call("scancel", str(job))


def _error_says(watch: Watch, words: str) -> bool:
    watch.tick()
    return words in watch.source()["error"]


def test_accounting_tells_what_sacct_prints_whatever_the_time_zone(rig: Rig) -> None:
    job = rig.submit("--gres=gpu:3", "--comment=exp-9", run="exit 5", user=PEOPLE[1])
    wait_until(lambda: rig.state(job) == "FAILED", "the job fails")
    fields = "jobidraw,state,exitcode,submit,start,end,nodelist,user"

    def printed() -> list[str]:
        told = rig.call(
            "env", "TZ=UTC", "sacct", "-X", "-n", "-P", f"--jobs={job}", f"--format={fields}"
        )
        return told.strip().split("|")

    wait_until(lambda: printed()[1] == "FAILED", "accounting knows")
    told = run_tool("", ["sacct", "--json", "--allusers", f"--jobs={job}"], 10)
    (seen,) = read_history(told.body, "sacct")
    past, row = seen.workload, printed()
    assert [past.workload, seen.status.state.value.upper()] == row[:2]
    # 22.05 prints 5:0 for people and writes 0 into its JSON: not known is what is left.
    assert row[2] == "5:0"
    assert past.exit_code in (5, None)
    times = [parse_time(f"{moment}Z") for moment in row[3:6]]
    assert [past.submit_ms, past.start_ms, past.end_ms] == times
    assert (past.attributes["nodes"], past.user) == (row[6], row[7])
    assert (past.gpus_requested, past.gpu_model, past.experiment) == (3, "a100", "exp-9")
    assert past.attributes["gpu_indices"] == "not kept by Slurm's accounting"


def test_a_job_that_ended_before_marey_looked_comes_from_accounting_either_way(
    rig: Rig, tmp_path: Path
) -> None:
    job = rig.submit("--gres=gpu:2", "--comment=exp-11", run="sleep 2", user=PEOPLE[0])
    wait_until(lambda: rig.state(job) == "COMPLETED", "the job ends")
    token_file = tmp_path / "token"
    token_file.write_text(rig.token())
    by_rest = SlurmSettings(
        rest_url=rig.rest_url, rest_user=REST_USER, token_file=str(token_file), history_ms=DAY_MS
    )
    for settings in (SlurmSettings(history_ms=DAY_MS), by_rest):
        with open_store(None) as store:

            def known(store: EmbeddedStore = store) -> bool:
                rows = store.workloads(WorkloadQuery(limit=1000)).to_pylist()
                return str(job) in {row["workload"] for row in rows}

            while not known():
                # Slurm tells its database a little later: a job too young is asked for again.
                filling = HistoryFilling(settings, store, lambda: time.time_ns() // 1_000_000)
                filling.start()
                wait_until(lambda f=filling: f.document()["done"], "the history")
            found = store.workload("default", str(job))
            assert (found["state"], found["experiment"]) == ("completed", "exp-11")
            assert found["gpus_requested"] == 2
            assert [one["state"] for one in found["states"]][-2:] == ["running", "completed"]


def test_random_life_is_shown_as_slurm_tells_it(rig: Rig, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(rig.token())
    seed = int(os.environ.get("MAREY_SOAK_SEED", "20261116"))
    activity = Activity(rig, random.Random(seed))
    total, end = Compared(), time.monotonic() + SOAK_S
    with (
        watching(rig, tmp_path / "commands") as by_commands,
        watching(rig, tmp_path / "rest", token_file=token_file) as by_rest,
    ):
        watches = itertools.cycle((by_commands, by_rest))
        # A slow machine goes on until it has seen as much.
        while time.monotonic() < end or len(activity.acts) < KINDS or total.least() <= 2 * SOAK_S:
            for _ in range(3):
                activity.act()
            total += compare(next(watches))
        activity.settle()
        wait_until(lambda: not rig.live(), "everything ends")
        for watch in (by_commands, by_rest):
            total += compare(watch)
            live = {n for n, w in watch.workloads().items() if w["state"] in ("pending", "running")}
            assert live == set()
            assert watch.held() == {}
    print(f"seed {seed}: {total}, acts {activity.acts}, refused {activity.refused}")
    # Each of them agreed when it was looked at again; the slower the looks, the more there are.
    assert total.doubted < max(10, total.jobs / 50), "the controller's reasons seldom flicker"

"""Asking Slurm: the right tool per version, time limits, backoff, tokens, clocks.

The tools here are scripts that repeat recorded answers; tests/real asks the real programs.
"""

from __future__ import annotations

import base64
import json
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from marey.app.collect.loop import CollectRules, collect
from marey.model.errors import InvalidInput, Unavailable
from marey.model.events import ClusterEventKind
from marey.model.inventory import HostState, Partition
from marey.model.times import HOUR_MS
from marey.model.workloads import AGE_WEIGHT, MAX_AGE, WorkloadState
from marey.sources.slurm.commands import CommandLine
from marey.sources.slurm.factors import parse_aging, parse_factors
from marey.sources.slurm.history import PastJob
from marey.sources.slurm.rest import SlurmRestClient
from marey.sources.slurm.slurm_json import Job, Node, SlurmReservation
from marey.sources.slurm.slurm_source import MOST_BACKOFF_MS, SlurmRules, SlurmSource
from marey.sources.slurm.token import read_expiry_ms
from marey.sources.slurm.versions import About, parse_about
from marey.store.embedded.embedded_store import open_store
from tests.app.small_cluster import HandClock
from tests.sources.exporters import answer, exporter
from tests.sources.slurm.tools import asked, recorded_tools, tool

NOW_MS = 1_794_771_700_000


def test_22_05_is_asked_through_sinfo_one_query_per_kind(data_dir: Path, tmp_path: Path) -> None:
    recorded_tools(tmp_path, data_dir)
    source = SlurmSource("slurm", CommandLine(str(tmp_path)), SlurmRules("c"))
    (seen,) = source.poll(NOW_MS)
    assert (len(seen.hosts), len(seen.gpus), len(seen.partitions)) == (6, 48, 3)
    assert sum(not s.state.ended for s in seen.statuses) == 21
    (again,) = source.poll(NOW_MS + 15_000)
    assert again.complete
    # sprio is missing here, which is said and no failure.
    assert asked(tmp_path) == [
        "scontrol --version", "scontrol show partition", "sinfo --json", "squeue --json",
        "scontrol show config", "scontrol show reservation", "sinfo --json", "squeue --json",
    ]  # fmt: skip
    assert "no program" in source.details()["not_told"]["priority_factors"]


def test_23_02_and_later_are_asked_through_scontrol(data_dir: Path, tmp_path: Path) -> None:
    recorded = data_dir / "slurm/rest/25.05/0.0.43"
    tool(
        tmp_path,
        "scontrol",
        f'[ "$1" = --version ] && echo "slurm 25.05.4" || cat "{recorded}/slurm-$2.json"',
    )
    tool(tmp_path, "squeue", f'cat "{recorded}/slurm-jobs.json"')
    (seen,) = SlurmSource("s", CommandLine(str(tmp_path)), SlurmRules()).poll(NOW_MS)
    assert sorted(h.host for h in seen.hosts) == ["gpu1", "gpu2"]
    assert "scontrol show nodes --json" in asked(tmp_path)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exec sleep 60", r"gave no answer within 0\.3 s"),
        ("echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1", "Unable to contact"),
        ("echo hello", "not a version"),
        ("kill -9 $$", "failed"),
    ],
)
def test_a_tool_that_fails_is_said_in_its_own_words(
    tmp_path: Path, script: str, message: str
) -> None:
    tool(tmp_path, "scontrol", script)
    with pytest.raises(Unavailable, match=message):
        CommandLine(str(tmp_path), timeout_s=0.3 if "sleep" in script else 60).nodes()


def test_a_missing_tool_and_an_old_slurm_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no program"):
        CommandLine(str(tmp_path)).jobs()
    tool(tmp_path, "scontrol", "echo slurm 20.11.3")
    with pytest.raises(InvalidInput, match=r"20\.11 is too old"):
        CommandLine(str(tmp_path)).nodes()


class Fake:
    """A controller that counts questions, and answers only while it is up."""

    def __init__(self, **answers: Any) -> None:
        self.up = True
        self.asked: list[str] = []
        self.answers = {"nodes": [Node(name="n1", state="idle", gres="gpu:2")], **answers}

    def _answer(self, what: str, otherwise: Any) -> Any:
        self.asked.append(what)
        if not self.up:
            raise Unavailable("slurmctld is down.")
        return self.answers.get(what, otherwise)

    def nodes(self) -> list[Node]:
        return list(self._answer("nodes", []))

    def jobs(self) -> list[Job]:
        return list(self._answer("jobs", []))

    def partitions(self) -> list[Partition]:
        return list(self._answer("partitions", []))

    def reservations(self) -> list[SlurmReservation]:
        return list(self._answer("reservations", []))

    def factors(self) -> Mapping[int, Mapping[str, str]] | None:
        found: Mapping[int, Mapping[str, str]] = self._answer("factors", {})
        return found

    def shares(self) -> Mapping[str, float]:
        found: Mapping[str, float] = self._answer("shares", {})
        return found

    def about(self) -> About:
        found: About = self._answer("about", About())
        return found

    def ended(self, jobs: Sequence[int], since_ms: int) -> list[PastJob]:
        return list(self._answer("ended", []))

    def close(self) -> None:
        pass


def running(job: int, **given: Any) -> Job:
    facts = {"job_state": "RUNNING", "nodes": "n1", "tres_req_str": "gres/gpu=1"}
    return Job(job_id=job, **{**facts, "gres_detail": ["gpu:1(IDX:0)"], **given})


def test_a_controller_down_for_an_hour_is_asked_less_and_less_and_comes_back() -> None:
    controller = Fake()
    controller.up = False
    source = SlurmSource("s", controller, SlurmRules(least_interval_ms=10_000))
    for second in range(0, 3600, 15):
        with pytest.raises(Unavailable, match="down"):
            source.poll(NOW_MS + second * 1000)
    assert len(controller.asked) <= 6 + 3600_000 // MOST_BACKOFF_MS
    assert source.details()["asked_again_ms"] > NOW_MS
    controller.up = True
    (seen,) = source.poll(NOW_MS + 3600_000 + MOST_BACKOFF_MS)
    assert [g.gpu for g in seen.gpus] == ["n1:0", "n1:1"]


def test_the_controller_is_never_asked_more_often_than_told() -> None:
    controller = Fake()
    source = SlurmSource("s", controller, SlurmRules(least_interval_ms=10_000))
    told = [source.poll(NOW_MS + second * 500) for second in range(1200)]
    assert [len(found) for found in told].count(1) == 60
    counts = Counter(controller.asked)
    assert counts == {
        "nodes": 60, "jobs": 60, "partitions": 1, "about": 1, "reservations": 10, "factors": 10,
        "shares": 1,
    }  # fmt: skip
    assert len(controller.asked) <= 10 * source.most_per_minute()


def test_a_side_question_that_fails_is_said_and_asked_no_more_often() -> None:
    class NoFactors(Fake):
        def factors(self) -> Mapping[int, Mapping[str, str]] | None:
            self.asked.append("factors")
            raise Unavailable("sprio failed (1): no such plugin")

    controller = NoFactors()
    source = SlurmSource("s", controller, SlurmRules(least_interval_ms=10_000))
    for second in range(0, 60, 10):
        assert len(source.poll(NOW_MS + second * 1000)) == 1
    assert controller.asked.count("factors") == 1
    assert source.details()["not_told"] == {"priority_factors": "sprio failed (1): no such plugin"}


def test_what_privacy_hides_is_said() -> None:
    about = parse_about("Configuration data as of 2026-11-16T00:32:55\nPrivateData = jobs,usage\n")
    source = SlurmSource("s", Fake(about=about), SlurmRules())
    source.poll(NOW_MS)
    told = source.details()["hidden"]
    assert told == (
        "PrivateData keeps from others than operators: other people's jobs, "
        "other people's usage and accounting."
    )
    assert parse_about("PrivateData             = none\n").private == ()


@pytest.mark.parametrize("ahead_s", [600, -600])
def test_a_controller_whose_clock_is_ten_minutes_off_is_put_right_and_said(ahead_s: int) -> None:
    start_s = NOW_MS // 1000 - 60
    job = running(7, start_time=start_s + ahead_s, submit_time=start_s + ahead_s - 5)
    about = About("25.05.4", (), NOW_MS + ahead_s * 1000)
    source = SlurmSource("s", Fake(jobs=[job], about=about), SlurmRules())
    (seen,) = source.poll(NOW_MS)
    assert seen.workloads[0].start_ms == start_s * 1000
    assert seen.workloads[0].submit_ms == (start_s - 5) * 1000
    way = "ahead of" if ahead_s > 0 else "behind"
    assert source.details()["clock"].startswith(f"Slurm's clock is 600 s {way} ours")


def test_a_clock_within_a_few_seconds_is_left_alone() -> None:
    job = running(7, start_time=NOW_MS // 1000 - 60)
    source = SlurmSource("s", Fake(jobs=[job], about=About("", (), NOW_MS + 2000)), SlurmRules())
    (seen,) = source.poll(NOW_MS)
    assert seen.workloads[0].start_ms == NOW_MS - 60_000
    assert "clock" not in source.details()


def past(job: int, state: Any = "FAILED") -> PastJob:
    times = {"start": NOW_MS // 1000 - 600, "end": NOW_MS // 1000 + 900, "submission": 1}
    code = {"return_code": {"set": True, "number": 3}}
    return PastJob(job_id=job, state={"current": state}, time=times, exit_code=code)


def test_a_job_forgotten_during_an_outage_gets_its_end_from_accounting() -> None:
    controller = Fake(jobs=[running(7), running(8)], ended=[past(7), past(8, ["COMPLETED"])])
    source = SlurmSource("s", controller, SlurmRules())
    source.poll(NOW_MS)
    controller.up = False
    with pytest.raises(Unavailable):
        source.poll(NOW_MS + 60_000)
    controller.up, controller.answers["jobs"] = True, []
    (seen,) = source.poll(NOW_MS + HOUR_MS)
    states = {s.workload: s.state for s in seen.statuses}
    assert states == {"7": WorkloadState.FAILED, "8": WorkloadState.COMPLETED}
    first = next(w for w in seen.workloads if w.workload == "7")
    assert (first.end_ms, first.exit_code) == (NOW_MS + 900_000, 3)
    source.poll(NOW_MS + HOUR_MS + 60_000)
    assert controller.asked.count("ended") == 1


def test_reservations_stand_on_their_hosts_and_begin_and_end_as_events() -> None:
    now_s = NOW_MS // 1000
    told = SlurmReservation(
        name="maint", start_time=now_s + 60, end_time=now_s + 120, node_list="n[1-2]",
        users="root", accounts="", flags=["MAINT"],
    )  # fmt: skip
    controller = Fake(reservations=[told])
    source = SlurmSource("s", controller, SlurmRules())
    (before,) = source.poll(NOW_MS)
    assert before.host_states[0].state is HostState.UP
    assert before.host_states[0].reason.startswith("maintenance maint, 20")
    assert before.events == ()
    (during,) = source.poll(NOW_MS + 70_000)
    assert [(e.time_ms, e.kind) for e in during.events] == [
        (NOW_MS + 60_000, ClusterEventKind.RESERVATION)
    ]
    assert during.events[0].text.endswith("for root, 2 hosts: begins")
    controller.answers["reservations"] = []
    (after,) = source.poll(NOW_MS + 140_000)
    assert [e.time_ms for e in after.events] == [NOW_MS + 120_000]
    assert after.host_states[0].reason == ""


def test_a_node_that_is_renamed_is_another_host_from_then_on() -> None:
    controller = Fake(jobs=[running(7)])
    source = SlurmSource("s", controller, SlurmRules("c"))
    with open_store(None) as store:
        (before,) = source.poll(NOW_MS)
        store.apply(before)
        controller.answers["nodes"] = [Node(name="n9", state="idle", gres="gpu:2")]
        controller.answers["jobs"] = [running(7, nodes="n9")]
        (after,) = source.poll(NOW_MS + 60_000)
        store.apply(after)
        then, now = store.moment("c", NOW_MS), store.moment("c", NOW_MS + 60_000)
        assert then.hosts["host"].to_pylist() == ["n1"]
        assert now.hosts["host"].to_pylist() == ["n9"]
        assert then.allocations["gpu"].to_pylist() == ["n1:0"]
        assert now.allocations["gpu"].to_pylist() == ["n9:0"]
        states = {w["workload"]: w["state"] for w in now.workloads.to_pylist()}
        assert states == {"7": "running"}


def test_an_hour_without_the_controller_ends_and_zeroes_nothing() -> None:
    controller = Fake(jobs=[running(7)])
    clock = HandClock(NOW_MS)
    rules = CollectRules(15_000, 5_000, 60_000)
    with open_store(None) as store:
        collector = collect([SlurmSource("s", controller, SlurmRules())], store, clock, rules)
        collector.tick()
        controller.up = False
        for _ in range(240):
            clock.advance(15_000)
            collector.tick()
        now_ms = clock.now_ms()
        moment = store.moment("default", now_ms)
        assert [w["state"] for w in moment.workloads.to_pylist()] == ["running"]
        assert moment.allocations["gpu"].to_pylist() == ["n1:0"]
        assert moment.hosts.num_rows == 1
        controller.up = True
        clock.advance(MOST_BACKOFF_MS)
        collector.tick()
        assert store.moment("default", clock.now_ms()).allocations.num_rows == 1
        events = store.events("default", NOW_MS, clock.now_ms() + 1).to_pylist()
        assert [e["kind"] for e in events] == ["source_stale", "source_back"]
        collector.stop()


def test_priority_factors_are_attributes_of_waiting_jobs() -> None:
    listed = "7|453|12|0|254|200|0|0|0|0|\n7|99|1|0|0|0|0|0|0|0|\n9_[1]|1|1|1|1|1|1|1|1|1|\n"
    waiting = Job(job_id=7, job_state="PENDING", tres_req_str="gres/gpu=1")
    source = SlurmSource("s", Fake(jobs=[waiting], factors=parse_factors(listed)), SlurmRules())
    (seen,) = source.poll(NOW_MS)
    found = {k: v for k, v in seen.workloads[0].attributes.items() if k.startswith("priority.")}
    assert found == {"priority.age": "12", "priority.job_size": "254", "priority.partition": "200"}


def test_how_priorities_age_is_read_from_the_configuration() -> None:
    listed = (
        "PriorityMaxAge          = 7-12:00:00\nPriorityType            = priority/multifactor\n"
        "PriorityWeightAge       = 1000\n"
    )
    aging = parse_aging(listed)
    assert aging == {AGE_WEIGHT: "1000", MAX_AGE: "648000"}
    assert parse_factors("7|453|12|0|254|200|0|0|0|0|0\n", aging)[7][AGE_WEIGHT] == "1000"
    assert parse_aging(listed.replace("multifactor", "basic")) == {}
    assert parse_aging(listed.replace("7-12:00:00", "UNLIMITED")) == {}


def test_slurmrestd_is_asked_with_the_token_in_the_newest_version_it_speaks(data_dir: Path) -> None:
    recorded = data_dir / "slurm/rest/24.11/0.0.42"
    paths: list[str] = []
    heads: list[bytes] = []

    def behave(connection: socket.socket, path: str) -> None:
        paths.append(path)
        version, _, what = path.removeprefix("/slurm/v").partition("/")
        file = recorded / f"slurm-{what}.json"
        if version != "0.0.42" or not file.exists():
            connection.sendall(answer(b"no", status="404 Not Found"))
        else:
            connection.sendall(answer(file.read_bytes()))

    with exporter(behave, heads) as place:
        rest = SlurmRestClient(f"http://{place}", "marey", "x.y.z")
        source = SlurmSource("s", rest, SlurmRules(gpu_only=False))
        (seen,) = source.poll(NOW_MS)
        source.close()
    asked_for = ("partitions", "nodes", "jobs", "diag", "reservations", "shares")
    assert paths[-6:] == [f"/slurm/v0.0.42/{what}" for what in asked_for]
    assert source.details()["not_told"]["priority_factors"] == "slurmrestd does not tell them"
    assert len(seen.statuses) > 5
    assert all(b"X-SLURM-USER-TOKEN: x.y.z" in head for head in heads)
    assert all(b"X-SLURM-USER-NAME: marey" in head for head in heads)


def test_an_expired_token_makes_the_source_unavailable(data_dir: Path) -> None:
    body = (data_dir / "slurm/rest/25.05/0.0.43/slurm-jwt-expired-token.json").read_bytes()

    def behave(connection: socket.socket, path: str) -> None:
        ping = path.endswith("/ping")
        connection.sendall(answer(body, status="200 OK" if ping else "500 Server Error"))

    with exporter(behave) as place:
        rest = SlurmRestClient(f"http://{place}", "marey", "expired")
        with pytest.raises(Unavailable, match="status 500"):
            rest.jobs()
        rest.close()


def test_a_token_with_a_line_break_is_refused() -> None:
    with pytest.raises(InvalidInput, match="token"):
        SlurmRestClient("http://127.0.0.1:1", "marey", "a\r\nX-Evil: 1")


def web_token(expires_s: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_s}).encode()).decode()
    return f"e30.{claims.rstrip('=')}.c2ln"


def test_a_token_that_says_it_is_over_is_never_sent_and_a_new_one_works_at_once(
    data_dir: Path,
) -> None:
    recorded = data_dir / "slurm/rest/25.05/0.0.43"
    paths: list[str] = []

    def behave(connection: socket.socket, path: str) -> None:
        paths.append(path)
        version, _, what = path.removeprefix("/slurm/v").partition("/")
        good = version == "0.0.43" and (recorded / f"slurm-{what}.json").exists()
        body = (recorded / f"slurm-{what}.json").read_bytes() if good else b"no"
        connection.sendall(answer(body, status="200 OK" if good else "404 Not Found"))

    kept = {"token": web_token(1_600_000_000)}
    with exporter(behave) as place:
        source = SlurmSource(
            "s", SlurmRestClient(f"http://{place}", "m", lambda: kept["token"]), SlurmRules()
        )
        for second in range(3):
            with pytest.raises(Unavailable, match=r"token expired at 2020-09-13T12:26:40"):
                source.poll(NOW_MS + second * 1000)
        assert paths == []
        kept["token"] = web_token(4_000_000_000)
        assert len(source.poll(NOW_MS + 3000)) == 1
        source.close()


def test_the_expiry_of_a_token_is_read_and_of_garbage_is_not_known() -> None:
    assert read_expiry_ms(web_token(1_700_000_000.5)) == 1_700_000_000_500
    for token in ("", "a.b.c", "a.e30.c", "e30.bnVsbA.c", web_token(1e300), "x" * 10_000):
        assert read_expiry_ms(token) is None

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from marey.app.collect.loop import keep
from marey.app.queries.workspace import Workspace
from marey.app.rules.finding_store import AskFindings, AskWaste, Mute
from marey.app.rules.notifications import Notifier
from marey.app.rules.rule_queries import AskBacktest, AskRuleTest, preview
from marey.app.rules.rule_store import RuleStore
from marey.app.rules.rule_watch import OPENING_LIMIT, QUEUE_LIMIT, RuleWatch
from marey.app.service import Parts, Service
from marey.cli import main
from marey.live.summary import SummaryLog
from marey.model.access.current import get_process_identity
from marey.model.errors import Conflict, InvalidInput, NotFound
from marey.model.inventory import Gpu, Host
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.notify.outbox import Route
from marey.notify.settings import NotifySettings
from marey.rules.language.parser import parse_rule
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from tests.signed_in import owner_client
from tests.waiting import until

START = 1_794_182_400_000
MINUTES = 75
RULES = """
[[rule]]
id = "quiet"
when = "util mean[10m] < 20%"
severity = "critical"
[[rule]]
id = "weak"
when = "all: power_share p50 < 30% and runtime > 20m"
"""


def observations(minutes: int = MINUTES) -> Iterator[Observation]:
    """Job 1 falls quiet from minute 20 to 50; job 2 is weak all the time and ends at 60."""
    gpus = tuple(Gpu("n1", i, model="A100", power_limit_w=400, memory_mib=81920) for i in range(4))
    names = tuple(gpu.gpu for gpu in gpus)
    jobs = [
        Workload("1", user="ada", project="p", start_ms=START, gpus_requested=2),
        Workload("2", user="bob", project="q", start_ms=START, gpus_requested=2),
    ]
    held = [Allocation(str(1 + i // 2), names[i], i % 2, i % 2) for i in range(4)]
    running = [WorkloadStatus(job.workload, WorkloadState.RUNNING) for job in jobs]
    yield Observation(
        START,
        hosts=(Host("n1"),),
        gpus=gpus,
        workloads=tuple(jobs),
        statuses=tuple(running),
        allocations=tuple(held),
        complete=True,
    )
    for tick in range(1, minutes + 1):
        now = START + tick * MINUTE_MS
        minute = tick
        first = 5.0 if 20 <= minute < 50 else 80.0
        util = np.array([first, 80.0, 90.0, 90.0], np.float32)
        power = np.array([350.0, 350.0, 100.0, 100.0], np.float32)
        if minute > 60:
            util[2:] = power[2:] = np.nan
        workload = np.array([0, 0, 1, 1], np.int32) if minute <= 60 else np.array([0, 0, -1, -1])
        batch = SampleBatch(
            np.full(4, now, np.int64),
            np.arange(4, dtype=np.int32),
            names,
            {"util": util, "power": power},
            workload=workload.astype(np.int32),
            workloads=("1", "2"),
        )
        ended = now == START + 60 * MINUTE_MS
        yield Observation(
            now,
            samples=(batch,),
            workloads=(Workload("2", user="bob", project="q", start_ms=START, end_ms=now),)
            if ended
            else (),
            statuses=(WorkloadStatus("2", WorkloadState.COMPLETED),) if ended else (),
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "site.toml").write_text(RULES)
    return rules


def watch_over(store: EmbeddedStore, folder: Path | None, beside: Path | None = None) -> RuleWatch:
    return RuleWatch(store, RuleStore(store, folder), Notifier(store), beside)


class LastSample:
    speed = 1.0

    def __init__(self, store: EmbeddedStore) -> None:
        span = store.span("default")
        self._now_ms = span[1] if span else START

    def now_ms(self) -> int:
        return self._now_ms


def workspace_of(store: EmbeddedStore) -> Workspace:
    return Workspace(store, LastSample(store), {}, SummaryLog(store))


def live(store: EmbeddedStore, watch: RuleWatch, told: list[Observation]) -> None:
    for observation in told:
        keep(store, [observation])
        watch.take(observation)


def kept(watch: RuleWatch) -> dict[tuple[str, str], list[tuple[int, int | None]]]:
    return {
        (f.rule, f.workload): [
            ((e.opened_ms - START) // 1000, e.closed_ms and (e.closed_ms - START) // 1000)
            for e in f.episodes
        ]
        for f in watch.findings.all()
        if f.rule in ("quiet", "weak")
    }


def test_live_rebuilt_and_back_tested_findings_are_the_same(folder: Path) -> None:
    with open_store(None) as store:
        watch = watch_over(store, folder)
        live(store, watch, list(observations()))
        expected = kept(watch)
        assert set(expected) == {("quiet", "1"), ("weak", "2")}
        (opened, closed) = expected["quiet", "1"][0]
        assert 20 * 60 < opened <= 40 * 60
        assert closed is not None
        again = watch_over(store, folder)
        again.feed("default", START + MINUTES * MINUTE_MS)
        rebuilt = again.loops["default"].book.findings
        for key, episodes in expected.items():
            found = [((e.opened_ms - START) // 1000) for e in rebuilt[key].episodes]
            assert found == [first for first, _ in episodes]
        workspace = workspace_of(store)
        when = "util mean[10m] < 20%"
        document = AskBacktest(when=when).ask(workspace)
        (row,) = document.rows
        assert (row.workload, (row.opened_ms - START) // 1000) == ("1", opened)
        assert document.rules[0].gpu_hours > 0


def test_while_the_rules_are_opened_few_samples_wait_and_none_is_lost(folder: Path) -> None:
    told = list(observations())
    with open_store(None) as store:
        steady = watch_over(store, folder)
        live(store, steady, told)
        expected = kept(steady)
    with open_store(None) as store:
        watch = watch_over(store, folder)
        for observation in told:
            keep(store, [observation])
            watch.observe(observation)
        waiting = [len(observation.samples) for observation in watch._queue]
        assert waiting == [0] * (QUEUE_LIMIT - OPENING_LIMIT) + [1] * OPENING_LIMIT
        # The loop is opened with the first of them, as if that were now.
        while watch._queue:
            watch.take(watch._queue.popleft())
        assert kept(watch) == expected


def test_a_watch_that_falls_behind_misses_no_sample_and_no_end(folder: Path) -> None:
    told = list(observations(65 + QUEUE_LIMIT))
    with open_store(None) as store:
        steady = watch_over(store, folder)
        live(store, steady, told)
        expected = kept(steady)
    with open_store(None) as store:
        watch = watch_over(store, folder)
        live(store, watch, told[:48])
        # The ends of both findings and of workload "2" fall out of the line.
        for observation in told[48:]:
            keep(store, [observation])
            watch.observe(observation)
        assert not any(observation.statuses for observation in watch._queue)
        while watch._queue:
            watch.take(watch._queue.popleft())
        assert kept(watch) == expected


def test_what_is_imported_while_it_is_served_is_judged(folder: Path, tmp_path: Path) -> None:
    told = list(observations(65))
    with open_store(None) as store:
        watch = watch_over(store, folder, tmp_path / "site.duckdb")
        watch.start(START)
        try:
            keep(store, told[:40])
            watch.take_import("default")
            until(lambda: not watch.preparing("default"), "the verdicts on an import")
            assert set(kept(watch)) == {("quiet", "1"), ("weak", "2")}
            keep(store, told[40:])
            watch.take_import("default")
            until(lambda: kept(watch)["weak", "2"][0][1] is not None, "an end of the next import")
        finally:
            watch.stop()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [False, True])
def test_a_restart_continues_from_kept_state_or_rebuilds_it(
    damage: bool, folder: Path, tmp_path: Path
) -> None:
    told = list(observations())
    with open_store(None) as store:
        whole = watch_over(store, folder)
        live(store, whole, told)
        expected = kept(whole)
    beside = tmp_path / "site.duckdb"
    with open_store(None) as store:
        before = watch_over(store, folder, beside)
        live(store, before, told[:38])
        before.checkpoint("default", told[37].time_ms)
        live(store, before, told[38:41])
        path = before.keeper.state_path("default")
        assert path is not None
        assert path.exists()
        if damage:
            path.write_bytes(path.read_bytes()[:-100])
        after = watch_over(store, folder, beside)
        live(store, after, told[41:])
        assert kept(after) == expected


def test_a_new_rule_is_judged_at_once_with_windows_from_the_store(folder: Path) -> None:
    told = list(observations())
    with open_store(None) as store:
        watch = watch_over(store, None)
        live(store, watch, told[:46])
        watch.book.save({"id": "memory", "when": "power mean[15m] < 120 W"})
        watch.reload()
        live(store, watch, told[46:49])
        assert ("memory", "2") in {(f.rule, f.workload) for f in watch.findings.all()}
        with pytest.raises(InvalidInput):
            watch.book.save({"id": "bad", "when": "pwer < 3"})
        with pytest.raises(Conflict):
            watch.book.delete("stalled")
        with pytest.raises(NotFound):
            watch.book.delete("nothing")
        watch.book.delete("memory")
        watch.reload()
        live(store, watch, told[49:52])
        gone = next(f for f in watch.findings.all() if f.rule == "memory")
        assert gone.episodes[-1].because == "the rule was removed"


class Ears:
    name = "ears"

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def deliver(self, delivery: Any) -> None:
        self.heard += delivery.notices


def test_people_hear_of_a_finding_once_and_of_its_end_unless_it_is_muted(folder: Path) -> None:
    ears = Ears()
    settings = NotifySettings({"ears": ears}, (Route(("ears",), group_wait_ms=0),), dry_run=False)
    with open_store(None) as store:
        notifier = Notifier(store, settings)
        watch = RuleWatch(store, RuleStore(store, folder), notifier)
        watch.findings.mute(Mute(id="0" * 16, scope="user", value="bob", why="known"))
        for observation in observations():
            live(store, watch, [observation])
            notifier.outbox.run_due(observation.time_ms)
        about = [(n.rule, n.workload, n.status) for n in ears.heard if n.rule in ("quiet", "weak")]
        assert about == [("quiet", "1", "firing"), ("quiet", "1", "resolved")]
        assert "util mean[10m] < 20%" in ears.heard[0].readings[0]


@pytest.mark.parametrize("how", ["taken back", "over", "over after a restart"])
def test_what_opened_while_muted_is_told_when_the_mute_ends_if_it_is_still_open(
    folder: Path, how: str
) -> None:
    told, ears = list(observations()), Ears()
    settings = NotifySettings({"ears": ears}, (Route(("ears",), group_wait_ms=0),), dry_run=False)
    with open_store(None) as store:

        def watching() -> RuleWatch:
            return RuleWatch(store, RuleStore(store, folder), Notifier(store, settings))

        def heard(watch: RuleWatch, some: list[Observation]) -> list[tuple[str, str, str]]:
            ears.heard.clear()
            for observation in some:
                live(store, watch, [observation])
                watch.notifier.outbox.run_due(observation.time_ms)
            return [(n.rule, n.workload, n.status) for n in ears.heard if n.rule == "weak"]

        watch = watching()
        until = None if how == "taken back" else START + 45 * MINUTE_MS
        mute = Mute(id="0" * 16, scope="user", value="bob", why="known", until_ms=until)
        watch.findings.mute(mute)
        assert heard(watch, told[:45]) == []
        assert [f.rule for f in watch.findings.all() if f.user == "bob" and f.is_open] == ["weak"]
        if how == "taken back":
            watch.findings.unmute(mute.id)
        if how == "over after a restart":
            watch.stop()
            watch = watching()
        assert heard(watch, told[45:47]) == [("weak", "2", "firing")]
        # Once, and then its end.
        assert heard(watch, told[47:]) == [("weak", "2", "resolved")]


def test_what_people_say_of_a_finding_survives_the_next_verdict(folder: Path) -> None:
    told = list(observations())
    with open_store(None) as store:
        watch = watch_over(store, folder)
        live(store, watch, told[:46])
        found = next(f for f in watch.findings.all() if f.rule == "quiet")
        watch.findings.add_comment(found.id, "looking", "eve", START, acknowledge=True)
        watch.findings.add_comment(found.id, "a lost rank", "eve", START, acknowledge=False)
        live(store, watch, told[46:])
        after = watch.findings.get(found.id)
        assert after.acknowledged is not None
        assert [comment.text for comment in after.comments] == ["a lost rank"]
        workspace = workspace_of(store)
        waste = AskWaste("user").ask(workspace)
        assert {row.name for row in waste.rows} == {"ada", "bob"}
        assert AskFindings(workload="2").ask(workspace).total == 1


def test_a_draft_is_tried_on_the_store_and_on_the_live_sketches(folder: Path) -> None:
    told = list(observations())
    with open_store(None) as store:
        watch = watch_over(store, folder)
        live(store, watch, told[:51])
        workspace = workspace_of(store)
        document = AskRuleTest("power_share median < 30%").ask(workspace)
        assert [(r.workload, r.life) for r in document.rows] == [("2", "yes"), ("1", "no")]
        assert document.rows[0].evidence[0].readings[0].value == 25.0
        alone = AskRuleTest("all: power_share median < 30%", workload="2").ask(workspace)
        assert [r.life for r in alone.rows] == ["yes"]
        loop = watch.loops["default"]
        clause = parse_rule("power mean[30m] < 200 W")
        now = loop.evaluator.newest_ms
        seen = preview(watch, loop, "default", clause=clause, time_ms=now)
        assert seen.life.workloads == ["2"]
        assert seen.life.gpus == ["n1:2", "n1:3"]


class Still:
    speed = 1.0

    def now_ms(self) -> int:
        return START + 50 * MINUTE_MS


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    store = open_store(None)
    service = Service(Parts(store, [], Still(), rules_folder=folder))
    live(store, service.rule_watch, list(observations(50)))
    with owner_client(service, raise_server_exceptions=False) as made:
        yield made
    service.stop()


def test_until_rules_are_evaluated_answers_say_that_they_are_not_all(folder: Path) -> None:
    with open_store(None) as store:
        service = Service(Parts(store, [], LastSample(store), rules_folder=folder))
        watch, workspace = service.rule_watch, service.workspace
        assert AskFindings().ask(workspace).preparing is False
        told = list(observations(5))
        keep(store, told)
        assert AskFindings().ask(workspace).preparing is True
        assert AskWaste().ask(workspace).preparing is True
        watch.feed("default", told[-1].time_ms)
        assert AskFindings().ask(workspace).preparing is False


def test_the_api_serves_rules_findings_and_verdicts(client: TestClient) -> None:
    rules = client.get("/api/v1/rules").json()["rows"]
    assert {"stalled", "quiet"} <= {row["id"] for row in rules}
    assert client.get("/api/v1/rules/stalled").json()["fault"] == "stalled"
    assert client.get("/api/v1/rules/nothing").status_code == 404
    verdicts = {r["rule"]: r for r in client.get("/api/v1/verdicts").json()["rules"]}
    assert verdicts["quiet"]["now"]["gpus"] == ["n1:0"]
    found = client.get("/api/v1/findings", params={"state": "open", "rule": "quiet"}).json()
    (finding,) = found["rows"]
    assert finding["gpus"] == ["n1:0"]
    url = f"/api/v1/findings/{finding['id']}"
    assert client.put(f"{url}/acknowledgement", json={"by": "eve"}).status_code == 200
    assert client.post(f"{url}/comments", json={"text": "why?"}).status_code == 200
    assert client.post(f"{url}/comments", json={"text": " "}).status_code == 422
    assert client.get(url).json()["acknowledged"]["by"] == get_process_identity().user
    mute = client.post(
        "/api/v1/mutes", json={"scope": "user", "value": "ada", "why": "knows"}
    ).json()
    assert client.get(url).json()["muted"] is True
    assert client.delete(f"/api/v1/mutes/{mute['id']}").status_code == 204
    assert (
        client.post("/api/v1/mutes", json={"scope": "x", "value": "a", "why": "b"}).status_code
        == 422
    )
    assert client.get("/api/v1/waste", params={"by": "rule"}).json()["rows"]
    assert client.get("/api/v1/waste", params={"by": "colour"}).status_code == 422
    life = client.get("/api/v1/life-statistics", params={"workload": "1"}).json()
    assert life["n1:1"]["util"]["mean"] == 80.0
    assert client.get("/api/v1/notifications").json()["dry_run"] is True


@pytest.mark.slow
def test_the_api_checks_previews_saves_and_back_tests(client: TestClient) -> None:
    wrong = client.get("/api/v1/rules-check", params={"when": "utl > 3"})
    assert wrong.status_code == 422
    assert "line 1, column 1" in wrong.json()["detail"]
    assert client.get("/api/v1/rules-language").json()["metrics"]["util"]["unit"] == "%"
    seen = client.post("/api/v1/rules-preview", json={"when": "util mean < 99%"}).json()
    assert seen["life"] | {"workloads": 0, "gpus": 0} == {
        "workload_count": 2,
        "gpu_count": 4,
        "workloads": 0,
        "gpus": 0,
    }
    by_json = client.post("/api/v1/rules-preview", json={"clause": {"when": {}}})
    assert by_json.status_code == 422
    saved = client.put("/api/v1/rules/mine", json={"when": "util mean < 99%", "title": "Mine"})
    assert saved.json()["origin"] == "server"
    assert client.put("/api/v1/rules/mine", json={"when": "util mean <"}).status_code == 422
    tried = client.get("/api/v1/rules-test", params={"when": "util mean < 99%"}).json()
    assert [row["life"] for row in tried["rows"]] == ["yes", "yes"]
    job = client.post("/api/v1/backtests", json={"rule": "mine", "since": "1d"}).json()
    # The rule goes away while its back-test waits or runs: it is tested as it was.
    assert client.delete("/api/v1/rules/mine").status_code == 204
    state: dict[str, Any] = {}

    def over() -> bool:
        state.update(client.get(f"/api/v1/tasks/{job['id']}").json())
        return state["state"] in ("done", "failed", "cancelled")

    until(over, "the end of the back-test")
    assert state["state"] == "done", state
    assert {row["workload"] for row in state["result"]["rows"]} == {"1", "2"}
    assert client.post("/api/v1/backtests", json={"rule": "mine"}).status_code == 404


@pytest.mark.slow
def test_the_commands_answer_from_a_store_file(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "site.duckdb"
    with open_store(path) as store:
        watch = watch_over(store, folder)
        live(store, watch, list(observations(50)))
    at = ["--store", str(path), "--json"]

    def run(*words: str) -> Any:
        code = main([*words, *at])
        out = capsys.readouterr()
        return json.loads(out.out) if code == 0 else (code, out.err)

    assert len(run("rules", "list")["rows"]) >= 20
    assert run("rules", "explain", "stalled")["fault"] == "stalled"
    assert [r["id"] for r in run("rules", "check", str(folder))["rules"]] == ["quiet", "weak"]
    assert run("rules", "test", "util mean < 99%")["rows"][0]["life"] == "yes"
    back = run("rules", "backtest", str(folder / "site.toml"), "--since", "1d")
    assert {row["workload"] for row in back["rows"]} == {"1", "2"}
    assert run("rules", "backtest", "weak-not-there")[0] == 3
    assert run("rules", "test", "utl > 3")[0] == 2
    assert "^^^" in run("rules", "test", "utl > 3")[1]
    found = run("findings", "--state", "open")
    assert {row["rule"] for row in found["rows"]} >= {"quiet"}
    assert run("findings", "--waste", "rule")["rows"]
    assert main(["rules", "explain", "weak", "--store", str(path)]) != 0
    assert main(["findings", "--waste", "user", "--csv", "--store", str(path)]) == 0
    assert capsys.readouterr().out.startswith("user,gpu_hours")

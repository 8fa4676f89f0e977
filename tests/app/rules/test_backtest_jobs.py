"""Rules from outside: rule files, back-tests as jobs of a server, a rebuild that is stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from marey.app.collect.loop import keep
from marey.app.queries.server_client import ask
from marey.app.rules import backtest_jobs, rule_store
from marey.app.rules.backtest_jobs import run_backtest_job
from marey.app.rules.notifications import Notifier
from marey.app.rules.rule_queries import AskBacktest, AskRules
from marey.app.rules.rule_store import RuleStore
from marey.app.rules.rule_watch import RuleWatch
from marey.app.service import Parts, Service
from marey.cli import main
from marey.model.errors import Conflict, NotFound
from marey.rules.definition import parse_document
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.store.embedded.embedded_store import open_store
from marey.store.holder import StoreHolder
from tests.app.rules.test_rule_watch import RULES, LastSample, observations
from tests.signed_in import owner_client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "site.toml").write_text(RULES)
    return rules


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A store with an hour in it."""
    path = tmp_path / "site.duckdb"
    with open_store(path) as store:
        for observation in observations(60):
            keep(store, [observation])
    return path


def test_rule_files_of_the_server_are_known_to_who_opens_its_store(
    site: Path, folder: Path
) -> None:
    with pytest.raises(NotFound):
        ask(site, AskBacktest(rule="weak"))
    with open_store(site) as store:
        RuleStore(store, folder).remember()
    listed = {row["id"]: row["origin"] for row in ask(site, AskRules())["rows"]}
    assert listed["weak"] == "file"
    assert {row["workload"] for row in ask(site, AskBacktest(rule="weak"))["rows"]} == {"2"}
    with open_store(site) as store:
        RuleStore(store).remember()
    assert "weak" not in {row["id"] for row in ask(site, AskRules())["rows"]}


def test_a_back_test_on_the_file_says_how_far_it_is(site: Path) -> None:
    seen: list[float] = []
    back = run_backtest_job(site, AskBacktest(when="power_share p50 < 30%"), seen.append)
    assert {row["workload"] for row in back["rows"]} == {"2"}
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.fixture
def client(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A server that holds the store, reached without a network."""
    with open_store(site) as store:
        service = Service(Parts(store, [], LastSample(store)))
        with owner_client(service, base_url="http://localhost") as client:

            def request(server: StoreHolder, method: str, path: str, body: Any = None) -> Any:
                answer = client.request(method, f"/api/v1{path}", json=body)
                assert answer.status_code < 400, answer.text
                return answer.json()

            monkeypatch.setattr(backtest_jobs, "request_server", request)
            monkeypatch.setattr(
                backtest_jobs, "find_place_server", lambda place: StoreHolder("http://localhost", 1)
            )
            yield client
            service.background.close()


def test_a_back_test_on_a_held_store_is_a_job_of_its_server(site: Path, client: TestClient) -> None:
    seen: list[float] = []
    back = run_backtest_job(site, AskBacktest(when="power_share p50 < 30%"), seen.append)
    assert {row["workload"] for row in back["rows"]} == {"2"}
    assert seen[-1] == 1.0
    assert [job["what"] for job in client.get("/api/v1/tasks").json()] == ["back-test"]


def test_an_interrupt_cancels_the_job_of_the_server(
    site: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: float) -> None:
        raise KeyboardInterrupt

    asked: list[str] = []
    monkeypatch.setattr(backtest_jobs, "_cancel", lambda server, job: asked.append(job))
    with pytest.raises(KeyboardInterrupt):
        run_backtest_job(site, AskBacktest(when="util mean < 30%"), interrupt)
    assert asked == [client.get("/api/v1/tasks").json()[-1]["id"]]


def test_a_job_that_somebody_else_cancelled_is_said_so(site: Path) -> None:
    job = {"id": "1", "state": "cancelled", "done": 0.0, "total": 1.0, "error": ""}
    with pytest.raises(Conflict, match="cancelled"):
        backtest_jobs._await_result(StoreHolder("http://localhost", 1), job, lambda done: None)


def test_a_rebuild_stops_within_a_minute_of_history(
    site: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(site) as store:
        watch = RuleWatch(store, RuleStore(store, folder), Notifier(store))
        taken = 0
        whole = EvaluationLoop.take

        def take(self: EvaluationLoop, *args: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken == 3:
                watch._stop.set()
            return whole(self, *args)

        monkeypatch.setattr(EvaluationLoop, "take", take)
        watch.start(LastSample(store).now_ms())
        watch.stop()
        # One part may have been in hand, and one per catching up.
        assert taken <= 4
        assert not watch.loops


OVERRIDDEN = """
[[rule]]
id = "low-power"
when = "power_share p50 < $low"
thresholds = {low = "30%"}
[[rule.override]]
project = "q"
thresholds = {low = "10%"}
[[rule]]
id = "off"
when = "power_share p50 < 30%"
enabled = false
[[rule]]
id = "busy"
when = "util mean > 85%"
"""


def test_a_rule_file_is_back_tested_with_its_ids_thresholds_and_overrides(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OVERRIDDEN)
    assert main(["rules", "backtest", str(file), "--store", str(site), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {(row["rule"], row["findings"]) for row in document["rules"]}
    # Job 2 is of project q, whose limit it keeps; a rule that is off is not tested.
    assert found == {("low-power", 0), ("busy", 1)}
    file.write_text('[[rule]]\nid = "off"\nwhen = "util > 3"\nenabled = false\n')
    assert main(["rules", "backtest", str(file), "--store", str(site)]) == 2
    assert "no enabled rules" in capsys.readouterr().err


def test_whole_rules_are_back_tested_by_the_server_too(site: Path, client: TestClient) -> None:
    rule = {"id": "mine", "when": "power_share p50 < $low", "thresholds": {"low": "30%"}}
    back = run_backtest_job(site, AskBacktest(documents=(rule,)), lambda done: None)
    assert [(row["rule"], row["workload"]) for row in back["rows"]] == [("mine", "2")]
    refused = client.post("/api/v1/backtests", json={"rules": [rule, rule]})
    assert refused.status_code == 422
    assert "two rules" in refused.json()["detail"]
    both = client.post("/api/v1/backtests", json={"rules": [rule], "when": "util > 3"})
    assert both.status_code == 422


def test_an_explanation_says_what_is_in_force_where(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    off = '[[rule.override]]\npartition = "debug"\nenabled = false\n'
    file.write_text(OVERRIDDEN.replace("[[rule.override]]", f"{off}[[rule.override]]"))
    with open_store(site) as store:
        RuleStore(store, file).remember()
    assert main(["rules", "explain", "low-power", "--store", str(site)]) == 0
    said = capsys.readouterr().out
    assert "power_share median < 30%" in said
    assert "in partition debug: not judged by this rule" in said
    assert "in project q: power_share median < 10%" in said


def test_thousands_of_saved_rules_are_each_read_once_for_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_store(None) as store:
        book = RuleStore(store)
        for i in range(300):
            store.put_document("rule", f"r{i}", {"id": f"r{i}", "when": f"util < {i % 90 + 1}%"})
        read = 0

        def counted(*args: Any) -> Any:
            nonlocal read
            read += 1
            return parse_document(*args)

        monkeypatch.setattr(rule_store, "parse_document", counted)
        rows = {row.id: row.origin for row in book.rows()}
        assert (rows["r7"], rows["stalled"], read) == ("server", "pack", 300)
        assert len(book.rows()) == len(rows)
        assert book.get("r7").id == "r7"
        assert read == 301
        book.save({"id": "r7", "when": "util < 3%", "title": "New"})
        assert {row.id: row.title for row in book.rows()}["r7"] == "New"
        book.delete("r7")
        assert "r7" not in {row.id for row in book.rows()}

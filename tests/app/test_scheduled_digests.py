"""Digests that a server sends by itself: when they are due, once, and again after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from marey.app.collect.clocks import StoredClock
from marey.app.people.scheduled_digests import PATIENCE_MS, RETRY_MS, ScheduledDigests
from marey.app.queries.workspace import Workspace
from marey.live.summary import SummaryLog
from marey.model.errors import InvalidInput, Unavailable
from marey.model.protocols import WorkloadQuery
from marey.model.settings.toml_lines import TomlFile
from marey.model.times import DAY_MS, HOUR_MS, MINUTE_MS, parse_time
from marey.notify.receivers import Mail
from marey.notify.settings import NotifySettings, read_notify_settings
from marey.store.embedded.embedded_store import open_store
from tests.app.small_cluster import START_MS, inventory

# The small cluster's own hour is a Monday.
MONDAY_7_MS = parse_time("2026-11-16T07:00Z")
RECEIVER = {
    "name": "mail",
    "kind": "mail",
    "host": "smtp.example.org",
    "from": "marey@example.org",
    "to": ["ops@example.org"],
}


def plan(*digests: dict[str, Any], dry_run: bool = False) -> NotifySettings:
    table = {"dry_run": dry_run, "receiver": [RECEIVER], "digest": list(digests)}
    return read_notify_settings(TomlFile("notify.toml", table))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    store = open_store(tmp_path / "site.duckdb")
    store.apply(inventory())
    yield Workspace(store, StoredClock(store, store.clusters), {}, SummaryLog(store))
    store.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[EmailMessage]:
    mails: list[EmailMessage] = []
    monkeypatch.setattr(Mail, "send", lambda self, message: mails.append(message))
    return mails


def test_a_digest_is_sent_once_a_week_also_over_a_restart(
    workspace: Workspace, sent: list[EmailMessage]
) -> None:
    settings = plan({"of": "site", "weekday": "monday", "hour": 7})
    digests = ScheduledDigests(workspace, settings.digests)
    digests.run_due(MONDAY_7_MS - HOUR_MS)
    digests.run_due(MONDAY_7_MS - MINUTE_MS)
    assert sent == [], "a new plan says nothing of the week before it"
    digests.run_due(MONDAY_7_MS)
    again = ScheduledDigests(workspace, settings.digests)
    again.run_due(MONDAY_7_MS + HOUR_MS)
    again.run_due(MONDAY_7_MS + 6 * DAY_MS)
    assert [mail["To"] for mail in sent] == ["ops@example.org"]
    assert "Last week on default" in sent[0]["Subject"]
    again.run_due(MONDAY_7_MS + 9 * DAY_MS)
    assert len(sent) == 2, "what was due while the server was away is sent when it is back"


def test_everybody_with_jobs_gets_their_own_and_no_name_becomes_an_address(
    workspace: Workspace, sent: list[EmailMessage]
) -> None:
    to = ["{name}@example.org"]
    settings = plan({"of": "user", "to": to}, {"of": "project", "name": "x@evil.org,b", "to": to})
    digests = ScheduledDigests(workspace, settings.digests)
    digests.run_due(START_MS)
    digests.run_due(START_MS + 8 * DAY_MS)
    users = set(workspace.store.workloads(WorkloadQuery())["user"].to_pylist())
    assert len(users) > 1
    assert {mail["To"] for mail in sent} == {f"{user}@example.org" for user in users}


def test_a_mail_server_that_fails_is_tried_again_and_given_up_after_a_day(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def refuse(self: Mail, message: EmailMessage) -> None:
        tried.append(message)
        raise Unavailable("The mail server did not take it.")

    monkeypatch.setattr(Mail, "send", refuse)
    digests = ScheduledDigests(workspace, plan({"of": "site"}).digests)
    digests.run_due(MONDAY_7_MS - HOUR_MS)
    digests.run_due(MONDAY_7_MS)
    digests.run_due(MONDAY_7_MS + MINUTE_MS)
    digests.run_due(MONDAY_7_MS + RETRY_MS)
    assert len(tried) == 2
    (told,) = digests.list_documents()
    assert told.error == "The mail server did not take it."
    assert told.sent_ms is None
    digests.run_due(MONDAY_7_MS + PATIENCE_MS + 1)
    digests.run_due(MONDAY_7_MS + PATIENCE_MS + 2 * RETRY_MS)
    assert len(tried) == 3


def test_a_dry_run_sends_nothing(workspace: Workspace, sent: list[EmailMessage]) -> None:
    digests = ScheduledDigests(workspace, plan({"of": "site"}).digests, dry_run=True)
    digests.run_due(MONDAY_7_MS - HOUR_MS)
    digests.run_due(MONDAY_7_MS)
    assert sent == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"of": "planet"}, "planet"),
        ({"weekday": "someday"}, "someday"),
        ({"hour": 24}, "0 to 23"),
        ({"receiver": "pager"}, "pager"),
        ({"to": ["nobody"]}, "mail addresses"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_plan_is_refused_with_what_is_allowed(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        plan(entry)


def test_the_same_digest_is_not_planned_twice() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        plan({"of": "site"}, {"of": "site", "hour": 9})

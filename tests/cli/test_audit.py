"""``marey audit`` reads the record's files, or asks the server that writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marey.app.audit.audit_documents import AuditKind
from marey.app.audit.audit_log import AuditEvent, AuditLog, get_audit_folder
from marey.cli import main
from marey.model.times import format_time
from marey.store.holder import write_address
from tests.api.conftest import SmallService
from tests.api.running import running
from tests.signed_in import OWNER_KEY, owner_access

NOW_MS = 1_794_182_400_000


def fill(log: AuditLog) -> None:
    for at, user in enumerate(("ada", "ben", "ada")):
        after: dict[str, str | int | float | bool | None] = {"enabled": False}
        change = AuditEvent(AuditKind.CHANGE, user, object=f"rules/{at}", after=after)
        log.record(change, NOW_MS + at * 1000)
    log.record(AuditEvent(AuditKind.REFUSAL, "ben", status=403), NOW_MS + 9000)


def ask(store: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert main(["audit", "--store", str(store), *words, "--json"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_the_files_are_read_where_no_server_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "site.duckdb"
    assert main(["audit", "--store", str(store)]) == 3
    log = AuditLog(get_audit_folder(store))
    fill(log)
    log.close()
    capsys.readouterr()
    assert [row["object"] for row in ask(store, capsys, "--user", "ada")] == ["rules/2", "rules/0"]
    assert [row["status"] for row in ask(store, capsys, "--kind", "refusal")] == [403]
    early = ask(store, capsys, "--to", format_time(NOW_MS + 1000), "--limit", "9")
    assert [row["after"] for row in early] == [{"enabled": False}]
    assert ask(store, capsys, "--from", format_time(NOW_MS + 60_000)) == []
    assert main(["audit", "--store", str(store), "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_a_running_server_is_asked_and_decides_who_is_an_admin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "site.duckdb"
    small = SmallService()
    small.service.audit = AuditLog()
    fill(small.service.audit)
    with running(small.service, access=owner_access(mode="token")) as url:
        write_address(store, url)
        monkeypatch.setenv("MAREY_TOKEN", OWNER_KEY)
        assert len(ask(store, capsys, "--kind", "change")) == 3
        monkeypatch.setenv("MAREY_TOKEN", "nobody-has-this")
        assert main(["audit", "--store", str(store)]) != 0
    small.service.stop()

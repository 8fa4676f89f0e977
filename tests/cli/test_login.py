"""Commands that sign in: a token in a file for its user alone, shown to that server alone."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from marey.api.guard import Access
from marey.app.access.kept_sign_ins import VARIABLE, normalise_address
from marey.app.collect.loop import CollectRules
from marey.app.service import Parts, Service
from marey.cli import main
from marey.cli.account import login
from marey.model.access.identity import Identity, Role
from marey.model.errors import InvalidInput
from marey.model.times import HOUR_MS
from marey.store.embedded.embedded_store import open_store
from tests.api.running import running
from tests.app.small_cluster import TICK_MS, HandClock, SmallSource
from tests.signed_in import owner_access

ADA = Identity("ada", Role.RESEARCHER)
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def access() -> Access:
    return owner_access(mode="token")


@pytest.fixture(scope="module")
def server(access: Access) -> Iterator[str]:
    rules = CollectRules(TICK_MS, 5_000, 60_000)
    clock = HandClock()
    service = Service(Parts(open_store(None), [SmallSource()], clock, rules))
    for _ in range(8):
        service.collector.tick()
        clock.advance()
    with running(service, access=access) as url:
        yield url
    service.stop()


@pytest.fixture
def run(
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a command of somebody who has a file of sign-ins; its JSON answer."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "marey" / "sign-ins.json"))
    monkeypatch.chdir(tmp_path)

    def run_command(*words: str, typed: str = "", status: int = 0) -> Any:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert main([*words, "--server", server, "--json"]) == status
        said = capsys.readouterr().out
        return json.loads(said) if said else None

    return run_command


def make_token(access: Access, *scopes: str) -> str:
    text, _ = access.control.tokens.create(ADA, "tests", scopes=scopes, life_ms=HOUR_MS)
    return text


def test_a_command_signs_in_with_a_token_and_out_again(
    run: Run, access: Access, tmp_path: Path
) -> None:
    token = make_token(access, "account", "contribute")
    signed_in = run("login", "--with-token", typed=f"{token}\n")
    assert (signed_in["user"], signed_in["role"]) == ("ada", "researcher")
    kept = tmp_path / "marey" / "sign-ins.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert run("whoami")["user"] == "ada"
    made = run("token", "create", "nightly", "--life", "1h")
    assert made["row"]["name"] in {row["name"] for row in run("token", "list")}
    assert run("token", "revoke", made["row"]["id"])
    assert run("logout")["revoked"] is True
    assert run("whoami")["user"] == ""
    # Revoked at the server, not only forgotten here.
    assert access.control.tokens.find(token) is None
    run("logout", status=3)
    run("login", "--with-token", typed="wrong\n", status=8)


READING: list[tuple[str, ...]] = [
    ("workloads",),
    ("workload", "1"),
    ("series", "--workload", "1"),
    ("stats", "--workload", "1"),
    ("histograms", "--workload", "1"),
    ("progress", "1"),
    ("events",),
    ("summary",),
    ("queue", "list"),
    ("digest", "--user", "ada"),
    ("rules", "list"),
    ("rules", "explain", "idle-gpus"),
    ("rules", "test", "util mean < 101%"),
    ("rules", "backtest", "idle-gpus", "--since", "1d"),
    ("findings",),
    ("findings", "--waste", "user"),
    ("diagnose", "1"),
]


def test_reading_commands_ask_a_server_as_whoever_signed_in(
    run: Run, access: Access, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in READING:
        # Nobody is signed in here.
        assert main([*words, "--server", server, "--json"]) == 8, words
    run("login", "--with-token", typed=make_token(access, "contribute"))
    for words in READING:
        assert main([*words, "--server", server, "--json"]) == 0, words
        said = capsys.readouterr()
        assert json.loads(said.out) is not None
        assert f"Asking {server} as ada (researcher)." in said.err


def test_the_server_may_stand_in_the_environment(
    run: Run, access: Access, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("login", "--with-token", typed=make_token(access, "read"))
    monkeypatch.setenv("MAREY_SERVER", server)
    assert main(["workloads", "--json"]) == 0
    # A store that is named is meant.
    assert main(["workloads", "--json", "--store", "nothing.duckdb"]) == 7
    # What needs nobody's answer asks nobody.
    monkeypatch.setenv("MAREY_SERVER", "http://127.0.0.1:1")
    file = tmp_path / "rules.toml"
    file.write_text('[[rule]]\nid = "low"\nwhen = "util mean < 5%"\n')
    assert main(["rules", "check", str(file), "--json"]) == 0
    with pytest.raises(SystemExit):
        main(["workloads", "--server", "http://marey.example.org"])


def test_a_file_that_others_may_read_is_not_believed(
    run: Run, access: Access, tmp_path: Path
) -> None:
    run("login", "--with-token", typed=make_token(access, "read"))
    os.chmod(tmp_path / "marey" / "sign-ins.json", 0o644)
    run("whoami", status=2)


def test_a_command_signs_in_by_a_code_that_its_user_types(
    run: Run, access: Access, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = {"Authorization": f"Bearer {make_token(access, 'account', 'contribute')}"}

    def confirm(_: float) -> None:
        (code,) = access.control.commands._held
        httpx.post(
            f"{server}/api/v1/sign-in/commands/confirm", json={"code": code}, headers=page
        ).raise_for_status()

    monkeypatch.setattr(login.time, "sleep", confirm)
    assert run("login")["user"] == "ada"
    assert run("whoami")["permissions"] == sorted(
        ["account", "contribute", "progress:write", "read"]
    )


@pytest.mark.parametrize("address", ["http://marey.example.org", "ftp://x", "http://10.0.0.1:8600"])
def test_a_token_is_not_sent_where_others_listen(address: str) -> None:
    with pytest.raises(InvalidInput):
        normalise_address(address)
    assert normalise_address("Marey.example.org/x/") == "https://marey.example.org/x"

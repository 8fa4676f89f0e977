"""marey.toml: what is wrong is refused with file, line, key, value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.app.access.access_control import check_access
from marey.app.assembly import open_service
from marey.app.settings.access_settings import NOBODY, AccessSettings
from marey.app.settings.configuration import (
    SOURCE_KINDS,
    TABLES,
    Configuration,
    ServerSettings,
    SimulatedSettings,
    StoreSettings,
    load_configuration,
    read_access_token,
)
from marey.model.access.identity import Privacy, Role
from marey.model.errors import InvalidInput
from marey.model.settings.settings_reader import list_settings
from marey.model.times import DAY_MS, parse_time

DOCS = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def load(tmp_path: Path, text: str) -> Configuration:
    path = tmp_path / "marey.toml"
    path.write_text(text)
    return load_configuration(path)


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    configuration = load(tmp_path, "")
    assert configuration.server == ServerSettings()
    assert configuration.server.port == 8600


def test_every_setting_is_read(tmp_path: Path) -> None:
    configuration = load(
        tmp_path,
        """
        [server]
        host = "::1"
        port = 0
        [store]
        path = "a.duckdb"
        retention = "7d"
        [[source]]
        kind = "simulated"
        gpus = 64
        until = "2026-11-13T14:00Z"
        speed = 2
        """,
    )
    assert configuration.server.host == "::1"
    assert configuration.store == StoreSettings("a.duckdb", 7 * DAY_MS)
    friday = parse_time("2026-11-13T14:00Z")
    assert configuration.sources == (SimulatedSettings(gpus=64, speed=2.0, until_ms=friday),)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[server]\nport = 70000", 2, ["server.port", "70000", "0 to 65535"]),
        ("[server]\nport = true", 2, ["server.port", "0 to 65535"]),
        ("\n\n[server]\n\nprot = 1", 5, ["server.prot", "did you mean 'port'"]),
        ("[sever]\n", 1, ["sever", "did you mean 'server'"]),
        ('[server]\nhost = "example.org"', 2, ["server.host", "example.org", "IP address"]),
        ('[[source]]\nkind = "simulated"\nuntil = "soon"', 3, ["until", "soon", "a time"]),
        ('[store]\npath = ""', 2, ["store.path", "a path"]),
        ('[store]\nretention = "soon"', 2, ["store.retention", "soon", "30d"]),
        ('[store]\nretention = "5m"', 2, ["store.retention", "5m", "1h"]),
        ("[collect]\ninterval = 15", 2, ["collect.interval", "15", "a duration"]),
        ("[[source]]\ngpus = 8", 1, ["source[0]", "has no kind", "simulated"]),
        ('[[source]]\nkind = "slrm"', 2, ["source[0].kind", "slrm", "simulated"]),
        (
            '[[source]]\nkind = "simulated"\n[[source]]\nkind = "simulated"\nname = "b"\ngpus = 1',
            6,
            ["source[1].gpus", "has 1", "8 to 100000"],
        ),
        ('[[source]]\nkind = "simulated"\n[[source]]\nkind = "simulated"', 3, ["taken"]),
        ("[source]\nkind = 1", 1, ["[[source]]"]),
        ("server = 3", 1, ["server", "a table"]),
        ('[[source]]\nkind = "simulated"\nspeed = nan', 3, ["source[0].speed", "10000"]),
        (f'[store]\npath = "{"x" * 2000}"', 2, ["store.path", "2000 characters"]),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, text: str, line: int, words: list[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert f"marey.toml, line {line}:" in message
    for word in words:
        assert word in message
    assert len(message) < 600


def test_what_is_not_toml_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"marey\.toml: not valid TOML: .*line 2"):
        load(tmp_path, "[server]\nport = \n")


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_configuration(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="UTF-8"):
        load_configuration(tmp_path / "b.toml")


def test_every_setting_is_documented() -> None:
    text = DOCS.read_text()
    for table, kind in {**TABLES, **SOURCE_KINDS}.items():
        assert f"`[{table}]`" in text or f'`kind = "{table}"`' in text
        for key, setting in list_settings(kind).items():
            rows = [line for line in text.splitlines() if line.startswith(f"| `{key}` |")]
            assert any(setting.takes in row and setting.meaning in row for row in rows), key
            assert any(setting.default_text in row for row in rows), key


def test_a_public_address_without_authentication_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"Refused to listen on 0\.0\.0\.0.*token"):
        check_access(Configuration(server=ServerSettings(host="0.0.0.0")))
    assert check_access(Configuration()) == "none"
    assert check_access(Configuration(server=ServerSettings(host="::1"))) == "none"


def test_a_token_comes_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", "0123456789abcdef")
    public = ServerSettings(host="0.0.0.0", token_env="SITE_TOKEN")
    assert check_access(Configuration(server=public)) == "token"
    assert read_access_token(public) == "0123456789abcdef"
    (tmp_path / "token").write_text("fedcba9876543210\n")
    assert (
        read_access_token(ServerSettings(token_file=str(tmp_path / "token"))) == "fedcba9876543210"
    )
    monkeypatch.setenv("SITE_TOKEN", "short")
    with pytest.raises(InvalidInput, match="SITE_TOKEN is too short"):
        read_access_token(public)
    with pytest.raises(InvalidInput, match="token_file"):
        read_access_token(ServerSettings(token_file=str(tmp_path / "none")))


def test_a_simulated_source_stands_alone(tmp_path: Path) -> None:
    configuration = load(
        tmp_path,
        '[[source]]\nkind = "simulated"\nname = "a"\n[[source]]\nkind = "simulated"\nname = "b"\n',
    )
    with pytest.raises(InvalidInput, match="own clock"):
        open_service(configuration)


@pytest.mark.parametrize(
    "line",
    [
        'kind = "prometheus"\nurl = "http://ada:hunter2@prometheus:9090"',
        'kind = "prometheus"\nurl = "https://ada:hunter2/x@prometheus:9090"',
        'kind = "dcgm"\nendpoints = ["n1:9400", "ada:hunter2@n2:9400"]',
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(line: str, tmp_path: Path) -> None:
    path = tmp_path / "marey.toml"
    path.write_text(f"[[source]]\n{line}\n")
    with pytest.raises(InvalidInput) as refused:
        load_configuration(path)
    assert "…@" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_shares_of_projects_are_read(tmp_path: Path) -> None:
    text = '[queue.shares]\nvision = 3\n"climate.model" = 1.5\n'
    assert load(tmp_path, text).queue.shares == {"vision": 3.0, "climate.model": 1.5}


@pytest.mark.parametrize("weight", ["0", "-1", '"much"', "true", "nan", "inf"])
def test_a_wrong_share_is_refused_with_its_line(tmp_path: Path, weight: str) -> None:
    text = f"[queue.shares]\nvision = 3\n\ntext = {weight}\n"
    expected = "line 4: queue.shares.text: has .*; allowed: a table of project = weight above 0"
    with pytest.raises(InvalidInput, match=expected):
        load(tmp_path, text)


def test_shares_that_are_no_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"line 2: queue\.shares: has 3; allowed: a table"):
        load(tmp_path, "[queue]\nshares = 3\n")


def test_the_words_of_the_file_are_those_of_roles_and_privacy() -> None:
    settings = list_settings(AccessSettings)
    assert set(settings["privacy"].schema["enum"]) == {mode.value for mode in Privacy}
    roles = {NOBODY, *(role.value for role in Role)}
    assert set(settings["default_role"].schema["enum"]) == roles

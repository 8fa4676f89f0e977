"""The published schema of marey.toml: complete, and of the same mind as the parser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from marey.app.settings.configuration import SOURCE_KINDS, TABLES, read_configuration
from marey.app.settings.configuration_schema import make_configuration_schema
from marey.cli import main
from marey.model.errors import InvalidInput
from marey.model.settings.setting_types import DURATION_PATTERN
from marey.model.settings.settings_reader import Setting, list_settings
from marey.model.settings.toml_lines import TomlFile

PUBLISHED = Path(__file__).resolve().parents[3] / "docs" / "marey.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(make_configuration_schema())


def parsed(document: dict[str, Any]) -> bool:
    try:
        read_configuration(TomlFile("marey.toml", document))
    except InvalidInput:
        return False
    return True


def every_key() -> Iterator[tuple[str, str, Setting]]:
    for table, kind in {**TABLES, **SOURCE_KINDS}.items():
        for key, setting in list_settings(kind).items():
            yield table, key, setting


def document_with(table: str, key: str, value: Any) -> dict[str, Any]:
    if table in TABLES:
        return {table: {key: value}}
    return {"source": [{"kind": table, key: value}]}


def candidates(setting: Setting) -> list[Any]:
    """Values at and beyond the bounds, of every type, and hostile ones."""
    schema = setting.schema
    low, high = schema.get("minimum", 0), schema.get("maximum", 10)
    words = ["", "x", "x" * 256, "x" * 257, "127.0.0.1", "::1", "localhost", "0.0.0.0"]
    words += ["http://h:1", "https://h/p?q", "ftp://h", "http://u:p@h", "http://", "u@h", "h:9400"]
    words += ["15s", "5 parsecs", "s", *schema.get("enum", [])]
    numbers = [low, high, low - 1, high + 1, (low + high) // 2, 0.5, -0.5]
    lists: list[Any] = [[], ["a"], ["http://a:9400"], ["u:p@a"], [1], [""], [["a"]]]
    return [*words, *numbers, *lists, True, False, {}, {"a": 1}]


def test_the_published_schema_is_what_the_code_makes_now() -> None:
    assert json.loads(PUBLISHED.read_text()) == make_configuration_schema()


def test_the_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(make_configuration_schema())


def test_the_schema_has_every_key_with_its_meaning_and_default() -> None:
    schema = make_configuration_schema()
    for table, key, setting in every_key():
        place = schema["properties"].get(table) or schema["$defs"][f"source.{table}"]
        described = place["properties"][key]
        assert setting.meaning in described["description"]
        assert setting.takes in described["description"]
        assert "default" in described


def test_every_default_is_allowed_by_the_schema_and_the_parser() -> None:
    schema = make_configuration_schema()
    for table, key, _ in every_key():
        place = schema["properties"].get(table) or schema["$defs"][f"source.{table}"]
        document = document_with(table, key, place["properties"][key]["default"])
        assert VALIDATOR.is_valid(document), (table, key)
        assert parsed(document), (table, key)


@pytest.mark.parametrize(
    ("table", "key", "setting"), list(every_key()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_schema_and_parser_agree_on_every_value(table: str, key: str, setting: Setting) -> None:
    for value in candidates(setting):
        document = document_with(table, key, value)
        by_schema, by_parser = VALIDATOR.is_valid(document), parsed(document)
        if setting.schema.get("pattern") == DURATION_PATTERN and by_schema:
            # How long is allowed cannot be said in a schema; the parser knows.
            continue
        assert by_schema == by_parser, (key, value)


@pytest.mark.parametrize(
    "document",
    [
        {"sever": {}},
        {"server": {"prot": 1}},
        {"server": 3},
        {"source": {}},
        {"source": [{}]},
        {"source": [{"kind": "slrm"}]},
        {"source": [{"kind": "slurm", "gpus": 8}]},
        {"source": [3]},
    ],
)
def test_what_the_parser_does_not_know_the_schema_refuses(document: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(document)
    assert not parsed(document)


def test_no_key_takes_a_secret_itself_and_each_can_come_from_environment_or_file() -> None:
    for table, kind in {**TABLES, **SOURCE_KINDS}.items():
        keys = set(list_settings(kind))
        for secret in ("token", "password", "secret"):
            assert secret not in keys, table
            assert (f"{secret}_env" in keys) == (f"{secret}_file" in keys), table


def test_the_command_prints_the_schema_and_checks_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == make_configuration_schema()
    path = tmp_path / "marey.toml"
    path.write_text('[[source]]\nkind = "slurm"\n')
    assert main(["config", "check", "--config", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["valid"] is True
    assert document["sources"] == [{"name": "slurm", "cluster": "default"}]
    path.write_text('[[source]]\nkind = "slrm"\n')
    assert main(["config", "check", "--config", str(path)]) == 2
    assert "line 2" in capsys.readouterr().err

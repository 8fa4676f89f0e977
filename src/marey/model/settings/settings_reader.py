"""Tables of settings files → msgspec structs; what is wrong is refused with its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec

from marey.model.errors import InvalidInput, allowed, shown, unknown
from marey.model.settings.setting_types import DURATION_PATTERN, SettingsTable
from marey.model.settings.toml_lines import Place, TomlFile
from marey.model.times import format_duration

Table = TypeVar("Table", bound=SettingsTable)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a table: what it takes, what it means, and its default."""

    name: str
    type: Any
    takes: str
    meaning: str
    default: Any
    parse: Callable[[str], object] | None
    # As JSON Schema, without meaning and default.
    schema: Mapping[str, Any]

    @property
    def required(self) -> bool:
        """Return whether the key has no default."""
        return self.default is msgspec.NODEFAULT

    @property
    def default_text(self) -> str:
        """Return the default as the file would say it."""
        if self.schema.get("pattern") == DURATION_PATTERN:
            return format_duration(self.default) if self.default else "0s"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, tuple):
            return str(list(self.default))
        return str(self.default) if self.default not in (None, "") else '""'


@cache
def list_settings(kind: type[SettingsTable]) -> Mapping[str, Setting]:
    """Return the settings of a table by their keys in the file."""
    return {entry.encode_name: _describe_setting(entry) for entry in msgspec.structs.fields(kind)}


def _describe_setting(entry: msgspec.structs.FieldInfo) -> Setting:
    described = msgspec.inspect.type_info(entry.type)
    assert isinstance(described, msgspec.inspect.Metadata), entry.name
    extra = described.extra or {}
    schema = dict(extra.get("schema") or msgspec.json.schema(entry.type))
    schema.pop("description", None)
    made = entry.default_factory is not msgspec.NODEFAULT
    return Setting(
        name=entry.name,
        type=entry.type,
        takes=extra["takes"],
        meaning=(described.extra_json_schema or {})["description"],
        default=entry.default_factory() if made else entry.default,
        parse=extra.get("parse"),
        schema=schema,
    )


def read_tables(file: TomlFile, key: str) -> list[Any]:
    """Return the entries of ``[[key]]``; none where there is no such table."""
    entries = file.document.get(key, [])
    if not isinstance(entries, list):
        raise file.wrong((key,), f"is one table; write it as [[{key}]].")
    return entries


def read_table_by_kind(
    file: TomlFile, place: Place, kinds: Mapping[str, type[Table]], entry: Any
) -> Table:
    """Return a table whose ``kind`` says which settings it has."""
    if not isinstance(entry, dict):
        raise file.wrong(place, f"is not a table; write it as [[{place[0]}]].")
    kind = entry.get("kind")
    if kind is None:
        raise file.wrong(place, f"has no kind; allowed: {allowed(kinds)}.")
    if not isinstance(kind, str) or kind not in kinds:
        raise file.wrong((*place, "kind"), unknown("kind", kind, kinds))
    rest = {key: value for key, value in entry.items() if key != "kind"}
    return read_table(file, place, kinds[kind], rest)


def read_table(file: TomlFile, place: Place, kind: type[Table], entry: Any) -> Table:
    """Return the settings of a table; errors name file, line, key, value and what is allowed."""
    if not isinstance(entry, dict):
        raise file.wrong(place, f"is {shown(entry)}; allowed: a table.")
    settings = list_settings(kind)
    for key in entry:
        if key not in settings:
            raise file.wrong((*place, key), unknown("key", key, settings))
    for key, setting in settings.items():
        if setting.required and key not in entry:
            raise file.wrong(place, f"has no {key}; allowed: {setting.takes}.")
    return kind(
        **{
            settings[key].name: _read_value(file, (*place, key), settings[key], value)
            for key, value in entry.items()
        }
    )


def _read_value(file: TomlFile, place: Place, setting: Setting, value: Any) -> Any:
    try:
        return _convert(setting, value)
    except (msgspec.ValidationError, ValueError, InvalidInput):
        if isinstance(value, dict) and setting.schema.get("type") == "object":
            place, value = _find_wrong_entry(place, setting, value)
        problem = f"has {_hide_secret(value)}; allowed: {setting.takes}."
        raise file.wrong(place, problem) from None


def _convert(setting: Setting, value: Any) -> Any:
    if setting.parse:
        value = _parse_texts(setting.parse, value)
    return msgspec.convert(value, setting.type)


def _parse_texts(parse: Callable[[str], object], value: Any) -> Any:
    if isinstance(value, list):
        return [_parse_texts(parse, one) for one in value]
    if not isinstance(value, str):
        raise ValueError
    return parse(value)


def _find_wrong_entry(
    place: Place, setting: Setting, value: Mapping[str, Any]
) -> tuple[Place, Any]:
    """Return which entry of a table of the site's own names is wrong."""
    for name, one in value.items():
        try:
            _convert(setting, {name: one})
        except msgspec.ValidationError:
            return (*place, name), one
    return place, value


def _hide_secret(value: Any) -> str:
    """Return a refused value as a message may quote it.

    What stands before an @ may be a password.
    """
    text = value if isinstance(value, str) else repr(value)
    before, sign, after = text.rpartition("@")
    scheme = before[: before.find("//") + 2] if "//" in before else ""
    return shown(f"{scheme}…@{after}" if sign else text)

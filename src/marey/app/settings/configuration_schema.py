"""``marey.toml`` as a JSON schema, made from the settings themselves: an editor can check it."""

from __future__ import annotations

from typing import Any

from marey.app.settings.configuration import SOURCE_KINDS, TABLES
from marey.model.settings.setting_types import DURATION_PATTERN, SettingsTable
from marey.model.settings.settings_reader import Setting, list_settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make_configuration_schema() -> dict[str, Any]:
    """Return the whole schema.

    Bounds of durations stand in descriptions, as JSON schema has none.
    """
    kinds = {f"source.{kind}": make_source_schema(kind) for kind in SOURCE_KINDS}
    tables = {name: make_table_schema(settings) for name, settings in TABLES.items()}
    sources = {
        "type": "array",
        "description": "One table per source; kind says which sort. Names must differ.",
        "items": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds]},
    }
    return {
        "$schema": DIALECT,
        "title": "marey.toml",
        "description": "Settings of a Marey server. Secrets are named by file or variable only.",
        "type": "object",
        "properties": {**tables, "source": sources},
        "additionalProperties": False,
        "$defs": kinds,
    }


def make_source_schema(kind: str) -> dict[str, Any]:
    """Return one kind of ``[[source]]``."""
    schema = make_table_schema(SOURCE_KINDS[kind])
    described = {"const": kind, "description": "The sort of source."}
    schema["properties"] = {"kind": described, **schema["properties"]}
    return {**schema, "required": ["kind"]}


def make_table_schema(kind: type[SettingsTable]) -> dict[str, Any]:
    """Return one table: its keys, what each takes and means, and its default."""
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip(),
        "properties": {
            key: make_key_schema(setting) for key, setting in list_settings(kind).items()
        },
        "additionalProperties": False,
    }


def make_key_schema(setting: Setting) -> dict[str, Any]:
    """Return one key."""
    default = setting.default
    if setting.schema.get("pattern") == DURATION_PATTERN:
        default = setting.default_text
    elif isinstance(default, tuple):
        default = list(default)
    elif default is None:
        default = ""
    description = f"{setting.meaning} Takes {setting.takes}."
    return {**setting.schema, "description": description, "default": default}

"""``marey.toml``: what a server may be told, as data; anything else is refused with its line."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marey.app.setting_kinds import (
    HOST,
    OPTIONAL_TEXT,
    TEXT,
    TEXTS,
    Setting,
    a_path,
    a_timeout,
    a_url,
    a_word,
    duration,
    one_of,
    setting,
    whole,
)
from marey.app.source_settings import (
    SOURCE_KINDS,
    DcgmSettings,
    PrometheusSettings,
    SimulatedSettings,
    SlurmSettings,
)
from marey.app.toml_lines import Place, TomlFile, read_toml
from marey.model.errors import InvalidInput, allowed, shown, unknown
from marey.model.times import DAY_MS, HOUR_MS, SECOND_MS

__all__ = [
    "SOURCE_KINDS",
    "TABLES",
    "CollectSettings",
    "Configuration",
    "DcgmSettings",
    "PrometheusSettings",
    "RulesSettings",
    "ServerSettings",
    "SimulatedSettings",
    "SlurmSettings",
    "StoreSettings",
    "access_token",
    "load_configuration",
    "read_configuration",
    "settings_of",
]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens."""

    host: str = setting(HOST, "an IP address or localhost", "Address to listen on.", "127.0.0.1")
    port: int = setting(
        whole(0, 65535), "0 to 65535", "Port to listen on; 0 takes a free one.", 8600
    )
    names: tuple[str, ...] = setting(
        TEXTS,
        "a list of host names",
        "Further names by which browsers may reach the server (`Host` header).",
        (),
        "[]",
    )
    token_env: str = setting(
        OPTIONAL_TEXT,
        "the name of an environment variable",
        "Variable that holds the access token; needed to listen beyond loopback.",
        "",
        '""',
    )
    token_file: str = setting(
        OPTIONAL_TEXT,
        "a path",
        "File that holds the access token, as another way than `token_env`.",
        "",
        '""',
    )

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where history is kept, and how long."""

    path: str = setting(TEXT, "a path", "The store's file; made if missing.", "marey.duckdb")
    retention_ms: int = setting(
        duration(HOUR_MS, 3650 * DAY_MS),
        "a duration from 1h to 3650d, such as 30d",
        "How long raw samples are kept; older ones are reduced to hourly sketches per GPU.",
        30 * DAY_MS,
        "30d",
    )
    sketch_retention_ms: int = setting(
        duration(HOUR_MS, 3650 * DAY_MS),
        "a duration from 1h to 3650d, such as 365d",
        "How long the hourly sketches are kept.",
        365 * DAY_MS,
        "365d",
    )
    samples: str = setting(
        one_of("embedded", "victoriametrics"),
        "embedded or victoriametrics",
        "Where samples are kept: in the store's file, or in VictoriaMetrics (see store.md); "
        "records are always in the file.",
        "embedded",
    )
    url: str = a_url("VictoriaMetrics, such as http://127.0.0.1:8428; of a cluster, vmselect.")
    write_url: str = a_url("Where samples are written, if not to `url`; of a cluster, vminsert.")
    site: str = setting(
        TEXT, "text", "Under this name (label `marey`) this Marey's samples are kept.", "marey"
    )
    token_env: str = a_word(
        "the name of an environment variable",
        "Variable that holds VictoriaMetrics' secret: user:password, or a bearer token.",
    )
    token_file: str = a_path("File that holds that secret, as another way than `token_env`.")
    timeout_ms: int = a_timeout(30, "How long one question to VictoriaMetrics may take.")
    spill: str = a_path(
        "Folder of samples that VictoriaMetrics has not confirmed; empty: `path` with .spill."
    )
    spill_limit_mb: int = setting(
        whole(1, 100_000_000),
        "1 to 100000000",
        "Megabytes that may wait there; beyond it, samples are refused and said to be.",
        4096,
    )
    settle_ms: int = setting(
        duration(0, HOUR_MS),
        "a duration from 0s to 1h, such as 20s",
        "A sample is confirmed by a query this long after it was sent, when a kill of "
        "VictoriaMetrics no longer loses it.",
        20 * SECOND_MS,
        "20s",
    )


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How the collect loop asks its sources."""

    interval_ms: int = setting(
        duration(SECOND_MS // 4, HOUR_MS),
        "a duration from 250ms to 1h, such as 15s",
        "Time between two ticks: every source is asked once per tick.",
        15 * SECOND_MS,
        "15s",
    )
    patience_ms: int = setting(
        duration(SECOND_MS, HOUR_MS),
        "a duration from 1s to 1h, such as 10s",
        "How long a tick waits for a slow source before it goes on without it.",
        10 * SECOND_MS,
        "10s",
    )
    stale_after_ms: int = setting(
        duration(SECOND_MS, DAY_MS),
        "a duration from 1s to 1d, such as 1m",
        "A source silent for longer is shown as stale, and values older than this are not shown.",
        60 * SECOND_MS,
        "1m",
    )


@dataclass(frozen=True, slots=True)
class RulesSettings:
    """Violation rules and who is told of what they find."""

    folder: str = setting(
        OPTIONAL_TEXT,
        "a path",
        "Rule file (TOML) or folder of them; a rule of the same id replaces a shipped one.",
        "",
        '""',
    )
    notify: str = setting(
        OPTIONAL_TEXT,
        "a path",
        "File with receivers and routes of notifications (see notify.md); none: nobody is told.",
        "",
        '""',
    )


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything a server is told."""

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    collect: CollectSettings = CollectSettings()
    sources: tuple[Any, ...] = ()
    rules: RulesSettings = RulesSettings()


# Table of the file → settings; ``[[source]]`` is read by its kind.
TABLES: Mapping[str, type[Any]] = {
    "server": ServerSettings,
    "store": StoreSettings,
    "collect": CollectSettings,
    "rules": RulesSettings,
}


def load_configuration(path: Path) -> Configuration:
    """The configuration in this file; errors name file, line, key, value and what is allowed."""
    return read_configuration(read_toml(path))


def read_configuration(file: TomlFile) -> Configuration:
    """The configuration in a parsed file."""
    known = [*TABLES, "source"]
    for key in file.document:
        if key not in known:
            raise file.wrong((key,), unknown("table", key, known))
    tables = {
        name: _read_table(file, (name,), kind, file.document.get(name, {}))
        for name, kind in TABLES.items()
    }
    sources = file.document.get("source", [])
    if not isinstance(sources, list):
        raise file.wrong(("source",), "is one table; write it as [[source]].")
    read = tuple(_read_source(file, i, entry) for i, entry in enumerate(sources))
    _refuse_same_names(file, read)
    return Configuration(
        tables["server"], tables["store"], tables["collect"], read, tables["rules"]
    )


def _read_source(file: TomlFile, index: int, entry: Any) -> Any:
    place: Place = ("source", index)
    if not isinstance(entry, dict):
        raise file.wrong(place, "is not a table; write it as [[source]].")
    kind = entry.get("kind")
    if kind is None:
        raise file.wrong(place, f"has no kind; allowed: {allowed(SOURCE_KINDS)}.")
    if not isinstance(kind, str) or kind not in SOURCE_KINDS:
        raise file.wrong((*place, "kind"), unknown("kind", kind, SOURCE_KINDS))
    rest = {key: value for key, value in entry.items() if key != "kind"}
    return _read_table(file, place, SOURCE_KINDS[kind], rest)


def _refuse_same_names(file: TomlFile, sources: Iterable[Any]) -> None:
    seen: set[str] = set()
    for index, source in enumerate(sources):
        if source.name in seen:
            raise file.wrong(
                ("source", index, "name"), f"'{source.name}' is taken by another source."
            )
        seen.add(source.name)


def _read_table(file: TomlFile, place: Place, kind: type[Any], entry: Any) -> Any:
    if not isinstance(entry, dict):
        raise file.wrong(place, f"is {shown(entry)}; allowed: a table.")
    settings = settings_of(kind)
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in settings:
            raise file.wrong((*place, key), unknown("key", key, settings))
        name, setting = settings[key]
        try:
            values[name] = setting.read(value)
        except ValueError:
            problem = f"has {_without_secret(value)}; allowed: {setting.takes}."
            raise file.wrong((*place, key), problem) from None
    return kind(**values)


def _without_secret(value: Any) -> str:
    """A refused value as a message may quote it: what stands before an @ may be a password."""
    text = value if isinstance(value, str) else repr(value)
    before, sign, after = text.rpartition("@")
    scheme = before[: before.find("//") + 2] if "//" in before else ""
    return shown(f"{scheme}…@{after}" if sign else text)


def settings_of(kind: type[Any]) -> dict[str, tuple[str, Setting]]:
    """Key in the file → (field, setting); a duration's ``_ms`` is not part of its key."""
    return {
        entry.name.removesuffix("_ms"): (entry.name, entry.metadata["setting"])
        for entry in dataclasses.fields(kind)
    }


def access_token(settings: ServerSettings) -> str | None:
    """The access token from the environment or a file; never from the configuration itself."""
    if settings.token_env:
        token = os.environ.get(settings.token_env, "").strip()
        where = f"the environment variable {settings.token_env}"
    elif settings.token_file:
        try:
            token = Path(settings.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidInput(
                f"server.token_file: {settings.token_file}: {error.strerror}."
            ) from None
        where = settings.token_file
    else:
        return None
    if len(token) < 16:
        raise InvalidInput(f"The access token in {where} is too short; allowed: 16 characters up.")
    return token

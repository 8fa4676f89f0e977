"""``marey.toml``: the settings of a server, as data; anything else is refused with its line."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marey.app.settings.access_settings import AccessSettings, OidcSettings, ProxySettings
from marey.app.settings.audit_settings import AuditSettings
from marey.app.settings.setting_kinds import (
    HOST,
    LINKS,
    NETWORKS,
    OPTIONAL_TEXT,
    ORIGINS,
    PREFIX,
    TEXT,
    TEXTS,
    WEIGHTS,
    Setting,
    WrongEntry,
    a_path,
    a_timeout,
    a_url,
    a_word,
    duration,
    one_of,
    setting,
    whole,
)
from marey.app.settings.source_settings import (
    SOURCE_KINDS,
    DcgmSettings,
    PrometheusSettings,
    SimulatedSettings,
    SlurmSettings,
    get_secret,
)
from marey.app.settings.toml_lines import Place, TomlFile, read_toml
from marey.model.errors import InvalidInput, allowed, shown, unknown
from marey.model.times import DAY_MS, HOUR_MS, SECOND_MS

__all__ = [
    "SOURCE_KINDS",
    "TABLES",
    "AccessSettings",
    "CollectSettings",
    "Configuration",
    "DcgmSettings",
    "OidcSettings",
    "PrometheusSettings",
    "ProxySettings",
    "QueueSettings",
    "RulesSettings",
    "ServerSettings",
    "SimulatedSettings",
    "SlurmSettings",
    "StoreSettings",
    "TracesSettings",
    "list_settings",
    "load_configuration",
    "read_access_token",
    "read_configuration",
]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens."""

    host: str = setting(
        HOST, "an IP address or localhost", "Address to listen on.", default="127.0.0.1"
    )
    port: int = setting(
        whole(0, 65535), "0 to 65535", "Port to listen on; 0 takes a free one.", default=8600
    )
    names: tuple[str, ...] = setting(
        TEXTS,
        "a list of host names",
        "Other host names that browsers may use for the server (`Host` header).",
        default=(),
        shown_as="[]",
    )
    token_env: str = setting(
        OPTIONAL_TEXT,
        "the name of an environment variable",
        "Variable with the administrator's token, which allows everything.",
        default="",
        shown_as='""',
    )
    token_file: str = setting(
        OPTIONAL_TEXT,
        "a path",
        "File with that token, instead of `token_env`.",
        default="",
        shown_as='""',
    )
    certificate: str = a_path(
        "PEM file with the certificate chain for TLS; reloaded when it changes and on SIGHUP."
    )
    private_key: str = a_path("PEM file with the certificate's private key, without a password.")
    behind_proxy: tuple[str, ...] = setting(
        NETWORKS,
        "a list of IP addresses or networks",
        "Reverse proxies in front of the server: what they forward is believed, and without a "
        "certificate nobody else reaches it over the network.",
        default=(),
        shown_as="[]",
    )
    path_prefix: str = setting(
        PREFIX,
        "a path such as /marey",
        "The path under which the proxy serves Marey.",
        default="",
        shown_as='""',
    )

    frame_origins: tuple[str, ...] = setting(
        ORIGINS,
        "a list of origins such as https://wall.example.org",
        "Pages of these origins may show the overview in an `<iframe>` (`/?wall=1`).",
        default=(),
        shown_as="[]",
    )
    links: tuple[str, ...] = setting(
        LINKS,
        "a list of templates (see jobs.md)",
        "Links to the site's own pages, on every page of a workload, user, project, partition, "
        "host or GPU.",
        default=(),
        shown_as="[]",
    )

    @property
    def loopback(self) -> bool:
        """Return whether only this machine can reach the server."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where history is kept, and how long."""

    path: str = setting(
        TEXT, "a path", "The store's file; created if missing.", default="marey.duckdb"
    )
    retention_ms: int = setting(
        duration(HOUR_MS, 3650 * DAY_MS),
        "a duration from 1h to 3650d, such as 30d",
        "How long raw samples are kept; older ones are reduced to hourly sketches per GPU.",
        default=30 * DAY_MS,
        shown_as="30d",
    )
    sketch_retention_ms: int = setting(
        duration(HOUR_MS, 3650 * DAY_MS),
        "a duration from 1h to 3650d, such as 365d",
        "How long the hourly sketches are kept.",
        default=365 * DAY_MS,
        shown_as="365d",
    )
    samples: str = setting(
        one_of("embedded", "victoriametrics"),
        "embedded or victoriametrics",
        "Where samples are kept: in the store's file, or in VictoriaMetrics (see store.md); "
        "records are always in the file.",
        default="embedded",
    )
    url: str = a_url("VictoriaMetrics, such as http://127.0.0.1:8428; for a cluster, vmselect.")
    write_url: str = a_url("Where samples are written, if not to `url`; for a cluster, vminsert.")
    site: str = setting(
        TEXT,
        "text",
        "Name (label `marey`) under which this server's samples are stored.",
        default="marey",
    )
    token_env: str = a_word(
        "the name of an environment variable",
        "Variable with VictoriaMetrics' secret: user:password, or a bearer token.",
    )
    token_file: str = a_path("File with that secret, instead of `token_env`.")
    timeout_ms: int = a_timeout(30, "How long one request to VictoriaMetrics may take.")
    spill: str = a_path(
        "Folder for samples that VictoriaMetrics has not confirmed yet; empty: `path` plus .spill."
    )
    spill_limit_mb: int = setting(
        whole(1, 100_000_000),
        "1 to 100000000",
        "Megabytes that may wait there; beyond this, samples are refused with an error.",
        default=4096,
    )
    settle_ms: int = setting(
        duration(0, HOUR_MS),
        "a duration from 0s to 1h, such as 20s",
        "A sample is confirmed by a query this long after it was sent, when a kill of "
        "VictoriaMetrics no longer loses it.",
        default=20 * SECOND_MS,
        shown_as="20s",
    )


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How the collect loop polls its sources."""

    interval_ms: int = setting(
        duration(SECOND_MS // 4, HOUR_MS),
        "a duration from 250ms to 1h, such as 15s",
        "Time between two ticks: every source is polled once per tick.",
        default=15 * SECOND_MS,
        shown_as="15s",
    )
    patience_ms: int = setting(
        duration(SECOND_MS, HOUR_MS),
        "a duration from 1s to 1h, such as 10s",
        "How long a tick waits for a slow source before continuing without it.",
        default=10 * SECOND_MS,
        shown_as="10s",
    )
    stale_after_ms: int = setting(
        duration(SECOND_MS, DAY_MS),
        "a duration from 1s to 1d, such as 1m",
        "A source silent for longer is shown as stale; older values are not shown.",
        default=60 * SECOND_MS,
        shown_as="1m",
    )


@dataclass(frozen=True, slots=True)
class RulesSettings:
    """Violation rules and who is notified of what they find."""

    folder: str = setting(
        OPTIONAL_TEXT,
        "a path",
        "Rule file (TOML), or a folder of them; a rule with the id of a built-in one replaces it.",
        default="",
        shown_as='""',
    )
    notify: str = setting(
        OPTIONAL_TEXT,
        "a path",
        "File with receivers and routes of notifications (see notify.md); empty: no notifications.",
        default="",
        shown_as='""',
    )


@dataclass(frozen=True, slots=True)
class TracesSettings:
    """Profiler traces: where they are looked for, and how long what was sent is kept."""

    folders: tuple[str, ...] = setting(
        TEXTS,
        "a list of paths",
        "Folders whose subfolders are shown as runs; nothing outside them is ever read.",
        default=(),
        shown_as="[]",
    )
    retention_ms: int = setting(
        duration(HOUR_MS, 3650 * DAY_MS),
        "a duration from 1h to 3650d, such as 90d",
        "How long uploaded runs are kept; of runs in folders only the cached tables go.",
        default=90 * DAY_MS,
        shown_as="90d",
    )
    file_limit_mb: int = setting(
        whole(1, 1_000_000),
        "1 to 1000000",
        "Maximum size of one uploaded file, in megabytes.",
        default=4096,
    )
    total_limit_mb: int = setting(
        whole(1, 100_000_000),
        "1 to 100000000",
        "Maximum size of all uploaded traces and their tables, in megabytes.",
        default=65536,
    )
    user_limit_mb: int = setting(
        whole(1, 100_000_000),
        "1 to 100000000",
        "Maximum size of one user's uploaded traces, in megabytes; admins have no such limit.",
        default=32768,
    )


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The queue: what share of the cluster each project is meant to have."""

    shares: Mapping[str, float] = setting(
        WEIGHTS,
        "a table of project = weight above 0",
        "What each project is meant to have of the cluster, as weights; a project that is not "
        "named has no share. None: the scheduler's own (sshare), else equal shares.",
        default={},
        shown_as="{}",
    )


@dataclass(frozen=True, slots=True)
class Configuration:
    """All settings of a server."""

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    collect: CollectSettings = CollectSettings()
    sources: tuple[Any, ...] = ()
    rules: RulesSettings = RulesSettings()
    traces: TracesSettings = TracesSettings()
    queue: QueueSettings = field(default_factory=QueueSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)
    oidc: OidcSettings = field(default_factory=OidcSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)


# Table of the file → settings; ``[[source]]`` is read by its kind.
TABLES: Mapping[str, type[Any]] = {
    "server": ServerSettings,
    "store": StoreSettings,
    "collect": CollectSettings,
    "rules": RulesSettings,
    "traces": TracesSettings,
    "queue": QueueSettings,
    "access": AccessSettings,
    "proxy": ProxySettings,
    "oidc": OidcSettings,
    "audit": AuditSettings,
}


def load_configuration(path: Path) -> Configuration:
    """Return the configuration in this file.

    Errors name file, line, key, value and what is allowed.
    """
    return read_configuration(read_toml(path))


def read_configuration(file: TomlFile) -> Configuration:
    """Return the configuration in a parsed file."""
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
    return Configuration(sources=read, **tables)


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
    settings = list_settings(kind)
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in settings:
            raise file.wrong((*place, key), unknown("key", key, settings))
        name, setting = settings[key]
        try:
            values[name] = setting.read(value)
        except WrongEntry as wrong:
            problem = f"has {shown(value[wrong.name])}; allowed: {setting.takes}."
            raise file.wrong((*place, key, wrong.name), problem) from None
        except ValueError:
            problem = f"has {_hide_secret(value)}; allowed: {setting.takes}."
            raise file.wrong((*place, key), problem) from None
    return kind(**values)


def _hide_secret(value: Any) -> str:
    """Return a refused value as a message may quote it.

    What stands before an @ may be a password.
    """
    text = value if isinstance(value, str) else repr(value)
    before, sign, after = text.rpartition("@")
    scheme = before[: before.find("//") + 2] if "//" in before else ""
    return shown(f"{scheme}…@{after}" if sign else text)


def list_settings(kind: type[Any]) -> dict[str, tuple[str, Setting]]:
    """Return key in the file → (field, setting); a duration's ``_ms`` is not part of its key."""
    return {
        entry.name.removesuffix("_ms"): (entry.name, entry.metadata["setting"])
        for entry in dataclasses.fields(kind)
    }


def read_access_token(settings: ServerSettings) -> str | None:
    """Return the access token from the environment or a file.

    Never from the configuration itself.
    """
    secret = get_secret(settings, "server.token_file")
    if not secret.given:
        return None
    token = secret.read()
    if len(token) < 16:
        place = settings.token_env or settings.token_file
        raise InvalidInput(f"The access token in {place} is too short; allowed: 16 characters up.")
    return token

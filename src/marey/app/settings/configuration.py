"""``marey.toml``: the settings of a server, as data; anything else is refused with its line."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from marey.app.settings.access_settings import AccessSettings, OidcSettings, ProxySettings
from marey.app.settings.audit_settings import AuditSettings
from marey.app.settings.site_links import LINK_PATTERN, check_link
from marey.app.settings.source_settings import (
    SOURCE_KINDS,
    DcgmSettings,
    PrometheusSettings,
    SimulatedSettings,
    SlurmSettings,
    get_secret,
)
from marey.model.errors import InvalidInput, unknown
from marey.model.settings.setting_types import (
    Host,
    Networks,
    OptionalText,
    SettingsTable,
    Text,
    Texts,
    Url,
    describe,
    describe_path,
    describe_url,
    describe_variable,
    limit,
    limit_duration,
    limit_timeout,
    match_pattern,
    parse_with,
)
from marey.model.settings.settings_reader import read_table, read_table_by_kind, read_tables
from marey.model.settings.toml_lines import TomlFile, read_toml
from marey.model.times import DAY_MS, SECOND_MS

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
    "load_configuration",
    "read_access_token",
    "read_configuration",
]

# A path below which a proxy shows the server: /marey, /node/login1/8600.
PREFIX_PATTERN = r"(/[A-Za-z0-9_.~-]*[A-Za-z0-9_~-])+"
ORIGIN_PATTERN = r"https?://[A-Za-z0-9.*_-]+(:[0-9]{1,5})?"
MOST_WEIGHT = 1_000_000_000

Prefix = Annotated[
    OptionalText,
    match_pattern(PREFIX_PATTERN),
    Meta(extra_json_schema={"pattern": f"^({PREFIX_PATTERN})?$"}),
]
Origins = Annotated[
    tuple[Annotated[Text, Meta(pattern=f"^{ORIGIN_PATTERN}$")], ...], match_pattern(ORIGIN_PATTERN)
]
Links = Annotated[tuple[Annotated[Text, Meta(pattern=LINK_PATTERN)], ...], parse_with(check_link)]
Weights = Mapping[Text, Annotated[float, Meta(gt=0, le=MOST_WEIGHT)]]


class ServerSettings(SettingsTable, frozen=True):
    """Where the server listens."""

    host: Annotated[Host, describe("Address to listen on.", "an IP address or localhost")] = (
        "127.0.0.1"
    )
    port: Annotated[int, limit(0, 65535, "Port to listen on; 0 takes a free one.")] = 8600
    names: Annotated[
        Texts,
        describe(
            "Other host names that browsers may use for the server (`Host` header).",
            "a list of host names",
        ),
    ] = ()
    token_env: Annotated[
        OptionalText,
        describe_variable("Variable with the administrator's token, which allows everything."),
    ] = ""
    token_file: Annotated[
        OptionalText, describe_path("File with that token, instead of `token_env`.")
    ] = ""
    certificate: Annotated[
        OptionalText,
        describe_path(
            "PEM file with the certificate chain for TLS; reloaded when it changes and on SIGHUP."
        ),
    ] = ""
    private_key: Annotated[
        OptionalText,
        describe_path("PEM file with the certificate's private key, without a password."),
    ] = ""
    behind_proxy: Annotated[
        Networks,
        describe(
            "Reverse proxies in front of the server: what they forward is believed, and"
            " without a certificate nobody else reaches it over the network.",
            "a list of IP addresses or networks",
        ),
    ] = ()
    path_prefix: Annotated[
        Prefix, describe("The path under which the proxy serves Marey.", "a path such as /marey")
    ] = ""

    frame_origins: Annotated[
        Origins,
        describe(
            "Pages of these origins may show the overview in an `<iframe>` (`/?wall=1`).",
            "a list of origins such as https://wall.example.org",
        ),
    ] = ()
    links: Annotated[
        Links,
        describe(
            "Links to the site's own pages, on every page of a workload, user, project,"
            " partition, host or GPU.",
            "a list of templates (see jobs.md)",
        ),
    ] = ()

    @property
    def loopback(self) -> bool:
        """Return whether only this machine can reach the server."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


class StoreSettings(SettingsTable, frozen=True):
    """Where history is kept, and how long."""

    path: Annotated[Text, describe_path("The store's file; created if missing.")] = "marey.duckdb"
    retention_ms: Annotated[
        int,
        limit_duration(
            "1h",
            "3650d",
            "How long raw samples are kept; older ones are reduced to hourly sketches per GPU.",
            example="30d",
        ),
    ] = 30 * DAY_MS
    sketch_retention_ms: Annotated[
        int, limit_duration("1h", "3650d", "How long the hourly sketches are kept.", example="365d")
    ] = 365 * DAY_MS
    samples: Annotated[
        Literal["embedded", "victoriametrics"],
        describe(
            "Where samples are kept: in the store's file, or in VictoriaMetrics (see "
            "store.md); records are always in the file.",
            "embedded or victoriametrics",
        ),
    ] = "embedded"
    url: Annotated[
        Url,
        describe_url("VictoriaMetrics, such as http://127.0.0.1:8428; for a cluster, vmselect."),
    ] = ""
    write_url: Annotated[
        Url, describe_url("Where samples are written, if not to `url`; for a cluster, vminsert.")
    ] = ""
    site: Annotated[
        Text, describe("Name (label `marey`) under which this server's samples are stored.", "text")
    ] = "marey"
    token_env: Annotated[
        OptionalText,
        describe_variable(
            "Variable with VictoriaMetrics' secret: user:password, or a bearer token."
        ),
    ] = ""
    token_file: Annotated[
        OptionalText, describe_path("File with that secret, instead of `token_env`.")
    ] = ""
    timeout_ms: Annotated[
        int, limit_timeout("How long one request to VictoriaMetrics may take.")
    ] = 30 * SECOND_MS
    spill: Annotated[
        OptionalText,
        describe_path(
            "Folder for samples that VictoriaMetrics has not confirmed yet; empty: "
            "`path` plus .spill."
        ),
    ] = ""
    spill_limit_mb: Annotated[
        int,
        limit(
            1,
            100_000_000,
            "Megabytes that may wait there; beyond this, samples are refused with an error.",
        ),
    ] = 4096
    settle_ms: Annotated[
        int,
        limit_duration(
            "0s",
            "1h",
            "A sample is confirmed by a query this long after it was sent, when a kill "
            "of VictoriaMetrics no longer loses it.",
            example="20s",
        ),
    ] = 20 * SECOND_MS


class CollectSettings(SettingsTable, frozen=True):
    """How the collect loop polls its sources."""

    interval_ms: Annotated[
        int,
        limit_duration(
            "250ms",
            "1h",
            "Time between two ticks: every source is polled once per tick.",
            example="15s",
        ),
    ] = 15 * SECOND_MS
    patience_ms: Annotated[
        int,
        limit_duration(
            "1s",
            "1h",
            "How long a tick waits for a slow source before continuing without it.",
            example="10s",
        ),
    ] = 10 * SECOND_MS
    stale_after_ms: Annotated[
        int,
        limit_duration(
            "1s",
            "1d",
            "A source silent for longer is shown as stale; older values are not shown.",
            example="1m",
        ),
    ] = 60 * SECOND_MS


class RulesSettings(SettingsTable, frozen=True):
    """Violation rules and who is notified of what they find."""

    folder: Annotated[
        OptionalText,
        describe_path(
            "Rule file (TOML), or a folder of them; a rule with the id of a built-in "
            "one replaces it."
        ),
    ] = ""
    notify: Annotated[
        OptionalText,
        describe_path(
            "File with receivers and routes of notifications (see notify.md); empty: no"
            " notifications."
        ),
    ] = ""


class TracesSettings(SettingsTable, frozen=True):
    """Profiler traces: where they are looked for, and how long what was sent is kept."""

    folders: Annotated[
        Texts,
        describe(
            "Folders whose subfolders are shown as runs; nothing outside them is ever read.",
            "a list of paths",
        ),
    ] = ()
    retention_ms: Annotated[
        int,
        limit_duration(
            "1h",
            "3650d",
            "How long uploaded runs are kept; of runs in folders only the cached tables go.",
            example="90d",
        ),
    ] = 90 * DAY_MS
    file_limit_mb: Annotated[
        int, limit(1, 1_000_000, "Maximum size of one uploaded file, in megabytes.")
    ] = 4096
    total_limit_mb: Annotated[
        int,
        limit(
            1, 100_000_000, "Maximum size of all uploaded traces and their tables, in megabytes."
        ),
    ] = 65536
    user_limit_mb: Annotated[
        int,
        limit(
            1,
            100_000_000,
            "Maximum size of one user's uploaded traces, in megabytes; admins have no such limit.",
        ),
    ] = 32768


class QueueSettings(SettingsTable, frozen=True):
    """The queue: what share of the cluster each project is meant to have."""

    shares: Annotated[
        Weights,
        describe(
            "What each project is meant to have of the cluster, as weights; a project "
            "that is not named has no share. None: the scheduler's own (sshare), else "
            "equal shares.",
            "a table of project = weight above 0",
        ),
    ] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configuration:
    """All settings of a server."""

    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    collect: CollectSettings = field(default_factory=CollectSettings)
    sources: tuple[Any, ...] = ()
    rules: RulesSettings = field(default_factory=RulesSettings)
    traces: TracesSettings = field(default_factory=TracesSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)
    oidc: OidcSettings = field(default_factory=OidcSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)


# Table of the file → settings; ``[[source]]`` is read by its kind.
TABLES: Mapping[str, type[SettingsTable]] = {
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
    tables: dict[str, Any] = {
        name: read_table(file, (name,), kind, file.document.get(name, {}))
        for name, kind in TABLES.items()
    }
    sources = [
        read_table_by_kind(file, ("source", i), SOURCE_KINDS, entry)
        for i, entry in enumerate(read_tables(file, "source"))
    ]
    _refuse_same_names(file, sources)
    return Configuration(sources=tuple(sources), **tables)


def _refuse_same_names(file: TomlFile, sources: Iterable[Any]) -> None:
    seen: set[str] = set()
    for index, source in enumerate(sources):
        if source.name in seen:
            raise file.wrong(
                ("source", index, "name"), f"'{source.name}' is taken by another source."
            )
        seen.add(source.name)


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

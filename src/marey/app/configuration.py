"""``marey.toml``: what a server may be told, as data; anything else is refused with its line."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marey.app.toml_lines import Place, TomlFile, read_toml
from marey.model.errors import InvalidInput, allowed, shown, unknown
from marey.model.names import DEFAULT_CLUSTER, NAME_LIMIT
from marey.model.times import DAY_MS, HOUR_MS, SECOND_MS, parse_duration


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: what it takes, and what it means."""

    read: Callable[[Any], Any]
    takes: str
    meaning: str
    default: str


def _setting(
    read: Callable[[Any], Any], takes: str, meaning: str, default: Any, shown_as: str = ""
) -> Any:
    text = shown_as or ("" if default is None else str(default))
    made = Setting(read, takes, meaning, text)
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default, metadata={"setting": made})
    return field(default=default, metadata={"setting": made})


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > NAME_LIMIT:
        raise ValueError
    return value


def _optional_text(value: Any) -> str:
    return "" if value == "" else _text(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_text(item) for item in value)


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return value

    return read


def _number(low: float, high: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not low <= value <= high
        ):
            raise ValueError
        return float(value)

    return read


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _duration(low_ms: int, high_ms: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, str):
            raise ValueError
        try:
            duration = parse_duration(value)
        except InvalidInput:
            raise ValueError from None
        if not low_ms <= duration <= high_ms:
            raise ValueError
        return duration

    return read


def _host(value: Any) -> str:
    text = _text(value)
    if text != "localhost":
        ipaddress.ip_address(text)
    return text


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens."""

    host: str = _setting(_host, "an IP address or localhost", "Address to listen on.", "127.0.0.1")
    port: int = _setting(
        _whole(0, 65535), "0 to 65535", "Port to listen on; 0 takes a free one.", 8600
    )
    names: tuple[str, ...] = _setting(
        _texts,
        "a list of host names",
        "Further names by which browsers may reach the server (`Host` header).",
        (),
        "[]",
    )
    token_env: str = _setting(
        _optional_text,
        "the name of an environment variable",
        "Variable that holds the access token; needed to listen beyond loopback.",
        "",
        '""',
    )
    token_file: str = _setting(
        _optional_text,
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

    path: str = _setting(_text, "a path", "The store's file; made if missing.", "marey.duckdb")
    retention_ms: int = _setting(
        _duration(HOUR_MS, 3650 * DAY_MS),
        "a duration from 1h to 3650d, such as 30d",
        "How long raw samples are kept; older ones are reduced to hourly sketches per GPU.",
        30 * DAY_MS,
        "30d",
    )
    sketch_retention_ms: int = _setting(
        _duration(HOUR_MS, 3650 * DAY_MS),
        "a duration from 1h to 3650d, such as 365d",
        "How long the hourly sketches are kept.",
        365 * DAY_MS,
        "365d",
    )


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How the collect loop asks its sources."""

    interval_ms: int = _setting(
        _duration(SECOND_MS // 4, HOUR_MS),
        "a duration from 250ms to 1h, such as 15s",
        "Time between two ticks: every source is asked once per tick.",
        15 * SECOND_MS,
        "15s",
    )
    patience_ms: int = _setting(
        _duration(SECOND_MS, HOUR_MS),
        "a duration from 1s to 1h, such as 10s",
        "How long a tick waits for a slow source before it goes on without it.",
        10 * SECOND_MS,
        "10s",
    )
    stale_after_ms: int = _setting(
        _duration(SECOND_MS, DAY_MS),
        "a duration from 1s to 1d, such as 1m",
        "A source silent for longer is shown as stale, and values older than this are not shown.",
        60 * SECOND_MS,
        "1m",
    )


@dataclass(frozen=True, slots=True)
class RulesSettings:
    """Violation rules and who is told of what they find."""

    folder: str = _setting(
        _optional_text,
        "a path",
        "Rule file (TOML) or folder of them; a rule of the same id replaces a shipped one.",
        "",
        '""',
    )
    notify: str = _setting(
        _optional_text,
        "a path",
        "File with receivers and routes of notifications (see notify.md); none: nobody is told.",
        "",
        '""',
    )


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """A cluster in software."""

    name: str = _setting(_text, "text", "What the sources page calls it.", "simulated")
    cluster: str = _setting(_text, "text", "The cluster it observes.", DEFAULT_CLUSTER)
    gpus: int = _setting(_whole(8, 100_000), "8 to 100000", "How many GPUs.", 2048)
    seed: int = _setting(
        _whole(0, 2**31 - 1), "0 to 2147483647", "The same seed gives the same cluster.", 1
    )
    speed: float = _setting(
        _number(0.1, 10_000), "0.1 to 10000", "Simulated seconds per second.", 1.0
    )
    history_hours: float = _setting(
        _number(0, 24 * 31), "0 to 744", "History made before the server starts.", 24.0
    )


def _source_name(name: str) -> Any:
    return _setting(_text, "text", "What the sources page calls it.", name)


def _cluster() -> Any:
    return _setting(_text, "text", "The cluster it observes.", DEFAULT_CLUSTER)


def _timeout(default_s: int, meaning: str) -> Any:
    takes = "a duration from 100ms to 10m, such as 5s"
    read = _duration(100, 600 * SECOND_MS)
    return _setting(read, takes, meaning, default_s * SECOND_MS, f"{default_s}s")


def _path(meaning: str) -> Any:
    return _setting(_optional_text, "a path", meaning, "", '""')


def _word(takes: str, meaning: str) -> Any:
    return _setting(_optional_text, takes, meaning, "", '""')


def _switch(default: bool, meaning: str) -> Any:
    return _setting(_truth, "true or false", meaning, default, str(default).lower())


_SHORT_HOSTS = "Cut the domain off host names, where the scheduler's names have none."
_TOKEN_ENV = "Variable that holds the token sent to this server."
_TOKEN_FILE = "File that holds that token, as another way than `token_env`."


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """Exporters scraped directly: dcgm-exporter, AMD's, node_exporter."""

    name: str = _source_name("dcgm")
    cluster: str = _cluster()
    endpoints: tuple[str, ...] = _setting(
        _texts, "a list of host, host:port or URL", "The exporters.", (), "[]"
    )
    endpoints_file: str = _path("File with further exporters, one a line.")
    port: int = _setting(_whole(1, 65535), "1 to 65535", "Port of endpoints without one.", 9400)
    timeout_ms: int = _timeout(5, "How long one exporter may take.")
    at_once: int = _setting(_whole(1, 4096), "1 to 4096", "Exporters asked at the same time.", 256)
    spread_ms: int = _setting(
        _duration(0, 60 * SECOND_MS),
        "a duration from 0s to 1m, such as 1s",
        "Time over which the questions of one poll are spread.",
        SECOND_MS,
        "1s",
    )
    host_labels: bool = _switch(True, "Whether a host label is believed; else the endpoint is it.")
    short_hosts: bool = _switch(False, _SHORT_HOSTS)


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Metrics out of Prometheus, VictoriaMetrics, Mimir or Thanos."""

    name: str = _source_name("prometheus")
    cluster: str = _cluster()
    url: str = _word("an http(s) URL", "The server, such as http://127.0.0.1:9090; required.")
    selector: str = _word(
        "PromQL label matchers", 'Which series only, such as cluster="a"; empty means all.'
    )
    history_ms: int = _setting(
        _duration(0, 31 * DAY_MS),
        "a duration from 0s to 31d, such as 1d",
        "How far back samples are fetched when the server starts.",
        0,
        "0s",
    )
    timeout_ms: int = _timeout(30, "How long one question may take.")
    short_hosts: bool = _switch(False, _SHORT_HOSTS)
    token_env: str = _word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = _path(_TOKEN_FILE)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """Slurm's nodes, partitions and jobs, by its commands or by slurmrestd."""

    name: str = _source_name("slurm")
    cluster: str = _cluster()
    programs: str = _path("Folder of scontrol, sinfo and squeue; empty: found by PATH.")
    rest_url: str = _word("an http(s) URL", "slurmrestd, instead of the commands.")
    rest_user: str = _word("a user name", "User whose token it is.")
    token_env: str = _word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = _path(_TOKEN_FILE)
    least_interval_ms: int = _setting(
        _duration(SECOND_MS, HOUR_MS),
        "a duration from 1s to 1h, such as 10s",
        "The controller is never asked more often than this.",
        10 * SECOND_MS,
        "10s",
    )
    timeout_ms: int = _timeout(30, "How long one question may take.")
    gpu_only: bool = _switch(True, "Leave out nodes without GPUs and jobs that ask for none.")


# kind → its settings; a source of another kind is added here and opened in ``site_sources``.
SOURCE_KINDS: Mapping[str, type[Any]] = {
    "simulated": SimulatedSettings,
    "slurm": SlurmSettings,
    "dcgm": DcgmSettings,
    "prometheus": PrometheusSettings,
}


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
            problem = f"has {shown(value)}; allowed: {setting.takes}."
            raise file.wrong((*place, key), problem) from None
    return kind(**values)


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

"""The ``[notify]`` table of a configuration → receivers and routes; anything else is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marey.model.errors import InvalidInput, shown, unknown
from marey.model.times import parse_duration
from marey.notify.notices import SEVERITIES
from marey.notify.outbox import Route
from marey.notify.receivers import Alertmanager, Endpoint, Mail, Receiver, Webhook
from marey.notify.secrets import Secret

_COMMON = {"name", "kind"}
_KEYS = {
    "webhook": {"url", "token_env", "token_file", "timeout"},
    "alertmanager": {"url", "token_env", "token_file", "timeout"},
    "mail": {
        "host", "port", "from", "to", "starttls", "user", "password_env", "password_file",
        "timeout",
    },
}  # fmt: skip
_ROUTE = {"to", "severity", "projects", "users", "rules", "resolved", "group_wait", "group_by"}
_GROUPS = ("rule", "workload", "user", "project", "partition", "severity", "cluster")


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Who is told of what; nobody is told anything while ``dry_run``."""

    receivers: Mapping[str, Receiver] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    dry_run: bool = True
    rate_per_hour: int = 30


def parse_settings(table: Mapping[str, Any]) -> NotifySettings:
    """Check a ``[notify]`` table whole; errors say the key, the value and what is allowed."""
    _known(table, {"dry_run", "rate_per_hour", "receiver", "route"}, "notify")
    receivers: dict[str, Receiver] = {}
    for i, entry in enumerate(_tables(table, "receiver")):
        receiver = _receiver(entry, f"notify.receiver[{i + 1}]")
        if receiver.name in receivers:
            raise InvalidInput(f"Two receivers have the name '{shown(receiver.name)}'.")
        receivers[receiver.name] = receiver
    routes = tuple(
        _route(entry, f"notify.route[{i + 1}]", receivers)
        for i, entry in enumerate(_tables(table, "route"))
    )
    rate = table.get("rate_per_hour", 30)
    if not isinstance(rate, int) or isinstance(rate, bool) or not 1 <= rate <= 3600:
        raise _wrong("notify.rate_per_hour", rate, "1 to 3600")
    return NotifySettings(receivers, routes, _flag(table, "dry_run", True, "notify"), rate)


def _receiver(entry: Mapping[str, Any], place: str) -> Receiver:
    kind = entry.get("kind")
    if kind not in _KEYS:
        raise InvalidInput(f"At {place}.kind: {unknown('kind', kind, _KEYS)}")
    _known(entry, _COMMON | _KEYS[kind], place)
    name = _text(entry, "name", place)
    timeout_s = parse_duration(entry.get("timeout", "10s")) / 1000
    if not 0.1 <= timeout_s <= 120:
        raise _wrong(f"{place}.timeout", entry.get("timeout"), "0.1s to 2m")
    if kind == "mail":
        return _mail(entry, place, name, timeout_s)
    endpoint = Endpoint(_text(entry, "url", place), _secret(entry, "token", place), timeout_s)
    made = Webhook if kind == "webhook" else Alertmanager
    return made(name, endpoint.checked())


def _mail(entry: Mapping[str, Any], place: str, name: str, timeout_s: float) -> Mail:
    port = entry.get("port", 25)
    if not isinstance(port, int) or not 1 <= port <= 65535:
        raise _wrong(f"{place}.port", port, "1 to 65535")
    to = _texts(entry, "to", place)
    if not to or not all("@" in address and address.isprintable() for address in to):
        raise _wrong(f"{place}.to", to, "a list of mail addresses")
    return Mail(
        name,
        _text(entry, "host", place),
        _text(entry, "from", place),
        to,
        port,
        _flag(entry, "starttls", False, place),
        _text(entry, "user", place) if entry.get("user") else "",
        _secret(entry, "password", place),
        timeout_s,
    )


def _secret(entry: Mapping[str, Any], key: str, place: str) -> Secret:
    env, file = entry.get(f"{key}_env", ""), entry.get(f"{key}_file", "")
    if not isinstance(env, str) or not isinstance(file, str) or (env and file):
        raise InvalidInput(f"At {place}: give either {key}_env or {key}_file, as text.")
    return Secret(env, file)


def _route(entry: Mapping[str, Any], place: str, receivers: Mapping[str, Receiver]) -> Route:
    _known(entry, _ROUTE, place)
    to = _texts(entry, "to", place)
    for name in to:
        if name not in receivers:
            raise InvalidInput(f"At {place}.to: {unknown('receiver', name, receivers)}")
    severity = entry.get("severity", "warning")
    if severity not in SEVERITIES:
        raise InvalidInput(f"At {place}.severity: {unknown('severity', severity, SEVERITIES)}")
    group_by = _texts(entry, "group_by", place) or ("rule",)
    for name in group_by:
        if name not in _GROUPS:
            raise InvalidInput(f"At {place}.group_by: {unknown('field', name, _GROUPS)}")
    return Route(
        to,
        severity,
        _texts(entry, "projects", place),
        _texts(entry, "users", place),
        _texts(entry, "rules", place),
        _flag(entry, "resolved", True, place),
        parse_duration(entry.get("group_wait", "30s")),
        group_by,
    )


def _tables(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise _wrong(f"notify.{key}", value, f"[[notify.{key}]] tables")
    return value


def _known(table: Mapping[str, Any], keys: set[str], place: str) -> None:
    for key in table:
        if key not in keys:
            raise InvalidInput(f"At {place}: {unknown('key', key, keys)}")


def _text(entry: Mapping[str, Any], key: str, place: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 1000:
        raise _wrong(f"{place}.{key}", value, "text")
    return value


def _texts(entry: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(f"{place}.{key}", value, "a list of texts")
    return tuple(value)


def _flag(entry: Mapping[str, Any], key: str, default: bool, place: str) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise _wrong(f"{place}.{key}", value, "true or false")
    return value


def _wrong(place: str, value: object, wanted: str) -> InvalidInput:
    return InvalidInput(f"{place} has {shown(value)}; allowed: {wanted}.")

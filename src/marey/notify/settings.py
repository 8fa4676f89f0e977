"""The ``[notify]`` table of a configuration → receivers and routes; anything else is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marey.model.errors import InvalidInput, shown, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.system.secrets import Secret
from marey.model.times import parse_duration
from marey.notify.chat import Chat
from marey.notify.digest_plans import EVERYONE, SUBJECTS, WEEKDAYS, DigestPlan
from marey.notify.notices import SEVERITIES
from marey.notify.outbox import Route
from marey.notify.receivers import Alertmanager, Endpoint, Mail, Receiver, Webhook

_COMMON = {"name", "kind"}
_KEYS = {
    "webhook": {"url", "token_env", "token_file", "timeout"},
    "alertmanager": {"url", "token_env", "token_file", "timeout"},
    "slack": {"url", "token_env", "token_file", "timeout"},
    "mattermost": {"url", "token_env", "token_file", "timeout"},
    "teams": {"url", "token_env", "token_file", "timeout"},
    "mail": {
        "host", "port", "from", "to", "starttls", "user", "password_env", "password_file",
        "timeout",
    },
}  # fmt: skip
_ROUTE = {"to", "severity", "projects", "users", "rules", "resolved", "group_wait", "group_by"}
_DIGEST = {"of", "name", "receiver", "to", "weekday", "hour", "cluster", "url"}
_GROUPS = ("rule", "workload", "user", "project", "partition", "severity", "cluster")


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Who is notified of what; nobody is notified while ``dry_run``."""

    receivers: Mapping[str, Receiver] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    dry_run: bool = True
    rate_per_hour: int = 30
    digests: tuple[DigestPlan, ...] = ()


def parse_settings(table: Mapping[str, Any]) -> NotifySettings:
    """Check a ``[notify]`` table whole; errors say the key, the value and what is allowed."""
    _check_keys(table, {"dry_run", "rate_per_hour", "receiver", "route", "digest"}, "notify")
    receivers: dict[str, Receiver] = {}
    for i, entry in enumerate(_list_tables(table, "receiver")):
        receiver = _parse_receiver(entry, f"notify.receiver[{i + 1}]")
        if receiver.name in receivers:
            raise InvalidInput(f"Two receivers have the name '{shown(receiver.name)}'.")
        receivers[receiver.name] = receiver
    routes = tuple(
        _route(entry, f"notify.route[{i + 1}]", receivers)
        for i, entry in enumerate(_list_tables(table, "route"))
    )
    rate = table.get("rate_per_hour", 30)
    if not isinstance(rate, int) or isinstance(rate, bool) or not 1 <= rate <= 3600:
        raise _make_error("notify.rate_per_hour", rate, "1 to 3600")
    dry_run = _read_flag(table, "dry_run", True, "notify")
    return NotifySettings(receivers, routes, dry_run, rate, _parse_digests(table, receivers))


def _parse_digests(
    table: Mapping[str, Any], receivers: Mapping[str, Receiver]
) -> tuple[DigestPlan, ...]:
    plans: dict[str, DigestPlan] = {}
    for i, entry in enumerate(_list_tables(table, "digest")):
        plan = _parse_digest(entry, f"notify.digest[{i + 1}]", receivers)
        if plan.key in plans:
            raise InvalidInput(f"At notify.digest[{i + 1}]: the same digest is planned twice.")
        plans[plan.key] = plan
    return tuple(plans.values())


def _parse_digest(
    entry: Mapping[str, Any], place: str, receivers: Mapping[str, Receiver]
) -> DigestPlan:
    _check_keys(entry, _DIGEST, place)
    subject = entry.get("of", "site")
    if subject not in SUBJECTS:
        raise InvalidInput(f"At {place}.of: {unknown('subject', subject, SUBJECTS)}")
    mails = {name: each for name, each in receivers.items() if isinstance(each, Mail)}
    receiver = entry.get("receiver", next(iter(mails), ""))
    if receiver not in mails:
        raise InvalidInput(f"At {place}.receiver: {unknown('mail receiver', receiver, mails)}")
    to = _read_texts(entry, "to", place) or tuple(mails[receiver].to)
    if not all("@" in address and address.isprintable() for address in to):
        raise _make_error(f"{place}.to", to, "a list of mail addresses")
    weekday, hour = entry.get("weekday", "monday"), entry.get("hour", 7)
    if weekday not in WEEKDAYS:
        raise InvalidInput(f"At {place}.weekday: {unknown('weekday', weekday, WEEKDAYS)}")
    if not isinstance(hour, int) or isinstance(hour, bool) or not 0 <= hour <= 23:
        raise _make_error(f"{place}.hour", hour, "0 to 23")
    return DigestPlan(
        subject,
        "" if subject == "site" else _read_optional(entry, "name", place, EVERYONE),
        mails[receiver],
        to,
        weekday=weekday,
        hour=hour,
        cluster=_read_optional(entry, "cluster", place, DEFAULT_CLUSTER),
        url=_read_optional(entry, "url", place, ""),
    )


def _read_optional(entry: Mapping[str, Any], key: str, place: str, default: str) -> str:
    return _read_text(entry, key, place) if key in entry else default


def _parse_receiver(entry: Mapping[str, Any], place: str) -> Receiver:
    kind = entry.get("kind")
    if kind not in _KEYS:
        raise InvalidInput(f"At {place}.kind: {unknown('kind', kind, _KEYS)}")
    _check_keys(entry, _COMMON | _KEYS[kind], place)
    name = _read_text(entry, "name", place)
    timeout_s = parse_duration(entry.get("timeout", "10s")) / 1000
    if not 0.1 <= timeout_s <= 120:
        raise _make_error(f"{place}.timeout", entry.get("timeout"), "0.1s to 2m")
    if kind == "mail":
        return _parse_mail(entry, place, name, timeout_s)
    endpoint = Endpoint(
        _read_text(entry, "url", place), _parse_secret(entry, "token", place), timeout_s
    )
    if kind in ("slack", "mattermost", "teams"):
        return Chat(name, endpoint.checked(), kind)
    made = Webhook if kind == "webhook" else Alertmanager
    return made(name, endpoint.checked())


def _parse_mail(entry: Mapping[str, Any], place: str, name: str, timeout_s: float) -> Mail:
    port = entry.get("port", 25)
    if not isinstance(port, int) or not 1 <= port <= 65535:
        raise _make_error(f"{place}.port", port, "1 to 65535")
    to = _read_texts(entry, "to", place)
    if not to or not all("@" in address and address.isprintable() for address in to):
        raise _make_error(f"{place}.to", to, "a list of mail addresses")
    return Mail(
        name,
        _read_text(entry, "host", place),
        _read_text(entry, "from", place),
        to=to,
        port=port,
        starttls=_read_flag(entry, "starttls", False, place),
        user=_read_text(entry, "user", place) if entry.get("user") else "",
        password=_parse_secret(entry, "password", place),
        timeout_s=timeout_s,
    )


def _parse_secret(entry: Mapping[str, Any], key: str, place: str) -> Secret:
    env, file = entry.get(f"{key}_env", ""), entry.get(f"{key}_file", "")
    if not isinstance(env, str) or not isinstance(file, str) or (env and file):
        raise InvalidInput(f"At {place}: give either {key}_env or {key}_file, as text.")
    return Secret(env, file, f"{key}_file")


def _route(entry: Mapping[str, Any], place: str, receivers: Mapping[str, Receiver]) -> Route:
    _check_keys(entry, _ROUTE, place)
    to = _read_texts(entry, "to", place)
    for name in to:
        if name not in receivers:
            raise InvalidInput(f"At {place}.to: {unknown('receiver', name, receivers)}")
    severity = entry.get("severity", "warning")
    if severity not in SEVERITIES:
        raise InvalidInput(f"At {place}.severity: {unknown('severity', severity, SEVERITIES)}")
    group_by = _read_texts(entry, "group_by", place) or ("rule",)
    for name in group_by:
        if name not in _GROUPS:
            raise InvalidInput(f"At {place}.group_by: {unknown('field', name, _GROUPS)}")
    return Route(
        to,
        severity,
        _read_texts(entry, "projects", place),
        users=_read_texts(entry, "users", place),
        rules=_read_texts(entry, "rules", place),
        resolved=_read_flag(entry, "resolved", True, place),
        group_wait_ms=parse_duration(entry.get("group_wait", "30s")),
        group_by=group_by,
    )


def _list_tables(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise _make_error(f"notify.{key}", value, f"[[notify.{key}]] tables")
    return value


def _check_keys(table: Mapping[str, Any], keys: set[str], place: str) -> None:
    for key in table:
        if key not in keys:
            raise InvalidInput(f"At {place}: {unknown('key', key, keys)}")


def _read_text(entry: Mapping[str, Any], key: str, place: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 1000:
        raise _make_error(f"{place}.{key}", value, "text")
    return value


def _read_texts(entry: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _make_error(f"{place}.{key}", value, "a list of texts")
    return tuple(value)


def _read_flag(entry: Mapping[str, Any], key: str, default: bool, place: str) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise _make_error(f"{place}.{key}", value, "true or false")
    return value


def _make_error(place: str, value: object, wanted: str) -> InvalidInput:
    return InvalidInput(f"{place} has {shown(value)}; allowed: {wanted}.")

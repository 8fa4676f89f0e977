"""The notify file → receivers, routes and digests; what is wrong is refused with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from marey.model.errors import allowed, shown, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.settings.setting_types import (
    CheckedUrl,
    SettingsTable,
    describe,
    describe_path,
    describe_switch,
    describe_url,
    describe_variable,
    limit,
    limit_duration,
    parse_with,
)
from marey.model.settings.settings_reader import (
    list_settings,
    read_table,
    read_table_by_kind,
    read_tables,
)
from marey.model.settings.toml_lines import Place, TomlFile, read_toml
from marey.model.system.secrets import Secret
from marey.model.times import SECOND_MS
from marey.notify.chat import Chat
from marey.notify.digest_plans import EVERYONE, SUBJECTS, WEEKDAYS, DigestPlan
from marey.notify.notices import SEVERITIES
from marey.notify.outbox import Route
from marey.notify.receivers import Alertmanager, Endpoint, Mail, Receiver, Webhook

TEXT_LIMIT = 1000
LISTS = ("receiver", "route", "digest")
GROUPS = ("rule", "workload", "user", "project", "partition", "severity", "cluster")


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(text)
    return text


Line = Annotated[str, Meta(max_length=TEXT_LIMIT), parse_with(_check_printable)]
FilledLine = Annotated[Line, Meta(min_length=1)]
Lines = Annotated[tuple[str, ...], parse_with(_check_printable)]
Address = Annotated[CheckedUrl, Meta(min_length=1, max_length=TEXT_LIMIT)]
MailAddresses = Annotated[
    tuple[Annotated[str, Meta(pattern="@")], ...], parse_with(_check_printable)
]
Timeout = Annotated[
    int, limit_duration("0.1s", "2m", "How long a delivery may take.", example="10s")
]


class NotifyTable(SettingsTable, frozen=True):
    """What holds for every notification."""

    dry_run: Annotated[bool, describe_switch("Whether notifications are only logged.")] = True
    rate_per_hour: Annotated[int, limit(1, 3600, "Deliveries an hour to one receiver.")] = 30


class HttpReceiverSettings(SettingsTable, frozen=True, kw_only=True):
    """A receiver that takes a document by HTTP."""

    name: Annotated[FilledLine, describe("How routes name it.", "text")]
    url: Annotated[Address, describe_url("Where notifications are sent.")]
    token_env: Annotated[str, describe_variable("Variable with a bearer token.")] = ""
    token_file: Annotated[str, describe_path("File with that token.")] = ""
    timeout_ms: Timeout = 10 * SECOND_MS


class MailReceiverSettings(SettingsTable, frozen=True, kw_only=True):
    """A receiver by mail."""

    name: Annotated[FilledLine, describe("How routes name it.", "text")]
    host: Annotated[FilledLine, describe("The mail server.", "text")]
    sender: Annotated[FilledLine, describe("Who the mail is from.", "text")] = msgspec.field(
        name="from"
    )
    to: Annotated[
        MailAddresses, Meta(min_length=1), describe("Who gets it.", "a list of mail addresses")
    ]
    port: Annotated[int, limit(1, 65535, "The mail server's port.")] = 25
    starttls: Annotated[bool, describe_switch("Whether TLS is required.")] = False
    user: Annotated[Line, describe("Who signs in at the mail server.", "text")] = ""
    password_env: Annotated[str, describe_variable("Variable with the password.")] = ""
    password_file: Annotated[str, describe_path("File with that password.")] = ""
    timeout_ms: Timeout = 10 * SECOND_MS


class RouteSettings(SettingsTable, frozen=True):
    """Which findings go to which receivers."""

    to: Annotated[Lines, describe("Receivers.", "a list of receivers")] = ()
    severity: Annotated[
        Literal["info", "warning", "critical"],
        describe("This severity or worse.", allowed(SEVERITIES)),
    ] = "warning"
    projects: Annotated[Lines, describe("Only these projects.", "a list of texts")] = ()
    users: Annotated[Lines, describe("Only these users.", "a list of texts")] = ()
    rules: Annotated[Lines, describe("Only these rules.", "a list of texts")] = ()
    resolved: Annotated[bool, describe_switch("Whether the end is told, too.")] = True
    group_wait_ms: Annotated[
        int, limit_duration("0s", "7d", "How long notices are gathered.", example="30s")
    ] = 30 * SECOND_MS
    group_by: Annotated[
        tuple[
            Literal["rule", "workload", "user", "project", "partition", "severity", "cluster"], ...
        ],
        describe("In what notices agree that travel together.", f"a list of {allowed(GROUPS)}"),
    ] = ()


class DigestSettings(SettingsTable, frozen=True):
    """One weekly digest."""

    of: Annotated[
        Literal["site", "user", "project"], describe("Its subject.", allowed(SUBJECTS))
    ] = "site"
    name: Annotated[FilledLine, describe("Of whom.", "text")] = EVERYONE
    receiver: Annotated[Line, describe("A mail receiver; empty: the first.", "text")] = ""
    to: Annotated[MailAddresses, describe("Who gets it.", "a list of mail addresses")] = ()
    weekday: Annotated[
        Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"],
        describe("When it is sent.", allowed(WEEKDAYS)),
    ] = "monday"
    hour: Annotated[int, limit(0, 23, "At which hour (UTC).")] = 7
    cluster: Annotated[FilledLine, describe("Of which cluster.", "text")] = DEFAULT_CLUSTER
    url: Annotated[Line, describe("For a link at the end of the mail.", "text")] = ""


RECEIVER_KINDS: Mapping[str, type[HttpReceiverSettings | MailReceiverSettings]] = {
    "webhook": HttpReceiverSettings,
    "alertmanager": HttpReceiverSettings,
    "slack": HttpReceiverSettings,
    "mattermost": HttpReceiverSettings,
    "teams": HttpReceiverSettings,
    "mail": MailReceiverSettings,
}


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Who is notified of what; nobody is notified while ``dry_run``."""

    receivers: Mapping[str, Receiver] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    dry_run: bool = True
    rate_per_hour: int = 30
    digests: tuple[DigestPlan, ...] = ()


def load_notify_settings(path: Path) -> NotifySettings:
    """Return the settings in this file; errors name line, key, value and what is allowed."""
    return read_notify_settings(read_toml(path))


def read_notify_settings(file: TomlFile) -> NotifySettings:
    """Return the settings in a parsed file."""
    keys = [*list_settings(NotifyTable), *LISTS]
    for key in file.document:
        if key not in keys:
            raise file.wrong((key,), unknown("key", key, keys))
    general = {key: value for key, value in file.document.items() if key not in LISTS}
    table = read_table(file, (), NotifyTable, general)
    receivers = _read_receivers(file)
    return NotifySettings(
        receivers,
        tuple(
            _read_route(file, ("route", i), entry, receivers)
            for i, entry in enumerate(read_tables(file, "route"))
        ),
        table.dry_run,
        table.rate_per_hour,
        _read_digests(file, receivers),
    )


def _read_receivers(file: TomlFile) -> dict[str, Receiver]:
    receivers: dict[str, Receiver] = {}
    for i, entry in enumerate(read_tables(file, "receiver")):
        place: Place = ("receiver", i)
        receiver = _read_receiver(file, place, entry)
        if receiver.name in receivers:
            raise file.wrong((*place, "name"), f"'{shown(receiver.name)}' is taken by another one.")
        receivers[receiver.name] = receiver
    return receivers


def _read_receiver(file: TomlFile, place: Place, entry: Any) -> Receiver:
    settings = read_table_by_kind(file, place, RECEIVER_KINDS, entry)
    if isinstance(settings, MailReceiverSettings):
        return Mail(
            settings.name,
            settings.host,
            settings.sender,
            to=settings.to,
            port=settings.port,
            starttls=settings.starttls,
            user=settings.user,
            password=_make_secret(
                file, place, "password", (settings.password_env, settings.password_file)
            ),
            timeout_s=settings.timeout_ms / SECOND_MS,
        )
    token = _make_secret(file, place, "token", (settings.token_env, settings.token_file))
    endpoint = Endpoint(settings.url, token, settings.timeout_ms / SECOND_MS)
    kind = entry["kind"]
    if kind in ("slack", "mattermost", "teams"):
        return Chat(settings.name, endpoint, kind)
    made = Webhook if kind == "webhook" else Alertmanager
    return made(settings.name, endpoint)


def _make_secret(file: TomlFile, place: Place, key: str, given: tuple[str, str]) -> Secret:
    env, path = given
    if env and path:
        raise file.wrong((*place, f"{key}_file"), f"give either {key}_env or {key}_file.")
    return Secret(env, path, f"{key}_file")


def _read_route(
    file: TomlFile, place: Place, entry: Any, receivers: Mapping[str, Receiver]
) -> Route:
    settings = read_table(file, place, RouteSettings, entry)
    for name in settings.to:
        if name not in receivers:
            raise file.wrong((*place, "to"), unknown("receiver", name, receivers))
    return Route(
        settings.to,
        settings.severity,
        settings.projects,
        users=settings.users,
        rules=settings.rules,
        resolved=settings.resolved,
        group_wait_ms=settings.group_wait_ms,
        group_by=settings.group_by or ("rule",),
    )


def _read_digests(file: TomlFile, receivers: Mapping[str, Receiver]) -> tuple[DigestPlan, ...]:
    mails = {name: each for name, each in receivers.items() if isinstance(each, Mail)}
    plans: dict[str, DigestPlan] = {}
    for i, entry in enumerate(read_tables(file, "digest")):
        place: Place = ("digest", i)
        plan = _read_digest(file, place, entry, mails)
        if plan.key in plans:
            raise file.wrong(place, "the same digest is planned twice.")
        plans[plan.key] = plan
    return tuple(plans.values())


def _read_digest(file: TomlFile, place: Place, entry: Any, mails: Mapping[str, Mail]) -> DigestPlan:
    settings = read_table(file, place, DigestSettings, entry)
    receiver = settings.receiver or next(iter(mails), "")
    if receiver not in mails:
        raise file.wrong((*place, "receiver"), unknown("mail receiver", receiver, mails))
    return DigestPlan(
        settings.of,
        "" if settings.of == "site" else settings.name,
        mails[receiver],
        settings.to or tuple(mails[receiver].to),
        weekday=settings.weekday,
        hour=settings.hour,
        cluster=settings.cluster,
        url=settings.url,
    )

"""The ways out: webhook, e-mail, Alertmanager. Each delivers a parcel whole, or raises."""

from __future__ import annotations

import http.client
import smtplib
import ssl
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import make_msgid
from typing import Any, Protocol

import msgspec

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.notify.notices import GPUS_NAMED, Notice, Parcel, one_line, subject_of, text_of
from marey.notify.secrets import NO_SECRET, Secret

TIMEOUT_S = 10.0
# Alertmanager forgets an alert that nobody repeats; ours say when they end, so it must wait.
ALERT_LIFE_MS = 7 * 24 * 3_600_000


class Receiver(Protocol):
    """Somebody who is told."""

    @property
    def name(self) -> str:
        """How routes name it."""

    def deliver(self, parcel: Parcel) -> None:
        """Tell it; raises ``Unavailable`` where it did not take the parcel."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP address, checked when the configuration is read."""

    url: str
    token: Secret = NO_SECRET
    timeout_s: float = TIMEOUT_S

    def checked(self) -> Endpoint:
        """The endpoint, if its address can be used at all."""
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"'{shown(self.url)}' is not an http or https address.")
        if parts.username or parts.password:
            raise InvalidInput("An address must not hold a password; use token_env or token_file.")
        return self


def post_json(endpoint: Endpoint, path: str, document: Any, headers: Mapping[str, str]) -> None:
    """POST a document; no redirects, a deadline for the whole exchange, success is 2xx only."""
    parts = urllib.parse.urlsplit(endpoint.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=endpoint.timeout_s)
    sent = {"Content-Type": "application/json", "User-Agent": "marey", **headers}
    if endpoint.token.given:
        sent["Authorization"] = f"Bearer {endpoint.token.read()}"
    target = (parts.path.rstrip("/") + path or "/") + (f"?{parts.query}" if parts.query else "")
    # The timeout above is per read: one byte now and then would hold us for ever.
    watchdog = threading.Timer(endpoint.timeout_s, _cut, [connection])
    watchdog.daemon = True
    watchdog.start()
    try:
        connection.request("POST", target, msgspec.json.encode(document), sent)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        where = parts.hostname
        raise Unavailable(f"{where} did not answer: {type(error).__name__}: {error}") from None
    finally:
        watchdog.cancel()
        connection.close()
    if 300 <= status < 400:
        raise Unavailable(f"{parts.hostname} answered {status}; redirects are not followed.")
    if not 200 <= status < 300:
        raise Unavailable(f"{parts.hostname} answered {status}.")


def _cut(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    if sock is not None:
        try:
            sock.shutdown(2)
        except OSError:
            return


@dataclass(frozen=True, slots=True)
class Webhook:
    """One JSON document per parcel: ``{"version": 1, "id": …, "notices": […]}``."""

    name: str
    endpoint: Endpoint

    def deliver(self, parcel: Parcel) -> None:
        """POST the parcel; its id is also the idempotency key."""
        document = {
            "version": 1,
            "id": parcel.id,
            "subject": subject_of(parcel.notices),
            "notices": [msgspec.to_builtins(notice) for notice in parcel.notices],
        }
        post_json(self.endpoint, "", document, {"Idempotency-Key": parcel.id})


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """Alertmanager's API v2: labels make the alert, so the same finding is the same alert."""

    name: str
    endpoint: Endpoint

    def deliver(self, parcel: Parcel) -> None:
        """POST every notice as an alert."""
        post_json(self.endpoint, "/api/v2/alerts", [alert_of(n) for n in parcel.notices], {})


def alert_of(notice: Notice) -> dict[str, Any]:
    """A notice as Alertmanager takes it; empty labels are left out, as it demands."""
    labels = {
        "alertname": notice.rule,
        "severity": notice.severity,
        "cluster": notice.cluster,
        "workload": notice.workload,
        "user": notice.user,
        "project": notice.project,
        "partition": notice.partition,
        "fault": notice.fault,
        "finding": notice.finding,
    }
    annotations = {
        "summary": notice.title,
        "description": notice.explanation,
        "next_step": notice.next_step,
        "gpus": ", ".join(notice.gpus[:GPUS_NAMED]),
        "evidence": "; ".join(notice.readings[:8]),
    }
    resolved = notice.status == "resolved"
    alert: dict[str, Any] = {
        "labels": {k: one_line(v) for k, v in labels.items() if v},
        "annotations": {k: one_line(v, 600) for k, v in annotations.items() if v},
        "startsAt": _rfc3339(notice.opened_ms),
        "endsAt": _rfc3339(notice.time_ms if resolved else notice.time_ms + ALERT_LIFE_MS),
    }
    if notice.url:
        alert["generatorURL"] = notice.url
    return alert


def _rfc3339(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail per parcel over SMTP."""

    name: str
    host: str
    sender: str
    to: Sequence[str]
    port: int = 25
    starttls: bool = False
    user: str = ""
    password: Secret = NO_SECRET
    timeout_s: float = TIMEOUT_S

    def deliver(self, parcel: Parcel) -> None:
        """Send the mail; the message id is the parcel's, so that doubles can be seen."""
        message = self.message(parcel)
        try:
            with smtplib.SMTP(self.host, self.port, timeout=self.timeout_s) as server:
                if self.starttls:
                    server.starttls(context=ssl.create_default_context())
                if self.user:
                    server.login(self.user, self.password.read())
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            # The server's own words may repeat what we sent; the kind of error is enough.
            raise Unavailable(
                f"{self.host} did not take the mail: {type(error).__name__}."
            ) from None

    def message(self, parcel: Parcel) -> EmailMessage:
        """The mail; header values are single lines, whatever the names in them hold."""
        message = EmailMessage()
        message["Subject"] = subject_of(parcel.notices)
        message["From"] = self.sender
        message["To"] = ", ".join(self.to)
        message["Message-ID"] = make_msgid(parcel.id, domain="marey.invalid")
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text_of(parcel.notices))
        return message

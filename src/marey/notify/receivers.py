"""The ways out: webhook, e-mail, Alertmanager. Each delivers a delivery whole, or raises."""

from __future__ import annotations

import queue
import smtplib
import ssl
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Protocol

import msgspec
import urllib3

from marey.model.errors import Unavailable
from marey.model.system.secrets import NO_SECRET, Secret
from marey.notify.notices import (
    GPUS_NAMED,
    Delivery,
    Notice,
    make_one_line,
    write_subject,
    write_text,
)

TIMEOUT_S = 10.0
# Alertmanager forgets an alert that nobody repeats; ours say when they end, so it must wait.
ALERT_LIFE_MS = 7 * 24 * 3_600_000


class Receiver(Protocol):
    """Somebody who is notified."""

    @property
    def name(self) -> str:
        """How routes name it."""

    @property
    def secret(self) -> Secret:
        """What opens it; one that is not given where nothing does."""

    def deliver(self, delivery: Delivery) -> None:
        """Tell it; raises ``Unavailable`` where it did not take the delivery."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP address; it was checked when the settings were read."""

    url: str
    token: Secret = NO_SECRET
    timeout_s: float = TIMEOUT_S


def post_json(endpoint: Endpoint, path: str, document: Any, headers: Mapping[str, str]) -> None:
    """Send a document; no redirects, a deadline for the whole exchange, success is 2xx only."""
    parts = urllib.parse.urlsplit(endpoint.url)
    sent = {"Content-Type": "application/json", "User-Agent": "marey", **headers}
    if endpoint.token.given:
        sent["Authorization"] = f"Bearer {endpoint.token.read(Unavailable)}"
    target = parts._replace(path=parts.path.rstrip("/") + path or "/", fragment="").geturl()
    try:
        status = _post(target, msgspec.json.encode(document), sent, endpoint.timeout_s)
    except (OSError, urllib3.exceptions.HTTPError, ValueError) as error:
        where = parts.hostname
        raise Unavailable(f"{where} did not answer: {type(error).__name__}: {error}") from None
    if 300 <= status < 400:
        raise Unavailable(f"{parts.hostname} answered {status}; redirects are not followed.")
    if not 200 <= status < 300:
        raise Unavailable(f"{parts.hostname} answered {status}.")


def _post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> int:
    """Return the status of a POST, however slowly the other side answers.

    A library's time limit is per read: one byte now and then would hold us for ever. So the
    exchange has a thread of its own, which is left behind when the time is over.
    """
    outcome: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()

    def exchange() -> None:
        try:
            answer = urllib3.request(
                "POST",
                url,
                body=body,
                headers=headers,
                timeout=timeout_s,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            answer.close()
            outcome.put(answer.status)
        except Exception as error:
            outcome.put(error)

    threading.Thread(target=exchange, name="marey-post", daemon=True).start()
    try:
        found = outcome.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
    if isinstance(found, Exception):
        raise found
    return found


@dataclass(frozen=True, slots=True)
class Webhook:
    """One JSON document per delivery: ``{"version": 1, "id": …, "notices": […]}``."""

    name: str
    endpoint: Endpoint

    @property
    def secret(self) -> Secret:
        """Return the token of the address."""
        return self.endpoint.token

    def deliver(self, delivery: Delivery) -> None:
        """Send the delivery; its id is also the idempotency key."""
        document = {
            "version": 1,
            "id": delivery.id,
            "subject": write_subject(delivery.notices),
            "notices": [msgspec.to_builtins(notice) for notice in delivery.notices],
        }
        post_json(self.endpoint, "", document, {"Idempotency-Key": delivery.id})


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """Alertmanager's API v2: labels make the alert, so the same finding is the same alert."""

    name: str
    endpoint: Endpoint

    @property
    def secret(self) -> Secret:
        """Return the token of the address."""
        return self.endpoint.token

    def deliver(self, delivery: Delivery) -> None:
        """Send every notice as an alert."""
        post_json(self.endpoint, "/api/v2/alerts", [make_alert(n) for n in delivery.notices], {})


def make_alert(notice: Notice) -> dict[str, Any]:
    """Return a notice as Alertmanager takes it; empty labels are left out, as it demands."""
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
        "labels": {k: make_one_line(v) for k, v in labels.items() if v},
        "annotations": {k: make_one_line(v, 600) for k, v in annotations.items() if v},
        "startsAt": _format_rfc3339(notice.opened_ms),
        "endsAt": _format_rfc3339(notice.time_ms if resolved else notice.time_ms + ALERT_LIFE_MS),
    }
    if notice.url:
        alert["generatorURL"] = notice.url
    return alert


def _format_rfc3339(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail per delivery over SMTP."""

    name: str
    host: str
    sender: str
    to: Sequence[str]
    port: int = 25
    starttls: bool = False
    user: str = ""
    password: Secret = NO_SECRET
    timeout_s: float = TIMEOUT_S

    @property
    def secret(self) -> Secret:
        """Return the password of the account."""
        return self.password

    def deliver(self, delivery: Delivery) -> None:
        """Send the mail; the message id is the delivery's, so that doubles can be seen."""
        self.send(self.message(delivery))

    def send(self, message: EmailMessage) -> None:
        """Hand a mail to the server; raises ``Unavailable`` where it does not take it."""
        try:
            with smtplib.SMTP(self.host, self.port, timeout=self.timeout_s) as server:
                if self.starttls:
                    server.starttls(context=ssl.create_default_context())
                if self.user:
                    server.login(self.user, self.password.read(Unavailable))
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            # The server's own words may repeat what we sent; the kind of error is enough.
            raise Unavailable(
                f"{self.host} did not take the mail: {type(error).__name__}."
            ) from None

    def message(self, delivery: Delivery) -> EmailMessage:
        """Return the mail; header values are single lines, whatever the names in them hold."""
        message = self.make_message(write_subject(delivery.notices), self.to)
        # The same for every attempt: a mail that arrives twice is shown once.
        message["Message-ID"] = f"<{delivery.id}@marey.invalid>"
        message.set_content(write_text(delivery.notices))
        return message

    def make_message(self, subject: str, to: Sequence[str]) -> EmailMessage:
        """Return an empty mail from this sender; a subject is one line."""
        message = EmailMessage()
        message["Subject"] = make_one_line(subject)
        message["From"] = self.sender
        message["To"] = ", ".join(to)
        message["Auto-Submitted"] = "auto-generated"
        return message

"""The ``[[digest]]`` tables of a notify file: whom the weekly digest is sent to, and when."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from marey.model.times import DAY_MS
from marey.notify.receivers import Mail

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SUBJECTS = ("site", "user", "project")
EVERYONE = "*"
PLACEHOLDER = "{name}"
# What of a name may become part of a mail address.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True, slots=True)
class DigestPlan:
    """One digest a week: of what, through which receiver, to whom, at which hour (UTC)."""

    subject: str
    name: str
    mail: Mail
    to: tuple[str, ...]
    weekday: str = "monday"
    hour: int = 7
    cluster: str = "default"
    url: str = ""

    @property
    def key(self) -> str:
        """What the store remembers it by: another day or address is the same plan."""
        return "/".join((self.cluster, self.subject, self.name, self.mail.name))

    def find_last_due(self, now_ms: int) -> int:
        """Return the newest moment at which it should have been sent."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        days = (now.weekday() - WEEKDAYS.index(self.weekday)) % 7
        due = now.replace(hour=self.hour, minute=0, second=0, microsecond=0) - timedelta(days=days)
        if due > now:
            due -= timedelta(days=7)
        return round(due.timestamp() * 1000)

    def find_next_due(self, now_ms: int) -> int:
        """Return when it is sent next."""
        return self.find_last_due(now_ms) + 7 * DAY_MS

    def list_addresses(self, name: str) -> tuple[str, ...]:
        """Return who gets the digest of a name; nobody where the name is no part of an address."""
        if any(PLACEHOLDER in address for address in self.to) and not _PLAIN_NAME.fullmatch(name):
            return ()
        return tuple(address.replace(PLACEHOLDER, name) for address in self.to)


def describe_plan(plan: DigestPlan) -> Mapping[str, str]:
    """Return the subject and the time of a plan in words, for pages and logs."""
    whose = {"site": "the site", "user": "every user", "project": "every project"}[plan.subject]
    if plan.name not in ("", EVERYONE):
        whose = f"{plan.subject} {plan.name}"
    return {"subject": whose, "when": f"{plan.weekday.title()}s at {plan.hour:02d}:00 UTC"}

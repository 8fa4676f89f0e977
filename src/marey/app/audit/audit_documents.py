"""What is recorded of a change, a sign-in or a refusal."""

from __future__ import annotations

from enum import StrEnum

from marey.model.documents import Document


class AuditKind(StrEnum):
    """What happened."""

    CHANGE = "change"
    SIGN_IN = "sign-in"
    REFUSAL = "refusal"


# A document of any route: each value under its path, such as "thresholds.low".
Details = dict[str, str | int | float | bool | None]


class AuditEntry(Document):
    """One line of the record."""

    # Increases from entry to entry.
    id: str
    time_ms: int
    kind: AuditKind
    # Empty where nobody was recognised.
    user: str
    role: str
    # Address of the other side; empty for a Unix socket.
    peer: str
    # Method and template of the path: one per operation of the API.
    route: str
    # The path that was asked for.
    object: str
    status: int
    # How often the same was refused since the entry before; 1 for all else.
    times: int = 1
    # The document before and after a change, each value under its path.
    before: Details | None = None
    after: Details | None = None


class AuditPage(Document):
    """Entries, newest first; ``next`` is the cursor of the following page, or null."""

    rows: list[AuditEntry]
    next: str | None

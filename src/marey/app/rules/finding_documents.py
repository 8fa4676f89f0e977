"""What the API and the command line say of findings, of what they cost and of who was notified."""

from __future__ import annotations

import msgspec

from marey.model.documents import Document
from marey.rules.engine.findings import Finding
from marey.rules.waste import WasteBy


class FindingDocument(Finding, kw_only=True):
    """A finding as it is kept, and what follows from it at this moment."""

    open: bool
    opened_ms: int
    closed_ms: int | None
    gpu_hours: float
    muted: bool


class FindingList(Document):
    """Findings, open ones first; ``preparing`` while rules still read what was measured before.

    ``share_read`` says how much of that (0-1) they have read.
    """

    rows: list[FindingDocument]
    total: int
    preparing: bool
    share_read: float | None = None


class WasteLine(Document):
    """GPU-hours of one user, project, partition, rule or workload."""

    name: str
    gpu_hours: float
    findings: int
    workloads: int


class WasteStep(Document):
    """GPU-hours that were allocated and wasted in one step of time."""

    time_ms: int
    gpu_hours: float
    wasted_gpu_hours: float


class WasteSums(Document):
    """GPU-hours wasted over a period, most first."""

    rows: list[WasteLine]
    csv: str
    by: WasteBy
    preparing: bool
    from_ms: int
    to_ms: int
    trend: list[WasteStep]
    share_read: float | None = None


class WaitingDelivery(Document):
    """Notices that wait for a receiver."""

    receiver: str
    notices: int
    attempts: int
    due_ms: int
    error: str


class NotificationEntry(Document):
    """What became of one delivery."""

    time_ms: int
    receiver: str
    outcome: str
    notices: int
    subject: str
    error: str


class PlannedDigest(Document):
    """A weekly digest that the server sends by itself."""

    subject: str
    when: str
    receiver: str
    to: list[str]
    next_ms: int
    sent_ms: int | None
    error: str


class Notifications(Document):
    """Notifications sent lately, newest first, those that wait, and the digests planned."""

    dry_run: bool
    receivers: list[str]
    waiting: list[WaitingDelivery]
    log: list[NotificationEntry]
    digests: list[PlannedDigest] = msgspec.field(default_factory=list)

"""What was found in somebody's own work lately, and who is notified of it."""

from __future__ import annotations

from marey.app.rules.finding_store import FindingStore
from marey.app.rules.notifications import make_notice
from marey.model.documents import Document
from marey.model.times import DAY_MS
from marey.notify.settings import NotifySettings
from marey.rules.engine.findings import ChangeKind, FindingChange
from marey.rules.ownership import read_mark

RECENT_MS = 7 * DAY_MS
NOTICES_LIMIT = 500


class OwnNotice(Document):
    """A finding in one's own work that opened or closed, and the receivers that are notified."""

    time_ms: int
    finding: str
    rule: str
    title: str
    severity: str
    cluster: str
    workload: str
    # firing or resolved.
    status: str
    muted: bool
    receivers: list[str]


class OwnNotices(Document):
    """One's own notices of the last seven days, newest first."""

    rows: list[OwnNotice]
    # Whether the site only writes down what it would send.
    dry_run: bool


def list_own_notices(
    findings: FindingStore, settings: NotifySettings, user: str, now_ms: int
) -> OwnNotices:
    """Return the notices about somebody's work."""
    mutes = findings.mutes()
    rows: list[OwnNotice] = []
    for finding in findings.list_shown():
        if finding.user != user or not finding.episodes:
            continue
        episode = finding.episodes[-1]
        is_over = episode.closed_ms is not None
        time_ms = episode.opened_ms if episode.closed_ms is None else episode.closed_ms
        if now_ms - time_ms > RECENT_MS:
            continue
        kind = ChangeKind.CLOSED if is_over else ChangeKind.OPENED
        notice = make_notice(FindingChange(kind, finding, time_ms), None)
        muted = any(mute.covers(notice, now_ms) for mute in mutes)
        notified = [name for r in settings.routes if r.takes(notice) for name in r.receivers]
        rows.append(
            OwnNotice(
                time_ms=time_ms,
                finding=finding.id,
                rule=finding.rule,
                title=finding.title,
                severity=finding.severity,
                cluster=finding.cluster,
                workload=finding.workload,
                status=notice.status,
                muted=muted,
                receivers=[] if muted or read_mark(finding.rule) else sorted(set(notified)),
            )
        )
    rows.sort(key=lambda row: -row.time_ms)
    return OwnNotices(rows[:NOTICES_LIMIT], settings.dry_run)

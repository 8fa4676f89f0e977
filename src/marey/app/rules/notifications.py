"""From findings that open and close to the outbox, and a thread that empties it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from marey.app.collect.clocks import WallClock
from marey.app.rules.finding_documents import (
    NotificationEntry,
    Notifications,
    PlannedDigest,
    WaitingDelivery,
)
from marey.app.rules.finding_store import FindingStore
from marey.app.rules.muted_notices import HeldNotices
from marey.model.errors import NotFound
from marey.model.protocols import Clock, Store
from marey.notify.notices import GPUS_NAMED, Notice
from marey.notify.outbox import Outbox
from marey.notify.settings import NotifySettings
from marey.rules.definition import Rule
from marey.rules.engine.findings import ChangeKind, Finding, FindingChange
from marey.rules.ownership import read_mark

log = logging.getLogger(__name__)
# Files on disk have this name from before.
KIND = "parcel"
PAUSE_S = 1.0


class StoredDeliveries:
    """Deliveries as documents of the store, so that a restart loses none."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, name: str, document: Any) -> None:
        """Keep a delivery."""
        self._store.put_document(KIND, name, document)

    def delete(self, name: str) -> None:
        """Forget a delivery that was delivered."""
        try:
            self._store.delete_document(KIND, name)
        except NotFound:
            return

    def all(self) -> Mapping[str, Any]:
        """Return every delivery that waits."""
        return self._store.documents(KIND)


def make_notice(change: FindingChange, rule: Rule | None, url: str = "") -> Notice:
    """Return the notice of a finding that opened or closed."""
    finding = change.finding
    status = "resolved" if change.kind is ChangeKind.CLOSED else "firing"
    opened_ms = finding.episodes[-1].opened_ms
    return Notice(
        id=f"{finding.id}:{opened_ms}:{status}",
        status=status,
        time_ms=change.time_ms,
        opened_ms=opened_ms,
        finding=finding.id,
        rule=finding.rule,
        title=finding.title,
        severity=finding.severity,
        cluster=finding.cluster,
        workload=finding.workload,
        fault=finding.fault,
        user=finding.user,
        project=finding.project,
        partition=finding.partition,
        gpu_count=finding.gpu_count,
        gpus=tuple(finding.gpus[:GPUS_NAMED]),
        gpu_hours=round(finding.gpu_hours, 2),
        readings=tuple(_list_readings(finding)),
        explanation=rule.explanation if rule else "",
        next_step=rule.next_step if rule else "",
        url=url,
    )


def _list_readings(finding: Finding) -> Iterable[str]:
    for gpu, readings in list(finding.evidence.items())[:4]:
        for reading in readings[:4]:
            yield f"{gpu}: {reading.condition}: {reading.value} (limit {reading.limit})"


class Notifier:
    """Takes changes from the collect loop at once; delivers from a thread of its own."""

    def __init__(
        self, store: Store, settings: NotifySettings | None = None, clock: Clock | None = None
    ) -> None:
        chosen = settings or NotifySettings()
        self.settings = chosen
        # Its own clock: what waits is tried again also while no source tells anything.
        self._clock = clock or WallClock()
        self._findings = FindingStore(store)
        self._held = HeldNotices(store)
        self.outbox = Outbox(
            chosen.receivers,
            chosen.routes,
            StoredDeliveries(store),
            dry_run=chosen.dry_run,
            rate_per_hour=chosen.rate_per_hour,
        )
        # The weekly digests that are planned, where a service sends them.
        self.list_digests: Callable[[], list[PlannedDigest]] = list
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(
        self, cluster: str, changes: Iterable[FindingChange], rules: Mapping[str, Rule], now_ms: int
    ) -> None:
        """Keep the notices of a cluster.

        A finding that opens while it is muted is announced when the mute is over, if it is then
        still open; of its end nobody hears who never heard of it.
        """
        # What a person's or a project's rule finds is on their page; the site's receivers are not
        # theirs.
        news = [
            make_notice(change, rules.get(change.finding.rule))
            for change in changes
            if not read_mark(change.finding.rule)
        ]
        if not self.settings.routes or not (news or self._held.of(cluster)):
            return
        mutes = self._findings.mutes()
        notices = []
        for notice in news:
            opens = notice.status == "firing"
            if any(mute.covers(notice, now_ms) for mute in mutes):
                if opens:
                    self._held.hold(notice)
                else:
                    self._held.drop(notice.finding)
            elif opens or not self._held.drop(notice.finding):
                notices.append(notice)
        late = self._held.free(cluster, mutes, now_ms)
        self.outbox.submit([*late, *notices], now_ms)
        for notice in late:
            self._held.drop(notice.finding)

    def send(self, notices: Sequence[Notice], now_ms: int) -> None:
        """Keep notices that come from no rule, such as starts of waiting workloads."""
        if not self.settings.routes:
            return
        mutes = self._findings.mutes()
        news = [n for n in notices if not any(mute.covers(n, now_ms) for mute in mutes)]
        self.outbox.submit(news, now_ms)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            try:
                self.outbox.run_due(self._clock.now_ms())
            except Exception:
                log.exception("notifications could not be delivered at this moment")

    def stop(self) -> None:
        """Finish the delivery in hand; what waits is kept for the next start."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def document(self) -> Notifications:
        """Return which notifications were sent lately, and which wait."""
        waiting = [
            WaitingDelivery(
                receiver=delivery.receiver,
                notices=len(delivery.notices),
                attempts=delivery.attempts,
                due_ms=delivery.due_ms,
                error=delivery.error,
            )
            for delivery in list(self.outbox.deliveries.values())
        ]
        return Notifications(
            dry_run=self.settings.dry_run,
            receivers=list(self.settings.receivers),
            waiting=waiting,
            log=self.log_documents(),
            digests=self.list_digests(),
        )

    def log_documents(self) -> list[NotificationEntry]:
        """Return the outcomes of recent deliveries, newest first."""
        return [
            NotificationEntry(
                time_ms=entry.time_ms,
                receiver=entry.receiver,
                outcome=entry.outcome,
                notices=entry.notices,
                subject=entry.subject,
                error=entry.error,
            )
            for entry in reversed(self.outbox.log)
        ]

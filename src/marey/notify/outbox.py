"""The outbox: notices are kept before anything is tried, and until a receiver has taken them."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from marey.model.errors import InvalidInput, MareyError, unknown
from marey.model.times import HOUR_MS, MINUTE_MS, SECOND_MS
from marey.notify.notices import SEVERITIES, Delivery, Notice, write_subject
from marey.notify.receivers import Receiver

FIRST_PAUSE_MS = 10 * SECOND_MS
LONGEST_PAUSE_MS = 15 * MINUTE_MS
KEEP_MS = 24 * HOUR_MS
LOG_LENGTH = 500
MOST_NOTICES = 200
OUTBOX_LIMIT = 10_000


class DeliveryKeeper(Protocol):
    """Where deliveries are kept over a restart."""

    def put(self, name: str, document: Any) -> None:
        """Keep a document."""

    def delete(self, name: str) -> None:
        """Forget a document."""

    def all(self) -> Mapping[str, Any]:
        """Return every document by name."""


@dataclass(frozen=True, slots=True)
class Route:
    """Who is notified of what; an empty list means everything."""

    receivers: tuple[str, ...]
    severity: str = "warning"
    projects: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    resolved: bool = True
    # Notices that come within this time, and agree in these fields, travel together.
    group_wait_ms: int = 30 * SECOND_MS
    group_by: tuple[str, ...] = ("rule",)

    def takes(self, notice: Notice) -> bool:
        """Return whether the notice goes this way."""
        return (
            SEVERITIES.index(notice.severity) >= SEVERITIES.index(self.severity)
            and (not self.projects or notice.project in self.projects)
            and (not self.users or notice.user in self.users)
            and (not self.rules or notice.rule in self.rules)
            and (self.resolved or notice.status == "firing")
        )


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What became of a delivery, as people may see it."""

    time_ms: int
    receiver: str
    outcome: str
    notices: int
    subject: str = ""
    error: str = ""


@dataclass
class Outbox:
    """Routes notices to receivers: grouped, limited, retried, logged."""

    receivers: Mapping[str, Receiver]
    routes: Sequence[Route]
    keeper: DeliveryKeeper
    dry_run: bool = True
    # Deliveries per receiver and hour; what comes beyond waits and travels as one.
    rate_per_hour: int = 30
    log: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=LOG_LENGTH))

    def __post_init__(self) -> None:
        for route in self.routes:
            for name in route.receivers:
                if name not in self.receivers:
                    raise InvalidInput(unknown("receiver", name, self.receivers))
        self._lock = threading.Lock()
        self._delivered: dict[str, deque[int]] = {}
        self.deliveries: dict[str, Delivery] = {}
        for name, document in self.keeper.all().items():
            try:
                self.deliveries[name] = msgspec.convert(document, Delivery)
            except msgspec.ValidationError:
                # Of an older version: it cannot be sent any more, and must not block the rest.
                self.keeper.delete(name)

    def submit(self, notices: Iterable[Notice], now_ms: int) -> None:
        """Take notices; when this returns, they are kept."""
        touched: dict[str, Delivery] = {}
        # Until all are kept nothing is delivered: a delivery must not be kept after it has gone.
        with self._lock:
            for notice in notices:
                reported: set[str] = set()
                for route in self.routes:
                    if not route.takes(notice):
                        continue
                    for name in [r for r in route.receivers if r not in reported]:
                        reported.add(name)
                        delivery = self._put(name, route, notice, now_ms)
                        if delivery is not None:
                            touched[delivery.id] = delivery
            for delivery in touched.values():
                self.keeper.put(delivery.id, msgspec.to_builtins(delivery))

    def _put(self, receiver: str, route: Route, notice: Notice, now_ms: int) -> Delivery | None:
        """Put a notice into the delivery it travels in; None where it does not travel."""
        if self.dry_run:
            self._record_outcome(now_ms, receiver, "dry run", notices=[notice])
            return None
        group = "\0".join(str(getattr(notice, name, "")) for name in route.group_by)
        delivery = self._find_waiting(receiver, group)
        if delivery is None:
            if len(self.deliveries) >= OUTBOX_LIMIT:
                self._record_outcome(
                    now_ms, receiver, "dropped: the outbox is full", notices=[notice]
                )
                return None
            delivery = Delivery(
                id=_make_name(receiver, group, notice.id, now_ms),
                receiver=receiver,
                group=group,
                notices=[],
                created_ms=now_ms,
                due_ms=now_ms + route.group_wait_ms,
            )
            self.deliveries[delivery.id] = delivery
        if all(known.id != notice.id for known in delivery.notices):
            delivery.notices.append(notice)
        return delivery

    def _find_waiting(self, receiver: str, group: str) -> Delivery | None:
        for delivery in self.deliveries.values():
            same = delivery.receiver == receiver and delivery.group == group
            if same and delivery.attempts == 0 and len(delivery.notices) < MOST_NOTICES:
                return delivery
        return None

    def run_due(self, now_ms: int) -> int:
        """Try every delivery whose time has come; returns how many were delivered."""
        delivered = 0
        for receiver in {delivery.receiver for delivery in list(self.deliveries.values())}:
            delivered += self._deliver_to(receiver, now_ms)
        return delivered

    def _deliver_to(self, name: str, now_ms: int) -> int:
        delivered = 0
        for delivery in sorted(self._list_due(name, now_ms), key=lambda p: p.created_ms):
            if delivery.id not in self.deliveries:
                continue
            if name not in self.receivers:
                self._drop(delivery, now_ms, "the receiver was removed")
                continue
            free_ms = self._find_free_ms(name, now_ms)
            if free_ms > now_ms:
                self._postpone(name, free_ms)
                break
            delivered += self._try(delivery, now_ms)
        return delivered

    def _list_due(self, name: str, now_ms: int) -> list[Delivery]:
        return [p for p in self.deliveries.values() if p.receiver == name and p.due_ms <= now_ms]

    def _find_free_ms(self, name: str, now_ms: int) -> int:
        """Return when the receiver may be notified again without breaking its limit."""
        times = self._delivered.setdefault(name, deque())
        while times and times[0] <= now_ms - HOUR_MS:
            times.popleft()
        return now_ms if len(times) < self.rate_per_hour else times[0] + HOUR_MS

    def _postpone(self, name: str, until_ms: int) -> None:
        """Put what waits for a receiver into as few deliveries as hold it, for later.

        One that was tried stays as it is: the receiver may have taken it, and know its id.
        """
        with self._lock:
            waiting = [p for p in self.deliveries.values() if p.receiver == name]
            fresh = [p for p in waiting if p.attempts == 0]
            for first, other in itertools.pairwise(fresh):
                if len(first.notices) + len(other.notices) <= MOST_NOTICES:
                    other.notices[:0] = first.notices
                    other.created_ms = first.created_ms
                    self.keeper.put(other.id, msgspec.to_builtins(other))
                    del self.deliveries[first.id]
                    self.keeper.delete(first.id)
            for delivery in waiting:
                if delivery.id in self.deliveries:
                    delivery.due_ms = max(delivery.due_ms, until_ms)
                    self.keeper.put(delivery.id, msgspec.to_builtins(delivery))

    def _try(self, delivery: Delivery, now_ms: int) -> int:
        with self._lock:
            # From here on no notice is put into it: it would be forgotten with the delivered ones.
            delivery.attempts += 1
        try:
            self.receivers[delivery.receiver].deliver(delivery)
        except MareyError as error:
            self._record_failure(delivery, str(error), now_ms)
            return 0
        except Exception as error:
            self._record_failure(delivery, type(error).__name__, now_ms)
            return 0
        self._delivered.setdefault(delivery.receiver, deque()).append(now_ms)
        self._record_outcome(now_ms, delivery.receiver, "delivered", notices=delivery.notices)
        self._forget(delivery)
        return 1

    def _record_failure(self, delivery: Delivery, error: str, now_ms: int) -> None:
        delivery.error = error
        if now_ms - delivery.created_ms > KEEP_MS:
            self._drop(delivery, now_ms, f"given up: {error}")
            return
        pause = min(FIRST_PAUSE_MS * 2 ** min(delivery.attempts - 1, 20), LONGEST_PAUSE_MS)
        delivery.due_ms = now_ms + pause
        self.keeper.put(delivery.id, msgspec.to_builtins(delivery))
        outcome = "failed, will be tried again"
        self._record_outcome(
            now_ms, delivery.receiver, outcome, notices=delivery.notices, error=error
        )

    def _drop(self, delivery: Delivery, now_ms: int, why: str) -> None:
        self._record_outcome(
            now_ms, delivery.receiver, "dropped", notices=delivery.notices, error=why
        )
        self._forget(delivery)

    def _forget(self, delivery: Delivery) -> None:
        with self._lock:
            self.deliveries.pop(delivery.id, None)
            self.keeper.delete(delivery.id)

    def _record_outcome(
        self,
        now_ms: int,
        receiver: str,
        outcome: str,
        *,
        notices: Sequence[Notice],
        error: str = "",
    ) -> None:
        self.log.append(
            LogEntry(
                now_ms,
                receiver,
                outcome,
                notices=len(notices),
                subject=write_subject(notices),
                error=error,
            )
        )


def _make_name(receiver: str, group: str, notice: str, now_ms: int) -> str:
    text = "\0".join((receiver, group, notice, str(now_ms))).encode()
    return hashlib.blake2b(text, digest_size=10).hexdigest()

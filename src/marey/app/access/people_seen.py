"""Who has used the server since it started, for operators."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from marey.model.access.identity import Identity, Role
from marey.model.times import MINUTE_MS

PEOPLE_LIMIT = 20_000


@dataclass(slots=True)
class Person:
    """Somebody who was recognised, and when last."""

    identity: Identity
    peer: str
    first_ms: int
    seen_ms: int


class PeopleSeen:
    """People by name; those not seen for longest are forgotten."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._known: OrderedDict[str, Person] = OrderedDict()
        self._lock = threading.Lock()

    def knows(self, identity: Identity) -> bool:
        """Return whether somebody was last seen with this very role and these groups."""
        known = self._known.get(identity.user)
        return known is not None and _list_rights(known.identity) == _list_rights(identity)

    def note(self, identity: Identity, peer: str) -> None:
        """Remember that somebody asked; noted once a minute, or when the role is another."""
        now_ms = self._now_ms()
        known = self._known.get(identity.user)
        if known is not None and now_ms - known.seen_ms < MINUTE_MS and self.knows(identity):
            return
        with self._lock:
            first_ms = known.first_ms if known else now_ms
            self._known[identity.user] = Person(identity, peer, first_ms, now_ms)
            self._known.move_to_end(identity.user)
            while len(self._known) > PEOPLE_LIMIT:
                self._known.popitem(last=False)

    def list(self) -> list[Person]:
        """Return everybody, last seen first."""
        with self._lock:
            return list(reversed(self._known.values()))


def _list_rights(identity: Identity) -> tuple[Role, tuple[str, ...], tuple[str, ...]]:
    return identity.role, identity.groups, identity.projects

"""Connections that wait for their client: counted by peer, the oldest given up for a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address

# Connections without a whole request: idle ones, half-open ones, slow senders.
WAITING_LIMIT = 256
WAITING_PEER_LIMIT = 128


class CutReason(StrEnum):
    """Why the server ended a connection; a label of ``marey_cut_clients_total``."""

    LARGE_HEAD = "large_head"
    SLOW_HEAD = "slow_head"
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"
    # Gave way to a newer connection while it had nothing to answer.
    CROWDED_OUT = "crowded_out"
    # A live client that took nothing, or that found no place.
    LIVE_STALLED = "live_stalled"
    LIVE_NO_PLACE = "live_no_place"
    # A request beyond what a peer or a user may have in hand.
    TOO_MANY_REQUESTS = "too_many_requests"


@dataclass(slots=True)
class WaitingConnections:
    """Who waits, in the order in which they began to, and how many were cut for what."""

    # Whether a peer speaks for many, as a reverse proxy does: it has no limit of its own.
    is_shared: Callable[[str], bool] = lambda peer: False
    waiting_limit: int = WAITING_LIMIT
    peer_limit: int = WAITING_PEER_LIMIT
    cuts: Counter[CutReason] = field(default_factory=Counter)
    _waiting: dict[object, tuple[str, Callable[[], None]]] = field(default_factory=dict)
    _by_peer: Counter[str] = field(default_factory=Counter)

    def wait(self, connection: object, peer: str, give_up: Callable[[], None]) -> None:
        """Count a connection as waiting; past a limit the oldest such one is given up."""
        self.leave(connection)
        self._waiting[connection] = (peer, give_up)
        self._by_peer[peer] += 1
        if not self.is_shared(peer) and self._by_peer[peer] > self.peer_limit:
            self._give_up_oldest(peer)
        elif len(self._waiting) > self.waiting_limit:
            self._give_up_oldest(None)

    def leave(self, connection: object) -> None:
        """Count a connection no more: it is answered, or gone."""
        entry = self._waiting.pop(connection, None)
        if entry is not None:
            self._by_peer[entry[0]] -= 1
            if not self._by_peer[entry[0]]:
                del self._by_peer[entry[0]]

    @property
    def waiting(self) -> int:
        """Return how many connections wait for their client."""
        return len(self._waiting)

    def _give_up_oldest(self, peer: str | None) -> None:
        for connection, (its_peer, give_up) in self._waiting.items():
            if peer is None or its_peer == peer:
                self.leave(connection)
                self.cuts[CutReason.CROWDED_OUT] += 1
                give_up()
                return


def is_loopback(peer: str) -> bool:
    """Return whether a peer is this machine: everybody on it shares the address."""
    try:
        return ip_address(peer).is_loopback
    except ValueError:
        return not peer

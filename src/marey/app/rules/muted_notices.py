"""Openings that nobody was notified of because they were muted: sent when the mute is over."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from marey.app.rules.finding_store import Mute
from marey.model.protocols import Store
from marey.notify.notices import Notice

KIND = "held_notice"


class HeldNotices:
    """By finding, as documents of the store: a mute that ends after a restart is heard too."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held = {
            name: msgspec.convert(document, Notice)
            for name, document in store.documents(KIND).items()
        }

    def hold(self, notice: Notice) -> None:
        """Keep it until nobody mutes its finding."""
        self._held[notice.finding] = notice
        self._store.put_document(KIND, notice.finding, msgspec.to_builtins(notice))

    def drop(self, finding: str) -> bool:
        """Forget what is held of a finding; whether there was anything."""
        if self._held.pop(finding, None) is None:
            return False
        self._store.delete_document(KIND, finding)
        return True

    def of(self, cluster: str) -> list[Notice]:
        """Return the notices of a cluster that a mute holds back."""
        return [notice for notice in self._held.values() if notice.cluster == cluster]

    def free(self, cluster: str, mutes: Sequence[Mute], now_ms: int) -> list[Notice]:
        """Return the notices that no mute covers any more."""
        return [n for n in self.of(cluster) if not any(mute.covers(n, now_ms) for mute in mutes)]

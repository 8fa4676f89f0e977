"""The last XID of every GPU: it stays after recovery, so only its change is an event."""

from __future__ import annotations

from collections.abc import Iterable

from marey.model.events import ClusterEventKind, Event


class XidWatch:
    """Remembers the last XID; what stood there when we first looked is no news."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def changes(self, seen: Iterable[tuple[int, str, float]]) -> list[Event]:
        """Return an event for every change to an XID, of (time, GPU, XID) in order of time."""
        events = []
        for time_ms, gpu, xid in seen:
            if xid != xid:
                continue
            before = self._last.get(gpu)
            self._last[gpu] = xid
            if before is not None and before != xid and xid > 0:
                host = gpu.rpartition(":")[0]
                events.append(Event(time_ms, ClusterEventKind.XID, host, gpu, value=xid))
        return events

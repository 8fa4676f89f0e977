"""Failed attempts to sign in are slowed down, per peer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from marey.model.times import MINUTE_MS

FAILURES = 10
WINDOW_MS = 5 * MINUTE_MS
PEERS_LIMIT = 10_000


class Throttle:
    """Counts failures per peer; past the limit it has to wait until old ones are forgotten."""

    def __init__(
        self, now_ms: Callable[[], int], failures: int = FAILURES, window_ms: int = WINDOW_MS
    ) -> None:
        self._now_ms = now_ms
        self._failures = failures
        self._window_ms = window_ms
        self._seen: dict[str, deque[int]] = {}
        self._lock = threading.Lock()

    def wait_s(self, peer: str) -> int:
        """Return how long this peer must wait before it may try again; 0 for not at all."""
        with self._lock:
            times = self._get_recent(peer)
            if times is None or len(times) < self._failures:
                return 0
            return max(1, -(-(times[0] + self._window_ms - self._now_ms()) // 1000))

    def note_failure(self, peer: str) -> None:
        """Count one failure."""
        with self._lock:
            times = self._get_recent(peer)
            if times is None:
                if len(self._seen) >= PEERS_LIMIT:
                    del self._seen[next(iter(self._seen))]
                times = self._seen[peer] = deque(maxlen=self._failures)
            times.append(self._now_ms())

    def forget(self, peer: str) -> None:
        """Start anew after a success."""
        with self._lock:
            self._seen.pop(peer, None)

    def _get_recent(self, peer: str) -> deque[int] | None:
        times = self._seen.get(peer)
        oldest_ms = self._now_ms() - self._window_ms
        while times and times[0] <= oldest_ms:
            times.popleft()
        if times is not None and not times:
            del self._seen[peer]
            return None
        return times

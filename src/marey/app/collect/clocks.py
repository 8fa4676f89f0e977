"""What time it is for a cluster: the wall's, or a simulation's own at any speed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from marey.model.protocols import SampleStore

# How often a stored history is asked again where it ends.
LOOK_AGAIN_S = 2.0


class WallClock:
    """The time of this machine."""

    speed = 1.0

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000


class ScaledClock:
    """A time that starts anywhere and runs at a speed that can be changed."""

    def __init__(self, start_ms: int, speed: float) -> None:
        self._lock = threading.Lock()
        self._from_ms = float(start_ms)
        self._from_s = time.monotonic()
        self._speed = speed

    @property
    def speed(self) -> float:
        """Milliseconds of this clock per millisecond of the wall's."""
        return self._speed

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC, as this clock has it."""
        with self._lock:
            return int(self._now())

    def set_speed(self, speed: float) -> None:
        """Run faster or slower from now on."""
        with self._lock:
            self._from_ms, self._from_s = self._now(), time.monotonic()
            self._speed = speed

    def set_time(self, now_ms: int) -> None:
        """Go on from this time."""
        with self._lock:
            self._from_ms, self._from_s = float(now_ms), time.monotonic()

    def _now(self) -> float:
        return self._from_ms + (time.monotonic() - self._from_s) * 1000 * self._speed


class StoredClock:
    """The time at which a store's history ends: the now of a history that nothing adds to.

    With it, nothing of an imported history is ever too old to be kept or too stale to be shown.
    """

    speed = 1.0

    def __init__(self, store: SampleStore, clusters: Callable[[], Sequence[str]]) -> None:
        self._store = store
        self._clusters = clusters
        self._looked_at = -math.inf
        self._now_ms = 0

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC; an import moves it."""
        if time.monotonic() - self._looked_at > LOOK_AGAIN_S:
            self._looked_at = time.monotonic()
            spans = [self._store.span(cluster) for cluster in self._clusters()]
            ends = [span[1] for span in spans if span]
            self._now_ms = max(ends) if ends else WallClock().now_ms()
        return self._now_ms

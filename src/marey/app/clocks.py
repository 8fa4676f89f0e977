"""What time it is for a cluster: the wall's, or a simulation's own at any speed."""

from __future__ import annotations

import threading
import time


class WallClock:
    """The time of this machine."""

    speed = 1.0

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
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
        """Milliseconds since 1970 UTC, as this clock has it."""
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

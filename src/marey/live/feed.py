"""The newest frames of every cluster, for any number of clients at the cost of one."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

from marey.live.frames import Frame

# A client further behind than this is better served by a snapshot than by the ticks it missed.
KEPT_FRAMES = 4


class FrameFeed:
    """Frames go in from the collect loop; clients look at them in their own time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: dict[str, deque[Frame]] = {}
        self._wanted: dict[str, Counter[str]] = {}
        # Each with whether it sees everything.
        self._listeners: dict[Callable[[], None], bool] = {}
        self._newest: dict[str, Frame] = {}

    def publish(self, frame: Frame) -> None:
        """Take a new frame, encode what is subscribed to, and wake whoever listens."""
        if self._listeners:
            sees_all = any(self._listeners.values())
            frame.encode_ahead(self.subscribed(frame.cluster), tables=sees_all)
        with self._lock:
            recent = self._recent.setdefault(frame.cluster, deque(maxlen=KEPT_FRAMES))
            recent.append(frame)
            self._newest[frame.cluster] = frame
            listeners = list(self._listeners)
        for wake in listeners:
            wake()

    @property
    def newest(self) -> Mapping[str, Frame]:
        """The newest frame of each cluster."""
        return self._newest

    @property
    def frames(self) -> Mapping[str, Frame]:
        """The newest frame of each cluster."""
        return self.newest

    def since(self, cluster: str, seq: int) -> list[Frame] | None:
        """Return the frames after ``seq``, or None where some of them are no longer kept."""
        with self._lock:
            recent = self._recent.get(cluster, ())
            later = [frame for frame in recent if frame.seq > seq]
        if later and later[0].seq != seq + 1:
            return None
        return later

    def subscribe(self, cluster: str, metrics: Iterable[str]) -> None:
        """Add one client who wants these columns."""
        with self._lock:
            self._wanted.setdefault(cluster, Counter()).update(metrics)

    def unsubscribe(self, cluster: str, metrics: Iterable[str]) -> None:
        """Remove one client who wanted these columns."""
        with self._lock:
            wanted = self._wanted.get(cluster, Counter())
            wanted.subtract(metrics)
            self._wanted[cluster] = +wanted

    def subscribed(self, cluster: str) -> list[str]:
        """Return the columns that anybody wants."""
        with self._lock:
            return list(self._wanted.get(cluster, ()))

    def listen(self, wake: Callable[[], None], *, sees_all: bool = True) -> None:
        """Call this (from the collect loop's thread) after every frame."""
        with self._lock:
            self._listeners = {**self._listeners, wake: sees_all}

    def unlisten(self, wake: Callable[[], None]) -> None:
        """Stop calling it."""
        with self._lock:
            self._listeners = {one: sees for one, sees in self._listeners.items() if one != wake}

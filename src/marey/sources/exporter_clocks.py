"""How far an exporter's clock is from ours, by the Date of its answers."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from marey.model.times import MINUTE_MS

SLACK_MS = 5_000
LOOKED_AT_EVERY_MS = MINUTE_MS


@dataclass(slots=True)
class ExporterClock:
    """One exporter's clock; looked at once a minute, for it costs more than a line of text."""

    # 0 while the two agree within what a header of whole seconds and a slow network allow.
    ahead_ms: int = 0
    _due_ms: int = 0

    def note(self, date: bytes, now_ms: int) -> None:
        """Compare the Date of an answer with our time when it came."""
        if not date or now_ms < self._due_ms:
            return
        self._due_ms = now_ms + LOOKED_AT_EVERY_MS
        try:
            answered_ms = parsedate_to_datetime(date.decode("latin-1")).timestamp() * 1000
        except (ValueError, TypeError, OverflowError):
            return
        ahead_ms = round(answered_ms - now_ms)
        self.ahead_ms = ahead_ms if abs(ahead_ms) > SLACK_MS else 0

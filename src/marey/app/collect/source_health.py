"""How a source is doing: last success, lag, rate, failures and the reason, what to do about it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marey.app.collect.advice import find_advice
from marey.app.collect.source_documents import SourceDocument
from marey.live.frames import SourceCondition, SourceHeader
from marey.model.observation import Observation

# The rate is that of the last few answers: enough to be steady, few enough to follow a change.
RATE_POLLS = 20


@dataclass(frozen=True, slots=True)
class SourceAbout:
    """What the configuration says of a source; empty where there is none."""

    kind: str = ""
    cluster: str = ""


@dataclass(slots=True)
class SourceState:
    """How a source is doing; ``last_ms`` is the last time it answered."""

    name: str
    about: SourceAbout = SourceAbout()
    state: SourceCondition = "waiting"
    last_ms: int | None = None
    newest_ms: int | None = None
    error: str = ""
    error_code: str = ""
    last_error: str = ""
    last_error_ms: int | None = None
    polls: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    poll_seconds: float = 0.0
    values: int = 0
    values_total: int = 0
    removed: bool = False
    _recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RATE_POLLS))

    def succeed(self, asked_ms: int, seconds: float, observed: Sequence[Observation]) -> None:
        """Record an answer."""
        self.polls += 1
        self.poll_seconds = seconds
        self.last_ms = asked_ms
        self.state, self.failures_in_a_row = "fresh", 0
        self.error = self.error_code = ""
        self.values = sum(len(b) * len(b.columns) for o in observed for b in o.samples)
        self.values_total += self.values
        self._recent.append((asked_ms, self.values))
        if observed:
            self.newest_ms = max(self.newest_ms or 0, *(find_newest_ms(o) for o in observed))

    def fail(self, now_ms: int, error: str, stale_after_ms: int, *, code: str) -> None:
        """Record that it did not answer; stale once it has been silent for long enough."""
        self.polls += 1
        self.failures += 1
        self.failures_in_a_row += 1
        self.error = self.last_error = error
        self.error_code = code
        self.last_error_ms = now_ms
        if self.last_ms is None or now_ms - self.last_ms > stale_after_ms:
            self.state = "stale"

    def remove(self, now_ms: int, reason: str) -> None:
        """Record that nobody asks it any more."""
        self.state, self.removed = "stale", True
        self.error, self.last_error, self.last_error_ms = reason, reason, now_ms

    def rate_per_s(self) -> float | None:
        """Return values per second over the last answers; None before there are two."""
        if len(self._recent) < 2:
            return None
        span_ms = self._recent[-1][0] - self._recent[0][0]
        given = sum(values for _, values in list(self._recent)[1:])
        return given * 1000 / span_ms if span_ms > 0 else None

    def document(self, now_ms: int) -> SourceHeader:
        """Return the health as the headers of live messages carry it."""
        return {
            "name": self.name,
            "state": self.state,
            "last_ms": self.last_ms,
            "age_ms": None if self.last_ms is None else max(0, now_ms - self.last_ms),
            "error": self.error,
            "polls": self.polls,
            "failures": self.failures,
            "poll_seconds": round(self.poll_seconds, 4),
        }

    def full_document(self, now_ms: int, details: Mapping[str, Any]) -> SourceDocument:
        """Return the health as the sources page shows it."""
        again_ms = details.get("asked_again_ms")
        rate = self.rate_per_s()
        return SourceDocument(
            **self.document(now_ms),
            kind=self.about.kind,
            cluster=self.about.cluster,
            removed=self.removed,
            newest_ms=self.newest_ms,
            lag_ms=None if self.newest_ms is None else max(0, now_ms - self.newest_ms),
            failures_in_a_row=self.failures_in_a_row,
            last_error=self.last_error,
            last_error_ms=self.last_error_ms,
            values=self.values,
            values_total=self.values_total,
            rate_per_s=None if rate is None else round(rate, 3),
            backoff_ms=max(0, again_ms - now_ms) if isinstance(again_ms, int) else 0,
            mend="" if self.removed else find_advice(self.about.kind, self.error_code),
            details=dict(details),
        )


def find_newest_ms(observation: Observation) -> int:
    """Return the time of the newest thing that an observation tells."""
    times = [int(b.time_ms.max()) for b in observation.samples if len(b)]
    return max(times) if times else observation.time_ms

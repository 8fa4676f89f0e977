"""Asking sources: each in a thread of its own, so that one that hangs holds up no other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from typing import Any

from marey.model.errors import MareyError, shown
from marey.model.observation import Observation
from marey.model.protocols import Source


@dataclass(slots=True)
class SourceState:
    """How a source is doing; ``last_ms`` is the last time it answered."""

    name: str
    state: str = "waiting"
    last_ms: int | None = None
    error: str = ""
    polls: int = 0
    failures: int = 0
    poll_seconds: float = 0.0

    def document(self, now_ms: int) -> dict[str, Any]:
        """What the sources page and the headers of live messages say."""
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


@dataclass(frozen=True, slots=True)
class _Polled:
    observations: Sequence[Observation]
    seconds: float
    asked_ms: int


class PolledSource:
    """A source with its thread and its state."""

    def __init__(self, source: Source, stale_after_ms: int) -> None:
        self.source = source
        self.state = SourceState(source.name)
        self._stale_after_ms = stale_after_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"poll {source.name[:20]}")
        self._asked: Future[_Polled] | None = None
        self._overdue = False

    def ask(self, now_ms: int) -> None:
        """Start asking, unless the last question is still open."""
        if self._asked is None:
            self._asked = self._thread.submit(self._poll, now_ms)

    def _poll(self, now_ms: int) -> _Polled:
        began = time.perf_counter()
        observations = self.source.poll(now_ms)
        return _Polled(observations, time.perf_counter() - began, now_ms)

    def answer(self, now_ms: int, patience_s: float) -> Sequence[Observation]:
        """What it said; nothing where it failed or is still silent, which its state then tells."""
        if self._asked is None:
            return ()
        try:
            # One that has already used up its patience is only looked at.
            polled = self._asked.result(0 if self._overdue else patience_s)
        except Late:
            self._overdue = True
            self._fail(now_ms, f"no answer within {patience_s:g} s")
            return ()
        except MareyError as error:
            self._asked = None
            self._fail(now_ms, str(error))
            return ()
        except Exception as error:
            self._asked = None
            self._fail(now_ms, f"{type(error).__name__}: {shown(str(error))}")
            return ()
        self._asked, self._overdue = None, False
        self._succeed(polled)
        return polled.observations

    def _succeed(self, polled: _Polled) -> None:
        state = self.state
        state.polls += 1
        state.poll_seconds = polled.seconds
        state.last_ms = polled.asked_ms
        state.state, state.error = "fresh", ""

    def _fail(self, now_ms: int, error: str) -> None:
        state = self.state
        state.polls += 1
        state.failures += 1
        state.error = error
        if state.last_ms is None or now_ms - state.last_ms > self._stale_after_ms:
            state.state = "stale"

    def close(self) -> None:
        """Let go of the source, without waiting for one that hangs."""
        self._thread.shutdown(wait=not self._overdue, cancel_futures=True)
        if not self._overdue:
            self.source.close()

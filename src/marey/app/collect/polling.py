"""Asking sources: each in a thread of its own, so that one that hangs holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from typing import Any

from marey.app.collect.source_documents import SourceDocument
from marey.app.collect.source_health import SourceAbout, SourceState
from marey.live.frames import SourceHeader
from marey.model.errors import MareyError, shown
from marey.model.events import ClusterEventKind, Event
from marey.model.names import DEFAULT_CLUSTER
from marey.model.observation import Observation
from marey.model.protocols import DetailedSource, Source

REMOVED = "no longer in the configuration; its last data is shown as stale"


@dataclass(frozen=True, slots=True)
class _Polled:
    observations: Sequence[Observation]
    seconds: float
    asked_ms: int


class PolledSource:
    """A source with its thread and its state."""

    def __init__(
        self, source: Source, stale_after_ms: int, about: SourceAbout | None = None
    ) -> None:
        self.source = source
        self.state = SourceState(source.name, about or SourceAbout())
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
        """Return what it said.

        Nothing where it failed or is still silent, which its state then tells.
        """
        if self._asked is None:
            return ()
        try:
            # One that has already used up its patience is only looked at.
            polled = self._asked.result(0 if self._overdue else patience_s)
        except Late:
            self._overdue = True
            text = f"no answer within {patience_s:g} s"
            self.state.fail(now_ms, text, self._stale_after_ms, code="timeout")
            return ()
        except MareyError as error:
            self._asked = None
            self.state.fail(now_ms, str(error), self._stale_after_ms, code=error.code)
            return ()
        except Exception as error:
            self._asked = None
            text = f"{type(error).__name__}: {shown(str(error))}"
            self.state.fail(now_ms, text, self._stale_after_ms, code="internal_error")
            return ()
        self._asked, self._overdue = None, False
        self.state.succeed(polled.asked_ms, polled.seconds, polled.observations)
        return polled.observations

    def document(self, now_ms: int) -> SourceDocument:
        """Return everything about it, for the sources page."""
        return self.state.full_document(now_ms, self._read_details())

    def _read_details(self) -> Mapping[str, Any]:
        try:
            return dict(self.source.details()) if isinstance(self.source, DetailedSource) else {}
        except Exception as error:
            # A source that cannot describe itself must not hide how all the others are.
            return {"fault": f"{type(error).__name__}: {shown(str(error))}"}

    def close(self) -> None:
        """Close the source, without waiting for one that hangs."""
        self._thread.shutdown(wait=not self._overdue, cancel_futures=True)
        if not self._overdue:
            self.source.close()


class PolledSources:
    """All sources of a collector; others may be given while it runs, from one tick to the next."""

    def __init__(self, sources: Sequence[Source], stale_after_ms: int) -> None:
        self._stale_after_ms = stale_after_ms
        self.polled = [PolledSource(source, stale_after_ms) for source in sources]
        # Sources that were taken out, by name: what they said is still shown, and is stale.
        self.removed: dict[str, SourceState] = {}
        self._stale: set[str] = set()
        self._lock = threading.Lock()
        self._waiting: tuple[list[PolledSource], threading.Event] | None = None

    def describe(self, about: Mapping[str, SourceAbout]) -> None:
        """Say of which kind and cluster the sources are, by name."""
        for polled in self.polled:
            polled.state.about = about.get(polled.state.name, polled.state.about)

    def change(
        self, sources: Sequence[Source], about: Mapping[str, SourceAbout]
    ) -> threading.Event:
        """Ask these from the next tick on; one that is asked already goes on as it is.

        The event is set once the next tick has taken them over.
        """
        with self._lock:
            before, taken = self._waiting or ([], threading.Event())
            opened = {id(polled.source): polled for polled in (*self.polled, *before)}
            wanted = [
                opened.get(id(source))
                or PolledSource(source, self._stale_after_ms, about.get(source.name))
                for source in sources
            ]
            self._waiting = (wanted, taken)
        for polled in before:
            # Told of and forgotten again before anybody asked it.
            if polled not in wanted and polled not in self.polled:
                polled.close()
        return taken

    def poll(self, now_ms: int, patience_s: float) -> list[Observation]:
        """Ask every source once; what they said, and events for those gone silent or back."""
        self._take_over(now_ms)
        for polled in self.polled:
            polled.ask(now_ms)
        observed = [o for polled in self.polled for o in polled.answer(now_ms, patience_s)]
        return observed + self._find_staleness(now_ms)

    def _take_over(self, now_ms: int) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        wanted, taken = waiting
        gone = [polled for polled in self.polled if polled not in wanted]
        self.polled = wanted
        names = {polled.state.name for polled in wanted}
        removed = dict(self.removed)
        for polled in gone:
            # One that never answered has left nothing behind that could be stale.
            if polled.state.name not in names and polled.state.last_ms is not None:
                polled.state.remove(now_ms, REMOVED)
                removed[polled.state.name] = polled.state
        self.removed = {name: state for name, state in removed.items() if name not in names}
        self._stale &= {state.name for state in self._list_states()}
        taken.set()
        for polled in gone:
            polled.close()

    def _list_states(self) -> list[SourceState]:
        return [*(polled.state for polled in self.polled), *self.removed.values()]

    def _find_staleness(self, now_ms: int) -> list[Observation]:
        """Return an event when a source falls silent, and one when it is back."""
        by_cluster: dict[str, list[Event]] = {}
        for state in self._list_states():
            stale = state.state == "stale"
            if stale and state.name not in self._stale:
                self._stale.add(state.name)
                event = Event(
                    now_ms, ClusterEventKind.SOURCE_STALE, text=f"{state.name}: {state.error}"
                )
            elif not stale and state.name in self._stale:
                self._stale.discard(state.name)
                event = Event(now_ms, ClusterEventKind.SOURCE_BACK, text=state.name)
            else:
                continue
            by_cluster.setdefault(state.about.cluster or DEFAULT_CLUSTER, []).append(event)
        return [
            Observation(now_ms, cluster, events=tuple(events))
            for cluster, events in by_cluster.items()
        ]

    def documents(self, now_ms: int) -> list[SourceHeader]:
        """Return how every source is doing, in a few words: goes with every live message."""
        return [state.document(now_ms) for state in self._list_states()]

    def full_documents(self, now_ms: int) -> list[SourceDocument]:
        """Return how every source is doing, with everything that is known."""
        return [
            *(polled.document(now_ms) for polled in self.polled),
            *(state.full_document(now_ms, {}) for state in self.removed.values()),
        ]

    def close(self) -> None:
        """Close every source, also of those that no tick has taken over."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.polled = [*self.polled, *(p for p in waiting[0] if p not in self.polled)]
        for polled in self.polled:
            polled.close()

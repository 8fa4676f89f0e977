"""History from Slurm's accounting: a day at a time beside the collection, the newest first.

Every start asks again for as far back as is told, so that what ran while nobody watched is made
up for; a workload that the store knows is left as it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypedDict

from marey.app.collect.open_sources import make_slurm_controller
from marey.app.history.past_workloads import find_unknown_rows, make_past_observations
from marey.app.settings.source_settings import SlurmSettings
from marey.model.errors import MareyError
from marey.model.protocols import Store
from marey.model.times import DAY_MS, format_time
from marey.sources.slurm.history import PastJob, list_ended_jobs
from marey.sources.slurm.versions import About
from marey.sources.workloads_file import make_accounting_rows
from marey.store.journal.journaled_store import get_store_behind_journal

log = logging.getLogger(__name__)

# Between two days: accounting has others to answer.
PAUSE_S = 2.0
FIRST_RETRY_S = 10.0
_MOST_RETRY_S = 300.0
# A question to accounting in hand cannot be cut short; its thread ends with the process.
_STOP_S = 5.0


Clock = Callable[[], int]


class Accounting(Protocol):
    """A way to ask Slurm's accounting."""

    def about(self) -> About: ...
    def history(self, from_ms: int, to_ms: int) -> list[PastJob]: ...
    def close(self) -> None: ...


class HistoryProgress(TypedDict):
    """How far a source's history has been read."""

    back_to: str
    reached: str
    done: bool
    workloads: int
    error: str


class HistoryFilling:
    """Fills one source's history in a thread of its own, and says how far it has come."""

    def __init__(self, wanted: SlurmSettings, store: Store, now_ms: Clock) -> None:
        self.wanted = wanted
        self._store = store
        self._now_ms = now_ms
        self._reached_ms = now_ms()
        self._goal_ms = self._reached_ms - wanted.history_ms
        self._ahead_ms: int | None = None
        self._workloads = 0
        self._error = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a question in hand is waited for a little."""
        self._stop.set()
        self._thread.join(_STOP_S)

    def document(self) -> HistoryProgress:
        """Return how far it has come, for the sources page."""
        return {
            "back_to": format_time(self._goal_ms),
            "reached": format_time(self._reached_ms),
            "done": self._reached_ms <= self._goal_ms,
            "workloads": self._workloads,
            "error": self._error,
        }

    def _run(self) -> None:
        try:
            # A connection of its own: the source's is in use by whoever polls it.
            accounting: Accounting = make_slurm_controller(self.wanted)
        except MareyError as error:
            self._error = str(error)
            return
        try:
            self._fill(accounting)
        except Exception:
            self._error = "internal error; see the log of the server"
            log.exception("the history of %s failed", self.wanted.name)
        finally:
            accounting.close()

    def _fill(self, accounting: Accounting) -> None:
        retry_s = FIRST_RETRY_S
        while self._reached_ms > self._goal_ms and not self._stop.is_set():
            from_ms = max(self._goal_ms, self._reached_ms - DAY_MS)
            try:
                self._workloads += self._fill_span(accounting, from_ms, self._reached_ms)
            except MareyError as error:
                self._error = str(error)
                self._stop.wait(retry_s)
                retry_s = min(2 * retry_s, _MOST_RETRY_S)
                continue
            self._reached_ms, self._error, retry_s = from_ms, "", FIRST_RETRY_S
            self._stop.wait(PAUSE_S)

    def _fill_span(self, accounting: Accounting, from_ms: int, to_ms: int) -> int:
        """Bring in the jobs of a span that the store does not know; return how many those were."""
        if self._ahead_ms is None:
            self._ahead_ms = accounting.about().ahead_ms(self._now_ms())
        ahead_ms = self._ahead_ms
        reported = accounting.history(from_ms + ahead_ms, to_ms + ahead_ms)
        jobs = list_ended_jobs(reported, gpu_only=self.wanted.gpu_only, ahead_ms=ahead_ms)
        rows = find_unknown_rows(make_accounting_rows(jobs), self._store, self.wanted.cluster)
        if rows and not self._stop.is_set():
            get_store_behind_journal(self._store).ingest(
                make_past_observations(rows, self.wanted.cluster)
            )
        return len(rows)


class Histories:
    """The histories of all sources; given others, those that stay go on."""

    def __init__(self, store: Store, now_ms: Clock) -> None:
        self._store = store
        self._now_ms = now_ms
        self._fillings: list[HistoryFilling] = []

    def change(self, settings: Sequence[Any]) -> None:
        """Fill the histories that these sources ask for; one as before is not begun again."""
        wanted = [s for s in settings if isinstance(s, SlurmSettings) and s.history_ms]
        for one in [one for one in self._fillings if one.wanted not in wanted]:
            one.stop()
            self._fillings.remove(one)
        known = [one.wanted for one in self._fillings]
        for entry in wanted:
            if entry not in known:
                self._fillings.append(HistoryFilling(entry, self._store, self._now_ms))
                self._fillings[-1].start()

    def documents(self) -> dict[str, HistoryProgress]:
        """Return how far each has come, by the source's name."""
        return {one.wanted.name: one.document() for one in self._fillings}

    def stop(self) -> None:
        """Ask no more."""
        for one in self._fillings:
            one.stop()

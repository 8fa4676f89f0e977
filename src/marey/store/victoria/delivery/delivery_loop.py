"""Bringing the spill to the server: sent, looked for once it has settled, and only then dropped."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import MareyError, StoreError, Unavailable
from marey.model.samples import SampleBatch
from marey.store.victoria.delivery.delivery_state import DeliveryRules, DeliveryState
from marey.store.victoria.delivery.queue_entries import (
    DeliveryStage,
    QueueEntry,
    Revisions,
    collect_known,
    find_missing,
)
from marey.store.victoria.delivery.send_queue import MEMORY_ROWS, SendQueue
from marey.store.victoria.delivery.sender import Sender
from marey.store.victoria.delivery.spill import Spill
from marey.store.victoria.grids import overlay_batches
from marey.store.victoria.http_server import Server, VictoriaRefused

log = logging.getLogger(__name__)

_LEAST_PAUSE_S = 0.25
_MOST_PAUSE_S = 30.0
# A entry of which something is missing after so many rounds will not be taken.
_ROUNDS = 3


class DeliveryLoop:
    """The queue of entries and the thread that works it off."""

    def __init__(self, server: Server, site: str, spill: Spill, rules: DeliveryRules) -> None:
        self.state = DeliveryState()
        self.rules = rules
        self.spill = spill
        self.queue = SendQueue(spill)
        self._server = server
        self._sender = Sender(server, site, self.queue)
        # One at a time: the thread, or whoever settles by hand.
        self._working = threading.RLock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pause_s = _LEAST_PAUSE_S
        self._vitals_s = -math.inf
        self._known_vitals: Any = None
        if spill.damaged:
            self.state.refused_reason = "; ".join(spill.damaged)
            log.error("%s", self.state.refused_reason)

    def keep(self, batches: Iterable[SampleBatch]) -> None:
        """Put batches on disk as one step and in the queue."""
        self.queue.keep(batches, self.complaint())
        self._wake.set()

    def complaint(self) -> str:
        """Return why entries wait, in a sentence."""
        state = self.state
        if not state.error:
            return "They wait to be confirmed."
        return state.error if state.error.endswith(".") else f"{state.error}."

    # The thread

    def start(self) -> None:
        """Begin to deliver."""
        self._thread = threading.Thread(target=self._run, name="victoria", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the request in hand; what is not confirmed stays on disk."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                pause_s = self.step()
            except Exception:
                log.exception("the delivery of samples failed at this step")
                self.state.failures += 1
                pause_s = _MOST_PAUSE_S
            if pause_s > 0:
                self._wake.wait(pause_s)
                # While the server is away, a new entry is no reason to ask it earlier.
                if not self.state.reachable:
                    self._stop.wait(pause_s)
        self._server.close()

    def step(self) -> float:
        """Do the next thing; seconds until there may be another one."""
        with self._working:
            self.state.attempts += 1
            heard = self._server.answers
            try:
                pause_s = self._advance()
                if self._server.answers == heard and not self.state.reachable:
                    # Nothing was due, so nothing was heard: is it back?
                    self._server.vitals()
            except (Unavailable, VictoriaRefused) as error:
                return self._record_failure(error)
            if self._server.answers > heard:
                self._record_success()
            return pause_s

    def _advance(self) -> float:
        entries = self.queue.entries()
        fresh = next(
            (p for p in entries if p.stage in (DeliveryStage.WAITING, DeliveryStage.DOUBTFUL)), None
        )
        now_s = time.monotonic()
        if fresh is not None:
            return self._send_next(fresh, entries)
        ripe = [p for p in entries if p.stage is DeliveryStage.SENT]
        if not ripe:
            self.queue.trim()
            return _MOST_PAUSE_S
        due_s = ripe[0].sent_s + self.rules.patience_s - now_s
        if due_s > 0:
            self.queue.trim()
            return due_s
        self._confirm(_pick_due_entries(ripe, now_s - self.rules.patience_s))
        self.queue.trim()
        return 0.0

    def _send_next(self, entry: QueueEntry, entries: Sequence[QueueEntry]) -> float:
        if entry.stage is DeliveryStage.DOUBTFUL:
            # What did arrive must have become visible, or it would be sent a second time.
            wait_s = entry.sent_s + self.rules.visible_s - time.monotonic()
            if wait_s > 0:
                return wait_s
        try:
            earlier = entries[: list(entries).index(entry)]
            batch = self._sender.send(entry, earlier, self._ask_vitals)
            self.state.delivered_samples += _count_values(batch)
        except VictoriaRefused as error:
            if not error.of_the_data:
                raise
            entry.rounds += 1
            if entry.rounds < _ROUNDS:
                raise
            self._refuse(entry, self.queue.loaded(entry), str(error))
        except (StoreError, OSError, ValueError) as error:
            if isinstance(error, MareyError) and isinstance(error, VictoriaRefused | Unavailable):
                raise
            # The file cannot be read: it is kept aside for whoever can mend it.
            self._set_aside(entry, str(error))
        return 0.0

    def _record_failure(self, error: MareyError) -> float:
        state = self.state
        self._vitals_s = -math.inf
        state.failures += 1
        state.reachable = False
        state.error, state.error_code = str(error), error.code
        if state.failing_since_s is None:
            state.failing_since_s = time.time()
            log.warning("%s Samples are kept on disk until it does.", error)
        for entry in self.queue.entries():
            # It may have been cut short by whatever failed.
            if entry.stage is DeliveryStage.WAITING and entry.sent_s:
                entry.stage = DeliveryStage.DOUBTFUL
        pause_s = self._pause_s * random.uniform(0.7, 1.3)
        self._pause_s = min(_MOST_PAUSE_S, 2 * self._pause_s)
        return pause_s

    def _record_success(self) -> None:
        state = self.state
        if state.failing_since_s is not None:
            log.warning("%s answers again.", self._server.shown)
        state.reachable, state.failing_since_s = True, None
        state.error = state.error_code = ""
        self._pause_s = _LEAST_PAUSE_S

    # One entry

    def _ask_vitals(self) -> Any:
        """Return the server's vitals, asked for once a second at most."""
        if time.monotonic() - self._vitals_s > 1.0:
            self._known_vitals = self._server.vitals()
            self._vitals_s = time.monotonic()
        return self._known_vitals

    def _confirm(self, entries: Sequence[QueueEntry]) -> None:
        """Believe of entries of one scope that they arrived, or send what did not."""
        vitals = self._server.vitals()
        doubted = []
        for entry in entries:
            batch = self._sender.load_sorted_samples(entry)
            if self._has_arrived(entry, batch, vitals):
                self._record_confirmation(entry)
            else:
                doubted.append((entry, batch))
        if doubted:
            first = doubted[0][1]
            together = overlay_batches([batch for _, batch in doubted], first.kind, first.cluster)
            parts = self._sender.stored(together)
            for entry, batch in doubted:
                missing = find_missing(batch, entry.plan, collect_known(batch, parts))
                self._send_missing(entry, batch, missing, vitals)

    def _send_missing(
        self,
        entry: QueueEntry,
        batch: SampleBatch,
        missing: dict[str, NDArray[np.bool_]],
        vitals: Any,
    ) -> None:
        lost = int(sum(mask.sum() for mask in missing.values()))
        if not lost:
            # The samples are all there; how far they reach must be, too.
            self._sender.send_reach(batch)
            self._record_confirmation(entry)
            return
        entry.rounds += 1
        if entry.rounds >= _ROUNDS:
            self._refuse_missing(entry, batch, missing)
            return
        log.warning("%d samples did not arrive at %s; sent again", lost, self._server.shown)
        self._sender.send_missing(batch, entry.plan or _make_first_plan(batch), missing)
        self.state.resent_samples += lost
        entry.vitals = vitals
        entry.sent_s = time.monotonic()

    def _has_arrived(self, entry: QueueEntry, batch: SampleBatch, vitals: Any) -> bool:
        """Return whether the server lived on, threw nothing away, and shows the rows
        of the entry.
        """
        if entry.vitals is None or entry.plan is not None or entry.rounds:
            return False
        if vitals != entry.vitals:
            return False
        return self._sender.count_rows_shown(entry) >= len(np.unique(batch.entity))

    def _record_confirmation(self, entry: QueueEntry) -> None:
        entry.stage = DeliveryStage.CONFIRMED
        newest = max(self.state.newest_confirmed_ms, entry.place.to_ms - 1)
        self.state.newest_confirmed_ms = newest

    def _refuse_missing(
        self, entry: QueueEntry, batch: SampleBatch, missing: dict[str, NDArray[np.bool_]]
    ) -> None:
        columns = {
            name: np.where(missing[name], values, np.nan).astype(np.float32)
            for name, values in batch.columns.items()
        }
        lost = replace(batch, columns=columns)
        reason = (
            f"{self._server.shown} takes samples between {entry.place.from_ms} and "
            f"{entry.place.to_ms} ms but does not keep them: they are older than its "
            "-retentionPeriod, or more than two days ahead of its clock"
        )
        self._refuse(entry, lost, reason)

    def _refuse(self, entry: QueueEntry, batch: SampleBatch, reason: str) -> None:
        aside = self.spill.keep_aside(batch, reason)
        self.state.refused_samples += _count_values(batch)
        self.state.refused_reason = f"{reason.rstrip('.')}; kept in {aside.name}."
        log.error("%s", self.state.refused_reason)
        entry.stage = DeliveryStage.CONFIRMED

    def _set_aside(self, entry: QueueEntry, reason: str) -> None:
        self.state.refused_samples += self.queue.set_aside(entry.place.file, reason)
        self.state.refused_reason = f"'{entry.place.file.name}' cannot be read: {reason}"
        log.error("%s", self.state.refused_reason)

    # By hand

    def _run_next_step(self) -> float:
        """Return the next step, without the wait for what a flush has made visible."""
        with self._working:
            sent = [p for p in self.queue.entries() if p.stage is DeliveryStage.SENT]
            if sent and all(
                p.stage not in (DeliveryStage.WAITING, DeliveryStage.DOUBTFUL)
                for p in self.queue.entries()
            ):
                try:
                    self._server.flush()
                except (Unavailable, VictoriaRefused) as error:
                    return self._record_failure(error)
                for entry in sent:
                    entry.sent_s = -self.rules.patience_s
            return self.step()

    def deliver_all(self, timeout_s: float) -> None:
        """Deliver and confirm everything now; raises where that does not succeed in time."""
        until_s = time.monotonic() + timeout_s
        while True:
            entries = self.queue.entries()
            if not entries:
                return
            if time.monotonic() > until_s:
                raise Unavailable(f"Samples still wait: {self.complaint()}")
            pause_s = self._run_next_step()
            if pause_s > 0 and entries[0].stage is DeliveryStage.DOUBTFUL:
                time.sleep(min(pause_s, 0.2))
            if not self.state.reachable:
                time.sleep(0.05)


def _pick_due_entries(ripe: Sequence[QueueEntry], due_s: float) -> list[QueueEntry]:
    """Return the first entries that are due, of one scope, as many as can be looked up at once."""
    found: list[QueueEntry] = []
    rows = 0
    for entry in ripe:
        rows += entry.place.rows
        if found and (entry.sent_s > due_s or entry.scope != found[0].scope or rows > MEMORY_ROWS):
            break
        found.append(entry)
    return found


def _make_first_plan(batch: SampleBatch) -> dict[str, Revisions]:
    plan = {name: np.zeros(len(batch), np.int64) for name in batch.columns}
    return {**plan, "": np.ones(len(batch), np.int64)}


def _count_values(batch: SampleBatch) -> int:
    return int(sum(np.count_nonzero(~np.isnan(values)) for values in batch.columns.values()))

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
from marey.store.victoria.delivery_state import DeliveryRules, DeliveryState
from marey.store.victoria.grids import overlaid
from marey.store.victoria.line import MEMORY_ROWS, ParcelLine
from marey.store.victoria.parcels import Parcel, Revisions, Stage, known_of, still_missing
from marey.store.victoria.server import Refused, Server
from marey.store.victoria.shipping import Shipper
from marey.store.victoria.spill import Spill

log = logging.getLogger(__name__)

_LEAST_PAUSE_S = 0.25
_MOST_PAUSE_S = 30.0
# A parcel of which something is missing after so many rounds will not be taken.
_ROUNDS = 3


class Delivery:
    """The line of parcels and the thread that works it off."""

    def __init__(self, server: Server, site: str, spill: Spill, rules: DeliveryRules) -> None:
        self.state = DeliveryState()
        self.rules = rules
        self.spill = spill
        self.line = ParcelLine(spill)
        self._server = server
        self._shipper = Shipper(server, site, self.line)
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
        """Put batches on disk as one step and in line."""
        self.line.keep(batches, self.complaint())
        self._wake.set()

    def complaint(self) -> str:
        """Why parcels wait, in a sentence."""
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
                # While the server is away, a new parcel is no reason to ask it earlier.
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
            except (Unavailable, Refused) as error:
                return self._failed(error)
            if self._server.answers > heard:
                self._succeeded()
            return pause_s

    def _advance(self) -> float:
        parcels = self.line.parcels()
        fresh = next((p for p in parcels if p.stage in (Stage.WAITING, Stage.DOUBTFUL)), None)
        now_s = time.monotonic()
        if fresh is not None:
            return self._send_next(fresh, parcels)
        ripe = [p for p in parcels if p.stage is Stage.SENT]
        if not ripe:
            self.line.trim()
            return _MOST_PAUSE_S
        due_s = ripe[0].sent_s + self.rules.patience_s - now_s
        if due_s > 0:
            self.line.trim()
            return due_s
        self._confirm(_together(ripe, now_s - self.rules.patience_s))
        self.line.trim()
        return 0.0

    def _send_next(self, parcel: Parcel, parcels: Sequence[Parcel]) -> float:
        if parcel.stage is Stage.DOUBTFUL:
            # What did arrive must have become visible, or it would be sent a second time.
            wait_s = parcel.sent_s + self.rules.visible_s - time.monotonic()
            if wait_s > 0:
                return wait_s
        try:
            earlier = parcels[: list(parcels).index(parcel)]
            batch = self._shipper.send(parcel, earlier, self._vitals)
            self.state.delivered_samples += _values(batch)
        except Refused as error:
            if not error.of_the_data:
                raise
            parcel.rounds += 1
            if parcel.rounds < _ROUNDS:
                raise
            self._refuse(parcel, self.line.loaded(parcel), str(error))
        except (StoreError, OSError, ValueError) as error:
            if isinstance(error, MareyError) and isinstance(error, Refused | Unavailable):
                raise
            # The file cannot be read: it is kept aside for whoever can mend it.
            self._set_aside(parcel, str(error))
        return 0.0

    def _failed(self, error: MareyError) -> float:
        state = self.state
        self._vitals_s = -math.inf
        state.failures += 1
        state.reachable = False
        state.error = str(error)
        if state.failing_since_s is None:
            state.failing_since_s = time.time()
            log.warning("%s Samples are kept on disk until it does.", error)
        for parcel in self.line.parcels():
            # It may have been cut short by whatever failed.
            if parcel.stage is Stage.WAITING and parcel.sent_s:
                parcel.stage = Stage.DOUBTFUL
        pause_s = self._pause_s * random.uniform(0.7, 1.3)
        self._pause_s = min(_MOST_PAUSE_S, 2 * self._pause_s)
        return pause_s

    def _succeeded(self) -> None:
        state = self.state
        if state.failing_since_s is not None:
            log.warning("%s answers again.", self._server.shown)
        state.reachable, state.error, state.failing_since_s = True, "", None
        self._pause_s = _LEAST_PAUSE_S

    # One parcel

    def _vitals(self) -> Any:
        """The server's vitals, asked for once a second at most."""
        if time.monotonic() - self._vitals_s > 1.0:
            self._known_vitals = self._server.vitals()
            self._vitals_s = time.monotonic()
        return self._known_vitals

    def _confirm(self, parcels: Sequence[Parcel]) -> None:
        """Believe of parcels of one scope that they arrived, or send what did not."""
        vitals = self._server.vitals()
        doubted = []
        for parcel in parcels:
            batch = self._shipper.sorted_samples(parcel)
            if self._arrived(parcel, batch, vitals):
                self._confirmed(parcel)
            else:
                doubted.append((parcel, batch))
        if doubted:
            first = doubted[0][1]
            together = overlaid([batch for _, batch in doubted], first.kind, first.cluster)
            parts = self._shipper.stored(together)
            for parcel, batch in doubted:
                missing = still_missing(batch, parcel.plan, known_of(batch, parts))
                self._send_missing(parcel, batch, missing, vitals)

    def _send_missing(
        self,
        parcel: Parcel,
        batch: SampleBatch,
        missing: dict[str, NDArray[np.bool_]],
        vitals: Any,
    ) -> None:
        lost = int(sum(mask.sum() for mask in missing.values()))
        if not lost:
            # The samples are all there; how far they reach must be, too.
            self._shipper.ship_reach(batch)
            self._confirmed(parcel)
            return
        parcel.rounds += 1
        if parcel.rounds >= _ROUNDS:
            self._refuse_missing(parcel, batch, missing)
            return
        log.warning("%d samples did not arrive at %s; sent again", lost, self._server.shown)
        self._shipper.ship(batch, parcel.plan or _first_plan(batch), missing)
        self.state.resent_samples += lost
        parcel.vitals = vitals
        parcel.sent_s = time.monotonic()

    def _arrived(self, parcel: Parcel, batch: SampleBatch, vitals: Any) -> bool:
        """Whether the server lived on, threw nothing away, and shows the rows of the parcel."""
        if parcel.vitals is None or parcel.plan is not None or parcel.rounds:
            return False
        if vitals != parcel.vitals:
            return False
        return self._shipper.rows_shown(parcel) >= len(np.unique(batch.entity))

    def _confirmed(self, parcel: Parcel) -> None:
        parcel.stage = Stage.CONFIRMED
        newest = max(self.state.newest_confirmed_ms, parcel.place.to_ms - 1)
        self.state.newest_confirmed_ms = newest

    def _refuse_missing(
        self, parcel: Parcel, batch: SampleBatch, missing: dict[str, NDArray[np.bool_]]
    ) -> None:
        columns = {
            name: np.where(missing[name], values, np.nan).astype(np.float32)
            for name, values in batch.columns.items()
        }
        lost = replace(batch, columns=columns)
        reason = (
            f"{self._server.shown} takes samples between {parcel.place.from_ms} and "
            f"{parcel.place.to_ms} ms but does not keep them: they are older than its "
            "-retentionPeriod, or more than two days ahead of its clock"
        )
        self._refuse(parcel, lost, reason)

    def _refuse(self, parcel: Parcel, batch: SampleBatch, reason: str) -> None:
        aside = self.spill.keep_aside(batch, reason)
        self.state.refused_samples += _values(batch)
        self.state.refused_reason = f"{reason.rstrip('.')}; kept in {aside.name}."
        log.error("%s", self.state.refused_reason)
        parcel.stage = Stage.CONFIRMED

    def _set_aside(self, parcel: Parcel, reason: str) -> None:
        self.state.refused_samples += self.line.set_aside(parcel.place.file, reason)
        self.state.refused_reason = f"'{parcel.place.file.name}' cannot be read: {reason}"
        log.error("%s", self.state.refused_reason)

    # By hand

    def _hastened(self) -> float:
        """The next step, without the wait for what a flush has made visible."""
        with self._working:
            sent = [p for p in self.line.parcels() if p.stage is Stage.SENT]
            if sent and all(
                p.stage not in (Stage.WAITING, Stage.DOUBTFUL) for p in self.line.parcels()
            ):
                try:
                    self._server.flush()
                except (Unavailable, Refused) as error:
                    return self._failed(error)
                for parcel in sent:
                    parcel.sent_s = -self.rules.patience_s
            return self.step()

    def settle(self, timeout_s: float) -> None:
        """Deliver and confirm everything now; raises where that does not succeed in time."""
        until_s = time.monotonic() + timeout_s
        while True:
            parcels = self.line.parcels()
            if not parcels:
                return
            if time.monotonic() > until_s:
                raise Unavailable(f"Samples still wait: {self.complaint()}")
            pause_s = self._hastened()
            if pause_s > 0 and parcels[0].stage is Stage.DOUBTFUL:
                time.sleep(min(pause_s, 0.2))
            if not self.state.reachable:
                time.sleep(0.05)


def _together(ripe: Sequence[Parcel], due_s: float) -> list[Parcel]:
    """The first parcels that are due, of one scope, as many as can be looked up at once."""
    found: list[Parcel] = []
    rows = 0
    for parcel in ripe:
        rows += parcel.place.rows
        if found and (
            parcel.sent_s > due_s or parcel.scope != found[0].scope or rows > MEMORY_ROWS
        ):
            break
        found.append(parcel)
    return found


def _first_plan(batch: SampleBatch) -> dict[str, Revisions]:
    plan = {name: np.zeros(len(batch), np.int64) for name in batch.columns}
    return {**plan, "": np.ones(len(batch), np.int64)}


def _values(batch: SampleBatch) -> int:
    return int(sum(np.count_nonzero(~np.isnan(values)) for values in batch.columns.values()))

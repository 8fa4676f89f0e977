"""Putting one entry on the server: every sample once, whatever of it is there already."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.samples import SampleBatch
from marey.store.victoria.delivery.queue_entries import (
    DeliveryStage,
    KnownRevision,
    QueueEntry,
    Revisions,
    add_earlier,
    collect_known,
    plan_revisions,
    split_by_revision,
)
from marey.store.victoria.delivery.send_queue import SendQueue
from marey.store.victoria.delivery.sent_times import NewestTimes
from marey.store.victoria.grids import SeriesPart, overlay_batches, take_rows
from marey.store.victoria.http_server import Server
from marey.store.victoria.import_requests import Writer
from marey.store.victoria.server_queries import Scope, ServerReader

# More entities than this are not named one by one in a question.
_MANY_ENTITIES = 5_000


class Sender:
    """Sends entries of a queue, and looks up what the server has of them."""

    def __init__(self, server: Server, site: str, queue: SendQueue) -> None:
        self._queue = queue
        self._reader = ServerReader(server, site)
        self._writer = Writer(server, site)
        self._newest = NewestTimes()

    def send(
        self, entry: QueueEntry, earlier: Sequence[QueueEntry], vitals: Callable[[], Any]
    ) -> SampleBatch:
        """Send what the server lacks of a entry; returns the entry's samples without repeats.

        ``earlier`` are the entries before it in the queue; ``vitals`` are asked for just before
        anything is sent.
        """
        whole = entry.batch is not None
        batch, scope = self.load_sorted_samples(entry), entry.scope
        if self._newest.floor(scope) is None:
            reach = self._reader.reach(scope)
            self._newest.learn(scope, -1 if reach is None else reach.to_ms - 1)
        doubtful = entry.stage is DeliveryStage.DOUBTFUL and self.count_rows_shown(entry) > 0
        late = np.ones(len(batch), bool) if doubtful else self._newest.late(scope, batch)
        before = vitals()
        # From here on something of it may have arrived.
        entry.sent_s = time.monotonic()
        if not late.any():
            entry.plan = None
            self.send_missing(batch, None, None)
        else:
            self._send_late_rows(entry, batch, late, earlier)
        self._newest.note(scope, batch)
        # Without repeats, where it stays in memory at all.
        entry.batch = batch if whole else None
        entry.vitals = before
        entry.sent_s = time.monotonic()
        entry.stage = DeliveryStage.SENT
        return batch

    def _send_late_rows(
        self,
        entry: QueueEntry,
        batch: SampleBatch,
        late: NDArray[np.bool_],
        earlier: Sequence[QueueEntry],
    ) -> None:
        """Send what is not there, the late rows after a look at what is."""
        asked = take_rows(batch, late)
        plan, missing = plan_revisions(asked, self._ask_known(asked, earlier))
        whole_plan = {name: _place_values(plan[name], late, int(name == "")) for name in plan}
        whole_missing = {name: _place_values(missing[name], late, True) for name in missing}
        for name, values in batch.columns.items():
            whole_missing[name] &= ~np.isnan(values)
        entry.plan = whole_plan
        self.send_missing(batch, whole_plan, whole_missing)

    def _ask_known(self, batch: SampleBatch, earlier: Sequence[QueueEntry]) -> KnownRevision:
        scope = Scope(batch.cluster, batch.kind)
        known = collect_known(batch, self.stored(batch))
        reaching = [p for p in earlier if p.overlaps(scope, *_find_span(batch))]
        loaded = [
            QueueEntry(p.place, p.stage, self.load_sorted_samples(p), p.plan) for p in reaching
        ]
        add_earlier(known, batch, loaded)
        return known

    def load_sorted_samples(self, entry: QueueEntry) -> SampleBatch:
        """Return the samples of a entry in order of key, each once."""
        return overlay_batches([self._queue.loaded(entry)], entry.place.kind, entry.place.cluster)

    def count_rows_shown(self, entry: QueueEntry) -> int:
        """Return how many rows the server shows in an entry's span: rows are what is sent first."""
        return self._reader.count_entities_with_rows(
            entry.scope, (entry.place.from_ms, entry.place.to_ms)
        )

    def stored(self, batch: SampleBatch) -> list[SeriesPart]:
        """Return the server's samples of a batch's entities in its span."""
        scope = Scope(batch.cluster, batch.kind)
        named = sorted({batch.entities[code] for code in np.unique(batch.entity)})
        entities = None if len(named) > _MANY_ENTITIES else named
        return list(self._reader.series(scope, batch.columns, _find_span(batch), entities))

    def send_missing(
        self,
        batch: SampleBatch,
        plan: dict[str, Revisions] | None,
        missing: dict[str, NDArray[np.bool_]] | None,
    ) -> None:
        """Send the missing samples under their planned revisions; None is all, under the first."""
        versions = np.ones(len(batch), np.int64) if plan is None else plan[""]
        if missing is not None:
            versions = np.where(missing[""], versions, 0)
        # First, so that where no row is there nothing else of it is.
        self._writer.write_rows(batch, versions)
        for revision, part in split_by_revision(batch, plan, missing):
            self._writer.write(part, revision)
        self.send_reach(batch)

    def send_reach(self, batch: SampleBatch) -> None:
        """Say how far samples reach: last, so that whoever sees it finds them there."""
        self._writer.write_reach(batch)


def _find_span(batch: SampleBatch) -> tuple[int, int]:
    return int(batch.time_ms.min()), int(batch.time_ms.max()) + 1


def _place_values(values: NDArray[Any], at: NDArray[np.bool_], rest: Any) -> NDArray[Any]:
    whole = np.full(len(at), rest, values.dtype)
    whole[at] = values
    return whole

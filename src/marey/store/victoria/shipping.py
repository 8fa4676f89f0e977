"""Putting one parcel on the server: every sample once, whatever of it is there already."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.samples import SampleBatch
from marey.store.victoria.grids import SeriesPart, overlaid, rows_of
from marey.store.victoria.line import ParcelLine
from marey.store.victoria.newest import Newest
from marey.store.victoria.parcels import (
    Known,
    Parcel,
    Revisions,
    Stage,
    add_earlier,
    known_of,
    planned,
    shipments,
)
from marey.store.victoria.reading import Reader, Scope
from marey.store.victoria.server import Server
from marey.store.victoria.wire import Writer

# More entities than this are not named one by one in a question.
_MANY_ENTITIES = 5_000


class Shipper:
    """Sends parcels of a line, and looks up what the server has of them."""

    def __init__(self, server: Server, site: str, line: ParcelLine) -> None:
        self._line = line
        self._reader = Reader(server, site)
        self._writer = Writer(server, site)
        self._newest = Newest()

    def send(
        self, parcel: Parcel, earlier: Sequence[Parcel], vitals: Callable[[], Any]
    ) -> SampleBatch:
        """Send what the server lacks of a parcel; returns the parcel's samples without repeats.

        ``earlier`` are the parcels before it in the line; ``vitals`` are asked for just before
        anything is sent.
        """
        whole = parcel.batch is not None
        batch, scope = self.sorted_samples(parcel), parcel.scope
        if self._newest.floor(scope) is None:
            reach = self._reader.reach(scope)
            self._newest.learn(scope, -1 if reach is None else reach.to_ms - 1)
        doubtful = parcel.stage is Stage.DOUBTFUL and self.rows_shown(parcel) > 0
        late = np.ones(len(batch), bool) if doubtful else self._newest.late(scope, batch)
        before = vitals()
        # From here on something of it may have arrived.
        parcel.sent_s = time.monotonic()
        if not late.any():
            parcel.plan = None
            self.ship(batch, None, None)
        else:
            self._ship_late(parcel, batch, late, earlier)
        self._newest.note(scope, batch)
        # Without repeats, where it stays in memory at all.
        parcel.batch = batch if whole else None
        parcel.vitals = before
        parcel.sent_s = time.monotonic()
        parcel.stage = Stage.SENT
        return batch

    def _ship_late(
        self,
        parcel: Parcel,
        batch: SampleBatch,
        late: NDArray[np.bool_],
        earlier: Sequence[Parcel],
    ) -> None:
        """Send what is not there, the late rows after a look at what is."""
        asked = rows_of(batch, late)
        plan, missing = planned(asked, self._known(asked, earlier))
        whole_plan = {name: _placed(plan[name], late, int(name == "")) for name in plan}
        whole_missing = {name: _placed(missing[name], late, True) for name in missing}
        for name, values in batch.columns.items():
            whole_missing[name] &= ~np.isnan(values)
        parcel.plan = whole_plan
        self.ship(batch, whole_plan, whole_missing)

    def _known(self, batch: SampleBatch, earlier: Sequence[Parcel]) -> Known:
        scope = Scope(batch.cluster, batch.kind)
        known = known_of(batch, self.stored(batch))
        reaching = [p for p in earlier if p.overlaps(scope, *_span(batch))]
        loaded = [Parcel(p.place, p.stage, self.sorted_samples(p), p.plan) for p in reaching]
        add_earlier(known, batch, loaded)
        return known

    def sorted_samples(self, parcel: Parcel) -> SampleBatch:
        """The samples of a parcel in order of key, each once."""
        return overlaid([self._line.loaded(parcel)], parcel.place.kind, parcel.place.cluster)

    def rows_shown(self, parcel: Parcel) -> int:
        """How many rows the server shows in a parcel's span: rows are what is sent first."""
        return self._reader.marked_rows(parcel.scope, (parcel.place.from_ms, parcel.place.to_ms))

    def stored(self, batch: SampleBatch) -> list[SeriesPart]:
        """What the server has of a batch's entities in its span."""
        scope = Scope(batch.cluster, batch.kind)
        named = sorted({batch.entities[code] for code in np.unique(batch.entity)})
        entities = None if len(named) > _MANY_ENTITIES else named
        return list(self._reader.series(scope, batch.columns, _span(batch), entities))

    def ship(
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
        for revision, part in shipments(batch, plan, missing):
            self._writer.write(part, revision)
        self.ship_reach(batch)

    def ship_reach(self, batch: SampleBatch) -> None:
        """Say how far samples reach: last, so that whoever sees it finds them there."""
        self._writer.write_reach(batch)


def _span(batch: SampleBatch) -> tuple[int, int]:
    return int(batch.time_ms.min()), int(batch.time_ms.max()) + 1


def _placed(values: NDArray[Any], at: NDArray[np.bool_], rest: Any) -> NDArray[Any]:
    whole = np.full(len(at), rest, values.dtype)
    whole[at] = values
    return whole

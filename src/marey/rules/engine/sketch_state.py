"""Sketches of every workload's GPUs: fed with samples as they come, asked by whoever judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.model.metrics import Entity, catalogue
from marey.model.samples import SampleBatch
from marey.rules.engine.allocations import AllocationRows
from marey.rules.engine.moment_statistics import Sketches, statistic_of
from marey.rules.language.vocabulary import statistic_named
from marey.stats.sketches.sketch_tables import (
    EntityRows,
    SketchTable,
    Span,
    Ticks,
    WindowNeed,
    WindowRing,
    read_coming,
)


@njit(cache=True, nogil=True)
def _touch(first_ms, last_ms, seen, time_ms, entity, first_row, rows, from_ms, to_ms):  # type: ignore[no-untyped-def]
    for i in range(len(time_ms)):
        code = entity[i]
        if not seen[i] or code < 0 or code + 1 >= len(first_row):
            continue
        for place in range(first_row[code], first_row[code + 1]):
            row = rows[place]
            if from_ms[row] <= time_ms[i] < to_ms[row]:
                if time_ms[i] > last_ms[row]:
                    last_ms[row] = time_ms[i]
                if first_ms[row] == 0 or time_ms[i] < first_ms[row]:
                    first_ms[row] = time_ms[i]


class SketchState:
    """Whole-life sketches and windows per workload's GPU and metric."""

    def __init__(self) -> None:
        self.allocations = AllocationRows()
        self.sketches = Sketches(SketchTable([]), {}, {}, {}, {})
        self.newest_ms = 0
        # Windows that lenses and drafts asked for, the latest last.
        self._watched: dict[str, WindowNeed] = {}
        # Sketch these metrics only (a back-test needs no others); None: all that come.
        self.only: set[str] | None = None
        self._entity_rows: dict[Entity, tuple[object, int, EntityRows]] = {}
        self._attributes: dict[str, tuple[EntityRows, NDArray[np.float64]]] = {}

    # -- windows
    def _drop_ring(self, metric: str) -> None:
        self.sketches.rings.pop(metric, None)
        self.sketches.since_ms.pop(metric, None)

    def _open_ring(self, metric: str, need: WindowNeed) -> bool:
        self._place(metric)
        need |= self._watched.get(metric, need)
        ring = self.sketches.rings.get(metric)
        new = WindowRing(self.sketches.spans[metric], need, 0)
        if ring is not None and ring.holds(new):
            return False
        new.reserve(self.allocations.room)
        self._drop_ring(metric)
        self.sketches.rings[metric] = new
        return True

    def _place(self, metric: str) -> int:
        return int(self._find_slots([metric])[0])

    def _find_slots(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return where the metrics stand in the table; new ones are added together."""
        sketches, known = self.sketches, catalogue()
        new = [name for name in names if name not in sketches.metrics]
        spans = [Span(known[name].minimum, known[name].maximum) for name in new]
        if new:
            sketches.table.add_metrics(spans)
        for name, span in zip(new, spans, strict=True):
            sketches.spans[name] = span
            sketches.metrics[name] = len(sketches.metrics)
        return np.array([sketches.metrics[name] for name in names], np.int64)

    # -- samples
    def sketch(self, batch: SampleBatch) -> int:
        """Take samples of GPUs or hosts into all sketches; returns how many values were taken."""
        if not len(batch):
            return 0
        entity_rows = self._find_entity_rows(batch)
        columns = self._pick_columns(batch)
        # A store answers for every metric there is: one without a single value gets no place.
        known = self.sketches.metrics
        names = [n for n, values in columns.items() if n in known or not np.isnan(values).all()]
        if not names:
            return 0
        # Metrics before rows: room that nobody needs yet is then never touched.
        slots = self._find_slots(names)
        self.reserve()
        time_ms = np.ascontiguousarray(batch.time_ms, np.int64)
        entity = np.ascontiguousarray(batch.entity, np.int32)
        values = np.ascontiguousarray(np.stack([columns[n] for n in names]), np.float32)
        ticks = Ticks(time_ms, entity, values)
        taken = self.sketches.table.update(ticks, slots, entity_rows)
        self._update_windows(names, ticks, entity_rows)
        self._note_seen(ticks, entity_rows, batch.kind)
        return taken

    def _note_seen(self, ticks: Ticks, entity_rows: EntityRows, kind: Entity) -> None:
        # A row without a single value says nothing, not even that the GPU is there.
        seen = ~np.isnan(ticks.values).all(axis=0)
        if seen.any():
            self.newest_ms = max(self.newest_ms, int(ticks.time_ms[seen].max()))
        if kind is Entity.GPU:
            args = (
                entity_rows.first_row,
                entity_rows.rows,
                entity_rows.from_ms,
                entity_rows.to_ms,
            )
            book = self.allocations
            _touch(book.first_ms, book.last_ms, seen, ticks.time_ms, ticks.entity, *args)

    def _update_windows(self, names: list[str], ticks: Ticks, entity_rows: EntityRows) -> None:
        newest, coming = int(ticks.time_ms.max()), read_coming(ticks)
        for column, name in enumerate(names):
            ring = self.sketches.rings.get(name)
            if ring is not None:
                self.sketches.since_ms.setdefault(name, int(ticks.time_ms.min()))
                ring.advance(max(newest, self.newest_ms))
                ring.update(ticks, column, entity_rows, coming)

    def reserve(self) -> None:
        """Make room for every row that is held."""
        room = self.allocations.room
        self.sketches.table.reserve(room)
        for ring in self.sketches.rings.values():
            ring.reserve(room)

    def _find_entity_rows(self, batch: SampleBatch) -> EntityRows:
        kept = self._entity_rows.get(batch.kind)
        if kept and kept[0] is batch.entities and kept[1] == self.allocations.version:
            return kept[2]
        entity_rows = self.allocations.find_entity_rows(
            batch.entities, hosts=batch.kind is Entity.HOST
        )
        self._entity_rows[batch.kind] = (batch.entities, self.allocations.version, entity_rows)
        return entity_rows

    def _pick_columns(self, batch: SampleBatch) -> dict[str, NDArray[np.float32]]:
        known = catalogue()
        columns = {name: values for name, values in batch.columns.items() if name in known}
        for name, metric in known.items():
            derived = metric.derived
            if derived and derived.base in columns and name not in columns:
                whole = self._read_attribute(batch, derived.per)
                columns[name] = (100.0 * columns[derived.base] / whole[batch.entity]).astype(
                    np.float32
                )
        if self.only is None:
            return columns
        return {name: values for name, values in columns.items() if name in self.only}

    def columns_for(self, batch: SampleBatch) -> tuple[dict[str, NDArray[np.float32]], EntityRows]:
        """Return a batch's columns, derived ones included, and whose rows they go to."""
        self.reserve()
        return self._pick_columns(batch), self._find_entity_rows(batch)

    def _read_attribute(self, batch: SampleBatch, per: str) -> NDArray[np.float64]:
        entity_rows = self._find_entity_rows(batch)
        kept = self._attributes.get(per)
        if kept is not None and kept[0] is entity_rows:
            return kept[1]
        values = np.full(len(batch.entities), np.nan)
        held = self.allocations.wholes[per][entity_rows.rows]
        entity = np.repeat(np.arange(len(values)), np.diff(entity_rows.first_row))
        known = ~np.isnan(held)
        values[entity[known]] = held[known]
        self._attributes[per] = (entity_rows, values)
        return values

    def clear_row(self, row: int) -> None:
        """Forget what a row's sketches hold."""
        if row < len(self.sketches.table.agg):
            self.sketches.table.clear(row)
        for ring in self.sketches.rings.values():
            if row < len(ring.agg):
                ring.clear(row)

    # -- what information cards and diagnostics ask for
    def statistics(
        self, workload: str, metrics: Sequence[str], words: Sequence[str]
    ) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return whole-life statistics of one workload: GPU → metric → statistic → value."""
        running = self.allocations.by_name.get(workload)
        if running is None:
            return {}
        self.reserve()
        rows = np.array(list(running.rows.values()), np.int64)
        out: dict[str, dict[str, dict[str, float | None]]] = {gpu: {} for gpu in running.rows}
        for metric in metrics:
            if metric in self.sketches.metrics:
                for gpu, entry in zip(
                    out, self._compute_whole_life(metric, words, rows), strict=True
                ):
                    out[gpu][metric] = entry
        return out

    def _compute_whole_life(
        self, metric: str, words: Sequence[str], rows: NDArray[np.int64]
    ) -> list[dict[str, float | None]]:
        place = self.sketches.metrics[metric]
        agg = self.sketches.table.agg[rows, place]
        bins = self.sketches.table.bins[rows, place]
        columns: Mapping[str, NDArray[np.float64]] = {
            word: statistic_of(statistic, agg, bins.__getitem__, self.sketches.spans[metric])
            for word in words
            if (statistic := statistic_named(word)) is not None
        }
        return [
            {
                word: None if np.isnan(values[i]) else float(values[i])
                for word, values in columns.items()
            }
            for i in range(len(rows))
        ]

    @property
    def nbytes(self) -> tuple[int, int]:
        """Memory of whole-life sketches, and of windows."""
        rings = sum(ring.nbytes for ring in self.sketches.rings.values())
        return self.sketches.table.nbytes, rings

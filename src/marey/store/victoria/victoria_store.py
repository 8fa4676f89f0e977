"""The sample store over VictoriaMetrics: the same promises as the embedded one, checked by the
same contract suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from marey.model.answers import HISTOGRAMS, SERIES, STATISTICS
from marey.model.errors import InvalidInput, Unavailable
from marey.model.metrics import Entity
from marey.model.names import NAME_LIMIT, bounded
from marey.model.protocols import Answer, SampleServerState, Selection
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.store.samples import answers
from marey.store.samples.columns import Column, make_column
from marey.store.samples.sample_queries import Rows, check_points, check_quantiles
from marey.store.victoria import labels
from marey.store.victoria.delivery.delivery_loop import DeliveryLoop
from marey.store.victoria.delivery.delivery_state import DeliveryRules
from marey.store.victoria.delivery.spill import DEFAULT_LIMIT_BYTES, Spill, check_limit
from marey.store.victoria.grids import (
    LATEST_MS,
    SeriesPart,
    drop_empty_rows,
    make_batch_of_series,
    overlay_batches,
    take_rows,
)
from marey.store.victoria.http_server import Server, ServerAddress
from marey.store.victoria.server_queries import Scope, ServerReader
from marey.store.victoria.shaping import (
    check_metrics,
    clean_batch,
    clip_batch,
    find_newest_rows,
    get_rows_metric,
    keep_workload,
    list_entities,
    list_metrics,
    make_rows,
    select_columns,
    sort_by_time,
)
from marey.store.victoria.slices import Slices

__all__ = ["VictoriaSettings", "VictoriaStore", "open_victoria"]

# Cells (rows × metrics) held in memory for one answer; more are read entity by entity.
_CELLS_AT_ONCE = 12_000_000
# Up to here the newest values are found among all samples, beyond it by the server.
_RECENT_MS = 10 * MINUTE_MS
# Series of one question: half of what a server allows by default.
_SERIES_AT_ONCE = 150_000


@dataclass(frozen=True, slots=True)
class VictoriaSettings:
    """Which server, under which name, and where samples wait for it."""

    address: ServerAddress
    spill: Path
    # Several Mareys may share a server; each has a name there.
    site: str = "marey"
    spill_limit_bytes: int = DEFAULT_LIMIT_BYTES
    delivery: DeliveryRules = field(default_factory=DeliveryRules)


def open_victoria(settings: VictoriaSettings, *, deliver: bool = True) -> VictoriaStore:
    """Open the store; a server that is down is no error, its samples wait on disk."""
    if not 1 <= len(settings.site) <= NAME_LIMIT:
        raise InvalidInput(f"The site's name is '{settings.site[:40]}'; allowed: 1 to 256 signs.")
    server = Server(settings.address)
    spill = Spill(settings.spill, check_limit(settings.spill_limit_bytes))
    try:
        delivery = DeliveryLoop(server, settings.site, spill, settings.delivery)
        if deliver:
            delivery.start()
        return VictoriaStore(server, settings.site, delivery)
    except BaseException:
        spill.close()
        raise


class VictoriaStore:
    """Samples in VictoriaMetrics; every write is on the local disk when the call returns."""

    def __init__(self, server: Server, site: str, delivery: DeliveryLoop) -> None:
        self.delivery = delivery
        self._server = server
        self._reader = ServerReader(server, site)
        self._closed = False

    # Writing

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples as one step; one with the same time, entity and metric replaces."""
        self.delivery.keep(clean_batch(batch) for batch in batches)

    def maintain(self, now_ms: int) -> None:
        """Do nothing: rewriting and retention are the server's own (``-retentionPeriod``)."""

    def deliver_all(self, timeout_s: float = 30.0) -> None:
        """Deliver and confirm everything that waits, now."""
        self.delivery.deliver_all(timeout_s)

    def state(self) -> SampleServerState:
        """Return how the server is doing and what waits for it."""
        rows, size = self.delivery.queue.waiting()
        now = replace(self.delivery.state)
        return {
            "reachable": now.reachable,
            "error": now.error,
            "error_code": now.error_code,
            "failing_since_s": now.failing_since_s,
            "attempts": now.attempts,
            "failures": now.failures,
            "delivered_samples": now.delivered_samples,
            "resent_samples": now.resent_samples,
            "refused_samples": now.refused_samples,
            "refused_reason": now.refused_reason,
            "newest_confirmed_ms": now.newest_confirmed_ms,
            "waiting_rows": rows,
            "spill_bytes": size,
            "spill_limit_bytes": self.delivery.spill.limit_bytes,
        }

    def clusters(self) -> list[str]:
        """Return the clusters that samples were written of from this machine."""
        return sorted(self.delivery.queue.clusters())

    def close(self) -> None:
        """Finish cleanly; what is not confirmed waits on disk for the next start."""
        if not self._closed:
            self._closed = True
            self.delivery.stop()
            self.delivery.spill.close()
            self._server.close()

    def __enter__(self) -> VictoriaStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """Yield the samples themselves, each once, in order of time within a batch."""
        metrics = check_metrics(selection)
        asked = self._narrow_selection(selection)
        if asked is None:
            return
        scope, span, entities, workload = asked
        for slice_span, note in Slices(span):
            batch = self._gather_batch(scope, metrics, slice_span, entities)
            note(len(batch) * (len(metrics) + 1))
            batch = drop_empty_rows(keep_workload(batch, workload))
            if len(batch):
                yield select_columns(sort_by_time(batch), selection)

    def series(self, selection: Selection, points: int) -> Answer:
        """Return downsampled series that keep extremes."""
        points = check_points(points)
        tables = (
            answers.make_series(rows, columns, names, points)
            for rows, columns, names in self._read_parts(selection)
        )
        return Answer(answers.concatenate_tables(tables, SERIES))

    def histograms(
        self, selection: Selection, bins: int, ranges: Sequence[tuple[float, float]] = ()
    ) -> Answer:
        """Return counts per entity and metric over equal bins (metric's own range unless given)."""
        columns = [make_column(name, 0) for name in check_metrics(selection)]
        asked = answers.check_ranges(columns, bins, ranges)
        tables = (
            answers.make_histograms(rows, own, names, bins=bins, ranges=asked)
            for rows, own, names in self._read_parts(selection)
        )
        return Answer(answers.concatenate_tables(tables, HISTOGRAMS))

    def statistics(self, selection: Selection, quantiles: Sequence[float] = ()) -> Answer:
        """Return exact count, min, max, mean, std, first, last per entity and metric, and
        quantiles.
        """
        asked = check_quantiles(quantiles)
        tables = (
            answers.compute_statistics(rows, columns, names, asked)
            for rows, columns, names in self._read_parts(selection)
        )
        return Answer(answers.concatenate_tables(tables, STATISTICS))

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """Return the newest value of every metric of every entity, none older than ``since_ms``."""
        scope = Scope(bounded(cluster), kind)
        # First what waits: what is confirmed meanwhile is then within the server's reach.
        waiting = self.delivery.queue.pending(scope, since_ms, LATEST_MS)
        reach = self._reader.reach(scope)
        if reach is not None and reach.to_ms - since_ms <= _RECENT_MS:
            span = (since_ms, LATEST_MS)
            batch = drop_empty_rows(self._gather_batch(scope, list_metrics(kind), span, None))
        else:
            until_ms = 0 if reach is None else reach.to_ms
            batch = self._find_last_of_all(scope, (since_ms, until_ms), waiting)
        newest = find_newest_rows(batch)
        none = np.full(len(newest), np.nan, np.float32)
        columns = {name: newest.columns.get(name, none) for name in list_metrics(kind)}
        return replace(newest, columns=columns, cluster=cluster)

    def _find_last_of_all(
        self, scope: Scope, span: tuple[int, int], waiting: Sequence[SampleBatch]
    ) -> SampleBatch:
        """Return the last sample of every series, each at its own time; the server finds them."""
        rows_metric = get_rows_metric(scope.kind)
        known = {*list_metrics(scope.kind), rows_metric}
        parts = [p for p in self._ask_newest(scope, *span) if p.metric in known]
        stored = make_batch_of_series(parts, rows_metric, scope.kind, scope.cluster)
        own = [take_rows(batch, batch.time_ms >= span[0]) for batch in waiting]
        return drop_empty_rows(overlay_batches([stored, *own], scope.kind, scope.cluster))

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Return time of the first and last sample, or None where there is none.

        What this machine has written is remembered, so that a clock can go on while the server
        does not answer.
        """
        reaches: list[tuple[int, int] | None] = []
        silent: Unavailable | None = None
        for kind in Entity:
            scope = Scope(bounded(cluster), kind)
            reaches.append(self.delivery.queue.reach(scope))
            try:
                stored = self._reader.reach(scope)
                reaches.append(None if stored is None else (stored.from_ms, stored.to_ms))
            except Unavailable as error:
                silent = error
                reaches.append(self.delivery.queue.remembered_reach(scope))
        known = [reach for reach in reaches if reach is not None]
        if not known and silent is not None:
            raise silent
        return (min(k[0] for k in known), max(k[1] for k in known) - 1) if known else None

    def _ask_newest(self, scope: Scope, since_ms: int, until_ms: int) -> list[SeriesPart]:
        return [
            SeriesPart(
                labels.get_metric(named),
                labels.join_entity(named),
                int(named.get(labels.REVISION, "0")),
                time_ms=np.array([time_ms], np.int64),
                values=np.array([value]),
                workload=named.get(labels.WORKLOAD),
            )
            for named, time_ms, value in self._reader.newest(scope, since_ms, until_ms)
        ]

    def _narrow_selection(
        self, selection: Selection
    ) -> tuple[Scope, tuple[int, int], list[str] | None, str | None] | None:
        """Return scope, span, entities (None: all) and workload; None where nothing can match."""
        scope = Scope(bounded(selection.cluster), selection.kind)
        span = (max(0, selection.from_ms), min(selection.to_ms, LATEST_MS))
        entities = sorted({labels.clean_entity(name) for name in selection.entities}) or None
        workload = None if selection.workload is None else bounded(selection.workload)
        if span[0] >= span[1]:
            return None
        reaches: list[tuple[int, int]] = []
        if workload is not None:
            held = self._find_held(scope, workload, span)
            chosen = sorted(held) if entities is None else sorted(set(entities) & set(held))
            reaches = [held[name] for name in chosen]
            entities = chosen
        else:
            waiting = self.delivery.queue.reach(scope)
            stored = self._reader.reach(scope)
            reaches += [] if waiting is None else [waiting]
            reaches += [] if stored is None else [(stored.from_ms, stored.to_ms)]
        if not reaches:
            return None
        span = max(span[0], min(r[0] for r in reaches)), min(span[1], max(r[1] for r in reaches))
        return (scope, span, entities, workload) if span[0] < span[1] else None

    def _find_held(self, scope: Scope, workload: str, span: tuple[int, int]) -> dict[str, Any]:
        """Return the entities that a workload held, and between which times."""
        waiting = self.delivery.queue.pending(scope, *span)
        found = {
            name: (reach.from_ms, reach.to_ms)
            for name, reach in self._reader.holders(scope, workload, span).items()
        }
        for batch in waiting:
            own = keep_workload(batch, workload)
            for code in np.unique(own.entity):
                times = own.time_ms[own.entity == code]
                name = own.entities[code]
                reach = found.get(name, (LATEST_MS, 0))
                found[name] = min(reach[0], int(times.min())), max(reach[1], int(times.max()) + 1)
        return found

    def _gather_batch(
        self,
        scope: Scope,
        metrics: Sequence[str],
        span: tuple[int, int],
        entities: Sequence[str] | None,
    ) -> SampleBatch:
        """Return stored values overlaid with those that wait, by entity and time."""
        # First what waits: what is confirmed between the two questions is then in both.
        waiting = self.delivery.queue.pending(scope, *span)
        stored = self._reader.batch(scope, metrics, span, entities)
        own = [clip_batch(batch, metrics, span, entities) for batch in waiting]
        return overlay_batches([stored, *own], scope.kind, scope.cluster)

    def _read_parts(self, selection: Selection) -> Iterator[tuple[Rows, list[Column], list[str]]]:
        """Yield the rows of a selection, in parts by entity where they are too many for one."""
        metrics = check_metrics(selection)
        asked = self._narrow_selection(selection)
        if asked is None:
            return
        scope, span, entities, workload = asked
        for group in self._group_entities(scope, span, entities, len(metrics) + 1):
            batch = keep_workload(self._gather_batch(scope, metrics, span, group), workload)
            columns = [make_column(n, 0) for n in metrics if n in batch.columns]
            if len(batch) and columns:
                yield make_rows(batch, columns), columns, list_entities(batch)

    def _group_entities(
        self, scope: Scope, span: tuple[int, int], entities: list[str] | None, width: int
    ) -> Iterator[list[str] | None]:
        counts = self._reader.counts(scope, span, entities)
        for batch in self.delivery.queue.pending(scope, *span):
            for name in batch.entities:
                counts.setdefault(name, 1)
        cells = sum(counts.values()) * width
        if cells <= _CELLS_AT_ONCE and len(counts) * width <= _SERIES_AT_ONCE:
            yield entities
            return
        wanted = sorted(counts if entities is None else set(entities) & set(counts))
        group: list[str] = []
        size = 0
        for name in wanted:
            if group and (
                size + counts[name] * width > _CELLS_AT_ONCE
                or len(group) * width >= _SERIES_AT_ONCE
            ):
                yield group
                group, size = [], 0
            group.append(name)
            size += counts[name] * width
        if group:
            yield group

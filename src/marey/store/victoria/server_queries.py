"""Questions to the server: raw samples of entities, who held what, and how far samples reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marey.model.metrics import Entity
from marey.model.samples import SampleBatch
from marey.store.victoria import labels
from marey.store.victoria.export_tables import FORMAT, parse_export
from marey.store.victoria.grids import EARLIEST_MS, LATEST_MS, SeriesPart, make_batch_of_series
from marey.store.victoria.http_server import ExportLine, Server

# Hosts named in one question, so that none grows beyond what a server takes.
_ENTITIES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Scope:
    """One kind of entity of one cluster."""

    cluster: str
    kind: Entity


@dataclass(frozen=True, slots=True)
class SeriesExtent:
    """From when to when a series has samples, and how many."""

    from_ms: int
    to_ms: int


class ServerReader:
    """Reads one site's series."""

    def __init__(self, server: Server, site: str) -> None:
        self._server = server
        self._site = site

    def series(
        self,
        scope: Scope,
        metrics: Iterable[str],
        span: tuple[int, int],
        entities: Sequence[str] | None = None,
    ) -> Iterator[SeriesPart]:
        """Yield metrics and rows of entities (None: all) in ``[from, to)``, as they are stored."""
        names = [labels.get_rows_name(scope.kind), *(labels.get_series_name(m) for m in metrics)]
        from_ms, to_ms = max(span[0], EARLIEST_MS), min(span[1], LATEST_MS)
        if from_ms >= to_ms:
            return
        for matchers in self._make_matchers(scope, entities):
            selectors = [labels.make_selector(names, own) for own in matchers]
            wanted = None if entities is None else set(entities)
            for line in self._server.export(selectors, from_ms, to_ms):
                part = _make_part(line)
                if wanted is None or part.entity in wanted:
                    yield part

    def batch(
        self,
        scope: Scope,
        metrics: Iterable[str],
        span: tuple[int, int],
        entities: Sequence[str] | None = None,
    ) -> SampleBatch:
        """Return the same as one batch, by entity and time.

        Of a whole cluster by the fastest way.
        """
        rows_metric = labels.get_rows_name(scope.kind).removeprefix(labels.PREFIX)
        metrics = list(metrics)
        window = _find_window(span)
        if entities is None and window is not None and self._has_only_plain_names(scope, window):
            names = [
                labels.get_rows_name(scope.kind),
                *(labels.get_series_name(m) for m in metrics),
            ]
            plain = labels.make_plain_matcher()
            own = {**self._make_scope_matchers(scope), "host": plain, labels.WORKLOAD: plain}
            selectors = [labels.make_selector(names, own)]
            from_ms, to_ms = window[0] + 1 - window[1], window[0] + 1
            with self._server.export_csv(selectors, FORMAT, from_ms, to_ms) as answer:
                return parse_export(answer, rows_metric, scope.kind, scope.cluster)
        parts = self.series(scope, metrics, span, entities)
        return make_batch_of_series(parts, rows_metric, scope.kind, scope.cluster)

    def _has_only_plain_names(self, scope: Scope, window: tuple[int, int]) -> bool:
        """Return whether no host and no holder has a name that CSV would garble."""
        for label in ("host", labels.WORKLOAD):
            own = {
                **self._make_scope_matchers(scope),
                label: labels.make_plain_matcher(plain=False),
            }
            series = labels.make_selector([labels.get_rows_name(scope.kind)], own)
            if self._server.query(f"count(count_over_time({series}[{window[1]}ms]))", window[0]):
                return False
        return True

    def holders(
        self, scope: Scope, workload: str, span: tuple[int, int]
    ) -> dict[str, SeriesExtent]:
        """Return the entities that a workload held, and between which samples."""
        own = {labels.WORKLOAD: f"={labels.quote_text(workload)}"}
        return self._ask_reaches(scope, labels.get_rows_name(scope.kind), own, span)

    def counts(
        self, scope: Scope, span: tuple[int, int], entities: Sequence[str] | None = None
    ) -> dict[str, int]:
        """Return how many rows each entity has; of a row that was restated, perhaps more."""
        found: dict[str, int] = {}
        window = _find_window(span)
        if window is None:
            return found
        at_ms, range_ms = window
        by = ", ".join(labels.ENTITY_LABELS)
        for matchers in self._make_matchers(scope, entities):
            for own in matchers:
                series = labels.make_selector([labels.get_rows_name(scope.kind)], own)
                question = f"sum(count_over_time({series}[{range_ms}ms])) by ({by})"
                for named, value in self._server.query(question, at_ms):
                    found[labels.join_entity(named)] = int(value)
        if entities is not None:
            found = {name: found[name] for name in set(entities) & set(found)}
        return found

    def count_entities_with_rows(self, scope: Scope, span: tuple[int, int]) -> int:
        """Return how many entities have a row in this span."""
        window = _find_window(span)
        if window is None:
            return 0
        series = labels.make_selector(
            [labels.get_rows_name(scope.kind)], self._make_scope_matchers(scope)
        )
        by = ", ".join(labels.ENTITY_LABELS)
        counted = f"count(count(count_over_time({series}[{window[1]}ms])) by ({by}))"
        found = self._server.query(counted, window[0])
        return int(found[0][1]) if found else 0

    def reach(self, scope: Scope, to_ms: int = LATEST_MS) -> SeriesExtent | None:
        """Return from when to when a cluster has samples of this kind."""
        found = self._ask_reaches(scope, labels.get_reach_name(scope.kind), {}, (0, to_ms))
        return found.get("")

    def newest(
        self, scope: Scope, since_ms: int, until_ms: int
    ) -> list[tuple[dict[str, str], int, float]]:
        """Return labels, time and value of the newest sample of every series."""
        window = _find_window((since_ms, until_ms))
        if window is None:
            return []
        series = "{" + self._make_selector(r'=~"marey_.+"', scope) + "}"
        values = self._ask_rollup("last_over_time", series, window)
        times = self._ask_rollup("tlast_over_time", series, window)
        return [
            (dict(key), round(times[key] * 1000), value)
            for key, value in values.items()
            if key in times
        ]

    def _ask_rollup(
        self, function: str, series: str, window: tuple[int, int]
    ) -> dict[frozenset[tuple[str, str]], float]:
        question = f"{function}({series}[{window[1]}ms]) keep_metric_names"
        found = self._server.query(question, window[0])
        return {frozenset(named.items()): value for named, value in found}

    def _ask_reaches(
        self, scope: Scope, name: str, matchers: dict[str, str], span: tuple[int, int]
    ) -> dict[str, SeriesExtent]:
        window = _find_window(span)
        if window is None:
            return {}
        series = labels.make_selector([name], {**self._make_scope_matchers(scope), **matchers})
        by = ", ".join(labels.ENTITY_LABELS)
        ends = []
        for function, which in (("tfirst_over_time", "min"), ("tlast_over_time", "max")):
            question = f"{which}({function}({series}[{window[1]}ms])) by ({by})"
            found = self._server.query(question, window[0])
            ends.append({labels.join_entity(n): round(value * 1000) for n, value in found})
        first, last = ends
        return {name: SeriesExtent(first[name], last[name] + 1) for name in first if name in last}

    def _make_scope_matchers(self, scope: Scope) -> dict[str, str]:
        return {
            labels.SITE: f"={labels.quote_text(self._site)}",
            labels.CLUSTER: f"={labels.quote_text(scope.cluster)}",
        }

    def _make_selector(self, name: str, scope: Scope) -> str:
        matchers = {"__name__": name, **self._make_scope_matchers(scope)}
        return ",".join(f"{label}{matcher}" for label, matcher in matchers.items())

    def _make_matchers(
        self, scope: Scope, entities: Sequence[str] | None
    ) -> Iterator[list[dict[str, str]]]:
        scoped = self._make_scope_matchers(scope)
        if entities is None:
            yield [scoped]
            return
        listed = sorted(set(entities))
        for start in range(0, len(listed), _ENTITIES_AT_ONCE):
            own = labels.make_entity_matchers(scope.kind, listed[start : start + _ENTITIES_AT_ONCE])
            yield [{**scoped, **matchers} for matchers in own]


def _make_part(line: ExportLine) -> SeriesPart:
    named = line.metric
    return SeriesPart(
        labels.get_metric(named),
        labels.join_entity(named),
        int(named.get(labels.REVISION, "0")),
        time_ms=np.array(line.timestamps, np.int64),
        values=np.array(line.values, np.float64),
        workload=named.get(labels.WORKLOAD),
    )


def _find_window(span: tuple[int, int]) -> tuple[int, int] | None:
    """Return time and length of an instant query's window that covers ``[from, to)``."""
    from_ms, to_ms = max(span[0], EARLIEST_MS), min(span[1], LATEST_MS)
    # A window holds what is after its beginning, up to and with its end.
    return (to_ms - 1, to_ms - from_ms) if from_ms < to_ms else None

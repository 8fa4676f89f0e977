"""Which samples a question is about: a workload's GPUs while it held them, or named GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, TooLarge, shown
from marey.model.metrics import Entity, Metric, metric_named
from marey.model.names import DEFAULT_CLUSTER, parse_gpu_id
from marey.model.protocols import Answer, RecordStore, SampleStore, Selection
from marey.model.times import DAY_MS

# Rows of one answer: a table of this size is about 50 MB, as much as a browser can take.
ROWS_LIMIT = 2_000_000
GPUS_LIMIT = 20_000
METRICS_LIMIT = 32

# From the entities' names to a number of each (power limit, memory), NaN where unknown.
Attributes = Callable[[str, str, int, Sequence[str]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """What the asker named, before it is looked up."""

    metrics: tuple[str, ...]
    cluster: str = DEFAULT_CLUSTER
    workload: str | None = None
    gpus: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Named GPUs over a span of time, and the workload that narrows it."""

    cluster: str
    gpus: tuple[str, ...]
    from_ms: int
    to_ms: int
    workload: str | None

    def selection(self, metrics: Sequence[str], kind: Entity = Entity.GPU) -> Selection:
        """Return these metrics of the span's GPUs, or of their hosts."""
        if kind is Entity.HOST:
            hosts = tuple(dict.fromkeys(parse_gpu_id(gpu).host for gpu in self.gpus))
            return Selection(
                tuple(metrics),
                self.from_ms,
                self.to_ms,
                entities=hosts,
                workload=None,
                kind=kind,
                cluster=self.cluster,
            )
        return Selection(
            tuple(metrics),
            self.from_ms,
            self.to_ms,
            entities=self.gpus,
            workload=self.workload,
            kind=kind,
            cluster=self.cluster,
        )


def resolve(store: RecordStore, wanted: SelectionRequest, now_ms: int) -> Span:
    """Return the GPUs and the time behind what was named."""
    if not wanted.metrics or len(wanted.metrics) > METRICS_LIMIT:
        raise InvalidInput(f"Name 1 to {METRICS_LIMIT} metrics, not {len(wanted.metrics)}.")
    for name in wanted.metrics:
        metric_named(name)
    if (wanted.workload is None) == (not wanted.gpus):
        raise InvalidInput("Name either a workload or GPUs: one of them, not both.")
    span = (
        _resolve_workload(store, wanted, now_ms)
        if wanted.workload
        else _resolve_gpus(wanted, now_ms)
    )
    if span.from_ms >= span.to_ms:
        raise InvalidInput("The span of time is empty: 'from' must be before 'to'.")
    return span


def _resolve_gpus(wanted: SelectionRequest, now_ms: int) -> Span:
    if len(wanted.gpus) > GPUS_LIMIT:
        raise TooLarge(f"{len(wanted.gpus)} GPUs were named; allowed: {GPUS_LIMIT}.")
    for gpu in wanted.gpus:
        parse_gpu_id(gpu)
    to_ms = now_ms + 1 if wanted.to_ms is None else wanted.to_ms
    from_ms = to_ms - DAY_MS if wanted.from_ms is None else wanted.from_ms
    return Span(wanted.cluster, tuple(dict.fromkeys(wanted.gpus)), from_ms, to_ms, None)


def _resolve_workload(store: RecordStore, wanted: SelectionRequest, now_ms: int) -> Span:
    assert wanted.workload is not None
    # Raises NotFound for one that never was; one that never ran has no allocation.
    held = store.workload(wanted.cluster, wanted.workload)["allocations"]
    if not held:
        return Span(wanted.cluster, (), 0, 1, wanted.workload)
    ends = [now_ms + 1 if a["valid_to_ms"] is None else a["valid_to_ms"] for a in held]
    from_ms = min(a["valid_from_ms"] for a in held) if wanted.from_ms is None else wanted.from_ms
    to_ms = max(ends) if wanted.to_ms is None else wanted.to_ms
    gpus = tuple(dict.fromkeys(a["gpu"] for a in held))
    return Span(wanted.cluster, gpus, from_ms, max(to_ms, from_ms + 1), wanted.workload)


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """One sort of question (series, histograms, statistics) over any mix of metrics."""

    store: SampleStore
    attributes: Attributes
    # Ask the store about a selection; for a derived metric, with ranges of the base metric.
    ask: Callable[[Selection, Sequence[tuple[float, float]]], Answer]
    # Turn the answer about a base metric into one about shares, by factor per row.
    scale: Callable[[pa.Table, NDArray[np.float64], Metric], pa.Table]
    ranges: Callable[[Metric], tuple[float, float]] | None = None

    def answer(self, span: Span, metrics: Sequence[str]) -> Answer:
        """Return one table about all the metrics, whatever they are measured of or derived from."""
        if not span.gpus:
            return Answer(self.ask(span.selection(metrics[:1]), ()).table.slice(0, 0))
        named = [metric_named(name) for name in dict.fromkeys(metrics)]
        answers = []
        for kind in (Entity.GPU, Entity.HOST):
            stored = [metric.metric for metric in named if metric.entity is kind]
            if stored:
                answers.append(self.ask(span.selection(stored, kind), ()))
        for metric in named:
            if metric.derived:
                answers += self._derive_metric(span, metric, answers[0].table)
        table = pa.concat_tables([a.table for a in answers], promote_options="permissive")
        return Answer(table, any(a.approximate for a in answers))

    def _derive_metric(self, span: Span, metric: Metric, stored: pa.Table) -> list[Answer]:
        """Return the metric from its base, for the GPUs whose source does not measure it itself."""
        assert metric.derived is not None
        of_metric = np.array(stored["metric"].to_pylist(), object) == metric.metric
        measured = set(np.array(stored["entity"].to_pylist(), object)[of_metric])
        gpus = [gpu for gpu in span.gpus if gpu not in measured]
        if not gpus:
            return []
        per = self.attributes(span.cluster, metric.derived.per, span.to_ms, gpus)
        answers = []
        for value in np.unique(per[np.isfinite(per) & (per > 0)]):
            group = tuple(gpu for gpu, own in zip(gpus, per, strict=True) if own == value)
            part = replace(span, gpus=group).selection([metric.derived.base])
            ranges = self._compute_base_ranges(metric, value)
            answer = self.ask(part, ranges)
            factor = np.full(answer.table.num_rows, 100.0 / value)
            answers.append(Answer(self.scale(answer.table, factor, metric), answer.approximate))
        return answers

    def _compute_base_ranges(self, metric: Metric, per: float) -> list[tuple[float, float]]:
        if self.ranges is None:
            return []
        low, high = self.ranges(metric)
        return [(low * per / 100.0, high * per / 100.0)]


def rename_metric(table: pa.Table, metric: Metric) -> pa.Table:
    """Return the table with every row under this metric's name."""
    names = pa.array([metric.metric] * table.num_rows, pa.string())
    if pa.types.is_dictionary(table.schema.field("metric").type):
        names = names.dictionary_encode()
    return table.set_column(table.column_names.index("metric"), "metric", names)


def scale_columns(table: pa.Table, factor: NDArray[np.float64], columns: Sequence[str]) -> pa.Table:
    """Return the table with these columns multiplied."""
    for name in columns:
        values = table[name].to_numpy(zero_copy_only=False).astype(np.float64) * factor
        at = table.column_names.index(name)
        kind = table.schema.field(name).type
        table = table.set_column(at, name, pa.array(values, from_pandas=True).cast(kind))
    return table


def check_rows(count: int, what: str) -> None:
    """Refuse an answer larger than anybody could take."""
    if count > ROWS_LIMIT:
        raise TooLarge(
            f"{what} would be {count} rows; allowed: {ROWS_LIMIT}. Ask for fewer GPUs, "
            "metrics or points."
        )


def split_names(text: str | None, what: str, limit: int) -> tuple[str, ...]:
    """Return names separated by commas; empty ones are refused."""
    if not text:
        return ()
    names = tuple(text.split(","))
    if len(names) > limit:
        raise TooLarge(f"{len(names)} {what} were named; allowed: {limit}.")
    if not all(names):
        raise InvalidInput(f"'{shown(text)}' has an empty name; separate {what} by commas.")
    return names

"""Stored history as rules read it: workloads, events, and samples in order of time."""

from __future__ import annotations

import heapq
import sys
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import Gpu
from marey.model.metrics import Entity, catalogue
from marey.model.protocols import Selection, Store, WorkloadQuery
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.model.workloads import Allocation, WorkloadState
from marey.rules.backtest.backtest import History, PastWorkload
from marey.rules.definition import Rule
from marey.rules.engine.allocations import Facts, HeldGpu
from marey.rules.engine.evaluation_loop import PAST_EVERY_MS
from marey.rules.engine.observation_feed import find_held_gpu
from marey.rules.language.expressions import Fact, Series, conditions

PAGE = 10_000
# Rows that are plain objects at a time.
PART = 4_096
EVENTS_LIMIT = 1_000_000
_TEXTS = ("user", "project", "partition", "qos", "experiment", "name", "state")
_SEATED = (
    "workload", "gpu", "global_rank", "local_rank", "share", "valid_from_ms", "valid_to_ms",
)  # fmt: skip
_NUMBERS = ("submit_ms", "start_ms", "end_ms", "time_limit_s")
FAILED = (WorkloadState.FAILED.value, WorkloadState.NODE_FAIL.value)


def list_metrics(rules: Iterable[Rule]) -> set[str]:
    """Return the stored metrics that rules need: a derived one is made from its base."""
    named = {
        condition.left.metric
        for rule in rules
        for _, clause in rule.variants()
        for condition in conditions(clause.expression)
        if isinstance(condition.left, Series)
    }
    known = catalogue()
    return {d.base if (d := known[name].derived) else name for name in named}


def _is_progress_needed(rules: Iterable[Rule]) -> bool:
    return any(
        condition.left == Fact("since_progress")
        for rule in rules
        for condition in conditions(rule.template.expression)
    )


def list_stored_metrics() -> set[str]:
    """Return every metric that is sketched live: a rule of tomorrow may ask for any."""
    return {name for name, metric in catalogue().items() if metric.derived is None}


def read_history(
    store: Store,
    cluster: str,
    from_ms: int,
    to_ms: int,
    *,
    rules: list[Rule],
    workload: str = "",
    metrics: set[str] | None = None,
    fine_from_ms: int = 0,
) -> History:
    """Return a span's history as rules read it: workloads and samples.

    The metrics given, or those that these rules ask for. Samples come minute by minute, before
    ``fine_from_ms`` in the longer steps in which the past is judged.
    """
    held_gpus = _list_held_gpus(store, cluster, from_ms, to_ms)
    known = _read_workloads(store, cluster, (from_ms, to_ms), held_gpus)
    if workload:
        known = [facts for facts in known if facts.workload == workload]
    reported = (
        _read_progress(store, cluster, (from_ms, to_ms)) if _is_progress_needed(rules) else {}
    )
    workloads = [
        PastWorkload(facts, held_gpus[facts.workload], reported.get(facts.workload, ()))
        for facts in _add_failures(known)
    ]
    wanted = list_metrics(rules) if metrics is None else metrics
    scans = _scan_samples(store, cluster, from_ms, to_ms=to_ms, metrics=wanted, workload=workload)
    batches = scans[0] if len(scans) == 1 else _merge_scans(scans, fine_from_ms)
    return History(from_ms, to_ms, workloads, batches, _read_events(store, cluster, from_ms, to_ms))


def _read_workloads(
    store: Store, cluster: str, span: tuple[int, int], held_gpus: Container[str]
) -> list[Facts]:
    """Return the facts about workloads that ran in a span and held GPUs."""
    known: list[Facts] = []
    after: str | None = None
    while True:
        query = WorkloadQuery(
            cluster=cluster, from_ms=span[0], to_ms=span[1], limit=PAGE, after=after
        )
        page = store.workloads(query).select(["workload", *_TEXTS, *_NUMBERS])
        for part in page.to_batches(max_chunksize=PART):
            rows = part.to_pylist()
            known += [
                _make_facts(row)
                for row in rows
                if row["start_ms"] is not None and row["workload"] in held_gpus
            ]
        if len(page) < PAGE:
            return known
        after = page["workload"][-1].as_py()


def _make_facts(row: dict[str, Any]) -> Facts:
    # A day has thirty thousand workloads of a few dozen people: each text is kept once.
    fields: dict[str, Any] = {name: sys.intern(row[name] or "") for name in _TEXTS}
    fields |= {name: row[name] for name in _NUMBERS}
    return Facts(row["workload"], **fields)


def _add_failures(known: list[Facts]) -> Iterator[Facts]:
    """Yield each with the failed runs of the same name by the same user in the day before its
    start.
    """
    ends: dict[tuple[str, str], list[int]] = defaultdict(list)
    for facts in known:
        if facts.state in FAILED and facts.end_ms and facts.name:
            ends[facts.user, facts.name].append(facts.end_ms)
    day = 24 * 60 * MINUTE_MS
    for facts in known:
        start_ms = facts.start_ms or 0
        failed = ends.get((facts.user, facts.name), ())
        failures = sum(start_ms - day < end <= start_ms for end in failed)
        yield replace(facts, failures=failures) if failures else facts


def _list_held_gpus(
    store: Store, cluster: str, from_ms: int, to_ms: int
) -> dict[str, list[HeldGpu]]:
    gpus = {
        row["gpu"]: Gpu(
            row["host"],
            row["index"],
            row["instance"],
            model=row["model"] or "",
            power_limit_w=row["power_limit_w"],
            memory_mib=row["memory_mib"],
        )
        for row in store.gpus(cluster, to_ms).to_pylist()
    }
    held: dict[str, list[HeldGpu]] = defaultdict(list)
    table = store.allocations(cluster, from_ms=from_ms, to_ms=to_ms).select(list(_SEATED))
    for part in table.to_batches(max_chunksize=PART):
        columns = (column.to_pylist() for column in part.columns)
        for workload, gpu, global_rank, local_rank, share, *span in zip(*columns, strict=True):
            allocation = Allocation(workload, sys.intern(gpu), global_rank, local_rank, share)
            held[workload].append(find_held_gpu(allocation, gpus.get(gpu), *span))
    return held


def _read_progress(
    store: Store, cluster: str, span: tuple[int, int]
) -> dict[str, NDArray[np.int64]]:
    """Return when each workload reported.

    One report a minute is as good as all for "time since".
    """
    return _split_by_workload(store.progress_minutes(cluster, *span))


def _split_by_workload(reports: pa.Table) -> dict[str, NDArray[np.int64]]:
    """Return the times of each workload, in the order of the table."""
    if not reports.num_rows:
        return {}
    coded = reports["workload"].combine_chunks().dictionary_encode()
    codes, time_ms = coded.indices.to_numpy(), reports["time_ms"].to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(coded.dictionary)))
    parts = np.split(time_ms[order], ends[:-1])
    return dict(zip(coded.dictionary.to_pylist(), parts, strict=True))


def _read_events(store: Store, cluster: str, from_ms: int, to_ms: int) -> list[Event]:
    table: pa.Table = store.events(cluster, from_ms, to_ms, limit=EVENTS_LIMIT)
    known = set(ClusterEventKind)
    return [
        Event(
            row["time_ms"],
            ClusterEventKind(row["kind"]),
            row["host"] or "",
            row["gpu"] or "",
            row["workload"] or "",
        )
        for row in table.to_pylist()
        if row["kind"] in known
    ]


def _scan_samples(
    store: Store, cluster: str, from_ms: int, *, to_ms: int, metrics: set[str], workload: str
) -> list[Iterator[SampleBatch]]:
    scans: list[Iterator[SampleBatch]] = []
    for kind in Entity:
        wanted = tuple(sorted(m for m in metrics if catalogue()[m].entity is kind))
        if wanted:
            narrowed = workload if workload and kind is Entity.GPU else None
            selection = Selection(
                wanted, from_ms, to_ms, workload=narrowed, kind=kind, cluster=cluster
            )
            scans.append(map(_drop_empty_columns, store.scan(selection)))
    return scans


def _drop_empty_columns(batch: SampleBatch) -> SampleBatch:
    """Return the batch without metrics of which it has no value: a catalogue names many more
    than a cluster reports.
    """
    # The first rows tell nearly always; a store gives one array to all that it does not have.
    empty = {
        id(values): bool(np.isnan(values[:64]).all() and np.isnan(values).all())
        for values in batch.columns.values()
    }
    kept = {name: values for name, values in batch.columns.items() if not empty[id(values)]}
    return replace(batch, columns=kept)


def _merge_scans(scans: list[Iterator[SampleBatch]], fine_from_ms: int) -> Iterator[SampleBatch]:
    """Return batches of GPUs and of hosts step by step, so that neither runs ahead."""
    return heapq.merge(
        *(_split_steps(scan, fine_from_ms) for scan in scans),
        key=lambda batch: int(batch.time_ms[0]) // MINUTE_MS,
    )


def _split_steps(batches: Iterator[SampleBatch], fine_from_ms: int) -> Iterator[SampleBatch]:
    long_step = PAST_EVERY_MS // MINUTE_MS
    for batch in batches:
        marks = (batch.time_ms - 1) // MINUTE_MS
        marks = np.where(batch.time_ms <= fine_from_ms, marks // long_step * long_step, marks)
        at = 0
        while at < len(batch):
            end = int(marks.searchsorted(marks[at], side="right"))
            yield batch.rows(slice(at, end))
            at = end

"""A stored workload as a matrix: its samples and all that stands beside them, over one window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marey.app.queries.cancellation import Work
from marey.app.queries.matrix_cache import Window
from marey.app.queries.selection import SelectionRequest, Span, resolve
from marey.app.queries.workspace import Workspace
from marey.diagnose.matrix import (
    Context,
    GpuFacts,
    GridLimits,
    WorkloadFacts,
    WorkloadMatrix,
    build_matrix,
)
from marey.model.errors import InvalidInput, shown
from marey.model.events import ClusterEventKind, Event
from marey.model.metrics import Entity, catalogue
from marey.model.names import parse_gpu_id
from marey.model.samples import SampleBatch
from marey.model.tables import EventRow, WorkloadRecord
from marey.model.times import MINUTE_MS
from marey.model.workloads import Progress
from marey.sources.slurm.values import expand_hosts

EVENTS_LIMIT = 10_000
GPU_METRICS = tuple(
    name
    for name, metric in catalogue().items()
    if metric.entity is Entity.GPU and metric.kind == "gauge" and metric.derived is None
)
HOST_METRICS = tuple(n for n, m in catalogue().items() if m.entity is Entity.HOST)


class WorkloadWindow(Protocol):
    """A workload and a window of its life."""

    @property
    def workload(self) -> str:
        """The workload's id."""

    @property
    def cluster(self) -> str:
        """Where it runs."""

    @property
    def from_ms(self) -> int | None:
        """The begin of the window."""

    @property
    def to_ms(self) -> int | None:
        """The end of the window, not in it."""


def load_matrix(
    workspace: Workspace,
    asked: WorkloadWindow,
    metrics: Sequence[str] = GPU_METRICS,
    host_metrics: Sequence[str] = HOST_METRICS,
    *,
    tally: MetricSums | None = None,
) -> WorkloadMatrix:
    """Return a workload's samples and all that stands beside them, over the window asked for."""
    span, window = _find_window(workspace, asked)
    # What is counted must be read, and hosts are not kept.
    if tally is None and not host_metrics:
        known = workspace.matrices.find(window, frozenset(metrics))
        if known is not None:
            return known
    matrix = _read(workspace, span, metrics, host_metrics=host_metrics, tally=tally)
    workspace.matrices.keep(window, frozenset(metrics), matrix)
    return matrix


def _find_window(workspace: Workspace, asked: WorkloadWindow) -> tuple[Span, Window]:
    workspace.check_cluster(asked.cluster)
    wanted = SelectionRequest(
        GPU_METRICS[:1],
        asked.cluster,
        asked.workload,
        gpus=(),
        from_ms=asked.from_ms,
        to_ms=asked.to_ms,
    )
    now_ms = workspace.now_ms()
    span = workspace.matrices.spans.get(wanted, now_ms)
    if span is None:
        span = resolve(workspace.store, wanted, now_ms)
        workspace.matrices.spans.put(wanted, span)
    ends = (span.from_ms, span.to_ms)
    return span, Window(asked.cluster, asked.workload, *ends, open_end=span.to_ms > now_ms)


def _read(
    workspace: Workspace,
    span: Span,
    metrics: Sequence[str],
    *,
    host_metrics: Sequence[str],
    tally: MetricSums | None,
) -> WorkloadMatrix:
    assert span.workload is not None
    record = workspace.store.workload(span.cluster, span.workload)
    scan = workspace.store.scan
    return build_matrix(
        _read_context(workspace, record, span),
        _report_batches(_count_values(scan(span.selection(metrics)), tally), workspace.work, span),
        _count_values(scan(span.selection(host_metrics, Entity.HOST)), tally)
        if host_metrics
        else (),
        until_ms=span.to_ms,
    )


# Lines of a few GPUs may be long: a month at fifteen seconds.
FEW_GPUS = GridLimits(moments=200_000)


def load_lines(
    workspace: Workspace, asked: WorkloadWindow, metrics: Sequence[str], gpus: Sequence[str]
) -> WorkloadMatrix:
    """Return some GPUs of a workload over the window asked for, read where the cache has none.

    The matrix may hold the other GPUs too.
    """
    span, window = _find_window(workspace, asked)
    held = set(span.gpus)
    strange = [gpu for gpu in gpus if gpu not in held]
    if strange:
        raise InvalidInput(
            f"'{shown(strange[0])}' is no GPU of workload '{shown(asked.workload)}'."
        )
    known = workspace.matrices.find(window, frozenset(metrics))
    if known is not None and not known.coarse:
        return known
    few = replace(span, gpus=tuple(gpu for gpu in span.gpus if gpu in set(gpus)))
    record = workspace.store.workload(span.cluster, asked.workload)
    context = _read_context(workspace, record, few)
    chosen = replace(context, gpus=[gpu for gpu in context.gpus if gpu.gpu in set(gpus)])
    return build_matrix(
        chosen,
        _count_values(workspace.store.scan(few.selection(metrics))),
        until_ms=span.to_ms,
        limits=FEW_GPUS,
    )


def load_hosts(
    workspace: Workspace, asked: WorkloadWindow, metrics: Sequence[str]
) -> WorkloadMatrix:
    """Return metrics of a workload's hosts over the window asked for: a row per host."""
    span, _ = _find_window(workspace, asked)
    hosts = sorted({parse_gpu_id(gpu).host for gpu in span.gpus})
    return build_matrix(
        Context(WorkloadFacts(asked.workload), [GpuFacts(host, host, 0) for host in hosts]),
        _count_values(workspace.store.scan(span.selection(metrics, Entity.HOST))),
        until_ms=span.to_ms,
    )


@dataclass(slots=True)
class MetricSums:
    """Sum, count, least and greatest of every metric over the samples as they were stored.

    The matrix keeps one sample per step of its grid; a mean that is to be checked needs them all.
    """

    metrics: dict[str, tuple[float, int, float, float]] = field(default_factory=dict)

    def add(self, metric: str, values: NDArray[np.float32]) -> None:
        """Count these samples in."""
        missing = np.isnan(values)
        known = values[~missing] if missing.any() else values
        if not len(known):
            return
        total, count, low, high = self.metrics.get(metric, (0.0, 0, np.inf, -np.inf))
        self.metrics[metric] = (
            total + float(known.sum(dtype=np.float64)),
            count + len(known),
            min(low, float(known.min())),
            max(high, float(known.max())),
        )


def _count_values(
    batches: Iterator[SampleBatch], tally: MetricSums | None = None
) -> Iterator[SampleBatch]:
    """Yield the batches without metrics that have no value in them, counted on the way."""
    for batch in batches:
        present = {
            name: column for name, column in batch.columns.items() if not np.isnan(column).all()
        }
        if tally is not None:
            for name, column in present.items():
                tally.add(name, column)
        yield replace(batch, columns=present)


def _report_batches(
    batches: Iterator[SampleBatch], work: Work | None, span: Span
) -> Iterator[SampleBatch]:
    """Yield the batches, which come in order of time; whoever waits learns how far they are."""
    length = max(1, span.to_ms - span.from_ms)
    for batch in batches:
        if work is not None and len(batch):
            work.tell((int(batch.time_ms[-1]) - span.from_ms) / length)
        yield batch


def _read_context(workspace: Workspace, record: WorkloadRecord, span: Span) -> Context:
    facts = WorkloadFacts(
        workload=record["workload"],
        name=record["name"] or "",
        user=record["user"] or "",
        project=record["project"] or "",
        partition=record["partition"] or "",
        state=record["state"],
        submit_ms=record["submit_ms"],
        start_ms=record["start_ms"],
        end_ms=record["end_ms"],
        exit_code=record["exit_code"],
        reason=record["reason"] or "",
        time_limit_s=record["time_limit_s"],
        gpus_requested=record["gpus_requested"] or 0,
        nodes=list_nodes(record["attributes"]),
        now_ms=workspace.now_ms(),
        until_ms=span.to_ms if record["allocations"] else None,
        attributes=record["attributes"],
    )
    return Context(
        facts,
        _read_gpus(workspace, record, span),
        _read_progress(workspace, record, span),
        _read_events(workspace, record, span),
    )


def list_nodes(attributes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts of a workload of which only these are known, as accounting keeps them."""
    return tuple(expand_hosts(attributes.get("nodes", "")))


def _read_gpus(workspace: Workspace, record: WorkloadRecord, span: Span) -> list[GpuFacts]:
    known = {row["gpu"]: row for row in workspace.store.gpus(span.cluster, span.to_ms).to_pylist()}
    ranked = sorted(
        record["allocations"], key=lambda a: (a["global_rank"] is None, a["global_rank"], a["gpu"])
    )
    listed: dict[str, GpuFacts] = {}
    for held in ranked:
        name, row = parse_gpu_id(held["gpu"]), known.get(held["gpu"], {})
        listed[held["gpu"]] = GpuFacts(
            gpu=held["gpu"],
            host=name.host,
            index=name.index,
            global_rank=held["global_rank"],
            local_rank=held["local_rank"],
            model=row.get("model") or "",
            power_limit_w=row.get("power_limit_w"),
            memory_mib=row.get("memory_mib"),
            from_ms=held["valid_from_ms"],
            to_ms=held["valid_to_ms"],
        )
    return list(listed.values())


def _read_progress(workspace: Workspace, record: WorkloadRecord, span: Span) -> list[Progress]:
    table = workspace.store.progress(span.cluster, record["workload"], span.from_ms, span.to_ms)
    return [
        Progress(
            row["workload"],
            row["time_ms"],
            row["step"],
            throughput=row["throughput"],
            unit=row["unit"],
            loss=row["loss"],
        )
        for row in table.to_pylist()
    ]


def _read_events(workspace: Workspace, record: WorkloadRecord, span: Span) -> list[Event]:
    """Return events of the workload, of its GPUs and of its hosts while it ran."""
    # A dead node ends the workload at once; that it is down is noticed some minutes later.
    until = span.to_ms + 10 * MINUTE_MS
    table = workspace.store.events(span.cluster, span.from_ms, until, limit=EVENTS_LIMIT)
    gpus = set(span.gpus)
    hosts = {parse_gpu_id(gpu).host for gpu in gpus}
    return [
        Event(
            row["time_ms"],
            ClusterEventKind(row["kind"]),
            row["host"] or "",
            gpu=row["gpu"] or "",
            workload=row["workload"] or "",
            value=row["value"],
            text=row["text"] or "",
        )
        for row in table.to_pylist()
        if row["workload"] == record["workload"]
        or (row["time_ms"] < span.to_ms and row["gpu"] in gpus)
        or (row["host"] in hosts and _is_concerned(row, span))
    ]


def _is_concerned(row: EventRow, span: Span) -> bool:
    return not row["gpu"] and (
        row["time_ms"] < span.to_ms or row["kind"] == ClusterEventKind.NODE_DOWN
    )

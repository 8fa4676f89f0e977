"""Bring history from files into a store: checked whole first, then written as one step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from marey.app.history.past_workloads import find_unknown_rows, make_past_observations
from marey.model.documents import Document
from marey.model.errors import InvalidInput
from marey.model.inventory import Gpu, resource_type
from marey.model.metrics import Entity
from marey.model.names import DEFAULT_CLUSTER, parse_gpu_id
from marey.model.protocols import Store
from marey.model.samples import NO_WORKLOAD, SampleBatch
from marey.model.times import DAY_MS, format_time, parse_duration
from marey.sources.run_folder import RunFolder
from marey.sources.samples_file import SamplesFile, open_samples
from marey.sources.workloads_file import WorkloadRow, WorkloadsFile, read_workloads

ProgressCall = Callable[[float], None]


# The kind of document by which the store knows what was imported.
IMPORTED_KIND = "imported_span"


@dataclass(frozen=True, slots=True)
class ImportRetention:
    """How long raw samples of imported history are kept: for ever unless somebody says else."""

    keep_ms: int | None = None
    # As long as the samples that the site collects itself: `[store] retention`.
    as_retention: bool = False

    def describe(self) -> str:
        """Return in words how long raw samples are kept."""
        if self.as_retention:
            return "raw samples are kept as long as [store] retention says, counted from now"
        if self.keep_ms is None:
            return "raw samples are kept for ever; --keep changes that"
        return f"raw samples are kept for {self.keep_ms / DAY_MS:g} days, counted from now"

    def word(self) -> str:
        """Return the time as ``--keep`` takes it."""
        if self.as_retention:
            return "retention"
        return "forever" if self.keep_ms is None else f"{self.keep_ms / 1000:g}s"

    def documents(
        self, cluster: str, from_ms: int | None, to_ms: int | None
    ) -> dict[str, dict[str, Any]]:
        """Return the documents that the store keeps of an imported span, by kind and name."""
        if from_ms is None or to_ms is None:
            return {}
        imported = {
            "from_ms": from_ms,
            "to_ms": to_ms,
            "keep_ms": self.keep_ms,
            "as_retention": self.as_retention,
        }
        return {IMPORTED_KIND: {f"{cluster}:{from_ms}:{to_ms}": imported}}


def parse_keeping(text: str) -> ImportRetention:
    """Return how long: ``forever``, ``retention``, or a duration such as ``90d``."""
    if text == "forever":
        return ImportRetention()
    return (
        ImportRetention(as_retention=True)
        if text == "retention"
        else ImportRetention(parse_duration(text))
    )


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Which files, into which cluster, and what to do with rows that are wrong."""

    samples: Path | None = None
    workloads: Path | None = None
    cluster: str = DEFAULT_CLUSTER
    skip_bad_rows: bool = False
    keep: ImportRetention = ImportRetention()


class ImportDocument(Document):
    """What was brought in, and what was left out, as JSON has it."""

    cluster: str
    workloads: int
    samples: int
    gpus: int
    hosts: int
    from_: str | None = msgspec.field(name="from")
    to: str | None
    bad_rows: int
    warnings: list[str]
    # How long the raw samples are kept, in words.
    kept: str


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What was brought in, and what was left out."""

    cluster: str
    samples: int = 0
    workloads: int = 0
    gpus: int = 0
    hosts: int = 0
    from_ms: int | None = None
    to_ms: int | None = None
    bad_rows: int = 0
    warnings: tuple[str, ...] = ()
    keep: ImportRetention = ImportRetention()

    def document(self) -> ImportDocument:
        """Return the summary as JSON has it."""

        def moment(time_ms: int | None) -> str | None:
            return None if time_ms is None else format_time(time_ms)

        return ImportDocument(
            cluster=self.cluster,
            workloads=self.workloads,
            samples=self.samples,
            gpus=self.gpus,
            hosts=self.hosts,
            from_=moment(self.from_ms),
            to=moment(self.to_ms),
            bad_rows=self.bad_rows,
            warnings=list(self.warnings),
            kept=self.keep.describe(),
        )


@dataclass
class CheckedImport:
    """Files that were read through once without writing anything."""

    request: ImportRequest
    samples: SamplesFile | None = None
    workloads: WorkloadsFile | None = None
    warnings: list[str] = field(default_factory=list)


def check_import(request: ImportRequest, progress: ProgressCall = lambda _: None) -> CheckedImport:
    """Read everything once; raise with the line numbers of what is wrong."""
    if request.samples is None and request.workloads is None:
        raise InvalidInput("Nothing to import: name a samples file, a workloads file, or both.")
    checked = CheckedImport(request)
    if request.workloads is not None:
        checked.workloads = read_workloads(request.workloads)
        _collect_problems(checked, request.workloads, checked.workloads)
        if checked.workloads.accounting and not checked.workloads.rows:
            checked.warnings.append(
                f"{request.workloads.name}: no job that has ended and had GPUs is in it."
            )
    if request.samples is not None:
        checked.samples = open_samples(request.samples)
        for done, _ in checked.samples.batches():
            progress(done / max(1, checked.samples.size))
        if checked.samples.rows == 0:
            raise InvalidInput(f"{request.samples.name} has a header but no rows.")
        _collect_problems(checked, request.samples, checked.samples)
    return checked


def _collect_problems(
    checked: CheckedImport, path: Path, file: SamplesFile | WorkloadsFile
) -> None:
    if file.skipped:
        names = ", ".join(f"'{name[:60]}'" for name in file.skipped[:20])
        checked.warnings.append(f"{path.name}: unknown columns skipped: {names}")
    if isinstance(file, SamplesFile):
        checked.warnings += [f"{path.name}: {remark}" for remark in file.remarks]
    if not file.bad_count:
        return
    lines = [f"{path.name}, line {bad.line}: {bad.reason}" for bad in file.bad]
    more = file.bad_count - len(lines)
    if more > 0:
        lines.append(f"and {more} more bad rows.")
    if not checked.request.skip_bad_rows:
        raise InvalidInput(
            "\n".join(["nothing was imported, because of bad rows:", *lines])
            + "\nCorrect them, or leave them out with --skip-bad-rows."
        )
    checked.warnings.extend(lines)


def write_import(
    checked: CheckedImport, store: Store, progress: ProgressCall = lambda _: None
) -> ImportSummary:
    """Write what was checked as one step: killed half-way, nothing of it is there."""
    rows = checked.workloads.rows if checked.workloads else []
    cluster = checked.request.cluster
    if checked.workloads is not None and checked.workloads.accounting:
        found, rows = rows, find_unknown_rows(rows, store, cluster)
        _report_known(checked, len(found) - len(rows))
    gpus = _collect_gpus(checked.samples, rows)
    rows = [_add_resource_type(row, gpus) for row in rows]
    first_ms = checked.samples.first_ms if checked.samples else None
    observations = make_past_observations(rows, cluster, gpus.values(), first_ms)
    last_ms = checked.samples.last_ms if checked.samples else None
    store.ingest(
        observations,
        _label_batches(checked, Holders(rows), progress),
        checked.request.keep.documents(cluster, first_ms, last_ms),
    )
    return _make_summary(checked, rows, gpus)


def _report_known(checked: CheckedImport, known: int) -> None:
    if known and checked.request.workloads is not None:
        checked.warnings.append(
            f"{checked.request.workloads.name}: {known} jobs are known to this store already; they "
            "are left as they are, for accounting knows less of a job than who watched it."
        )


def import_run(
    folder: RunFolder,
    store: Store,
    progress: ProgressCall = lambda _: None,
    keep: ImportRetention | None = None,
) -> ImportSummary:
    """Write a whole run that ``marey sim`` made into the store, as one step."""
    total, done = max(1, folder.sample_rows()), 0
    edges: list[int] = []

    def batches() -> Iterator[SampleBatch]:
        nonlocal done
        for batch in folder.batches():
            if len(batch):
                edges.extend((int(batch.time_ms.min()), int(batch.time_ms.max())))
            yield batch
            done += len(batch)
            progress(done / total)

    store.ingest(folder.observations(), batches())
    named = (keep or ImportRetention()).documents(
        folder.cluster, min(edges, default=None), max(edges, default=None)
    )
    for kind, imported in named.items():
        store.put_documents(kind, imported)
    return ImportSummary(
        cluster=folder.cluster,
        samples=done,
        workloads=len(folder.rows("workloads")),
        gpus=len(folder.rows("gpus")),
        hosts=len(folder.rows("hosts")),
        from_ms=min(edges, default=None),
        to_ms=max(edges, default=None),
        keep=keep or ImportRetention(),
    )


def _collect_gpus(samples: SamplesFile | None, rows: Sequence[WorkloadRow]) -> dict[str, Gpu]:
    gpus = dict(samples.gpus) if samples else {}
    for row in rows:
        for allocation in row.allocations:
            if allocation.gpu not in gpus:
                name = parse_gpu_id(allocation.gpu)
                gpus[allocation.gpu] = Gpu(name.host, name.index, name.instance)
    return gpus


def _add_resource_type(row: WorkloadRow, gpus: dict[str, Gpu]) -> WorkloadRow:
    if not row.allocations and row.workload.resource_type:
        # Slurm's accounting knows what was asked for, but not which GPUs it was.
        return row
    model = gpus[row.allocations[0].gpu].model if row.allocations else ""
    named = resource_type(model, row.workload.gpus_per_host)
    return replace(row, workload=replace(row.workload, resource_type=named, gpu_model=model))


class Holders:
    """Who held a GPU at a time: answers for whole columns at once."""

    def __init__(self, rows: Iterable[WorkloadRow]) -> None:
        spans: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self.workloads: list[str] = []
        for code, row in enumerate(rows):
            self.workloads.append(row.workload.workload)
            start, end = row.workload.start_ms or 0, row.workload.end_ms
            for allocation in row.allocations:
                spans[allocation.gpu].append((start, end if end is not None else 2**62, code))
        self._spans = {gpu: _make_columns(sorted(listed)) for gpu, listed in spans.items()}

    def codes(self, batch: SampleBatch) -> NDArray[np.int32]:
        """Return for each row the code of the workload that held the GPU then, or -1."""
        codes = np.full(len(batch), NO_WORKLOAD, np.int32)
        order = np.argsort(batch.entity, kind="stable")
        bounds = np.searchsorted(batch.entity[order], np.arange(len(batch.entities) + 1))
        for i, gpu in enumerate(batch.entities):
            if gpu in self._spans and bounds[i] < bounds[i + 1]:
                rows = order[bounds[i] : bounds[i + 1]]
                codes[rows] = _find_holder_at(self._spans[gpu], batch.time_ms[rows])
        return codes


_Spans = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]


def _make_columns(spans: list[tuple[int, int, int]]) -> _Spans:
    starts, ends, codes = zip(*spans, strict=True)
    return np.array(starts, np.int64), np.array(ends, np.int64), np.array(codes, np.int32)


def _find_holder_at(spans: _Spans, time_ms: NDArray[np.int64]) -> NDArray[np.int32]:
    starts, ends, codes = spans
    at = np.searchsorted(starts, time_ms, side="right") - 1
    inside = (at >= 0) & (time_ms < ends[np.maximum(at, 0)])
    return np.where(inside, codes[np.maximum(at, 0)], NO_WORKLOAD).astype(np.int32)


def _label_batches(
    checked: CheckedImport, holders: Holders, progress: ProgressCall
) -> Iterator[SampleBatch]:
    if checked.samples is None:
        return
    fresh, cluster = open_samples(checked.samples.path), checked.request.cluster
    for done, batches in fresh.batches():
        for batch in batches:
            if batch.kind is Entity.GPU:
                codes = holders.codes(batch)
                batch = replace(batch, workload=codes, workloads=holders.workloads)
            yield replace(batch, cluster=cluster)
        progress(done / max(1, fresh.size))


def _make_summary(
    checked: CheckedImport, rows: Sequence[WorkloadRow], gpus: dict[str, Gpu]
) -> ImportSummary:
    samples = checked.samples
    edges = [row.workload.start_ms for row in rows if row.workload.start_ms is not None]
    edges += [row.workload.end_ms for row in rows if row.workload.end_ms is not None]
    if samples and samples.first_ms is not None and samples.last_ms is not None:
        edges += [samples.first_ms, samples.last_ms]
    bad = (samples.bad_count if samples else 0) + (
        checked.workloads.bad_count if checked.workloads else 0
    )
    return ImportSummary(
        cluster=checked.request.cluster,
        samples=samples.rows - samples.bad_count if samples else 0,
        workloads=len(rows),
        gpus=len(gpus),
        hosts=len({gpu.host for gpu in gpus.values()}),
        from_ms=min(edges, default=None),
        to_ms=max(edges, default=None),
        bad_rows=bad,
        warnings=tuple(checked.warnings),
        keep=checked.request.keep,
    )

"""Runs to compare, by what names them: event files, MLflow, traces, workloads of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from marey.app.queries.server_client import Place, ask
from marey.app.queries.table_queries import AskProgress, AskWorkload
from marey.app.traces.trace_library import TraceLibrary
from marey.model.errors import InvalidInput, NotFound, shown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.protocols import Store
from marey.model.training.run_series import RunSeries
from marey.sources.training.event_files import find_event_folders, read_scalars
from marey.sources.training.mlflow_runs import MlflowServer
from marey.sources.training.scalar_series import make_series
from marey.trace.report.report_document import report_document

MLFLOW = "mlflow:"
WORKLOAD = "workload:"
TRACE = "trace:"
_PROFILED = ("times of a profiled window; profiling itself costs time",)
_GPUS = ("gpus", "num_gpus", "world_size", "n_gpus")


@dataclass(frozen=True)
class ReadOptions:
    """Where workloads are looked up, and how many GPUs runs have that do not say it."""

    store: Place | None = None
    cluster: str = DEFAULT_CLUSTER
    gpus: int | None = None


def read_runs(names: Sequence[str], options: ReadOptions | None = None) -> list[RunSeries]:
    """Read every run named: ``[LABEL=]PLACE``; runs of one label are repetitions."""
    options = options or ReadOptions()
    found: list[RunSeries] = []
    for name in names:
        label, place = split_label(name)
        runs = _reader_of(place)(place, label, options)
        if not runs:
            raise NotFound(f"There is no run at '{shown(place)}'.")
        found += runs
    return found


def split_label(name: str) -> tuple[str, str]:
    """Split ``base=runs/a`` into label and place; an address keeps its own equals signs."""
    label, equals, place = name.partition("=")
    if not equals or "/" in label or ":" in label:
        return "", name
    if not label or not place:
        raise InvalidInput(f"'{shown(name)}' is no run; write PLACE or LABEL=PLACE.")
    return label, place


def _reader_of(place: str) -> Callable[[str, str, ReadOptions], list[RunSeries]]:
    if place.startswith(MLFLOW):
        return read_mlflow
    if place.startswith(WORKLOAD):
        return read_workload
    if find_event_folders(Path(place)):
        return read_event_files
    return read_trace


def read_event_files(place: str, label: str, options: ReadOptions) -> list[RunSeries]:
    """Read each folder of TensorBoard's event files as a run."""
    folders = find_event_folders(Path(place))
    runs = []
    for folder in folders:
        scalars, notes = read_scalars(folder)
        name = folder.name if folder.is_dir() else folder.parent.name
        runs.append(
            make_series(scalars, name=name, label=label or name, gpus=options.gpus, notes=notes)
        )
    return runs


def read_mlflow(place: str, label: str, options: ReadOptions) -> list[RunSeries]:
    """Read the runs of ``mlflow:http://host:port#EXPERIMENT``."""
    address, mark, experiment = place.removeprefix(MLFLOW).partition("#")
    if not mark or not experiment:
        raise InvalidInput(f"'{shown(place)}' names no experiment; write mlflow:URL#EXPERIMENT.")
    server = MlflowServer(address)
    try:
        found = []
        for run in server.find_runs(experiment):
            scalars = {key: server.read_metric(run.run_id, key) for key in run.metric_keys}
            gpus = next(
                (int(run.params[k]) for k in _GPUS if run.params.get(k, "").isdigit()), None
            )
            found.append(
                make_series(
                    scalars, name=run.name, label=label or run.name, gpus=gpus or options.gpus
                )
            )
    finally:
        server.close()
    return found


def read_workload(place: str, label: str, options: ReadOptions) -> list[RunSeries]:
    """Read what a workload of the store said of itself."""
    if options.store is None:
        raise InvalidInput(f"'{shown(place)}' needs a store.")
    workload = place.removeprefix(WORKLOAD)
    about = ask(options.store, AskWorkload(workload, options.cluster))
    rows = ask(options.store, AskProgress(cluster=options.cluster, workload=workload))["rows"]
    return [make_workload_series(workload, label, about, rows)]


def read_stored_runs(
    store: Store, library: TraceLibrary, cluster: str, names: Sequence[str]
) -> list[RunSeries]:
    """Read workloads and runs of traces of a server: ``[LABEL=]ID`` and ``[LABEL=]trace:RUN``."""
    found = []
    for name in names:
        label, equals, workload = name.rpartition("=")
        if equals and not label:
            raise InvalidInput(f"'{shown(name)}' is no run; write ID or LABEL=ID.")
        if workload.startswith(TRACE):
            found.append(read_library_run(library, workload.removeprefix(TRACE), label))
            continue
        about = store.workload(cluster, workload)
        rows = store.progress(cluster, workload, 0, 2**53).to_pylist()
        found.append(make_workload_series(workload, label, dict(about), rows))
    return found


def read_library_run(library: TraceLibrary, run: str, label: str) -> RunSeries:
    """Read the step times of a converted run of traces."""
    record, index = library.get(run), library.views(run).index
    steps = [(row["end_ns"] - row["start_ns"]) / 1e6 for row in index.steps]
    return RunSeries(
        record.name,
        label or record.name,
        step_ms=np.array(steps, float),
        gpus=len(index.ranks) + len(index.missing) or None,
        notes=_PROFILED,
    )


def make_workload_series(
    workload: str, label: str, about: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> RunSeries:
    """Return a workload's progress as a run; samples are the sum of its throughput over time."""
    time_ms = _column(rows, "time_ms")
    throughput = _column(rows, "throughput")
    seconds = np.diff(time_ms, prepend=time_ms[:1]) / 1000
    samples = np.cumsum(np.nan_to_num(throughput) * seconds)
    return RunSeries(
        workload,
        label or workload,
        time_ms=time_ms,
        step=_column(rows, "step"),
        samples=samples if np.isfinite(throughput).any() else np.full(len(rows), np.nan),
        loss=_column(rows, "loss"),
        throughput=throughput,
        unit=next((row["unit"] for row in rows if row.get("unit")), ""),
        gpus=int(about.get("gpus_requested") or 0) or None,
    )


def _column(rows: Sequence[dict[str, Any]], name: str) -> Any:
    values = [row.get(name) for row in rows]
    return np.array([np.nan if value is None else float(value) for value in values], float)


def read_trace(place: str, label: str, options: ReadOptions) -> list[RunSeries]:
    """Read step times, communication and memory of a run of profiler traces."""
    document = report_document(place)
    name = Path(place).resolve().name
    steps = [float(row["duration_ms"]) for row in document["steps"] if row["duration_ms"]]
    shares = [
        row["exposed_comm_ms"] / row["span_ms"] for row in document["ranks"] if row["span_ms"]
    ]
    peaks = [
        device["peak_bytes"]
        for rank in document["memory"]
        for device in rank["devices"]
        if device["peak_bytes"]
    ]
    return [
        RunSeries(
            name,
            label or name,
            step_ms=np.array(steps, float),
            gpus=document["run"]["world_size"] or options.gpus,
            peak_memory_bytes=float(max(peaks)) if peaks else None,
            communication_share=float(np.mean(shares)) if shares else None,
            notes=_PROFILED,
        )
    ]

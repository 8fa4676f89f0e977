"""A simulated run as files: Parquet tables of the model's schemas, and the truth about faults.

``docs/simulator.md`` describes the files. The directory appears whole or not at all: everything
is written beside it and renamed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from marey.model import tables
from marey.model.errors import Conflict
from marey.model.events import Event
from marey.model.faults import Truth
from marey.model.inventory import GpuStatus, HostState, HostStatus
from marey.model.metrics import EVERYDAY
from marey.model.samples import SampleBatch
from marey.model.tables import AllocationRow, StateRow
from marey.model.times import format_time
from marey.model.workloads import Allocation, Workload, WorkloadStatus
from marey.sim.metrics.gpu_state import HOST_METRICS
from marey.sim.metrics.progress import ProgressColumns
from marey.sim.scheduling.jobs import FIRST_ID
from marey.sim.simulation import Block, Simulation

# Measured on a block of 10,000 GPUs: dictionary + zstd 1 costs 0.9 bytes and 24 ns per value;
# byte stream split 1.0 and 19; plain with lz4 1.6 and 18; no compression 1.1 and 21.
_CODING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "column_encoding": {"time_ms": "DELTA_BINARY_PACKED"},
    "write_statistics": ["time_ms", "entity"],
}
_NAMES = pa.dictionary(pa.int32(), pa.string())
# Blocks that may wait for the writer: more would only use memory.
_BLOCKS_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run produced."""

    directory: str
    gpus: int
    hosts: int
    start: str
    end: str
    workloads: int
    samples: int
    host_samples: int
    progress: int
    events: int
    faults: int
    bytes: int


def write_run(
    simulation: Simulation,
    hours: float,
    directory: Path,
    *,
    report: Callable[[float], None] = lambda _hours: None,
) -> Summary:
    """Simulate so many hours into a new directory; ``report`` is called with how many are done."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Conflict(f"'{directory}' already exists and is not empty; name a new directory.")
    parent = directory.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=parent))
    try:
        summary = _write(simulation, hours, unfinished, report)
        if directory.exists():
            directory.rmdir()
        unfinished.chmod(0o755)
        os.replace(unfinished, directory)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return Summary(**{**asdict(summary), "directory": str(directory)})


def _write(
    simulation: Simulation, hours: float, directory: Path, report: Callable[[float], None]
) -> Summary:
    records = RunRecords(simulation.config.cluster)
    gpu_rows = host_rows = 0
    with (
        _sample_writer(directory / "samples.parquet", EVERYDAY, held=True) as gpus,
        _sample_writer(directory / "host_samples.parquet", HOST_METRICS, held=False) as hosts,
        ThreadPoolExecutor(1) as writer,
    ):
        waiting: list[Future[None]] = []
        for block in simulation.blocks(hours, ahead=True):
            records.take(block)
            gpu_rows += len(block.samples[0])
            host_rows += sum(len(batch) for batch in block.samples[1:])
            waiting.append(writer.submit(_append, (gpus, hosts), block.samples))
            if len(waiting) > _BLOCKS_AHEAD:
                waiting.pop(0).result()
            report((block.to_ms - simulation.config.start_ms) / 3_600_000)
        for future in waiting:
            future.result()
    truth = simulation.truth()
    counts = records.write(directory, simulation)
    _write_truth(directory / "truth.json", truth)
    return Summary(
        directory=str(directory),
        gpus=simulation.hardware.gpus,
        hosts=len(simulation.hardware.host_names),
        start=format_time(simulation.config.start_ms),
        end=format_time(simulation.now_ms + simulation.config.tick_ms),
        workloads=counts["workloads"],
        samples=gpu_rows * len(EVERYDAY),
        host_samples=host_rows * len(HOST_METRICS),
        progress=counts["progress"],
        events=counts["events"],
        faults=len(truth),
        bytes=sum(path.stat().st_size for path in directory.iterdir()),
    )


def _sample_writer(path: Path, metrics: Sequence[str], *, held: bool) -> pq.ParquetWriter:
    fields = [pa.field("time_ms", pa.int64()), pa.field("entity", _NAMES)]
    fields += [pa.field("workload", _NAMES)] if held else []
    schema = pa.schema([*fields, *(pa.field(name, pa.float32()) for name in metrics)])
    coded = [name for name in schema.names if name != "time_ms"]
    return pq.ParquetWriter(path, schema, use_dictionary=coded, **_CODING)


def _append(writers: tuple[pq.ParquetWriter, ...], batches: tuple[SampleBatch, ...]) -> None:
    for writer, batch in zip(writers, batches, strict=False):
        writer.write_table(batch.to_table())


def _write_truth(path: Path, truth: Sequence[Truth]) -> None:
    entries = [
        {
            "kind": entry.kind.value,
            "workload": entry.workload,
            "gpus": list(entry.gpus),
            "hosts": list(entry.hosts),
            "start": format_time(entry.start_ms),
            "end": format_time(entry.end_ms),
        }
        for entry in truth
    ]
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


@dataclass(slots=True)
class RunRecords:
    """Records of a run, gathered block by block, with their exact moments."""

    cluster: str
    workloads: dict[str, Workload] = field(default_factory=dict)
    last_status: dict[str, WorkloadStatus] = field(default_factory=dict)
    states: list[StateRow] = field(default_factory=list)
    allocations: list[AllocationRow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    progress: list[ProgressColumns] = field(default_factory=list)
    host_states: dict[str, HostStatus] = field(default_factory=dict)
    gpu_states: dict[str, GpuStatus] = field(default_factory=dict)
    _open_state: dict[str, int] = field(default_factory=dict)
    _held: dict[str, list[int]] = field(default_factory=dict)

    def take(self, block: Block) -> None:
        """Add everything that a block tells."""
        for seen in block.observations:
            if seen.complete:
                for record in (
                    *seen.workloads,
                    *seen.statuses,
                    *seen.host_states,
                    seen.allocations,
                ):
                    self._note(seen.time_ms, record)
        for moment, record in block.log:
            self._note(moment, record)
        self.progress.append(block.progress)

    def _note(self, moment: int, record: Any) -> None:
        if isinstance(record, Workload):
            self.workloads[record.workload] = record
        elif isinstance(record, WorkloadStatus):
            self._note_status(moment, record)
        elif isinstance(record, tuple):
            self._note_allocations(moment, record)
        elif isinstance(record, Event):
            self.events.append(record)
        elif isinstance(record, HostStatus):
            self.host_states[record.host] = record
        elif isinstance(record, GpuStatus):
            self.gpu_states[record.gpu] = record

    def _note_status(self, moment: int, status: WorkloadStatus) -> None:
        if self.last_status.get(status.workload) == status:
            return
        self.last_status[status.workload] = status
        before = self._open_state.get(status.workload)
        if before is not None:
            self.states[before]["valid_to_ms"] = moment
        self._open_state[status.workload] = len(self.states)
        self.states.append(
            {
                "cluster": self.cluster,
                "workload": status.workload,
                "state": status.state.value,
                "reason": status.reason,
                "priority": status.priority,
                "valid_from_ms": moment,
                "valid_to_ms": None,
            }
        )
        if status.state.ended:
            for row in self._held.pop(status.workload, ()):
                self.allocations[row]["valid_to_ms"] = moment

    def _note_allocations(self, moment: int, allocations: tuple[Allocation, ...]) -> None:
        for held in allocations:
            if held.workload not in self.workloads:
                continue
            rows = self._held.setdefault(held.workload, [])
            if len(rows) >= self.workloads[held.workload].gpus_requested:
                continue
            rows.append(len(self.allocations))
            started = self.workloads[held.workload].start_ms
            self.allocations.append(
                {
                    "cluster": self.cluster,
                    "workload": held.workload,
                    "gpu": held.gpu,
                    "global_rank": held.global_rank,
                    "local_rank": held.local_rank,
                    "share": held.share,
                    "valid_from_ms": moment if started is None else started,
                    "valid_to_ms": None,
                }
            )

    def write(self, directory: Path, simulation: Simulation) -> dict[str, int]:
        """Write every table but the samples; returns the number of rows of each."""
        written = {
            "workloads": (tables.WORKLOADS, self._workload_rows()),
            "states": (tables.STATES, self.states),
            "allocations": (tables.ALLOCATIONS, self.allocations),
            "events": (
                tables.EVENTS,
                [{"cluster": self.cluster, **asdict(e)} for e in self.events],
            ),
            "hosts": (tables.HOSTS, self._host_rows(simulation)),
            "gpus": (tables.GPUS, self._gpu_rows(simulation)),
            "partitions": (
                tables.PARTITIONS,
                [
                    {"cluster": self.cluster, **asdict(p)}
                    for p in simulation.hardware.inventory.partitions
                ],
            ),
        }
        counts = {}
        for name, (schema, rows) in written.items():
            table = pa.Table.from_pylist(rows, schema=schema)
            pq.write_table(table, directory / f"{name}.parquet", compression="zstd")
            counts[name] = table.num_rows
        progress = _progress_table(self.cluster, self.progress)
        pq.write_table(progress, directory / "progress.parquet", compression="zstd")
        return {**counts, "progress": progress.num_rows}

    def _workload_rows(self) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = []
        for workload in self.workloads.values():
            status = self.last_status[workload.workload]
            row = {name: getattr(workload, name) for name in Workload.__slots__}
            row["attributes"] = json.dumps(dict(workload.attributes))
            state = {"state": status.state.value, "reason": status.reason}
            rows.append({"cluster": self.cluster, **row, **state, "priority": status.priority})
        return rows

    def _host_rows(self, simulation: Simulation) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = []
        for host in simulation.hardware.inventory.hosts:
            status = self.host_states.get(host.host, HostStatus(host.host, HostState.UP))
            state = {"state": status.state.value, "reason": status.reason}
            rows.append({"cluster": self.cluster, **asdict(host), **state})
        return rows

    def _gpu_rows(self, simulation: Simulation) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = []
        for gpu in simulation.hardware.inventory.gpus:
            status = self.gpu_states.get(gpu.gpu, GpuStatus(gpu.gpu, False))
            state = {"failed": status.failed, "failed_reason": status.reason}
            rows.append({"cluster": self.cluster, "gpu": gpu.gpu, **asdict(gpu), **state})
        return rows


def _progress_table(cluster: str, parts: Sequence[ProgressColumns]) -> pa.Table:
    chunks = []
    for part in parts:
        names = {seq: str(FIRST_ID + seq) for seq in set(part.seq.tolist())}
        seqs = part.seq.tolist()
        columns = {
            "cluster": pa.array([cluster] * len(seqs), pa.string()),
            "workload": pa.array([names[seq] for seq in seqs], pa.string()),
            "time_ms": part.time_ms,
            "step": part.step,
            "throughput": part.throughput,
            "unit": pa.array([part.units[seq] for seq in seqs], pa.string()),
            "loss": part.loss,
        }
        chunks.append(pa.table(columns, schema=tables.PROGRESS))
    return pa.concat_tables(chunks) if chunks else tables.PROGRESS.empty_table()

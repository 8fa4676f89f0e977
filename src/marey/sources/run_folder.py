"""A folder that ``marey sim`` wrote: the model's own tables as Parquet, read back."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from marey.model import tables
from marey.model.errors import InvalidInput, allowed, shown
from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import Gpu, GpuStatus, Host, HostState, HostStatus, Partition
from marey.model.metrics import Entity, catalogue
from marey.model.observation import Observation
from marey.model.samples import SampleBatch, batch_from_table
from marey.model.tables import (
    AllocationRow,
    EventRow,
    GpuRow,
    HostRow,
    ProgressRow,
    StateRow,
    WorkloadRow,
)
from marey.model.workloads import Allocation, Progress, Workload, WorkloadState, WorkloadStatus

SCHEMAS: dict[str, pa.Schema] = {
    "hosts": tables.HOSTS,
    "gpus": tables.GPUS,
    "partitions": tables.PARTITIONS,
    "workloads": tables.WORKLOADS,
    "states": tables.STATES,
    "allocations": tables.ALLOCATIONS,
    "progress": tables.PROGRESS,
    "events": tables.EVENTS,
}
SAMPLES = {Entity.GPU: "samples", Entity.HOST: "host_samples"}
ROWS_AT_ONCE = 1 << 18
_HOST_EVENTS = {
    ClusterEventKind.NODE_DOWN: HostState.DOWN,
    ClusterEventKind.NODE_UP: HostState.UP,
    ClusterEventKind.NODE_DRAIN: HostState.DRAINED,
    ClusterEventKind.NODE_RESUME: HostState.UP,
}


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The tables of one run; which of the two parts to read is the reader's choice."""

    path: Path
    cluster: str

    def rows(self, name: str) -> Any:
        """Return the rows of one record table, checked against its schema."""
        return self._read_table(name).to_pylist()

    def _read_table(self, name: str) -> pa.Table:
        file = self.path / f"{name}.parquet"
        table = _read(file)
        missing = [column for column in SCHEMAS[name].names if column not in table.column_names]
        if missing:
            raise InvalidInput(
                f"{file.name} has no column {allowed(missing)}; is it from marey sim?"
            )
        return table.select(SCHEMAS[name].names).cast(SCHEMAS[name])

    def sample_rows(self) -> int:
        """Return how many rows of samples there are."""
        return sum(
            _open(self.path / f"{name}.parquet").metadata.num_rows for name in SAMPLES.values()
        )

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the samples, piece by piece."""
        for kind, name in SAMPLES.items():
            file = _open(self.path / f"{name}.parquet")
            wanted = [
                column
                for column in file.schema_arrow.names
                if column in ("time_ms", "entity", "workload") or column in catalogue()
            ]
            if "time_ms" not in wanted or "entity" not in wanted:
                raise InvalidInput(f"{name}.parquet has no columns time_ms and entity.")
            for piece in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=wanted):
                table = pa.Table.from_batches([piece])
                yield batch_from_table(table, kind=kind, cluster=self.cluster)

    def observations(self) -> Iterator[Observation]:
        """Yield everything but the samples, in order of time."""
        changes = _Changes(self)
        yield from changes.in_order()


def open_run_folder(path: Path, cluster: str) -> RunFolder:
    """Return the folder, if it holds what ``marey sim`` writes."""
    if not path.is_dir():
        way = "; give a file with --samples or --workloads" if path.is_file() else ""
        raise InvalidInput(f"'{path}' is not a folder that marey sim wrote{way}.")
    wanted = [f"{name}.parquet" for name in (*SCHEMAS, *SAMPLES.values())]
    missing = [name for name in wanted if not (path / name).is_file()]
    if missing:
        raise InvalidInput(
            f"'{path}' is not a folder that marey sim wrote; missing: {allowed(missing)}."
        )
    return RunFolder(path, cluster)


def find_folder(file: Path | None) -> Path | None:
    """Return the run folder in which this file is one of the tables, if it is."""
    known = {f"{name}.parquet" for name in (*SCHEMAS, *SAMPLES.values())}
    if file is None or file.name not in known or not (file.parent / "truth.json").is_file():
        return None
    return file.parent


def _open(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{file.name} cannot be read as Parquet: {shown(str(error))}") from None


def _read(file: Path) -> pa.Table:
    try:
        return pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{file.name} cannot be read as Parquet: {shown(str(error))}") from None


class _Changes:
    """What changed at each moment of a run."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._at: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self._collect()

    def in_order(self) -> Iterator[Observation]:
        """Yield one observation per moment."""
        for time_ms in sorted(self._at):
            parts: dict[str, Any] = {n: tuple(listed) for n, listed in self._at[time_ms].items()}
            yield Observation(time_ms, self._folder.cluster, **parts)

    def _collect(self) -> None:
        rows = self._folder.rows
        states: list[StateRow] = rows("states")
        allocations: list[AllocationRow] = rows("allocations")
        events: list[EventRow] = rows("events")
        workloads: list[WorkloadRow] = rows("workloads")
        times = [row["valid_from_ms"] for row in (*states, *allocations)]
        begin = min([*times, *(e["time_ms"] for e in events)], default=0)
        last = max([*times, *(r["valid_to_ms"] or 0 for r in states), begin])
        for state in states:
            self._at[state["valid_from_ms"]]["statuses"].append(_make_status(state))
        for held in allocations:
            self._at[held["valid_from_ms"]]["allocations"].append(_make_allocation(held))
        for workload in workloads:
            first = workload["submit_ms"] if workload["submit_ms"] is not None else begin
            self._at[max(first, begin)]["workloads"].append(_make_workload(workload))
        for report in rows("progress"):
            self._at[report["time_ms"]]["progress"].append(_make_progress(report))
        for event in events:
            self._add_event(event)
        self._add_inventory(begin, last)

    def _add_event(self, row: EventRow) -> None:
        event = Event(
            row["time_ms"], ClusterEventKind(row["kind"]), row["host"] or "", gpu=row["gpu"] or "",
            workload=row["workload"] or "", value=row["value"], text=row["text"] or "",
        )  # fmt: skip
        self._at[event.time_ms]["events"].append(event)
        if event.kind in _HOST_EVENTS and event.host:
            status = HostStatus(event.host, _HOST_EVENTS[event.kind], event.text)
            self._at[event.time_ms]["host_states"].append(status)

    def _add_inventory(self, begin: int, last: int) -> None:
        hosts: list[HostRow] = self._folder.rows("hosts")
        gpus: list[GpuRow] = self._folder.rows("gpus")
        first = self._at[begin]
        first["hosts"].extend(
            Host(
                h["host"],
                h["rack"] or "",
                h["switch"] or "",
                nvlink_domain=h["nvlink_domain"] or "",
                partitions=tuple(h["partitions"] or ()),
                cpus=h["cpus"] or 0,
                memory_mib=h["memory_mib"] or 0,
            )
            for h in hosts
        )
        first["gpus"].extend(
            Gpu(
                g["host"],
                g["index"],
                g["instance"],
                uuid=g["uuid"] or "",
                model=g["model"] or "",
                power_limit_w=g["power_limit_w"],
                memory_mib=g["memory_mib"],
            )
            for g in gpus
        )
        first["partitions"].extend(
            Partition(
                p["partition"],
                p["min_gpus"] or 0,
                p["max_gpus"],
                p["time_limit_s"],
                p["priority"] or 0,
            )
            for p in self._folder.rows("partitions")
        )
        # The tables tell how hosts and GPUs ended; how they got there is in the events.
        self._at[last]["gpu_states"].extend(
            GpuStatus(g["gpu"], True, g["failed_reason"] or "") for g in gpus if g["failed"]
        )
        self._at[last]["host_states"].extend(
            HostStatus(h["host"], HostState(h["state"]), h["reason"] or "")
            for h in hosts
            if h["state"]
        )


def _make_status(row: StateRow) -> WorkloadStatus:
    return WorkloadStatus(
        row["workload"], WorkloadState(row["state"]), row["reason"] or "", row["priority"] or 0.0
    )


def _make_allocation(row: AllocationRow) -> Allocation:
    share = 1.0 if row["share"] is None else row["share"]
    return Allocation(row["workload"], row["gpu"], row["global_rank"], row["local_rank"], share)


def _make_progress(row: ProgressRow) -> Progress:
    return Progress(
        row["workload"],
        row["time_ms"],
        row["step"],
        throughput=row["throughput"],
        unit=row["unit"] or "",
        loss=row["loss"],
    )


def _make_workload(row: WorkloadRow) -> Workload:
    return Workload(
        row["workload"],
        name=row["name"] or "",
        user=row["user"] or "",
        project=row["project"] or "",
        experiment=row["experiment"] or "",
        partition=row["partition"] or "",
        qos=row["qos"] or "",
        gpu_model=row["gpu_model"] or "",
        resource_type=row["resource_type"] or "",
        gpus_requested=row["gpus_requested"] or 0,
        gpus_per_host=row["gpus_per_host"] or 0,
        time_limit_s=row["time_limit_s"],
        submit_ms=row["submit_ms"],
        eligible_ms=row["eligible_ms"],
        start_ms=row["start_ms"],
        end_ms=row["end_ms"],
        exit_code=row["exit_code"],
        attributes=json.loads(row["attributes"] or "{}"),
    )

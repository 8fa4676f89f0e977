"""One tick of a cluster, immutable: what every client receives, encoded once for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.live.quantise import live_scales
from marey.live.wire_format import (
    PLANES,
    ZIGZAG_PLANES,
    Part,
    changed_column,
    full_column,
    message,
    table_part,
)
from marey.model.inventory import GpuState
from marey.model.workloads import Workload, WorkloadStatus

STATES = tuple(state.value for state in GpuState)
STATE_CODE = {state: code for code, state in enumerate(STATES)}

_NAMES = pa.dictionary(pa.int32(), pa.string())

Columns = Mapping[str, NDArray[np.uint16]]
NoteT = TypeVar("NoteT")


@dataclass(frozen=True, slots=True)
class Units:
    """Every GPU: a table of what stays, and by row what moves."""

    # Columns row, cluster, gpu, host, … of the rows that exist.
    still: pa.Table
    state: NDArray[np.uint8]
    reason: Sequence[str]
    workloads: Sequence[tuple[str, ...]]

    def table(self, rows: NDArray[np.int64] | None = None) -> pa.Table:
        """Return the units, or only those with these row numbers."""
        still = self.still
        if rows is not None:
            wanted = np.isin(still.column("row").to_numpy(), rows)
            still = _recode_table(still.filter(pa.array(wanted)))
        present = still.column("row").to_numpy()
        state = pa.DictionaryArray.from_arrays(
            pa.array(self.state[present], pa.int32()), pa.array(STATES, pa.string())
        )
        reasons = pa.array([self.reason[row] for row in present], pa.string()).dictionary_encode()
        held = pa.array([self.workloads[row] for row in present], pa.list_(pa.string()))
        return (
            still.append_column("state", state)
            .append_column("state_reason", reasons)
            .append_column("workloads", held)
        )


def _recode_table(table: pa.Table) -> pa.Table:
    """Return the table with dictionaries that hold only what its rows use."""
    for at, entry in enumerate(table.schema):
        if pa.types.is_dictionary(entry.type):
            plain = table.column(at).cast(entry.type.value_type)
            table = table.set_column(at, entry.name, plain.dictionary_encode())
    return table


@dataclass(frozen=True, slots=True)
class LiveWorkload:
    """A workload that waits or runs."""

    workload: Workload
    status: WorkloadStatus


WORKLOADS_SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "name": pa.string(),
        "user": _NAMES,
        "project": _NAMES,
        "experiment": _NAMES,
        "partition": _NAMES,
        "qos": _NAMES,
        "priority": pa.float64(),
        "queue_position": pa.int32(),
        "state": _NAMES,
        "reason": _NAMES,
        "submit_ms": pa.int64(),
        "start_ms": pa.int64(),
        "time_limit_s": pa.int64(),
        "gpus_requested": pa.int32(),
        "resource_type": _NAMES,
        "attributes": pa.string(),
    }
)


def build_workloads_table(listed: Sequence[LiveWorkload], positions: Mapping[str, int]) -> pa.Table:
    """Return live workloads, with their positions in the queue, as the table that clients get."""
    return join_columns(list_columns(listed, positions))


def join_columns(columns: Mapping[str, list[Any]]) -> pa.Table:
    """Return the columns of ``list_columns`` as that table."""
    arrays = [_build_column(columns[entry.name], entry.type) for entry in WORKLOADS_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=WORKLOADS_SCHEMA)


def list_columns(
    listed: Sequence[LiveWorkload], positions: Mapping[str, int], *, named: bool = True
) -> dict[str, list[Any]]:
    """Return the values of a table by column; without ``named`` people's texts are blank."""
    workloads = [live.workload for live in listed]
    statuses = [live.status for live in listed]
    ids = [workload.workload for workload in workloads]
    blank = [""] * len(listed)
    return {
        "id": ids,
        "name": [workload.name for workload in workloads] if named else blank,
        "user": [workload.user for workload in workloads],
        "project": [workload.project for workload in workloads],
        "experiment": [workload.experiment for workload in workloads] if named else blank,
        "partition": [workload.partition for workload in workloads],
        "qos": [workload.qos for workload in workloads] if named else blank,
        "priority": [status.priority for status in statuses],
        "queue_position": list(map(positions.get, ids)),
        "state": [status.state.value for status in statuses],
        "reason": [status.reason for status in statuses],
        "submit_ms": [workload.submit_ms for workload in workloads],
        "start_ms": [workload.start_ms for workload in workloads],
        "time_limit_s": [workload.time_limit_s for workload in workloads],
        "gpus_requested": [workload.gpus_requested for workload in workloads],
        "resource_type": [workload.resource_type for workload in workloads],
        "attributes": [_write_attributes(workload) for workload in workloads]
        if named
        else ["{}"] * len(listed),
    }


def _write_attributes(workload: Workload) -> str:
    attributes = workload.attributes
    return msgspec.json.encode(dict(attributes)).decode() if attributes else "{}"


def _build_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return the values as a column of a table of workloads."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the frame before."""

    units: NDArray[np.int64]
    removed_units: tuple[int, ...] = ()
    workloads: tuple[str, ...] = ()
    removed_workloads: tuple[str, ...] = ()
    # What those were, for whoever must know whose they were.
    gone: Mapping[str, LiveWorkload] = field(default_factory=dict)


SourceCondition = Literal["waiting", "fresh", "stale"]


class SourceHeader(TypedDict):
    """How one source is doing, in a few words: goes with every live message."""

    name: str
    state: SourceCondition
    last_ms: int | None
    age_ms: int | None
    error: str
    polls: int
    failures: int
    poll_seconds: float


@dataclass(frozen=True, slots=True)
class Frame:
    """A cluster at one tick; parts are encoded when first asked for, and then shared."""

    cluster: str
    seq: int
    time_ms: int
    units: Units
    workloads: Mapping[str, LiveWorkload]
    # Those of them that wait, in the scheduler's order.
    queue: Sequence[str]
    columns: Columns
    before: Columns
    changes: Changes
    sources: Sequence[SourceHeader] = ()
    speed: float = 1.0
    _parts: dict[tuple[str, str], Part] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    # What was worked out of it once, for every other question about the same tick.
    notes: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def rows(self) -> int:
        """How long a metric column is."""
        return len(self.units.state)

    def snapshot(self, metrics: Iterable[str]) -> bytes:
        """Return everything, as one message."""
        parts = [self.get_part("units", "full"), self.get_part("workloads", "full")]
        parts += self._find_own_parts("full")
        parts += [self.get_part(name, "full") for name in metrics if name in self.columns]
        return message(self._write_header("snapshot"), parts)

    def column_message(self, metrics: Iterable[str]) -> bytes:
        """Return complete columns that a client has newly subscribed to."""
        parts = [self.get_part(name, "full") for name in metrics if name in self.columns]
        return message(self._write_header("columns"), parts)

    def tick(self, metrics: Iterable[str], known: frozenset[str] | None = None) -> bytes:
        """Return the changes since the last frame; ``known`` are the columns the client has."""
        parts = [self.get_part(name, "changed") for name in self._list_changed_tables()]
        parts += self._find_own_parts("changed")
        for name in metrics:
            if name in self.columns:
                built_on = name in self.before and (known is None or name in known)
                parts.append(self.get_part(name, "changed" if built_on else "full"))
        header = self._write_header("tick")
        header["removed_units"] = self.changes.removed_units
        header["removed_workloads"] = self.changes.removed_workloads
        return message(header, parts)

    def encode_ahead(self, metrics: Iterable[str], *, tables: bool = True) -> None:
        """Make the parts of a tick now, so that no client waits for them.

        Without ``tables`` only the columns: where nobody sees all names, no client takes these.
        """
        if tables:
            self.tick(metrics)
            return
        for name in metrics:
            if name in self.columns:
                self.get_part(name, "changed" if name in self.before else "full")

    def values(self, metric: str) -> NDArray[np.float32]:
        """Return a metric of every row, NaN where it has no value."""
        if metric not in self.columns:
            return np.full(self.rows, np.nan, np.float32)
        return live_scales()[metric].values(self.columns[metric])

    def workloads_table(self, names: Iterable[str] | None = None) -> pa.Table:
        """Return the workloads with their positions in the queue, or only those of these names."""
        listed = [self.workloads[name] for name in (self.workloads if names is None else names)]
        return build_workloads_table(listed, self.positions())

    def positions(self) -> Mapping[str, int]:
        """Return everybody who waits, by place in the scheduler's order."""
        return self.note(
            "positions", lambda: {name: position for position, name in enumerate(self.queue, 1)}
        )

    def note(self, key: Hashable, make: Callable[[], NoteT]) -> NoteT:
        """Return a note of this tick, made once for all who ask."""
        with self._lock:
            if key not in self.notes:
                self.notes[key] = make()
            found: NoteT = self.notes[key]
            return found

    def _write_header(self, kind: str) -> dict[str, Any]:
        return {
            "type": kind,
            "seq": self.seq,
            "time_ms": self.time_ms,
            "cluster": self.cluster,
            "rows": self.rows,
            "speed": self.speed,
            "sources": self.sources,
        }

    def get_part(self, name: str, form: str) -> Part:
        """Return a piece of a message, encoded when it is first asked for."""
        # The lock is held while encoding, so that two clients never encode the same part twice.
        with self._lock:
            part = self._parts.get((name, form))
            if part is None:
                part = self._parts[name, form] = self._encode(name, form)
            return part

    def _list_changed_tables(self) -> list[str]:
        changed = {"units": len(self.changes.units), "workloads": len(self.changes.workloads)}
        return [name for name, rows in changed.items() if rows]

    def _find_own_parts(self, form: str) -> list[Part]:
        """Return the parts that only this frame's readers get; here everybody gets everything."""
        return []

    def _encode(self, name: str, form: str) -> Part:
        makers: dict[tuple[str, str], Callable[[], pa.Table]] = {
            # UUIDs are random: they would be two thirds of a snapshot. REST gives them.
            ("units", "full"): lambda: self.units.table().drop(["uuid"]),
            ("units", "changed"): lambda: self.units.table(self.changes.units).drop(["uuid"]),
            ("workloads", "full"): self.workloads_table,
            ("workloads", "changed"): lambda: self.workloads_table(self.changes.workloads),
        }
        maker = makers.get((name, form))
        return table_part(name, maker()) if maker else self._encode_metric(name, form)

    def _encode_metric(self, name: str, form: str) -> Part:
        codes = self.columns[name]
        scale = live_scales()[name]
        facts = {
            "metric": name,
            "scale_offset": scale.offset,
            "scale_step": scale.step,
            "levels": scale.levels,
        }
        if form == "full":
            return Part(f"metric:{name}", PLANES, full_column(codes), facts)
        payload = changed_column(codes, self.before[name])
        return Part(f"metric:{name}", ZIGZAG_PLANES, payload, facts)

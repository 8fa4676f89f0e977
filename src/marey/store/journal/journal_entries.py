"""What a journal's entry says: the records and samples of a tick as bytes, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from marey.model.events import Event
from marey.model.inventory import Gpu, GpuStatus, Host, HostStatus, Partition
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.workloads import Allocation, Progress, Workload, WorkloadStatus

_KINDS: dict[str, Any] = {
    "hosts": tuple[Host, ...],
    "gpus": tuple[Gpu, ...],
    "partitions": tuple[Partition, ...],
    "host_states": tuple[HostStatus, ...],
    "gpu_states": tuple[GpuStatus, ...],
    "workloads": tuple[Workload, ...],
    "statuses": tuple[WorkloadStatus, ...],
    "allocations": tuple[Allocation, ...],
    "progress": tuple[Progress, ...],
    "events": tuple[Event, ...],
}
_HEAD_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Entry:
    """One tick as the journal has it."""

    seq: int
    observations: tuple[Observation, ...]
    batches: tuple[SampleBatch, ...]


class _BatchHead(msgspec.Struct, array_like=True):
    cluster: str
    kind: str
    rows: int
    one_time_ms: int | None
    entities: Sequence[str]
    workloads: Sequence[str] | None
    columns: list[str]


class _Head(msgspec.Struct, array_like=True):
    seq: int
    observations: list[dict[str, Any]]
    batches: list[_BatchHead]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Head)


def encode_observation(observation: Observation) -> dict[str, Any]:
    """Return the records of an observation as plain values."""
    reported = {name: getattr(observation, name) for name in _KINDS if getattr(observation, name)}
    return {
        "time_ms": observation.time_ms,
        "cluster": observation.cluster,
        **{name: msgspec.to_builtins(values) for name, values in reported.items()},
    }


def decode_observation(document: dict[str, Any]) -> Observation:
    """Return the observation that ``to_document`` was given, without samples."""
    facts = {
        name: msgspec.convert(document[name], kind)
        for name, kind in _KINDS.items()
        if name in document
    }
    return Observation(document["time_ms"], document["cluster"], **facts)


def pack(entry: Entry) -> bytes:
    """Return the entry as bytes: a head that says what follows, then the columns as they are."""
    heads: list[_BatchHead] = []
    buffers: list[bytes] = []
    for batch in entry.batches:
        head, columns = _pack_batch(batch)
        heads.append(head)
        buffers += columns
    head_bytes = _encoder.encode(
        _Head(entry.seq, [encode_observation(o) for o in entry.observations], heads)
    )
    return b"".join([_HEAD_LENGTH.pack(len(head_bytes)), head_bytes, *buffers])


def _pack_batch(batch: SampleBatch) -> tuple[_BatchHead, list[bytes]]:
    time_ms = batch.time_ms
    one_time = len(time_ms) > 0 and bool((time_ms == time_ms[0]).all())
    arrays: list[bytes] = [] if one_time else [_get_bytes(time_ms, np.int64)]
    arrays.append(_get_bytes(batch.entity, np.int32))
    if batch.workload is not None:
        arrays.append(_get_bytes(batch.workload, np.int32))
    arrays += [_get_bytes(values, np.float32) for values in batch.columns.values()]
    head = _BatchHead(
        batch.cluster,
        str(batch.kind),
        len(batch),
        one_time_ms=int(time_ms[0]) if one_time else None,
        entities=batch.entities,
        workloads=None if batch.workload is None else batch.workloads,
        columns=list(batch.columns),
    )
    return head, arrays


def _get_bytes(values: NDArray[Any], kind: type[np.generic]) -> bytes:
    return np.ascontiguousarray(values, kind).tobytes()


def unpack(payload: bytes) -> Entry:
    """Return the entry that ``pack`` was given."""
    size = _HEAD_LENGTH.unpack_from(payload)[0]
    start = _HEAD_LENGTH.size
    head = _decoder.decode(payload[start : start + size])
    arrays = _Arrays(payload, start + size)
    batches = tuple(_unpack_batch(each, arrays) for each in head.batches)
    return Entry(head.seq, tuple(decode_observation(d) for d in head.observations), batches)


def read_sequence_numbers(payloads: Iterator[bytes]) -> Iterator[int]:
    """Yield the numbers of entries alone."""
    for payload in payloads:
        size = _HEAD_LENGTH.unpack_from(payload)[0]
        start = _HEAD_LENGTH.size
        yield _decoder.decode(payload[start : start + size]).seq


class _Arrays:
    """The columns behind the head, in the order they were written."""

    def __init__(self, payload: bytes, at: int) -> None:
        self._payload = payload
        self._at = at

    def take(self, kind: type[Any], rows: int) -> NDArray[Any]:
        array = np.frombuffer(self._payload, kind, rows, self._at)
        self._at += array.nbytes
        return array


def _unpack_batch(head: _BatchHead, arrays: _Arrays) -> SampleBatch:
    rows = head.rows
    if head.one_time_ms is None:
        time_ms = arrays.take(np.int64, rows)
    else:
        time_ms = np.full(rows, head.one_time_ms, np.int64)
    entity = arrays.take(np.int32, rows)
    workload = None if head.workloads is None else arrays.take(np.int32, rows)
    columns = {name: arrays.take(np.float32, rows) for name in head.columns}
    return SampleBatch(
        time_ms,
        entity,
        tuple(head.entities),
        columns=columns,
        kind=Entity(head.kind),
        cluster=head.cluster,
        workload=workload,
        workloads=tuple(head.workloads or ()),
    )

"""An export as columns: what a moment of a whole cluster is read by, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from marey.model.errors import StoreError, Unavailable
from marey.model.metrics import Entity
from marey.model.samples import NO_WORKLOAD, SampleBatch
from marey.store.victoria import labels
from marey.store.victoria.grids import (
    Names,
    make_batch_of_columns,
    make_empty_batch,
    make_keys,
    sort_column,
)

_TEXTS = ("__name__", *labels.ENTITY_LABELS, labels.WORKLOAD, labels.REVISION)
_TIME, _VALUE = "__timestamp__", "__value__"
# As the server takes it.
FORMAT = ",".join([*_TEXTS, f"{_TIME}:unix_ms", _VALUE])
_BLOCK_BYTES = 8 << 20
_ANSWER_LIMIT = 2 << 30
_WORDS = pa.dictionary(pa.int32(), pa.string())
_READ = pyarrow.csv.ReadOptions(
    use_threads=False, block_size=_BLOCK_BYTES, column_names=[*_TEXTS, _TIME, _VALUE]
)
_PARSE = pyarrow.csv.ParseOptions(quote_char=False)
_CONVERT = pyarrow.csv.ConvertOptions(
    column_types={**dict.fromkeys(_TEXTS, _WORDS), _TIME: pa.int64(), _VALUE: pa.float64()},
    strings_can_be_null=False,
)


class ReadableAnswer(Protocol):
    """An answer that is read piece by piece."""

    def read(self, amt: int | None = None) -> bytes: ...


def parse_export(
    answer: ReadableAnswer, rows_metric: str, kind: Entity, cluster: str
) -> SampleBatch:
    """Return lines of CSV in the format of this module as one batch, by entity and time."""
    gathered = _Gathered()
    for block in _read_blocks(answer):
        gathered.add(block)
    return gathered.batch(rows_metric, kind, cluster)


class _Stream:
    """A readable answer as pyarrow takes a file, and no longer than allowed."""

    closed = False

    def __init__(self, answer: ReadableAnswer) -> None:
        self._answer = answer
        self._first = answer.read(_BLOCK_BYTES)
        self._size = 0
        self.empty = not self._first

    def read(self, amount: int = -1) -> bytes:
        piece, self._first = self._first[:amount], self._first[amount:]
        piece = piece or self._answer.read(amount)
        self._size += len(piece)
        if self._size > _ANSWER_LIMIT:
            raise StoreError("VictoriaMetrics' answer is longer than 2 GB.")
        return piece

    def close(self) -> None:
        self.closed = True


def _read_blocks(answer: ReadableAnswer) -> Iterator[pa.RecordBatch]:
    stream = _Stream(answer)
    if stream.empty:
        return
    try:
        yield from pyarrow.csv.open_csv(pa.PythonFile(stream, "r"), _READ, _PARSE, _CONVERT)
    except pa.ArrowInvalid as error:
        raise Unavailable(f"VictoriaMetrics exports no CSV as asked: {error}") from None


class _Codes:
    """Names as numbers, over all blocks."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def of(self, names: list[Any]) -> NDArray[np.int32]:
        numbers = self.numbers
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)


class _Gathered:
    """The samples of all blocks, with numbers for every name."""

    def __init__(self) -> None:
        self._metrics = _Codes()
        self._entities = _Codes()
        self._workloads = _Codes()
        self._parts: list[tuple[NDArray[Any], ...]] = []

    def add(self, block: pa.RecordBatch) -> None:
        """Take a block over."""
        words = [(block.column(n).dictionary.to_pylist(), _read_indices(block, n)) for n in _TEXTS]
        (metrics, metric), *parts, (workloads, workload), (revisions, revision) = words
        revision_of = np.array([int(text or 0) for text in revisions], np.int64)
        self._parts.append(
            (
                self._metrics.of(metrics)[metric],
                self._encode_entity(parts),
                self._workloads.of(workloads)[workload],
                revision_of[revision],
                block.column(_TIME).to_numpy(),
                block.column(_VALUE).to_numpy(zero_copy_only=False),
            )
        )

    def _encode_entity(self, parts: list[tuple[list[str], NDArray[np.int32]]]) -> NDArray[np.int32]:
        """Return one number for host, GPU and instance together."""
        combined = np.zeros(len(parts[0][1]), np.int64)
        for names, codes in parts:
            combined = combined * len(names) + codes
        distinct, places = np.unique(combined, return_inverse=True)
        named = []
        for code in distinct.tolist():
            own = []
            for names, _ in reversed(parts):
                code, at = divmod(code, len(names))
                own.append(names[at])
            named.append(tuple(reversed(own)))
        return self._entities.of(named)[places]

    def batch(self, rows_metric: str, kind: Entity, cluster: str) -> SampleBatch:
        """Return everything as one batch."""
        if not self._parts:
            return make_empty_batch(kind, cluster)
        metric, entity, workload, revision, time_ms, value = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        entities, entity_at = _sort_names(
            [labels.join_entity(dict(zip(labels.ENTITY_LABELS, parts, strict=True)))
             for parts in self._entities.numbers]
        )  # fmt: skip
        keys = make_keys(entity_at[entity], time_ms)
        found = {}
        held = sort_column(keys[:0], value[:0], revision[:0])
        workloads, workload_at = _sort_names(list(self._workloads.numbers))
        for name, code in self._metrics.numbers.items():
            own = np.flatnonzero(metric == code)
            if name.removeprefix(labels.PREFIX) == rows_metric:
                holder = workload_at[workload[own]].astype(np.float64)
                # Who held nothing stands under the empty name.
                holder[holder == _place(workloads, "")] = NO_WORKLOAD
                held = sort_column(keys[own], holder, value[own].astype(np.int64))
            else:
                column = sort_column(keys[own], value[own], revision[own])
                found[name.removeprefix(labels.PREFIX)] = column
        return make_batch_of_columns(found, held, Names(entities, workloads, kind, cluster))


def _read_indices(block: pa.RecordBatch, name: str) -> NDArray[np.int32]:
    codes: NDArray[np.int32] = block.column(name).indices.to_numpy()
    return codes


def _sort_names(names: list[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the names in order, and the place of each among them."""
    ordered = tuple(sorted(set(names)))
    places = {name: place for place, name in enumerate(ordered)}
    return ordered, np.array([places[name] for name in names], np.int32)


def _place(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else -2

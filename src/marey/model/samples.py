"""Samples: measured values of GPUs and hosts, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.metrics import Entity, metric_named
from marey.model.names import DEFAULT_CLUSTER

NO_WORKLOAD = -1


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Rows of (time, entity) with one float32 column per metric; NaN means no value.

    ``entity`` and ``workload`` are codes into the tuples beside them, so a batch of a hundred
    thousand rows carries each name once. ``workload`` is the one that held the GPU at that time
    (-1 for none); it is a key for locality in the store, filled by the collect loop or import.
    """

    time_ms: NDArray[np.int64]
    entity: NDArray[np.int32]
    entities: Sequence[str]
    columns: Mapping[str, NDArray[np.float32]]
    kind: Entity = Entity.GPU
    cluster: str = DEFAULT_CLUSTER
    workload: NDArray[np.int32] | None = None
    workloads: Sequence[str] = field(default=())
    # Set by ``checked``; whoever puts other columns in place sets it back.
    is_clean: bool = field(default=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.time_ms)

    def rows(self, kept: NDArray[np.bool_] | NDArray[np.int64] | slice) -> SampleBatch:
        """Return some rows of the batch."""
        self._refuse_ragged()
        return SampleBatch(
            self.time_ms[kept],
            self.entity[kept],
            self.entities,
            columns={name: values[kept] for name, values in self.columns.items()},
            kind=self.kind,
            cluster=self.cluster,
            workload=None if self.workload is None else self.workload[kept],
            workloads=self.workloads,
            is_clean=self.is_clean,
        )

    def checked(self) -> SampleBatch:
        """Return the same batch with every column cleaned by its metric.

        Refuses unknown metrics.
        """
        if self.is_clean:
            return self
        self._refuse_ragged()
        cleaned: dict[str, NDArray[np.float32]] = {}
        for name, values in self.columns.items():
            metric = metric_named(name)
            if metric.entity is not self.kind:
                raise InvalidInput(
                    f"'{name}' is a {metric.entity} metric, not one of a {self.kind}."
                )
            cleaned[name] = metric.clean(values)
        return SampleBatch(
            self.time_ms,
            self.entity,
            self.entities,
            columns=cleaned,
            kind=self.kind,
            cluster=self.cluster,
            workload=self.workload,
            workloads=self.workloads,
            is_clean=True,
        )

    def _refuse_ragged(self) -> None:
        rows = len(self.time_ms)
        lengths = {len(self.entity), *(len(c) for c in self.columns.values())}
        if lengths - {rows}:
            raise InvalidInput(f"A batch of {rows} rows has a column of another length.")

    def to_table(self) -> pa.Table:
        """Return the batch as an Arrow table: time_ms, entity, workload (where known), metrics."""
        arrays: dict[str, pa.Array] = {
            "time_ms": pa.array(self.time_ms, pa.int64()),
            "entity": _decode_names(self.entity, self.entities),
        }
        if self.workload is not None:
            arrays["workload"] = _decode_names(self.workload, self.workloads)
        for name, values in self.columns.items():
            arrays[name] = pa.array(values, pa.float32(), from_pandas=True)
        return pa.table(arrays)


def _decode_names(codes: NDArray[np.int32], names: Sequence[str]) -> pa.Array:
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def batch_from_table(
    table: pa.Table, *, kind: Entity = Entity.GPU, cluster: str = DEFAULT_CLUSTER
) -> SampleBatch:
    """Return an Arrow table (time_ms, entity, optional workload, metrics) as a batch."""
    entity, entities = _encode_names(table.column("entity"))
    workload: NDArray[np.int32] | None = None
    workloads: Sequence[str] = ()
    if "workload" in table.column_names:
        workload, workloads = _encode_names(table.column("workload"))
    skip = {"time_ms", "entity", "workload"}
    columns = {
        name: table.column(name).to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
        for name in table.column_names
        if name not in skip
    }
    time_ms = table.column("time_ms").to_numpy().astype(np.int64, copy=False)
    return SampleBatch(
        time_ms,
        entity,
        entities,
        columns=columns,
        kind=kind,
        cluster=cluster,
        workload=workload,
        workloads=workloads,
    )


def _encode_names(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[str]]:
    encoded = column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    codes = encoded.indices.fill_null(NO_WORKLOAD).to_numpy().astype(np.int32, copy=False)
    return codes, encoded.dictionary.to_pylist()


def concatenate(batches: Iterable[SampleBatch]) -> pa.Table:
    """Return batches of one kind as one Arrow table; a metric that a batch lacks is null there."""
    tables = [batch.to_table() for batch in batches]
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()

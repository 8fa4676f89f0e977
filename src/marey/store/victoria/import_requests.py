"""Batches as import requests. CSV is what costs both sides least; names that cannot stand in it,
as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from marey.model.metrics import Entity
from marey.model.samples import SampleBatch
from marey.store.victoria import labels
from marey.store.victoria.grids import take_rows
from marey.store.victoria.http_server import Server

# Rows per request: some 4 MB of CSV with every metric there is.
_ROWS_AT_ONCE = 20_000
_LINES_AT_ONCE = 5_000
_OPTIONS = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")


@lru_cache(maxsize=32)
def _make_label_columns(
    kind: Entity, entities: tuple[str, ...]
) -> tuple[list[pa.Array], NDArray[np.bool_]]:
    """Return label columns of entities, and which of them are plain enough for CSV."""
    split = [labels.split_entity(kind, entity) for entity in entities]
    columns = [pa.array([part[i] for part in split], pa.string()) for i in range(3)]
    plain = np.array([all(labels.is_plain(text) for text in part) for part in split], bool)
    return columns, plain


class Writer:
    """Sends samples to one server under one site's name."""

    def __init__(self, server: Server, site: str) -> None:
        self._server = server
        self._site = site

    def write(self, batch: SampleBatch, revision: int) -> None:
        """Send every value of a batch."""
        filled = {n: v for n, v in batch.columns.items() if not np.isnan(v).all()}
        if not filled or not len(batch):
            return
        extra = self._list_extra_labels(batch.cluster)
        if revision:
            extra.append(f"{labels.REVISION}={revision}")
        for rows, plain in self._split_rows(batch, np.ones(len(batch), bool)):
            if plain:
                names = [labels.get_series_name(name) for name in filled]
                columns = [pa.array(values[rows]) for values in filled.values()]
                self._add_csv(
                    batch, rows, (), values=dict(zip(names, columns, strict=True)), extra=extra
                )
            else:
                self._send_lines(self._make_value_lines(batch, rows, filled, revision))

    def write_rows(self, batch: SampleBatch, versions: NDArray[np.int64]) -> None:
        """Send the marks of rows: who held the entity; a version of 0 is not sent."""
        named = np.array([labels.is_plain(name) for name in batch.workloads], bool)
        workload = np.full(len(batch), -1, np.int32) if batch.workload is None else batch.workload
        plain_holder = np.append(named, True)[workload]
        holders = pa.array([*batch.workloads, ""], pa.string())
        wanted = versions > 0
        name = labels.get_rows_name(batch.kind)
        for rows, plain in self._split_rows(take_rows(batch, wanted), plain_holder[wanted]):
            at = np.flatnonzero(wanted)[rows]
            if plain:
                holder = holders.take(pa.array(workload[at] % len(holders)))
                column = {name: pa.array(versions[at])}
                self._add_csv(
                    batch,
                    at,
                    (holder,),
                    values=column,
                    extra=self._list_extra_labels(batch.cluster),
                )
            else:
                self._send_lines(self._make_row_lines(batch, at, workload, versions))

    def write_reach(self, batch: SampleBatch) -> None:
        """Send from when to when the batch reaches."""
        metric = {
            **self._make_constant_labels(batch.cluster),
            "__name__": labels.get_reach_name(batch.kind),
        }
        reach = sorted({int(batch.time_ms.min()), int(batch.time_ms.max())})
        self._send_lines(iter([_encode_line(metric, [1.0] * len(reach), reach)]))

    def _split_rows(
        self, batch: SampleBatch, allowed: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.int64], bool]]:
        """Yield rows by rows, those fit for CSV apart from the others."""
        _, plain = _make_label_columns(batch.kind, tuple(batch.entities))
        fit = (plain[batch.entity] if len(plain) else np.zeros(0, bool)) & allowed
        for rows, is_plain in ((np.flatnonzero(fit), True), (np.flatnonzero(~fit), False)):
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                yield rows[start : start + _ROWS_AT_ONCE], is_plain

    def _add_csv(
        self,
        batch: SampleBatch,
        rows: NDArray[np.int64],
        holder: Sequence[pa.Array],
        *,
        values: dict[str, pa.Array],
        extra: Sequence[str],
    ) -> None:
        columns, _ = _make_label_columns(batch.kind, tuple(batch.entities))
        taken = pa.array(batch.entity[rows])
        what = ["time:unix_ms", *(f"label:{name}" for name in labels.ENTITY_LABELS)]
        what += [f"label:{labels.WORKLOAD}"] * len(holder)
        what += [f"metric:{name}" for name in values]
        arrays = [pa.array(batch.time_ms[rows]), *(c.take(taken) for c in columns), *holder]
        table = pa.table([*arrays, *values.values()], names=[str(i) for i in range(len(what))])
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, sink, _OPTIONS)
        reported = ",".join(f"{number}:{column}" for number, column in enumerate(what, 1))
        self._server.write_csv(sink.getvalue().to_pybytes(), reported, extra)

    def _make_value_lines(
        self,
        batch: SampleBatch,
        rows: NDArray[np.int64],
        filled: dict[str, NDArray[np.float32]],
        revision: int,
    ) -> Iterator[bytes]:
        more = {labels.REVISION: str(revision)} if revision else {}
        for row in rows.tolist():
            entity = self._make_labels(batch, row) | more
            for name, values in filled.items():
                if values[row] == values[row]:
                    metric = {**entity, "__name__": labels.get_series_name(name)}
                    # The shortest text of the value, so that 33.3 is kept as 33.3.
                    yield _encode_line(metric, [float(str(values[row]))], [int(batch.time_ms[row])])

    def _make_row_lines(
        self,
        batch: SampleBatch,
        rows: NDArray[np.int64],
        workload: NDArray[np.int32],
        versions: NDArray[np.int64],
    ) -> Iterator[bytes]:
        for row in rows.tolist():
            metric = {**self._make_labels(batch, row), "__name__": labels.get_rows_name(batch.kind)}
            if workload[row] >= 0:
                metric[labels.WORKLOAD] = batch.workloads[workload[row]]
            yield _encode_line(metric, [float(versions[row])], [int(batch.time_ms[row])])

    def _make_labels(self, batch: SampleBatch, row: int) -> dict[str, str]:
        parts = labels.split_entity(batch.kind, batch.entities[batch.entity[row]])
        named = {n: text for n, text in zip(labels.ENTITY_LABELS, parts, strict=True) if text}
        return {**self._make_constant_labels(batch.cluster), **named}

    def _make_constant_labels(self, cluster: str) -> dict[str, str]:
        return {labels.SITE: self._site, labels.CLUSTER: cluster}

    def _list_extra_labels(self, cluster: str) -> list[str]:
        return [f"{label}={value}" for label, value in self._make_constant_labels(cluster).items()]

    def _send_lines(self, lines: Iterator[bytes]) -> None:
        waiting: list[bytes] = []
        for line in lines:
            waiting.append(line)
            if len(waiting) >= _LINES_AT_ONCE:
                self._server.write_lines(b"\n".join(waiting))
                waiting = []
        if waiting:
            self._server.write_lines(b"\n".join(waiting))


def _encode_line(metric: dict[str, str], values: list[float], times: list[int]) -> bytes:
    document: dict[str, Any] = {"metric": metric, "values": values, "timestamps": times}
    return msgspec.json.encode(document)

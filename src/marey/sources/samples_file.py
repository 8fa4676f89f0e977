"""Samples from a CSV or Parquet file: one row per time, host and GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, MareyError, allowed, shown
from marey.model.inventory import Gpu
from marey.model.metrics import Entity, catalogue, exporter_names
from marey.model.names import bounded, parse_gpu_id
from marey.model.samples import SampleBatch
from marey.model.times import parse_time
from marey.sources.gpu_capacity import CAPACITY_METRICS, CAPACITY_REPORTED_BY, measure_capacity

KEYS = ("time", "host", "gpu")
FACTS = ("model", "power_limit_w")
# Under this name a file that was made of a foreign log says what its reader left out.
REMARKS = b"marey.remarks"
BLOCK_BYTES = 8 << 20
BAD_ROWS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: where it stands and why."""

    line: int
    reason: str


@dataclass
class SamplesFile:
    """A samples file opened for reading; ``bad`` and ``gpus`` fill as ``batches`` runs."""

    path: Path
    # Column of the file → (metric id, factor to the metric's unit).
    metrics: dict[str, tuple[str, float]]
    skipped: list[str]
    size: int
    bad: list[BadRow] = field(default_factory=list)
    bad_count: int = 0
    gpus: dict[str, Gpu] = field(default_factory=dict)
    first_ms: int | None = None
    last_ms: int | None = None
    rows: int = 0
    # What the reader of a foreign log left out.
    remarks: list[str] = field(default_factory=list)

    def batches(self) -> Iterator[tuple[int, list[SampleBatch]]]:
        """Yield the file as batches, each with the bytes read so far; bad rows are left out."""
        line = 2 if not _is_parquet(self.path) else 1
        for done, block in _read_blocks(self):
            yield done, self._convert(block, line)
            line += block.num_rows

    def _convert(self, block: pa.Table, first_line: int) -> list[SampleBatch]:
        block, bad_text = _blank_bad_text(block)
        time_ms, bad_time = _parse_times(block.column("time"))
        entity, names, bad_gpu = _encode_gpus(block)
        values, bad_value = self._read_values(block)
        reasons = bad_time | bad_gpu | bad_value | bad_text
        self._report(block, first_line, reasons)
        good = np.ones(block.num_rows, bool)
        good[list(reasons)] = False
        self._record_facts(block, entity, names, good)
        self._record_capacities(entity, names, values, good)
        self._record_span(time_ms[good])
        return _split_by_entity(time_ms[good], entity[good], names, _keep_rows(values, good))

    def _read_values(
        self, block: pa.Table
    ) -> tuple[dict[str, NDArray[np.float32]], dict[int, str]]:
        values: dict[str, NDArray[np.float32]] = {}
        bad: dict[int, str] = {}
        for column, (metric, factor) in self.metrics.items():
            numbers, wrong = _parse_numbers(block.column(column))
            values[metric] = (numbers * factor).astype(np.float32)
            bad |= {row: f"{column} is '{shown(text)}'; allowed: a number" for row, text in wrong}
        return values, bad

    def _report(self, block: pa.Table, first_line: int, reasons: dict[int, str]) -> None:
        self.rows += block.num_rows
        self.bad_count += len(reasons)
        for row in sorted(reasons)[: max(0, BAD_ROWS_SHOWN - len(self.bad))]:
            self.bad.append(BadRow(first_line + row, reasons[row]))

    def _record_facts(
        self, block: pa.Table, entity: NDArray[np.int32], names: list[str], good: NDArray[np.bool_]
    ) -> None:
        codes, rows = np.unique(np.where(good, entity, -1), return_index=True)
        for code, row in zip(codes.tolist(), rows.tolist(), strict=True):
            if code >= 0 and names[code] not in self.gpus:
                self.gpus[names[code]] = _make_gpu(block, row, names[code])

    def _record_capacities(
        self,
        entity: NDArray[np.int32],
        names: list[str],
        values: Mapping[str, NDArray[np.float32]],
        good: NDArray[np.bool_],
    ) -> None:
        """Add how much memory each GPU has and how much power it may draw, as the file says."""
        capacity = {metric: values[metric] for metric in CAPACITY_METRICS if metric in values}
        for column in (capacity[metric] for metric in CAPACITY_REPORTED_BY if metric in capacity):
            known = np.where(good & ~np.isnan(column), entity, -1)
            codes, rows = np.unique(known, return_index=True)
            for code, row in zip(codes.tolist(), rows.tolist(), strict=True):
                if code >= 0:
                    at_row = {metric: float(capacity[metric][row]) for metric in capacity}
                    self.gpus[names[code]] = measure_capacity(self.gpus[names[code]], at_row)

    def _record_span(self, time_ms: NDArray[np.int64]) -> None:
        if len(time_ms):
            low, high = int(time_ms.min()), int(time_ms.max())
            self.first_ms = low if self.first_ms is None else min(low, self.first_ms)
            self.last_ms = high if self.last_ms is None else max(high, self.last_ms)


def open_samples(path: Path) -> SamplesFile:
    """Look at the file's columns; refuse one without time, host and gpu, or with no metric."""
    names = _read_column_names(path)
    missing = [key for key in KEYS if key not in names]
    if missing:
        raise InvalidInput(
            f"{path.name} has no column {allowed(missing)}; a samples file has time, host, gpu "
            f"and one column per metric. It has: {allowed(map(shown, names))}."
        )
    metrics = _find_metric_columns(path, names)
    if not metrics:
        raise InvalidInput(
            f"{path.name} has no column of a known metric; allowed are the catalogue's names "
            f"({allowed(catalogue(), 6)}) and exporters' names ({allowed(exporter_names(), 3)})."
        )
    skipped = [n for n in names if n not in KEYS and n not in FACTS and n not in metrics]
    remarks = (pq.read_schema(path).metadata or {}).get(REMARKS, b"") if _is_parquet(path) else b""
    told = [bounded(line) for line in remarks.decode("utf-8", "replace").splitlines()[:10]]
    return SamplesFile(path, metrics, skipped, path.stat().st_size, remarks=told)


def _find_metric_columns(path: Path, names: list[str]) -> dict[str, tuple[str, float]]:
    found: dict[str, tuple[str, float]] = {}
    for name in names:
        target = (name, 1.0) if name in catalogue() else exporter_names().get(name)
        if target is None:
            continue
        twin = next((n for n, (metric, _) in found.items() if metric == target[0]), None)
        if twin is not None:
            raise InvalidInput(f"{path.name}: columns '{twin}' and '{name}' are the same metric.")
        found[name] = target
    return found


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _read_column_names(path: Path) -> list[str]:
    if not path.is_file():
        raise InvalidInput(f"'{path}' is not a file; a CSV or Parquet file is needed.")
    if path.stat().st_size == 0:
        raise InvalidInput(f"{path.name} is empty; a samples file has a header and rows.")
    try:
        if _is_parquet(path):
            return list(pq.read_schema(path).names)
        return list(_open_csv_reader(path, []).schema.names)
    except (pa.ArrowInvalid, pa.ArrowException, UnicodeDecodeError) as error:
        raise _make_unreadable(path, error) from None


def _make_unreadable(path: Path, error: Exception) -> MareyError:
    return InvalidInput(f"{path.name} cannot be read as CSV or Parquet: {shown(str(error))}")


def _read_blocks(file: SamplesFile) -> Iterator[tuple[int, pa.Table]]:
    wanted = [*KEYS, *file.metrics]
    try:
        if _is_parquet(file.path):
            parquet = pq.ParquetFile(file.path)
            facts = [name for name in FACTS if name in parquet.schema_arrow.names]
            total, done = max(1, parquet.metadata.num_rows), 0
            for batch in parquet.iter_batches(batch_size=1 << 18, columns=[*wanted, *facts]):
                done += batch.num_rows
                yield file.size * done // total, pa.Table.from_batches([batch])
        else:
            yield from _read_csv_blocks(file)
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise _make_unreadable(file.path, error) from None


def _read_csv_blocks(file: SamplesFile) -> Iterator[tuple[int, pa.Table]]:
    wrong_width: list[pacsv.InvalidRow] = []
    done = 0
    with _open_csv_reader(file.path, wrong_width) as reader:
        for batch in reader:
            done = min(file.size, done + BLOCK_BYTES)
            yield done, pa.Table.from_batches([batch])
    for row in wrong_width:
        file.bad_count += 1
        if len(file.bad) < BAD_ROWS_SHOWN:
            reason = f"{row.actual_columns} fields; allowed: {row.expected_columns}"
            file.bad.append(BadRow(row.number or 0, reason))


def _open_csv_reader(path: Path, wrong_width: list[pacsv.InvalidRow]) -> pacsv.CSVStreamingReader:
    def note(row: pacsv.InvalidRow) -> str:
        wrong_width.append(row)
        return "skip"

    text_only = _read_header(path)
    return pacsv.open_csv(
        path,
        # One thread: rows are then numbered, so a bad one is reported with its line.
        read_options=pacsv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
        parse_options=pacsv.ParseOptions(invalid_row_handler=note),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(text_only, pa.string()),
            strings_can_be_null=True,
            # Row by row, so that one bad name does not refuse the file.
            check_utf8=False,
        ),
    )


def _read_header(path: Path) -> list[str]:
    # Everything is read as text first: type guessing would differ from block to block.
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    table = pacsv.read_csv(pa.BufferReader(first + b"\n"))
    return list(table.schema.names)


def _blank_bad_text(block: pa.Table) -> tuple[pa.Table, dict[int, str]]:
    """Return the block without cells that are no UTF-8, and their rows with the reason."""
    bad: dict[int, str] = {}
    for at, name in enumerate(block.column_names):
        column = block.column(at)
        if not pa.types.is_string(column.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            cells = [_decode(cell) for cell in column.cast(pa.binary()).to_pylist()]
            wrong = [row for row, (_, is_text) in enumerate(cells) if not is_text]
            bad |= dict.fromkeys(wrong, f"{name} is not UTF-8 text")
            texts = pa.chunked_array([pa.array([text for text, _ in cells], pa.string())])
            block = block.set_column(at, name, texts)
    return block, bad


def _decode(cell: bytes | None) -> tuple[str | None, bool]:
    try:
        return (None if cell is None else cell.decode()), True
    except UnicodeDecodeError:
        return None, False


def _parse_times(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], dict[int, str]]:
    """Parse each distinct time once: a day at 15 s has only 5,760 of them."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy(), {}
    coded = column.combine_chunks().dictionary_encode()
    moments = np.zeros(len(coded.dictionary), np.int64)
    wrong: dict[int, str] = {}
    for i, text in enumerate(coded.dictionary.to_pylist()):
        try:
            moments[i] = parse_time(text)
        except InvalidInput as error:
            wrong[i] = str(error)
    codes = coded.indices.fill_null(-1).to_numpy()
    bad = {
        int(r): "time is empty; allowed: ISO-8601 or Unix seconds"
        for r in np.flatnonzero(codes < 0)
    }
    if wrong:
        rows = np.flatnonzero(np.isin(codes, list(wrong)))
        bad |= {int(row): wrong[int(codes[row])] for row in rows}
    return moments[np.maximum(codes, 0)] if len(moments) else np.zeros(len(codes), np.int64), bad


def _encode_gpus(block: pa.Table) -> tuple[NDArray[np.int32], list[str], dict[int, str]]:
    """Return integer codes of ``host:gpu``, their names, and the rows without a valid one."""
    host = block.column("host").cast(pa.string())
    gpu = block.column("gpu").cast(pa.string())
    coded = pc.binary_join_element_wise(host, gpu, ":").combine_chunks().dictionary_encode()
    names: list[str] = []
    wrong: dict[int, str] = {}
    for i, text in enumerate(coded.dictionary.to_pylist()):
        try:
            name = parse_gpu_id(text)
            names.append(f"{bounded(name.host)}:{text.rpartition(':')[2]}")
        except InvalidInput:
            names.append("")
            wrong[i] = (
                f"host and gpu are '{shown(text)}'; allowed: a host name and an index such as 3"
            )
    codes = coded.indices.fill_null(-1).to_numpy().astype(np.int32)
    empty = np.flatnonzero(codes < 0)
    bad = {int(row): "host or gpu is empty; allowed: a host name and an index" for row in empty}
    if wrong:
        bad |= {int(r): wrong[int(codes[r])] for r in np.flatnonzero(np.isin(codes, list(wrong)))}
    return np.maximum(codes, 0), names, bad


def _parse_numbers(column: pa.ChunkedArray) -> tuple[NDArray[np.float64], list[tuple[int, str]]]:
    """Return the column as numbers, NaN where empty, and the rows that hold something else."""
    chunk = column.combine_chunks()
    if not pa.types.is_string(chunk.type):
        return chunk.cast(pa.float64()).to_numpy(zero_copy_only=False), []
    try:
        return pc.cast(chunk, pa.float64()).to_numpy(zero_copy_only=False), []
    except pa.ArrowInvalid:
        return _parse_numbers_one_by_one(chunk.to_pylist())


def _parse_numbers_one_by_one(
    texts: list[str | None],
) -> tuple[NDArray[np.float64], list[tuple[int, str]]]:
    numbers = np.full(len(texts), np.nan)
    wrong: list[tuple[int, str]] = []
    for row, text in enumerate(texts):
        try:
            numbers[row] = float(text) if text and text.strip() else np.nan
        except ValueError:
            wrong.append((row, text or ""))
    return numbers, wrong


def _make_gpu(block: pa.Table, row: int, name: str) -> Gpu:
    parts = parse_gpu_id(name)
    model = block.column("model")[row].as_py() if "model" in block.column_names else None
    limit = None
    if "power_limit_w" in block.column_names:
        numbers, _ = _parse_numbers(block.column("power_limit_w").slice(row, 1))
        limit = float(numbers[0]) if numbers[0] > 0 else None
    return Gpu(
        host=parts.host,
        index=parts.index,
        instance=parts.instance,
        model=bounded(str(model)) if model else "",
        power_limit_w=limit,
    )


def _keep_rows(
    values: dict[str, NDArray[np.float32]], good: NDArray[np.bool_]
) -> dict[str, NDArray[np.float32]]:
    return values if good.all() else {metric: column[good] for metric, column in values.items()}


def _split_by_entity(
    time_ms: NDArray[np.int64],
    entity: NDArray[np.int32],
    names: list[str],
    values: dict[str, NDArray[np.float32]],
) -> list[SampleBatch]:
    """Return GPU metrics as they are; host metrics, repeated on each GPU's row, once per host."""
    of_gpu = {m: v for m, v in values.items() if catalogue()[m].entity is Entity.GPU}
    of_host = {m: v for m, v in values.items() if catalogue()[m].entity is Entity.HOST}
    batches = []
    if of_gpu:
        batches.append(SampleBatch(time_ms, entity, names, of_gpu).checked())
    if of_host and len(time_ms):
        hosts = sorted({name.rpartition(":")[0] for name in names if name})
        code = {host: i for i, host in enumerate(hosts)}
        table = np.array([code.get(name.rpartition(":")[0], 0) for name in names], np.int32)
        host = table[entity]
        _, first = np.unique(np.stack([time_ms, host.astype(np.int64)]), axis=1, return_index=True)
        once = {metric: column[first] for metric, column in of_host.items()}
        batches.append(
            SampleBatch(time_ms[first], host[first], hosts, once, kind=Entity.HOST).checked()
        )
    return batches

"""One trace file → Parquet tables in the cache. Runs in a worker process; its results are small."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from marey.model.training.traces import EVENTS
from marey.trace.readers import reader_for
from marey.trace.readers.result import Reader, ReadOptions
from marey.trace.readers.spans import RankEvents
from marey.trace.readers.trace_info import RankInfo
from marey.trace.run.cache import entry_of, new_entry


@dataclass(frozen=True)
class ConvertedRank:
    """One rank's tables in the cache."""

    info: RankInfo
    events: int
    # Folder and number of events-N.parquet, memory-N.parquet and symbols-N.parquet.
    folder: str
    position: int
    # Columns that are one number in every row, and therefore not in the file.
    constants: dict[str, int] = field(default_factory=dict)
    # Other files of the same rank, in a format that writes several.
    more: tuple[ConvertedRank, ...] = ()

    def path(self, what: str) -> Path:
        """Return the Parquet file of this rank's events, memory or symbols."""
        return Path(self.folder) / f"{what}-{self.position}.parquet"


@dataclass(frozen=True)
class ConvertedFile:
    """What became of one file."""

    path: str
    ranks: tuple[ConvertedRank, ...] = ()
    notes: tuple[str, ...] = ()


# Columns with so many different values that a dictionary would only cost time.
_DISTINCT = frozenset(
    {
        *("start_ns", "dur_ns", "launch", "correlation", "external_id", "forward", "sequence"),
        *("bytes", "record_id"),
    }
)


def convert_file(path: Path, cache: Path, options: ReadOptions | None = None) -> ConvertedFile:
    """Return the file's tables, from the cache or made now; never raises for what a file holds."""
    try:
        reader = reader_for(path)
        if reader is None:
            return ConvertedFile(str(path), notes=("is not a trace that Marey can read",))
        entry = entry_of(cache, path, f"{reader.NAME} {reader.VERSION}")
        known = _load(entry, path)
        return known or _make(entry, path, reader, options or ReadOptions())
    except OSError as error:
        return ConvertedFile(str(path), notes=(f"cannot be read: {error.strerror or error}",))


def find_converted(path: Path, cache: Path) -> ConvertedFile | None:
    """Return the tables of a file that has not changed since they were made, if there are any."""
    try:
        reader = reader_for(path)
        if reader is None:
            return None
        return _load(entry_of(cache, path, f"{reader.NAME} {reader.VERSION}"), path)
    except OSError:
        return None


def _make(entry: Path, path: Path, reader: Reader, options: ReadOptions) -> ConvertedFile:
    found = reader.read(path, options)
    with new_entry(entry) as draft:
        ranks = [_write(draft, entry, n, rank) for n, rank in enumerate(found.ranks) if rank.rows]
        notes = list(found.problems)
        if not ranks and not notes:
            notes.append("holds no events")
        result = ConvertedFile(str(path), tuple(ranks), tuple(notes))
        (draft / "index.json").write_bytes(msgspec.json.encode(result))
    return result


def _write(draft: Path, entry: Path, position: int, rank: RankEvents) -> ConvertedRank:
    """Write one rank a row group at a time, so that no whole table is ever in memory."""
    constants = rank.constants()
    result = ConvertedRank(rank.info, rank.rows, str(entry), position, constants)
    schema = pa.schema([f for f in EVENTS if f.name not in constants or f.name == "start_ns"])
    options: dict[str, Any] = {"compression": "lz4", "write_statistics": False}
    repeating = [name for name in schema.names if name not in _DISTINCT]
    events = draft / f"events-{position}.parquet"
    with pq.ParquetWriter(events, schema, use_dictionary=repeating, **options) as writer:
        for table in rank.batches(schema):
            writer.write_table(table)
    pq.write_table(rank.memory, draft / f"memory-{position}.parquet", **options)
    texts = pa.array([_storable(t) for t in rank.symbols.texts()], pa.string())
    pq.write_table(pa.table({"text": texts}), draft / f"symbols-{position}.parquet", **options)
    return result


def _storable(text: str) -> str:
    """Return text as UTF-8 can hold it: JSON may spell half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def _load(entry: Path, path: Path) -> ConvertedFile | None:
    try:
        known = msgspec.json.decode((entry / "index.json").read_bytes(), type=ConvertedFile)
    except (OSError, msgspec.MsgspecError):
        return None
    return known if known.path == str(path) else None

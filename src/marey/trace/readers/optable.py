"""Op tables: one row per operation of a pipeline job, as Parquet or CSV (ByteDance's format).

Columns: rank, step, optype, start_ts and duration in seconds from the start of the step; and where
known dp_rank, stage, seq_id (order among its type), mb_id (micro-batch), mc (model chunk).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.kernel_names import communication_kind, spell_collective
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.spans import RankEvents, order_by_start
from marey.trace.readers.trace_info import RankInfo

NAME = "optable"
VERSION = 1
REQUIRED = ("rank", "step", "optype", "start_ts", "duration")
OPTIONAL = ("dp_rank", "stage", "seq_id", "mb_id", "mc")
PARQUET = b"PAR1"
MOST_ROWS = 200_000_000
Ints = npt.NDArray[np.int64]

# Work of the host that stops the rank, and work that is a transfer although its name hides it.
_HOST = frozenset({"gc"})
_HIDDEN_TRANSFERS = {"optimizer-clip-main-grad": "allreduce"}
# Which stage a point-to-point operation talks to, relative to its own.
_NEIGHBOUR = {
    "forward-send": 1,
    "forward-recv": -1,
    "backward-send": -1,
    "backward-recv": 1,
}
# Who takes part in a collective: ranks that share the stage (data parallel) or the data-parallel
# rank (pipeline); the embedding is shared by the first and the last stage.
_DATA_PARALLEL = re.compile(r"grads-reduce-scatter|params-all-gather|^grads-all-reduce")
_TENSOR_PARALLEL = re.compile(r"layernorm")
_EMBEDDING = re.compile(r"embedding")


def sniff(path: Path, head: bytes) -> bool:
    """Return whether this is Parquet with these columns, or CSV that names them in its
    first line.
    """
    if head.startswith(PARQUET):
        return _has_columns(path)
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return set(REQUIRED) <= {name.strip().strip('"') for name in line.split(",")}


def _has_columns(path: Path) -> bool:
    try:
        return set(REQUIRED) <= set(pq.read_schema(path).names)
    except (pa.ArrowException, OSError):
        return False


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return every rank of the table."""
    try:
        table = _load(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        return FileEvents(iter(()), [f"cannot be read: {str(error)[:200]}"])
    start = table.column("start_ts").to_numpy() + _step_starts(table)
    table = table.set_column(table.schema.get_field_index("start_ts"), "start_ts", pa.array(start))
    return FileEvents(read_ranks(table, path.name))


def _load(path: Path) -> pa.Table:
    """Return the known columns as integers of a fixed type; seconds become nanoseconds."""
    if path.open("rb").read(4) == PARQUET:
        names = [n for n in (*REQUIRED, *OPTIONAL) if n in pq.read_schema(path).names]
        if pq.ParquetFile(path).metadata.num_rows > MOST_ROWS:
            raise ValueError(f"more than {MOST_ROWS} rows")
        table = pq.read_table(path, columns=names, partitioning=None)
    else:
        table = pyarrow.csv.read_csv(path)
    columns: dict[str, pa.Array] = {}
    for name in (*REQUIRED, *OPTIONAL):
        if name == "optype":
            columns[name] = pc.cast(table.column(name), pa.string()).combine_chunks()
        elif name in ("start_ts", "duration"):
            seconds = pc.cast(table.column(name), pa.float64()).to_numpy(zero_copy_only=False)
            usable = np.where(np.isfinite(seconds) & (np.abs(seconds) < 1e9), seconds, 0.0)
            columns[name] = pa.array(np.rint(usable * 1e9).astype(np.int64))
        elif name in table.schema.names:
            columns[name] = pc.fill_null(pc.cast(table.column(name), pa.int64()), NO_VALUE)
        else:
            columns[name] = pa.array(np.full(len(table), NO_VALUE, np.int64))
    return pa.table(columns)


def read_ranks(table: pa.Table, source: str) -> Iterator[RankEvents]:
    """Yield every rank of a table whose times, in nanoseconds, are of one clock."""
    rank = table.column("rank").to_numpy()
    stage, dp = table.column("stage").to_numpy(), table.column("dp_rank").to_numpy()
    places = {int(r): (int(d), int(s)) for r, d, s in zip(rank, dp, stage, strict=True)}
    for one in sorted(places):
        if 0 <= one < 2**31:
            yield _rank(table.filter(pa.array(rank == one)), one, places, source)


def _step_starts(table: pa.Table) -> Ints:
    """Return when each row's step begins: times count from the step, so the steps are laid end to
    end.
    """
    step, inverse = np.unique(table.column("step").to_numpy(), return_inverse=True)
    end = table.column("start_ts").to_numpy() + table.column("duration").to_numpy()
    longest = np.zeros(len(step), np.int64)
    np.maximum.at(longest, inverse, end)
    begins: Ints = np.concatenate([[0], np.cumsum(longest)[:-1]])[inverse]
    return begins


def _rank(
    table: pa.Table, rank: int, places: dict[int, tuple[int, int]], source: str
) -> RankEvents:
    start, dur = table.column("start_ts").to_numpy(), table.column("duration").to_numpy()
    table = table.take(pa.array(order_by_start(start, dur)))
    groups = _groups(rank, places)
    symbols = Symbols()
    names = table.column("optype").to_pylist()
    facts = {name: _facts(name or "", rank, places, groups) for name in set(names)}

    def column(key: str) -> npt.NDArray[np.int64]:
        return np.array([facts[name][key] for name in names], np.int64)

    def encode_fact(key: str) -> npt.NDArray[np.int32]:
        codes = {n: symbols.add(str(f[key])) if f[key] else NO_VALUE for n, f in facts.items()}
        return np.array([codes[name] for name in names], np.int32)

    kind = column("kind")
    on_device = column("host") == 0
    dp, stage = places[rank]
    info = RankInfo(
        rank=rank,
        world_size=len(places),
        framework="optable",
        groups=groups,
        group_descriptions={name: name.split(":")[0] for name in groups},
        source=source,
        coordinates={k: v for k, v in (("dp", dp), ("pp", stage)) if v >= 0},
    )
    columns = {
        "rank": rank,
        "host": symbols.add(""),
        "device": np.where(on_device, 0, NO_VALUE),
        "on_device": on_device,
        "stream": column("stream"),
        "start_ns": table.column("start_ts").to_numpy(),
        "dur_ns": np.maximum(table.column("duration").to_numpy(), 0),
        "kind": kind,
        "name": symbols.add_all([name or "" for name in names]),
        "step": table.column("step").to_numpy(),
        "micro_batch": table.column("mb_id").to_numpy(),
        "chunk": table.column("mc").to_numpy(),
        "sequence": table.column("seq_id").to_numpy(),
        "group": encode_fact("group"),
        "collective": encode_fact("collective"),
        "peer": column("peer"),
    }
    return RankEvents(info, symbols, columns)


def _facts(
    name: str,
    rank: int,
    places: dict[int, tuple[int, int]],
    groups: dict[str, tuple[int, ...]],
) -> dict[str, int | str]:
    """Return the facts in an operation's type: kind, stream, collective, group and peer."""
    dp, stage = places[rank]
    collective = _HIDDEN_TRANSFERS.get(name, "" if "compute" in name else spell_collective(name))
    kind = communication_kind(collective) if collective else EventKind.COMPUTE
    neighbour = (dp, stage + _NEIGHBOUR[name]) if name in _NEIGHBOUR else None
    peer = next((r for r, place in places.items() if place == neighbour), NO_VALUE)
    is_collective = kind == EventKind.COLLECTIVE
    streams = {EventKind.COMPUTE: 0, EventKind.COLLECTIVE: 1}
    return {
        "kind": int(EventKind.PYTHON if name in _HOST else kind),
        "host": int(name in _HOST),
        "stream": streams.get(kind, 2 + list(_NEIGHBOUR).index(name) if name in _NEIGHBOUR else 6),
        "collective": collective,
        "group": _group(name, groups) if is_collective else "",
        "peer": peer,
    }


def _group(name: str, groups: dict[str, tuple[int, ...]]) -> str:
    """Return the group that a collective of this name runs in."""
    if _DATA_PARALLEL.search(name):
        role = "dp"
    elif _EMBEDDING.search(name):
        role = "embedding"
    else:
        role = "tp" if _TENSOR_PARALLEL.search(name) else "pp"
    return next((group for group in groups if group.startswith(f"{role}:")), "")


def _groups(rank: int, places: dict[int, tuple[int, int]]) -> dict[str, tuple[int, ...]]:
    """Return the groups that this rank is in, named by their role and what their ranks share."""
    dp, stage = places[rank]
    if dp < 0 or stage < 0:
        return {}
    ends = {min(s for _, s in places.values()), max(s for _, s in places.values())}
    found = {
        f"dp:{stage}": tuple(sorted(r for r, (_, s) in places.items() if s == stage)),
        f"pp:{dp}": tuple(sorted(r for r, (d, _) in places.items() if d == dp)),
        f"tp:{rank}": tuple(sorted(r for r, place in places.items() if place == (dp, stage))),
    }
    if stage in ends:
        shared = (r for r, (d, s) in places.items() if d == dp and s in ends)
        found[f"embedding:{dp}"] = tuple(sorted(shared))
    return found

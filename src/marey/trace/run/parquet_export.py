"""A run as files that every tool reads: one Parquet table per rank, and the texts of the codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from marey.trace.run.trace_run import TraceRun

SYMBOLS = pa.schema([pa.field("text", pa.string(), nullable=False)])


def write_tables(
    run: TraceRun, folder: Path, *, progress: Callable[[float], None] | None = None
) -> dict[str, Any]:
    """Write ``rank00000.parquet``, … and ``symbols.parquet``; says what was written.

    The row of a text in ``symbols.parquet`` is its code; the tables have the schema ``EVENTS``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for done, rank in enumerate(run.ranks, start=1):
        table = run.events(rank)
        target = folder / f"rank{rank:05d}.parquet"
        pq.write_table(table, target, compression="zstd")
        files.append({"rank": rank, "file": target.name, "events": table.num_rows})
        memory = run.memory(rank)
        if memory.num_rows:
            pq.write_table(memory, folder / f"rank{rank:05d}.memory.parquet", compression="zstd")
        if progress:
            progress(done / len(run.ranks))
    texts = pa.table([pa.array(run.symbols.texts(), pa.string())], schema=SYMBOLS)
    pq.write_table(texts, folder / "symbols.parquet", compression="zstd")
    return {"folder": str(folder), "symbols": len(run.symbols), "files": files}

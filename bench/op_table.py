"""What a report on a large operation table costs.

The table is the real one of ByteDance's ST job, laid out over more ranks and over more steps.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import Results

ROOT = Path(__file__).resolve().parent.parent
ROWS, MOST_CPU_S = 117_000, 5.0
PROGRAM = "from marey.cli import main; main()"


def more_ranks(table: pa.Table, copies: int) -> pa.Table:
    """Return the table with further replicas that do the same."""
    return pa.concat_tables(
        _moved(_moved(table, "dp_rank", 2 * n), "rank", 8 * n) for n in range(copies)
    )


def more_steps(table: pa.Table, copies: int) -> pa.Table:
    """Return the table with the same steps again and again."""
    return pa.concat_tables(_moved(table, "step", 2000 * n) for n in range(copies))


def _moved(table: pa.Table, name: str, by: int) -> pa.Table:
    column = pa.array(table[name].to_numpy() + np.int64(by), pa.int64())
    return table.set_column(table.schema.get_field_index(name), name, column)


def measure_report(path: Path, cache: Path) -> tuple[float, dict[str, object]]:
    """Return the CPU seconds of a report without any cache of the trace, and the report."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", PROGRAM, "trace", "report", str(path), "--json"]
    done = subprocess.run([*command, "--cache", str(cache)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, json.loads(done.stdout)


def main() -> int:
    """Print the CPU time of both tables."""
    results = Results()
    data = Path(os.environ.get("MAREY_DATA", ROOT.parent / "shared" / "data"))
    table = pq.read_table(data / "traces" / "bytedance-ST" / "trace-ST.parquet")
    copies = -(-ROWS // table.num_rows)
    made = {"ranks": more_ranks(table, copies), "steps": more_steps(table, copies)}
    with tempfile.TemporaryDirectory() as folder:
        for name, large in made.items():
            path = Path(folder) / f"{name}.parquet"
            pq.write_table(large, path)
            spent, _ = measure_report(path, Path(folder) / f"cache-{name}")
            results.against(
                f"report on an operation table with more {name}: seconds of CPU time",
                ratio=spent,
                target=MOST_CPU_S,
                rival="seconds",
                size=f"{large.num_rows:,} operations, nothing cached",
                at_10x="linear: about ten times as long",
                higher_is_better=False,
            )
    return results.missed

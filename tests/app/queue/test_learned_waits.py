"""What a model of a site is fitted to: the store as it stood, whatever was written to it since."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from marey.app.queue.learned_waits import read_jobs
from marey.model.tables import WORKLOADS

NOW_MS = 1_794_182_400_000
HOUR_MS = 3_600_000


def make_rows(seed: int) -> list[dict[str, Any]]:
    """Return workloads around now: some start or end after it, some are submitted after it."""
    draws = np.random.default_rng(seed)
    rows = []
    for i in range(60):
        submit = NOW_MS + int(draws.integers(-20, 8)) * HOUR_MS
        start = submit + int(draws.integers(0, 10)) * HOUR_MS
        end = start + int(draws.integers(1, 10)) * HOUR_MS
        rows.append(
            {
                "workload": f"w{i}", "user": "u", "project": f"p{i % 3}", "partition": "gpu",
                "gpus_requested": 1 + i % 8, "gpus_per_host": 1 + i % 8, "time_limit_s": 3600,
                "submit_ms": submit, "start_ms": start, "end_ms": end,
            }
        )  # fmt: skip
    return rows


def hide_later(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they stood now."""
    seen = [row for row in rows if row["submit_ms"] <= NOW_MS]
    late = [{k: None for k in ("start_ms", "end_ms") if row[k] > NOW_MS} for row in seen]
    return [{**row, **unknown} for row, unknown in zip(seen, late, strict=True)]


def test_nothing_that_happened_after_now_is_learned_from() -> None:
    for seed in range(5):
        rows = make_rows(seed)
        whole, alone = (
            read_jobs(pa.Table.from_pylist(some, schema=WORKLOADS), NOW_MS)
            for some in (rows, hide_later(rows))
        )
        assert 0 < len(alone) < len(rows)
        for name, column in vars(whole).items():
            assert np.array_equal(column, getattr(alone, name), equal_nan=True), name

"""What the suites over sample stores share: rows as batches, and scans as dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from marey.model.protocols import SampleStore, Selection
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS

T0 = 1_763_200_800_000
TICK = 15_000
FOREVER = T0 + 1000 * HOUR_MS
NewStore = Callable[[], SampleStore]
Row = tuple[int, str, str | None, dict[str, float]]
Key = tuple[int, str, str]


def batch_of(rows: Iterable[Row], **more: Any) -> SampleBatch:
    """Rows of (time, entity, workload, values by metric) as a batch."""
    listed = list(rows)
    entities = tuple(sorted({row[1] for row in listed}))
    workloads = tuple(sorted({row[2] for row in listed if row[2]}))
    metrics = sorted({name for row in listed for name in row[3]})
    return SampleBatch(
        time_ms=np.array([row[0] for row in listed], np.int64),
        entity=np.array([entities.index(row[1]) for row in listed], np.int32),
        entities=entities,
        columns={m: np.array([r[3].get(m, np.nan) for r in listed], np.float32) for m in metrics},
        workload=np.array([workloads.index(r[2]) if r[2] else -1 for r in listed], np.int32),
        workloads=workloads,
        **more,
    )


def scanned(store: SampleStore, selection: Selection) -> dict[Key, float]:
    """Every sample of a scan by its key; fails where one comes twice."""
    found: dict[Key, float] = {}
    for batch in store.scan(selection):
        assert (np.diff(batch.time_ms) >= 0).all(), "a batch is in order of time"
        for name, values in batch.columns.items():
            for row in np.flatnonzero(~np.isnan(values)):
                key = (int(batch.time_ms[row]), batch.entities[batch.entity[row]], name)
                assert key not in found, f"{key} comes twice"
                found[key] = float(values[row])
    return found


def everything(*metrics: str, **more: Any) -> Selection:
    """These metrics of all time."""
    return Selection(metrics or ("util", "power", "mem_used"), 0, FOREVER, **more)

"""Windows that a new rule needs are filled from the store, so that it can be judged at once."""

from __future__ import annotations

import numpy as np

from marey.model.metrics import catalogue
from marey.model.protocols import Selection, Store
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.stats.sketches.sketch_tables import SLOT_MS, Ticks


def fill_windows(store: Store, cluster: str, loop: EvaluationLoop, metrics: set[str]) -> None:
    """Read the trailing window of each metric once, and put it into its empty ring."""
    evaluator = loop.evaluator
    known = catalogue()
    for name in metrics:
        ring = evaluator.sketches.rings[name]
        derived = known[name].derived
        base = derived.base if derived else name
        from_ms = max(evaluator.newest_ms - ring.slots * SLOT_MS, 0)
        selection = Selection(
            (base,), from_ms, evaluator.newest_ms + 1, kind=known[name].entity, cluster=cluster
        )
        ring.advance(evaluator.newest_ms)
        for batch in store.scan(selection):
            columns, entity_rows = evaluator.columns_for(batch)
            if name in columns:
                ring.reserve(evaluator.allocations.room)
                values = np.ascontiguousarray(columns[name], np.float32)[None, :]
                time_ms = np.ascontiguousarray(batch.time_ms, np.int64)
                entity = np.ascontiguousarray(batch.entity, np.int32)
                ring.update(Ticks(time_ms, entity, values), 0, entity_rows)
        evaluator.sketches.since_ms[name] = from_ms

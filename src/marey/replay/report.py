"""What a replay found, as documents: the run, its critical path, its resources, a prediction."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from marey.replay.model import Replayed

TIMELINE = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("step", pa.int32()),
        pa.field("label", pa.string()),
        pa.field("start_ms", pa.float64()),
        pa.field("end_ms", pa.float64()),
    ]
)


def critical_path(run: Replayed) -> list[dict[str, Any]]:
    """Return the critical path of the last step, by rank and kind of work, longest first."""
    schedule, graph = run.schedule, run.graph
    last = graph.ends[:, -1]
    node = int(last[np.argmax(schedule.finish[last])])
    settling = min(graph.settling, graph.ends.shape[1] - 2)
    begin = float(schedule.finish[graph.ends[:, settling]].max()) if settling >= 0 else 0.0
    spent: Counter[tuple[int, str]] = Counter()
    while node >= 0 and schedule.finish[node] > begin:
        start = max(float(schedule.start[node]), begin)
        spent[(int(graph.ranks[node]), graph.labels[node])] += schedule.finish[node] - start
        node = int(schedule.released_by[node])
    steps = max(graph.ends.shape[1] - 1 - settling, 1)
    return [
        {"rank": rank if rank >= 0 else None, "what": what, "ms": float(ms) / steps}
        for (rank, what), ms in spent.most_common()
        if ms > 0
    ]


def busy_shares(run: Replayed) -> dict[str, list[float]]:
    """Return the share of a step in which each rank works and each rank's links carry bytes."""
    graph, schedule = run.graph, run.schedule
    ranks = sorted(set(graph.ranks[graph.ranks >= 0].tolist()))
    total = max(float(schedule.finish.max()), 1e-9)
    counted = np.where(graph.ranks >= 0, graph.costs.work, 0.0)
    if graph.counted is not None:
        counted = np.where(graph.counted, counted, 0.0)
    busy_ms = np.bincount(np.maximum(graph.ranks, 0), counted)
    working = [min(float(busy_ms[rank] / total), 1.0) for rank in ranks]
    moved = np.zeros(len(graph.costs.bandwidth))
    owners = np.repeat(np.arange(graph.tasks.count), np.diff(graph.tasks.link_first))
    np.add.at(moved, graph.tasks.links, graph.costs.size[owners])
    busy = moved / graph.costs.bandwidth / total
    return {
        "ranks": working,
        "links_up": [float(share) for share in busy[0::2]],
        "links_down": [float(share) for share in busy[1::2]],
    }


def timeline_table(run: Replayed) -> pa.Table:
    """Return when every piece of work and every transfer ran, for a view beside the recorded."""
    schedule, graph = run.schedule, run.graph
    kept = np.flatnonzero(schedule.finish > schedule.start)
    labels = pa.array([graph.labels[n] for n in kept])
    return pa.table(
        [
            graph.ranks[kept],
            graph.steps[kept],
            labels,
            schedule.start[kept],
            schedule.finish[kept],
        ],
        schema=TIMELINE,
    )

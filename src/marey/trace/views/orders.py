"""The rows of the Marey view: every rank once, in the order asked for, with what stands beside
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, unknown
from marey.trace.views.clusters import RankClusters
from marey.trace.views.step_files import StepView
from marey.trace.views.view_index import RankFacts
from marey.trace.views.view_tables import VIEW_ROWS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
ORDERS = ("stage", "host", "lateness", "cluster")


def rank_columns(ranks: list[RankFacts], view: StepView) -> dict[str, Any]:
    """Return host, stage, replica and shard of the ranks of a step, in its order."""
    known = {row["rank"]: row for row in ranks}
    chosen = [known[rank] for rank in view.index.ranks]
    columns: dict[str, Any] = {"rank": np.array(view.index.ranks, np.int64)}
    for name in ("stage", "replica", "shard"):
        columns[name] = np.array([row[name] for row in chosen], np.int64)
    columns["host"] = np.array([row["host"] for row in chosen], object)
    return columns


def find_order(
    order: str, columns: dict[str, Any], behaviour: RankClusters, lateness_us: Floats
) -> Ints:
    """Return the places of a step's ranks in an order: outliers first among equals of a cluster."""
    rank = columns["rank"]
    stage, replica, shard = columns["stage"], columns["replica"], columns["shard"]
    if order == "stage":
        return np.lexsort((rank, shard, replica, stage))
    if order == "host":
        return np.lexsort((rank, columns["host"].astype(str)))
    if order == "lateness":
        return np.lexsort((rank, -lateness_us))
    if order == "cluster":
        keys = (rank, ~behaviour.exemplar, behaviour.cluster, ~behaviour.outlier, stage)
        return np.lexsort(keys)
    raise InvalidInput(unknown("order", order, ORDERS))


def measure_lateness(
    members: pa.Table, items: pa.Table, steps: list[int], ranks: list[int]
) -> Floats:
    """Return how much later than the first of its group each rank came to collectives, in µs."""
    inside = np.isin(members["step"].to_numpy(), steps)
    chosen = members.filter(pa.array(inside)) if min(steps) >= 0 else members
    item = chosen["item"].to_numpy()
    first = np.zeros(int(max(item.max(initial=-1), items["item"].to_numpy().max(initial=-1))) + 2)
    first[items["item"].to_numpy()] = items["first_arrival_ns"].to_numpy()
    exchange = np.zeros(len(first), bool)
    exchange[items["item"].to_numpy()] = items["point_to_point"].to_numpy(zero_copy_only=False)
    matched = (item >= 0) & ~exchange[item]
    late = (chosen["start_ns"].to_numpy()[matched] - first[item[matched]]) / 1e3
    place = {rank: n for n, rank in enumerate(ranks)}
    at = np.array([place.get(r, -1) for r in chosen["rank"].to_numpy()[matched].tolist()], np.int64)
    known = at >= 0
    total = np.bincount(at[known], weights=late[known], minlength=len(ranks))
    count = np.bincount(at[known], minlength=len(ranks))
    return np.asarray(total / np.maximum(count, 1), np.float64)


def tabulate_rows(
    order: Ints,
    columns: dict[str, Any],
    behaviour: RankClusters,
    *,
    beside: dict[str, list[Any]],
    missing: list[int],
) -> pa.Table:
    """Return the rows in order; expected ranks that were not traced follow as empty, labelled rows.

    ``beside`` are lateness, flops, peak memory and streams of the step's ranks.
    """
    rows: list[dict[str, Any]] = []
    for position, place in enumerate(order.tolist()):
        rows.append(
            {
                "position": position,
                **{name: _plain(values[place]) for name, values in columns.items()},
                "cluster": int(behaviour.cluster[place]),
                "exemplar": bool(behaviour.exemplar[place]),
                "size": int(behaviour.size[place]),
                "outlier": bool(behaviour.outlier[place]),
                "missing": False,
                "deviation": float(behaviour.deviation[place]),
                "busy": float(behaviour.busy[place]),
                **{name: values[place] for name, values in beside.items()},
            }
        )
    rows += [_missing_row(len(rows) + n, rank) for n, rank in enumerate(missing)]
    return pa.Table.from_pylist(rows, schema=VIEW_ROWS)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _missing_row(position: int, rank: int) -> dict[str, Any]:
    return {
        "position": position,
        "rank": rank,
        "cluster": -1,
        "exemplar": False,
        "size": 0,
        "outlier": False,
        "missing": True,
        "streams": [],
    }

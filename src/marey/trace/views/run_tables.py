"""The tables of a run's pages, from what was written: filtered by a selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marey.model.errors import NotFound
from marey.model.predicates import Predicate
from marey.model.training.selections import find_values, restrict, select_rows
from marey.trace.ranks.bandwidth import item_bandwidths
from marey.trace.views.bands import BandWindow, list_bands
from marey.trace.views.step_files import StepView
from marey.trace.views.view_files import RunViews
from marey.trace.views.view_kinds import KIND_NAMES
from marey.trace.views.view_tables import (
    BREAKDOWNS,
    COLLECTIVE_ITEMS,
    COMMUNICATION_NODES,
    COMMUNICATION_PAIRS,
    NAME_TIMES,
    RANK_STEPS,
    WAITS,
)

Floats = NDArray[np.float64]
# Operators and kernels are summed over at most this many steps, the first of those selected.
MOST_STEPS_SUMMED = 8


def list_steps(views: RunViews, where: Predicate) -> pa.Table:
    """Return every rank's steps: the heatmap."""
    steps = views.table("rank_steps")
    duration = pc.subtract(steps["end_ns"], steps["start_ns"])
    table = pa.table([steps["rank"], steps["step"], steps["start_ns"], duration], schema=RANK_STEPS)
    return _of_ranks(table, where, views.stages)


def list_breakdowns(views: RunViews, where: Predicate) -> pa.Table:
    """Return where each rank's time went, step by step."""
    return _of_ranks(views.table("breakdown").cast(BREAKDOWNS), where, views.stages)


def _of_ranks(table: pa.Table, where: Predicate, stages: Mapping[int, int]) -> pa.Table:
    return select_rows(table, where, stage=[stages.get(r, 0) for r in table["rank"].to_pylist()])


def list_collectives(views: RunViews, where: Predicate) -> pa.Table:
    """Return the matched communications, each beside the best bandwidth of its kind and size."""
    items = views.table("items")
    _, bus = item_bandwidths(items)
    columns = {name: items[name] for name in items.column_names}
    columns["bandwidth_gbps"] = pa.array(bus * 8, from_pandas=True)
    columns["best_gbps"] = pa.array(_best_alike(items, bus) * 8, from_pandas=True)
    table = pa.table([columns[n] for n in COLLECTIVE_ITEMS.names], schema=COLLECTIVE_ITEMS)
    ranks = find_values(where, "rank")
    if ranks is not None:
        members = views.table("members")
        chosen = np.isin(members["rank"].to_numpy(), list(ranks))
        met = np.unique(members["item"].to_numpy()[chosen])
        table = table.filter(pa.array(np.isin(table["item"].to_numpy(), met)))
    kind = ["send" if p else "collective" for p in table["point_to_point"].to_pylist()]
    return select_rows(table, where, kind=kind, operator=table["name"])


def _best_alike(items: pa.Table, bus: Floats) -> Floats:
    """Return the best bandwidth of items of one name, size and number of ranks."""
    keys = [items[name].to_pylist() for name in ("name", "bytes", "expected")]
    best: dict[tuple[Any, ...], float] = {}
    rows = list(zip(*keys, strict=True))
    for key, value in zip(rows, bus.tolist(), strict=True):
        if value == value:
            best[key] = max(best.get(key, 0.0), value)
    return np.array([best.get(key, np.nan) for key in rows])


def list_waits(views: RunViews, where: Predicate) -> pa.Table:
    """Return who made whom wait over the steps selected; a rank selected is culprit or victim."""
    blame = views.table("blame")
    stages = [views.stages.get(r, 0) for r in blame["culprit"].to_pylist()]
    ranks = find_values(where, "rank")
    if ranks is not None:
        named = [np.isin(blame[c].to_numpy(), list(ranks)) for c in ("culprit", "victim")]
        kept = named[0] | named[1]
        blame = blame.filter(pa.array(kept))
        stages = [stage for stage, keep in zip(stages, kept.tolist(), strict=True) if keep]
    blame = select_rows(blame, where, stage=stages)
    keys = ["culprit", "victim", "cause", "operator"]
    found = blame.group_by(keys).aggregate([("gpu_seconds", "sum")])
    columns = [found[k] for k in keys] + [found["gpu_seconds_sum"]]
    return pa.table(columns, schema=WAITS).sort_by([("gpu_seconds", "descending")])


def list_communication_nodes(views: RunViews, where: Predicate) -> pa.Table:
    """Return each rank's communications and its waits for others meanwhile."""
    members = _members(views, where)
    ranks = np.array([row["rank"] for row in views.index.ranks], np.int64)
    place = np.searchsorted(ranks, members["rank"].to_numpy())

    def add(values: Any) -> Floats:
        return np.asarray(np.bincount(place, weights=values, minlength=len(ranks)), np.float64)

    wait = np.nan_to_num(members["wait_us"].to_numpy(zero_copy_only=False))
    time = (members["end_ns"].to_numpy() - members["start_ns"].to_numpy()) / 1e6
    size = np.maximum(members["bytes"].to_numpy(zero_copy_only=False), 0)
    wait_ms, time_ms = add(np.maximum(wait, 0) / 1e3), add(time)
    stages = np.array([row["stage"] for row in views.index.ranks], np.int32)
    columns = [
        ranks.astype(np.int32),
        [row["host"] for row in views.index.ranks],
        stages,
        time_ms,
        wait_ms,
        add(size).astype(np.int64),
        _little_waiting(wait_ms, stages),
    ]
    table = pa.table([pa.array(c) for c in columns], schema=COMMUNICATION_NODES)
    return select_rows(table, where)


def _little_waiting(wait_ms: Floats, stages: NDArray[np.int32]) -> Floats:
    """Return how much less than the most patient rank of its stage each rank waits, 0 to 1.

    Only ranks of one stage are compared: a later stage waits for the earlier ones anyway.
    """
    most = np.zeros(int(stages.max(initial=0)) + 1)
    np.maximum.at(most, stages, wait_ms)
    longest = most[stages]
    return np.where(longest > 0, 1 - wait_ms / np.maximum(longest, 1e-9), 0.0)


def _members(views: RunViews, where: Predicate) -> pa.Table:
    members = views.table("members")
    members = members.filter(pa.array(members["item"].to_numpy() >= 0))
    items = views.table("items").select(["item", "bytes", "point_to_point", "name"])
    place = np.zeros(int(items["item"].to_numpy().max(initial=-1)) + 1, np.int64)
    place[items["item"].to_numpy()] = np.arange(items.num_rows)
    chosen = items.take(pa.array(place[members["item"].to_numpy()]))
    for name in ("bytes", "point_to_point", "name"):
        members = members.append_column(name, chosen[name])
    return _of_ranks(members, where, views.stages)


def list_communication_pairs(views: RunViews, where: Predicate) -> pa.Table:
    """Return traffic between pairs: sends as they were, collectives as if their group were a
    ring.
    """
    ranks = find_values(where, "rank")
    # Both sides of an item are needed: ranks are chosen among the pairs.
    where = restrict(where, frozenset(("step",)))
    members = _members(views, where).sort_by([("item", "ascending"), ("rank", "ascending")])
    item, rank = members["item"].to_numpy(), members["rank"].to_numpy()
    if not len(item):
        return COMMUNICATION_PAIRS.empty_table()
    first = np.flatnonzero(np.append(True, item[1:] != item[:-1]))
    count = np.diff(np.append(first, len(item)))
    place = np.arange(len(item)) - np.repeat(first, count)
    following = np.repeat(first, count) + (place + 1) % np.repeat(count, count)
    exchange = members["point_to_point"].to_numpy(zero_copy_only=False)
    # Of an exchange one direction is enough: from the lower place to the other.
    used = (np.repeat(count, count) > 1) & ~(exchange & (place > 0))
    wait = np.nan_to_num(members["wait_us"].to_numpy(zero_copy_only=False)) / 1e3
    time = (members["end_ns"].to_numpy() - members["start_ns"].to_numpy()) / 1e6
    rows = pa.table(
        {
            "source": rank[used],
            "target": rank[following][used],
            "evidence": np.where(exchange, "exact", "ring")[used],
            "time_ms": time[used],
            "wait_ms": wait[used],
            "bytes": np.maximum(members["bytes"].to_numpy(zero_copy_only=False), 0)[used],
        }
    )
    if ranks is not None:
        ends = [np.isin(rows[c].to_numpy(), list(ranks)) for c in ("source", "target")]
        rows = rows.filter(pa.array(ends[0] | ends[1]))
    return _add_pairs(rows)


def _add_pairs(rows: pa.Table) -> pa.Table:
    keys = ["source", "target", "evidence"]
    sums: list[tuple[str, str]] = [(n, "sum") for n in ("time_ms", "wait_ms", "bytes")]
    found = rows.group_by(keys).aggregate([*sums, ("bytes", "count")])
    moving = np.maximum(found["time_ms_sum"].to_numpy() - found["wait_ms_sum"].to_numpy(), 1e-9)
    columns = [
        found["source"].cast(pa.int32()),
        found["target"].cast(pa.int32()),
        found["time_ms_sum"],
        found["wait_ms_sum"],
        found["bytes_sum"].cast(pa.int64()),
        pa.array(found["bytes_sum"].to_numpy() * 8 / moving / 1e6),
        found["bytes_count"],
        found["evidence"],
    ]
    return pa.table(columns, schema=COMMUNICATION_PAIRS).sort_by([("time_ms", "descending")])


def list_memory(views: RunViews, where: Predicate) -> pa.Table:
    """Return memory over time; with one step selected, only that of the step."""
    memory = views.table("memory")
    steps = find_values(where, "step")
    if steps is not None:
        time = memory["time_ns"].to_numpy()
        kept = np.zeros(len(time), bool)
        for row in views.index.steps:
            if row["step"] in steps:
                kept |= (time >= row["start_ns"]) & (time <= row["end_ns"])
        memory = memory.filter(pa.array(kept))
    return _of_ranks(memory, where, views.stages)


def list_names(views: RunViews, where: Predicate, *, column: str) -> pa.Table:
    """Return kernels (``name``) or host operators (``host_operator``) with their times.

    Summed over the steps selected, at most the first ``MOST_STEPS_SUMMED`` of them.
    """
    known = [row["step"] for row in views.index.steps]
    wanted = find_values(where, "step")
    steps = [s for s in known if wanted is None or s in wanted][:MOST_STEPS_SUMMED]
    if not steps:
        raise NotFound("No step of this run is selected.")
    parts = [_name_rows(views, step, where, column) for step in steps]
    return _sum_names(pa.concat_tables(parts, promote_options="permissive"))


def _name_rows(views: RunViews, step: int, where: Predicate, column: str) -> pa.Table:
    pictures = views.step(step)
    view = pictures.view
    wanted = find_values(where, "rank")
    ranks = [r for r in view.index.ranks if wanted is None or r in wanted]
    whole = view.index.end_ns - view.index.start_ns + view.index.unit_ns
    window = BandWindow(0, whole, 0, len(view.bands) + 1)
    named = _rename(view, column)
    bands, _ = list_bands(named, ranks, window, names=views.names, where=where)
    return bands.select(["rank", "name", "module", "kind", "dur_ns"]).cast(
        pa.schema(
            [
                pa.field("rank", pa.int32()),
                pa.field("name", pa.string()),
                pa.field("module", pa.string()),
                pa.field("kind", pa.int32()),
                pa.field("dur_ns", pa.int64()),
            ]
        )
    )


def _rename(view: StepView, column: str) -> StepView:
    """Return the step with its bands named by the host operator instead of the kernel."""
    if column == "name":
        return view
    bands = np.array(view.bands)
    bands["name"] = bands[column]
    return replace(view, bands=bands)


def _sum_names(rows: pa.Table) -> pa.Table:
    keys = ["name", "module", "kind"]
    if not rows.num_rows:
        return NAME_TIMES.empty_table()
    found = rows.group_by(keys).aggregate(
        [("dur_ns", f) for f in ("count", "sum", "mean", "min", "max")]
    )
    by_rank = rows.group_by([*keys, "rank"]).aggregate([("dur_ns", "sum")])
    spread: dict[tuple[Any, ...], list[tuple[float, int]]] = {}
    for row in by_rank.to_pylist():
        key = tuple(row[k] for k in keys)
        spread.setdefault(key, []).append((row["dur_ns_sum"], row["rank"]))
    made = []
    for row in found.to_pylist():
        times = sorted(spread[tuple(row[k] for k in keys)])
        middle = float(np.median([t for t, _ in times]))
        made.append(
            {
                "name": row["name"],
                "module": row["module"],
                "kind": KIND_NAMES[row["kind"]],
                "calls": row["dur_ns_count"],
                "total_ms": row["dur_ns_sum"] / 1e6,
                "mean_us": row["dur_ns_mean"] / 1e3,
                "min_us": row["dur_ns_min"] / 1e3,
                "max_us": row["dur_ns_max"] / 1e3,
                "ranks": len(times),
                "slowest_rank": times[-1][1],
                "spread": times[-1][0] / middle if middle > 0 else 1.0,
            }
        )
    made.sort(key=lambda row: -row["total_ms"])
    return pa.Table.from_pylist(made, schema=NAME_TIMES)

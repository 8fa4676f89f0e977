"""The intervals of visible rows, and the spread of each operator over a stage or cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.predicates import EVERYTHING, Predicate
from marey.model.training.selections import select_rows
from marey.trace.views.step_files import StepView
from marey.trace.views.view_kinds import KIND_NAMES
from marey.trace.views.view_tables import BANDS, TIME_SPANS

Ints = NDArray[np.int64]
PHASE_WORDS = ("forward", "backward", "update")


@dataclass(frozen=True)
class BandWindow:
    """Which intervals are wanted: nanoseconds of the step, the shortest, the most."""

    from_ns: int
    to_ns: int
    min_ns: int = 0
    limit: int = 200_000


def list_bands(
    view: StepView,
    ranks: list[int],
    window: BandWindow,
    *,
    names: pa.Array,
    where: Predicate = EVERYTHING,
) -> tuple[pa.Table, int]:
    """Return the bands of these ranks in a window, and how many were left out as too short or
    many.
    """
    parts, shorter = [], 0
    unit = view.index.unit_ns
    for rank in ranks:
        bands = view.bands_of(rank)
        start, end = bands["start"].astype(np.int64) * unit, bands["end"].astype(np.int64) * unit
        seen = (end > window.from_ns) & (start < window.to_ns)
        long = seen & (end - start >= window.min_ns)
        shorter += int(seen.sum() - long.sum())
        parts.append((rank, bands[long]))
    count = sum(len(bands) for _, bands in parts)
    table = _tabulate(parts, view, names)
    if where != EVERYTHING:
        table = select_bands(table, where, stages_of(view))
    kept = _largest(table, window.limit)
    return kept, shorter + count - kept.num_rows if where == EVERYTHING else shorter


def stages_of(view: StepView) -> dict[int, int]:
    """Return rank → stage."""
    return dict(zip(view.index.ranks, view.index.stages, strict=True))


def select_bands(table: pa.Table, where: Predicate, stages: dict[int, int]) -> pa.Table:
    """Return the bands that a selection means: kinds and phases by name, time in milliseconds."""
    kinds, phase = table["kind"].to_numpy(), table["phase"].to_numpy()
    wider = {
        "stage": [stages.get(rank, 0) for rank in table["rank"].to_pylist()],
        "time": table["start_ns"].to_numpy() / 1e6,
    }
    words = table.set_column(
        table.schema.get_field_index("kind"), "kind", pa.array([KIND_NAMES[k] for k in kinds])
    )
    words = words.set_column(
        words.schema.get_field_index("phase"),
        "phase",
        pa.array([PHASE_WORDS[p] if p >= 0 else None for p in phase]),
    ).append_column("row", pa.array(np.arange(table.num_rows)))
    chosen = select_rows(words, where, **wider)["row"]
    return table.take(chosen)


def _largest(table: pa.Table, limit: int) -> pa.Table:
    if table.num_rows <= limit:
        return table
    longest = np.argsort(-table["dur_ns"].to_numpy(), kind="stable")[:limit]
    return table.take(pa.array(np.sort(longest)))


def _tabulate(
    parts: list[tuple[int, NDArray[np.void]]], view: StepView, names: pa.Array
) -> pa.Table:
    if not parts or not any(len(bands) for _, bands in parts):
        return BANDS.empty_table()
    ranks = np.concatenate([np.full(len(bands), rank, np.int32) for rank, bands in parts])
    bands = np.concatenate([bands for _, bands in parts])
    unit, steps = view.index.unit_ns, np.array(view.index.list_steps(), np.int32)
    start = bands["start"].astype(np.int64) * unit
    columns: dict[str, Any] = {
        "rank": ranks,
        "step": steps[bands["nth_step"]],
        "stream": bands["stream"],
        "start_ns": start,
        "dur_ns": bands["end"].astype(np.int64) * unit - start,
        "kind": bands["kind"].astype(np.int32),
        "operator": bands["operator"],
        "operator_confidence": bands["confidence"] / 255,
        "name": as_words(bands["name"], names),
        "module": as_words(bands["module"], names),
        "micro_batch": bands["micro_batch"].astype(np.int32),
        "phase": bands["phase"].astype(np.int32),
        "item": bands["item"].astype(np.int64),
        "event": bands["event"].astype(np.int64),
    }
    return pa.table([pa.array(columns[n]) for n in BANDS.names], schema=BANDS)


def as_words(codes: NDArray[Any], names: pa.Array) -> pa.DictionaryArray:
    """Return codes as a dictionary of only the texts that occur; no text for -1."""
    used, inverse = np.unique(codes, return_inverse=True)
    none = used < 0
    texts = names.take(pa.array(np.maximum(used, 0).astype(np.int64)))
    texts = pa.array(
        ["" if n else t for n, t in zip(none.tolist(), texts.to_pylist(), strict=True)]
    )
    return pa.DictionaryArray.from_arrays(pa.array(inverse.reshape(-1).astype(np.int32)), texts)


def list_time_spans(
    view: StepView, groups: Ints, window: BandWindow, names: pa.Array
) -> tuple[pa.Table, int]:
    """Return, for each operator of each group of ranks, the spread of its starts and ends.

    ``groups`` is the group of each rank of the step (its stage, or its cluster).
    """
    unit = view.index.unit_ns
    offsets = np.array(view.index.band_offsets, np.int64)
    lengths: Ints = offsets[1:] - offsets[:-1]
    group = np.repeat(groups, lengths)
    rank = np.repeat(np.array(view.index.ranks, np.int64), lengths)
    bands = view.bands
    start, end = bands["start"].astype(np.int64), bands["end"].astype(np.int64)
    seen = (end * unit > window.from_ns) & (start * unit < window.to_ns)
    rows = np.flatnonzero(seen)
    if not len(rows):
        return TIME_SPANS.empty_table(), 0
    operators = int(bands["operator"].max()) + 2
    nth = bands["nth_step"][rows].astype(np.int64)
    steps = len(view.index.list_steps())
    key = (group[rows] * steps + nth) * operators + bands["operator"][rows]
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    beside = {"group": group, "rank": rank}
    table = _spread(view, rows=rows, first=first, times=(start, end), beside=beside, names=names)
    width = table["end_max_ns"].to_numpy() - table["start_min_ns"].to_numpy()
    long = width >= window.min_ns
    kept = table.filter(pa.array(long))
    if kept.num_rows > window.limit:
        widest = np.argsort(-width[long], kind="stable")[: window.limit]
        kept = kept.take(pa.array(np.sort(widest)))
    return kept, table.num_rows - kept.num_rows


def _spread(
    view: StepView,
    *,
    rows: Ints,
    first: Ints,
    times: tuple[Ints, Ints],
    beside: dict[str, Ints],
    names: pa.Array,
) -> pa.Table:
    unit = view.index.unit_ns
    start, end = times
    counts = np.diff(np.append(first, len(rows)))
    lead = rows[first]
    slowest = _last_of_longest(end[rows] - start[rows], first, counts)
    in_order = np.array(view.index.list_steps(), np.int32)
    columns: dict[str, Any] = {
        "step": in_order[view.bands["nth_step"][lead]],
        "group": beside["group"][lead].astype(np.int32),
        "operator": view.bands["operator"][lead],
        "name": as_words(view.bands["name"][lead], names),
        "module": as_words(view.bands["module"][lead], names),
        "kind": view.bands["kind"][lead].astype(np.int32),
        "micro_batch": view.bands["micro_batch"][lead].astype(np.int32),
        "ranks": counts.astype(np.int32),
        "slowest_rank": beside["rank"][rows[slowest]].astype(np.int32),
    }
    for side, moments in (("start", start[rows]), ("end", end[rows])):
        columns[f"{side}_min_ns"] = np.minimum.reduceat(moments, first) * unit
        columns[f"{side}_max_ns"] = np.maximum.reduceat(moments, first) * unit
        columns[f"{side}_mean_ns"] = np.add.reduceat(moments, first) // counts * unit
    return pa.table([pa.array(columns[n]) for n in TIME_SPANS.names], schema=TIME_SPANS)


def _last_of_longest(length: Ints, first: Ints, counts: Ints) -> Ints:
    """Return the place of the longest in each group."""
    group = np.repeat(np.arange(len(first)), counts)
    order = np.lexsort((length, group))
    places: Ints = order[np.append(first[1:], len(length)) - 1]
    return places

"""Op tables drawn as a Chrome timeline (ByteDance's format): a process per data-parallel rank.

Its threads are named by their place, "PP rank 1, TP rank 0, dp-comm", and an event's arguments are
the columns of the table. Without reading these the whole job would be one row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from marey.model.training.traces import NO_VALUE
from marey.trace.readers.optable import OPTIONAL, REQUIRED, read_ranks
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.streams import TraceBytes

NAME = "op-timeline"
VERSION = 1
_HEAD = re.compile(rb'"args"\s*:\s*\{\s*"step"\s*:\s*-?\d+\s*,\s*"model_chunk"\s*:')
_DATA = re.compile(r"^DP rank \[?(\d{1,7})\]?$")
_PLACE = re.compile(r"^PP rank (\d{1,7}), TP rank (\d{1,7}), (\S+)$")
# Spans of the host: they stop nothing by themselves, and hold what is beside the training.
_ASIDE = "misc"
# What fits into memory as JSON.
LARGEST_BYTES = 1 << 30
_ARGUMENTS = {"step": "step", "mb_id": "mb_id", "mc": "model_chunk", "seq_id": "seq_id"}

Event = Mapping[str, Any]
# Data-parallel, pipeline and tensor-parallel rank.
Place = tuple[int, int, int]


def sniff(path: Path, head: bytes) -> bool:
    """Return whether the arguments of the first events are the columns of an op table."""
    return _HEAD.search(head) is not None


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return every rank of the timeline, numbered as Megatron does: pipeline stages outermost."""
    with TraceBytes(path) as stream:
        text = stream.read(LARGEST_BYTES + 1)
    if len(text) > LARGEST_BYTES:
        return FileEvents(iter(()), ["has more than 1 GB; give the table that it was made of"])
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return FileEvents(iter(()), ["is not whole JSON; it was cut short or damaged"])
    events = document.get("traceEvents", []) if isinstance(document, dict) else document
    table = _make_table([e for e in events if isinstance(e, dict)])
    if not table.num_rows:
        return FileEvents(iter(()), ["names no process and thread as ranks, or has no event"])
    return FileEvents(read_ranks(table, path.name))


def _make_table(events: list[Event]) -> pa.Table:
    """Return the op table that the events draw."""
    data, threads = _read_names(events)
    places = {
        (pid, tid): (data[pid], *place) for (pid, tid), place in threads.items() if pid in data
    }
    ranks = {place: n for n, place in enumerate(sorted(set(places.values()), key=_order_ranks))}
    tensor = max((tp for _, _, tp in ranks), default=0) + 1
    rows: dict[str, list[Any]] = {name: [] for name in (*REQUIRED, *OPTIONAL)}
    for event, place in _list_spans(events, places):
        args = event.get("args")
        told = args if isinstance(args, dict) else {}
        dp, stage, tp = place
        rows["rank"].append(ranks[place])
        rows["dp_rank"].append(dp * tensor + tp)
        rows["stage"].append(stage)
        rows["optype"].append(str(event.get("name", "")))
        rows["start_ts"].append(round(event["ts"] * 1000))
        rows["duration"].append(round(event["dur"] * 1000))
        for column, name in _ARGUMENTS.items():
            value = told.get(name)
            rows[column].append(value if type(value) is int else NO_VALUE)
    kinds = {name: np.int64 for name in rows if name != "optype"}
    return pa.table(
        {
            name: pa.array(np.array(values, kinds[name]) if name in kinds else values)
            for name, values in rows.items()
        }
    )


def _order_ranks(place: Place) -> tuple[int, int, int]:
    data, stage, tensor = place
    return stage, data, tensor


def _read_names(events: list[Event]) -> tuple[dict[Any, int], dict[Any, tuple[int, int]]]:
    """Return process → data-parallel rank, and thread → pipeline and tensor-parallel rank."""
    data: dict[Any, int] = {}
    threads: dict[Any, tuple[int, int]] = {}
    for event in events:
        args = event.get("args")
        text = str(args.get("name", "")) if isinstance(args, dict) else ""
        if event.get("ph") != "M":
            continue
        if (named := _DATA.match(text)) and event.get("name") == "process_name":
            data[_key(event.get("pid"))] = int(named[1])
        elif (placed := _PLACE.match(text)) and placed[3] != _ASIDE:
            where = (_key(event.get("pid")), _key(event.get("tid")))
            threads[where] = int(placed[1]), int(placed[2])
    return data, threads


def _key(value: Any) -> Any:
    return value if isinstance(value, int | str) else None


def _list_spans(events: list[Event], places: Mapping[Any, Place]) -> Iterator[tuple[Event, Place]]:
    for event in events:
        place = places.get((_key(event.get("pid")), _key(event.get("tid"))))
        timed = all(
            isinstance(event.get(key), int | float) and abs(event[key]) < 1e15
            for key in ("ts", "dur")
        )
        if event.get("ph") == "X" and place is not None and timed:
            yield event, place

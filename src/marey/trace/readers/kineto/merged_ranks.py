"""Traces of several ranks that were merged into one file, as SGLang's profiler does.

Such a merge puts a label before every process ("[TP00-EP01] 4711", "[Rank 3] 0"). Each label is a
rank of its own: its correlations and threads mean nothing in another.
"""

from __future__ import annotations

import re

import numpy as np

from marey.trace.readers.json.raw_columns import Block, Lane, RawEvents, take_rows

_LABEL = re.compile(r"^\[([A-Za-z][\w =:.-]{0,40})\][ _]*(.*)$")
_DIGITS = re.compile(r"([0-9]+)")
_OPERATORS = frozenset({"cpu_op", "operator"})
_BLOCKS = ("spans", "flows", "instants", "metadata")


def split_merged(raw: RawEvents) -> list[RawEvents]:
    """Return the events of each label, in order; all of them where there are fewer than two.

    Labels count only if every process with a duration event has one.
    """
    labels = [_read_label(lane) for lane in raw.lanes]
    used = {labels[code] for code in np.unique(raw.spans.lane).tolist()}
    if len(used) < 2 or None in used:
        return [raw]
    lanes = [_without_label(lane) for lane in raw.lanes]
    return [_select(raw, lanes, labels, label) for label in sorted(used, key=_natural_key)]


def holds_several_processes(raw: RawEvents) -> bool:
    """Return whether operators of more than one process stand in this file.

    A profiler writes one process to a file: somebody joined several, and nothing tells their
    devices, streams and correlations apart.
    """
    operators = [code for code, text in enumerate(raw.texts) if text.lower() in _OPERATORS]
    lanes = np.unique(raw.spans.lane[np.isin(raw.spans.category, operators)]).tolist()
    return len({raw.lanes[lane][0] for lane in lanes}) > 1


def _read_label(lane: Lane) -> str | None:
    found = _LABEL.match(lane[0]) if isinstance(lane[0], str) else None
    return found.group(1) if found else None


def _without_label(lane: Lane) -> Lane:
    found = _LABEL.match(lane[0]) if isinstance(lane[0], str) else None
    if found is None:
        return lane
    rest = found.group(2)
    return (int(rest) if rest.isdecimal() and len(rest) < 19 else rest, lane[1])


def _natural_key(label: str | None) -> tuple[tuple[int, int, str], ...]:
    """Sort TP2 before TP10."""
    parts = _DIGITS.split(label or "")
    return tuple((1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts)


def _select(
    raw: RawEvents, lanes: list[Lane], labels: list[str | None], label: str | None
) -> RawEvents:
    mine = np.array([one == label for one in labels], bool)
    blocks: dict[str, Block] = {
        name: take_rows(block, np.flatnonzero(mine[block.lane]))
        for name in _BLOCKS
        if (block := getattr(raw, name)) is not None
    }
    return RawEvents(raw.texts, lanes, **blocks)

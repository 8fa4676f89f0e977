"""Which event started which: correlation, External id, and forward → backward."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from marey.trace.readers.json.raw_columns import Block, Codes, Ints, Sparse

Rows = npt.NDArray[np.int64]


def rows_by_key(keys: Ints, rows: Rows, wanted: Ints) -> Rows:
    """Return for each wanted key the row that has it (the first if several do), or -1."""
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    place = np.searchsorted(ordered, wanted)
    place[place == len(ordered)] = 0
    return np.where(ordered[place] == wanted, rows[order[place]], -1)


def launches(
    correlation: Sparse | None, on_device: npt.NDArray[np.bool_], is_runtime: npt.NDArray[np.bool_]
) -> tuple[Rows, Rows]:
    """Return device rows and the runtime call with the same correlation that put each on its
    stream.
    """
    if correlation is None:
        none = np.empty(0, np.int64)
        return none, none
    host = is_runtime[correlation.rows]
    device = on_device[correlation.rows]
    rows = correlation.rows.astype(np.int64)
    found = rows_by_key(correlation.values[host], rows[host], correlation.values[device])
    return rows[device], found


def flow_pairs(flows: Block, category: npt.NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """Return flow rows of one category paired by id: where each begins and where it ends."""
    ids = flows.args.get("id")
    if ids is None:
        none = np.empty(0, np.int64)
        return none, none
    chosen = category[flows.category[ids.rows]]
    rows, keys = ids.rows[chosen].astype(np.int64), ids.values[chosen]
    begins = flows.phase[rows] == ord("s")
    ends = flows.phase[rows] == ord("f")
    found = rows_by_key(keys[begins], rows[begins], keys[ends])
    paired = found >= 0
    return found[paired], rows[ends][paired]


class Locator:
    """Finds the operator that a flow's end touches: the latest start on its thread."""

    def __init__(self, lane: Codes, start_ns: Ints, rows: Rows) -> None:
        order = np.lexsort((start_ns[rows], lane[rows]))
        self._rows = rows[order]
        self._lane = lane[self._rows]
        self._start = start_ns[self._rows]

    def find(self, lane: Codes, time_ns: Ints) -> Rows:
        """Return for each (lane, time) the row of the last operator that had started
        there, or -1.
        """
        found = np.full(len(lane), -1, np.int64)
        for one in np.unique(lane):
            low, high = np.searchsorted(self._lane, [one, one + 1])
            asked = np.flatnonzero(lane == one)
            place = np.searchsorted(self._start[low:high], time_ns[asked], side="right") - 1
            found[asked] = (
                np.where(place >= 0, self._rows[low + np.maximum(place, 0)], -1)
                if high > low
                else -1
            )
        return found


def forward_by_sequence(
    sequence: Sparse | None, forward_thread: Sparse | None, size: int
) -> tuple[Rows, Rows]:
    """Return backward rows and their forward rows, from autograd's sequence numbers."""
    none = np.empty(0, np.int64)
    if sequence is None or forward_thread is None:
        return none, none
    thread = np.zeros(size, np.int64)
    thread[forward_thread.rows] = forward_thread.values
    rows = sequence.rows.astype(np.int64)
    numbered = sequence.values >= 0
    is_backward = (thread[rows] > 0) & numbered
    is_forward = (thread[rows] == 0) & numbered
    # The innermost forward operator of a number is its last: it made the node of the graph.
    forward_rows, keys = rows[is_forward][::-1], sequence.values[is_forward][::-1]
    backward = rows[is_backward]
    found = rows_by_key(keys, forward_rows, sequence.values[is_backward])
    linked = (found >= 0) & (found < backward)
    return backward[linked], found[linked]

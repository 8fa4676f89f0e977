"""Work done twice on purpose: activations computed again for the backward pass."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EventKind
from marey.stats.intervals import merge
from marey.trace.run.name_codes import codes_of

RECOMPUTE_COLUMNS = ["on_device", "kind", "name", "stream", "start_ns", "dur_ns", "launch"]


def is_recompute(name: str) -> bool:
    """Return whether a Python frame of this name runs a checkpointed forward again."""
    return "checkpoint.py" in name and name.endswith("recompute_fn")


def launched(events: pa.Table) -> NDArray[np.bool_]:
    """Return device work whose launch is in the trace: without what was under way when it began."""
    device = events["on_device"].to_numpy(zero_copy_only=False)
    mask: NDArray[np.bool_] = device & (events["launch"].to_numpy() >= 0)
    return mask


def recomputed(events: pa.Table, symbols: Symbols) -> NDArray[np.bool_]:
    """Return device work launched while a checkpoint was computed again.

    Needs Python frames recorded.
    """
    codes = codes_of(symbols, is_recompute)
    mask = launched(events)
    if not len(codes):
        return np.zeros(len(mask), bool)
    column = {n: events[n].to_numpy(zero_copy_only=False) for n in RECOMPUTE_COLUMNS}
    frames = np.isin(column["name"], codes) & (column["kind"] == EventKind.PYTHON)
    caller = np.maximum(column["launch"], 0)
    thread, called_ns = column["stream"][caller], column["start_ns"][caller]
    inside = np.zeros(len(mask), bool)
    for one in np.unique(column["stream"][frames]):
        rows = frames & (column["stream"] == one)
        spans = merge(column["start_ns"][rows], column["dur_ns"][rows])
        at = np.searchsorted(spans.start_ns, called_ns, side="right") - 1
        within = (at >= 0) & (called_ns < spans.end_ns[np.maximum(at, 0)])
        inside |= mask & (thread == one) & within
    return inside

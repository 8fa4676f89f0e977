"""Who called whom on one rank: the enclosing operator of every host event, in one pass."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.training.traces import EventKind
from marey.stats.nesting import find_enclosing

__all__ = ["find_enclosing", "operator_of"]

Rows = NDArray[np.int64]


def operator_of(events: pa.Table) -> Rows:
    """Return for each event, the row of the operator that launched it or contains it, or -1.

    Device work is followed through its launch; where the profiler linked it by id only, the id
    decides; a host event belongs to the innermost operator around it.
    """
    kind = events["kind"].to_numpy()
    launch = events["launch"].to_numpy()
    is_op = kind == EventKind.CPU_OP
    ops = np.flatnonzero(is_op)
    inner = _find_containing_operator(events, kind, is_op)
    found = np.where(launch >= 0, launch, -1)
    # A launch may itself be a runtime call inside an operator.
    through = np.where(found >= 0, np.where(is_op[found], found, inner[found]), -1)
    by_id = _by_external_id(events["external_id"].to_numpy(), ops)
    chosen = np.where(through >= 0, through, np.where(by_id >= 0, by_id, -1))
    on_device = events["on_device"].to_numpy(zero_copy_only=False)
    # Without device events operators are the device activity: each stands for itself.
    itself = np.where(is_op, np.arange(len(kind)), inner)
    result: Rows = np.where(on_device & ~is_op, chosen, itself)
    return result


def _find_containing_operator(events: pa.Table, kind: Rows, is_op: NDArray[np.bool_]) -> Rows:
    host = np.flatnonzero(is_op | (kind == EventKind.RUNTIME))
    picked = events.select(["stream", "start_ns", "dur_ns"]).take(pa.array(host))
    parents = find_enclosing(*(picked[n].to_numpy() for n in ("stream", "start_ns", "dur_ns")))
    inner = np.full(len(kind), -1, np.int64)
    inner[host] = np.where(parents >= 0, host[parents], -1)
    # A runtime call may sit in another runtime call; climb to the operator.
    for _ in range(4):
        stuck = (inner >= 0) & ~is_op[inner]
        if not stuck.any():
            break
        inner[stuck] = inner[inner[stuck]]
    inner[(inner >= 0) & ~is_op[inner]] = -1
    return inner


def _by_external_id(external: Rows, ops: Rows) -> Rows:
    ids = external[ops]
    kept = ids >= 0
    ids, rows = ids[kept], ops[kept]
    if not len(ids):
        return np.full(len(external), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    ids, rows = ids[order], rows[order]
    at = np.minimum(np.searchsorted(ids, external), len(ids) - 1)
    found: Rows = np.where((external >= 0) & (ids[at] == external), rows[at], -1)
    return found

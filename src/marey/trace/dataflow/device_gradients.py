"""Find which kernel makes each gradient of a rank on a device ready."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EventKind
from marey.trace.rank.device_waits import Columns, DeviceWork
from marey.trace.readers.json.raw_columns import GRADIENT_PREFIX
from marey.trace.run.name_codes import codes_of

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ProducedGradients:
    """Gradients in the order they become ready: the row of the kernel, and their sizes."""

    row: Ints
    bytes: Ints
    dtype: Ints


def is_gradient(name: str) -> bool:
    """Return whether the host passes on a gradient in an operator of this name."""
    return name == GRADIENT_PREFIX


def find_gradients(columns: Columns, work: DeviceWork, symbols: Symbols) -> ProducedGradients:
    """Return the gradients whose shapes were recorded, each with the last kernel launched for it.

    The host has launched everything that a gradient needs when it passes it on to be accumulated.
    """
    named = np.isin(columns["name"], codes_of(symbols, is_gradient))
    rows = np.flatnonzero(named & (columns["bytes"] >= 0) & (columns["device"] < 0))
    computes = np.flatnonzero(columns["kind"][work.rows] == EventKind.COMPUTE)
    computes = computes[np.argsort(work.launched_ns[computes], kind="stable")]
    ready = columns["start_ns"][rows] + columns["dur_ns"][rows]
    rows = rows[np.argsort(ready, kind="stable")]
    ready = np.sort(ready)
    at = np.searchsorted(work.launched_ns[computes], ready, side="right") - 1
    known = at >= 0
    rows, at = rows[known], at[known]
    return ProducedGradients(
        work.rows[computes[at]], columns["bytes"][rows], columns["dtype"][rows]
    )

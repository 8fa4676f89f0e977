"""A training run as it reported itself: the table that run comparisons take."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def no_values() -> Floats:
    """Return an empty column."""
    return np.empty(0, np.float64)


@dataclass(frozen=True, eq=False)
class RunSeries:
    """One run: columns of equal length over its reports; NaN where a report lacks a value."""

    name: str
    # Runs of one label are repetitions of the same thing.
    label: str = ""
    # Milliseconds since the epoch, in order.
    time_ms: Floats = field(default_factory=no_values)
    step: Floats = field(default_factory=no_values)
    # Samples (or tokens) seen until then.
    samples: Floats = field(default_factory=no_values)
    loss: Floats = field(default_factory=no_values)
    # Samples per second, or whatever ``unit`` says.
    throughput: Floats = field(default_factory=no_values)
    unit: str = ""
    # Time of each step in milliseconds, however many were measured.
    step_ms: Floats = field(default_factory=no_values)
    gpus: int | None = None
    peak_memory_bytes: float | None = None
    communication_share: float | None = None
    notes: tuple[str, ...] = ()

"""Past runs as columns: which application, when, how long, on which hosts, in what system state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RunTable:
    """Runs in the order of their starts; ``state`` is what the counters said at each start."""

    application: Ints
    start_s: Floats
    run_s: Floats
    gpus: Floats
    # Hosts of run i: ``hosts[first[i]:first[i + 1]]``.
    hosts: Ints
    first: Ints
    state: Mapping[str, Floats]

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.application)

    def hosts_of(self, run: int) -> Ints:
        """Return the hosts of a run."""
        return self.hosts[self.first[run] : self.first[run + 1]]


def measure_against_own(runs: RunTable) -> Floats:
    """Return log(run time / mean of the application's earlier runs); NaN for the first three.

    This is what "its own history's mean" misses, and what everything else has to explain.
    """
    out = np.full(len(runs), np.nan)
    log_run, end_s = np.log(runs.run_s), runs.start_s + runs.run_s
    for application in np.unique(runs.application):
        rows = np.flatnonzero(runs.application == application)
        for i in rows:
            before = rows[end_s[rows] <= runs.start_s[i]]
            if len(before) >= _LEAST_BEFORE:
                out[i] = log_run[i] - log_run[before].mean()
    return out


_LEAST_BEFORE = 3

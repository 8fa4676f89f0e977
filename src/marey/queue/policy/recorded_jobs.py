"""Jobs of a site's history, as columns, and the hosts they ran on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
UNKNOWN_MS = -1
# It still waited when the record ended.
NOT_YET_MS = -2
WHOLE_GPU = 1000
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Hosts:
    """What hosts have, beside their GPUs; empty columns where the history does not tell."""

    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    cpus: Ints = field(default_factory=lambda: _NONE)
    memory_mb: Ints = field(default_factory=lambda: _NONE)
    # The names of the partitions that each host is in.
    partitions: tuple[tuple[str, ...], ...] = ()
    # Whether a host takes no work now.
    out_of_service: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))


@dataclass(frozen=True)
class RecordedJobs:
    """What was asked for and how long it ran, in the order of submission; ``start_ms`` is below
    0 where it is not recorded (``UNKNOWN_MS``, ``NOT_YET_MS``).
    """

    ids: tuple[str, ...]
    submit_ms: Ints
    start_ms: Ints
    run_ms: Ints
    limit_ms: Ints
    gpus_per_host: Ints
    hosts: Ints
    owner: Ints
    owners: tuple[str, ...]
    host_gpus: Ints
    # Priority that the site gave at submission (QOS, partition, nice), 0 where unknown.
    priority: Floats
    # What follows is empty where the history does not tell.
    project: Ints = field(default_factory=lambda: _NONE)
    projects: tuple[str, ...] = ()
    cpus_per_host: Ints = field(default_factory=lambda: _NONE)
    memory_mb_per_host: Ints = field(default_factory=lambda: _NONE)
    # Thousandths of a GPU, where less than a whole one was asked for.
    gpu_share: Ints = field(default_factory=lambda: _NONE)
    partition: tuple[str, ...] = ()
    gpu_model: tuple[str, ...] = ()
    # Higher ones may evict lower ones, where a policy lets them.
    tier: Ints = field(default_factory=lambda: _NONE)
    site: Hosts = field(default_factory=Hosts)
    # Seconds between an end and the next start in its place, as recorded; NaN: unknown.
    lag_s: float = float("nan")
    # Times were cut to so many seconds; replays draw anew what was lost.
    resolution_s: float = 0.0
    # What the reader had to guess or leave out.
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.ids)

    @property
    def gpus(self) -> Ints:
        """Return the GPUs each job asked for."""
        return self.gpus_per_host * self.hosts

    @property
    def wait_s(self) -> Floats:
        """Return the recorded waits; NaN where no start is recorded."""
        return np.where(self.start_ms >= 0, (self.start_ms - self.submit_ms) / 1000.0, np.nan)

    def fill(self, name: str, default: int) -> Ints:
        """Return an optional column, or the same number for all where it is not known."""
        column: Ints = getattr(self, name)
        return column if len(column) else np.full(len(self), default, np.int64)


def shape_gangs(gpus: Ints, gpus_per_host: int) -> tuple[Ints, Ints]:
    """Return GPUs per host and hosts for requests that name only a number of GPUs."""
    hosts = np.maximum(1, -(-gpus // gpus_per_host))
    return np.maximum(1, -(-gpus // hosts)), hosts

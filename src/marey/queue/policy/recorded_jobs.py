"""Jobs of a site's history, as columns, and the hosts they ran on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
UNKNOWN_MS = -1


@dataclass(frozen=True)
class RecordedJobs:
    """What was asked for and how long it ran, in the order of submission; ``start_ms`` is −1 where
    it is not recorded.
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


def shape_gangs(gpus: Ints, gpus_per_host: int) -> tuple[Ints, Ints]:
    """Return GPUs per host and hosts for requests that name only a number of GPUs."""
    hosts = np.maximum(1, -(-gpus // gpus_per_host))
    return np.maximum(1, -(-gpus // hosts)), hosts

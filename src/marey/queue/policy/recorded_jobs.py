"""Jobs of a site's history, as columns, and the hosts they ran on."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

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


@dataclass(frozen=True)
class Outages:
    """When hosts (by their place) took no new work, each from a moment to another."""

    host: Ints = field(default_factory=lambda: _NONE)
    begin_ms: Ints = field(default_factory=lambda: _NONE)
    end_ms: Ints = field(default_factory=lambda: _NONE)


@dataclass(frozen=True)
class OtherUse:
    """What owners held elsewhere, which counts for their fair share: GPUs taken (or given back)."""

    at_ms: Ints = field(default_factory=lambda: _NONE)
    owner: Ints = field(default_factory=lambda: _NONE)
    gpus: Ints = field(default_factory=lambda: _NONE)
    # GPU-ms of each owner before the first submission, as far as they are known.
    before: Floats = field(default_factory=lambda: np.zeros(0))


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
    # Quality of service of each job, by its place among the names.
    qos: Ints = field(default_factory=lambda: _NONE)
    qos_names: tuple[str, ...] = ()
    # When a job left the line without having started (−1: it did not), and how long it had
    # waited before it joined this line.
    leave_ms: Ints = field(default_factory=lambda: _NONE)
    aged_ms: Ints = field(default_factory=lambda: _NONE)
    # The hosts (by place) of the jobs that ran when the record began; () for the others.
    first_hosts: tuple[tuple[int, ...], ...] = ()
    site: Hosts = field(default_factory=Hosts)
    outages: Outages = field(default_factory=Outages)
    other_use: OtherUse = field(default_factory=OtherUse)
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

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Return which jobs an answer is about: not those that left without having started."""
        return self.fill("leave_ms", -1) < 0

    def select(self, chosen: NDArray[np.bool_]) -> RecordedJobs:
        """Return some of the jobs, for an answer about them."""
        columns = {
            one.name: _choose(getattr(self, one.name), chosen)
            for one in fields(self)
            if one.name not in _NOT_BY_JOB
        }
        return replace(self, **columns)

    def fill(self, name: str, default: int) -> Ints:
        """Return an optional column, or the same number for all where it is not known."""
        column: Ints = getattr(self, name)
        return column if len(column) else np.full(len(self), default, np.int64)


_NOT_BY_JOB = (
    "owners", "host_gpus", "projects", "qos_names", "site", "outages", "other_use", "lag_s",
    "resolution_s", "notes",
)  # fmt: skip


def _choose(column: Any, chosen: NDArray[np.bool_]) -> Any:
    """Return the chosen values of a column; one that the history does not tell stays empty."""
    if isinstance(column, tuple):
        return tuple(v for v, c in zip(column, chosen, strict=False) if c)
    return column[chosen] if len(column) else column


def shape_gangs(gpus: Ints, gpus_per_host: int) -> tuple[Ints, Ints]:
    """Return GPUs per host and hosts for requests that name only a number of GPUs."""
    hosts = np.maximum(1, -(-gpus // gpus_per_host))
    return np.maximum(1, -(-gpus // hosts)), hosts

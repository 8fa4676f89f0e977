"""Snapshots of waiting jobs, as columns: what was known at each poll, and apart from it how long
each job then waited.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# What a poll says of the line ahead of a job, and of what runs: everywhere, in its partition, of
# its account, of both.
SCOPES = ("", "p_", "a_", "p_a_")
AHEAD = tuple(
    f"q_{scope}{what}_above" for scope in SCOPES for what in ("jobs", "cores", "core_hours", "gpus")
)
RUNNING = tuple(
    f"r_{scope}{what}_above" for scope in SCOPES for what in ("jobs", "cores", "core_hours", "gpus")
)
SHARES = ("norm_share_poll", "effect_use_poll", "level_fs_poll", "norm_use_poll")
# Columns of the public snapshots that are known only after the poll; no feature may come from them.
FUTURE_COLUMNS = frozenset(
    {
        "alloc_nodes",
        "state",
        "priority_x",
        "partition_id_x",
        "start_time",
        "end_time",
        "elapsed_time",
        "submit_wait",
        "submit_wait_sec",
        "eligible_wait",
        "eligible_wait_sec",
        "run_time",
        "run_time_sec",
        "poll_wait",
        "poll_wait_sec",
    }
    | {f"q_{scope}{what}_run_hours" for scope in SCOPES for what in ("core", "gpu")}
)


@dataclass(frozen=True)
class PollTable:
    """One row per waiting job and poll. ``wait_s`` is the truth (NaN: still waiting); the rest was
    known at the poll.
    """

    job: Ints
    poll_s: Ints
    submit_s: Ints
    # The poll's own moment where the job was not yet eligible, with ``ineligible`` set: when it
    # becomes so is not known.
    eligible_s: Ints
    ineligible: NDArray[np.bool_]
    partition: Ints
    account: Ints
    cpus: Floats
    memory_mb: Floats
    gpus: Floats
    nodes: Floats
    limit_s: Floats
    priority: Floats
    ahead: Floats
    running: Floats
    shares: Floats
    wait_s: Floats

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.job)

    def select(self, rows: NDArray[Any]) -> PollTable:
        """Return the chosen rows."""
        return replace(
            self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)}
        )

    def hide_starts_after(self, moment_s: int) -> PollTable:
        """Return the table as it was known at a moment: jobs that start later still wait."""
        return replace(
            self, wait_s=np.where(self.poll_s + self.wait_s > moment_s, np.nan, self.wait_s)
        )


def join_tables(tables: list[PollTable]) -> PollTable:
    """Return several tables as one, in the order of their polls."""
    columns = {
        field.name: np.concatenate([getattr(table, field.name) for table in tables])
        for field in fields(PollTable)
    }
    joined = PollTable(**columns)
    return joined.select(np.argsort(joined.poll_s, kind="stable"))

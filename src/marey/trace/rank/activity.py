"""What is kept of one rank: its communications, the compute between, and why it idled."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marey.stats.intervals import Intervals, unite
from marey.trace.rank.idle import IdleTime
from marey.trace.rank.recording import Recording

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

FORWARD_PHASE, BACKWARD_PHASE, UPDATE_PHASE = 0, 1, 2
PHASE_NAMES = ("forward", "backward", "update")


@dataclass(frozen=True)
class Communications:
    """The device-side communications of a rank in order of start; -1 where the trace is silent."""

    row: Ints
    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints
    step: Ints
    kind: Ints
    collective: Ints
    group: Ints
    sequence: Ints
    comms_id: Ints
    bytes: Ints
    dtype: Ints
    peer: Ints
    tag: Ints
    stream: Ints

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Segments:
    """Compute between two neighbouring communication boundaries, in order of time."""

    start_ns: Ints
    end_ns: Ints
    busy_ns: Ints
    # Gaps inside the segment in which the device had run dry because the host launched late.
    starved_ns: Ints
    # When the host launched the first kernel of the segment, or -1.
    launch_ns: Ints
    step: Ints
    phase: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class OperatorTimes:
    """Device time of each kernel name in each step."""

    step: Ints
    name: Ints
    dur_ns: Ints


@dataclass(frozen=True)
class RankActivity:
    """What one rank contributes to the analysis of the run, on its own clock."""

    rank: int
    communications: Communications
    segments: Segments
    operators: OperatorTimes
    # Host time inside data loading, and outside any profiled step.
    loading: Intervals
    between_steps: Intervals
    steps: Ints  # step, start, end in rows
    first_ns: int
    last_ns: int
    has_launches: bool
    # Why its device did nothing, and what the recording can tell at all.
    idle: IdleTime = field(default_factory=IdleTime)
    recording: Recording = field(default_factory=Recording)

    def step_windows(self) -> tuple[Ints, Ints, Ints]:
        """Number, start and end of each step, which lasts until the next; one without any steps."""
        if not len(self.steps):
            return np.zeros(1, np.int64), np.array([self.first_ns]), np.array([self.last_ns])
        start = self.steps[:, 1]
        last = max(int(self.steps[-1, 2]), self.last_ns)
        return self.steps[:, 0], start, np.append(start[1:], last)


def host_delay(activity: RankActivity) -> Intervals:
    """Return idle time that the host is to answer for.

    Where it is the device itself, all its pauses.
    """
    idle = activity.idle
    return idle.host if activity.recording.has_device else unite(idle.host, idle.unlinked)

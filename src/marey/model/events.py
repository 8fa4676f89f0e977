"""Things that happen at a moment to a host, a GPU, a workload or the whole cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ClusterEventKind(StrEnum):
    """What happened."""

    XID = "xid"
    NODE_DOWN = "node_down"
    NODE_UP = "node_up"
    NODE_DRAIN = "node_drain"
    NODE_RESUME = "node_resume"
    THROTTLE = "throttle"
    RESERVATION = "reservation"
    POLICY_CHANGE = "policy_change"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    SOURCE_STALE = "source_stale"
    SOURCE_BACK = "source_back"


@dataclass(frozen=True, slots=True)
class Event:
    """One event; empty names where it concerns nothing of that sort."""

    time_ms: int
    kind: ClusterEventKind
    host: str = ""
    gpu: str = ""
    workload: str = ""
    # For XID its number; for others the figure that matters, if any.
    value: float | None = None
    text: str = ""

"""What the suites over record stores share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from marey.model.protocols import RecordStore
from marey.model.workloads import WorkloadState, WorkloadStatus

NewStore = Callable[[], RecordStore]
C = "default"
PENDING, RUNNING = WorkloadState.PENDING, WorkloadState.RUNNING
COMPLETED = WorkloadState.COMPLETED
ALL_TIME = 10**15


def status(name: str, state: WorkloadState = RUNNING, **more: Any) -> WorkloadStatus:
    """What is said of a workload."""
    return WorkloadStatus(name, state, **more)

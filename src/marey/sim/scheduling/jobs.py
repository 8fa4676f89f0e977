"""A workload inside the simulator: what was asked for, what will happen, where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.faults import FaultKind
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from marey.sim.scheduling.people import Recipe, User
from marey.sim.scheduling.scheduler_pass import REASON_WORDS, Reason

FIRST_ID = 410_001


class Kind(StrEnum):
    """What sort of work it is."""

    TRAIN = "train"
    SERVE = "serve"
    NOTEBOOK = "notebook"


@dataclass(slots=True)
class Job:
    """One workload with its fate; mutable, owned by the cluster that runs it."""

    seq: int
    partition: int
    partition_name: str
    gpu_model: str
    user_number: int
    user: User
    kind: Kind
    recipe: Recipe
    name: str
    experiment: str
    qos: str
    gpus: int
    per_host: int
    submit_ms: int
    limit_ms: int
    # What it would take if nothing went wrong, and how it would end then.
    duration_ms: int
    outcome: WorkloadState
    attributes: dict[str, str]
    resource_type: str = ""
    strategy: str = "single"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    eligible_ms: int = 0
    depends_on: int | None = None
    patience_ms: int | None = None
    # Forced by a scenario or an operator, instead of by chance.
    planned_fault: FaultKind | None = None
    # How bad a planned fault is: the share of speed lost, or of memory leaked per hour.
    severity: float | None = None
    state: WorkloadState = WorkloadState.PENDING
    reason: Reason = Reason.NONE
    priority: float = 0.0
    start_ms: int | None = None
    end_ms: int | None = None
    exit_code: int | None = None
    gpu_numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    end_token: int = 0
    planned_end_ms: int = 0
    planned_outcome: WorkloadState = WorkloadState.COMPLETED
    # The healthy behaviour, and the one in force.
    wellness: Any = None
    regime: Any = None
    fault: FaultKind | None = None
    # How the scheduler words its end, and the code that its program will end with.
    end_reason: str = ""
    planned_exit: int | None = None
    # Asked for on each of its hosts (0: nothing asked), thousandths of its GPU, and its tier:
    # higher ones may evict lower ones, where the cluster lets them.
    cpus_per_host: int = 0
    memory_mib_per_host: int = 0
    gpu_share: int = 1000
    tier: int = 0

    @property
    def asks_more(self) -> bool:
        """Return whether it asks for more than whole GPUs."""
        return bool(
            self.cpus_per_host or self.memory_mib_per_host or self.tier or self.gpu_share < 1000
        )

    @property
    def id(self) -> str:
        """The scheduler's number of it."""
        return str(FIRST_ID + self.seq)

    def record(self) -> Workload:
        """Return the job's record as an outsider sees it now."""
        return Workload(
            workload=self.id,
            name=self.name,
            user=self.user.name,
            project=self.user.project,
            experiment=self.experiment,
            partition=self.partition_name,
            qos=self.qos,
            gpus_requested=self.gpus,
            gpus_per_host=self.per_host,
            gpu_model=self.gpu_model,
            resource_type=self.resource_type,
            time_limit_s=self.limit_ms // 1000,
            submit_ms=self.submit_ms,
            eligible_ms=self.eligible_ms if self.reason not in _NOT_ELIGIBLE else None,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            exit_code=self.exit_code,
            attributes=self.attributes,
        )

    def status(self) -> WorkloadStatus:
        """Return state, reason and priority now."""
        waiting = self.state is WorkloadState.PENDING
        word = REASON_WORDS[self.reason] if waiting or self.reason else ""
        said = word if waiting else self.end_reason
        return WorkloadStatus(self.id, self.state, said, self.priority)


_NOT_ELIGIBLE = (Reason.DEPENDENCY, Reason.BEGIN_TIME, Reason.HELD)

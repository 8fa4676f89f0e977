"""What somebody asks of the simulated cluster: by hand, or as a recorded job did."""

from __future__ import annotations

from dataclasses import dataclass

from marey.model.errors import InvalidInput, shown
from marey.sim.scheduling.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A workload to submit; CPUs and memory are those of each host, 0 where nothing is asked."""

    gpus: int
    partition: str | None = None
    duration_s: float = 3600.0
    time_limit_s: float | None = None
    kind: str = "train"
    strategy: str | None = None
    fault: str | None = None
    severity: float | None = None
    user: int = 0
    cpus_per_host: int = 0
    memory_mib_per_host: int = 0
    # Thousandths of a GPU, for workloads of one GPU that share it.
    gpu_share: int = 1000
    # Higher tiers evict lower ones, where the cluster lets them.
    tier: int = 0
    # Of recorded jobs: seconds from now to the submission, and what it was called.
    submit_s: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.gpu_share <= 1000 or (self.gpu_share < 1000 and self.gpus != 1):
            raise InvalidInput(
                f"A share of {shown(self.gpu_share)} thousandths of {shown(self.gpus)} GPUs cannot "
                "be asked for; allowed: 1 to 1000, and less than 1000 only of one GPU."
            )

    def add_to(self, job: Job) -> None:
        """Give a workload what it asks for beside GPUs and time."""
        job.cpus_per_host, job.memory_mib_per_host = self.cpus_per_host, self.memory_mib_per_host
        job.gpu_share, job.tier = self.gpu_share, self.tier
        job.name = self.name or job.name
        if self.gpu_share < 1000:
            job.attributes["gpu_share"] = f"{self.gpu_share / 1000:g}"

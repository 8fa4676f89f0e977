"""The settings of a simulated cluster: size, seed, policy, faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from marey.model.errors import InvalidInput, shown, unknown
from marey.model.faults import FAILURES, SIMULATED, FaultKind
from marey.model.names import DEFAULT_CLUSTER
from marey.model.times import EARLIEST_MS, HOUR_MS, LATEST_MS, SECOND_MS

SMALLEST, LARGEST = 8, 131_072
# A Monday, so that the week's rhythm begins with the week.
DEFAULT_START_MS = 1_794_182_400_000


class Policy(StrEnum):
    """In which order the waiting pool is served."""

    FIFO = "fifo"
    MULTIFACTOR = "multifactor"


class Placement(StrEnum):
    """On which host a workload that fits on several is put."""

    MOST_ALLOCATED = "most_allocated"
    LEAST_ALLOCATED = "least_allocated"


FAULTS = SIMULATED


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How many workloads get a fault, and which kinds, by weight (missing kinds: 1).

    Failures of the program happen in any case; they get more only where a weight says so.
    """

    rate: float = 0.0
    weights: Mapping[FaultKind, float] = field(default_factory=dict)

    def weight(self, kind: FaultKind) -> float:
        """Return the relative frequency of a kind among eligible ones."""
        return self.weights.get(kind, 0.0 if kind in FAILURES else 1.0)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A partition and the hosts that it alone owns."""

    name: str
    model: str
    hosts: int
    gpus_per_host: int = 8
    min_gpus: int = 1
    max_gpus: int | None = None
    time_limit_s: int = 7 * 86_400
    last_host_gpus: int = 0
    # How many GPUs one user may hold at once; None = by the partition's size.
    user_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class SimConfig:
    """Everything that decides what happens; two equal ones give the same world, bit by bit."""

    gpus: int = 2048
    seed: int = 0
    start_ms: int = DEFAULT_START_MS
    tick_ms: int = 15 * SECOND_MS
    host_tick_ms: int = 60 * SECOND_MS
    policy: Policy = Policy.MULTIFACTOR
    placement: Placement = Placement.MOST_ALLOCATED
    backfill: bool = True
    # Backfill plans a start for every workload it tests, as Slurm's does; else EASY.
    planned: bool = False
    # Whether workloads of a higher tier evict those of lower ones.
    preemption: bool = False
    # A share of workloads, or a plan.
    faults: FaultPlan | float = 0.08
    # Demand as a share of capacity; 0 = nobody submits (scenarios submit by hand).
    load: float = 1.04
    # How long the cluster has already lived when the first tick is taken.
    warmup_ms: int = 2 * HOUR_MS
    partitions: tuple[PartitionPlan, ...] = ()
    maintenance: bool = True
    cluster: str = DEFAULT_CLUSTER

    def __post_init__(self) -> None:
        if not self.partitions and not SMALLEST <= self.gpus <= LARGEST:
            raise InvalidInput(
                f"{shown(self.gpus)} GPUs cannot be simulated; allowed: {SMALLEST} to {LARGEST}."
            )
        if not 1_000 <= self.tick_ms <= HOUR_MS:
            raise InvalidInput(f"A tick of {self.tick_ms} ms is not allowed; allowed: 1 s to 1 h.")
        if self.host_tick_ms % self.tick_ms:
            step = max(1, round(self.host_tick_ms / self.tick_ms)) * self.tick_ms
            object.__setattr__(self, "host_tick_ms", step)
        if not EARLIEST_MS <= self.start_ms - self.warmup_ms <= LATEST_MS:
            raise InvalidInput("The start must lie between 1990 and 2200.")
        if not 0.0 <= self.fault_plan.rate <= 1.0:
            raise InvalidInput(
                f"A fault rate of {self.fault_plan.rate:g} is not allowed; allowed: 0 to 1."
            )
        if not 0.0 <= self.load <= 3.0:
            raise InvalidInput(f"A load of {self.load:g} is not allowed; allowed: 0 to 3.")
        object.__setattr__(self, "policy", policy_named(self.policy))
        object.__setattr__(self, "placement", placement_named(self.placement))

    @property
    def fault_plan(self) -> FaultPlan:
        """The plan, whether given as one or as a rate."""
        return self.faults if isinstance(self.faults, FaultPlan) else FaultPlan(self.faults)


def policy_named(name: str) -> Policy:
    """Return the policy of this name."""
    try:
        return Policy(name)
    except ValueError:
        raise InvalidInput(unknown("policy", name, [p.value for p in Policy])) from None


def placement_named(name: str) -> Placement:
    """Return the placement of this name; hyphens and Kubernetes' spelling are understood too."""
    words = {"mostallocated": "most_allocated", "leastallocated": "least_allocated"}
    plain = str(name).replace("-", "_")
    try:
        return Placement(words.get(plain.lower(), plain.lower()))
    except ValueError:
        raise InvalidInput(unknown("placement", name, [p.value for p in Placement])) from None


def fault_named(name: str) -> FaultKind:
    """Return the kind of fault of this name; ``healthy`` is none."""
    if name not in FAULTS:
        raise InvalidInput(unknown("kind of fault", name, [k.value for k in FAULTS]))
    return FaultKind(name)

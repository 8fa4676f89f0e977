"""A scheduling policy as data: order, backfill, placement, weights, limits, partitions, hosts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from marey.model.errors import InvalidInput, allowed, shown, unknown
from marey.queue.policy.policy_parts import (
    AddedHosts,
    HostKind,
    PartitionRule,
    Preemption,
    QosRule,
    Reservation,
    Sharing,
    read_added_hosts,
    read_hosts,
    read_number,
    read_partitions,
    read_preemption,
    read_qos,
    read_reservations,
    read_sharing,
)

ORDERS = ("fifo", "multifactor")
BACKFILLS = ("none", "easy", "conservative")
# In the order of the kernels' numbers; node_order is what Slurm does if not told otherwise.
PLACEMENTS = ("most_allocated", "least_allocated", "fgd", "node_order")
# What people call the factors of multifactor priority → our name.
_FACTORS = {
    "age": "age", "priorityweightage": "age",
    "size": "size", "job_size": "size", "jobsize": "size", "priorityweightjobsize": "size",
    "gpus": "gpus", "tres": "gpus", "gres/gpu": "gpus",
    "fairshare": "fairshare", "fair_share": "fairshare", "share": "fairshare",
    "priorityweightfairshare": "fairshare",
    "recorded": "recorded", "site": "recorded", "qos": "recorded", "partition": "recorded",
    "priorityweightqos": "recorded", "priorityweightpartition": "recorded",
}  # fmt: skip
_LIMITS = {
    "max_gpus_per_user": "max_gpus_per_user", "gpus_per_user": "max_gpus_per_user",
    "max_gpus_per_project": "max_gpus_per_project", "gpus_per_project": "max_gpus_per_project",
    "max_jobs_per_user": "max_jobs_per_user", "jobs_per_user": "max_jobs_per_user",
    "max_gpus_per_job": "max_gpus_per_job", "gpus_per_job": "max_gpus_per_job",
    "max_time_s": "max_time_s", "max_time": "max_time_s",
}  # fmt: skip
# A conservative pass of Slurm looks at so many jobs (bf_max_job_test), a day ahead (bf_window).
DEFAULT_DEPTH = 500
DAY_S = 86400.0


@dataclass(frozen=True)
class Policy:
    """How the next job is chosen, where it goes, and when the scheduler looks."""

    order: str = "fifo"
    backfill: str = "none"
    placement: str = "most_allocated"
    weights: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    max_age_s: float = 7 * DAY_S
    half_life_s: float = 7 * DAY_S
    # How many times its equal part an owner may use before the share is half gone (Slurm's
    # FairShareDampeningFactor).
    dampening: float = 1.0
    favor_small: bool = False
    depth: int = DEFAULT_DEPTH
    # Seconds between the end of a job and the next start in its place; None: as recorded.
    start_lag_s: tuple[float, float] | None = None
    # Seconds between passes of backfill (0: at every change), how far it plans, in which steps.
    interval_s: float = 0.0
    window_s: float = DAY_S
    resolution_s: float = 1.0
    # Seconds between looks of the main pass (0: at every change); that a submission waits for
    # company; and between computations of priority.
    tick_s: float = 0.0
    submit_delay_s: float = 0.0
    recalculate_s: float = 0.0
    hosts: tuple[HostKind, ...] = ()
    add_hosts: tuple[AddedHosts, ...] = ()
    partitions: tuple[PartitionRule, ...] = ()
    qos: tuple[QosRule, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    preemption: Preemption = field(default_factory=Preemption)
    sharing: Sharing = field(default_factory=Sharing)
    # Whether CPU and memory requests count, where the history tells them.
    cpu_and_memory: bool = True

    @property
    def is_dynamic(self) -> bool:
        """Return whether the order can change while jobs wait."""
        return self.order == "multifactor" and any(
            self.weights.get(name) for name in ("age", "fairshare")
        )


_NUMBERS = (
    "max_age_s", "half_life_s", "interval_s", "window_s", "tick_s", "submit_delay_s",
    "recalculate_s", "dampening",
)  # fmt: skip


def parse_policy(document: Any, base: Policy | None = None) -> Policy:
    """Return the policy of a JSON document; what it does not say stays as in ``base``."""
    if not isinstance(document, dict):
        raise InvalidInput(
            'A policy is a JSON object such as {"order": "fifo", "backfill": "conservative"}.'
        )
    known = set(Policy.__dataclass_fields__) | {"name"}
    for name in document:
        if name not in known:
            raise InvalidInput(unknown("policy setting", name, known))
    given = {name: read_number(name, document[name]) for name in _NUMBERS if name in document}
    settings: dict[str, Any] = dict(given)
    for name, choices in (
        ("order", ORDERS),
        ("backfill", BACKFILLS),
        ("placement", PLACEMENTS),
    ):
        if name in document:
            settings[name] = _read_choice(name, document[name], choices)
    readers = {
        "weights": lambda found: _read_numbers("weights", found, _FACTORS),
        "limits": lambda found: _read_numbers("limits", found, _LIMITS),
        "favor_small": lambda found: _read_flag("favor_small", found),
        "cpu_and_memory": lambda found: _read_flag("cpu_and_memory", found),
        "depth": lambda found: max(1, int(read_number("depth", found))),
        "resolution_s": lambda found: max(1.0, read_number("resolution_s", found)),
        "start_lag_s": _read_lag,
        "hosts": read_hosts,
        "add_hosts": read_added_hosts,
        "partitions": read_partitions,
        "qos": read_qos,
        "reservations": read_reservations,
        "preemption": read_preemption,
        "sharing": read_sharing,
    }
    for name, read in readers.items():
        if name in document:
            settings[name] = read(document[name])
    return replace(base or Policy(), **settings)


def _read_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidInput(unknown(name, value, choices))
    return str(value)


def _read_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} is {shown(value)}; true or false is allowed.")
    return value


def _read_lag(found: Any) -> tuple[float, float] | None:
    if found is None:
        return None
    pair = (found, found) if isinstance(found, int | float) else found
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise InvalidInput(
            f"start_lag_s is {shown(found)}; a number of seconds or a pair such as [1, 2] is "
            "allowed."
        )
    low, high = (read_number("start_lag_s", value) for value in pair)
    return min(low, high), max(low, high)


def _read_numbers(name: str, found: Any, names: dict[str, str]) -> dict[str, float]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidInput(
            f"{name} is {shown(found)}; an object of numbers is allowed: "
            f"{allowed(sorted(set(names.values())))}."
        )
    numbers: dict[str, float] = {}
    for key, value in found.items():
        plain = str(key).lower()
        if plain not in names:
            raise InvalidInput(unknown(f"name in {name}", key, sorted(set(names.values()))))
        numbers[names[plain]] = numbers.get(names[plain], 0.0) + read_number(f"{name}.{key}", value)
    return numbers

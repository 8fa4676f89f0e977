"""A scheduling policy as data: order, backfill, placement, weights, limits and the hosts it works
on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from marey.model.errors import InvalidInput, allowed, shown, unknown

ORDERS = ("fifo", "multifactor")
BACKFILLS = ("none", "easy", "conservative")
PLACEMENTS = ("most_allocated", "least_allocated", "fgd")
# What people call the factors of multifactor priority → our name.
_FACTORS = {
    "age": "age", "priorityweightage": "age",
    "size": "size", "job_size": "size", "jobsize": "size", "priorityweightjobsize": "size",
    "fairshare": "fairshare", "fair_share": "fairshare", "share": "fairshare",
    "priorityweightfairshare": "fairshare",
    "recorded": "recorded", "site": "recorded", "qos": "recorded", "partition": "recorded",
    "priorityweightqos": "recorded", "priorityweightpartition": "recorded",
}  # fmt: skip
_LIMITS = {
    "max_gpus_per_user": "max_gpus_per_user", "gpus_per_user": "max_gpus_per_user",
    "max_jobs_per_user": "max_jobs_per_user", "jobs_per_user": "max_jobs_per_user",
    "max_gpus_per_job": "max_gpus_per_job", "gpus_per_job": "max_gpus_per_job",
    "max_time_s": "max_time_s", "max_time": "max_time_s",
}  # fmt: skip
# A conservative pass of Slurm looks at so many jobs (bf_max_job_test).
DEFAULT_DEPTH = 500


@dataclass(frozen=True)
class Policy:
    """How the next job is chosen and where it goes."""

    order: str = "fifo"
    backfill: str = "none"
    placement: str = "most_allocated"
    weights: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    max_age_s: float = 7 * 86400.0
    half_life_s: float = 7 * 86400.0
    favor_small: bool = False
    depth: int = DEFAULT_DEPTH
    # Seconds that a scheduler lets pass between the end of a job and the next start in its place.
    start_lag_s: tuple[float, float] = (1.0, 2.0)
    # GPUs of each host, where the policy asks for other hosts than there are.
    hosts: tuple[int, ...] = ()

    @property
    def is_dynamic(self) -> bool:
        """Return whether the order can change while jobs wait."""
        return self.order == "multifactor" and any(
            self.weights.get(name) for name in ("age", "fairshare")
        )


def parse_policy(document: Any) -> Policy:
    """Return the policy of a JSON document; say which value is wrong and what is allowed."""
    if not isinstance(document, dict):
        raise InvalidInput(
            'A policy is a JSON object such as {"order": "fifo", "backfill": "conservative"}.'
        )
    known = set(Policy.__dataclass_fields__) | {"name"}
    for name in document:
        if name not in known:
            raise InvalidInput(unknown("policy setting", name, known))
    lag = document.get("start_lag_s", (1.0, 2.0))
    low, high = (lag, lag) if isinstance(lag, int | float) else (lag[0], lag[-1])
    return Policy(
        order=_read_choice(document, "order", ORDERS, "fifo"),
        backfill=_read_choice(document, "backfill", BACKFILLS, "none"),
        placement=_read_choice(document, "placement", PLACEMENTS, "most_allocated"),
        weights=_read_numbers(document, "weights", _FACTORS),
        limits=_read_numbers(document, "limits", _LIMITS),
        max_age_s=_read_number("max_age_s", document.get("max_age_s", 7 * 86400.0)),
        half_life_s=_read_number("half_life_s", document.get("half_life_s", 7 * 86400.0)),
        favor_small=bool(document.get("favor_small", False)),
        depth=max(1, int(_read_number("depth", document.get("depth", DEFAULT_DEPTH)))),
        start_lag_s=(_read_number("start_lag_s", low), _read_number("start_lag_s", high)),
        hosts=_read_hosts(document.get("hosts")),
    )


def _read_choice(
    document: dict[str, Any], name: str, choices: tuple[str, ...], default: str
) -> str:
    value = document.get(name, default)
    if value not in choices:
        raise InvalidInput(unknown(name, value, choices))
    return str(value)


def _read_number(name: str, value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < float("inf")
    ):
        raise InvalidInput(f"{name} is {shown(value)}; a number from 0 up is allowed.")
    return float(value)


def _read_numbers(document: dict[str, Any], name: str, names: dict[str, str]) -> dict[str, float]:
    found = document.get(name) or {}
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
        numbers[names[plain]] = numbers.get(names[plain], 0.0) + _read_number(
            f"{name}.{key}", value
        )
    return numbers


def _read_hosts(found: Any) -> tuple[int, ...]:
    """Return the GPUs per host of ``[{"count": 4, "gpus": 8}, …]``."""
    if not found:
        return ()
    try:
        return tuple(int(entry["gpus"]) for entry in found for _ in range(int(entry["count"])))
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidInput('hosts is a list such as [{"count": 4, "gpus": 8}].') from error

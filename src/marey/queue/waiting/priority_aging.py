"""How a priority will age: what waiting adds to it, from the factor of age, its weight and the
longest age that counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from marey.model.times import describe_span
from marey.queue.waiting.line import Waiter

_DAY_S = 86400.0
# While these hold, a scheduler does not count the time as waiting.
_NOT_AGING = ("JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "BeginTime")
NOT_KNOWN = "How its priority will age is not known."


@dataclass(frozen=True, slots=True)
class PriorityAging:
    """What a day of waiting adds, what age can still add, and when it counts fully (None: not
    known).
    """

    per_day: float | None
    still_to_come: float | None
    full_in_s: float | None
    sentence: str


def describe_aging(waiter: Waiter) -> PriorityAging:
    """Return how a workload's priority grows while it waits; nothing is guessed."""
    weight, longest_s = waiter.age_weight, waiter.max_age_s
    if weight is None or not longest_s:
        return PriorityAging(None, None, None, NOT_KNOWN)
    if weight <= 0:
        return PriorityAging(0.0, 0.0, 0.0, "Waiting does not raise its priority here.")
    rest = max(0.0, weight - waiter.factors.get("age", 0.0))
    if waiter.reason in _NOT_AGING:
        return PriorityAging(0.0, rest, None, "Its priority does not age while it is held back.")
    if not rest:
        return PriorityAging(0.0, 0.0, 0.0, "Its age counts fully: waiting longer adds nothing.")
    per_day, full_s = weight * _DAY_S / longest_s, longest_s * rest / weight
    sentence = (
        f"Waiting adds {per_day:,.0f} to its priority of {waiter.priority:,.0f} per day, "
        f"{rest:,.0f} more in all; its age counts fully in {describe_span(full_s)}."
    )
    return PriorityAging(per_day, rest, full_s, sentence)

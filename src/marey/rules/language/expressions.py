"""What a rule says, as a tree: conditions, their combination, and how many GPUs must fulfil it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

ORDER_OPS = ("<", "<=", ">", ">=")
OPS = (*ORDER_OPS, "=", "!=")


class ComparisonGroup(StrEnum):
    """The GPUs that one GPU is compared with."""

    WORKLOAD = "workload"
    NODE = "node"
    # The same GPU over its whole life in the workload.
    LIFE = "life"


# Those that hold several GPUs.
GROUPS_OF_GPUS = (ComparisonGroup.WORKLOAD, ComparisonGroup.NODE)


class Aggregation(StrEnum):
    """How the values of a group become one."""

    MEDIAN = "median"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Over:
    """One value per group: ``over node max``."""

    group: ComparisonGroup
    by: Aggregation = Aggregation.MEDIAN


@dataclass(frozen=True, slots=True)
class Statistic:
    """How a series becomes one number; ``quantile`` for percentiles, op and limit for shares."""

    name: str
    # In percent: 95 for p95.
    quantile: float | None = None
    op: str | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """A metric's statistic over the whole life, or a trailing window, per GPU or per group."""

    metric: str
    statistic: Statistic
    window_ms: int | None = None
    over: Over | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """Something known of the workload or of the GPU in it, such as its run time."""

    name: str
    window_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in the unit of what it is compared with (durations in milliseconds)."""

    value: float


@dataclass(frozen=True, slots=True)
class TextValues:
    """Texts, any of which may match."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Peers:
    """The same statistic of the peers: ``factor × group + offset``."""

    over: Over
    factor: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class NamedThreshold:
    """A threshold of the rule by name, so that a partition or project can have its own."""

    name: str


Value = Quantity | TextValues | Peers | NamedThreshold


@dataclass(frozen=True, slots=True)
class Condition:
    """What is measured, against which value."""

    left: Series | Fact
    op: str
    right: Value


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any part holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold; where the part is not judged, neither is this."""

    part: Expression


Expression = Condition | And | Or | Not


class Reach(StrEnum):
    """How many of the workload's GPUs must fulfil the expression."""

    ANY = "any"
    ALL = "all"
    AT_LEAST = "at_least"
    AT_LEAST_SHARE = "at_least_share"
    ALL_BUT_FIRST_RANK = "all_but_first_rank"
    ANY_NODE = "any_node"


@dataclass(frozen=True, slots=True)
class Quantifier:
    """``any``, ``all``, ``at least N``, ``at least N %``, all but the first rank, a whole node."""

    reach: Reach = Reach.ANY
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class Clause:
    """What a rule tests: an expression per GPU, and the quantifier over the GPUs."""

    expression: Expression
    quantifier: Quantifier = Quantifier()


def conditions(expression: Expression) -> Iterator[Condition]:
    """Yield every condition, from left to right."""
    if isinstance(expression, Condition):
        yield expression
    elif isinstance(expression, Not):
        yield from conditions(expression.part)
    else:
        for part in expression.parts:
            yield from conditions(part)

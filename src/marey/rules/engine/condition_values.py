"""The numbers behind conditions at one moment: each statistic and fact as one array, made once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marey.model.events import ClusterEventKind
from marey.model.times import MINUTE_MS
from marey.rules.engine.allocations import (
    EVENT_FACTS,
    AllocationLayout,
    AllocationRows,
    HeldGpu,
    RunningWorkload,
    gpu_type,
)
from marey.rules.engine.moment_statistics import MomentStatistics
from marey.rules.engine.three_valued import FALSE, TRUE, Truths, compare, negate
from marey.rules.language.expressions import (
    Aggregation,
    And,
    ComparisonGroup,
    Condition,
    Expression,
    Fact,
    Not,
    Over,
    Peers,
    Quantity,
    Series,
    TextValues,
)
from marey.rules.language.vocabulary import FACTS, FactKind
from marey.stats import groups

Floats = NDArray[np.float64]
_HOW = {
    Aggregation.MEDIAN: groups.MEDIAN,
    Aggregation.MEAN: groups.MEAN,
    Aggregation.MIN: groups.MIN,
    Aggregation.MAX: groups.MAX,
}
# A first sample later than this after the start means that the beginning was not seen.
MET_LATE_MS = 10 * MINUTE_MS
# Facts that are reported once, when they happen: whoever was not there then does not know them.
ONE_TIME_FACTS = frozenset([*EVENT_FACTS, "since_progress"])


@dataclass
class ConditionValues:
    """Statistics, facts and truths of every GPU under evaluation at ``time_ms``.

    ``now_ms`` stands in for the whole life where *violated now* is asked: a trailing window.
    """

    time_ms: int
    layout: AllocationLayout
    allocations: AllocationRows
    statistics: MomentStatistics
    newest_ms: int
    _series: dict[object, Floats] = field(default_factory=dict)
    _truths: dict[object, Truths] = field(default_factory=dict)
    _events: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] | None = None

    def concern(self, gpus: NDArray[np.bool_]) -> None:
        """Ask for the *now* of these GPUs too, from here on."""
        if self.statistics.concern(gpus):
            # What was worked out for fewer would be missing for the others.
            self._series.clear()
            self._truths.clear()

    def drop_values(self) -> ConditionValues:
        """Return the same moment without what was computed for it: 70 MB at 10,000 GPUs."""
        return ConditionValues(
            self.time_ms,
            self.layout,
            self.allocations,
            self.statistics.drop_values(),
            self.newest_ms,
        )

    # -- truth
    def truth(self, expression: Expression, now_ms: int | None = None) -> Truths:
        """Return the truth of an expression on every GPU."""
        if isinstance(expression, Condition):
            # The object first, then what it says: rules live longer than one moment's numbers.
            known = self._truths.get((id(expression), now_ms))
            if known is not None:
                return known
            window = now_ms if needs_now(expression) else None
            key = (expression, window)
            if key not in self._truths:
                self._truths[key] = self._check_condition(expression, window)
            self._truths[id(expression), now_ms] = self._truths[key]
            return self._truths[key]
        if isinstance(expression, Not):
            return negate(self.truth(expression.part, now_ms))
        both = isinstance(expression, And)
        join, settled = (np.minimum, FALSE) if both else (np.maximum, TRUE)
        # Cheap conditions first: where they settle it for every GPU, the rest is not computed.
        cheapest, *others = sorted(expression.parts, key=cost_of)
        result = self.truth(cheapest, now_ms)
        for part in others:
            if (result == settled).all():
                break
            result = join(result, self.truth(part, now_ms))
        return np.asarray(result, np.uint8)

    def _check_condition(self, condition: Condition, now_ms: int | None) -> Truths:
        left, right = condition.left, condition.right
        if isinstance(right, TextValues):
            return self._compare_text(left, condition.op, frozenset(right.words))
        return compare(self.left(left, now_ms), condition.op, self.right(condition, now_ms))

    def left(self, left: Series | Fact, now_ms: int | None = None) -> Floats:
        """Return the measured side of a condition, per GPU; NaN where it is not known."""
        if isinstance(left, Fact):
            return self.number(left, now_ms)
        return self.series(left, now_ms)

    def right(self, condition: Condition, now_ms: int | None = None) -> Floats | float:
        """Return the side that a condition compares with, per GPU."""
        right, left = condition.right, condition.left
        if isinstance(right, Quantity):
            return right.value
        if isinstance(right, Peers) and isinstance(left, Series):
            own = Series(left.metric, left.statistic, left.window_ms)
            if right.over.group is ComparisonGroup.LIFE:
                life = self.series(Series(left.metric, left.statistic))
                return right.factor * life + right.offset
            return (
                right.factor * self._divide_over(self.series(own, now_ms), right.over)
                + right.offset
            )
        raise ValueError(f"A condition was judged with its threshold unbound: {right}")

    # -- statistics
    def series(self, series: Series, now_ms: int | None = None) -> Floats:
        """Return a metric's statistic per GPU (or its group's, given to each of its GPUs)."""
        window = series.window_ms or now_ms
        key = (series, window)
        if key not in self._series:
            # *Now* stands in for the life: it may be asked of some only.
            everyone = now_ms is None or series.window_ms is not None
            plain = self.statistics.compute(
                series.metric, series.statistic, window, everyone=everyone
            )
            if series.window_ms:
                plain = np.where(self._check_filled(series.metric, series.window_ms), plain, np.nan)
            self._series[key] = self._divide_over(plain, series.over) if series.over else plain
        return self._series[key]

    def _check_filled(self, metric: str, window: int) -> NDArray[np.bool_]:
        """Return where a window that the rule names has been filled once.

        Before, it is not judged.
        """
        since = self.statistics.get_since_ms(metric)
        since = self.time_ms if since is None else since
        begun = np.maximum(self.allocations.from_ms[self.layout.rows], since)
        return np.asarray(self.time_ms - begun >= window)

    def _divide_over(self, values: Floats, over: Over) -> Floats:
        whole = over.group is ComparisonGroup.WORKLOAD
        first = self.layout.first if whole else self.layout.node_first
        place = self.layout.workload if whole else self.layout.node
        return groups.per_group(values, first, _HOW[over.by])[place]

    # -- facts
    def number(self, fact: Fact, now_ms: int | None = None) -> Floats:
        """Return a fact per GPU as a number (durations in ms)."""
        window = (fact.window_ms or now_ms) if FACTS[fact.name].windowed else None
        key = (fact.name, window)
        if key not in self._series:
            self._series[key] = self._compute_fact(fact.name, window)
        return self._series[key]

    def _compute_fact(self, name: str, window: int | None) -> Floats:
        if name in EVENT_FACTS:
            return self._count_events(EVENT_FACTS[name], window)
        if name == "runtime":
            return self._runtime()
        if name in _WORKLOAD_FACTS:
            take = _WORKLOAD_FACTS[name]
            values = np.array([_to_float(take(t, self.time_ms)) for t in self.layout.running])
            return values[self.layout.workload] if len(values) else np.zeros(0)
        if name == "since_sample":
            last = self.allocations.last_ms[self.layout.rows]
            # A GPU that was given back is not silent.
            until = np.minimum(self.newest_ms, self.allocations.to_ms[self.layout.rows])
            return np.where(last > 0, np.maximum(until - last, 0).astype(float), np.nan)
        if name in _COUNTS:
            return _COUNTS[name](self.layout)
        if name not in self.layout.gpu_facts:
            take_seat = _SEAT_FACTS[name]
            facts = [_to_float(take_seat(held_gpu)) for held_gpu in self._list_held_gpus()]
            self.layout.gpu_facts[name] = np.array(facts)
        return self.layout.gpu_facts[name]

    def _runtime(self) -> Floats:
        """Return how long the workload has run, or has been watched where it was met in the middle.

        A whole-life statistic speaks of what was seen; so must the time that a rule asks for.
        """
        starts, ends = self.layout.lives()
        if not len(starts):
            return starts
        seen = self.allocations.first_ms[self.layout.rows].astype(float)
        seen[seen == 0] = np.nan
        first = groups.per_group(seen, self.layout.first, groups.MIN)
        # The first sample of a workload met at its start comes one tick after it.
        unseen = np.where(first - starts > MET_LATE_MS, first - starts, 0.0)
        values = np.minimum(float(self.time_ms), ends) - starts
        watched: Floats = np.maximum(values - unseen, 0.0)[self.layout.workload]
        return watched

    def _list_held_gpus(self) -> list[HeldGpu]:
        return [
            held_gpu
            for row in self.layout.rows
            if (held_gpu := self.allocations.held_gpus[row]) is not None
        ]

    def _count_events(self, kind: ClusterEventKind, window: int | None) -> Floats:
        since = self.time_ms - window if window else 0
        if self._events is None:
            self._events = _group_events_by_kind(self.allocations.events)
        rows, times = self._events.get(kind, (_NONE, _NONE))
        mine = rows[(times > since) & (times <= self.time_ms)]
        counts = np.bincount(mine, minlength=len(self.allocations.from_ms)).astype(float)
        return counts[self.layout.rows]

    def _compare_text(self, left: Series | Fact, op: str, words: frozenset[str]) -> Truths:
        name = left.name if isinstance(left, Fact) else ""
        if name in ("gpu_type", "host"):
            texts = [gpu_type(s) if name == "gpu_type" else s.host for s in self._list_held_gpus()]
            held = {text: same_text(text, op, words) for text in set(texts)}
            return np.array([held[text] for text in texts], np.uint8)
        per_workload = np.array(
            [same_text(getattr(t.facts, name), op, words) for t in self.layout.running],
            np.uint8,
        )
        return per_workload[self.layout.workload] if len(per_workload) else per_workload


_NONE = np.zeros(0, np.int64)


def _group_events_by_kind(
    events: Mapping[int, Sequence[tuple[int, str]]],
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return rows and times of the events of each kind: made once for all rules of a moment."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row, noted in events.items():
        for time_ms, kind in noted:
            found[kind].append((row, time_ms))
    return {
        kind: (np.array([row for row, _ in pairs]), np.array([time for _, time in pairs]))
        for kind, pairs in found.items()
    }


def _compute_elapsed(later: int | None, earlier: int | None) -> float | None:
    return None if later is None or earlier is None else float(later - earlier)


def _runtime(running: RunningWorkload, now_ms: int) -> float | None:
    facts = running.facts
    end_ms = now_ms if facts.end_ms is None else min(now_ms, facts.end_ms)
    return _compute_elapsed(end_ms, facts.start_ms)


def _compute_remaining(running: RunningWorkload, now_ms: int) -> float | None:
    limit, runtime = running.facts.time_limit_s, _runtime(running, now_ms)
    return None if limit is None or runtime is None else 1000.0 * limit - runtime


_WORKLOAD_FACTS: dict[str, Callable[[RunningWorkload, int], float | None]] = {
    "waited": lambda t, now: _compute_elapsed(t.facts.start_ms or now, t.facts.submit_ms),
    "time_limit": lambda t, now: (
        None if t.facts.time_limit_s is None else 1e3 * t.facts.time_limit_s
    ),
    "remaining": _compute_remaining,
    "since_progress": lambda t, now: _compute_elapsed(now, t.progress_ms),
    "failures": lambda t, now: float(t.facts.failures),
}
_SEAT_FACTS: dict[str, Callable[[HeldGpu], float | None]] = {
    "global_rank": lambda held_gpu: held_gpu.global_rank,
    "local_rank": lambda held_gpu: held_gpu.local_rank,
    "share": lambda held_gpu: held_gpu.share,
    "gpu_memory": lambda held_gpu: held_gpu.memory_mib,
    "gpu_power_limit": lambda held_gpu: held_gpu.power_limit_w,
}


def _count_nodes(layout: AllocationLayout) -> Floats:
    owner = layout.workload[layout.node_first[:-1]]
    return np.bincount(owner, minlength=len(layout.running)).astype(float)[layout.workload]


_COUNTS: dict[str, Callable[[AllocationLayout], Floats]] = {
    "gpus": lambda layout: np.diff(layout.first).astype(float)[layout.workload],
    "gpus_on_node": lambda layout: np.diff(layout.node_first).astype(float)[layout.node],
    "nodes": _count_nodes,
}


def cost_of(expression: Expression) -> int:
    """Return how dear an expression is, for the order in which its like are judged."""
    if isinstance(expression, Not):
        return cost_of(expression.part)
    if not isinstance(expression, Condition):
        return sum(cost_of(part) for part in expression.parts)
    left = expression.left
    if isinstance(left, Fact):
        return 1
    binned = left.statistic.name in ("p", "share")
    return (4 if binned else 2) * (2 if left.window_ms else 1) + (left.over is not None)


def needs_now(condition: Condition) -> bool:
    """Return whether *now* differs from the whole life for this condition."""
    left = condition.left
    if left.window_ms:
        return False
    return isinstance(left, Series) or FACTS[left.name].windowed


def is_text(condition: Condition) -> bool:
    """Return whether the condition compares texts."""
    left = condition.left
    return isinstance(left, Fact) and FACTS[left.name].kind is FactKind.TEXT


def same_text(text: str, op: str, words: frozenset[str]) -> int:
    """Return whether a text is (or is not) one of these words."""
    # No project is a fact too: it is not project x.
    return TRUE if (text in words) == (op == "=") else FALSE


def _to_float(value: float | None) -> float:
    return np.nan if value is None else float(value)

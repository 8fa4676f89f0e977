"""Search combinations of changes for the shortest step within memory, time and what is allowed.

Candidates are compared by samples per time, so that a step that trains on fewer samples does not
win by being short. A beam search: single changes first, the best of them extended by one more,
until nothing gains any longer or the time is up. What is found so far is an answer at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from marey.model.errors import InvalidInput, MareyError, unknown
from marey.model.training.dataflow import Dataflow
from marey.replay.advice import describe_changes
from marey.replay.changes import read_changes
from marey.replay.device.device_run import DeviceRun, kernel_time
from marey.replay.families.data_parallel import DataParallel
from marey.replay.families.fully_sharded import keeps_parameters
from marey.replay.families.pipeline_parallel import Pipeline
from marey.replay.memory import predict_memory
from marey.replay.model import Prediction, ReplayModel
from marey.replay.recording.recorded import RecordedPrograms
from marey.replay.recording.workload import Workload

# Words that are tried unless the user says otherwise: none changes what is computed.
ALLOWED = (
    *("fix-rank", "overlap", "bucket", "sync", "servers", "schedule", "virtual-stages"),
    *("stages", "receives", "reshard", "launch", "loader", "fuse"),
)
# These change numbers, batches or memory against time: only when asked for.
ON_REQUEST = ("gradients", "accumulate", "recompute", "micro-batches")
BUCKETS_MB = (1, 2, 5, 10, 25, 50)
BEAM = 4
LONGEST = 4
# A longer combination must gain this share over a part of itself; less is noise.
WORTH = 0.01
# How much slower than usual a rank must be to be worth fixing.
SLOW_RANK = 1.05


@dataclass(frozen=True)
class Limits:
    """What a proposal must keep to."""

    memory_bytes: float | None = None
    allowed: tuple[str, ...] = ALLOWED
    budget_s: float = 30.0


@dataclass(frozen=True)
class StrategyProposal:
    """A strategy worth trying: what it gains, what it needs, how it is done."""

    prediction: Prediction
    # The largest peak of a rank above the start of a step, where the trace shows it.
    peak_bytes: int | None
    how: tuple[str, ...]


@dataclass(frozen=True)
class SearchResult:
    """What a search found: proposals, best first; none means nothing is worth changing."""

    proposals: tuple[StrategyProposal, ...]
    tried: int
    excluded_by_memory: int
    finished: bool


Progress = Callable[[int, float], None]


def search_changes(
    model: ReplayModel,
    dataflow: Dataflow,
    limits: Limits,
    *,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Return the best combinations of allowed changes."""
    _check_allowed(limits)
    search = _Search(model, dataflow, limits)
    until = clock() + limits.budget_s
    frontier: list[tuple[str, ...]] = [()]
    finished = True
    for _ in range(LONGEST):
        made = [c for base in frontier for c in search.extend(base)]
        for combination in dict.fromkeys(made):
            if cancelled() or clock() > until:
                finished = False
                break
            search.predict_combination(combination)
            if progress:
                progress(search.tried, search.best_ms())
        frontier = search.frontier(frontier)
        if not frontier or not finished:
            break
    return SearchResult(search.proposals(), search.tried, search.excluded, finished)


def _check_allowed(limits: Limits) -> None:
    for word in limits.allowed:
        if word not in (*ALLOWED, *ON_REQUEST):
            raise InvalidInput(unknown("change to allow", word, (*ALLOWED, *ON_REQUEST)))


class _Search:
    """What has been tried so far."""

    def __init__(self, model: ReplayModel, dataflow: Dataflow, limits: Limits) -> None:
        self.model, self.dataflow, self.limits = model, dataflow, limits
        self.words = list(_candidates(model.recorded.workload, limits.allowed))
        self.known: dict[tuple[str, ...], Prediction] = {}
        self.peaks: dict[tuple[str, ...], int | None] = {}
        self.tried = 0
        self.excluded = 0
        self.seen: set[tuple[str, ...]] = set()

    def extend(self, base: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Return the base with one more change of a word it does not have."""
        taken = {text.partition("=")[0] for group in base for text in group.split()}
        for group in self.words:
            if not taken & {text.partition("=")[0] for text in group.split()}:
                yield tuple(sorted((*base, group)))

    def predict_combination(self, combination: tuple[str, ...]) -> None:
        """Predict a combination, unless it is infeasible."""
        if combination in self.seen:
            return
        self.seen.add(combination)
        self.tried += 1
        texts = _texts(combination)
        try:
            peak = self._peak(texts)
            if self._too_large(peak):
                self.excluded += 1
                return
            self.known[combination] = self.model.predict(texts)
            self.peaks[combination] = peak
        except MareyError:
            return

    def _peak(self, texts: Sequence[str]) -> int | None:
        """Return the largest peak of the changed run, or None where the trace does not show it."""
        peaks = predict_memory(self.dataflow, self.model, texts)
        return None if peaks is None else max(peaks.values())

    def _too_large(self, peak: int | None) -> bool:
        """Return whether a peak is, or may be, beyond the limit."""
        limit = self.limits.memory_bytes
        return limit is not None and (peak is None or peak > limit)

    def best_ms(self) -> float:
        """Return the shortest step found so far."""
        times = [p.predicted_ms for p in self.known.values()]
        return min(times, default=self.model.base_ms)

    def frontier(self, before: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Return the best combinations that are longer than those before and gain by it."""
        long = len(before[0]) + 1
        mine = [c for c in self.known if len(c) == long and self._worth(c)]
        return sorted(mine, key=lambda c: -self.known[c].speedup)[:BEAM]

    def _worth(self, combination: tuple[str, ...]) -> bool:
        """Return whether a combination gains over the run and over every part of itself."""
        made = self.known[combination].speedup
        if made < 1 + WORTH:
            return False
        for n in range(len(combination)):
            part = combination[:n] + combination[n + 1 :]
            if part in self.known and made < self.known[part].speedup * (1 + WORTH):
                return False
        return True

    def proposals(self) -> tuple[StrategyProposal, ...]:
        """Return the combinations worth trying, best first."""
        worth = [c for c in self.known if self._worth(c)]
        worth.sort(key=lambda c: (-round(self.known[c].speedup, 6), len(c)))
        return tuple(
            StrategyProposal(
                self.known[c],
                self.peaks[c],
                tuple(describe_changes(read_changes(_texts(c)))),
            )
            for c in worth[:10]
        )


def _texts(combination: Sequence[str]) -> list[str]:
    return [text for group in combination for text in group.split()]


def _candidates(run: Workload, allowed: Sequence[str]) -> Iterator[str]:
    """Return every single change that is allowed and makes sense for this run.

    Changes that only make sense together are one text.
    """
    for text in _all_candidates(run):
        if all(part.partition("=")[0] in allowed for part in text.split()):
            yield text


def _all_candidates(run: Workload) -> Iterator[str]:
    yield from _slow_ranks(run)
    if isinstance(run.plan, DeviceRun):
        yield from ("launch=off", "loader=off", "overlap=on", "fuse=elementwise", "gradients=fp16")
        yield from (f"bucket={mb}MB" for mb in BUCKETS_MB)
        yield from ("reshard=off", "schedule=1f1b", "schedule=gpipe")
        yield from ("accumulate=2", "accumulate=4", "recompute=all")
        return
    if run.strategy == "parameter-server" and isinstance(run.plan, RecordedPrograms):
        counts = range(1, min(len(run.plan.ranks), 9))
        yield from (f"servers={n}" for n in counts if n != len(run.servers))
        yield from (f"sync=allreduce bucket={mb}MB" for mb in BUCKETS_MB)
    elif isinstance(run.plan, DataParallel):
        on = "" if run.plan.overlapped else "overlap=on "
        yield from (f"{on}bucket={mb}MB" for mb in BUCKETS_MB)
        yield from ("gradients=fp16", "accumulate=2", "accumulate=4", "recompute=off")
    elif isinstance(run.plan, Pipeline):
        yield from _pipeline_candidates(run.plan)
    elif run.strategy == "sharded" and isinstance(run.plan, RecordedPrograms):
        yield "reshard=on" if keeps_parameters(run.plan) else "reshard=off"


def _slow_ranks(run: Workload) -> Iterator[str]:
    """Return a fix for ranks whose running time is well above the usual one."""
    if isinstance(run.plan, DeviceRun):
        times = kernel_time(run.plan)
    elif run.strategy in ("data-parallel", "sharded"):
        times = {rank: min(s.run_ms for s in steps) for rank, steps in run.timelines.items()}
    else:
        return
    usual = sorted(times.values())[len(times) // 2]
    slow = [rank for rank, ms in times.items() if ms > SLOW_RANK * usual]
    if slow and len(slow) < len(times):
        yield "fix-rank=" + ",".join(map(str, sorted(slow)))


def _pipeline_candidates(plan: Pipeline) -> Iterator[str]:
    if plan.virtual == 1:
        balanced = ",".join(map(str, balance_layers(plan)))
        if balanced != ",".join(map(str, plan.spread)):
            yield f"stages={balanced}"
    for name in ("gpipe", "1f1b"):
        if name != plan.schedule:
            yield f"schedule={name}"
    for virtual in (2, 4):
        if len(plan.layers) % (virtual * len(plan.ranks)) == 0 and plan.virtual != virtual:
            yield f"schedule=interleaved virtual-stages={virtual}"
    yield from (f"micro-batches={plan.micro_batches * n}" for n in (2, 4))


def balance_layers(plan: Pipeline) -> tuple[int, ...]:
    """Return how many layers each stage gets if the slowest stage is to be as fast as possible."""
    costs = [layer.forward.at(1.0) + layer.backward.at(1.0) for layer in plan.layers]
    stages = plan.shape.stages
    low, high = max(costs), sum(costs)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_fill_below(costs, middle)) <= stages else (middle, high)
    counts = _fill_below(costs, high)
    while len(counts) < stages:
        largest = counts.index(max(counts))
        counts[largest : largest + 1] = [
            counts[largest] - counts[largest] // 2,
            counts[largest] // 2,
        ]
    return tuple(counts)


def _fill_below(costs: Sequence[float], limit: float) -> list[int]:
    """Return how many neighbours in turn fit below a limit."""
    counts, total = [0], 0.0
    for cost in costs:
        if counts[-1] and total + cost > limit * (1 + 1e-9):
            counts.append(0)
            total = 0.0
        counts[-1] += 1
        total += cost
    return counts

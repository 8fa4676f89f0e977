"""One workload's metrics as a matrix: a row per GPU, a column per moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, unknown
from marey.model.events import Event
from marey.model.samples import SampleBatch
from marey.model.workloads import Progress

Matrix = NDArray[np.float32]
Moments = NDArray[np.float32]
# A week of minutes, or a day at ten seconds: beyond it the grid is made coarser.
MOST_MOMENTS = 12_000
# Values held at once, 240 MB of them: a larger window is looked at in coarser steps.
MOST_VALUES = 60_000_000
SHOWS_INTERVAL = 8
# So many rows usually hold these moments of every GPU.
SHOWS_INTERVAL_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What is known of a GPU of the workload besides its samples."""

    gpu: str
    host: str
    index: int
    global_rank: int | None = None
    local_rank: int | None = None
    model: str = ""
    power_limit_w: float | None = None
    memory_mib: float | None = None
    # When this GPU came to the workload and left it; None means with the workload itself.
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """What is known of the workload besides its samples."""

    workload: str
    name: str = ""
    user: str = ""
    project: str = ""
    partition: str = ""
    state: str = ""
    submit_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    exit_code: int | None = None
    # What the scheduler says beside the state: why it waits, or why it ended.
    reason: str = ""
    time_limit_s: int | None = None
    gpus_requested: int = 0
    # Where it ran, as far as that is known without its GPUs.
    nodes: tuple[str, ...] = ()
    # When it is looked at, and the end of the window asked for (None = its whole life).
    now_ms: int | None = None
    until_ms: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkloadMatrix:
    """Everything that the analyses look at, on one grid of time; NaN means no sample."""

    facts: WorkloadFacts
    gpus: tuple[GpuFacts, ...]
    time_ms: NDArray[np.int64]
    step_ms: int
    columns: Mapping[str, Matrix]
    hosts: tuple[str, ...] = ()
    host_columns: Mapping[str, Matrix] = field(default_factory=dict)
    progress: tuple[Progress, ...] = ()
    events: tuple[Event, ...] = ()
    # Where a step of the grid holds several samples: per metric the least and the greatest of
    # all GPUs and samples of every step, so that no extreme is lost.
    extremes: Mapping[str, tuple[Moments, Moments]] = field(default_factory=dict)

    @property
    def coarse(self) -> bool:
        """Return whether a step of the grid holds several samples, of which the last is kept."""
        return bool(self.extremes)

    @property
    def names(self) -> list[str]:
        """The GPUs' ids, in the order of the rows."""
        return [gpu.gpu for gpu in self.gpus]

    @property
    def host_of(self) -> NDArray[np.int32]:
        """For each GPU the row of its host in ``hosts``."""
        place = {host: i for i, host in enumerate(self.hosts)}
        return np.array([place[gpu.host] for gpu in self.gpus], np.int32)

    def between(self, from_ms: int, to_ms: int) -> WorkloadMatrix:
        """Return the same workload within a window."""
        first, last = np.searchsorted(self.time_ms, [from_ms, to_ms])
        span = slice(int(first), int(last))
        return WorkloadMatrix(
            facts=self.facts,
            gpus=self.gpus,
            time_ms=self.time_ms[span],
            step_ms=self.step_ms,
            columns={name: values[:, span] for name, values in self.columns.items()},
            hosts=self.hosts,
            host_columns={name: values[:, span] for name, values in self.host_columns.items()},
            progress=tuple(p for p in self.progress if from_ms <= p.time_ms < to_ms),
            events=tuple(e for e in self.events if from_ms <= e.time_ms < to_ms),
            extremes={name: (low[span], high[span]) for name, (low, high) in self.extremes.items()},
        )


@dataclass(frozen=True, slots=True)
class Context:
    """What a workload's samples stand in: facts, GPUs in rank order, progress, events."""

    facts: WorkloadFacts
    gpus: Sequence[GpuFacts]
    progress: Sequence[Progress] = ()
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class GridLimits:
    """How fine the grid of time may be."""

    moments: int = MOST_MOMENTS
    values: int = MOST_VALUES


def build_matrix(
    context: Context,
    batches: Iterable[SampleBatch],
    host_batches: Iterable[SampleBatch] = (),
    *,
    until_ms: int | None = None,
    limits: GridLimits | None = None,
) -> WorkloadMatrix:
    """Lay batches of samples on one grid; the step is the samples' own most common interval.

    With ``until_ms``, the end of the window, batches in order of time are taken one by one and
    none is kept: memory is that of the matrix, whatever the window holds.
    """
    rows = {gpu.gpu: i for i, gpu in enumerate(context.gpus)}
    table = Grid.over(batches, rows, until_ms, limits or GridLimits())
    hosts = tuple(sorted({gpu.host for gpu in context.gpus}))
    places = {host: i for i, host in enumerate(hosts)}
    beside = replace(table, rows=places, columns={}, extremes={}, coarse=False)
    for batch in host_batches:
        beside.lay(batch)
    span = slice(*table.held())
    return WorkloadMatrix(
        facts=context.facts,
        gpus=tuple(context.gpus),
        time_ms=table.time_ms[span],
        step_ms=table.step_ms,
        columns={
            name: np.ascontiguousarray(values[:, span]) for name, values in table.columns.items()
        },
        hosts=hosts,
        host_columns={
            name: values[:, span] for name, values in _spread_columns(beside.columns).items()
        },
        progress=tuple(context.progress),
        events=tuple(context.events),
        extremes={name: (low[span], high[span]) for name, (low, high) in table.extremes.items()},
    )


@dataclass(slots=True)
class Grid:
    """A grid of time that samples are laid on, one batch after another."""

    rows: Mapping[str, int]
    time_ms: NDArray[np.int64]
    step_ms: int
    # Whether a step may hold several samples of one GPU.
    coarse: bool = False
    columns: dict[str, Matrix] = field(default_factory=dict)
    extremes: dict[str, tuple[Moments, Moments]] = field(default_factory=dict)

    @classmethod
    def over(
        cls,
        batches: Iterable[SampleBatch],
        rows: Mapping[str, int],
        until_ms: int | None,
        limits: GridLimits,
    ) -> Grid:
        """Return the samples on a grid that is as fine as they are, within the limits."""
        waiting = (batch for batch in batches if len(batch))
        known = []
        for batch in waiting:
            known.append(batch)
            # A few moments show the interval; the rest is laid as it comes.
            if until_ms is not None and _count_moments(batch.time_ms) >= SHOWS_INTERVAL:
                break
        if not known:
            return cls(rows, np.zeros(0, np.int64), 1)
        first = min(int(batch.time_ms.min()) for batch in known)
        last = max(max(int(batch.time_ms.max()) for batch in known), (until_ms or 0) - 1)
        own = _find_interval(known)
        metrics = len({name for batch in known for name in batch.columns})
        cells = max(1, metrics) * max(1, len(rows))
        moments = max(1, min(limits.moments, limits.values // cells))
        step = max(own, -(-(last - first) // moments))
        grid = np.arange(first, last + 1, step, dtype=np.int64)
        laid = cls(rows, grid, step, coarse=step > own)
        while known:
            laid.lay(known.pop(0))
        for batch in waiting:
            laid.lay(batch)
        return laid

    def lay(self, batch: SampleBatch) -> None:
        """Put a batch's samples where they belong; a later one of a step replaces."""
        if not len(self.time_ms):
            return
        place = np.array([self.rows.get(name, -1) for name in batch.entities], np.int32)
        row = place[batch.entity]
        at = (batch.time_ms - self.time_ms[0]) // self.step_ms
        good = (row >= 0) & (at >= 0) & (at < len(self.time_ms))
        cell = row * np.int64(len(self.time_ms)) + at
        for metric, values in batch.columns.items():
            known = good & ~np.isnan(values)
            if not known.any():
                continue
            if metric not in self.columns:
                self.columns[metric] = np.full(
                    (len(self.rows), len(self.time_ms)), np.nan, np.float32
                )
            # Mostly nothing is missing, and nothing need be picked.
            kept: slice | NDArray[np.bool_] = slice(None) if known.all() else known
            self.columns[metric].reshape(-1)[cell[kept]] = values[kept]
            if self.coarse:
                self._note_extremes(metric, at[kept], values[kept])

    def _note_extremes(
        self, metric: str, at: NDArray[np.int64], values: NDArray[np.float32]
    ) -> None:
        if metric not in self.extremes:
            none = np.full(len(self.time_ms), np.nan, np.float32)
            self.extremes[metric] = (none, none.copy())
        low, high = self.extremes[metric]
        # Samples come in order of time: those of a step lie together.
        order = at.argsort(kind="stable")
        at, values = at[order], values[order]
        first = np.flatnonzero(np.diff(at, prepend=-1))
        low[at[first]] = np.fmin(low[at[first]], np.minimum.reduceat(values, first))
        high[at[first]] = np.fmax(high[at[first]], np.maximum.reduceat(values, first))

    def held(self) -> tuple[int, int]:
        """Return the columns from the first to the last that holds a sample, half-open."""
        some = np.zeros(len(self.time_ms), bool)
        for values in self.columns.values():
            some |= ~np.isnan(values).all(axis=0)
        held = np.flatnonzero(some)
        return (int(held[0]), int(held[-1]) + 1) if len(held) else (0, len(self.time_ms))


def _count_moments(times: NDArray[np.int64]) -> int:
    """Return how many moments there are in times that are in order."""
    return 1 + int(np.count_nonzero(times[1:] != times[:-1])) if len(times) else 0


def _find_interval(batches: Sequence[SampleBatch]) -> int:
    """Return how often one GPU is sampled: hosts answer at different seconds, so look at one."""
    alike = [batch for batch in batches if batch.entities is batches[0].entities]
    for most in (SHOWS_INTERVAL_ROWS, None):
        entity = np.concatenate([batch.entity[:most] for batch in alike])
        times = np.concatenate([batch.time_ms[:most] for batch in alike])
        own = np.unique(times[entity == np.bincount(np.maximum(entity, 0)).argmax()])
        if len(own) >= SHOWS_INTERVAL:
            break
    gaps = np.diff(own)
    return max(1, int(np.median(gaps))) if len(gaps) else 60_000


def _spread_columns(columns: dict[str, Matrix]) -> dict[str, Matrix]:
    """Carry each value of a host metric on until the next one, because they come less often."""
    spread: dict[str, Matrix] = {}
    for metric, values in columns.items():
        known = ~np.isnan(values)
        at = np.where(known, np.arange(values.shape[1])[None, :], 0)
        np.maximum.accumulate(at, axis=1, out=at)
        spread[metric] = np.take_along_axis(values, at, axis=1)
    return spread


def refuse_metric(matrix: WorkloadMatrix, metric: str) -> InvalidInput:
    """Return the error for a metric that this workload does not have."""
    if not matrix.columns:
        return InvalidInput("This workload has no samples in this window.")
    return InvalidInput(unknown("metric of this workload", metric, matrix.columns))

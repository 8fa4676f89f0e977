"""One workload's metrics as a matrix: a row per GPU, a column per moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.events import Event
from marey.model.samples import SampleBatch
from marey.model.workloads import Progress

Matrix = NDArray[np.float32]
# A week of minutes, or a day at ten seconds: beyond it the grid is made coarser.
MOST_MOMENTS = 12_000


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
        """The same workload within a window."""
        first, last = np.searchsorted(self.time_ms, [from_ms, to_ms])
        span = slice(int(first), int(last))
        return WorkloadMatrix(
            self.facts,
            self.gpus,
            self.time_ms[span],
            self.step_ms,
            {name: values[:, span] for name, values in self.columns.items()},
            self.hosts,
            {name: values[:, span] for name, values in self.host_columns.items()},
            tuple(p for p in self.progress if from_ms <= p.time_ms < to_ms),
            tuple(e for e in self.events if from_ms <= e.time_ms < to_ms),
        )


@dataclass(frozen=True, slots=True)
class Context:
    """What a workload's samples stand in: facts, GPUs in rank order, progress, events."""

    facts: WorkloadFacts
    gpus: Sequence[GpuFacts]
    progress: Sequence[Progress] = ()
    events: Sequence[Event] = ()


def build_matrix(
    context: Context,
    batches: Iterable[SampleBatch],
    host_batches: Iterable[SampleBatch] = (),
) -> WorkloadMatrix:
    """Lay batches of samples on one grid; the step is the samples' own most common interval."""
    if not context.gpus:
        raise InvalidInput(
            f"Workload '{context.facts.workload}' holds no GPU; nothing to diagnose."
        )
    collected = [batch for batch in batches if len(batch)]
    rows = {gpu.gpu: i for i, gpu in enumerate(context.gpus)}
    grid, step = _grid(collected)
    hosts = tuple(sorted({gpu.host for gpu in context.gpus}))
    host_rows = {host: i for i, host in enumerate(hosts)}
    return WorkloadMatrix(
        facts=context.facts,
        gpus=tuple(context.gpus),
        time_ms=grid,
        step_ms=step,
        columns=_lay(collected, rows, grid, step),
        hosts=hosts,
        host_columns=_spread(_lay([b for b in host_batches if len(b)], host_rows, grid, step)),
        progress=tuple(context.progress),
        events=tuple(context.events),
    )


def _grid(batches: Sequence[SampleBatch]) -> tuple[NDArray[np.int64], int]:
    if not batches:
        return np.zeros(0, np.int64), 1
    moments = np.unique(np.concatenate([np.unique(batch.time_ms) for batch in batches]))
    step = _interval(batches)
    first, last = int(moments[0]), int(moments[-1])
    step = max(step, -(-(last - first) // MOST_MOMENTS))
    return np.arange(first, last + step, step, dtype=np.int64)[: (last - first) // step + 1], step


def _interval(batches: Sequence[SampleBatch]) -> int:
    """How often one GPU is sampled: hosts answer at different seconds, so look at one."""
    entity = np.concatenate([b.entity for b in batches if b.entities is batches[0].entities])
    times = np.concatenate([b.time_ms for b in batches if b.entities is batches[0].entities])
    own = np.unique(times[entity == np.bincount(np.maximum(entity, 0)).argmax()])
    gaps = np.diff(own)
    return max(1, int(np.median(gaps))) if len(gaps) else 60_000


def _lay(
    batches: Sequence[SampleBatch], rows: Mapping[str, int], grid: NDArray[np.int64], step: int
) -> dict[str, Matrix]:
    columns: dict[str, Matrix] = {}
    for batch in batches:
        place = np.array([rows.get(name, -1) for name in batch.entities], np.int32)
        row = place[batch.entity]
        at = (batch.time_ms - (grid[0] if len(grid) else 0)) // step
        good = (row >= 0) & (at >= 0) & (at < len(grid))
        for metric, values in batch.columns.items():
            if metric not in columns:
                columns[metric] = np.full((len(rows), len(grid)), np.nan, np.float32)
            known = good & ~np.isnan(values)
            columns[metric][row[known], at[known]] = values[known]
    return {metric: values for metric, values in columns.items() if not np.isnan(values).all()}


def _spread(columns: dict[str, Matrix]) -> dict[str, Matrix]:
    """Host metrics come less often: carry each value on until the next one."""
    spread: dict[str, Matrix] = {}
    for metric, values in columns.items():
        known = ~np.isnan(values)
        at = np.where(known, np.arange(values.shape[1])[None, :], 0)
        np.maximum.accumulate(at, axis=1, out=at)
        spread[metric] = np.take_along_axis(values, at, axis=1)
    return spread

"""What the judges look at: the workload's metrics cut into blocks of a few minutes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.matrix import Matrix, WorkloadMatrix
from marey.model.times import MINUTE_MS
from marey.stats.row_shapes import median_along

Flags = NDArray[np.bool_]
BLOCK_MS = 5 * MINUTE_MS
# Below this utilization a GPU counts as doing nothing at that moment.
IDLE_UTIL = 5.0


@dataclass(frozen=True)
class Signals:
    """A matrix with what several judges need of it, each computed once."""

    matrix: WorkloadMatrix

    @property
    def count(self) -> int:
        """How many GPUs."""
        return len(self.matrix.gpus)

    @cached_property
    def host_of(self) -> NDArray[np.int32]:
        """For each GPU the row of its host."""
        return self.matrix.host_of

    @cached_property
    def reported(self) -> Flags:
        """For each GPU and moment whether there is a sample."""
        first = next(iter(self.matrix.columns.values()))
        return np.asarray(~np.isnan(first))

    @cached_property
    def reports(self) -> NDArray[np.int64]:
        """How many GPUs have a sample, per moment."""
        return np.asarray(self.reported.sum(axis=0))

    @cached_property
    def per_block(self) -> int:
        """Columns in a block."""
        return max(1, round(BLOCK_MS / self.matrix.step_ms))

    @cached_property
    def begin(self) -> int:
        """The first column after initialisation: work has begun on some GPU."""
        util = self.matrix.columns.get("util")
        if util is None:
            return 0
        busy = np.flatnonzero(_ignore_warnings(np.nanmax, util, 0) >= 30.0)
        return int(busy[0]) if len(busy) else 0

    @cached_property
    def blocks(self) -> int:
        """How many whole blocks there are after the beginning (at least one)."""
        return max(1, (len(self.matrix.time_ms) - self.begin) // self.per_block)

    def has(self, *metrics: str) -> bool:
        """Return whether the workload has samples of all of these."""
        return all(metric in self.matrix.columns for metric in metrics)

    def after_start(self, metric: str) -> Matrix:
        """Return the metric from the beginning of work on."""
        return self.matrix.columns[metric][:, self.begin :]

    def by_block(self, metric: str) -> NDArray[np.float64]:
        """Return median per GPU and block: short pauses for evaluation and checkpoints drop out."""
        values = self.after_start(metric)[:, : self.blocks * self.per_block]
        if values.shape[1] < self.per_block:
            return median_along(values, 1)[:, None]
        shaped = values.reshape(len(values), self.blocks, self.per_block)
        return median_along(shaped, 2)

    def common_by_block(self, metric: str) -> NDArray[np.float64]:
        """Return the values that all GPUs in use have in common, per block; computed once."""
        known = self._common.get(metric)
        if known is None:
            known = quiet_median(self.by_block(metric)[~self.idle_rows], 0)
            self._common[metric] = known
        return known

    @cached_property
    def _common(self) -> dict[str, NDArray[np.float64]]:
        return {}

    def columns_of(self, first_block: int, last_block: int) -> tuple[int, int]:
        """Return the columns of blocks ``[first, last)``; the last one reaches to the end."""
        end = len(self.matrix.time_ms)
        to = end if last_block >= self.blocks else self.begin + last_block * self.per_block
        return self.begin + first_block * self.per_block, max(to, 1)

    @cached_property
    def idle_rows(self) -> Flags:
        """GPUs that have never done work, where others have."""
        if not self.has("util"):
            return np.zeros(self.count, bool)
        util = self.after_start("util")
        known = ~np.isnan(util)
        busy = ((util >= IDLE_UTIL) & known).sum(axis=1) / np.maximum(1, known.sum(axis=1))
        idle = (busy <= 0.01) & known.any(axis=1)
        working = busy >= 0.15
        return idle if working.any() and idle.any() else np.zeros(self.count, bool)

    @cached_property
    def power_share(self) -> Matrix | None:
        """Power above the idle draw as a share of what the GPU may draw above it."""
        power = self.matrix.columns.get("power")
        if power is None:
            return None
        limits = np.array([g.power_limit_w or np.nan for g in self.matrix.gpus], np.float32)
        top = np.where(np.isnan(limits), _ignore_warnings(np.nanmax, power, 1), limits)
        idle = self.idle_draw_w
        return np.asarray((power - idle) / np.maximum(top[:, None] - idle, 1.0), np.float32)

    @cached_property
    def idle_draw_w(self) -> float:
        """What these GPUs draw doing nothing: seen before the work began, else a sixth."""
        power = self.matrix.columns["power"]
        util = self.matrix.columns.get("util")
        if util is not None:
            quiet = power[(util < 1.0) & ~np.isnan(power)]
            if len(quiet) >= 3:
                return float(np.percentile(quiet, 20))
        limits = [g.power_limit_w for g in self.matrix.gpus if g.power_limit_w]
        return min(limits) / 6.0 if limits else float(_ignore_warnings(np.nanmin, power, None))

    @property
    def knows_limits(self) -> bool:
        """Return whether the power limit of every GPU is known."""
        return all(gpu.power_limit_w for gpu in self.matrix.gpus)


def runs(flags: Flags, least: int) -> list[tuple[int, int]]:
    """Return half-open spans of at least ``least`` consecutive true values."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True) if b - a >= least]


def quiet_median(values: NDArray[Any], axis: int | None = None) -> NDArray[np.float64]:
    """Return a median in which missing values do not take part; NaN where all are missing."""
    if axis is None:
        return median_along(np.ravel(values), 0)
    return median_along(values, axis)


def quiet_mean(values: NDArray[Any], axis: int) -> NDArray[np.float64]:
    """Return a mean in which missing values do not take part; NaN where all are missing."""
    return _ignore_warnings(np.nanmean, values, axis)


def _ignore_warnings(
    function: Callable[..., Any], values: NDArray[Any], axis: int | None
) -> NDArray[np.float64]:
    with warnings.catch_warnings():
        # An all-missing row gives NaN, which is what is wanted.
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(function(values, axis=axis))

"""The figures of one training run: throughput, step time, memory, loss, cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.training.run_series import RunSeries

# The first tenth of a run warms up (caches, compilation, autotuning) and does not count.
WARM_UP = 0.1
MS_PER_HOUR = 3_600_000.0
# A loss is judged by the mean of so many reports around it: single batches are noisy.
SMOOTHED_REPORTS = 5

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RunFigures:
    """What one run amounts to; None where nothing says it."""

    throughput: float | None
    step_ms: float | None
    peak_memory_bytes: float | None
    communication_share: float | None
    final_loss: float | None
    hours_to_loss: float | None
    samples_to_loss: float | None
    gpu_hours_to_loss: float | None
    hours: float | None


def compute_figures(run: RunSeries, loss: float | None = None) -> RunFigures:
    """Reduce a run; ``loss`` is the loss whose cost is asked for."""
    hours = _hours(run)
    reached = find_loss(run, loss)
    to_loss = None if reached is None else _hours_until(run, reached)
    samples = None if reached is None else _select_known(run.samples, reached)
    gpu_hours = None if to_loss is None or run.gpus is None else to_loss * run.gpus
    return RunFigures(
        throughput=compute_throughput(run),
        step_ms=compute_step_ms(run),
        peak_memory_bytes=run.peak_memory_bytes,
        communication_share=run.communication_share,
        final_loss=_final_loss(run),
        hours_to_loss=to_loss,
        samples_to_loss=samples,
        gpu_hours_to_loss=gpu_hours,
        hours=hours,
    )


def compute_throughput(run: RunSeries) -> float | None:
    """Return the mean rate after the warm-up: as reported, else samples over time."""
    reported = _steady(run.throughput)
    if len(reported):
        return float(reported.mean())
    if len(run.samples) < 2 or len(run.time_ms) != len(run.samples):
        return None
    first = int(len(run.samples) * WARM_UP)
    seconds = (run.time_ms[-1] - run.time_ms[first]) / 1000
    done = run.samples[-1] - run.samples[first]
    return float(done / seconds) if seconds > 0 and done > 0 else None


def compute_step_ms(run: RunSeries) -> float | None:
    """Return the median step after the warm-up: as measured, else from steps and times."""
    measured = _steady(run.step_ms)
    if len(measured):
        return float(np.median(measured))
    if len(run.step) < 3 or len(run.time_ms) != len(run.step):
        return None
    steps, times = np.diff(run.step), np.diff(run.time_ms)
    good = steps > 0
    per_step = _steady(times[good] / steps[good])
    return float(np.median(per_step)) if len(per_step) else None


def _steady(values: Floats) -> Floats:
    """Return the known values without the warm-up."""
    known = values[int(len(values) * WARM_UP) :]
    return known[np.isfinite(known)]


def smooth_loss(run: RunSeries) -> Floats:
    """Return the running mean of the last reports; NaN where none has a loss."""
    known = np.isfinite(run.loss)
    filled = np.where(known, run.loss, 0.0)
    sums = np.cumsum(np.concatenate([[0.0], filled]))
    counts = np.cumsum(np.concatenate([[0], known]))
    at = np.arange(1, len(run.loss) + 1)
    before = np.maximum(at - SMOOTHED_REPORTS, 0)
    count = counts[at] - counts[before]
    return np.where(count > 0, (sums[at] - sums[before]) / np.maximum(count, 1), np.nan)


def find_loss(run: RunSeries, loss: float | None) -> int | None:
    """Return the first report whose smoothed loss is at most this.

    None if none is, and if the first known one is already: what it cost before is not known.
    """
    if loss is None or not len(run.loss):
        return None
    smooth = smooth_loss(run)
    reached = np.flatnonzero(smooth <= loss)
    first = np.flatnonzero(np.isfinite(smooth))[:1]
    return int(reached[0]) if len(reached) and reached[0] > first[0] else None


def _final_loss(run: RunSeries) -> float | None:
    smooth = smooth_loss(run)
    known = smooth[np.isfinite(smooth)]
    return float(known[-1]) if len(known) else None


def _hours(run: RunSeries) -> float | None:
    return float(run.time_ms[-1] - run.time_ms[0]) / MS_PER_HOUR if len(run.time_ms) > 1 else None


def _hours_until(run: RunSeries, report: int) -> float | None:
    if len(run.time_ms) <= report:
        return None
    return float(run.time_ms[report] - run.time_ms[0]) / MS_PER_HOUR


def _select_known(values: Floats, at: int) -> float | None:
    return float(values[at]) if at < len(values) and np.isfinite(values[at]) else None

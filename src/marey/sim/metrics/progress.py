"""Progress: what training scripts report of themselves, as a function of time alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.model.workloads import Progress
from marey.sim.metrics import sample_kernels as k
from marey.sim.metrics.gpu_state import Regime
from marey.sim.metrics.sample_kernels import Doubles, Ints, signed, within
from marey.sim.scheduling.jobs import FIRST_ID, Job, Kind

REPORT_MS, REPORT_SMALL_MS = 60_000, 300_000

(
    SEQ,
    FROM_MS,
    TO_MS,
    EVERY_MS,
    START_MS,
    WARM_MS,
    PERIOD_MS,
    PAUSE_MS,
    STEP_MS,
    STEPS_BEFORE,
    RATE,
    THROUGHPUT,
    LOSS_FIRST,
    LOSS_LAST,
    KEY,
) = range(15)
TRACK_COLUMNS = 15
FOREVER_MS = 9.0e15


@njit(cache=True, nogil=True)
def trained_ms(track: Doubles, time_ms: float) -> float:
    """Return time spent in training steps up to this moment, pauses taken out."""
    x: float = time_ms - track[START_MS] - track[WARM_MS]
    if x <= 0.0:
        return 0.0
    if track[PAUSE_MS] <= 0.0:
        return x
    return x - within(x, track[PERIOD_MS], track[PAUSE_MS])


@njit(cache=True, nogil=True)
def steps_at(track: Doubles, time_ms: float) -> float:
    """Return how many steps have been made by this moment."""
    since = trained_ms(track, time_ms) - trained_ms(track, track[FROM_MS])
    steps: float = track[STEPS_BEFORE] + since * track[RATE] / track[STEP_MS]
    return steps


@njit(cache=True, nogil=True)
def report(
    rows: Ints,
    tracks: Doubles,
    after_ms: float,
    until_ms: float,
    seq: Ints,
    time: Ints,
    step: Ints,
    throughput: Doubles,
    loss: Doubles,
) -> int:
    """Write every report in (after, until] and return how many; with empty arrays only count."""
    count = 0
    room = len(seq)
    for i in range(len(rows)):
        track = tracks[rows[i]]
        every = track[EVERY_MS]
        low = max(after_ms, track[FROM_MS], track[START_MS] + track[WARM_MS])
        high = min(until_ms, track[TO_MS])
        n = np.floor((low - track[START_MS]) / every) + 1.0
        while track[START_MS] + n * every <= high:
            if count < room:
                t = track[START_MS] + n * every
                made = np.floor(steps_at(track, t))
                key = np.uint64(track[KEY])
                seq[count] = np.int64(track[SEQ])
                time[count] = np.int64(t)
                step[count] = np.int64(made)
                wobble = 1.0 + 0.02 * signed(key, np.int64(n))
                throughput[count] = (
                    np.floor(track[THROUGHPUT] * track[RATE] * wobble * 100.0) / 100.0
                )
                fallen = (1.0 + made / 200.0) ** -0.35
                value = track[LOSS_LAST] + (track[LOSS_FIRST] - track[LOSS_LAST]) * fallen
                value *= 1.0 + 0.015 * signed(key + np.uint64(5), np.int64(n))
                loss[count] = np.floor(value * 10_000.0) / 10_000.0
            count += 1
            n += 1.0
    return count


@dataclass(frozen=True, slots=True)
class ProgressColumns:
    """Progress of many workloads as columns."""

    seq: NDArray[np.int64]
    time_ms: NDArray[np.int64]
    step: NDArray[np.int64]
    throughput: NDArray[np.float64]
    loss: NDArray[np.float64]
    units: dict[int, str]

    def records(self) -> tuple[Progress, ...]:
        """Return the same as records."""
        return tuple(
            Progress(
                workload=str(FIRST_ID + seq),
                time_ms=time,
                step=step,
                throughput=throughput,
                unit=self.units[seq],
                loss=loss,
            )
            for seq, time, step, throughput, loss in zip(
                self.seq.tolist(),
                self.time_ms.tolist(),
                self.step.tolist(),
                self.throughput.tolist(),
                self.loss.tolist(),
                strict=True,
            )
        )


class ProgressTracks:
    """The progress of everything that trains, and of what ended since the last reports."""

    def __init__(self) -> None:
        self._tracks = np.zeros((256, TRACK_COLUMNS))
        self._used = np.zeros(256, np.bool_)
        self._free = list(range(255, -1, -1))
        self._ended: list[int] = []
        self._units: dict[int, str] = {}
        self._rows: dict[int, int] = {}

    def begin(self, job: Job, regime: Regime, time_ms: int, speed: float) -> None:
        """Train the workload at its regime's rate from now on."""
        if job.kind is not Kind.TRAIN:
            return
        before = self._steps(job.seq, time_ms)
        self.end(job.seq, time_ms)
        if regime.rate <= 0.0:
            return
        role = regime.roles[0]
        track = np.zeros(TRACK_COLUMNS)
        track[SEQ] = job.seq
        track[FROM_MS], track[TO_MS] = time_ms, FOREVER_MS
        track[EVERY_MS] = REPORT_MS if job.gpus >= 8 else REPORT_SMALL_MS
        track[START_MS] = role[k.START_MS]
        track[WARM_MS] = role[k.INIT_MS] + role[k.LOAD_MS]
        track[PAUSE_MS] = role[k.EVAL_MS] + role[k.CHECKPOINT_MS]
        track[PERIOD_MS] = role[k.TRAIN_MS] + track[PAUSE_MS]
        track[STEP_MS] = job.recipe.step_s * 1000.0
        track[STEPS_BEFORE] = before
        track[RATE] = regime.rate
        track[THROUGHPUT] = job.recipe.rate * job.gpus * speed
        track[LOSS_FIRST], track[LOSS_LAST] = job.recipe.loss
        track[KEY] = float(int(role[k.KEY]) ^ 0x5555)
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._tracks[row] = track
        self._used[row] = True
        self._rows[job.seq] = row
        self._units[job.seq] = job.recipe.unit

    def _steps(self, seq: int, time_ms: int) -> float:
        row = self._rows.get(seq)
        return 0.0 if row is None else float(steps_at(self._tracks[row], float(time_ms)))

    def end(self, seq: int, time_ms: int) -> None:
        """Report nothing of the workload after this moment."""
        row = self._rows.pop(seq, None)
        if row is not None:
            self._tracks[row, TO_MS] = time_ms
            self._ended.append(row)

    def _grow(self) -> None:
        size = len(self._tracks)
        self._tracks = np.concatenate([self._tracks, np.zeros_like(self._tracks)])
        self._used = np.concatenate([self._used, np.zeros(size, np.bool_)])
        self._free.extend(range(2 * size - 1, size - 1, -1))

    def reports(self, after_ms: int, until_ms: int) -> ProgressColumns:
        """Return everything reported in (after, until]; what has ended is then forgotten."""
        rows = np.flatnonzero(self._used)
        none_i, none_f = np.zeros(0, np.int64), np.zeros(0)
        span = (float(after_ms), float(until_ms))
        count = report(rows, self._tracks, *span, none_i, none_i, none_i, none_f, none_f)
        seq, time, step = (np.zeros(count, np.int64) for _ in range(3))
        throughput, loss = np.zeros(count), np.zeros(count)
        report(rows, self._tracks, *span, seq, time, step, throughput, loss)
        found = ProgressColumns(
            seq=seq,
            time_ms=time,
            step=step,
            throughput=throughput,
            loss=loss,
            units=dict(self._units),
        )
        self.forget()
        return found

    def forget(self) -> None:
        """Forget what has ended."""
        for row in self._ended:
            self._used[row] = False
            self._free.append(row)
            seq = int(self._tracks[row, SEQ])
            if seq not in self._rows:
                self._units.pop(seq, None)
        self._ended.clear()

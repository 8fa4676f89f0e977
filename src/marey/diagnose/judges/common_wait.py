"""All ranks wait: the fall that shows it, whom they wait for, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.judges.slight_falls import (
    Fall,
    agrees_with,
    find_fall,
    measure_network_fall,
)
from marey.diagnose.judges.suspects import Suspects, weigh_suspects
from marey.diagnose.signals import Signals, quiet_median
from marey.model.faults import FaultKind

# What a GPU that all wait for shows more than its peers, as a share of what all lose. Its SM
# activity keeps what theirs loses, and a little more, because it waits for nobody itself. Of power
# it keeps far less: it computes no more than they do, but its multiprocessors stay occupied.
EXPECTED_GAIN = {"sm_active": 1.1, "power": 0.15}
# Noise of real GPUs hardly lasts longer than a quarter of an hour.
QUARTER_BLOCKS = 3
# What such findings are worth: by SM activity, by power (only where nobody measures the former).
SLIGHT, BY_POWER = 0.65, 0.7

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CommonWait:
    """A fall of everybody's work, and who may be behind it."""

    fall: Fall
    # By which metric the fall was found, and by which the GPUs are compared (None: by none).
    activity: str
    compared: str | None
    suspects: Suspects | None
    # By which share the network carries less; None where it is not measured.
    network: float | None

    @property
    def slow_gpu(self) -> int | None:
        """The row of the GPU that all wait for, unless the network carries on as ever."""
        contradicted = self.network is not None and not agrees_with(self.fall, self.network)
        return None if self.suspects is None or contradicted else self.suspects.slow_gpu

    @property
    def is_network(self) -> bool:
        """Whether all wait for the network, which carries less by about as much as they do."""
        if self.suspects is None or not self.suspects.is_network:
            return False
        return agrees_with(self.fall, self.network)


def find_common_wait(signals: Signals) -> CommonWait | None:
    """Return how all ranks began to wait; None if they did not, or if it cannot be known."""
    activity = activity_metric(signals)
    if activity is None or not signals.has("util"):
        return None
    util = signals.common_by_block("util")
    fall = find_fall(signals, signals.common_by_block(activity), util)
    if fall is None:
        return None
    compared = next((metric for metric in EXPECTED_GAIN if signals.has(metric)), None)
    suspects = None if compared is None else _weigh_by(signals, fall, compared)
    network = measure_network_fall(signals, fall, util)
    return CommonWait(fall, activity, compared, suspects, network)


def _weigh_by(signals: Signals, fall: Fall, metric: str) -> Suspects | None:
    """Weigh the suspects by what each GPU shows of this metric beside its own before."""
    low, high = (_list_columns(signals, blocks) for blocks in (fall.low, fall.high))
    columns = np.concatenate([low, high])
    shown = np.array(signals.matrix.columns[metric][:, columns], np.float64)
    shown[signals.idle_rows] = np.nan
    return weigh_suspects(
        shown,
        np.arange(len(columns)) < len(low),
        expected=-EXPECTED_GAIN[metric] * float(np.log1p(-fall.share)),
        per_quarter=QUARTER_BLOCKS * signals.per_block,
    )


def _list_columns(signals: Signals, blocks: NDArray[np.intp]) -> NDArray[np.intp]:
    first = signals.begin + blocks[:, None] * signals.per_block
    return np.asarray((first + np.arange(signals.per_block)).ravel())


def activity_metric(signals: Signals) -> str | None:
    """Return the best that there is to tell work from waiting."""
    return next((m for m in ("tensor_active", "mem_copy", "power") if signals.has(m)), None)


def judge_waited_for_gpu(signals: Signals, wait: CommonWait) -> Iterator[Claim]:
    """Return the finding about the one GPU that all others wait for, if it is one."""
    row, metric = wait.slow_gpu, wait.compared
    if row is None or metric is None:
        return
    by_power = metric == "power"
    shown, fall = signals.by_block(metric), wait.fall
    kept = 100 * quiet_median(shown[:, fall.low], 1) / quiet_median(shown[:, fall.high], 1)
    slow = np.arange(signals.count) == row
    what = "power" if by_power else "SM activity"
    own, usual = float(kept[row]), float(quiet_median(kept[~slow]))
    advice = "Collect SM activity (DCGM profiling metrics) to be sure; run" if by_power else "Run"
    yield Claim(
        kind=FaultKind.SLOW_GPU,
        rows=slow,
        span=signals.columns_of(*fall.span),
        summary=f"All GPUs get less done, and the {what} of this one fell less: they seem to wait "
        "for it.",
        evidence=(Evidence(what, own, usual, "%", "before"),),
        confidence=BY_POWER if by_power else SLIGHT,
        lost=fall.share,
        next=f"{advice} a burn-in on it and compare with a neighbour.",
    )

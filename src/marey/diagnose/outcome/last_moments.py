"""What happened last: who stopped first, what was reported, how full memory was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.findings import Evidence
from marey.diagnose.matrix import WorkloadMatrix
from marey.diagnose.signals import IDLE_UTIL, Flags
from marey.model.events import ClusterEventKind
from marey.model.times import MINUTE_MS, SECOND_MS, describe_span, format_time

# What counts as the end of a life.
LAST_MS = 15 * MINUTE_MS
# A device this full has no room for another tensor; a host this full wakes the kernel's killer.
FULL_SHARE = 0.97
HOST_FULL = 95.0
# Filled at the end, rather than always full by design (a serving cache, a caching allocator).
RISEN_SHARE = 0.02
QUIET = (
    ClusterEventKind.CHECKPOINT,
    ClusterEventKind.EVALUATION,
    ClusterEventKind.SOURCE_BACK,
    ClusterEventKind.SOURCE_STALE,
)


@dataclass(frozen=True, slots=True)
class FirstToStop:
    """The GPU that stopped working before the others."""

    row: int
    before_s: float


def find_first_to_stop(matrix: WorkloadMatrix) -> FirstToStop | None:
    """Return the one GPU whose work ended at least one sample before that of all others."""
    util = matrix.columns.get("util")
    if util is None or len(util) < 2 or not len(matrix.time_ms):
        return None
    first = int(np.searchsorted(matrix.time_ms, matrix.time_ms[-1] - LAST_MS))
    busy = util[:, first:] >= IDLE_UTIL
    if not busy.any(axis=1).all():
        return None
    last = busy.shape[1] - 1 - np.argmax(busy[:, ::-1], axis=1)
    order = np.argsort(last, kind="stable")
    ahead = int(last[order[1]] - last[order[0]])
    if ahead < 1:
        return None
    return FirstToStop(int(order[0]), ahead * matrix.step_ms / SECOND_MS)


def find_full_gpus(matrix: WorkloadMatrix) -> tuple[Flags, bool]:
    """Return which GPUs had no memory left at the end, and whether it filled up only then."""
    memory = matrix.columns.get("mem_used")
    none = np.zeros(len(matrix.gpus), bool)
    if memory is None or not len(matrix.time_ms):
        return none, False
    capacity = np.array([gpu.memory_mib or np.nan for gpu in matrix.gpus], np.float64)
    first = int(np.searchsorted(matrix.time_ms, matrix.time_ms[-1] - LAST_MS))
    ending = np.nan_to_num(memory[:, first:], nan=0.0).max(axis=1)
    with np.errstate(invalid="ignore"):
        full: Flags = np.asarray(ending >= FULL_SHARE * capacity)
    if not full.any():
        return none, False
    usual = _compute_usual(memory[full], first)
    rose = ending[full] - usual >= RISEN_SHARE * capacity[full]
    return full, bool(rose.any())


def _compute_usual(memory: NDArray[np.float32], first: int) -> NDArray[np.float64]:
    """Return the median of what each GPU held before its last minutes; 0 where there is nothing."""
    before = memory[:, :first] if first else memory[:, : max(1, memory.shape[1] // 2)]
    known = np.where(np.isnan(before), 0.0, before)
    return np.asarray(np.median(known, axis=1))


def find_full_hosts(matrix: WorkloadMatrix) -> tuple[str, ...]:
    """Return the hosts whose memory was full in the last minutes."""
    share = matrix.host_columns.get("host_mem_share")
    if share is None or not len(matrix.time_ms):
        return ()
    first = int(np.searchsorted(matrix.time_ms, matrix.time_ms[-1] - LAST_MS))
    most = np.nan_to_num(share[:, first:], nan=0.0).max(axis=1)
    return tuple(h for h, value in zip(matrix.hosts, most, strict=True) if value >= HOST_FULL)


def collect_last_evidence(matrix: WorkloadMatrix) -> list[Evidence]:
    """Return the last evidence: events, the last report, the checkpoint, who stopped first."""
    end_ms = matrix.facts.end_ms
    if end_ms is None:
        return []
    found = []
    stopped = find_first_to_stop(matrix)
    if stopped is not None:
        gpu = matrix.gpus[stopped.row]
        rank = f"rank {gpu.global_rank}" if gpu.global_rank is not None else "a GPU"
        found.append(
            Evidence(
                f"{rank} on {gpu.gpu} stopped {describe_span(stopped.before_s)} before the others"
            )
        )
    events = [e for e in matrix.events if e.kind not in QUIET and e.time_ms <= end_ms + LAST_MS]
    if events:
        event = events[-1]
        where = event.gpu or event.host
        words = [event.kind.value.replace("_", " "), where, event.text]
        said = " ".join(word for word in words if word)
        found.append(Evidence(f"last event: {said} at {format_time(event.time_ms)}"))
    reports = [p for p in matrix.progress if p.step is not None and p.time_ms <= end_ms]
    if reports:
        ago = describe_span((end_ms - reports[-1].time_ms) / 1000)
        found.append(Evidence(f"last reported step: {reports[-1].step}, {ago} before the end"))
    saved = find_last_checkpoint(matrix)
    if saved is not None:
        ago = describe_span((end_ms - saved) / 1000)
        found.append(Evidence(f"last checkpoint: {ago} before the end"))
    return found


def find_last_checkpoint(matrix: WorkloadMatrix) -> int | None:
    """Return when the last checkpoint that is known of was written."""
    end_ms = matrix.facts.end_ms
    saved = [
        e.time_ms
        for e in matrix.events
        if e.kind is ClusterEventKind.CHECKPOINT and (end_ms is None or e.time_ms <= end_ms)
    ]
    return max(saved, default=None)

"""Judge of the pipeline bubble: what stages wait for each other's first and last micro-batches.

A replay in which no transfer takes time and no device waits for its host still obeys who needs
whose result. What its steps take beyond their busiest rank is the bubble: no network, host or
single rank is to blame for it, only how many micro-batches pass through how many stages.
"""

from __future__ import annotations

import numpy as np

from marey.model.system.percentages import format_percent
from marey.trace.graph.cost_graph import NodeKind
from marey.trace.results import Verdict, VerdictKind
from marey.trace.verdicts.situation import Situation

# Below this share of the run there is little to win: halving it wins half of this.
BUBBLE_SHARE = 0.1
CONFIDENCE = 0.9


def find_bubble(situation: Situation) -> Verdict | None:
    """Return how much of the run a pipeline stands empty, where that is worth changing."""
    parallelism = situation.parallelism
    stages = max(parallelism.stages.values(), default=0) + 1
    if stages < 2 or situation.recorded_ns <= 0:
        return None
    needed = _replay_dependencies(situation)
    bubble = needed - float(situation.compute_by_step.max(axis=0).sum())
    share = bubble / situation.recorded_ns
    if share < BUBBLE_SHARE:
        return None
    batches = parallelism.micro_batches
    half = bubble / 2
    return Verdict(
        kind=VerdictKind.PIPELINE_BUBBLE,
        steps=situation.step_list(),
        recoverable_ms=round(half / 1e6, 3),
        confidence=round(CONFIDENCE * situation.match_confidence * parallelism.confidence, 3),
        evidence=(
            f"even if transfers took no time, {stages} stages would wait for each other for "
            f"{bubble / 1e6:.1f} ms, {format_percent(share)} of the run",
            *_compare_theory(stages, batches, bubble / needed, parallelism.schedule),
            f"with twice as many micro-batches{f' ({2 * batches})' if batches else ''}, or two "
            f"model chunks on each rank (interleaved), about half of it: {half / 1e6:.1f} ms",
        ),
    )


def _replay_dependencies(situation: Situation) -> float:
    """Return how long the steps take if only the work itself, and who needs whose, costs time."""
    graph = situation.graph
    work = np.where(graph.kind == NodeKind.TRANSFER, 0.0, graph.work_ns)
    return situation.total_ns(work, np.zeros_like(graph.idle_ns))


def _compare_theory(stages: int, batches: int, measured: float, schedule: str) -> tuple[str, ...]:
    """Say what a pipeline of equal stages is empty for, where its micro-batches are known."""
    if batches < 1 or schedule not in ("gpipe", "1f1b"):
        return ()
    share = (stages - 1) / (batches + stages - 1)
    return (
        f"{batches} micro-batches through {stages} equal stages ({schedule}) leave a pipeline "
        f"empty for {format_percent(share)} of its time; here it is {format_percent(measured)}",
    )

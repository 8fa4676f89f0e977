"""How much slower a run is than if every operation took its typical time, and because of whom.

The measures S, S_t, S_w, M_W and M_S of "Understanding Stragglers in Large Model Training Using
What-if Analysis" (OSDI 2025), computed by replaying the run's own dependency graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np

from marey.trace.graph.cost_graph import Flags, Floats, Ints, OperationGraph, typical_work
from marey.trace.graph.operation_tables import REPORTED
from marey.trace.results import Slowdown

# M_W asks what fixing the slowest 3 % of the workers would recover.
SLOWEST_SHARE = 0.03
NS_PER_MS = 1e6


def measure_slowdown(
    graph: OperationGraph, stages: Mapping[int, int], replicas: Mapping[int, int]
) -> Slowdown:
    """Return the slowdown of a run, by type of operation, pipeline stage, replica and worker."""
    what_if = WhatIf(graph)
    stage = _lookup(stages, graph.rank)
    replica = _lookup(replicas, graph.rank)
    by_stage = what_if.kept_by(stage)
    by_replica = what_if.kept_by(replica)
    by_worker = {
        rank: min(by_replica.get(replicas[rank], 1.0), by_stage.get(stages[rank], 1.0))
        for rank in sorted(stages)
    }
    slowest = _slowest(by_worker)
    last_stage = max(by_stage, default=0)
    recorded = graph.step_times(graph.finish(graph.work_ns, graph.delay_ns)).mean()
    return Slowdown(
        step_ms=what_if.actual_ns / NS_PER_MS,
        ideal_ms=what_if.ideal_ns / NS_PER_MS,
        launch=float(recorded / what_if.actual_ns) if what_if.actual_ns else 1.0,
        S=what_if.ratio(what_if.actual_ns),
        M_W=what_if.recovered(np.isin(graph.rank, slowest)),
        M_S=what_if.recovered(stage == last_stage),
        by_type=what_if.kept_by_type(),
        by_stage=by_stage,
        by_replica=by_replica,
        by_worker=by_worker,
        by_step=what_if.by_step(),
    )


class WhatIf:
    """Replays of one graph between its recorded work and what is typical."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph
        self.typical = typical_work(graph)
        self.actual_steps = graph.step_times(graph.finish(graph.work_ns))
        self.ideal_steps = graph.step_times(graph.finish(self.typical))
        self.actual_ns = float(self.actual_steps.mean())
        self.ideal_ns = float(self.ideal_steps.mean())

    def ratio(self, time_ns: float) -> float:
        """Return a mean step time against the ideal one."""
        return time_ns / self.ideal_ns if self.ideal_ns else 1.0

    def kept(self, chosen: Flags) -> float:
        """Return the slowdown if only the chosen nodes kept their real work."""
        return self.ratio(self._mean(np.where(chosen, self.graph.work_ns, self.typical)))

    def recovered(self, chosen: Flags) -> float:
        """Return the share of the lost time that fixing the chosen nodes would win.

        May exceed 1.
        """
        lost = self.actual_ns - self.ideal_ns
        if lost <= 0:
            return 0.0
        fixed = self._mean(np.where(chosen, self.typical, self.graph.work_ns))
        return (self.actual_ns - fixed) / lost

    def kept_by(self, label: Ints) -> dict[int, float]:
        """Return the slowdown that each label's real work alone would cause."""
        return {int(one): self.kept(label == one) for one in np.unique(label[label >= 0])}

    def kept_by_type(self) -> dict[str, float]:
        """Return the slowdown that each type of operation alone would cause."""
        blocks = self.graph.blocks
        names = [REPORTED.get(name, name) for name in blocks.type_names]
        kinds = {name: at for at, name in enumerate(dict.fromkeys(names))}
        of_type = np.array([kinds[name] for name in names] or [0], np.int64)
        of_block = np.append(of_type[blocks.type], -1)
        found = self.kept_by(of_block[self.graph.block])
        return {name: found[at] for name, at in kinds.items() if at in found}

    def by_step(self) -> dict[int, float]:
        """Return each step's own slowdown."""
        ratios = self.actual_steps / np.maximum(self.ideal_steps, 1.0)
        return dict(zip(self.graph.step_numbers().tolist(), ratios.tolist(), strict=True))

    def _mean(self, work_ns: Floats) -> float:
        return float(self.graph.step_times(self.graph.finish(work_ns)).mean())


def _lookup(values: Mapping[int, int], ranks: Ints) -> Ints:
    size = int(max(ranks.max(initial=0), max(values, default=0))) + 2
    table = np.full(size, -1, np.int64)
    for rank, value in values.items():
        table[rank] = value
    return table[ranks]


def _slowest(by_worker: Mapping[int, float]) -> list[int]:
    count = ceil(len(by_worker) * SLOWEST_SHARE)
    return sorted(by_worker, key=lambda rank: (-by_worker[rank], rank))[:count]

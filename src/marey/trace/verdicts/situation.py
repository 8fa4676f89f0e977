"""What every judge looks at: the graph, where ranks stand, and how long they computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from marey.model.training.symbols import Symbols
from marey.trace.graph.cost_graph import Flags, Floats, Ints, NodeKind, OperationGraph
from marey.trace.rank.activity import RankActivity
from marey.trace.ranks.communications import Pool
from marey.trace.results import Clocks, Parallelism, Verdict

# A cause must cost at least this share of the run to be named: less is within what healthy runs
# of the same program differ by. (The OSDI 2025 study calls a job straggling from S = 1.1.)
SMALLEST_SHARE = 0.05

Costs = tuple[Floats, Floats]  # work, delay
Fix = Callable[[Floats, Floats], Costs]


@dataclass(frozen=True)
class Proposal:
    """A verdict and what the run's costs would be without its cause."""

    verdict: Verdict
    fix: Fix
    # Least share of the run that fixing it must win.
    threshold: float = SMALLEST_SHARE


@dataclass(frozen=True)
class Situation:
    """One run as the judges see it."""

    graph: OperationGraph
    parallelism: Parallelism
    clocks: Clocks
    symbols: Symbols
    activities: tuple[RankActivity, ...] = ()
    pool: Pool | None = None
    item: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    match_confidence: float = 1.0

    @cached_property
    def ranks(self) -> Ints:
        """Every rank, sorted."""
        return np.array(sorted(self.parallelism.stages), np.int64)

    @cached_property
    def steps(self) -> Ints:
        """Every step number, sorted."""
        return self.graph.step_numbers()

    @cached_property
    def stages(self) -> Ints:
        """The stage of each of ``ranks``."""
        return np.array([self.parallelism.stages[r] for r in self.ranks.tolist()], np.int64)

    def rank_place(self, rank: Ints) -> Ints:
        """Return where ranks stand in ``ranks``; -1 for none."""
        at = np.searchsorted(self.ranks, rank)
        at = np.minimum(at, len(self.ranks) - 1)
        return np.where(self.ranks[at] == rank, at, -1)

    @cached_property
    def recorded_ns(self) -> float:
        """How long the run took, replayed as recorded."""
        return self.total_ns(self.graph.work_ns, self.graph.idle_ns)

    def total_ns(self, work: Floats, delay: Floats) -> float:
        """Return how long the run would take with these costs."""
        graph = self.graph
        return float(graph.step_times(graph.finish(work, delay)).sum())

    @cached_property
    def phase_of_block(self) -> Ints:
        """0 forward, 1 backward, 2 other compute, -1 for transfers."""
        blocks = self.graph.blocks
        phases = []
        for name, median in zip(blocks.type_names, blocks.by_median.tolist(), strict=True):
            known = {"forward-compute": 0, "backward-compute": 1}
            phases.append(-1 if median else known.get(name, 2))
        return np.array(phases, np.int64)[blocks.type]

    @cached_property
    def block_work(self) -> Floats:
        """The work of each block."""
        graph = self.graph
        owned = graph.block >= 0
        count = len(graph.blocks.type)
        total = np.bincount(graph.block[owned], graph.work_ns[owned], count)
        return total.astype(np.float64)

    @cached_property
    def compute(self) -> Floats:
        """Return rank × step × phase × micro-batch → compute in ns; NaN where there is none."""
        blocks = self.graph.blocks
        chosen = np.flatnonzero(self.phase_of_block >= 0)
        batches = int(blocks.micro_batch[chosen].max(initial=0)) + 1
        cube = np.full((len(self.ranks), len(self.steps), 3, batches), np.nan)
        at = (
            self.rank_place(blocks.rank[chosen]),
            np.searchsorted(self.steps, blocks.step[chosen]),
            self.phase_of_block[chosen],
            np.maximum(blocks.micro_batch[chosen], 0),
        )
        known = at[0] >= 0
        cube[tuple(a[known] for a in at)] = 0.0
        np.add.at(cube, tuple(a[known] for a in at), self.block_work[chosen][known])
        return cube

    @cached_property
    def compute_by_step(self) -> Floats:
        """Return rank × step → compute in ns."""
        total: Floats = np.nansum(self.compute, axis=(2, 3))
        return total

    def compute_nodes(self, rank_flags: Flags) -> Flags:
        """Return the compute nodes of the flagged ranks (flags along ``ranks``)."""
        place = self.rank_place(self.graph.rank)
        chosen: Flags = (self.graph.kind == NodeKind.COMPUTE) & (place >= 0)
        chosen &= np.append(rank_flags, False)[place]
        return chosen

    def named(self, places: Ints) -> tuple[int, ...]:
        """Return ranks at these places, as a verdict lists them."""
        return tuple(int(r) for r in self.ranks[places])

    def step_list(self, places: Ints | None = None) -> tuple[int, ...]:
        """Return steps at these places, as a verdict lists them; all by default."""
        chosen = self.steps if places is None else self.steps[places]
        return tuple(int(s) for s in chosen)

"""From a run to everything that can be said about it: ``analyse(run) -> Analysis``.

The steps, in order: reduce each rank → match communications → align clocks → recognise the
parallelism → build the dependency graph → slowdown, critical path, blame → verdicts. Each is a
plain function that a notebook can call on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from marey.trace.graph.cost_graph import OperationGraph
from marey.trace.graph.critical_path import critical_path
from marey.trace.graph.dependencies import dependency_graph
from marey.trace.graph.operation_runs import (
    is_operation_run,
    operation_graph_of,
    operation_parallelism,
)
from marey.trace.graph.slowdown import measure_slowdown
from marey.trace.rank.activity import BACKWARD_PHASE, Flags, Ints, RankActivity
from marey.trace.rank.recording import state_recording
from marey.trace.rank.reduction import reduce_rank
from marey.trace.ranks.clocks import align_pool, aligned
from marey.trace.ranks.collectives import Matching, match_pool
from marey.trace.ranks.communications import Pool, pool_communications
from marey.trace.ranks.handshakes import clocks_from_handshakes
from marey.trace.ranks.matches import tabulate_matches
from marey.trace.ranks.parallelism import find_parallelism
from marey.trace.results import STEPS, Analysis, Clocks, Matches, Parallelism, Slowdown, Verdict
from marey.trace.run.trace_run import TraceRun
from marey.trace.verdicts import Situation
from marey.trace.verdicts import judge as judge_situation
from marey.trace.verdicts.blame import blame_table
from marey.trace.verdicts.doubts import DOUBTED_CONFIDENCE, apply_doubts

__all__ = [
    "Analysis",
    "AnalysisSteps",
    "align_clocks",
    "analyse",
    "blame",
    "judge",
    "match_collectives",
    "recognise_parallelism",
    "reduce_run",
]

Progress = Callable[[str, float], None]
# Nothing said about a format that was never tried is more than a guess.
UNTRIED_CONFIDENCE = DOUBTED_CONFIDENCE
# Collectives whose members rightly carry different sizes.
VARYING = ("alltoall", "gather", "scatter", "sendrecv", "broadcast", "reduce", "barrier")


def analyse(
    run: TraceRun, progress: Progress | None = None, executor: Executor | None = None
) -> Analysis:
    """Return everything the analysis of a run finds.

    Memory grows with communications, not events.
    """
    report = progress or (lambda what, done: None)
    bench = AnalysisSteps(run, reduce_run(run, report, executor))
    report("matching", 0.7)
    matches, clocks, parallelism = bench.matches, bench.clocks, bench.parallelism
    report("replaying", 0.85)
    slowdown = bench.slowdown
    verdicts = bench.verdicts
    report("blaming", 0.95)
    found = Analysis(
        ranks=tuple(run.ranks),
        hosts={rank: run.info(rank).host for rank in run.ranks},
        steps=bench.steps,
        matches=matches,
        clocks=clocks,
        parallelism=parallelism,
        slowdown=slowdown,
        blame=bench.blame,
        critical_path=critical_path(bench.graph),
        verdicts=verdicts,
        notes=tuple(bench.notes()),
    )
    report("done", 1.0)
    return found


def reduce_run(
    run: TraceRun, progress: Progress | None = None, executor: Executor | None = None
) -> tuple[RankActivity, ...]:
    """Return every rank reduced to what the analysis needs, one after the other or through an
    executor.
    """
    reduced: Iterable[RankActivity] = map(partial(reduce_rank, run), run.ranks)
    if executor is not None:
        reduced = executor.map(partial(reduce_rank, run), run.ranks)
    activities = []
    for done, activity in enumerate(reduced, start=1):
        activities.append(activity)
        if progress is not None:
            progress("reading ranks", 0.65 * done / len(run.ranks))
    return tuple(activities)


@dataclass(frozen=True)
class AnalysisSteps:
    """The steps of an analysis, each computed when first asked for."""

    run: TraceRun
    activities: tuple[RankActivity, ...]

    @cached_property
    def pool(self) -> Pool:
        """Communications of all ranks side by side."""
        infos = {rank: self.run.info(rank) for rank in self.run.ranks}
        return pool_communications(self.activities, infos, self.run.symbols)

    @cached_property
    def matching(self) -> Matching:
        """Which of them belong together."""
        codes = [self.run.symbols.code(name) for name in VARYING]
        known = [code for code in codes if code is not None]
        return match_pool(self.pool, np.isin(self.pool.collective, known))

    @cached_property
    def clocks(self) -> Clocks:
        """Every rank's clock: from its collectives, or from a recorded handshake that is surer."""
        infos = {rank: self.run.info(rank) for rank in self.run.ranks}
        hosts = {rank: info.host for rank, info in infos.items()}
        fitted = align_pool(self.pool, self.matching.item, hosts)
        shaken = clocks_from_handshakes(infos)
        return shaken if shaken is not None and shaken.error_us < fitted.error_us else fitted

    @cached_property
    def matches(self) -> Matches:
        """The matched communications as tables."""
        return tabulate_matches(self.pool, self.matching, self.clocks, self.run.symbols)

    @cached_property
    def parallelism(self) -> Parallelism:
        """How the run is split."""
        if is_operation_run(self.run):
            return operation_parallelism(self.run)
        world = {rank: self.run.info(rank).host for rank in self.run.ranks}
        early = _before_backward(self.activities)
        return find_parallelism(
            self.pool, self.matching.item, self.run.symbols, early=early, world=world
        )

    @cached_property
    def graph(self) -> OperationGraph:
        """Who waits for what, and what it costs."""
        if is_operation_run(self.run):
            return operation_graph_of(self.run)
        return dependency_graph(
            self.activities,
            pool=self.pool,
            item=self.matching.item,
            clocks=self.clocks,
            symbols=self.run.symbols,
        )

    @cached_property
    def slowdown(self) -> Slowdown | None:
        """The what-if measures; none for a run without compute."""
        if not self.graph.dag.count or not (self.graph.work_ns > 0).any():
            return None
        return measure_slowdown(self.graph, self.parallelism.stages, self.parallelism.replicas)

    @cached_property
    def situation(self) -> Situation:
        """What the judges look at."""
        confidence = self.matches.confidence if self.matches.matched else 1.0
        return Situation(
            graph=self.graph,
            parallelism=self.parallelism,
            clocks=self.clocks,
            symbols=self.run.symbols,
            activities=self.activities,
            pool=self.pool,
            item=self.matching.item,
            match_confidence=confidence,
        )

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What is wrong, the most costly first."""
        infos = {rank: self.run.info(rank) for rank in self.run.ranks}
        found = apply_doubts(
            judge_situation(self.situation),
            self.activities,
            infos,
            stages=self.parallelism.stages,
            clock_error_us=self.clocks.error_us,
        )
        if not self.untried:
            return found
        return tuple(replace(v, confidence=min(v.confidence, UNTRIED_CONFIDENCE)) for v in found)

    @cached_property
    def untried(self) -> tuple[str, ...]:
        """The formats of this run that were never tried on a real recording."""
        found = {self.run.info(rank).untried for rank in self.run.ranks}
        return tuple(sorted(found - {""}))

    @cached_property
    def blame(self) -> pa.Table:
        """Who made whom wait."""
        return blame_table(self.situation)

    @cached_property
    def steps(self) -> pa.Table:
        """The steps of each rank on the run's clock."""
        rows = [
            (
                np.full(len(a.steps), a.rank),
                a.steps[:, 0],
                aligned(self.clocks, a.rank, a.steps[:, 1]),
                aligned(self.clocks, a.rank, a.steps[:, 2]),
            )
            for a in self.activities
        ]
        columns = [np.concatenate(c) for c in zip(*rows, strict=True)]
        return pa.table(dict(zip(STEPS.names, columns, strict=True))).cast(STEPS)

    def notes(self) -> list[str]:
        """Return the notes for a reader of the result."""
        notes = []
        if self.matches.unmatched:
            share = self.matches.unmatched / max(len(self.pool), 1)
            notes.append(
                f"{self.matches.unmatched} communications ({100 * share:.0f} %) have no partner "
                "among the traced ranks"
            )
        notes += [
            f"this is {text}: how it is read was never tried on a real recording whose truth is "
            "known, so check the figures; no verdict has more than 55 % confidence"
            for text in self.untried
        ]
        notes += [text for a in self.activities for text in state_recording(a.rank, a.recording)]
        return notes


def _before_backward(activities: tuple[RankActivity, ...]) -> Flags:
    """Return for each communication whether its step's backward had not begun."""
    flags = []
    for activity in activities:
        segments, talks = activity.segments, activity.communications
        backward = segments.phase == BACKWARD_PHASE
        first: dict[int, int] = {}
        pairs = zip(
            segments.step[backward].tolist(), segments.start_ns[backward].tolist(), strict=True
        )
        for step, start in pairs:
            first.setdefault(step, start)
        begun: Ints = np.array([first.get(s, -1) for s in talks.step.tolist()], np.int64)
        flags.append(talks.start_ns < begun)
    return np.concatenate(flags) if flags else np.zeros(0, bool)


def match_collectives(run: TraceRun) -> Matches:
    """Return the communications of a run matched across ranks, on aligned clocks."""
    return AnalysisSteps(run, reduce_run(run)).matches


def align_clocks(run: TraceRun) -> Clocks:
    """Return the clocks of a run's ranks, from the ends of the collectives they shared."""
    return AnalysisSteps(run, reduce_run(run)).clocks


def recognise_parallelism(run: TraceRun) -> Parallelism:
    """Return how a run is split over its ranks."""
    return AnalysisSteps(run, reduce_run(run)).parallelism


def blame(run: TraceRun) -> pa.Table:
    """Return who made whom wait, by cause, in GPU-seconds."""
    return AnalysisSteps(run, reduce_run(run)).blame


def judge(run: TraceRun) -> list[Verdict]:
    """Return the verdicts on a run, the most costly first."""
    return list(AnalysisSteps(run, reduce_run(run)).verdicts)

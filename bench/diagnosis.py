"""How often ``diagnose`` is right: simulated faults with recorded truth over unseen seeds.

The judges were tuned on seeds below 1,000; these are others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.report import Results
from marey.diagnose.diagnosis import find_faults
from marey.diagnose.findings import FaultFinding
from marey.diagnose.matrix import Context, GpuFacts, WorkloadFacts, WorkloadMatrix, build_matrix
from marey.model.faults import SIMULATED, FaultKind, Truth
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.sim import SimConfig, Simulation

FIRST_SEED = 10_000
SEEDS = 24
SIZES = (8, 16, 32, 64, 128)
HOURS = 2.5
HEALTHY_WORK = ("train", "serve", "notebook")
KINDS = SIMULATED
# A job that hits its limit must do so within the hours that are watched.
SHORT_LIMIT_S, LIMIT_S = 1.6 * 3600, 6 * 3600


@dataclass(frozen=True)
class Case:
    """One simulated workload, what is wrong with it, and its metrics."""

    matrix: WorkloadMatrix
    truth: Truth | None


def simulate(seed: int, kind: FaultKind, gpus: int, *, work: str = "train") -> Case:
    """A small cluster on which one workload runs, with one fault or none."""
    config = SimConfig(gpus=1024, seed=seed, load=0.0, faults=0.0, warmup_ms=0, maintenance=False)
    simulation = Simulation(config)
    session = kind is FaultKind.IDLE_SESSION
    name = simulation.submit(
        gpus=1 if session else gpus,
        duration_s=HOURS * 3600,
        time_limit_s=SHORT_LIMIT_S if kind is FaultKind.TIME_LIMIT else LIMIT_S,
        kind="notebook" if session else work,
        fault=None if kind is FaultKind.HEALTHY else kind.value,
        user=seed % 7,
    )
    observations = list(simulation.history(HOURS + 0.2))
    truth = next((t for t in simulation.truth() if t.workload == name), None)
    return Case(matrix_of(name, observations), truth)


def matrix_of(name: str, observations: Sequence[Observation]) -> WorkloadMatrix:
    """What the store would give for this workload."""
    context = _context(name, observations)
    start, end = context.facts.start_ms or 0, context.facts.end_ms or 2**62
    held = {gpu.gpu for gpu in context.gpus}

    def batches(kind: Entity) -> Iterator[SampleBatch]:
        for observation in observations:
            for batch in observation.samples:
                if batch.kind is kind:
                    yield _within(batch, held, start, end)

    return build_matrix(context, batches(Entity.GPU), batches(Entity.HOST))


def _within(batch: SampleBatch, held: set[str], start: int, end: int) -> SampleBatch:
    keep = (batch.time_ms >= start) & (batch.time_ms < end)
    if batch.kind is Entity.GPU:
        keep &= np.array([name in held for name in batch.entities])[batch.entity]
    return replace(
        batch,
        time_ms=batch.time_ms[keep],
        entity=batch.entity[keep],
        columns={metric: values[keep] for metric, values in batch.columns.items()},
        workload=None,
        workloads=(),
    )


def _context(name: str, observations: Sequence[Observation]) -> Context:
    gpus = {g.gpu: g for o in observations for g in o.gpus}
    workload = [w for o in observations for w in o.workloads if w.workload == name][-1]
    allocations = {a.gpu: a for o in observations for a in o.allocations if a.workload == name}
    listed = [
        GpuFacts(
            g, gpus[g].host, gpus[g].index, a.global_rank, a.local_rank, gpus[g].model,
            gpus[g].power_limit_w, gpus[g].memory_mib,
        )
        for g, a in allocations.items()
    ]  # fmt: skip
    status = [s for o in observations for s in o.statuses if s.workload == name][-1]
    facts = WorkloadFacts(
        name,
        state=status.state.value,
        reason=status.reason,
        start_ms=workload.start_ms,
        end_ms=workload.end_ms,
        exit_code=workload.exit_code,
        time_limit_s=workload.time_limit_s,
    )
    hosts = {g.host for g in listed}
    names = {g.gpu for g in listed}
    begin = workload.start_ms or 0
    end = (workload.end_ms or 2**62) + 600_000
    return Context(
        facts,
        sorted(listed, key=lambda g: g.global_rank or 0),
        [p for o in observations for p in o.progress if p.workload == name],
        [
            e
            for o in observations
            for e in o.events
            if begin <= e.time_ms <= end
            and (e.workload == name or e.gpu in names or (not e.gpu and e.host in hosts))
        ],
    )


def f1(finding: FaultFinding, truth: Truth) -> float:
    """How well the named GPUs match the true ones."""
    named, true = set(finding.gpus), set(truth.gpus)
    both = len(named & true)
    return 2 * both / (len(named) + len(true)) if named or true else 1.0


@dataclass
class Score:
    """What was right over many runs."""

    runs: int = 0
    right: int = 0
    overlap: float = 0.0

    def add(self, case: Case) -> None:
        """Judge one faulty run."""
        assert case.truth is not None
        top = find_faults(case.matrix)[0]
        self.runs += 1
        if top.kind is case.truth.kind:
            self.right += 1
            self.overlap += f1(top, case.truth)


def score_faults(kind: FaultKind, seeds: range) -> Score:
    """One kind of fault over seeds and sizes."""
    score = Score()
    for seed in seeds:
        case = simulate(seed, kind, SIZES[seed % len(SIZES)])
        if case.truth is not None:
            score.add(case)
    return score


def healthy_share(seeds: range) -> float:
    """How many healthy workloads of several sorts are called healthy."""
    fine = 0
    for seed in seeds:
        small = seed % 3 == 0
        work = HEALTHY_WORK[seed % len(HEALTHY_WORK)] if small else "train"
        gpus = 1 + seed % 4 if small else SIZES[seed % len(SIZES)]
        found = find_faults(simulate(seed, FaultKind.HEALTHY, gpus, work=work).matrix)
        fine += [finding.kind for finding in found] == [FaultKind.HEALTHY]
    return fine / len(seeds)


def main(first_seed: int = FIRST_SEED, seeds: int = SEEDS) -> int:
    """Score every kind, and healthy ones of several sorts."""
    scores = {}
    for kind in KINDS:
        score = scores[kind] = score_faults(kind, range(first_seed, first_seed + seeds))
        named = score.overlap / max(1, score.right)
        print(
            f"  {kind.value:17} top-1 {score.right / score.runs:6.1%}  "
            f"F1 of GPUs {named:.3f}  ({score.runs} runs)",
            flush=True,
        )
    runs = sum(score.runs for score in scores.values())
    right = sum(score.right for score in scores.values())
    named = sum(score.overlap for score in scores.values()) / max(1, right)
    fine = healthy_share(range(first_seed + 500, first_seed + 500 + 5 * seeds))
    results = Results()
    for what, ratio, target in (
        ("top-1 kind right", right / runs, 0.95),
        ("GPUs named (F1)", named, 0.95),
        ("healthy called healthy", fine, 0.98),
    ):
        results.against(
            what,
            ratio=ratio,
            target=target,
            rival="of the truth",
            size=f"{runs} faulty and {5 * seeds} healthy workloads of 1 to 128 GPUs",
            at_10x="the same: each workload is judged by itself",
        )
    return results.missed


if __name__ == "__main__":
    sys.exit(main())

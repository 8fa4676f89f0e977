"""What diagnosis finds of faults of every severity, beside what others' thresholds find.

A harder world than ``bench diagnosis``: severities drawn continuously from hardly there to plain,
samples every 60 s, a third of the workloads without profiling metrics, the noise of real jobs on
every GPU, faults that come and go, two at once, and confounders (checkpoint storms, evaluation,
uneven batches, experts asked unevenly, a shared host, the phases of real serving pods) on six of
seven workloads.

Printed: recall against severity for every detector in the same run, the smallest severity found
95 % of the time, precision, and false findings on healthy work. The others are the thresholds of
jobstats and SageMaker (from their documentation) and an outlier detector in the manner of Minder,
each as published and *tuned*: every limit of it moved to where it is just silent on all healthy
work of this very run. They are believed generously: any finding of theirs counts. A second table
parts the workloads with profiling metrics from those without, beside an oracle (``hard_oracle``)
that says how much of it is in the metrics at all.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from bench.diagnosis import matrix_of
from bench.hard_effects import add_noise, confound, interrupt, load_real_noise, overlay
from bench.hard_oracle import find_share, measure_effect
from bench.report import Results
from marey.diagnose.diagnosis import find_faults
from marey.diagnose.matrix import WorkloadMatrix
from marey.model.faults import NOT_FAULTS, FaultKind
from marey.sim.scenarios import one_workload

K = FaultKind
# Other seeds than those the judges were last changed on: MAREY_BENCH_FIRST_SEED=60000.
FIRST_SEED, SEEDS = int(os.environ.get("MAREY_BENCH_FIRST_SEED", "40000")), 24
GPUS, HOURS, STEP_MS = 32, 4.0, 60_000
HEALTHY_RUNS = 90
# Severities are drawn between these, evenly in their logarithm, and told by band.
EDGES = {
    K.SLOW_GPU: (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4),
    K.SLOW_FABRIC: (0.05, 0.1, 0.2, 0.3, 0.45, 0.6),
    K.MEMORY_LEAK: (0.001, 0.003, 0.01, 0.03, 0.06),
}
Band = tuple[float, float]
Case = tuple[FaultKind, Band]
BANDS: dict[FaultKind, tuple[Band, ...]] = {
    kind: tuple(itertools.pairwise(edges)) for kind, edges in EDGES.items()
}
UNIT = {K.SLOW_GPU: "slower", K.SLOW_FABRIC: "slower", K.MEMORY_LEAK: "of memory an hour"}
PROFILING = ("sm_active", "tensor_active", "dram_active", "sm_occupancy", "graphics_active")
# Where healthy runs begin, so that no seed is both.
HEALTHY_SEED = FIRST_SEED + 5_000
# A second fault beside the first, plain enough to be found.
SECOND_LEAK = 0.03


def draw_matrix(seed: int, kind: FaultKind, severity: float | None) -> WorkloadMatrix:
    """Return one workload's samples, as a site with coarse and noisy metrics has them."""
    chance = np.random.default_rng(seed)
    matrix = confound(_draw_fault(seed, kind, severity, chance), chance)
    if not has_profiling(seed):
        kept = {name: v for name, v in matrix.columns.items() if name not in PROFILING}
        matrix = replace(matrix, columns=kept)
    return add_noise(matrix, chance)


def draw_plain_matrix(
    seed: int, kind: FaultKind, severity: float | None, *, profiling: bool = False
) -> WorkloadMatrix:
    """Return the same without confounders, second faults and the noise of real jobs."""
    matrix = _simulate(seed, kind, severity)
    kept = {name: v for name, v in matrix.columns.items() if profiling or name not in PROFILING}
    return add_noise(replace(matrix, columns=kept), np.random.default_rng(seed), real=False)


def _draw_fault(
    seed: int, kind: FaultKind, severity: float | None, chance: np.random.Generator
) -> WorkloadMatrix:
    """Return the fault: a quarter come and go, a quarter have a second fault beside them."""
    matrix = _simulate(seed, kind, severity)
    if kind in (K.SLOW_GPU, K.SLOW_FABRIC) and seed % 4 == 1:
        return interrupt(matrix, _simulate(seed, K.HEALTHY, None), chance)
    if has_second_fault(kind, seed):
        return overlay(matrix, _simulate(seed, K.MEMORY_LEAK, SECOND_LEAK), ("mem_used",))
    return matrix


def has_profiling(seed: int) -> bool:
    """Return whether the workload of this seed has profiling metrics."""
    return seed % 3 != 0


def has_second_fault(kind: FaultKind, seed: int) -> bool:
    """Return whether a leak lies under the fault of this seed."""
    return kind in (K.SLOW_GPU, K.SLOW_FABRIC) and seed % 4 == 2


def _simulate(seed: int, kind: FaultKind, severity: float | None) -> WorkloadMatrix:
    works = ("train", "train", "serve")
    work = (
        works[seed % 3] if kind is K.HEALTHY and severity is None and seed >= HEALTHY_SEED else ""
    )
    scenario = one_workload(
        kind, gpus=GPUS, hours=HOURS, seed=seed, tick_ms=STEP_MS, work=work or "train",
        severity=severity,
    )  # fmt: skip
    return matrix_of(scenario.workload.workload, scenario.observations)


# Others' rules: what each measures, which is a finding where it exceeds its limit


def measure_jobstats(matrix: WorkloadMatrix) -> tuple[float, ...]:
    """Return what jobstats reports: by how much mean utilization is below 100 %."""
    return (100.0 - float(np.nanmean(matrix.columns["util"])),)


def measure_sagemaker(matrix: WorkloadMatrix) -> tuple[float, ...]:
    """Return SageMaker's rules: low use, fluctuating use, unbalanced histograms, grown memory."""
    util, memory = matrix.columns["util"], matrix.columns["mem_used"]
    high, low = np.nanpercentile(util, 95), np.nanpercentile(util, 5)
    counts = np.array([np.histogram(row, 20, (0, 100))[0] for row in np.nan_to_num(util)], float)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    apart = max(0.5 * np.abs(shares - shares[0]).sum(axis=1))
    begin = len(matrix.time_ms) // 4
    before = np.nanmean(memory[:, begin : begin + 30], axis=1)
    grown = np.nanmean(memory[:, -30:], axis=1) / np.maximum(1.0, before) - 1.0
    return 100.0 - float(high), 100.0 - float(low), float(apart), float(np.nanmax(grown))


def measure_outlier(matrix: WorkloadMatrix, windows: int = 4) -> tuple[float, ...]:
    """Return how far one GPU lies apart from all others for so many windows, as Minder looks."""
    most = 0.0
    for name in ("util", "power", "sm_active", "mem_used"):
        values = matrix.columns.get(name)
        if values is None:
            continue
        count = values.shape[1] // 10
        means = np.nanmean(values[:, : count * 10].reshape(len(values), count, 10), axis=2)
        apart = np.abs(means[:, None, :] - means[None, :, :]).sum(axis=1)
        spread = apart.std(axis=0) + 1e-6
        score = (apart - apart.mean(axis=0)) / spread
        runs = np.lib.stride_tricks.sliding_window_view(score, windows, axis=1).min(axis=2)
        most = max(most, float(runs.max(initial=0.0)))
    return (most,)


Measure = Callable[[WorkloadMatrix], tuple[float, ...]]
# What each measures, and the published limits: utilization below 25 %; below 70 % and 10 %,
# a distance of 0.5, 5 % of growth; three deviations.
RIVALS: dict[str, tuple[Measure, tuple[float, ...]]] = {
    "jobstats": (measure_jobstats, (75.0,)),
    "SageMaker": (measure_sagemaker, (30.0, 90.0, 0.5, 0.05)),
    "outlier": (measure_outlier, (3.0,)),
}


# Which rule of a rival speaks of memory alone: a leak beside a slow GPU is not the slow GPU.
OF_MEMORY = {"SageMaker": 3}


def exceeds(
    measured: tuple[float, ...], limits: tuple[float, ...], without: int | None = None
) -> bool:
    """Return whether any rule of a rival finds something, but for one."""
    pairs = enumerate(zip(measured, limits, strict=True))
    return any(value > limit for at, (value, limit) in pairs if at != without)


@dataclass
class Tally:
    """What one detector found over the run."""

    found: dict[Case, list[bool]] = field(default_factory=dict)
    false: int = 0
    false_on_healthy: int = 0
    right: int = 0

    def note(self, key: Case, hit: bool, wrong: int) -> None:
        """Count one faulty workload."""
        self.found.setdefault(key, []).append(hit)
        self.right += hit
        self.false += wrong

    def note_healthy(self, wrong: int) -> None:
        """Count one healthy workload."""
        self.false += wrong
        self.false_on_healthy += wrong

    @property
    def precision(self) -> float:
        """Share of findings that were there."""
        return self.right / max(1, self.right + self.false)


def judge(
    matrix: WorkloadMatrix, kind: FaultKind, beside: frozenset[FaultKind] = frozenset()
) -> tuple[bool, int]:
    """Return whether Marey names the fault, and how many others it names."""
    kinds = {f.kind for f in find_faults(matrix) if f.confidence >= 0.6} - NOT_FAULTS
    return kind in kinds, len(kinds - {kind} - beside)


def run(first_seed: int, seeds: int, healthy_runs: int) -> dict[str, Tally]:
    """Return every detector's tally."""
    tallies = {name: Tally() for name in ("Marey", *RIVALS, *map(tuned, RIVALS))}
    measured: list[tuple[Case, dict[str, tuple[float, ...]]]] = []
    for kind, band, seed in _list_cases(first_seed, seeds):
        matrix = draw_matrix(seed, kind, draw_severity(kind, band, seed))
        beside = frozenset([K.MEMORY_LEAK] if has_second_fault(kind, seed) else [])
        tallies["Marey"].note((kind, band), *judge(matrix, kind, beside))
        measured.append(((kind, band), _measure_rivals(matrix)))
    silent: list[dict[str, tuple[float, ...]]] = []
    for seed in range(HEALTHY_SEED, HEALTHY_SEED + healthy_runs):
        matrix = draw_matrix(seed, K.HEALTHY, None)
        tallies["Marey"].note_healthy(judge(matrix, K.HEALTHY)[1])
        silent.append(_measure_rivals(matrix))
    for name, (_, published) in RIVALS.items():
        highest = tuple(np.max([one[name] for one in silent], axis=0)) if silent else published
        for label, limits in ((name, published), (tuned(name), highest)):
            for case, values in measured:
                without = None if case[0] is K.MEMORY_LEAK else OF_MEMORY.get(name)
                tallies[label].note(case, exceeds(values[name], limits, without), 0)
            for one in silent:
                tallies[label].note_healthy(int(exceeds(one[name], limits)))
    return tallies


def tuned(name: str) -> str:
    """Return what a rival is called whose limits are moved until it is silent on healthy work."""
    return f"{name}, tuned"


def _measure_rivals(matrix: WorkloadMatrix) -> dict[str, tuple[float, ...]]:
    return {name: measure(matrix) for name, (measure, _) in RIVALS.items()}


def draw_severity(kind: FaultKind, band: Band, seed: int) -> float:
    """Return a severity of a band, evenly in its logarithm; the same for the same seed."""
    chance = np.random.default_rng([seed, list(BANDS).index(kind), round(band[0] * 1e6)])
    return float(np.exp(chance.uniform(*np.log(band))))


def _list_cases(first_seed: int, seeds: int) -> Iterator[tuple[FaultKind, Band, int]]:
    for kind, bands in BANDS.items():
        for band in bands:
            for seed in range(first_seed, first_seed + seeds):
                yield kind, band, seed


def print_curves(tallies: dict[str, Tally]) -> tuple[int, int]:
    """Print recall by band; return where a precise rival finds more, and where as much below 1."""
    print(f"  {'':14s}{'':28s}" + "".join(f"{name:>17s}" for name in tallies))
    precise = [t for name, t in tallies.items() if name != "Marey" and t.precision >= 0.95]
    behind = tied = 0
    for kind, band in _list_bands():
        shares = [float(np.mean(t.found[kind, band])) for t in tallies.values()]
        best = max([0.0, *(float(np.mean(t.found[kind, band])) for t in precise)])
        behind += shares[0] < best
        tied += shares[0] == best < 1.0
        print(f"  {_label(kind, band)}" + "".join(f"{share:17.2f}" for share in shares))
    for kind in BANDS:
        found = tallies["Marey"].found
        least = _find_least(kind, {band: found[kind, band] for band in BANDS[kind]})
        print(f"  {kind.value}: found 95 % of the time from {least} on")
    return behind, tied


def _list_bands() -> list[Case]:
    return [(kind, band) for kind, bands in BANDS.items() for band in bands]


def _label(kind: FaultKind, band: Band) -> str:
    return f"{kind.value:14s}" + f"{band[0]:.1%}-{band[1]:.1%} {UNIT[kind]}".ljust(28)


def _find_least(kind: FaultKind, found: dict[Band, list[bool]]) -> str:
    """Return the severity from which on every band is found 95 % of the time, of those drawn."""
    least = "none of these"
    for band in reversed(BANDS[kind]):
        if np.mean(found[band]) < 0.95:
            break
        least = f"{band[0]:.1%}"
    return least


def print_by_metrics(tally: Tally, first_seed: int, seeds: int) -> None:
    """Print recall with and without profiling metrics, beside what an oracle tells from them."""
    simulate = cache(_simulate)
    parts = (("with profiling", True, ("sm_active", "power")), ("without", False, ("power",)))
    print(f"  {'':42s}" + "".join(f"{name:>17s}{'oracle':>10s}" for name, _, _ in parts))
    for kind, band in _list_bands():
        if kind is K.MEMORY_LEAK:
            continue
        line = f"  {_label(kind, band)}"
        for _, profiling, metrics in parts:
            at = [s for s in range(first_seed, first_seed + seeds) if has_profiling(s) is profiling]
            found = [tally.found[kind, band][seed - first_seed] for seed in at]
            effects = [measure_effect(simulate, n, draw_severity(kind, band, n)) for n in at]
            reported = [find_share(effect, kind, GPUS, metrics) for effect in effects]
            line += f"{_average(found):17.2f}{_average(reported):10.2f}"
        print(line)
    for kind in (K.SLOW_GPU, K.SLOW_FABRIC):
        kept = {
            band: [
                hit for at, hit in enumerate(tally.found[kind, band])
                if has_profiling(first_seed + at)
            ]
            for band in BANDS[kind]
        }  # fmt: skip
        print(f"  {kind.value} with profiling: found 95 % of the time from "
              f"{_find_least(kind, kept)} on")  # fmt: skip


def _average(shares: Sequence[float]) -> float:
    return float(np.mean(shares)) if len(shares) else float("nan")


def main(argv: list[str] | None = None) -> int:
    """Print the curves; ``python -m bench.hard_world SEEDS HEALTHY`` sets how many runs."""
    words = [int(word) for word in (argv or [])]
    seeds, healthy_runs = (words + [SEEDS, HEALTHY_RUNS][len(words) :])[:2]
    noise = "of real jobs" if load_real_noise() else "normal: real data not found"
    print(f"  noise: {noise}; seeds from {FIRST_SEED}, healthy ones from {HEALTHY_SEED}")
    tallies = run(FIRST_SEED, seeds, healthy_runs)
    behind, tied = print_curves(tallies)
    gpu_days = healthy_runs * GPUS * HOURS / 24.0
    for name, tally in tallies.items():
        rate = tally.false_on_healthy / gpu_days * 1000
        print(f"  {name}: precision {tally.precision:.3f}, {rate:.1f} false per 1,000 GPU-days")
    print_by_metrics(tallies["Marey"], FIRST_SEED, seeds)
    size = f"{seeds} seeds, {GPUS} GPUs, {gpu_days:.0f} GPU-days of healthy work"
    return _hold_against(tallies["Marey"], (behind, tied), gpu_days, size)


def _hold_against(marey: Tally, ranks: tuple[int, int], gpu_days: float, size: str) -> int:
    """Print the figures that are asked for beside their limits; return how many are missed."""
    results = Results()
    rivals = "rivals of precision >= 0.95"
    for what, ratio, target, rival in (
        ("precision over every severity", marey.precision, 0.95, "of the truth"),
        (
            "false findings on healthy work",
            marey.false_on_healthy / gpu_days * 1000,
            1.0,
            "per 1,000 GPU-days",
        ),
        ("bands of severity at which one finds more", float(ranks[0]), 0.0, rivals),
        ("bands at which one finds as much, and less than all", float(ranks[1]), 0.0, rivals),
    ):
        results.against(
            what,
            ratio=ratio,
            target=target,
            rival=rival,
            size=size,
            at_10x="the same: each workload is judged by itself",
            higher_is_better=rival == "of the truth",
        )
    return results.missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What diagnosis finds of faults of every severity, beside what others' thresholds find.

A harder world than ``bench diagnosis``: severities from hardly there to plain, samples every
60 s, a third of the workloads without profiling metrics, noise on every value, and healthy work
with evaluations, checkpoints and serving load as confounders. Recall against severity, the
smallest severity found 95 % of the time, precision, and false findings on healthy work, with the
thresholds of jobstats and SageMaker (from their documentation) and an outlier detector in the
manner of Minder in the same run. Rivals are believed generously: any finding of theirs counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bench.diagnosis import matrix_of
from bench.report import Results
from marey.diagnose.diagnosis import find_faults
from marey.diagnose.matrix import WorkloadMatrix
from marey.model.faults import NOT_FAULTS, FaultKind
from marey.sim.scenarios import one_workload

K = FaultKind
FIRST_SEED, SEEDS = 40_000, 24
GPUS, HOURS, STEP_MS = 32, 4.0, 60_000
HEALTHY_RUNS = 90
SEVERITIES = {
    K.SLOW_GPU: (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4),
    K.SLOW_FABRIC: (0.05, 0.1, 0.2, 0.3, 0.45, 0.6),
    K.MEMORY_LEAK: (0.001, 0.003, 0.01, 0.03, 0.06),
}
UNIT = {K.SLOW_GPU: "slower", K.SLOW_FABRIC: "slower", K.MEMORY_LEAK: "of memory an hour"}
PROFILING = ("sm_active", "tensor_active", "dram_active", "sm_occupancy", "graphics_active")
NOISE = {"util": 2.0, "power": 6.0, "sm_active": 2.0, "tensor_active": 1.5, "mem_used": 40.0}


def draw_matrix(seed: int, kind: FaultKind, severity: float | None) -> WorkloadMatrix:
    """Return one workload's samples, as a site with coarse and noisy metrics has them."""
    works = ("train", "train", "serve")
    work = works[seed % 3] if kind is K.HEALTHY else "train"
    scenario = one_workload(
        kind, gpus=GPUS, hours=HOURS, seed=seed, tick_ms=STEP_MS, work=work, severity=severity
    )
    matrix = matrix_of(scenario.workload.workload, scenario.observations)
    chance = np.random.default_rng(seed)
    columns = {}
    for name, values in matrix.columns.items():
        if seed % 3 == 0 and name in PROFILING:
            continue
        noise = chance.normal(0.0, NOISE.get(name, 0.0), values.shape) if name in NOISE else 0.0
        columns[name] = np.maximum(values + noise, 0.0).astype(np.float32)
    return replace(matrix, columns=columns)


# Others' rules


def find_by_jobstats(matrix: WorkloadMatrix) -> bool:
    """Return what jobstats reports: mean utilization below 25 % (red at 15 %)."""
    return float(np.nanmean(matrix.columns["util"])) < 25.0


def find_by_sagemaker(matrix: WorkloadMatrix) -> bool:
    """Return SageMaker's rules: low or fluctuating use, unbalanced histograms, growing memory."""
    util, memory = matrix.columns["util"], matrix.columns["mem_used"]
    high, low = np.nanpercentile(util, 95), np.nanpercentile(util, 5)
    counts = np.array([np.histogram(row, 20, (0, 100))[0] for row in np.nan_to_num(util)], float)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    apart = max(0.5 * np.abs(shares - shares[0]).sum(axis=1))
    begin = len(matrix.time_ms) // 4
    before = np.nanmean(memory[:, begin : begin + 30], axis=1)
    grown = np.nanmean(memory[:, -30:], axis=1) / np.maximum(1.0, before)
    return bool(high < 70 or low < 10 or apart > 0.5 or (grown > 1.05).any())


def find_by_outlier(matrix: WorkloadMatrix, windows: int = 4, limit: float = 3.0) -> bool:
    """Return whether one GPU lies apart from all others for several windows, as Minder looks."""
    for name in ("util", "power", "sm_active", "mem_used"):
        values = matrix.columns.get(name)
        if values is None:
            continue
        count = values.shape[1] // 10
        means = np.nanmean(values[:, : count * 10].reshape(len(values), count, 10), axis=2)
        apart = np.abs(means[:, None, :] - means[None, :, :]).sum(axis=1)
        spread = apart.std(axis=0) + 1e-6
        score = (apart - apart.mean(axis=0)) / spread
        outside = score > limit
        if any(_has_run(row, windows) for row in outside):
            return True
    return False


def _has_run(flags: NDArray[np.bool_], length: int) -> bool:
    run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        if run >= length:
            return True
    return False


RIVALS: dict[str, Callable[[WorkloadMatrix], bool]] = {
    "jobstats": find_by_jobstats,
    "SageMaker": find_by_sagemaker,
    "outlier": find_by_outlier,
}


@dataclass
class Tally:
    """What one detector found over the run."""

    found: dict[tuple[FaultKind, float], list[bool]] = field(default_factory=dict)
    false: int = 0
    false_on_healthy: int = 0
    right: int = 0

    def note(self, key: tuple[FaultKind, float], hit: bool, wrong: int) -> None:
        """Count one faulty workload."""
        self.found.setdefault(key, []).append(hit)
        self.right += hit
        self.false += wrong

    @property
    def precision(self) -> float:
        """Share of findings that were there."""
        return self.right / max(1, self.right + self.false)


def judge(matrix: WorkloadMatrix, kind: FaultKind) -> tuple[bool, int]:
    """Return whether Marey names the fault, and how many others it names."""
    kinds = {f.kind for f in find_faults(matrix) if f.confidence >= 0.6} - NOT_FAULTS
    return kind in kinds, len(kinds - {kind})


def run(first_seed: int, seeds: int, healthy_runs: int) -> tuple[dict[str, Tally], float]:
    """Return every detector's tally, and the GPU-days of healthy work."""
    tallies = {name: Tally() for name in ("Marey", *RIVALS)}
    for kind, severity, seed in _list_cases(first_seed, seeds):
        matrix = draw_matrix(seed, kind, severity)
        tallies["Marey"].note((kind, severity), *judge(matrix, kind))
        for name, find in RIVALS.items():
            tallies[name].note((kind, severity), find(matrix), 0)
    for seed in range(first_seed + 5_000, first_seed + 5_000 + healthy_runs):
        matrix = draw_matrix(seed, K.HEALTHY, None)
        wrong = {"Marey": judge(matrix, K.HEALTHY)[1]}
        wrong |= {name: int(find(matrix)) for name, find in RIVALS.items()}
        for name, count in wrong.items():
            tallies[name].false += count
            tallies[name].false_on_healthy += count
    return tallies, healthy_runs * GPUS * HOURS / 24.0


def _list_cases(first_seed: int, seeds: int) -> Iterator[tuple[FaultKind, float, int]]:
    for kind, severities in SEVERITIES.items():
        for severity in severities:
            for seed in range(first_seed, first_seed + seeds):
                yield kind, severity, seed


def main(argv: list[str] | None = None) -> int:
    """Print the curves; ``python -m bench.hard_world SEEDS HEALTHY`` sets how many runs."""
    words = [int(word) for word in (argv or [])]
    seeds, healthy_runs = (words + [SEEDS, HEALTHY_RUNS][len(words) :])[:2]
    tallies, gpu_days = run(FIRST_SEED, seeds, healthy_runs)
    print(f"  {'':14s}{'':24s}" + "".join(f"{name:>11s}" for name in tallies))
    behind = 0
    precise = [at for at, t in enumerate(tallies.values()) if at and t.precision >= 0.95]
    for kind, severities in SEVERITIES.items():
        for severity in severities:
            shares = [float(np.mean(t.found[kind, severity])) for t in tallies.values()]
            behind += shares[0] < max([0.0, *(shares[at] for at in precise)])
            label = f"{severity:.1%} {UNIT[kind]}"
            print(f"  {kind.value:14s}{label:24s}" + "".join(f"{s:11.2f}" for s in shares))
        sure = [s for s in severities if np.mean(tallies["Marey"].found[kind, s]) >= 0.95]
        least = f"{min(sure):.1%}" if sure else "none of these"
        print(f"  {kind.value}: found 95 % of the time from {least} on")
    for name, tally in tallies.items():
        rate = tally.false_on_healthy / gpu_days * 1000
        print(f"  {name}: precision {tally.precision:.3f}, {rate:.1f} false per 1,000 GPU-days")
    results = Results()
    results.against(
        "precision over every severity",
        ratio=tallies["Marey"].precision,
        target=0.95,
        rival="of the truth",
        size=f"{seeds} seeds, {GPUS} GPUs, {healthy_runs} healthy workloads",
        at_10x="the same: each workload is judged by itself",
    )
    results.against(
        "severities at which a rival of equal precision finds more",
        ratio=float(behind),
        target=0.0,
        rival="severities",
        size=f"{sum(map(len, SEVERITIES.values()))} severities",
        at_10x="the same",
        higher_is_better=False,
    )
    print(f"  healthy work: {gpu_days:.0f} GPU-days")
    return results.missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How often the verdicts are right, on synthetic runs of known truth that nobody tuned on."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from bench.report import Results
from marey.trace.analysis import judge
from marey.trace.results import Verdict, VerdictKind
from marey.trace.synthetic import Layout, Scenario, TraceStyle, Truth, make_run, possible_kinds

# Seeds below this were looked at while the judges were written.
FIRST_SEED = 100_000
SEEDS = 20
LAYOUTS = (
    Layout(data=8, ranks_per_host=4),
    Layout(data=16, micro_batches=2, layers=2),
    Layout(data=8, sharded=True, ranks_per_host=2),
    Layout(data=4, tensor=2, layers=3, ranks_per_host=4),
    Layout(data=4, tensor=8, layers=2),
    Layout(data=2, pipeline=4, micro_batches=8, layers=2, ranks_per_host=2),
    Layout(data=4, pipeline=2, micro_batches=4, schedule="gpipe", ranks_per_host=4),
    Layout(data=2, tensor=2, pipeline=4, micro_batches=4, layers=2, ranks_per_host=4),
)
LARGE = (
    Layout(data=8, tensor=4, pipeline=4, micro_batches=4, layers=1),
    Layout(data=256, layers=2),
    Layout(data=16, tensor=8, pipeline=8, micro_batches=8, layers=1),
)


@dataclass
class Score:
    """Counts over many runs."""

    right: int = 0
    faulty: int = 0
    healthy: int = 0
    healthy_right: int = 0
    once: int = 0
    overlap: list[float] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)

    def add(self, truth: Truth, verdicts: list[Verdict], layout: Layout) -> None:
        """Count one run; an empty pipeline is normal for a healthy run, and no fault."""
        first = verdicts[0]
        if truth.kind == VerdictKind.NONE:
            self.healthy += 1
            bubble = first.kind == VerdictKind.PIPELINE_BUBBLE and layout.pipeline > 1
            self.healthy_right += bubble or first.kind == VerdictKind.NONE
            return
        self.faulty += 1
        self.right += first.kind == truth.kind
        self.once += len(verdicts) == 1
        if first.kind != truth.kind:
            self.missed[f"{truth.kind} → {first.kind}"] += 1
        if truth.ranks:
            self.overlap.append(_f1(set(truth.ranks), set(first.ranks)))


def _f1(wanted: set[int], got: set[int]) -> float:
    common = len(wanted & got)
    return 2 * common / (len(wanted) + len(got)) if common else 0.0


def _choose_style(rng: np.random.Generator) -> TraceStyle:
    """Any way the same run may look."""
    return TraceStyle(
        kernel_names=str(rng.choice(["today", "yesterday"])),
        identifiers=str(rng.choice(["comms_id", "sequence", "none"])),
        described_groups=bool(rng.random() < 0.5),
        offset_us=float(rng.uniform(0, 800)),
        drift_ppm=float(rng.uniform(0, 40)),
    )


def score(layouts: tuple[Layout, ...], seeds: range, *, healthy_each: int = 1) -> Score:
    """Verdicts on one run per layout, fault and seed, and some healthy ones."""
    found = Score()
    for seed in seeds:
        for number, layout in enumerate(layouts):
            kinds = list(possible_kinds(layout)) + [VerdictKind.NONE] * (healthy_each - 1)
            for at, kind in enumerate(kinds):
                own = seed * 1000 + number * 50 + at
                trace_style = _choose_style(np.random.default_rng(own))
                made = make_run(Scenario(layout, kind, steps=5, seed=own, trace_style=trace_style))
                found.add(made.truth, judge(made.run), layout)
    return found


def report(results: Results, name: str, found: Score, seconds: float) -> None:
    """Print one score against its targets."""
    runs = found.faulty + found.healthy
    size = f"{runs} runs, {name}"
    later = "the same; a run costs time in proportion to its communications"
    for what, value, target in (
        ("top-1 accuracy", found.right / max(found.faulty, 1), 0.95),
        ("ranks F1", float(np.mean(found.overlap)), 0.95),
        ("healthy called none or a bubble", found.healthy_right / max(found.healthy, 1), 0.98),
    ):
        results.against(
            f"{what}, {name}",
            ratio=value,
            target=target,
            rival="of the truth",
            size=size,
            at_10x=later,
        )
    results.line(
        "one cause named once",
        f"{100 * found.once / max(found.faulty, 1):.1f} % of faulty runs; {seconds:.0f} s in all",
        size=size,
        at_10x=later,
    )
    for text, count in found.missed.most_common():
        print(f"      missed: {text} ×{count}")


def main() -> int:
    """Score small layouts on many seeds and large ones on a few."""
    seeds = int(os.environ.get("MAREY_BENCH_SEEDS", SEEDS))
    first = int(os.environ.get("MAREY_BENCH_FIRST_SEED", FIRST_SEED))
    large = int(os.environ.get("MAREY_BENCH_LARGE_SEEDS", "1"))
    results = Results()
    for name, layouts, count in (
        ("8 to 32 ranks", LAYOUTS, seeds),
        ("128 to 1,024 ranks", LARGE, large),
    ):
        begun = time.perf_counter()
        found = score(layouts, range(first, first + count))
        if found.faulty:
            report(results, name, found, time.perf_counter() - begun)
    return results.missed

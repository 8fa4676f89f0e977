"""How small a fault the verdicts find in a harder world: recall against severity, as a curve.

Every run has noise and perhaps a confounder; a fault adds 3 to 60 % of a step on one rank, some of
the time. A finding counts at the confidence at which at least 95 % of all findings are true.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

import numpy as np

from bench.report import Results
from marey.trace.analysis import judge
from marey.trace.results import Verdict, VerdictKind
from marey.trace.synthetic import Layout, Truth, make_hard_run
from marey.trace.synthetic.hard import HARD_KINDS, draw_scenario
from marey.trace.verdicts.doubts import FAULTLESS_KINDS

RUNS_PER_KIND = 24
FIRST_SEED = 500_000
PRECISION = 0.95
EDGES = (0.03, 0.06, 0.1, 0.15, 0.25, 0.4, 0.6)
LAYOUTS = (
    Layout(data=8, ranks_per_host=4),
    Layout(data=8, sharded=True, ranks_per_host=2),
    Layout(data=4, tensor=2, layers=3, ranks_per_host=4),
)


@dataclass(frozen=True)
class Finding:
    """One verdict against the truth of its run."""

    run: int
    true: bool
    confidence: float


def is_true(verdict: Verdict, truth: Truth) -> bool:
    """Whether a verdict names the injected cause and its ranks."""
    if verdict.kind != truth.kind:
        return False
    return not truth.ranks or bool(set(verdict.ranks) & set(truth.ranks))


def collect(runs: int, first: int) -> tuple[list[Finding], list[tuple[int, VerdictKind, float]]]:
    """Return the findings of every run, and the faults there were."""
    findings, faults = [], []
    number = 0
    for kind in (None, *HARD_KINDS):
        for at in range(runs):
            layout = LAYOUTS[at % len(LAYOUTS)]
            if kind == VerdictKind.SLOW_LINK:
                layout = LAYOUTS[2]
            number += 1
            scenario = draw_scenario(layout, kind, first + number)
            made = make_hard_run(scenario)
            if kind is not None:
                faults.append((number, kind, scenario.severity))
            for verdict in judge(made.run):
                if verdict.kind not in FAULTLESS_KINDS:
                    true = is_true(verdict, made.truth)
                    findings.append(Finding(number, true, verdict.confidence))
    return findings, faults


def choose_threshold(findings: list[Finding]) -> tuple[float, float]:
    """Return the least confidence at which the findings are precise enough, and their precision."""
    for threshold in sorted({f.confidence for f in findings} | {0.0}):
        kept = [f.true for f in findings if f.confidence >= threshold]
        if kept and np.mean(kept) >= PRECISION:
            return threshold, float(np.mean(kept))
    return 1.0, 1.0


def main() -> int:
    """Print recall by severity and kind, and the smallest severity that is nearly always found."""
    runs = int(os.environ.get("MAREY_BENCH_SEEDS", RUNS_PER_KIND))
    findings, faults = collect(runs, FIRST_SEED)
    threshold, precision = choose_threshold(findings)
    found = {f.run for f in findings if f.true and f.confidence >= threshold}
    size = f"{runs} runs of each of {len(HARD_KINDS)} faults and without, 8 ranks, 8 steps"
    later = "the same; a run costs time in proportion to its communications"
    results = Results()
    results.against(
        "precision of findings",
        ratio=precision,
        target=PRECISION,
        rival=f"of the truth, at a confidence of {threshold:.2f}",
        size=size,
        at_10x=later,
    )
    for kind in (None, *HARD_KINDS):
        mine = [(n, s) for n, k, s in faults if kind in (None, k)]
        curve = " · ".join(_state_bin(mine, found, *edges) for edges in itertools.pairwise(EDGES))
        results.line(f"recall by severity, {kind or 'all'}", curve, size=size, at_10x=later)
    results.line(
        "found 95 % of the time from", _state_smallest(faults, found), size=size, at_10x=later
    )
    return results.missed


def _state_bin(mine: list[tuple[int, float]], found: set[int], low: float, high: float) -> str:
    inside = [n in found for n, severity in mine if low <= severity < high]
    share = f"{np.mean(inside):.0%} of {len(inside)}" if inside else "none drawn"
    return f"{low:.0%}-{high:.0%}: {share}"


def _state_smallest(faults: list[tuple[int, VerdictKind, float]], found: set[int]) -> str:
    """The severity above which 95 % of the faults of each kind were found."""
    texts = []
    for kind in HARD_KINDS:
        mine = sorted((s, n in found) for n, k, s in faults if k == kind)
        hits = np.array([hit for _, hit in mine], float)
        above = np.cumsum(hits[::-1])[::-1] / np.arange(len(hits), 0, -1)
        good = np.flatnonzero(above >= 0.95)
        texts.append(f"{kind} {mine[good[0]][0]:.0%}" if len(good) else f"{kind} never")
    return ", ".join(texts)

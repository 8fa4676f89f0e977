"""Groups of runs side by side: means, scaling efficiency, and what differs significantly.

Each run is one sample: steps of one run are not independent of each other. Every group is tested
against the baseline by Welch's unequal-variances t-test, per figure; p is corrected by Benjamini
and Hochberg for all tests of the comparison. With fewer than three runs on a side nothing is
tested, and that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np

from marey.compare.comparison_documents import (
    LossCurve,
    TrainingComparison,
    TrainingFigure,
    TrainingGroup,
    TrainingRunFigures,
)
from marey.compare.figures import RunFigures, compute_figures, smooth_loss
from marey.model.errors import InvalidInput, unknown
from marey.model.training.run_series import RunSeries
from marey.stats.significance import FEWEST_SAMPLES, SIGNIFICANCE, benjamini_hochberg, welch

FIGURES = tuple(field.name for field in fields(RunFigures))
TEST = "Welch's t-test over runs, Benjamini-Hochberg corrected"
CURVE_POINTS = 400


def compare_runs(
    runs: Sequence[RunSeries], *, baseline: str | None = None, loss: float | None = None
) -> TrainingComparison:
    """Return figures per run and per group, each group tested against the baseline."""
    if not runs:
        raise InvalidInput("Name at least one run to compare.")
    labels = list(dict.fromkeys(run.label or run.name for run in runs))
    chosen = labels[0] if baseline is None else baseline
    if chosen not in labels:
        raise InvalidInput(unknown("baseline", chosen, labels))
    figures = [compute_figures(run, loss) for run in runs]
    groups = {
        label: [n for n, run in enumerate(runs) if (run.label or run.name) == label]
        for label in labels
    }
    tests = _test_groups(groups, figures, chosen)
    efficiency = compute_efficiency(runs, figures, groups)
    return TrainingComparison(
        baseline=chosen,
        loss=loss,
        unit=next((run.unit for run in runs if run.unit), ""),
        test=_describe_tests(tests),
        runs=[
            TrainingRunFigures(
                name=run.name,
                label=run.label or run.name,
                gpus=run.gpus,
                **asdict(figure),
                notes=list(run.notes),
                curve=make_curve(run),
            )
            for run, figure in zip(runs, figures, strict=True)
        ],
        groups=[
            TrainingGroup(
                label=label,
                n=len(members),
                gpus=_common([runs[n].gpus for n in members]),
                efficiency=efficiency[label],
                figures={
                    name: _describe(_values(figures, members, name), tests[label][name])
                    for name in FIGURES
                },
            )
            for label, members in groups.items()
        ],
    )


@dataclass
class _Test:
    """How a group compares with the baseline in one figure; ``said`` has the test."""

    change: float | None = None
    p: float | None = None
    q: float | None = None
    significant: bool | None = None
    said: str = ""


Tests = dict[str, dict[str, _Test]]


def _describe(values: list[float], test: _Test) -> TrainingFigure:
    known = np.array(values)
    return TrainingFigure(
        n=len(known),
        mean=float(known.mean()) if values else None,
        sd=float(known.std(ddof=1)) if len(known) > 1 else None,
        min=min(values, default=None),
        max=max(values, default=None),
        **asdict(test),
    )


def _test_groups(
    groups: dict[str, list[int]], figures: Sequence[RunFigures], baseline: str
) -> Tests:
    """Test every figure of every group against the baseline; correct all p together."""
    tests: Tests = {}
    found: list[tuple[_Test, float]] = []
    for label, members in groups.items():
        tests[label] = {}
        for name in FIGURES:
            ours = _values(figures, members, name)
            theirs = _values(figures, groups[baseline], name)
            test = _compare_values(theirs, ours, is_baseline=label == baseline)
            tests[label][name] = test
            if test.p is not None:
                found.append((test, test.p))
    for (test, _), q in zip(found, benjamini_hochberg([p for _, p in found]), strict=True):
        test.q = q
        test.significant = q < SIGNIFICANCE
    return tests


def _values(figures: Sequence[RunFigures], members: Sequence[int], name: str) -> list[float]:
    return [value for n in members if (value := getattr(figures[n], name)) is not None]


def _compare_values(before: list[float], after: list[float], *, is_baseline: bool) -> _Test:
    test = _Test()
    if is_baseline or not before or not after:
        return test
    base = float(np.mean(before))
    test.change = float(np.mean(after)) / base - 1 if base else None
    n = min(len(before), len(after))
    if n < FEWEST_SAMPLES:
        test.said = f"not tested: n = {n} is fewer than {FEWEST_SAMPLES} runs on a side"
        return test
    test.p = welch(before, after)
    test.said = f"n = {len(before)} and {len(after)}"
    return test


def _describe_tests(tests: Tests) -> str:
    done = sum(test.p is not None for group in tests.values() for test in group.values())
    if done:
        return f"{TEST}; {done} tests"
    return f"not tested: fewer than {FEWEST_SAMPLES} runs on a side"


def _common(values: Sequence[int | None]) -> int | None:
    known = set(values)
    return next(iter(known)) if len(known) == 1 else None


def compute_efficiency(
    runs: Sequence[RunSeries], figures: Sequence[RunFigures], groups: dict[str, list[int]]
) -> dict[str, float | None]:
    """Return throughput per GPU as a share of that of the group with the fewest GPUs."""
    rates: dict[str, tuple[int, float]] = {}
    for label, members in groups.items():
        gpus = _common([runs[n].gpus for n in members])
        values = _values(figures, members, "throughput")
        if gpus and values:
            rates[label] = (gpus, float(np.mean(values)))
    if len({gpus for gpus, _ in rates.values()}) < 2:
        return dict.fromkeys(groups, None)
    least, rate = min(rates.values())
    return {
        label: rates[label][1] / rates[label][0] / (rate / least) if label in rates else None
        for label in groups
    }


def make_curve(run: RunSeries) -> LossCurve:
    """Return the loss against hours and samples, thinned evenly, first and last kept."""
    smooth = smooth_loss(run)
    known = np.flatnonzero(np.isfinite(smooth))
    if len(known) > CURVE_POINTS:
        known = known[np.linspace(0, len(known) - 1, CURVE_POINTS).astype(np.int64)]
    has_times = len(run.time_ms) == len(run.loss) and len(run.loss) > 0
    has_samples = len(run.samples) == len(run.loss)
    start = float(run.time_ms[0]) if has_times else 0.0
    return LossCurve(
        loss=[float(smooth[n]) for n in known],
        hours=[(float(run.time_ms[n]) - start) / 3_600_000 if has_times else None for n in known],
        samples=[_plain(run.samples[n]) if has_samples else None for n in known],
    )


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

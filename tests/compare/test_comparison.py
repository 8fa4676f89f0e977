"""Runs compared: figures, groups, scaling, and tests that say what they are."""

from __future__ import annotations

import numpy as np
import pytest

from marey.compare.comparison import FIGURES, compare_runs
from marey.compare.figures import compute_figures, find_loss
from marey.model.errors import InvalidInput
from marey.model.training.run_series import RunSeries


def make_run(
    label: str, seed: int = 0, *, seconds: float = 1.0, gpus: int = 8, reports: int = 200
) -> RunSeries:
    random = np.random.default_rng(seed)
    step = np.arange(1, reports + 1, dtype=float)
    lasts = seconds * random.normal(1, 0.01, reports)
    return RunSeries(
        f"{label}-{seed}",
        label,
        time_ms=1.7e12 + 1000 * np.cumsum(lasts),
        step=step,
        samples=64 * step,
        loss=2 + 8 / np.sqrt(step) + random.normal(0, 0.01, reports),
        throughput=64 / lasts,
        unit="samples/s",
        gpus=gpus,
    )


def test_figures_of_a_run_are_those_it_was_made_with() -> None:
    run = make_run("a", seconds=0.5)
    figures = compute_figures(run, loss=3.0)
    assert figures.throughput == pytest.approx(128, rel=0.01)
    assert figures.step_ms == pytest.approx(500, rel=0.01)
    # 2 + 8/√step = 3 at step 64; the mean of five reports lags two behind.
    reached = find_loss(run, 3.0)
    assert reached is not None
    assert 62 <= reached <= 70
    assert figures.samples_to_loss == 64 * (reached + 1)
    assert figures.gpu_hours_to_loss == pytest.approx(8 * reached * 0.5 / 3600, rel=0.02)


def test_what_was_not_reported_is_none_and_not_zero() -> None:
    figures = compute_figures(RunSeries("empty"), loss=1.0)
    assert all(getattr(figures, name) is None for name in FIGURES)
    found = compare_runs([RunSeries("empty")])
    assert found.groups[0].figures["throughput"].n == 0


def test_a_faster_group_is_significant_and_an_equal_loss_is_not() -> None:
    runs = [make_run("base", n) for n in range(3)]
    runs += [make_run("new", n + 10, seconds=0.8) for n in range(3)]
    found = compare_runs(runs, loss=3.0)
    new = found.groups[1].figures
    assert new["throughput"].change == pytest.approx(0.25, abs=0.02)
    assert new["throughput"].significant is True
    assert new["throughput"].q >= new["throughput"].p
    assert new["final_loss"].significant is False
    assert found.test.startswith("Welch's t-test over runs, Benjamini-Hochberg corrected")
    assert new["throughput"].said == "n = 3 and 3"


def test_fewer_than_three_runs_are_not_tested() -> None:
    found = compare_runs([make_run("base", n) for n in range(2)] + [make_run("new", 5)])
    assert found.test.startswith("not tested")
    figure = found.groups[1].figures["throughput"]
    assert figure.p is None
    assert figure.said == "not tested: n = 1 is fewer than 3 runs on a side"


def test_scaling_is_throughput_per_gpu_against_the_smallest() -> None:
    small = make_run("8 GPUs", gpus=8, seconds=1.0)
    large = make_run("32 GPUs", gpus=32, seconds=0.4)
    shares = {g.label: g.efficiency for g in compare_runs([small, large]).groups}
    assert shares["8 GPUs"] == 1.0
    assert shares["32 GPUs"] == pytest.approx(2.5 / 4, rel=0.01)
    same = compare_runs([small, make_run("other", gpus=8)])
    assert all(group.efficiency is None for group in same.groups)


def test_a_loss_with_gaps_is_smoothed_over_what_is_known() -> None:
    loss = np.array([5.0, np.nan, 3.0, np.nan, np.nan, 1.0])
    run = RunSeries("gaps", time_ms=np.arange(6.0) * 1000, loss=loss)
    assert find_loss(run, 3.0) == 5
    assert compare_runs([run]).runs[0].curve.loss[-1] == pytest.approx(2.0)


def test_an_unknown_baseline_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(InvalidInput, match="base"):
        compare_runs([make_run("base")], baseline="bsae")
    with pytest.raises(InvalidInput, match="at least one run"):
        compare_runs([])


def test_a_loss_that_was_reached_before_the_first_report_has_no_cost() -> None:
    step = np.arange(1.0, 11.0)
    run = RunSeries("late", "late", time_ms=1e6 * step, step=step, loss=3 - step / 10, gpus=8)
    assert compute_figures(run, 5.0).gpu_hours_to_loss is None
    assert compute_figures(run, 2.5).gpu_hours_to_loss is not None

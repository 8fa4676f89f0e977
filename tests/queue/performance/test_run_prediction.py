"""Run times of applications never seen, in simulated worlds with a known cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marey.queue.forecast.forecaster import NotEnoughHistory
from marey.queue.performance.prediction import HOST_SLOWNESS, PerformanceModel, fit_performance
from marey.queue.performance.runs import RunTable, measure_against_own
from marey.queue.performance.slow_hosts import DAY_S, find_slow_hosts, trace_slowness
from marey.sim.scheduling.control_jobs import ControlPlan, ControlWorld, simulate_control_jobs

SEEDS = 4
TOP = {"hosts": HOST_SLOWNESS, "fabric": "fabric_load", "file_system": "file_system_load"}


def make_table(world: ControlWorld) -> RunTable:
    return RunTable(
        application=world.application,
        start_s=world.start_s,
        run_s=world.run_s,
        gpus=world.gpus,
        hosts=world.hosts,
        first=world.first,
        state={"fabric_load": world.fabric_load, "file_system_load": world.file_system_load},
    )


@pytest.fixture(scope="module")
def fitted() -> dict[tuple[str, int], PerformanceModel]:
    return {
        (cause, seed): fit_performance(make_table(simulate_control_jobs(cause, seed)))
        for cause in (*TOP, "none")
        for seed in range(SEEDS)
    }


@pytest.mark.slow
def test_an_application_never_seen_is_predicted_twice_as_well_as_by_its_own_mean(
    fitted: dict[tuple[str, int], PerformanceModel],
) -> None:
    for (cause, seed), model in fitted.items():
        if cause != "none":
            assert model.error <= 0.5 * model.own_error, (cause, seed)
            assert model.gain_claimed, (cause, seed)


@pytest.mark.slow
def test_the_injected_cause_is_the_first_feature_in_nine_of_ten_worlds(
    fitted: dict[tuple[str, int], PerformanceModel],
) -> None:
    right = [next(iter(m.importance)) == TOP[c] for (c, _), m in fitted.items() if c in TOP]
    assert np.mean(right) >= 0.9


@pytest.mark.slow
def test_a_world_without_a_cause_claims_no_gain_and_predicts_the_own_mean(
    fitted: dict[tuple[str, int], PerformanceModel],
) -> None:
    for (cause, seed), model in fitted.items():
        if cause == "none":
            assert not model.gain_claimed, seed
            assert not model.predict(np.ones((3, len(model.names)))).any()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_exactly_the_slow_hosts_are_found(seed: int) -> None:
    world = simulate_control_jobs("hosts", seed)
    runs = make_table(world)
    found = find_slow_hosts(runs, measure_against_own(runs), 60 * DAY_S)
    assert set(found) == set(world.slow_hosts)
    healthy = make_table(simulate_control_jobs("fabric", seed))
    assert not find_slow_hosts(healthy, measure_against_own(healthy), 60 * DAY_S)


def test_what_is_known_of_hosts_at_a_start_does_not_change_with_later_runs() -> None:
    """Replays the log, midnight by midnight: runs that had not ended by then are of no effect."""
    runs = make_table(simulate_control_jobs("hosts", 1, ControlPlan(days=14)))
    # Half of the runs end a day and a half later: they run at midnights, and are not known there.
    longer = np.where(np.arange(len(runs)) // 6 % 2, 1.5 * DAY_S, 0.0)
    runs = replace(runs, run_s=runs.run_s + longer)
    misses = measure_against_own(runs)
    whole = trace_slowness(runs, misses)
    for day in range(5, 14):
        unknown = runs.start_s + runs.run_s > day * DAY_S
        alone = trace_slowness(runs, np.where(unknown, 5.0, misses))
        today = np.floor(runs.start_s / DAY_S) == day
        assert whole[today].any()
        assert np.array_equal(alone[today], whole[today])


def test_what_an_application_took_is_known_once_it_has_ended() -> None:
    runs = make_table(simulate_control_jobs("none", 2, ControlPlan(days=10)))
    longer = np.where(np.arange(len(runs)) // 6 % 3 == 0, 1.5 * DAY_S, 0.0)
    runs = replace(runs, run_s=runs.run_s + longer)
    whole = measure_against_own(runs)
    for moment_s in (4.5 * DAY_S, 7.5 * DAY_S):
        known = runs.start_s + runs.run_s <= moment_s
        later = replace(runs, run_s=np.where(known, runs.run_s, 20 * DAY_S))
        alone = measure_against_own(later)
        assert np.isfinite(whole[known]).any()
        assert np.array_equal(alone[known], whole[known], equal_nan=True)


def test_too_few_repeated_runs_are_not_enough_history() -> None:
    with pytest.raises(NotEnoughHistory, match="repeated runs"):
        fit_performance(make_table(simulate_control_jobs("none", 0, ControlPlan(days=2))))

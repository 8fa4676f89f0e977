"""Demand against the public traces it is shaped after."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from marey.sim import SimConfig, Simulation
from marey.sim.random_draws import generator
from marey.sim.scheduling.demand import WEEK, Demand, rhythm
from tests.sim.worlds import HOUR


@pytest.fixture(scope="module")
def demand() -> Demand:
    return Simulation(SimConfig(gpus=2048)).intake.demands[0]


@pytest.fixture(scope="module")
def philly(data_dir: Path) -> list[dict[str, str]]:
    path = data_dir / "jobs" / "philly" / "philly.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.data
def test_one_gpu_work_lasts_as_long_as_in_the_philly_trace(
    demand: Demand, philly: list[dict[str, str]]
) -> None:
    real = np.array([float(r["duration"]) for r in philly if r["num_gpus"] == "1"])
    real = np.log(real[real > 0])
    draws = demand.draw(generator(1, 2), 40_000)
    mine = np.log(draws.duration_ms[(draws.gpus == 1) & (draws.kind == 0)] / 1000)
    assert abs(np.median(mine) - np.median(real)) < np.log(2)
    assert abs(mine.std() - real.std()) < 0.35
    for percent in (25, 75, 95):
        assert abs(np.percentile(mine, percent) - np.percentile(real, percent)) < np.log(3)


@pytest.mark.data
def test_the_week_is_the_philly_traces(philly: list[dict[str, str]]) -> None:
    days = [datetime.fromisoformat(row["timestamp"]).weekday() for row in philly]
    counts = np.bincount(days, minlength=7)
    assert np.abs(counts / counts.mean() - np.array(WEEK)).max() < 0.01


def test_most_work_is_small_and_most_of_the_time_goes_to_the_large(demand: Demand) -> None:
    draws = demand.draw(generator(3, 4), 40_000)
    one = draws.gpus == 1
    assert 0.5 < one.mean() < 0.8
    gpu_time = draws.gpus * np.minimum(draws.duration_ms, draws.limit_ms)
    assert gpu_time[draws.gpus >= 4].sum() > 0.5 * gpu_time.sum()
    assert set(np.unique(draws.gpus)) == {1, 2, 4, 8}


def test_time_limits_are_mostly_but_not_always_long_enough(demand: Demand) -> None:
    draws = demand.draw(generator(5, 6), 40_000)
    late = draws.duration_ms > draws.limit_ms
    assert 0.0 < late.mean() < 0.05


def test_people_submit_less_when_the_queue_is_long_and_at_night(demand: Demand) -> None:
    monday = SimConfig().start_ms
    busy = [len(demand.arrivals(monday + 15 * HOUR, 1.0, w)[1]) for w in (0.0, 0.8, 1.6)]
    assert busy[0] > busy[1] > busy[2] > 0
    assert rhythm(monday + 15 * HOUR) > 1.5 * rhythm(monday + 3 * HOUR)
    saturday = monday + 5 * 24 * HOUR
    assert rhythm(saturday + 15 * HOUR) < rhythm(monday + 15 * HOUR)


def test_demand_meets_capacity_on_average(demand: Demand) -> None:
    monday = SimConfig().start_ms
    asked = 0.0
    for hour in range(7 * 24):
        draws, _ = demand.arrivals(monday + hour * HOUR, 1.0, 0.8)
        asked += float((draws.gpus * np.minimum(draws.duration_ms, draws.limit_ms)).sum())
    assert asked / (demand.part.gpu_count * 7 * 24 * HOUR) == pytest.approx(1.0, abs=0.12)

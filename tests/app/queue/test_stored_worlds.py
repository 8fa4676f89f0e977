"""The cause of slow runs, found from a store: runs, allocations and the hosts' own samples."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from marey.app.queries.system_load import average_before
from marey.app.queue.performance_queries import AskPerformance
from marey.model.times import HOUR_MS
from marey.sim.scheduling.control_jobs import ControlPlan, simulate_control_jobs
from marey.store.embedded.embedded_store import open_store
from tests.app.queue.stored_world import open_world

TOP = {"hosts": "host_slowness", "fabric": "fabric_load", "file_system": "file_system_load"}
PLAN = ControlPlan(days=40, applications=4, hosts=16, runs_per_day=3)


@pytest.mark.slow
@pytest.mark.parametrize("cause", [*TOP, "none"])
def test_the_injected_cause_is_found_from_what_the_store_kept(cause: str) -> None:
    world = simulate_control_jobs(cause, 77, PLAN)
    with open_store(None) as store:
        told: dict[str, Any] = msgspec.to_builtins(
            AskPerformance().ask(open_world(store, world, PLAN.days))
        )
    assert {row["host"] for row in told["slow_hosts"]} == {f"h{h}" for h in world.slow_hosts}
    assert told["gain_claimed"] == (cause != "none")
    if cause != "none":
        assert told["features"][0]["name"] == TOP[cause]
        assert told["error"] <= 0.5 * told["own_error"]


def test_a_load_is_the_mean_of_the_hour_before_and_of_nothing_later() -> None:
    times = np.arange(0, 10 * HOUR_MS, HOUR_MS // 4)
    moments = np.array([3 * HOUR_MS, 7 * HOUR_MS + 1])
    values = np.arange(len(times), dtype=np.float64)
    before = average_before(pa.table({"time_ms": times, "value": values}), moments)
    assert before[0] / before[1] == pytest.approx(
        np.mean([8, 9, 10, 11]) / np.mean([25, 26, 27, 28])
    )
    later = np.where(times >= moments[1], 1e6, values)
    after = average_before(pa.table({"time_ms": times[::-1], "value": later[::-1]}), moments)
    assert np.array_equal(before, after)


def test_moments_without_samples_get_the_mean() -> None:
    table = pa.table({"time_ms": [0, HOUR_MS], "value": [1.0, 3.0]})
    moments = np.array([1, HOUR_MS + 1, 9 * HOUR_MS])
    # The second hour holds the sample at its own start only.
    assert average_before(table, moments).tolist() == [1 / 3, 1.0, 2 / 3]

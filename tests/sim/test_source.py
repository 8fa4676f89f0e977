"""A simulation as a source: polled with the wall clock, at any speed."""

from __future__ import annotations

import threading

import pytest

from marey.model.errors import InvalidInput
from marey.model.protocols import Source
from marey.sim import SimConfig, Simulation
from marey.sources.simulated import BLOCK_FROM_TICKS, SimulatedSource
from tests.waiting import PATIENCE_S

WALL = 1_000_000


def source(speed: float = 1.0) -> SimulatedSource:
    return SimulatedSource(Simulation(SimConfig(gpus=64, seed=1)), speed)


def test_it_is_a_source_and_begins_with_everything() -> None:
    one: Source = source()
    (first,) = one.poll(WALL)
    assert first.complete
    assert len(first.gpus) == 64
    assert one.name == "simulated"
    one.close()


@pytest.mark.parametrize("speed", [1.0, 60.0, 300.0])
def test_wall_time_drives_simulated_time(speed: float) -> None:
    one = source(speed)
    one.poll(WALL)
    begin = one.simulation.now_ms
    seen = one.poll(WALL + 60_000)
    passed = one.simulation.now_ms - begin
    assert abs(passed - 60_000 * speed) <= one.simulation.config.tick_ms
    assert [o.time_ms for o in seen] == sorted(o.time_ms for o in seen)
    rows = sum(len(batch) for o in seen for batch in o.samples if "util" in batch.columns)
    assert rows == 64 * round(passed / 15_000)
    assert one.poll(WALL + 60_000) == []


def test_many_ticks_come_as_few_observations_with_samples() -> None:
    one = source(3600.0)
    one.poll(WALL)
    seen = one.poll(WALL + 1_000)
    assert one.simulation.now_ms - one.simulation.config.start_ms >= BLOCK_FROM_TICKS * 15_000
    assert sum(bool(o.samples) for o in seen) == 1


def test_a_gap_in_polling_is_bounded_and_a_clock_that_jumps_back_does_no_harm() -> None:
    one = source(100_000.0)
    one.poll(WALL)
    begin = one.simulation.now_ms
    one.poll(WALL + 3_600_000)
    assert one.simulation.now_ms - begin == 6 * 3_600_000
    assert one.poll(WALL - 500_000) == []


def test_speed_can_change_while_it_runs() -> None:
    one = source(1.0)
    one.poll(WALL)
    one.poll(WALL + 30_000)
    one.set_speed(600.0, WALL + 30_000)
    begin = one.simulation.now_ms
    one.poll(WALL + 40_000)
    assert abs(one.simulation.now_ms - begin - 6_000_000) <= 15_000
    with pytest.raises(InvalidInput, match="A speed of 0 is not allowed"):
        one.set_speed(0.0, WALL)


def test_commands_from_another_thread_do_not_disturb_collecting() -> None:
    one = source(3600.0)
    stop, commanded = threading.Event(), threading.Event()

    def command() -> None:
        while not stop.is_set():
            for placement in ("least_allocated", "most_allocated"):
                one.simulation.set_policy(placement=placement)
            commanded.set()

    worker = threading.Thread(target=command)
    worker.start()
    try:
        assert commanded.wait(PATIENCE_S)
        events = [e for i in range(20) for o in one.poll(WALL + i * 500) for e in o.events]
    finally:
        stop.set()
        worker.join()
    assert any(e.kind == "policy_change" for e in events)


def test_a_clock_that_tells_simulated_time_is_followed() -> None:
    one = source()
    list(one.simulation.advance(one.simulation.config.start_ms + 60_000))
    now = one.simulation.now_ms
    assert one.poll(now + 5_000) == []
    (seen,) = one.poll(now + 16_000)
    assert seen.time_ms == now + 15_000

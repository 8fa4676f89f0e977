"""The same seed and configuration give the same world, in whatever steps it is advanced."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from marey.sim import Simulation
from tests.sim.worlds import HOUR, MINUTE, small_world, what_happened

HOURS = 5


def in_one_block(**changes: object) -> tuple[list[object], bytes, bytes]:
    return what_happened(small_world(**changes).history(HOURS))


def end_of(world: Simulation) -> int:
    return world.config.start_ms + HOURS * HOUR - world.config.tick_ms


def test_tick_by_tick_equals_one_block() -> None:
    world = small_world()
    assert what_happened(world.advance(end_of(world))) == in_one_block()


def test_two_runs_are_equal_and_another_seed_is_not() -> None:
    assert in_one_block() == in_one_block()
    assert in_one_block(seed=4) != in_one_block()


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=12), st.booleans())
def test_any_slicing_gives_equal_bytes(minutes: list[int], ahead: bool) -> None:
    world = small_world()
    seen = []
    for i, step in enumerate(minutes):
        if i % 2:
            seen.extend(world.advance(min(world.now_ms + step * MINUTE, end_of(world))))
        else:
            left = world.ticks_due(end_of(world)) * world.config.tick_ms
            if left > 0:
                seen.extend(world.history(min(step * MINUTE, left) / HOUR))
    left = world.ticks_due(end_of(world)) * world.config.tick_ms
    if left > 0:
        seen.extend(world.history(left / HOUR, ahead=ahead))
    assert what_happened(seen) == in_one_block()


def test_a_resumed_simulation_continues_with_the_same_bytes() -> None:
    world = small_world()
    middle = world.config.start_ms + 2 * HOUR
    list(world.advance(middle))
    world.set_policy(placement="least_allocated")
    stalled = world.inject("stalled")
    list(world.advance(middle + 30 * MINUTE))
    state = json.loads(json.dumps(world.state()))

    resumed = Simulation.resume(state)
    rest = list(resumed.advance(end_of(world)))
    expected = list(world.advance(end_of(world)))

    assert rest[0].complete
    assert rest[0].time_ms == expected[0].time_ms == middle + 30 * MINUTE + world.config.tick_ms
    assert what_happened(rest[1:]) == what_happened(expected[1:])
    assert what_happened(rest)[1] == what_happened(expected)[1]
    assert resumed.truth() == world.truth()
    assert stalled in {truth.workload for truth in resumed.truth()}


def test_a_policy_change_is_an_event_and_changes_the_world() -> None:
    world = small_world()
    list(world.advance(world.config.start_ms + HOUR))
    world.set_policy(policy="fifo", backfill=False)
    after = next(iter(world.advance(world.now_ms + world.config.tick_ms)))
    texts = [event.text for event in after.events if event.kind == "policy_change"]
    assert texts == ["policy: multifactor → fifo; backfill: True → False"]
    assert world.policy() == {
        "policy": "fifo",
        "placement": "most_allocated",
        "backfill": False,
    }


def test_a_command_after_the_last_kept_tick_is_not_lost_and_repeats_nothing() -> None:
    world = small_world()
    list(world.advance(world.config.start_ms + HOUR))
    world.set_policy(placement="least_allocated")
    kept = world.now_ms - 2 * world.config.tick_ms
    resumed = Simulation.resume({**world.state(), "now_ms": kept})
    assert resumed.policy()["placement"] == "least_allocated"
    assert resumed.next_tick_ms == kept + world.config.tick_ms
    # Going back is no way to see a tick twice.
    resumed.fast_forward(world.config.start_ms)
    assert resumed.next_tick_ms == kept + world.config.tick_ms

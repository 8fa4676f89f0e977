"""A simulated cluster as a source: wall time drives simulated time, at any speed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from marey.model.errors import InvalidInput
from marey.model.observation import Observation
from marey.model.times import HOUR_MS
from marey.sim import Simulation

# Beyond this many ticks in one poll, samples come as blocks rather than tick by tick.
BLOCK_FROM_TICKS = 16
# One poll never simulates more than this; a speed that asks for more is not kept up with.
MOST_PER_POLL_MS = 6 * HOUR_MS
SLOWEST, FASTEST = 0.01, 100_000.0


class SimulatedSource:
    """The simulation as the collect loop sees it: polled with the wall clock's time."""

    def __init__(
        self, simulation: Simulation, speed: float = 1.0, *, name: str = "simulated"
    ) -> None:
        self.simulation = simulation
        self._name = name
        self._speed = _check_speed(speed)
        self._anchor: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self._name

    @property
    def speed(self) -> float:
        """Simulated seconds per second of the wall clock."""
        return self._speed

    def set_speed(self, speed: float, now_ms: int) -> None:
        """Run at another speed from this moment of the wall clock on."""
        target = self.simulated_ms(now_ms)
        self._speed = _check_speed(speed)
        self._anchor = (now_ms, target)

    def simulated_ms(self, now_ms: int) -> int:
        """Return the simulated moment that belongs to this moment of the wall clock."""
        if self._anchor is None:
            simulation = self.simulation
            # A clock that already tells simulated time is followed; any other one starts it.
            latest = simulation.next_tick_ms + simulation.config.tick_ms
            follows = simulation.now_ms <= now_ms <= latest
            self._anchor = (now_ms, now_ms if follows else simulation.next_tick_ms)
        wall, simulated = self._anchor
        return simulated + math.floor(max(0, now_ms - wall) * self._speed)

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return every tick that is due; the first poll begins the clock."""
        simulation = self.simulation
        target = self.simulated_ms(now_ms)
        most = simulation.now_ms + MOST_PER_POLL_MS
        if target > most:
            target = most
            self._anchor = (now_ms, target)
        due = simulation.ticks_due(target)
        if due < BLOCK_FROM_TICKS:
            return list(simulation.advance(target))
        return list(simulation.history(due * simulation.config.tick_ms / HOUR_MS))

    def close(self) -> None:
        """Close nothing: nothing is held open."""


def _check_speed(speed: float) -> float:
    if not SLOWEST <= speed <= FASTEST:
        raise InvalidInput(
            f"A speed of {speed:g} is not allowed; allowed: {SLOWEST:g} to {FASTEST:g}."
        )
    return speed

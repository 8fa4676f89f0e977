"""How far each entity's samples have been sent: what is newer can replace nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marey.model.samples import SampleBatch
from marey.store.victoria.grids import LATEST_MS
from marey.store.victoria.server_queries import Scope


@dataclass(slots=True)
class NewestTimes:
    """The newest moment that was sent of each entity."""

    codes: dict[Scope, dict[str, int]] = field(default_factory=dict)
    times: dict[Scope, NDArray[np.int64]] = field(default_factory=dict)
    floors: dict[Scope, int] = field(default_factory=dict)
    # The codes of the last tuple of names: the same one comes with every tick.
    recent: dict[Scope, tuple[Sequence[str], NDArray[np.int32]]] = field(default_factory=dict)

    def floor(self, scope: Scope) -> int | None:
        """Return the newest moment that the server had of a scope when it was first asked."""
        return self.floors.get(scope)

    def learn(self, scope: Scope, newest_ms: int) -> None:
        """Note how far the server's samples reach."""
        self.floors[scope] = newest_ms

    def late(self, scope: Scope, batch: SampleBatch) -> NDArray[np.bool_]:
        """Return which rows may replace something."""
        newest = self._get_times(scope, batch)
        found: NDArray[np.bool_] = batch.time_ms <= np.maximum(newest, self.floors[scope])
        return found

    def note(self, scope: Scope, batch: SampleBatch) -> None:
        """Note that a batch was sent."""
        codes = self._encode_entities(scope, batch.entities)[batch.entity]
        np.maximum.at(self.times[scope], codes, batch.time_ms)

    def _get_times(self, scope: Scope, batch: SampleBatch) -> NDArray[np.int64]:
        codes = self._encode_entities(scope, batch.entities)[batch.entity]
        found: NDArray[np.int64] = self.times[scope][codes]
        return found

    def _encode_entities(self, scope: Scope, entities: Sequence[str]) -> NDArray[np.int32]:
        recent = self.recent.get(scope)
        if recent is not None and recent[0] is entities:
            return recent[1]
        known = self.codes.setdefault(scope, {})
        codes = np.array([known.setdefault(name, len(known)) for name in entities], np.int32)
        times = self.times.setdefault(scope, np.full(1, -LATEST_MS, np.int64))
        if len(known) > len(times):
            grown = np.full(2 * len(known), -LATEST_MS, np.int64)
            grown[: len(times)] = times
            self.times[scope] = grown
        self.recent[scope] = (entities, codes)
        return codes

"""The file in which predictions are kept until they can be scored, and after."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from marey.model.errors import InvalidInput, NotFound, shown
from marey.model.system.atomic_file import write_file
from marey.model.system.private_files import make_private_folder
from marey.replay.model import ReplayModel
from marey.replay.verification import (
    KeptPrediction,
    find_measured,
    measured_step,
    record_measured,
)

# The oldest are let go beyond this many.
MOST_KEPT = 10_000


@dataclass
class PredictionLog:
    """Predictions in one small JSON file, written whole at every change."""

    path: Path
    # Predictions of which runs whoever asks may see.
    is_visible: Callable[[str], bool] = lambda run: True
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> list[KeptPrediction]:
        """Return all predictions, oldest first."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            return msgspec.json.decode(content, type=list[KeptPrediction])
        except msgspec.MsgspecError as error:
            raise InvalidInput(
                f"{shown(str(self.path))} is not a file of predictions: {error}."
            ) from error

    def list_visible(self) -> list[KeptPrediction]:
        """Return the predictions that may be seen, oldest first."""
        return [one for one in self.read() if self.is_visible(one.run)]

    def has_unmeasured(self) -> bool:
        """Return whether a prediction waits for its run."""
        return any(one.measured_ms is None for one in self.list_visible())

    def find(self, identity: str) -> KeptPrediction:
        """Return one prediction by its id."""
        for one in self.list_visible():
            if one.id == identity:
                return one
        raise NotFound(f"There is no prediction '{shown(identity)}'.")

    def add(self, made: KeptPrediction) -> None:
        """Keep a prediction; the same one again replaces itself."""
        self._change(lambda kept: [*(one for one in kept if one.id != made.id), made])

    def remove(self, identity: str) -> None:
        """Forget a prediction."""
        self.find(identity)
        self._change(lambda kept: [one for one in kept if one.id != identity])

    def measure(self, identity: str, *, measured_ms: float, run: str, at_ms: int) -> KeptPrediction:
        """Note what was measured for a prediction, because somebody says that this is its run."""
        scored = record_measured(self.find(identity), measured_ms=measured_ms, run=run, at_ms=at_ms)
        self._change(lambda kept: [scored if one.id == identity else one for one in kept])
        return scored

    def measure_run(self, model: ReplayModel, *, run: str, at_ms: int) -> list[KeptPrediction]:
        """Score every prediction whose changed run this is; return those."""
        workload = model.recorded.workload
        others = [one for one in self.list_visible() if one.run != run]
        found = [one for one in others if find_measured(one, workload)]
        return [
            self.measure(one.id, measured_ms=measured_step(one, model), run=run, at_ms=at_ms)
            for one in found
        ]

    def _change(self, change: Callable[[list[KeptPrediction]], list[KeptPrediction]]) -> None:
        with self._lock:
            kept = change(self.read())[-MOST_KEPT:]
            make_private_folder(self.path.parent)
            write_file(self.path, msgspec.json.format(msgspec.json.encode(kept), indent=1))

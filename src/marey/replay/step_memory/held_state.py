"""What a rank holds from step to step if its state is spread, kept on the host or pruned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, replace
from typing import Any, ClassVar, Protocol, TypeVar

from marey.replay.changes import read_changes
from marey.replay.state_memory import DENSE_BYTES, SAMO_DENSE_BYTES, SAMO_KEPT_BYTES
from marey.replay.step_memory.memory_kinds import GRADIENTS

# Changes of what is held from step to step, not of what a step takes.
STATE_WORDS = frozenset({"zero", "offload", "sparsity", "ranks"})


class Holding(Protocol):
    """What is known of a rank's memory."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def held_bytes(self) -> int | None: ...
    @property
    def parameter_bytes(self) -> int: ...
    @property
    def levels(self) -> Mapping[str, Sequence[int]]: ...


Held = TypeVar("Held", bound=Holding)


def change_held(profile: Held, changes: Sequence[str], ranks: int) -> Held:
    """Return the profile with what the rank would hold at the start of a step.

    Held are parameters, gradients unless every step makes them anew, and the rest: the state of the
    optimizer. Where the profiler did not say how much was held, it stays unknown.
    """
    if profile.held_bytes is None or not profile.parameter_bytes:
        return profile
    weights = profile.parameter_bytes
    made_anew = max(profile.levels[GRADIENTS], default=0) > weights / 2
    gradients = 0.0 if made_anew else float(min(weights, profile.held_bytes - weights))
    state = max(profile.held_bytes - weights - gradients, 0.0)
    for change in read_changes(changes):
        if change.word == "zero":
            state /= ranks
            gradients /= ranks if change.text == "2" else 1
        elif change.word == "offload":
            state = 0.0
        elif change.word == "sparsity":
            # SAMO keeps weights dense; of all else the part that is left, with an index.
            kept = 1.0 - change.get_number()
            left = kept * SAMO_KEPT_BYTES / (DENSE_BYTES - SAMO_DENSE_BYTES)
            gradients, state = gradients * left, state * left
    return replace(profile, held_bytes=round(weights + gradients + state))

"""What is known about one rank's trace, apart from its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Note:
    """Something about a file that the reader of a result should know."""

    file: str
    text: str


@dataclass(frozen=True)
class RankInfo:
    """What a trace says about its rank, apart from the events."""

    rank: int
    host: str = ""
    world_size: int | None = None
    backend: str | None = None
    framework: str = "pytorch"  # pytorch, jax, chakra, chrome, optable
    device_name: str | None = None
    # Process group name → global ranks, and → the description the training code gave it.
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    group_descriptions: Mapping[str, str] = field(default_factory=dict)
    # Added to the trace's own times to make `start_ns` absolute.
    base_ns: int = 0
    source: str = ""
    # The handshake that marey.record left in the trace: {"wall_ns": …, …}.
    clock_sync: Mapping[str, Any] | None = None
    # Place in the parallel layout where the trace states it: {"dp": 0, "pp": 3}.
    coordinates: Mapping[str, int] = field(default_factory=dict)
    # Whether the trace has real device events, or host events stand for them.
    has_device: bool = True
    # Whether events have times; without, only their order and what they say is known.
    timed: bool = True
    # Where one process drives several devices: which process, and which of its devices.
    process: int | None = None
    device: int | None = None
    # The format, if this reader was never tried on a real recording of it.
    untried: str = ""
    # What is missing of a damaged file, in words.
    damage: str = ""

"""What a cluster is made of: hosts, GPUs, partitions, and the types of resource asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from marey.model.names import gpu_id


class HostState(StrEnum):
    """What a host can be used for."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"
    # Known to one source only, or its source has gone silent: shown as such, never as idle.
    UNKNOWN = "unknown"


class GpuState(StrEnum):
    """The one state that the overview shows for a GPU."""

    IDLE = "idle"
    ALLOCATED = "allocated"
    DRAINED = "drained"
    DOWN = "down"
    FAILED = "failed"
    UNKNOWN = "unknown"
    # It works, but nobody says for whom: never shown as idle.
    UNCLAIMED = "unclaimed"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with GPUs, and where it stands in the network."""

    host: str
    rack: str = ""
    switch: str = ""
    nvlink_domain: str = ""
    partitions: tuple[str, ...] = ()
    cpus: int = 0
    memory_mib: int = 0
    # Who speaks of it now: "scheduler", "metrics" or "both"; empty where nobody compares.
    known_by: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU or a MIG instance of one; its id is ``host:index[.instance]``."""

    host: str
    index: int
    instance: int | None = None
    uuid: str = ""
    model: str = ""
    power_limit_w: float | None = None
    memory_mib: float | None = None

    @property
    def gpu(self) -> str:
        """The id by which everything else names this GPU."""
        return gpu_id(self.host, self.index, self.instance)


@dataclass(frozen=True, slots=True)
class Partition:
    """A queue of the scheduler, with the size of work that it takes."""

    partition: str
    min_gpus: int = 0
    max_gpus: int | None = None
    time_limit_s: int | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host's state from a moment on, with the operator's reason."""

    host: str
    state: HostState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """A GPU that is broken (or whole again) by itself, whatever its host's state."""

    gpu: str
    failed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything a cluster consists of at one moment."""

    hosts: tuple[Host, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    partitions: tuple[Partition, ...] = field(default=())


def resource_type(model: str, count: int) -> str:
    """Return GPU model and count per host, as people ask for it: ``A100-8``."""
    short = short_model(model) or "GPU"
    return f"{short}-{count}"


_MODEL_WORD = re.compile(r"^(?!SXM|HBM|PCIE|NVL)[A-Z]{1,3}[0-9]{1,4}[A-Z]*$")
_SERIES = re.compile(r"\b(RTX|GTX|TITAN)[ -]?([A-Z]?[0-9]{3,4})")


def short_model(model: str) -> str:
    """Shorten ``NVIDIA A100-SXM4-80GB`` to ``A100``: the word by which people call the GPU."""
    text = model.upper().replace("_", "-")
    series = _SERIES.search(text)
    if series:
        return series[1] + series[2]
    words = re.split(r"[ -]+", text)
    return next((word for word in words if _MODEL_WORD.match(word)), words[-1])


_MIG_PROFILE = re.compile(r"^\d+g\.\d+gb", re.IGNORECASE)


def is_same_model(named: str, measured: str) -> bool:
    """Return whether a scheduler's name may mean the GPU that the device says it is.

    ``2080ti`` and ``4090`` are parts of the long name; a MIG profile names no model.
    """
    if short_model(named) == short_model(measured) or _MIG_PROFILE.match(named):
        return True
    wanted = "".join(re.findall(r"[a-z0-9]+", named.lower()))
    words = re.findall(r"[a-z0-9]+", measured.lower())
    spans = ("".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1))
    return wanted in spans

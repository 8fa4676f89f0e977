"""Slurm as a source: gentle to its controller, and honest while it is away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from marey.model.errors import MareyError, Unavailable
from marey.model.inventory import Gpu, Partition
from marey.model.names import DEFAULT_CLUSTER
from marey.model.observation import Observation
from marey.model.times import MINUTE_MS
from marey.sources.slurm.documents import Job, Node
from marey.sources.slurm.snapshot import Snapshot, SnapshotReader

PARTITIONS_EVERY_MS = 10 * MINUTE_MS
MOST_BACKOFF_MS = 5 * MINUTE_MS


class Controller(Protocol):
    """A way to ask Slurm: one query per call."""

    def nodes(self) -> list[Node]: ...
    def jobs(self) -> list[Job]: ...
    def partitions(self) -> list[Partition]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SlurmRules:
    """How often the controller may be asked; ``gpu_only`` leaves out what uses no GPU."""

    cluster: str = DEFAULT_CLUSTER
    least_interval_ms: int = 10_000
    gpu_only: bool = True


class SlurmSource:
    """One query per kind and poll, never more often than told, and less while Slurm is away."""

    def __init__(
        self,
        name: str,
        controller: Controller,
        rules: SlurmRules,
        measured: Callable[[], Iterable[Gpu]] = tuple,
    ) -> None:
        self._measured = measured
        self._name = name
        self._controller = controller
        self._rules = rules
        self._reader = SnapshotReader(rules.cluster, rules.gpu_only)
        self._partitions: tuple[Partition, ...] = ()
        self._partitions_due_ms = 0
        self._due_ms = 0
        self._failures = 0
        self._error = ""

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self._name

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """The whole cluster; nothing where it is too soon, ``Unavailable`` while Slurm is away."""
        if now_ms < self._due_ms:
            if self._failures:
                wait_s = (self._due_ms - now_ms) / 1000
                raise Unavailable(f"{self._error} Asked again in {wait_s:.0f} s.")
            return []
        try:
            snapshot = self._ask(now_ms)
        except MareyError as error:
            self._failures += 1
            wait_ms = self._rules.least_interval_ms * 2 ** min(self._failures - 1, 16)
            self._due_ms = now_ms + min(wait_ms, MOST_BACKOFF_MS)
            self._error = str(error)
            raise
        self._failures, self._due_ms = 0, now_ms + self._rules.least_interval_ms
        return [self._reader.observe(snapshot, now_ms, self._measured())]

    def _ask(self, now_ms: int) -> Snapshot:
        if now_ms >= self._partitions_due_ms:
            self._partitions = tuple(self._controller.partitions())
            self._partitions_due_ms = now_ms + PARTITIONS_EVERY_MS
        # Nodes first: a job that starts in between then holds GPUs of nodes that are known.
        nodes = self._controller.nodes()
        return Snapshot(nodes, self._controller.jobs(), self._partitions)

    def details(self) -> dict[str, object]:
        """When a controller that is away is asked again; any thread may ask."""
        return {"asked_again_ms": self._due_ms if self._failures else None}

    def close(self) -> None:
        """Let go of the controller."""
        self._controller.close()

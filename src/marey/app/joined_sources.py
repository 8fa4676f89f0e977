"""A source beside others of its cluster: what it says is brought together with what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from marey.app.conflicts import Disagreement, conflict_documents
from marey.app.joining import ClusterJoin
from marey.model.inventory import Gpu
from marey.model.observation import Observation
from marey.model.protocols import Source

# How long the first answer of those who measure waits for the scheduler's names.
FIRST_WAIT_S = 5.0
# A clock that is off by less than this is not worth a word.
CLOCK_SHOWN_MS = 5_000


@runtime_checkable
class Measuring(Protocol):
    """A source that measures GPUs, whoever else names them."""

    def seen_gpus(self) -> list[Gpu]:
        """Every GPU seen so far."""

    def seen_jobs(self) -> Mapping[str, Sequence[str]]:
        """What its labels say holds each GPU now."""


@runtime_checkable
class Aliasing(Protocol):
    """A scheduler that knows other names of its hosts."""

    def host_aliases(self) -> Mapping[str, str]:
        """Other name or address → host."""


@runtime_checkable
class Clocked(Protocol):
    """A source whose servers have clocks that may be off."""

    def clock_offsets(self) -> Mapping[str, int]:
        """Server or endpoint → milliseconds that it is ahead of us, of those that are off."""


class JoinedSource:
    """One of several sources of a cluster."""

    def __init__(self, source: Source, join: ClusterJoin) -> None:
        self.source = source
        self.join = join
        self._measures = isinstance(source, Measuring)

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self.source.name

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """What the source says, by the cluster's names."""
        if not self._measures:
            return self._poll_scheduler(now_ms)
        observed = self.source.poll(now_ms)
        self._note_clocks(now_ms)
        if self.join.scheduled:
            self.join.answered.wait(FIRST_WAIT_S)
        assert isinstance(self.source, Measuring)
        gpus, jobs = self.source.seen_gpus(), self.source.seen_jobs()
        return [self.join.of_metrics(self.name, one, gpus, jobs) for one in observed]

    def _poll_scheduler(self, now_ms: int) -> Sequence[Observation]:
        try:
            observed = self.source.poll(now_ms)
            aliases = self.source.host_aliases() if isinstance(self.source, Aliasing) else {}
            return [self.join.of_scheduler(self.name, one, aliases) for one in observed]
        finally:
            self._note_clocks(now_ms)
            self.join.answered.set()

    def _note_clocks(self, now_ms: int) -> None:
        if not isinstance(self.source, Clocked):
            return
        for place, ahead_ms in self.source.clock_offsets().items():
            if abs(ahead_ms) > CLOCK_SHOWN_MS:
                way = "ahead of" if ahead_ms > 0 else "behind"
                text = f"its clock is {abs(ahead_ms) // 1000} s {way} ours; times are put right"
                said = Disagreement("clock", place, "our clock", "marey", "its", self.name, text)
                self.join.conflicts.note(said, now_ms)

    def details(self) -> dict[str, Any]:
        """What the source adds about itself, and how often it disagreed with others."""
        inner = getattr(self.source, "details", None)
        told = dict(inner()) if callable(inner) else {}
        return {**told, "conflicts": self.join.conflicts.count_of(self.name)}

    def close(self) -> None:
        """Let go of connections and files."""
        self.source.close()


def conflicts_of(sources: Iterable[Source]) -> dict[str, Any]:
    """The conflicts of every cluster that these sources speak of."""
    joins = {s.join.cluster: s.join.conflicts for s in sources if isinstance(s, JoinedSource)}
    return conflict_documents(sorted(joins.items()))

"""A source beside others of its cluster: what it says is brought together with what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from marey.model.observation import Observation
from marey.model.protocols import (
    AliasingSource,
    ClockedSource,
    DetailedSource,
    MeasuringSource,
    Source,
)
from marey.sources.join.cluster_join import ClusterJoin
from marey.sources.join.conflicts import ConflictList, Disagreement, list_conflict_documents

# How long the first answer of those who measure waits for the scheduler's names.
FIRST_WAIT_S = 5.0
# A clock that is off by less than this is not worth a word.
CLOCK_SHOWN_MS = 5_000


class JoinedSource:
    """One of several sources of a cluster."""

    def __init__(self, source: Source, join: ClusterJoin) -> None:
        self.source = source
        self.join = join
        self._measures = isinstance(source, MeasuringSource)

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self.source.name

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return the source's observations by the cluster's names."""
        if not self._measures:
            return self._poll_scheduler(now_ms)
        observed = self.source.poll(now_ms)
        self._record_clocks(now_ms)
        if self.join.scheduled:
            self.join.answered.wait(FIRST_WAIT_S)
        assert isinstance(self.source, MeasuringSource)
        gpus, jobs = self.source.seen_gpus(), self.source.seen_jobs()
        return [self.join.of_metrics(self.name, one, gpus, jobs) for one in observed]

    def _poll_scheduler(self, now_ms: int) -> Sequence[Observation]:
        try:
            observed = self.source.poll(now_ms)
            aliases = self.source.host_aliases() if isinstance(self.source, AliasingSource) else {}
            return [self.join.of_scheduler(self.name, one, aliases) for one in observed]
        finally:
            self._record_clocks(now_ms)
            self.join.answered.set()

    def _record_clocks(self, now_ms: int) -> None:
        if not isinstance(self.source, ClockedSource):
            return
        for place, ahead_ms in self.source.clock_offsets().items():
            if abs(ahead_ms) > CLOCK_SHOWN_MS:
                way = "ahead of" if ahead_ms > 0 else "behind"
                text = f"its clock is {abs(ahead_ms) // 1000} s {way} ours; times are put right"
                said = Disagreement(
                    "clock",
                    place,
                    "our clock",
                    taken_from="marey",
                    other="its",
                    other_from=self.name,
                    text=text,
                )
                self.join.conflicts.note(said, now_ms)

    def details(self) -> dict[str, Any]:
        """Return the source's details, with how often it disagreed with others."""
        own = self.source.details() if isinstance(self.source, DetailedSource) else {}
        return {**own, "conflicts": self.join.conflicts.count_of(self.name)}

    def close(self) -> None:
        """Close connections and files."""
        self.source.close()


def list_conflicts(sources: Iterable[Source]) -> ConflictList:
    """Return the conflicts of every cluster that these sources speak of."""
    joins = {s.join.cluster: s.join.conflicts for s in sources if isinstance(s, JoinedSource)}
    return list_conflict_documents(sorted(joins.items()))

"""What sources say differently of the same thing: who was believed, and since when."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated

from msgspec import Meta

from marey.model.documents import Document
from marey.model.names import bounded
from marey.model.times import MINUTE_MS

CONFLICTS_LIMIT = 500
FORGOTTEN_MS = 15 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two answers to one question, and which of them is shown."""

    # holder, model, host_name, same_uuid, renamed, measured_twice, gpu_count, clock
    kind: str
    # The GPU, host, endpoint or server in question.
    subject: str
    taken: str
    taken_from: str
    other: str
    other_from: str
    text: str = ""


class ConflictDocument(Document):
    """A disagreement as the API tells it."""

    cluster: str
    kind: Annotated[
        str,
        Meta(
            description="holder, model, host_name, same_uuid, renamed, measured_twice, gpu_count "
            "or clock."
        ),
    ]
    subject: Annotated[str, Meta(description="The GPU, host, endpoint or server in question.")]
    taken: Annotated[str, Meta(description="What is shown.")]
    taken_from: Annotated[str, Meta(description="Who said so.")]
    other: Annotated[str, Meta(description="What was decided against.")]
    other_from: str
    text: Annotated[str, Meta(description="Why, in a few words.")]
    first_ms: int
    last_ms: int
    times: Annotated[int, Meta(description="How often it was seen.")]


class ConflictList(Document):
    """Conflicts of every cluster, the latest first."""

    rows: list[ConflictDocument]
    dropped: Annotated[int, Meta(description="How many more there were than are kept.")]


@dataclass(slots=True)
class Conflict:
    """A disagreement and how long it has been seen."""

    said: Disagreement
    first_ms: int
    last_ms: int
    times: int = 1

    def document(self, cluster: str) -> ConflictDocument:
        """Return the document that the API answers with."""
        return ConflictDocument(
            cluster=cluster,
            **asdict(self.said),
            first_ms=self.first_ms,
            last_ms=self.last_ms,
            times=self.times,
        )


class ConflictLog:
    """The disagreements of one cluster, bounded; one that is not seen again is forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str, str], Conflict] = {}
        self.dropped = 0

    def note(self, said: Disagreement, now_ms: int) -> None:
        """Remember it, or that it is still so."""
        key = (said.kind, said.subject, said.other_from)
        with self._lock:
            known = self._seen.get(key)
            if known is not None:
                known.said, known.last_ms, known.times = _limit_texts(said), now_ms, known.times + 1
            elif len(self._seen) >= CONFLICTS_LIMIT:
                self.dropped += 1
            else:
                self._seen[key] = Conflict(_limit_texts(said), now_ms, now_ms)

    def forget_before(self, now_ms: int) -> None:
        """Forget what has not been seen for a while."""
        with self._lock:
            for key in [k for k, c in self._seen.items() if now_ms - c.last_ms > FORGOTTEN_MS]:
                del self._seen[key]

    def listed(self) -> list[Conflict]:
        """Return all of them, newest first."""
        with self._lock:
            return sorted(self._seen.values(), key=lambda c: (-c.last_ms, c.said.subject))

    def count_of(self, source: str) -> int:
        """Return how many concern this source."""
        with self._lock:
            return sum(
                source in (c.said.taken_from, c.said.other_from) for c in self._seen.values()
            )


def _limit_texts(said: Disagreement) -> Disagreement:
    return Disagreement(**{key: bounded(value) for key, value in asdict(said).items()})


def list_conflict_documents(logs: Iterable[tuple[str, ConflictLog]]) -> ConflictList:
    """Return the conflicts of every cluster, and how many more there were than are kept."""
    listed = list(logs)
    return ConflictList(
        rows=[c.document(cluster) for cluster, log in listed for c in log.listed()],
        dropped=sum(log.dropped for _, log in listed),
    )

"""What the API says of sources, of reading them again, and of a simulated cluster."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from marey.live.frames import SourceCondition
from marey.model.documents import Document


class SourceDocument(Document):
    """How one source is doing."""

    name: str
    state: SourceCondition
    last_ms: Annotated[int | None, Meta(description="When it last answered.")]
    age_ms: Annotated[int | None, Meta(description="Time since then.")]
    error: Annotated[str, Meta(description="Why it does not answer now; empty if it does.")]
    polls: int
    failures: int
    poll_seconds: Annotated[float, Meta(description="How long the last answer took.")]
    kind: Annotated[str, Meta(description="slurm, dcgm, …; empty where it is not known.")]
    cluster: str
    removed: Annotated[
        bool,
        Meta(description="No longer in the configuration; what it said last is shown as stale."),
    ]
    newest_ms: Annotated[int | None, Meta(description="Time of the newest fact it gave.")]
    lag_ms: Annotated[int | None, Meta(description="How old that fact is now.")]
    failures_in_a_row: int
    last_error: Annotated[str, Meta(description="The last error, also after it went away.")]
    last_error_ms: int | None
    values: Annotated[int, Meta(description="Values in the last answer.")]
    values_total: int
    rate_per_s: Annotated[float | None, Meta(description="Values per second, lately.")]
    backoff_ms: Annotated[int, Meta(description="How long until it is asked again.")]
    mend: Annotated[str, Meta(description="What to do about it.")]
    # Each kind of source adds its own facts: this stays open.
    details: Annotated[dict[str, Any], Meta(description="What the kind of source adds.")]


class SourceList(Document):
    """How every source is doing."""

    rows: list[SourceDocument]
    reloads: Annotated[bool, Meta(description="Whether they can be read again.")]
    file: Annotated[str | None, Meta(description="Name of the configuration file.")]
    time_ms: Annotated[int, Meta(description="The server's present time.")]


class SimulationChanges(TypedDict, total=False):
    """What can be changed about a simulated cluster while it runs."""

    policy: str
    placement: str
    backfill: bool
    speed: float


class SimulationState(Document):
    """How a simulated cluster works now, and what is allowed."""

    policy: str
    placement: str
    backfill: bool
    speed: float
    time_ms: int
    gpus: int
    seed: int
    policies: list[str]
    placements: list[str]

"""What the analyses of call graphs answer as plain values: rows and documents by their keys."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ProfileRecord(TypedDict):
    """Whose values they are, without what is not known."""

    profile: int
    run: str
    rank: NotRequired[int]
    step: NotRequired[int]
    thread: NotRequired[int]


class OutlierRecord(ProfileRecord):
    """A profile that stands out, with its value."""

    value: float


class BoxRecord(TypedDict):
    """The spread of a call site over the profiles."""

    n: int
    mean: float | None
    sd: float | None
    min: float | None
    q1: float | None
    median: float | None
    q3: float | None
    max: float | None
    imbalance: float | None
    max_at: ProfileRecord
    outliers: list[OutlierRecord]


class CallSiteRecord(TypedDict):
    """A call site by its path, and what it calls."""

    path: list[str]
    name: str
    kind: str
    module: str | None
    depth: int


class SpreadRecord(CallSiteRecord):
    """A call site with its spread over the profiles."""

    inclusive: BoxRecord
    exclusive: BoxRecord


class PartialSiteRecord(TypedDict):
    """A call site that only some profiles have."""

    path: list[str]
    inclusive: float
    present: list[ProfileRecord]
    absent: list[ProfileRecord]
    n: int


class SuspectRecord(ProfileRecord):
    """A profile that stands out at a call site."""

    path: list[str]
    reason: str
    value: float
    typical: float | None
    excess: float


class EnsembleDocument(TypedDict):
    """Many profiles together."""

    unit: str
    precision: str
    profiles: list[ProfileRecord]
    count: dict[str, int]
    nodes: list[SpreadRecord]
    structure: list[PartialSiteRecord]
    suspects: list[SuspectRecord]
    notes: list[str]
    # Where they were asked for.
    similarity: NotRequired[object]
    scaling: NotRequired[object]


class MeanRecord(CallSiteRecord):
    """A call site with its means over the profiles that have it."""

    profiles: int
    inclusive: float
    exclusive: float
    calls: float | None
    share: float | None


class SitesDocument(TypedDict):
    """Call sites with their means."""

    unit: str
    total: float
    profiles: list[ProfileRecord]
    count: dict[str, int]
    left_out: int
    nodes: list[MeanRecord]
    notes: list[str]


class SiteChangeRecord(TypedDict):
    """A call site before and after."""

    path: list[str]
    before: float | None
    after: float | None
    p: float | None
    q: float | None
    n: int
    n_before: int
    n_after: int


class ProfileDifferenceDocument(TypedDict):
    """Two sets of profiles, compared call site by call site."""

    unit: str
    comparable: bool
    reason: str | None
    test: str
    tested: int
    profiles: dict[str, int]
    total: dict[str, float]
    shared: dict[str, float]
    slower: list[SiteChangeRecord]
    faster: list[SiteChangeRecord]
    appeared: list[SiteChangeRecord]
    vanished: list[SiteChangeRecord]


class HistogramRecord(TypedDict):
    """Counts in equal bins, and the bin of the profile that is looked at."""

    low: float | None
    high: float | None
    counts: list[int]
    target_bin: int | None


class SummaryRecord(TypedDict):
    """The spread of a supernode over the profiles."""

    mean: float
    min: float
    q1: float
    median: float
    q3: float
    max: float
    imbalance: float
    outliers: list[int]
    histogram: HistogramRecord
    of_target: float | None


class SupernodeRecord(TypedDict):
    """A supernode."""

    name: str
    call_sites: int
    inclusive: SummaryRecord
    exclusive: SummaryRecord


class FlowRecord(TypedDict):
    """What one supernode spends in another."""

    source: int
    target: int
    value: float
    loop: bool
    of_target: float | None


class SankeyDocument(TypedDict):
    """Supernodes and the flows between them."""

    unit: str
    total: float
    folded: int
    profiles: list[ProfileRecord]
    target: int | None
    nodes: list[SupernodeRecord]
    flows: list[FlowRecord]

"""What the API says of call graphs: the documents of ``marey.callgraph`` with their types."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from marey.model.documents import Document


class CallGraphSource(Document):
    """Profiles that can be shown: ``source`` is what to ask for."""

    source: str
    name: str
    files: int
    bytes: int
    time_ms: int


class CallGraphProfile(Document):
    """Whose values they are; what is not known is left out."""

    profile: int
    run: str
    rank: int | UnsetType = UNSET
    step: int | UnsetType = UNSET
    thread: int | UnsetType = UNSET


class CallGraphOutlier(CallGraphProfile, kw_only=True):
    """A profile beyond the fences of a box plot."""

    value: float


class CallGraphBox(Document):
    """A box plot over the profiles that have the call site."""

    n: int
    mean: float | None
    sd: float | None
    min: float | None
    q1: float | None
    median: float | None
    q3: float | None
    max: float | None
    imbalance: float | None
    max_at: CallGraphProfile
    outliers: list[CallGraphOutlier]


class CallGraphSite(Document):
    """A call site of an ensemble."""

    path: list[str]
    name: str
    kind: str
    module: str | None
    depth: int
    inclusive: CallGraphBox
    exclusive: CallGraphBox


class CallGraphPartialSite(Document):
    """A call site that only some profiles have."""

    path: list[str]
    inclusive: float
    present: list[CallGraphProfile]
    absent: list[CallGraphProfile]
    n: int


class CallGraphSuspect(CallGraphProfile, kw_only=True):
    """A profile that stands out, and the call site that says so."""

    path: list[str]
    reason: Literal["only-here", "slower", "waits"]
    value: float
    typical: float | None
    excess: float


class CallGraphCount(Document):
    """How much there is."""

    nodes: int
    profiles: int


class CallGraphEnsemble(Document):
    """Box plots per call site, what only some profiles have, and who stands out."""

    unit: str
    precision: str
    profiles: list[CallGraphProfile]
    count: CallGraphCount
    nodes: list[CallGraphSite]
    structure: list[CallGraphPartialSite]
    suspects: list[CallGraphSuspect]
    notes: list[str]


class CallGraphHistogram(Document):
    """How many profiles lie in each of 20 bins, and the bin of the target."""

    low: float | None
    high: float | None
    counts: list[int]
    target_bin: int | None


class CallGraphSummary(Document):
    """Box plot and histogram of a supernode; outliers are numbers of profiles."""

    mean: float
    min: float
    q1: float
    median: float
    q3: float
    max: float
    imbalance: float
    outliers: list[int]
    histogram: CallGraphHistogram
    of_target: float | None = None


class CallGraphSupernode(Document):
    """Call sites of one module (or name, or kind) together."""

    name: str
    call_sites: int
    inclusive: CallGraphSummary
    exclusive: CallGraphSummary


class CallGraphFlow(Document):
    """Time that goes from one supernode into another; a loop goes back."""

    source: int
    target: int
    value: float
    loop: bool
    of_target: float | None


class CallGraphSankey(Document):
    """Supernodes and flows of an ensemble; without the loops the flows have no cycle."""

    unit: str
    total: float
    folded: int
    profiles: list[CallGraphProfile]
    target: int | None
    nodes: list[CallGraphSupernode]
    flows: list[CallGraphFlow]


class CallGraphTree(Document):
    """The united tree as columns, depth first; ``hidden`` says what a row leaves out below it."""

    unit: str
    total: float
    profiles: list[CallGraphProfile]
    nodes: int
    names: list[str]
    depth: list[int]
    # Position in ``names``.
    name: list[int]
    kind: list[str]
    inclusive: list[float | None]
    exclusive: list[float | None]
    calls: list[float | None]
    imbalance: list[float | None]
    count: list[int]
    hidden: list[int]
    hidden_inclusive: list[float]
    # Inclusive time of the target, null where it has no such call site or none was asked for.
    of_target: list[float | None]
    notes: list[str]


class CallGraphMapPoint(CallGraphProfile, kw_only=True):
    """A profile on the map."""

    cluster: int
    x: float
    y: float


class CallGraphMap(Document):
    """A map of the profiles: near points spend their time alike."""

    metric: str
    criterion: str
    clusters: int
    explained: list[float]
    profiles: list[CallGraphMapPoint]


class CallGraphTrend(Document):
    """How one call site scales: time = c · parameter^exponent, with a 95 % interval."""

    path: list[str]
    trend: Literal["grows", "shrinks", "no clear trend", "not enough values"]
    exponent: float | None
    interval: list[float | None]
    r2: float | None
    # By value of the parameter; null where no profile has the call site.
    means: list[float | None]


class CallGraphScaling(Document):
    """How call sites scale with a parameter; ``reason`` says why nothing was fitted."""

    unit: str
    # Parameters with enough different values, and the one that was looked at.
    parameters: list[str]
    parameter: str | None
    reason: str | None
    values: list[float]
    left_out: int
    nodes: list[CallGraphTrend]


class CallGraphPair(Document):
    """One number of each side."""

    before: float
    after: float


class CallGraphChange(Document):
    """A call site on both sides; p and q are null where nothing was tested."""

    path: list[str]
    before: float | None
    after: float | None
    p: float | None
    q: float | None
    n: int
    n_before: int
    n_after: int


class CallGraphDifference(Document):
    """What two sets of profiles differ in, and how that was tested."""

    unit: str
    comparable: bool
    reason: str | None
    test: str
    tested: int
    profiles: CallGraphPair
    total: CallGraphPair
    shared: CallGraphPair
    slower: list[CallGraphChange]
    faster: list[CallGraphChange]
    appeared: list[CallGraphChange]
    vanished: list[CallGraphChange]


class SelectedSite(Document):
    """A call site of a selection: means over the profiles that have it."""

    path: list[str]
    name: str
    kind: str
    module: str | None
    depth: int
    profiles: int
    inclusive: float
    exclusive: float
    calls: float | None
    share: float | None


class SelectionCount(CallGraphCount, kw_only=True):
    """How much there is, and how much was selected."""

    selected: int


class SelectedValues(Document):
    """What the selection took in each profile, with its box plot; null where it has none."""

    by_profile: list[float | None]
    mean: float | None
    sd: float | None
    min: float | None
    q1: float | None
    median: float | None
    q3: float | None
    max: float | None
    imbalance: float | None


class CallGraphSelection(Document):
    """The call sites that a query selects; the query is portable to any other run."""

    # JSON of paths and conditions, never node numbers; may be asked again as it is.
    query: str
    unit: str
    total: float
    profiles: list[CallGraphProfile]
    count: SelectionCount
    left_out: int
    nodes: list[SelectedSite]
    inclusive: SelectedValues
    exclusive: SelectedValues
    notes: list[str]

"""Questions as values: asked of a workspace, or of a running server by path and query."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from marey.app.queries.selection import GPUS_LIMIT, METRICS_LIMIT, SelectionRequest, split_names
from marey.app.queries.workspace import Workspace
from marey.model.errors import InvalidInput, TooLarge, unknown
from marey.model.events import ClusterEventKind
from marey.model.names import DEFAULT_CLUSTER
from marey.model.predicates import EVERYTHING, parse_predicate
from marey.model.protocols import WorkloadQuery
from marey.model.tables import WORKLOADS, WorkloadRecord
from marey.model.times import DAY_MS, format_time
from marey.model.workloads import ENDED_STATES, WorkloadState, parse_state

DocumentT_co = TypeVar("DocumentT_co", covariant=True)

# As JSON a row costs a kilobyte of memory; larger tables travel as Arrow.
JSON_ROWS_LIMIT = 200_000

PAGE_BOUNDS = (1, 10_000)
POINTS_BOUNDS = (4, 20_000)
BINS_BOUNDS = (1, 1024)
EVENTS_BOUNDS = (1, 100_000)
SUMMARY_BOUNDS = (2, 10_000)

WORKLOAD_FIELDS = tuple(WORKLOADS.names)


@dataclass(frozen=True, slots=True)
class Reply:
    """A table, and facts about the whole of it."""

    table: pa.Table
    facts: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the reply as JSON has it: rows, and the facts beside them."""
        if self.table.num_rows > JSON_ROWS_LIMIT:
            raise TooLarge(
                f"The table has {self.table.num_rows} rows; as JSON {JSON_ROWS_LIMIT} are allowed. "
                "Ask for less, or for Arrow (Accept: application/vnd.apache.arrow.stream)."
            )
        rows = self.table.to_pylist()
        if "attributes" in self.table.column_names:
            for row in rows:
                row["attributes"] = msgspec.json.decode(row["attributes"] or "{}")
        return {"rows": rows, **self.facts}


class Question(Protocol[DocumentT_co]):
    """Something that can be asked, here or over HTTP."""

    def ask(self, workspace: Workspace) -> DocumentT_co:
        """Return the answer as a typed document; a table's rows are typed by its Arrow schema."""

    def path(self) -> str:
        """Return the API path that answers it."""

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""


# Field of a question → parameter of the API, where the names differ.
_PARAMETERS = {"from_ms": "from", "to_ms": "to", "states": "state", "at_ms": "at"}


def query_of(question: Any) -> dict[str, str]:
    """Return the parameters of a question: what differs from nothing, as text."""
    query = {}
    for entry in dataclasses.fields(question):
        value = getattr(question, entry.name)
        if value is None or value in ("", ()):
            continue
        name = _PARAMETERS.get(entry.name, entry.name)
        if entry.name.endswith("_ms"):
            query[name] = format_time(value)
        elif isinstance(value, tuple):
            query[name] = ",".join(str(item) for item in value)
        else:
            query[name] = str(value)
    return query


def within(what: str, value: int, low: int, high: int) -> None:
    """Refuse a number outside its bounds; the API states the same bounds in its document."""
    if not low <= value <= high:
        raise InvalidInput(f"{what} is {value}; allowed: {low} to {high}.")


class TableQuestion:
    """A question whose answer is a table."""

    PATH: ClassVar[str]

    def reply(self, workspace: Workspace) -> Reply:
        """Return the answer as a table."""
        raise NotImplementedError

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Return the answer as a JSON document."""
        return self.reply(workspace).document()

    def path(self) -> str:
        """Return the API path that answers it."""
        return self.PATH

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


@dataclass(frozen=True)
class AskWorkloads(TableQuestion):
    """Workloads, newest submission first, a page at a time."""

    PATH: ClassVar[str] = "/workloads"
    cluster: str = DEFAULT_CLUSTER
    states: str = ""
    where: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = 100
    cursor: str = ""

    def __post_init__(self) -> None:
        within("limit", self.limit, *PAGE_BOUNDS)

    def reply(self, workspace: Workspace) -> Reply:
        """Return the page, and the cursor of the next."""
        workspace.check_cluster(self.cluster)
        table = workspace.workloads(
            WorkloadQuery(
                cluster=self.cluster,
                states=parse_states(self.states),
                where=parse_predicate(self.where, WORKLOAD_FIELDS) if self.where else EVERYTHING,
                from_ms=self.from_ms,
                to_ms=self.to_ms,
                limit=self.limit,
                after=self.cursor or None,
            )
        )
        full = table.num_rows == self.limit
        return Reply(table, {"next": table["workload"][-1].as_py() if full else None})


def parse_states(text: str) -> tuple[WorkloadState, ...]:
    """Return the states named, separated by commas; ``ended`` stands for all that are over."""
    names = split_names(text, "states", len(WorkloadState) + 1)
    return tuple(dict.fromkeys(state for name in names for state in _find_states(name)))


def _find_states(name: str) -> list[WorkloadState]:
    if name == "ended":
        return list(ENDED_STATES)
    try:
        return [parse_state(name)]
    except InvalidInput:
        raise InvalidInput(unknown("state", name, ["ended", *WorkloadState])) from None


@dataclass(frozen=True)
class AskWorkload:
    """One workload, with its intervals."""

    workload: str
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> WorkloadRecord:
        """Return everything that is known of the workload."""
        return workspace.store.workload(self.cluster, self.workload)

    def path(self) -> str:
        """Return the API path that answers it."""
        return f"/workloads/{quote(self.workload, safe='')}"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return {"cluster": self.cluster}


@dataclass(frozen=True)
class _AskSamples(TableQuestion):
    cluster: str = DEFAULT_CLUSTER
    workload: str = ""
    gpus: str = ""
    metrics: str = "util"
    from_ms: int | None = None
    to_ms: int | None = None

    def wanted(self) -> SelectionRequest:
        """Return what was named."""
        return SelectionRequest(
            metrics=split_names(self.metrics, "metrics", METRICS_LIMIT),
            cluster=self.cluster,
            workload=self.workload or None,
            gpus=split_names(self.gpus, "GPUs", GPUS_LIMIT),
            from_ms=self.from_ms,
            to_ms=self.to_ms,
        )


@dataclass(frozen=True)
class AskSeries(_AskSamples):
    """Downsampled series that keep extremes."""

    PATH: ClassVar[str] = "/series"
    points: int = 1000

    def __post_init__(self) -> None:
        within("points", self.points, *POINTS_BOUNDS)

    def reply(self, workspace: Workspace) -> Reply:
        """Return columns entity, metric, time_ms, value."""
        answer = workspace.series(self.wanted(), self.points)
        return Reply(answer.table, {"approximate": answer.approximate})


@dataclass(frozen=True)
class AskHistograms(_AskSamples):
    """Histograms over the metric's range."""

    PATH: ClassVar[str] = "/histograms"
    bins: int = 32

    def __post_init__(self) -> None:
        within("bins", self.bins, *BINS_BOUNDS)

    def reply(self, workspace: Workspace) -> Reply:
        """Return columns entity, metric, low, high, counts, missing."""
        answer = workspace.histograms(self.wanted(), self.bins)
        return Reply(answer.table, {"approximate": answer.approximate})


@dataclass(frozen=True)
class AskStatistics(_AskSamples):
    """Exact statistics."""

    PATH: ClassVar[str] = "/statistics"
    quantiles: str = "0.05,0.5,0.95"

    def reply(self, workspace: Workspace) -> Reply:
        """Count, least, greatest, mean, spread, first, last and quantiles."""
        quantiles = _parse_quantiles(self.quantiles)
        answer = workspace.statistics(self.wanted(), quantiles)
        facts = {"approximate": answer.approximate, "quantiles": list(quantiles)}
        return Reply(answer.table, facts)


def _parse_quantiles(text: str) -> tuple[float, ...]:
    names = split_names(text, "quantiles", 20)
    try:
        quantiles = tuple(float(name) for name in names)
    except ValueError:
        quantiles = (2.0,)
    if not all(0.0 <= q <= 1.0 for q in quantiles):
        raise InvalidInput(
            f"Quantiles '{text[:80]}' are not allowed; allowed: numbers from 0 to 1, by commas."
        )
    return quantiles


@dataclass(frozen=True)
class AskProgress(TableQuestion):
    """What a workload said of itself."""

    PATH: ClassVar[str] = "/progress"
    workload: str
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None

    def reply(self, workspace: Workspace) -> Reply:
        """Return columns time_ms, step, throughput, unit, loss."""
        workspace.store.workload(self.cluster, self.workload)
        to_ms = 2**53 if self.to_ms is None else self.to_ms
        table = workspace.store.progress(self.cluster, self.workload, self.from_ms or 0, to_ms)
        return Reply(table)


@dataclass(frozen=True)
class AskEvents(TableQuestion):
    """What happened."""

    PATH: ClassVar[str] = "/events"
    cluster: str = DEFAULT_CLUSTER
    workload: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = 1000
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        within("limit", self.limit, *EVENTS_BOUNDS)
        for kind in self.kinds:
            if kind not in set(ClusterEventKind):
                raise InvalidInput(unknown("kind of event", kind, [*ClusterEventKind]))

    def reply(self, workspace: Workspace) -> Reply:
        """Return events in order of time; the last day unless a span or a workload is given."""
        workspace.check_cluster(self.cluster)
        to_ms = workspace.now_ms() + 1 if self.to_ms is None else self.to_ms
        from_ms = self.from_ms
        if from_ms is None:
            from_ms = 0 if self.workload else to_ms - DAY_MS
        most = EVENTS_BOUNDS[1] if self.kinds else self.limit
        table = workspace.store.events(
            self.cluster, from_ms, to_ms, workload=self.workload or None, limit=most
        )
        if self.kinds:
            chosen = table.filter(pc.is_in(table["kind"], pa.array(self.kinds, pa.string())))
            table = chosen.slice(max(0, len(chosen) - self.limit))
        return Reply(table)


@dataclass(frozen=True)
class AskSummary(TableQuestion):
    """The cluster in a few numbers over time."""

    PATH: ClassVar[str] = "/summary"
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None
    points: int = 288

    def __post_init__(self) -> None:
        within("points", self.points, *SUMMARY_BOUNDS)

    def reply(self, workspace: Workspace) -> Reply:
        """Return columns time_ms, gpus, allocated, idle, broken, running, waiting, waiting_gpus,
        util.
        """
        workspace.check_cluster(self.cluster)
        return Reply(workspace.summary(self.cluster, self.from_ms, self.to_ms, self.points))


TABLES_OF_A_MOMENT = ("units", "workloads")


def check_table(name: str) -> str:
    """Return the name of one of a moment's tables."""
    if name not in TABLES_OF_A_MOMENT:
        raise InvalidInput(unknown("table", name, TABLES_OF_A_MOMENT))
    return name

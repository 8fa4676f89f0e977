"""The table of jobs: running, waiting and past ones, sorted, filtered and paged by the store."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from marey.app.queries.table_queries import WORKLOAD_FIELDS, parse_states, query_of, within
from marey.app.queries.workspace import SizeEfficiency, Workspace
from marey.app.rules.finding_store import FindingStore
from marey.model.documents import Document
from marey.model.errors import InvalidInput, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.predicates import EVERYTHING, parse_predicate
from marey.model.protocols import OrderFigures, WorkloadQuery
from marey.model.system.csv_cells import make_csv_cell
from marey.model.times import HOUR_MS
from marey.rules.engine.findings import Finding
from marey.rules.waste import WasteBy
from marey.rules.waste import wasted as sum_waste

PAGE_BOUNDS = (1, 100_000)
# Columns of the table that the store can order by, under the names they have there.
SORTS = {
    "submitted": "submit_ms",
    "started": "start_ms",
    "ended": "end_ms",
    "job": "workload",
    "name": "name",
    "user": "user",
    "project": "project",
    "partition": "partition",
    "state": "state",
    "gpus": "gpus_requested",
    "priority": "priority",
    "wait": "wait_ms",
    "run": "run_ms",
    "gpu_hours": "gpu_ms",
    "experiment": "experiment",
    "gpu_type": "gpu_model",
    "reason": "reason",
    # These follow from findings and live values, which are added to the question.
    "findings": "figure",
    "waste": "figure",
    "util": "figure",
    "efficiency": "efficiency",
    "peers": "over_usual",
}
# A job that ran shorter than this has hardly more than its start to show.
LEAST_RUN_S = 600


class JobRow(Document):
    """One job as the table shows it; null where it is not known or does not apply."""

    workload: str
    name: str
    user: str
    project: str
    experiment: str
    partition: str
    state: str
    reason: str
    gpus: int
    gpu_model: str
    submit_ms: int | None
    start_ms: int | None
    end_ms: int | None
    wait_s: float | None
    run_s: float | None
    gpu_hours: float | None
    # Mean of its GPUs at this moment; null unless it runs.
    util: float | None
    findings: int
    open_findings: int
    wasted_gpu_hours: float
    # Share (0-1) of its GPU-hours that no finding calls wasted; null before it has run.
    efficiency: float | None
    # The same of all jobs of its size and type of GPU in the last week, and how many those are;
    # null where there are too few to compare with.
    peer_efficiency: float | None
    peers: int


class JobTable(Document):
    """A page of jobs, how many there are in all, and how many by state."""

    rows: list[JobRow]
    total: int
    offset: int
    by_state: dict[str, int]


@dataclass(frozen=True)
class AskJobs:
    """Jobs in any order, a page at a time."""

    cluster: str = DEFAULT_CLUSTER
    states: str = ""
    where: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    sort: str = "submitted"
    descending: bool = True
    offset: int = 0
    limit: int = 100

    def ask(self, workspace: Workspace) -> JobTable:
        """Return the page."""
        within("limit", self.limit, *PAGE_BOUNDS)
        if self.sort not in SORTS:
            raise InvalidInput(unknown("sort", self.sort, [*SORTS]))
        workspace.check_cluster(self.cluster)
        found = group_by_workload(FindingStore(workspace.store).list_shown(self.cluster))
        util = read_live_utilization(workspace, self.cluster)
        groups = workspace.find_peer_groups(self.cluster)
        now_ms = workspace.now_ms()
        query = self._make_query(
            now_ms, make_figures(self.sort, found, util=util, groups=groups, now_ms=now_ms)
        )
        by_state = workspace.store.count_workloads(replace(query, states=()))
        rows = []
        for record in workspace.workloads(query).to_pylist():
            name = record["workload"]
            row = make_job_row(record, found.get(name, ()), util.get(name), now_ms)
            rows.append(compare_with_peers(row, groups))
        wanted = [str(state) for state in query.states] or list(by_state)
        total = sum(by_state.get(state, 0) for state in wanted)
        return JobTable(rows=rows, total=total, offset=self.offset, by_state=by_state)

    def _make_query(self, now_ms: int, figures: OrderFigures | None) -> WorkloadQuery:
        return WorkloadQuery(
            cluster=self.cluster,
            states=parse_states(self.states),
            where=parse_predicate(self.where, WORKLOAD_FIELDS) if self.where else EVERYTHING,
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            limit=self.limit,
            order_by=SORTS[self.sort],
            descending=self.descending,
            offset=self.offset,
            figures=figures,
            now_ms=now_ms,
        )

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/jobs"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


def group_by_workload(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return the findings of each workload."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.workload].append(finding)
    return found


def make_figures(
    sort: str,
    found: Mapping[str, Sequence[Finding]],
    *,
    util: Mapping[str, float],
    groups: Mapping[tuple[str, int], SizeEfficiency],
    now_ms: int,
) -> OrderFigures | None:
    """Return what the store cannot know of an order by findings, waste or utilization."""
    if sort == "util":
        return OrderFigures(util)
    if sort == "findings":
        return OrderFigures({name: len(each) for name, each in found.items()}, others=0.0)
    if sort not in ("waste", "efficiency", "peers"):
        return None
    wasted = {name: sum_wasted_hours(each, 0, now_ms) for name, each in found.items()}
    if sort == "waste":
        return OrderFigures(wasted, others=0.0)
    return OrderFigures(
        {name: hours * HOUR_MS for name, hours in wasted.items()},
        usual={size: group.efficiency for size, group in groups.items()},
        least_run_ms=LEAST_RUN_S * 1000,
    )


def read_live_utilization(workspace: Workspace, cluster: str) -> dict[str, float]:
    """Return the mean utilization of each running workload's GPUs at this moment."""
    frame = workspace.frames.get(cluster)
    if frame is None:
        return {}
    table = frame.units.table()
    values = frame.values("util")[table["row"].to_numpy()]
    sums: dict[str, list[float]] = defaultdict(list)
    for holders, value in zip(table["workloads"].to_pylist(), values.tolist(), strict=True):
        for holder in holders or ():
            if value == value:
                sums[holder].append(value)
    return {name: sum(each) / len(each) for name, each in sums.items()}


def make_job_row(
    row: Mapping[str, Any], findings: Sequence[Finding], util: float | None, now_ms: int
) -> JobRow:
    """Return a workload as a row of the table."""
    start_ms, end_ms, submit_ms = row["start_ms"], row["end_ms"], row["submit_ms"]
    running, pending = row["state"] == "running", row["state"] == "pending"
    begun_ms = start_ms if start_ms is not None else now_ms if pending else None
    until_ms = now_ms if running else end_ms
    run_ms = until_ms - start_ms if start_ms is not None and until_ms is not None else None
    gpus = row["gpus_requested"] or 0
    hours = None if run_ms is None else gpus * max(run_ms, 0) / HOUR_MS
    wasted = sum_wasted_hours(findings, 0, now_ms)
    return JobRow(
        workload=row["workload"],
        **{key: row[key] or "" for key in _TEXTS},
        gpus=gpus,
        submit_ms=submit_ms,
        start_ms=start_ms,
        end_ms=end_ms,
        wait_s=_seconds(submit_ms, begun_ms),
        run_s=None if run_ms is None else run_ms / 1000,
        gpu_hours=None if hours is None else round(hours, 3),
        util=None if util is None else round(util, 1),
        findings=len(findings),
        open_findings=count_open(findings),
        wasted_gpu_hours=round(wasted, 3),
        efficiency=round(max(0.0, 1 - wasted / hours), 4) if hours else None,
        peer_efficiency=None,
        peers=0,
    )


def compare_with_peers(row: JobRow, groups: Mapping[tuple[str, int], SizeEfficiency]) -> JobRow:
    """Return the row with the efficiency of jobs of the same size and type of GPU beside it."""
    group = groups.get((row.gpu_model, row.gpus))
    if group is None or row.efficiency is None or (row.run_s or 0) < LEAST_RUN_S:
        return row
    return msgspec.structs.replace(row, peer_efficiency=group.efficiency, peers=group.jobs)


def sum_wasted_hours(findings: Sequence[Finding], from_ms: int, to_ms: int) -> float:
    """Return GPU-hours wasted in a span; an hour that several rules hold against a job is one."""
    return sum(line.gpu_hours for line in sum_waste(findings, WasteBy.WORKLOAD, from_ms, to_ms))


def count_open(findings: Iterable[Finding]) -> int:
    """Return how many of the findings are open."""
    return sum(finding.is_open for finding in findings)


_TEXTS = ("name", "user", "project", "experiment", "partition", "state", "reason", "gpu_model")


def _seconds(from_ms: int | None, to_ms: int | None) -> float | None:
    return None if from_ms is None or to_ms is None else max(0, to_ms - from_ms) / 1000


def print_jobs_csv(rows: Sequence[JobRow]) -> str:
    """Return the rows as CSV, with a line of names above; no cell can become a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = JobRow.__struct_fields__
    writer.writerow(names)
    for row in rows:
        writer.writerow([make_csv_cell(getattr(row, name)) for name in names])
    return text.getvalue()


def write_jobs_parquet(rows: Sequence[JobRow]) -> bytes:
    """Return the rows as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows]), sink)
    return sink.getvalue()

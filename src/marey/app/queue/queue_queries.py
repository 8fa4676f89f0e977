"""Questions about the waiting line: asked of a workspace here, or of a running server."""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from marey.app.queries.table_queries import WORKLOAD_FIELDS, query_of, within
from marey.app.queries.workspace import Workspace
from marey.app.queue.learned_waits import (
    CORRECTED,
    LEARNED_FROM,
    METHOD,
    WIDENED,
    forecast_starts,
    learn_if_needed,
)
from marey.app.queue.live_line import build_line_of, read_line
from marey.app.queue.queue_documents import (
    AgingDocument,
    AheadDocument,
    AskDocument,
    AskedStart,
    CalibrationPoint,
    FairnessDocument,
    ForecastPoint,
    ForecastRecord,
    FreeDocument,
    RoomDocument,
    RoomPoint,
    RoomTrend,
    ShareDocument,
    StartDocument,
    WaiterDocument,
    WaitingLine,
    WhyDocument,
)
from marey.app.queue.queue_log import KIND as RECORD_KIND
from marey.live.frames import Frame
from marey.model.errors import InvalidInput, NotFound, shown, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.predicates import EVERYTHING, matches, parse_predicate
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS, describe_span, parse_duration
from marey.model.workloads import Workload
from marey.queue.waiting.changes import compare_lines
from marey.queue.waiting.explanation import (
    Ahead,
    explain_briefly,
    explain_wait,
    is_held,
)
from marey.queue.waiting.fairness import measure_fairness
from marey.queue.waiting.forecast_record import (
    ENOUGH_SCORED,
    ForecastScore,
    StartForecast,
    score_forecasts_kept,
)
from marey.queue.waiting.free_room import measure_free_room
from marey.queue.waiting.line import Line, Waiter, list_fitting_hosts
from marey.queue.waiting.priority_aging import describe_aging
from marey.queue.waiting.queue_record import (
    ENOUGH_DAYS,
    QueueRecord,
    measure_misses,
    prefer_learned,
    read_record,
)
from marey.queue.waiting.simulated_starts import LINE_LIMIT, join_line

HELD_START = "No start forecast: something other than the queue holds it back."
FAR_BACK = (
    "No start forecast: too many jobs are ahead. Until a model is learned, the first "
    f"{LINE_LIMIT:,} waiting jobs are simulated."
)
LINE_BOUNDS = (1, 2000)
# What a filter may ask: what the line says of a workload, and what every table of workloads has.
LINE_FIELDS = tuple(dict.fromkeys((*WaiterDocument.__struct_fields__, *WORKLOAD_FIELDS)))
_KNOWN = tuple(field.name for field in fields(Workload))
_read_known = attrgetter(*_KNOWN)
_LIST_FUTURES, _WHY_FUTURES, _ASK_FUTURES = 8, 24, 16


class QueueQuestion:
    """A question about the waiting line."""

    PATH: ClassVar[str]

    def path(self) -> str:
        """Return the API path that answers it."""
        return self.PATH

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


@dataclass(frozen=True)
class AskLine(QueueQuestion):
    """Who waits, in the scheduler's order, and why."""

    PATH: ClassVar[str] = "/queue"
    cluster: str = DEFAULT_CLUSTER
    user: str = ""
    project: str = ""
    partition: str = ""
    where: str = ""
    limit: int = 200

    def __post_init__(self) -> None:
        within("limit", self.limit, *LINE_BOUNDS)

    def ask(self, workspace: Workspace) -> WaitingLine:
        """Return the line, or the part of it that is asked for; places are those in the whole."""
        where = parse_predicate(self.where, LINE_FIELDS) if self.where else EVERYTHING
        frame = workspace.frame_for_sums(workspace.check_cluster(self.cluster), None)
        line = build_line_of(frame)
        record = find_record(workspace, self.cluster)
        starts = forecast_starts(line, record, _LIST_FUTURES)
        wanted = [i for i, waiter in enumerate(line.waiters) if self._wants(waiter)]
        # Only a filter has to look at all of them.
        asked = wanted if where is not EVERYTHING else wanted[: self.limit]
        rows = _make_rows(line, asked, starts)
        kept = [row for row in rows if matches(where, _list_fields(frame, row))]
        return WaitingLine(
            time_ms=line.time_ms,
            rows=kept[: self.limit],
            total=len(wanted) if where is EVERYTHING else len(kept),
            waiting=len(line.waiters),
            method=_name_reach(line, record),
        )

    def _wants(self, waiter: Waiter) -> bool:
        return (
            self.user in ("", waiter.user)
            and self.project in ("", waiter.project)
            and self.partition in ("", waiter.partition)
        )


@dataclass(frozen=True)
class AskWhy(QueueQuestion):
    """Why one workload waits, who is ahead, and when it will start."""

    workload: str
    cluster: str = DEFAULT_CLUSTER

    def path(self) -> str:
        """Return the API path that answers it."""
        return f"/queue/{quote(self.workload, safe='')}"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return {"cluster": self.cluster}

    def ask(self, workspace: Workspace) -> WhyDocument:
        """Return the explanation; a workload that does not wait is not found."""
        line = read_line(workspace, self.cluster)
        found = line.find(self.workload)
        # The line has everybody; only those that may be seen are explained.
        seen = workspace.frame_at(self.cluster, None, ()).workloads
        if found is None or self.workload not in seen:
            raise _not_waiting(workspace, self.cluster, self.workload, line)
        place, waiter = found
        why = explain_wait(line, place)
        record = find_record(workspace, self.cluster)
        starts = forecast_starts(line, record, _WHY_FUTURES, self.workload)
        start = starts.get(self.workload)
        return WhyDocument(
            workload=why.workload,
            verdict=why.verdict,
            position=why.position,
            waiting=why.waiting,
            position_partition=why.position_partition,
            reason=why.reason,
            sentences=list(why.sentences),
            ahead=_make_ahead(why.ahead),
            ahead_own=_make_ahead(why.ahead_own),
            ahead_project=_make_ahead(why.ahead_project),
            ahead_others=_make_ahead(why.ahead_others),
            blocking_hosts=list(why.blocking_hosts),
            blocking_workloads=list(why.blocking_workloads),
            free_at_ms=why.free_at_ms,
            priority=waiter.priority,
            factors=dict(waiter.factors),
            aging=AgingDocument(**asdict(describe_aging(waiter))),
            changes=_find_changes(workspace, self.cluster, line, place),
            start=_make_start(line, waiter, start, record),
            forecasts=_list_points(record, self.workload),
        )


@dataclass(frozen=True)
class AskFree(QueueQuestion):
    """What is free, really."""

    PATH: ClassVar[str] = "/queue-free"
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> FreeDocument:
        """Return the room per partition and GPU model."""
        line = read_line(workspace, self.cluster)
        rows = []
        for room in measure_free_room(line):
            fields = asdict(room)
            fields["next_host_holders"] = list(room.next_host_holders)
            rows.append(RoomDocument(**fields))
        return FreeDocument(line.time_ms, rows)


@dataclass(frozen=True)
class AskStart(QueueQuestion):
    """When a request would start if it were submitted now, and what would start sooner."""

    PATH: ClassVar[str] = "/queue-ask"
    gpus: int
    time: str = "1h"
    type: str = ""
    partition: str = ""
    cluster: str = DEFAULT_CLUSTER

    def __post_init__(self) -> None:
        within("gpus", self.gpus, 1, 100_000)

    def ask(self, workspace: Workspace) -> AskDocument:
        """Return the expected start of the request and of cheaper ones."""
        line = read_line(workspace, self.cluster)
        limit_s = parse_duration(self.time) // 1000
        request = _make_request(
            line, gpus=self.gpus, model=self.type, partition=self.partition, limit_s=limit_s
        )
        record = find_record(workspace, self.cluster)
        asked = _ask_one(line, request, record)
        others = [_ask_one(line, other, record) for other in _list_alternatives(line, request)]
        sooner = [o for o in others if o.p50_s is not None and _is_sooner(o, asked)]
        sooner.sort(key=lambda o: (o.p50_s or 0.0, -o.gpus))
        return AskDocument(line.time_ms, asked, sooner[:4], name_method(record))


@dataclass(frozen=True)
class AskFairness(QueueQuestion):
    """Use against share per project over a period."""

    PATH: ClassVar[str] = "/queue-fairness"
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None

    def ask(self, workspace: Workspace) -> FairnessDocument:
        """Return GPU-hours held per project against its share, and where the shares come from."""
        to_ms = workspace.now_ms() if self.to_ms is None else self.to_ms
        from_ms = to_ms - 7 * DAY_MS if self.from_ms is None else self.from_ms
        if from_ms >= to_ms:
            raise InvalidInput("The span of time is empty: 'from' must be before 'to'.")
        hours = _sum_gpu_hours(workspace, self.cluster, from_ms, to_ms)
        shares = workspace.site_shares(self.cluster)
        waiters = read_line(workspace, self.cluster).waiters
        rows = measure_fairness(hours, waiters, shares.weights)
        return FairnessDocument(
            from_ms=from_ms,
            to_ms=to_ms,
            shares_from=shares.origin.value,
            sentence=shares.sentence,
            rows=[ShareDocument(**asdict(row)) for row in rows],
        )


@dataclass(frozen=True)
class AskForecastRecord(QueueQuestion):
    """How good this site's forecasts have been."""

    PATH: ClassVar[str] = "/queue-record"
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> ForecastRecord:
        """Return coverage, error and calibration of every kept forecast."""
        workspace.check_cluster(self.cluster)
        record = find_record(workspace, self.cluster)
        score = score_forecasts_kept(record.list_forecasts(), workspace.now_ms())
        enough = score.scored >= ENOUGH_SCORED
        points = [CalibrationPoint(float(q), share) for q, share in score.calibration.items()]
        return ForecastRecord(
            scored=score.scored,
            waiting=score.waiting,
            overdue=score.overdue,
            cancelled=record.cancelled,
            # Of a few forecasts a share says nothing.
            coverage=score.coverage if enough else None,
            within_2x=score.within_2x if enough else None,
            scheduler_scored=score.scheduler_scored,
            scheduler_within_2x=score.scheduler_within_2x,
            calibration=points if enough else [],
            sentence=score.sentence,
            method=name_method(record),
        )


@dataclass(frozen=True)
class AskRoomTrend(QueueQuestion):
    """What was free over time."""

    PATH: ClassVar[str] = "/queue-trend"
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None

    def ask(self, workspace: Workspace) -> RoomTrend:
        """Return the samples of a span (a week), oldest first."""
        workspace.check_cluster(self.cluster)
        to_ms = workspace.now_ms() + 1 if self.to_ms is None else self.to_ms
        from_ms = to_ms - 7 * DAY_MS if self.from_ms is None else self.from_ms
        rooms = list(find_record(workspace, self.cluster).rooms)
        return RoomTrend(
            [RoomPoint(**asdict(room)) for room in rooms if from_ms <= room.time_ms < to_ms]
        )


def find_record(workspace: Workspace, cluster: str) -> QueueRecord:
    """Return the kept forecasts of a cluster: of the running server, else of the store."""
    found = workspace.find_queue_record(cluster)
    if found is not None:
        return found
    document = workspace.store.documents(RECORD_KIND).get(cluster)
    record = read_record(document) if document else QueueRecord()
    learn_if_needed(workspace.store, cluster, record, workspace.now_ms())
    return record


def name_method(record: QueueRecord) -> str:
    """Return where the forecasts come from, in words."""
    model = record.forecaster
    if model is not None and prefer_learned(record):
        return LEARNED_FROM.format(rows=model.rows, days=model.days)
    misses = measure_misses(record)
    if misses is None:
        return METHOD
    how = CORRECTED if misses.days >= ENOUGH_DAYS else WIDENED
    return how.format(n=len(record.done))


def _list_points(record: QueueRecord, workload: str) -> list[ForecastPoint]:
    return [
        ForecastPoint(
            made_ms=kept.made_ms,
            p10_ms=kept.made_ms + round(kept.p10_s * 1000),
            p50_ms=kept.made_ms + round(kept.p50_s * 1000),
            p90_ms=kept.made_ms + round(kept.p90_s * 1000),
        )
        for kept in list(record.open.get(workload, ()))
    ]


def _describe_scheduler(score: ForecastScore) -> str:
    if not score.scheduler_scored or score.scheduler_within_2x is None:
        return ""
    return (
        f"Of {score.scheduler_scored} estimates of the scheduler, "
        f"{100 * score.scheduler_within_2x:.0f} % were within a factor of 2."
    )


def _sum_gpu_hours(
    workspace: Workspace, cluster: str, from_ms: int, to_ms: int
) -> dict[str, float]:
    hours: dict[str, float] = defaultdict(float)
    query = WorkloadQuery(cluster=cluster, from_ms=from_ms, to_ms=to_ms, limit=200_000)
    for row in workspace.workloads_for_sums(query).to_pylist():
        start, end = row["start_ms"], row["end_ms"]
        if start is not None:
            held = min(end if end is not None else to_ms, to_ms) - max(start, from_ms)
            hours[row["project"] or ""] += max(0, held) * row["gpus_requested"] / 3_600_000.0
    return dict(hours)


def _not_waiting(
    workspace: Workspace, cluster: str, workload: str, line: Line
) -> InvalidInput | NotFound:
    frame = workspace.frame_at(cluster, None, ())
    live = frame.workloads.get(workload)
    if live is not None:
        return InvalidInput(
            f"Workload '{shown(workload)}' does not wait: it is {live.status.state.value}."
        )
    waiting = [w.workload for w in line.waiters if w.workload in frame.workloads]
    return NotFound(unknown("waiting workload", workload, waiting))


def _make_ahead(ahead: Ahead) -> AheadDocument:
    return AheadDocument(ahead.jobs, ahead.gpus, ahead.gpu_hours)


def _list_fields(frame: Frame, row: WaiterDocument) -> ChainMap[str, Any]:
    """Return the fields that a filter may ask of a waiting workload."""
    live = frame.workloads[row.workload]
    known = dict(zip(_KNOWN, _read_known(live.workload), strict=True))
    return ChainMap(msgspec.structs.asdict(row), known, {"state": live.status.state.value})


def _make_rows(
    line: Line, places: Sequence[int], starts: Mapping[str, StartForecast]
) -> list[WaiterDocument]:
    explained = zip(places, explain_briefly(line, places), strict=True)
    return [
        _make_row(line, place, brief, starts.get(line.waiters[place].workload))
        for place, brief in explained
    ]


def _make_row(
    line: Line, place: int, brief: tuple[str, str], start: StartForecast | None
) -> WaiterDocument:
    waiter, (verdict, sentence) = line.waiters[place], brief
    return WaiterDocument(
        workload=waiter.workload,
        user=waiter.user,
        project=waiter.project,
        partition=waiter.partition,
        position=place + 1,
        gpus=waiter.gpus,
        gpus_per_host=waiter.per_host,
        gpu_model=waiter.model,
        time_limit_s=waiter.limit_s,
        submit_ms=waiter.submit_ms,
        waited_s=max(0.0, (line.time_ms - waiter.submit_ms) / 1000.0),
        priority=waiter.priority,
        reason=waiter.reason,
        verdict=verdict,
        sentence=sentence,
        p50_s=start.p50_s if start else None,
        p90_s=start.p90_s if start else None,
    )


def _make_start(
    line: Line, waiter: Waiter, start: StartForecast | None, record: QueueRecord
) -> StartDocument:
    score = score_forecasts_kept(record.list_forecasts(), line.time_ms)
    own = None if waiter.estimate_ms is None else (waiter.estimate_ms - line.time_ms) / 1000.0
    low, middle, high = (start.p10_s, start.p50_s, start.p90_s) if start else (None, None, None)
    return StartDocument(
        workload=waiter.workload,
        p10_s=low,
        p50_s=middle,
        p90_s=high,
        method=name_method(record),
        scheduler_s=own,
        sentence=HELD_START
        if is_held(waiter)
        else describe_start(low, middle, high)
        if start
        else _describe_missing(line, waiter),
        record=score.sentence,
        scheduler_record=_describe_scheduler(score),
    )


def _name_reach(line: Line, record: QueueRecord) -> str:
    """Return where the forecasts come from, and how far back in a long line they reach."""
    method = name_method(record)
    far = len(line.waiters) > LINE_LIMIT and not prefer_learned(record)
    return f"{method}; of the first {LINE_LIMIT:,} waiting jobs" if far else method


def _describe_missing(line: Line, waiter: Waiter) -> str:
    """Return why nothing is forecast of a workload that only the line holds back."""
    if any(host.usable for host in list_fitting_hosts(line, waiter)):
        return FAR_BACK
    return "No start forecast: no host that fits is in service."


def describe_start(low: float | None, middle: float | None, high: float | None) -> str:
    """Return a forecast as a sentence."""
    if middle is None or low is None:
        return "Start time unknown: the job does not start in any simulated future."
    late = f"{describe_span(high)}" if high is not None else "an unknown time"
    return f"Expected in {describe_span(middle)} (8 in 10: {describe_span(low)} to {late})."


def _find_changes(workspace: Workspace, cluster: str, line: Line, place: int) -> list[str]:
    """Return sentences on who moved ahead since yesterday, if the records reach that far."""
    span = workspace.store.span(cluster)
    before_ms = line.time_ms - DAY_MS
    if span is None or span[0] > before_ms:
        return []
    before = read_line(workspace, cluster, before_ms)
    return list(compare_lines(before, line, place).sentences)


def _make_request(line: Line, *, gpus: int, model: str, partition: str, limit_s: int) -> Waiter:
    """Return a request as a workload at the end of the line, shaped for the hosts there are."""
    sizes = [
        host.gpus
        for host in line.hosts
        if (not model or model.lower() in host.model.lower())
        and (not partition or partition in host.partitions)
    ]
    if not sizes:
        models = sorted({host.model for host in line.hosts})
        raise InvalidInput(unknown("GPU type or partition", model or partition, models))
    lowest = min((waiter.priority for waiter in line.waiters), default=0.0)
    return Waiter(
        workload="\x00asked",
        user="",
        project="",
        partition=partition,
        gpus=gpus,
        per_host=min(gpus, max(sizes)),
        model=model,
        limit_s=max(60, limit_s),
        submit_ms=line.time_ms,
        priority=lowest,
        reason="",
    )


def _ask_one(line: Line, request: Waiter, record: QueueRecord) -> AskedStart:
    joined = join_line(line, request)
    starts = forecast_starts(joined, record, _ASK_FUTURES, request.workload)
    start = starts.get(request.workload)
    low, middle, high = (start.p10_s, start.p50_s, start.p90_s) if start else (None, None, None)
    return AskedStart(
        gpus=request.gpus,
        gpu_model=request.model,
        partition=request.partition,
        time_limit_s=request.limit_s or 0,
        p10_s=low,
        p50_s=middle,
        p90_s=high,
        sentence=describe_start(low, middle, high) if start else _describe_missing(line, request),
    )


def _list_alternatives(line: Line, request: Waiter) -> list[Waiter]:
    """Return cheaper requests: fewer GPUs, a shorter limit, another partition or GPU type."""
    limit_s = request.limit_s or 3600
    sizes = [gpus for gpus in (request.gpus // 2, request.gpus // 4) if gpus >= 1]
    asked = [(gpus, request.model, request.partition, limit_s) for gpus in sizes]
    asked.append((request.gpus, request.model, request.partition, limit_s // 2))
    places = {(p, host.model) for host in line.hosts for p in host.partitions or ("",)}
    asked += [
        (request.gpus, model, partition, limit_s)
        for partition, model in sorted(places)[:12]
        if partition != request.partition or (request.model and model != request.model)
    ]
    return [
        _make_request(line, gpus=gpus, model=model, partition=partition, limit_s=limit)
        for gpus, model, partition, limit in asked
    ]


def _is_sooner(other: AskedStart, asked: AskedStart) -> bool:
    """Return whether an alternative starts so much sooner that one would take it."""
    return asked.p50_s is None or (other.p50_s or 0.0) < 0.8 * asked.p50_s - 30.0

"""The waiting line over time: forecasts kept and scored, free room sampled, starts notified."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from marey.app.queue.live_line import build_line_of
from marey.live.frames import Frame
from marey.model.errors import MareyError, NotFound
from marey.model.protocols import Store, WorkloadQuery
from marey.model.times import DAY_MS, HOUR_MS, MINUTE_MS
from marey.model.workloads import WorkloadState
from marey.notify.notices import Notice
from marey.queue.waiting.arrivals import sample_arrivals
from marey.queue.waiting.forecast_record import KeptForecast, StartForecast
from marey.queue.waiting.free_room import measure_free_room
from marey.queue.waiting.line import Line, Waiter
from marey.queue.waiting.queue_record import LEARNED, SIMULATION, QueueRecord, read_record
from marey.queue.waiting.run_shares import compute_shares

log = logging.getLogger(__name__)

KIND = "queue_record"
STEP_MS, SAVE_MS, ROOM_MS = 5 * MINUTE_MS, 15 * MINUTE_MS, 15 * MINUTE_MS
LEARN_MS = 6 * HOUR_MS
SOON_S = 15 * 60
STARTS_SOON, STARTED = "queue_starts_soon", "queue_started"
_FUTURES = 16
_WALL_GAP_S = 5.0


class QueueLog:
    """Watches frames from a thread of its own; the collect loop never waits for it."""

    def __init__(
        self, store: Store, tell: Callable[[Sequence[Notice], int], None] = lambda *_: None
    ) -> None:
        self._store, self._tell = store, tell
        self.records: dict[str, QueueRecord] = {
            name: read_record(document) for name, document in store.documents(KIND).items()
        }
        self._taken_ms: dict[str, int] = {}
        self._saved_ms: dict[str, int] = {}
        self._learned_ms: dict[str, int] = {}
        self._fitted_ms: dict[str, int] = {}
        self._newest: dict[str, Frame] = {}
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def find_record(self, cluster: str) -> QueueRecord | None:
        """Return the record of a cluster, if there is one."""
        return self.records.get(cluster)

    def watch(self, frame: Frame) -> None:
        """Note the newest frame for the log's own thread; never waits."""
        if frame.time_ms - self._taken_ms.get(frame.cluster, 0) >= STEP_MS:
            self._newest[frame.cluster] = frame
            self._wake.set()

    def start(self) -> None:
        """Begin to watch."""
        self._thread = threading.Thread(target=self._run, name="queue", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what is in hand and keep the record."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        for cluster in self._taken_ms:
            self._save(cluster)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            while self._newest and not self._stop.is_set():
                _, frame = self._newest.popitem()
                try:
                    self.take(frame)
                except MareyError as error:
                    log.warning("the waiting line could not be forecast: %s", error)
                except Exception:
                    log.exception("the waiting line could not be forecast")
            # A fast simulated cluster has many steps a second: nobody reads so many forecasts.
            self._stop.wait(_WALL_GAP_S)

    def take(self, frame: Frame) -> None:
        """Score what started, forecast who waits, sample what is free, tell, and save."""
        cluster, now_ms = frame.cluster, frame.time_ms
        record = self.records.setdefault(cluster, QueueRecord())
        self._taken_ms[cluster] = now_ms
        line = build_line_of(frame)
        notices = list(self._score_starts(record, frame))
        if line.waiters and line.hosts:
            self._learn_habits(record, cluster, now_ms)
            self._learn_waits(record, cluster, now_ms)
            notices += self._forecast(record, cluster, line)
        if not record.rooms or now_ms - record.rooms[-1].time_ms >= ROOM_MS:
            record.note_rooms(now_ms, measure_free_room(line))
        if notices:
            self._tell(notices, now_ms)
        if now_ms - self._saved_ms.get(cluster, 0) >= SAVE_MS:
            self._save(cluster)
            self._saved_ms[cluster] = now_ms

    def _save(self, cluster: str) -> None:
        try:
            self._store.put_document(KIND, cluster, self.records[cluster].to_document())
        except MareyError as error:
            # A store that cannot write says so through the samples; the record stays in memory.
            log.warning("the forecasts of %s could not be kept: %s", cluster, error)

    def _score_starts(self, record: QueueRecord, frame: Frame) -> Iterable[Notice]:
        for workload in list(record.open):
            live = frame.workloads.get(workload)
            if live is not None and live.status.state is WorkloadState.PENDING:
                continue
            start_ms = live.workload.start_ms if live else self._find_start(frame, workload)
            if start_ms is None:
                record.note_cancelled(workload)
                continue
            record.note_start(workload, start_ms)
            if live is not None:
                owner = (live.workload.user, live.workload.project, live.workload.partition)
                title = "Started"
                place = (frame.cluster, workload)
                yield _make_notice(STARTED, title, place, time_ms=frame.time_ms, owner=owner)

    def _find_start(self, frame: Frame, workload: str) -> int | None:
        """Return when a workload started that is gone from the frame; None: it never did."""
        try:
            found = self._store.workload(frame.cluster, workload)
        except NotFound:
            return None
        start = found.get("start_ms")
        return None if start is None else int(start)

    def _forecast(self, record: QueueRecord, cluster: str, line: Line) -> Iterable[Notice]:
        due = {
            w.workload: w
            for w in line.waiters
            if record.is_due(w.workload, w.submit_ms, line.time_ms) or w.workload in record.open
        }
        # The replay's compiled code: only a server with somebody waiting pays for it.
        from marey.app.queue.learned_waits import forecast_line

        forecasts = forecast_line(line, record, _FUTURES) if due else {}
        for workload, waiter in due.items():
            if workload not in forecasts:
                continue
            best, raw, learned = forecasts[workload]
            if best.p50_s is None or best.p10_s is None:
                continue
            if record.is_due(workload, waiter.submit_ms, line.time_ms):
                record.keep(_make_kept(line, waiter, best, (raw, learned)))
            soon = best.p50_s is not None and best.p50_s <= SOON_S
            if soon and workload not in record.announced:
                record.announced.add(workload)
                owner = (waiter.user, waiter.project, waiter.partition)
                title = "Starts within 15 min"
                place = (cluster, workload)
                yield _make_notice(STARTS_SOON, title, place, time_ms=line.time_ms, owner=owner)

    def _learn_habits(self, record: QueueRecord, cluster: str, now_ms: int) -> None:
        """Learn once an hour who came lately, and which shares of their limits workloads used."""
        if now_ms - self._learned_ms.get(cluster, -HOUR_MS) < HOUR_MS:
            return
        self._learned_ms[cluster] = now_ms
        query = WorkloadQuery(
            cluster=cluster, from_ms=now_ms - 7 * DAY_MS, to_ms=now_ms, limit=5000
        )
        rows = self._store.workloads(query).to_pylist()
        record.shares = compute_shares(rows, now_ms)
        record.recent = sample_arrivals(rows, now_ms)

    def _learn_waits(self, record: QueueRecord, cluster: str, now_ms: int) -> None:
        """Fit the model anew every few hours to the site's own history; too little is no error."""
        if now_ms - self._fitted_ms.get(cluster, -LEARN_MS) < LEARN_MS:
            return
        self._fitted_ms[cluster] = now_ms
        from marey.app.queue.learned_waits import fit_site

        try:
            record.forecaster, record.no_model = fit_site(self._store, cluster, now_ms), ""
        except MareyError as error:
            record.no_model = str(error)


def _make_kept(
    line: Line,
    waiter: Waiter,
    best: StartForecast,
    behind: tuple[StartForecast | None, StartForecast | None],
) -> KeptForecast:
    """Return the record of a forecast: the one shown, and the simulated and learned medians."""
    estimate, middle = waiter.estimate_ms, best.p50_s or 0.0
    raw, learned = behind
    high = best.p90_s if best.p90_s is not None else 10.0 * middle
    return KeptForecast(
        workload=waiter.workload,
        made_ms=line.time_ms,
        p10_s=round(best.p10_s or 0.0, 1),
        p50_s=round(middle, 1),
        p90_s=round(high, 1),
        method=LEARNED if best is learned else SIMULATION,
        raw_s=_read_middle(raw),
        learned_s=_read_middle(learned),
        estimate_s=None if estimate is None else (estimate - line.time_ms) / 1000.0,
    )


def _read_middle(start: StartForecast | None) -> float | None:
    return None if start is None or start.p50_s is None else round(start.p50_s, 1)


def _make_notice(
    rule: str,
    title: str,
    place: tuple[str, str],
    *,
    time_ms: int,
    owner: tuple[str, str, str],
) -> Notice:
    cluster, workload = place
    user, project, partition = owner
    return Notice(
        id=f"{rule}:{cluster}:{workload}",
        status="firing",
        time_ms=time_ms,
        opened_ms=time_ms,
        finding=f"{rule}:{workload}",
        rule=rule,
        title=title,
        severity="info",
        cluster=cluster,
        workload=workload,
        user=user,
        project=project,
        partition=partition,
    )

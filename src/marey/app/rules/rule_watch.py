"""Rules at work: the site's rules, the live watch over every cluster, state over restarts."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from marey.app.collect.memory import give_back, trim
from marey.app.rules.finding_store import FindingStore
from marey.app.rules.notifications import Notifier
from marey.app.rules.rule_documents import (
    VerdictHits,
    VerdictRow,
    Verdicts,
)
from marey.app.rules.rule_store import RuleStore
from marey.app.rules.rule_windows import fill_windows
from marey.app.rules.state_file import (
    EvaluationLoopFiles,
    copy_last_episodes,
    find_missed_changes,
)
from marey.model.access.current import current_identity
from marey.model.errors import Conflict, MareyError
from marey.model.observation import Observation
from marey.model.protocols import Store
from marey.model.times import MINUTE_MS
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.evaluator import Evaluation, windows_in
from marey.rules.engine.findings import FindingChange
from marey.rules.engine.observation_feed import ObservationFeed
from marey.rules.engine.three_valued import TRUE, UNKNOWN, Truths
from marey.rules.language.expressions import Clause
from marey.rules.ownership import is_personal_of_another

log = logging.getLogger(__name__)

CHECKPOINT_MS = 5 * MINUTE_MS
# An observation of 10,000 GPUs is some 1.2 MB: at most about 50 MB wait.
QUEUE_LIMIT = 40
# While a loop is opened, the store has the samples of all but the last few that wait.
OPENING_LIMIT = 12
YIELD_S = 0.002
# Whoever asks goes before the next observation, for so long at most.
LONGEST_YIELD_S = 1.0
PATIENCE_S = 20.0
TRIM_EVERY_S = 60.0


def find_missing_windows(loop: EvaluationLoop, clause: Clause, now_ms: int) -> set[str]:
    """Return metrics whose trailing windows a clause needs and the loop does not keep."""
    needed = windows_in(clause, now_ms)
    return {metric for metric, need in needed.items() if loop.evaluator.watch(metric, need)}


class RuleWatch:
    """The live watch: listens to the collect loop, keeps findings, tells the notifier."""

    def __init__(
        self, store: Store, book: RuleStore, notifier: Notifier, beside: Path | None = None
    ) -> None:
        self.store, self.book, self.notifier = store, book, notifier
        self.findings = FindingStore(store)
        self._feeds: dict[str, ObservationFeed] = {}
        # Up to when each loop has read the store: no sample is taken twice.
        self._read_ms: dict[str, int] = {}
        self._saved_ms: dict[str, int] = {}
        self._rules = book.all()
        self.lock = threading.RLock()
        # Who waits for the lock to read a loop, beside the watch's own thread.
        self._readers, self._counting = 0, threading.Lock()
        # What falls out here on a machine that cannot keep up is read from the store.
        self._queue: deque[Observation] = deque(maxlen=QUEUE_LIMIT)
        self._overrun: set[str] = set()
        # Clusters whose past was brought in while they are served.
        self._imported: deque[str] = deque()
        self._wake, self._stop = threading.Event(), threading.Event()
        # How much of the past has been read for clusters whose loop does not know all of it yet.
        self._shares: dict[str, float] = {}
        self.keeper = EvaluationLoopFiles(store, beside, self._stop.is_set, self._note_share)
        self._thread: threading.Thread | None = None
        self._past_thread: threading.Thread | None = None
        self._is_reading_past = False

    # -- the collect loop
    def observe(self, observation: Observation) -> None:
        """Put an observation in line for the watch's own thread; never waits, never raises."""
        # The watch's thread may take one out meanwhile.
        with suppress(IndexError):
            if len(self._queue) == QUEUE_LIMIT:
                self._overrun.add(self._queue[0].cluster)
        self._queue.append(observation)
        with suppress(IndexError):
            older = self._queue[-OPENING_LIMIT - 1]
            if older.cluster not in self._feeds:
                self._queue[-OPENING_LIMIT - 1] = replace(older, samples=())
        self._wake.set()

    def _run(self, clusters: list[str], now_ms: int) -> None:
        for cluster in clusters:
            if not self._stop.is_set():
                self._guard(partial(self._open_first, cluster, now_ms))
        give_back()
        self._start_reading_past()
        trimmed_s = time.monotonic()
        while not self._stop.is_set():
            if time.monotonic() - trimmed_s > TRIM_EVERY_S:
                # What requests have left behind as well.
                trim()
                trimmed_s = time.monotonic()
            self._wake.wait(timeout=1.0)
            self._wake.clear()
            while self._imported and not self._stop.is_set():
                self._guard(partial(self._open_imported, self._imported.popleft()))
            while self._queue and not self._stop.is_set():
                self.take(self._queue.popleft())
                self._let_readers_in()

    def _let_readers_in(self) -> None:
        """Wait for those who wait for a verdict or a preview: locks are not fair, and on a busy
        machine a short pause does not reach them.
        """
        until_s = time.monotonic() + LONGEST_YIELD_S
        self._stop.wait(YIELD_S)
        while self._readers and not self._stop.is_set() and time.monotonic() < until_s:
            self._stop.wait(YIELD_S)

    def _let_in(self) -> bool:
        """Wait for the lock as a reader; False where it was not given in time."""
        with self._counting:
            self._readers += 1
        try:
            return self.lock.acquire(timeout=PATIENCE_S)
        finally:
            with self._counting:
                self._readers -= 1

    def _guard(self, work: Callable[[], object]) -> None:
        try:
            work()
        except MareyError as error:
            # What the end of the server cuts short is no fault.
            if not self._stop.is_set():
                log.warning("rules could not be evaluated: %s", error)
        except Exception:
            log.exception("rules could not be evaluated")

    def take(self, observation: Observation) -> None:
        """Take one observation; a fault here must not end the watch."""
        self._guard(lambda: self._take(observation))

    def _take(self, observation: Observation) -> None:
        cluster = observation.cluster
        if cluster not in self._feeds:
            # Opening a loop reads what fell out so far, and what falls out meanwhile is news.
            self._overrun.discard(cluster)
        feed = self.feed(cluster, observation.time_ms)
        with self.lock:
            if cluster in self._overrun:
                self._overrun.discard(cluster)
                self._catch_up(cluster, feed)
            if observation.time_ms <= self._read_ms[cluster]:
                # Already read from the store while the loop was opened.
                observation = replace(observation, samples=())
            self._finish(cluster, feed.observe(observation), observation.time_ms)

    def _catch_up(self, cluster: str, feed: ObservationFeed) -> None:
        """Read from the store what fell out of the line: samples, starts and ends alike."""
        book = feed.loop.book.findings
        before = copy_last_episodes(book.values())
        since_ms = feed.loop.evaluator.newest_ms
        self.keeper.catch_up(cluster, feed, self._rules)
        self._read_ms[cluster] = feed.loop.evaluator.newest_ms
        missed = find_missed_changes(before, book.values(), since_ms)
        self._finish(cluster, missed, self._read_ms[cluster])

    def _finish(self, cluster: str, changes: list[FindingChange], now_ms: int) -> None:
        # In this order: a finding that is kept but was not announced would never be.
        self.notifier.tell(cluster, changes, {rule.id: rule for rule in self._rules}, now_ms)
        if changes:
            self.findings.save(change.finding for change in changes)
        due = now_ms - self._saved_ms.setdefault(cluster, now_ms) >= CHECKPOINT_MS
        if due and cluster in self._feeds and cluster not in self._shares:
            self.checkpoint(cluster, now_ms)

    def feed(self, cluster: str, now_ms: int) -> ObservationFeed:
        """Return the feed of a cluster: as it was left, or made from history."""
        if cluster not in self._feeds:
            # Reading history takes its time: whoever asks meanwhile must not wait for it.
            opened = self.keeper.open(cluster, self._rules, self.findings.all(cluster), now_ms)
            with self.lock:
                self._read_ms[cluster] = opened.feed.loop.evaluator.newest_ms
                try:
                    self._finish(cluster, opened.missed, now_ms)
                    self.findings.save(opened.changed)
                finally:
                    # Last: from here on nobody hears that findings are still missing.
                    self._shares.pop(cluster, None)
                    self._feeds[cluster] = opened.feed
        return self._feeds[cluster]

    def _open_first(self, cluster: str, now_ms: int) -> None:
        """Open a cluster's loop; a long past is left for later, its newest hours come first."""
        if cluster in self._feeds or not self.keeper.has_long_past(cluster):
            self.feed(cluster, now_ms)
            return
        kept = self.findings.all(cluster)
        opened = self.keeper.open(cluster, self._rules, kept, now_ms, newest_only=True)
        self._shares[cluster] = 0.0
        with self.lock:
            self._read_ms[cluster] = opened.feed.loop.evaluator.newest_ms
            self._finish(cluster, opened.missed, now_ms)
            self.findings.save(opened.changed)
            self._feeds[cluster] = opened.feed

    def adopt(self, feed: ObservationFeed, cluster: str, now_ms: int, *, whole: bool) -> None:
        """Go on with a loop made elsewhere; unless it knows the ``whole`` past, that is read."""
        found = list(feed.loop.book.findings.values())
        with self.lock:
            self._read_ms[cluster] = feed.loop.evaluator.newest_ms
            self._finish(cluster, find_missed_changes({}, found, now_ms), now_ms)
            self.findings.save(found)
            if not whole:
                self._shares[cluster] = 0.0
            self._feeds[cluster] = feed

    def take_import(self, cluster: str) -> None:
        """Judge a cluster whose past has just been imported; never waits."""
        self._imported.append(cluster)
        self._wake.set()

    def _open_imported(self, cluster: str) -> None:
        """Judge what was imported: of an unknown cluster the newest hours first, then the past."""
        if cluster in self._feeds:
            with self.lock:
                # What was kept knows nothing of the import.
                self.keeper.forget(cluster)
                self._shares.setdefault(cluster, 0.0)
        else:
            span = self.store.span(cluster)
            if span is not None:
                self._open_first(cluster, span[1])
        self._start_reading_past()

    def _start_reading_past(self) -> None:
        with self.lock:
            if self._is_reading_past:
                return
            self._is_reading_past = True
        self._past_thread = threading.Thread(target=self._read_past, name="past", daemon=True)
        self._past_thread.start()

    def _read_past(self) -> None:
        while (cluster := self._find_unread()) is not None:
            if not self._stop.is_set():
                self._guard(partial(self._replace_by_whole, cluster))
            self._shares.pop(cluster, None)
        give_back()

    def _find_unread(self) -> str | None:
        """Return a cluster whose past has not been read; without one, reading is over."""
        with self.lock:
            found = next(iter(self._shares), None)
            self._is_reading_past = found is not None
        return found

    def _replace_by_whole(self, cluster: str) -> None:
        """Judge the whole past, and go on with that loop instead of the one of the newest hours."""
        first = self._feeds[cluster].loop.book
        announced = list(first.findings.values())
        ids = {finding.id for finding in announced}
        kept = [finding for finding in self.findings.all(cluster) if finding.id not in ids]
        now_ms = self._feeds[cluster].loop.evaluator.newest_ms
        opened = self.keeper.open(cluster, self._rules, kept, now_ms, announced=announced)
        with self.lock:
            self.keeper.catch_up(cluster, opened.feed, self._rules)
            self._read_ms[cluster] = opened.feed.loop.evaluator.newest_ms
            self._finish(cluster, opened.missed, self._read_ms[cluster])
            book = opened.feed.loop.book.findings
            self.findings.save(book.values())
            # Over its newest hours a workload may look worse than over its life.
            self.findings.drop(f.id for key, f in first.findings.items() if key not in book)
            self._feeds[cluster] = opened.feed

    def _note_share(self, cluster: str, share: float) -> None:
        if cluster in self._shares or cluster not in self._feeds:
            self._shares[cluster] = max(share, self._shares.get(cluster, 0.0))

    def share_read(self, cluster: str) -> float | None:
        """Return how much of the past (0-1) the rules have read; None where that is all of it."""
        if not self.preparing(cluster):
            return None
        return min(1.0, self._shares.get(cluster, 0.0))

    def preparing(self, cluster: str) -> bool:
        """Return whether a cluster has data to evaluate that no loop has evaluated yet."""
        if cluster in self._feeds:
            return cluster in self._shares
        return cluster in self.store.clusters()

    @contextmanager
    def loop(self, cluster: str) -> Iterator[EvaluationLoop]:
        """Yield a cluster's loop, for as long as it is read; refused while it is not there."""
        if cluster not in self._feeds or not self._let_in():
            raise Conflict("The rules of this cluster are being prepared; ask again soon.")
        try:
            loop = self._feeds[cluster].loop
            loop.flush()
            yield loop
        finally:
            self.lock.release()

    @property
    def loops(self) -> dict[str, EvaluationLoop]:
        """The loop of every cluster that is watched."""
        return {cluster: feed.loop for cluster, feed in self._feeds.items()}

    def show_workloads(self, cluster: str, workloads: Sequence[str]) -> list[str | None]:
        """Return each workload's id as the asker sees it; None where it is not shown."""
        return list(workloads)

    def find_workload(self, cluster: str, workload: str) -> str | None:
        """Return the workload that is called so for whoever asks; None where there is none."""
        return workload

    def verdicts(self, cluster: str) -> Verdicts:
        """Return the newest verdicts of a cluster; empty while they are being prepared."""
        loop = self.loops.get(cluster)
        # An evaluation never changes once it is made: it can be read without waiting for the next.
        latest = loop.latest if loop else None
        if latest is None:
            return Verdicts(None, [], self.share_read(cluster))
        return Verdicts(
            latest.time_ms, self.verdict_rows(cluster, latest), self.share_read(cluster)
        )

    def verdict_rows(self, cluster: str, latest: Evaluation) -> list[VerdictRow]:
        """Return per rule who violates it, over life and now, and who cannot be judged."""
        rows = []
        shown = self.show_workloads(cluster, latest.workloads)
        user = current_identity().user
        for verdict in latest.verdicts:
            if is_personal_of_another(verdict.rule.id, user):
                continue
            unknown_to = np.flatnonzero(verdict.life == UNKNOWN).tolist()
            not_judged = [name for i in unknown_to if (name := shown[i]) is not None]
            if verdict.gpus_life is not None and verdict.gpus_now is not None:
                life = _hits(latest, verdict.life, verdict.gpus_life, shown)
                now = _hits(latest, verdict.now, verdict.gpus_now, shown)
            elif not_judged:
                life = now = VerdictHits([], [])
            else:
                continue
            rows.append(VerdictRow(verdict.rule.id, life, now, not_judged))
        return rows

    # -- rules
    def reload(self) -> None:
        """Replace the evaluator by one of the rules as they are now.

        New windows are filled from the store.
        """
        with self.lock:
            self._rules = self.book.all()
            for cluster, loop in self.loops.items():
                loop.flush()
                fresh = loop.evaluator.use(self._rules)
                self.fill(cluster, loop, fresh)

    def fill(self, cluster: str, loop: EvaluationLoop, metrics: Iterable[str]) -> None:
        """Fill the windows of metrics that were not kept so far."""
        fill_windows(self.store, cluster, loop, set(metrics))

    # -- state
    def checkpoint(self, cluster: str, now_ms: int) -> None:
        """Keep the loop's state and its open findings."""
        self._saved_ms[cluster] = now_ms
        loop = self._feeds[cluster].loop
        open_ones = [loop.book.findings[key] for key in loop.book.open_keys()]
        self.findings.save(open_ones)
        self.keeper.write(cluster, loop)
        give_back()

    def start(self, now_ms: int) -> None:
        """Take up every cluster that the store knows, in the background; begin to deliver."""
        self.book.remember()
        arguments = (self.store.clusters(), now_ms)
        self._thread = threading.Thread(target=self._run, args=arguments, name="rules", daemon=True)
        self._thread.start()
        self.notifier.start()

    def stop(self) -> None:
        """Keep everything for the next start."""
        self._stop.set()
        self._wake.set()
        self.notifier.stop()
        for thread in (self._thread, self._past_thread):
            if thread is None:
                continue
            thread.join(timeout=60)
            if thread.is_alive():
                # Still reading history; the store's end will end it, and the next start rebuilds.
                return
        with self.lock:
            for cluster, feed in self._feeds.items():
                # The past that was not read yet is read at the next start.
                if cluster not in self._shares:
                    self.checkpoint(cluster, feed.loop.evaluator.newest_ms)


def _hits(
    latest: Evaluation, truth: Truths, gpus: Truths, shown: Sequence[str | None]
) -> VerdictHits:
    hit = (truth == TRUE) & np.array([name is not None for name in shown], bool)
    held = np.flatnonzero((gpus == TRUE) & hit[latest.layout.workload])
    allocations = latest.condition_values.allocations
    held_gpus = [allocations.held_gpus[r] for r in latest.layout.rows[held]]
    return VerdictHits(
        workloads=[name for i in np.flatnonzero(hit).tolist() if (name := shown[i]) is not None],
        gpus=[one.gpu for one in held_gpus if one is not None],
    )

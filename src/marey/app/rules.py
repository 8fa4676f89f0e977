"""Rules at work: the site's rules, the live watch over every cluster, state over restarts."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from marey.app.collecting import Store
from marey.app.findings import FindingStore
from marey.app.memory import give_back
from marey.app.moments import observation_of
from marey.app.notifications import Notifier
from marey.app.rule_history import history_of
from marey.app.rule_windows import fill_windows
from marey.model.errors import Conflict, MareyError, NotFound, Unavailable, shown
from marey.model.observation import Observation
from marey.model.times import DAY_MS, MINUTE_MS
from marey.rules.backtest import Watch, replay
from marey.rules.court import Court
from marey.rules.definition import Rule, parse_document, read_rules, rule_document
from marey.rules.expressions import Clause
from marey.rules.feeding import Clerk
from marey.rules.findings import Change, Finding
from marey.rules.judge import Judgement, windows_in
from marey.rules.keeping import dump_court, load_court
from marey.rules.pack import with_site_rules
from marey.rules.truth import TRUE

log = logging.getLogger(__name__)

KIND = "rule"
FOLDER_KIND, FOLDER_NAME = "rule-files", "folder"
CHECKPOINT_MS = 5 * MINUTE_MS
# How far back a rebuild reads: longer lives are judged from here on.
REBUILD_MS = 14 * DAY_MS
RULES_LIMIT = 20_000
# An observation of 10,000 GPUs is some 600 KB: at most about 60 MB wait.
QUEUE_LIMIT = 100
YIELD_S = 0.002
PATIENCE_S = 5.0


class RuleBook:
    """Every rule: shipped, from files, and kept on the server; later ones replace earlier."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self._store, self._folder = store, folder
        self._files = read_rules(folder) if folder is not None else []

    @classmethod
    def of_site(cls, store: Store) -> RuleBook:
        """The rules that the store's server judges by, its rule files included."""
        kept = store.documents(FOLDER_KIND).get(FOLDER_NAME)
        folder = Path(kept) if isinstance(kept, str) else None
        if folder is not None and not folder.exists():
            log.warning("the rule files '%s' are not here; only others are known", shown(kept))
            folder = None
        return cls(store, folder)

    def remember(self) -> None:
        """Let those who open the store later know where the rule files are."""
        if self._folder is not None:
            self._store.put_document(FOLDER_KIND, FOLDER_NAME, str(self._folder.resolve()))
        elif FOLDER_NAME in self._store.documents(FOLDER_KIND):
            self._store.delete_document(FOLDER_KIND, FOLDER_NAME)

    def all(self) -> list[Rule]:
        """The rules in force and those switched off, shipped ones first."""
        return with_site_rules([*with_only(self._files), *self.kept()])

    def kept(self) -> list[Rule]:
        """The rules that were saved on this server."""
        return [parse_document(d, f"rule '{n}'") for n, d in self._store.documents(KIND).items()]

    def get(self, name: str) -> Rule:
        """One rule by its id."""
        for rule in self.all():
            if rule.id == name:
                return rule
        raise NotFound(f"There is no rule '{shown(name)}'.")

    def origin(self, name: str) -> str:
        """Where a rule comes from: server, file or pack."""
        if any(rule.id == name for rule in self.kept()):
            return "server"
        if any(rule.id == name for rule in self._files):
            return "file"
        return "pack"

    def save(self, document: object) -> Rule:
        """Keep a rule; an invalid one is refused."""
        rule = parse_document(document)
        kept = self._store.documents(KIND)
        if rule.id not in kept and len(kept) >= RULES_LIMIT:
            raise Conflict(f"There are {RULES_LIMIT} rules already; delete some first.")
        self._store.put_document(KIND, rule.id, rule_document(rule))
        return rule

    def delete(self, name: str) -> None:
        """Forget a rule that was saved here; files and the pack are not ours to change."""
        if self.origin(name) != "server":
            self.get(name)
            raise Conflict(f"The rule '{name}' comes from a file or the pack; save it disabled.")
        self._store.delete_document(KIND, name)


def with_only(rules: Sequence[Rule]) -> list[Rule]:
    """The last rule of each id."""
    return list({rule.id: rule for rule in rules}.values())


def missing_windows(court: Court, clause: Clause, now_ms: int) -> set[str]:
    """Metrics whose trailing windows a clause needs and the court does not keep."""
    needed = windows_in(clause, now_ms)
    return {metric for metric, need in needed.items() if court.judge.watch(metric, need)}


class RuleWatch:
    """The live watch: listens to the collect loop, keeps findings, tells the notifier."""

    def __init__(
        self, store: Store, book: RuleBook, notifier: Notifier, beside: Path | None = None
    ) -> None:
        self.store, self.book, self.notifier = store, book, notifier
        self.findings = FindingStore(store)
        # Sketches are kept in files beside the store's.
        self._beside = beside
        self._clerks: dict[str, Clerk] = {}
        self._saved_ms: dict[str, int] = {}
        self._rules = book.all()
        self.lock = threading.RLock()
        # While a court is rebuilt nothing is lost: what falls out here is read from the store.
        self._queue: deque[Observation] = deque(maxlen=QUEUE_LIMIT)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # -- the collect loop
    def observe(self, observation: Observation) -> None:
        """Put an observation in line for the watch's own thread; never waits, never raises."""
        self._queue.append(observation)
        self._wake.set()

    def _run(self, clusters: list[str], now_ms: int) -> None:
        for cluster in clusters:
            if not self._stop.is_set():
                self._guarded(partial(self.clerk, cluster, now_ms))
        give_back()
        while not self._stop.is_set():
            self._wake.wait(timeout=1.0)
            self._wake.clear()
            while self._queue and not self._stop.is_set():
                self.take(self._queue.popleft())
                # Locks are not fair: let those in who wait for a verdict or a preview.
                self._stop.wait(YIELD_S)

    @staticmethod
    def _guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except MareyError as error:
            log.warning("rules could not be judged: %s", error)
        except Exception:
            log.exception("rules could not be judged")

    def take(self, observation: Observation) -> None:
        """Take one observation; a fault here must not end the watch."""
        self._guarded(lambda: self._take(observation))

    def _take(self, observation: Observation) -> None:
        clerk = self.clerk(observation.cluster, observation.time_ms)
        with self.lock:
            newest_ms = clerk.court.judge.newest_ms
            if observation.time_ms <= newest_ms:
                # Already read from the store while the court was opened.
                observation = replace(observation, samples=())
            self._done(observation.cluster, clerk.observe(observation), observation.time_ms)

    def _done(self, cluster: str, changes: list[Change], now_ms: int) -> None:
        if changes:
            self.findings.save(change.finding for change in changes)
        self.notifier.tell(changes, {rule.id: rule for rule in self._rules}, now_ms)
        if now_ms - self._saved_ms.setdefault(cluster, now_ms) >= CHECKPOINT_MS:
            self.checkpoint(cluster, now_ms)

    def clerk(self, cluster: str, now_ms: int) -> Clerk:
        """The clerk of a cluster: as it was left, or made from history."""
        if cluster not in self._clerks:
            # Reading history takes its time: whoever asks meanwhile must not wait for it.
            clerk = self._open(cluster, now_ms)
            if self._stop.is_set():
                raise Unavailable("The server is stopping; the rules' state is left as it was.")
            with self.lock:
                self._clerks[cluster] = clerk
        return self._clerks[cluster]

    @contextmanager
    def court(self, cluster: str) -> Iterator[Court]:
        """A cluster's court, for as long as it is read; refused while it is not there."""
        if cluster not in self._clerks or not self.lock.acquire(timeout=PATIENCE_S):
            raise Conflict("The rules of this cluster are being prepared; ask again soon.")
        try:
            court = self._clerks[cluster].court
            court.flush()
            yield court
        finally:
            self.lock.release()

    @property
    def courts(self) -> dict[str, Court]:
        """The court of every cluster that is watched."""
        return {cluster: clerk.court for cluster, clerk in self._clerks.items()}

    def verdict_rows(self, latest: Judgement) -> list[dict[str, Any]]:
        """Per rule the workloads and GPUs that violate it, over their life and now."""
        rows = []
        names = latest.workloads
        for verdict in latest.verdicts:
            if verdict.gpus_life is None or verdict.gpus_now is None:
                continue
            row: dict[str, Any] = {"rule": verdict.rule.id}
            for word, truth, gpus in (
                ("life", verdict.life, verdict.gpus_life),
                ("now", verdict.now, verdict.gpus_now),
            ):
                hit = truth == TRUE
                held = np.flatnonzero((gpus == TRUE) & hit[latest.layout.workload])
                seats = [latest.measuring.tenants.seats[r] for r in latest.layout.rows[held]]
                row[word] = {
                    "workloads": [names[i] for i in np.flatnonzero(hit).tolist()],
                    "gpus": [seat.gpu for seat in seats if seat is not None],
                }
            rows.append(row)
        return rows

    # -- rules
    def reload(self) -> None:
        """Judge by the rules as they are now; new windows are filled from the store."""
        with self.lock:
            self._rules = self.book.all()
            for cluster, court in self.courts.items():
                court.flush()
                fresh = court.judge.use(self._rules)
                self.fill(cluster, court, fresh)

    def fill(self, cluster: str, court: Court, metrics: Iterable[str]) -> None:
        """Fill the windows of metrics that were not kept so far."""
        fill_windows(self.store, cluster, court, set(metrics))

    # -- state
    def _open(self, cluster: str, now_ms: int) -> Clerk:
        kept = self.findings.all(cluster)
        court = self._restored(cluster, kept) or self._rebuilt(cluster, kept, now_ms)
        clerk = Clerk(court)
        if cluster in self.store.clusters():
            moment = observation_of(self.store.moment(cluster, now_ms))
            clerk.observe(replace(moment, samples=(), events=()))
        return clerk

    def _restored(self, cluster: str, kept: list[Finding]) -> Court | None:
        path = self.state_path(cluster)
        if path is None or not path.exists():
            return None
        try:
            court = load_court(path.read_bytes(), self._rules, kept, cluster)
        except (ValueError, OSError) as error:
            log.warning("the kept state of rules is not used: %s; it is made anew", error)
            return None
        self._catch_up(cluster, court, court.judge.newest_ms)
        sketches = court.judge.sketches
        self.fill(cluster, court, set(sketches.rings) - set(sketches.since_ms))
        return court

    def _rebuilt(self, cluster: str, kept: list[Finding], now_ms: int) -> Court:
        court = Court(self._rules, cluster=cluster)
        span = self.store.span(cluster) if cluster in self.store.clusters() else None
        if span is not None:
            begun = self._oldest_start(cluster, span[1])
            self._catch_up(cluster, court, max(span[0], begun, span[1] - REBUILD_MS) - 1)
            # What was kept while that was read.
            self._catch_up(cluster, court, court.judge.newest_ms)
        for finding in kept:
            key = (finding.rule, finding.workload)
            again = court.book.findings.get(key)
            if again is None:
                court.book.findings[key] = finding
            else:
                again.acknowledged, again.comments = finding.acknowledged, finding.comments
        self.findings.save(court.book.findings.values())
        return court

    def _oldest_start(self, cluster: str, now_ms: int) -> int:
        """When the longest-running workload of the moment began: no need to read further back."""
        moment = self.store.moment(cluster, now_ms)
        running = set(moment.allocations["workload"].to_pylist())
        starts = [
            row["start_ms"]
            for row in moment.workloads.select(["workload", "start_ms"]).to_pylist()
            if row["workload"] in running and row["start_ms"] is not None
        ]
        return min(starts, default=now_ms)

    def _catch_up(self, cluster: str, court: Court, from_ms: int) -> None:
        span = self.store.span(cluster)
        if span is None or span[1] < from_ms:
            return
        if court.judged_ms is None:
            court.judged_ms = from_ms // court.every_ms * court.every_ms
        history = history_of(self.store, cluster, from_ms + 1, span[1] + 1, self._rules)
        replay(court, history, Watch(cancelled=self._stop.is_set))

    def state_path(self, cluster: str) -> Path | None:
        """The file beside the store that holds a cluster's sketches."""
        if self._beside is None:
            return None
        digest = hashlib.blake2b(cluster.encode(), digest_size=6).hexdigest()
        return self._beside.with_name(f"{self._beside.name}.rules-{digest}")

    def checkpoint(self, cluster: str, now_ms: int) -> None:
        """Keep the court's state: written beside, flushed, then put in place as one step."""
        self._saved_ms[cluster] = now_ms
        court = self._clerks[cluster].court
        open_ones = [court.book.findings[key] for key in court.book.open_keys()]
        self.findings.save(open_ones)
        path = self.state_path(cluster)
        if path is None:
            return
        beside = path.with_name(f"{path.name}.new")
        with beside.open("wb") as file:
            file.write(dump_court(court))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)

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
        if self._thread is not None:
            self._thread.join(timeout=60)
            if self._thread.is_alive():
                # Still reading history; the store's end will end it, and the next start rebuilds.
                return
        with self.lock:
            for cluster, clerk in self._clerks.items():
                self.checkpoint(cluster, clerk.court.judge.newest_ms)


def rule_row(rule: Rule, origin: str) -> dict[str, Any]:
    """A rule as lists show it."""
    return {**rule_document(rule), "origin": origin, "warnings": rule.warnings()}

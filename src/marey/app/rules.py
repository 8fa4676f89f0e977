"""Rules at work: the site's rules, the live watch over every cluster, state over restarts."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from marey.app.collecting import Store
from marey.app.court_keeping import CourtKeeper
from marey.app.findings import FindingStore
from marey.app.memory import give_back
from marey.app.notifications import Notifier
from marey.app.rule_windows import fill_windows
from marey.model.errors import Conflict, MareyError, NotFound, shown, unknown
from marey.model.observation import Observation
from marey.model.times import MINUTE_MS
from marey.rules.court import Court
from marey.rules.definition import Rule, parse_document, read_rules, rule_document
from marey.rules.documents import clause_document
from marey.rules.expressions import Clause
from marey.rules.feeding import Clerk
from marey.rules.findings import Change
from marey.rules.judge import Judgement, windows_in
from marey.rules.pack import with_site_rules
from marey.rules.printer import rule_text
from marey.rules.truth import TRUE

log = logging.getLogger(__name__)

KIND = "rule"
FOLDER_KIND, FOLDER_NAME = "rule-files", "folder"
CHECKPOINT_MS = 5 * MINUTE_MS
RULES_LIMIT = 20_000
# An observation of 10,000 GPUs is some 1.2 MB: at most about 50 MB wait.
QUEUE_LIMIT = 40
# While a court is opened, the store has the samples of all but the last few that wait.
OPENING_LIMIT = 12
YIELD_S = 0.002
PATIENCE_S = 5.0


class RuleBook:
    """Every rule: shipped, from files, and kept on the server; later ones replace earlier."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self._store, self._folder = store, folder
        self._files = read_rules(folder) if folder is not None else []
        # Ten thousand rules take seconds to read: once, until one is saved or deleted.
        self._rows: list[dict[str, Any]] | None = None

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
        kept = self._store.documents(KIND)
        if name in kept:
            return parse_document(kept[name], f"rule '{name}'")
        others = {rule.id: rule for rule in with_site_rules(with_only(self._files))}
        if name not in others:
            raise NotFound(unknown("rule", name, {*kept, *others}))
        return others[name]

    def origin(self, name: str) -> str:
        """Where a rule comes from: server, file or pack."""
        if name in self._store.documents(KIND):
            return "server"
        if any(rule.id == name for rule in self._files):
            return "file"
        return "pack"

    def rows(self) -> list[dict[str, Any]]:
        """Every rule as lists show it, with where it comes from."""
        if self._rows is None:
            origins = {rule.id: "file" for rule in self._files}
            origins |= dict.fromkeys(self._store.documents(KIND), "server")
            self._rows = [rule_row(rule, origins.get(rule.id, "pack")) for rule in self.all()]
        return self._rows

    def row(self, name: str) -> dict[str, Any]:
        """One rule with everything that is known of it: both forms of its clause as well."""
        rule = self.get(name)
        return rule_row(rule, self.origin(name)) | {
            "in_force": rule_text(rule.clause),
            "clause": clause_document(rule.clause),
            "in_force_where": [
                {
                    "partition": override.partition,
                    "project": override.project,
                    "when": rule_text(clause) if override.enabled else None,
                }
                for override, clause in rule.variants()
                if override is not None
            ],
        }

    def save(self, document: object) -> Rule:
        """Keep a rule; an invalid one is refused."""
        rule = parse_document(document)
        kept = self._store.documents(KIND)
        if rule.id not in kept and len(kept) >= RULES_LIMIT:
            raise Conflict(f"There are {RULES_LIMIT} rules already; delete some first.")
        self._store.put_document(KIND, rule.id, rule_document(rule))
        self._rows = None
        return rule

    def delete(self, name: str) -> None:
        """Forget a rule that was saved here; files and the pack are not ours to change."""
        if self.origin(name) != "server":
            self.get(name)
            raise Conflict(f"The rule '{name}' comes from a file or the pack; save it disabled.")
        self._store.delete_document(KIND, name)
        self._rows = None


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
        self._clerks: dict[str, Clerk] = {}
        # Up to when each court has read the store: no sample is taken twice.
        self._read_ms: dict[str, int] = {}
        self._saved_ms: dict[str, int] = {}
        self._rules = book.all()
        self.lock = threading.RLock()
        # While a court is rebuilt nothing is lost: what falls out here is read from the store.
        self._queue: deque[Observation] = deque(maxlen=QUEUE_LIMIT)
        self._wake, self._stop = threading.Event(), threading.Event()
        self.keeper = CourtKeeper(store, beside, self._stop.is_set)
        self._thread: threading.Thread | None = None

    # -- the collect loop
    def observe(self, observation: Observation) -> None:
        """Put an observation in line for the watch's own thread; never waits, never raises."""
        self._queue.append(observation)
        # The watch's thread may take it out meanwhile.
        with suppress(IndexError):
            older = self._queue[-OPENING_LIMIT - 1]
            if older.cluster not in self._clerks:
                self._queue[-OPENING_LIMIT - 1] = replace(older, samples=())
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

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except MareyError as error:
            # What the end of the server cuts short is no fault.
            if not self._stop.is_set():
                log.warning("rules could not be judged: %s", error)
        except Exception:
            log.exception("rules could not be judged")

    def take(self, observation: Observation) -> None:
        """Take one observation; a fault here must not end the watch."""
        self._guarded(lambda: self._take(observation))

    def _take(self, observation: Observation) -> None:
        clerk = self.clerk(observation.cluster, observation.time_ms)
        with self.lock:
            if observation.time_ms <= self._read_ms[observation.cluster]:
                # Already read from the store while the court was opened.
                observation = replace(observation, samples=())
            self._done(observation.cluster, clerk.observe(observation), observation.time_ms)

    def _done(self, cluster: str, changes: list[Change], now_ms: int) -> None:
        # In this order: a finding that is kept but was not told of would never be.
        self.notifier.tell(cluster, changes, {rule.id: rule for rule in self._rules}, now_ms)
        if changes:
            self.findings.save(change.finding for change in changes)
        if now_ms - self._saved_ms.setdefault(cluster, now_ms) >= CHECKPOINT_MS:
            self.checkpoint(cluster, now_ms)

    def clerk(self, cluster: str, now_ms: int) -> Clerk:
        """The clerk of a cluster: as it was left, or made from history."""
        if cluster not in self._clerks:
            # Reading history takes its time: whoever asks meanwhile must not wait for it.
            opened = self.keeper.open(cluster, self._rules, self.findings.all(cluster), now_ms)
            with self.lock:
                self._clerks[cluster] = opened.clerk
                self._read_ms[cluster] = opened.clerk.court.judge.newest_ms
                self._done(cluster, opened.missed, now_ms)
                self.findings.save(opened.changed)
        return self._clerks[cluster]

    def preparing(self, cluster: str) -> bool:
        """Whether there is something to judge of a cluster and no court that does so yet."""
        return cluster not in self._clerks and cluster in self.store.clusters()

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
    def checkpoint(self, cluster: str, now_ms: int) -> None:
        """Keep the court's state and its open findings."""
        self._saved_ms[cluster] = now_ms
        court = self._clerks[cluster].court
        open_ones = [court.book.findings[key] for key in court.book.open_keys()]
        self.findings.save(open_ones)
        self.keeper.write(cluster, court)
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

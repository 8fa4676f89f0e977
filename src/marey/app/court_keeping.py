"""A cluster's court over restarts: kept in a file, brought up to now from the store, or rebuilt."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from marey.app.collecting import Store
from marey.app.memory import trim
from marey.app.moments import observation_of
from marey.app.rule_history import history_of, stored_metrics
from marey.app.rule_windows import fill_windows
from marey.model.errors import Unavailable
from marey.model.times import DAY_MS, MINUTE_MS
from marey.rules.backtest import Watch, replay
from marey.rules.court import Court
from marey.rules.definition import Rule
from marey.rules.feeding import Clerk
from marey.rules.findings import Change, ChangeKind, Episode, Finding
from marey.rules.judge import FUTURE_MS
from marey.rules.keeping import dump_court, load_court

log = logging.getLogger(__name__)

# How far back a rebuild reads: longer lives are judged from here on.
REBUILD_MS = 14 * DAY_MS
# Each of them reads a few minutes more; a simulated cluster may live faster than it is read.
CATCH_UPS = 20


@dataclass(frozen=True)
class Opened:
    """A court that is up to now, and what happened to findings while nobody watched."""

    clerk: Clerk
    missed: list[Change]
    # Findings that are not as they were kept.
    changed: list[Finding]


@dataclass(frozen=True)
class CourtKeeper:
    """Opens and keeps courts; the files stand beside the store's."""

    store: Store
    beside: Path | None
    stopping: Callable[[], bool]

    def open(self, cluster: str, rules: list[Rule], kept: list[Finding], now_ms: int) -> Opened:
        """The court as it was left, or made from history."""
        before = {finding.id: _last_episode(finding) for finding in kept}
        court = self._restored(cluster, rules, kept, now_ms)
        # Of a past that is judged anew, only what lasts is news.
        since_ms = now_ms if court is None else court.judged_ms or now_ms
        if court is None:
            court = self._rebuilt(cluster, rules, now_ms)
        else:
            self._read(cluster, court, rules, court.judge.newest_ms, now_ms)
            sketches = court.judge.sketches
            missing = set(sketches.rings) - set(sketches.since_ms)
            fill_windows(self.store, cluster, court, missing)
        _remember(court, kept)
        clerk = Clerk(court)
        if cluster in self.store.clusters():
            moment = observation_of(self.store.moment(cluster, now_ms))
            clerk.observe(replace(moment, samples=(), events=()))
        self._go_on()
        found = court.book.findings.values()
        missed = missed_changes(before, found, since_ms)
        same = {id(finding) for finding in kept} - {id(change.finding) for change in missed}
        return Opened(clerk, missed, [f for f in found if f.is_open or id(f) not in same])

    def _restored(
        self, cluster: str, rules: list[Rule], kept: list[Finding], now_ms: int
    ) -> Court | None:
        path = self.state_path(cluster)
        if path is None or not path.exists():
            return None
        try:
            court = load_court(path.read_bytes(), rules, kept, cluster)
        except (ValueError, OSError) as error:
            log.warning("the kept state of rules is not used: %s; it is made anew", error)
            return None
        # What was found after the file was written is found again, at the same moments.
        judged_ms = court.judged_ms or now_ms
        later = [key for key, f in court.book.findings.items() if f.opened_ms > judged_ms]
        for key in later:
            del court.book.findings[key]
        return court

    def _rebuilt(self, cluster: str, rules: list[Rule], now_ms: int) -> Court:
        court = Court(rules, cluster=cluster)
        span = self.store.span(cluster) if cluster in self.store.clusters() else None
        if span is not None:
            end_ms = min(span[1], now_ms + FUTURE_MS)
            begun = self._oldest_start(cluster, end_ms)
            from_ms = max(span[0], begun, end_ms - REBUILD_MS) - 1
            self._read(cluster, court, rules, from_ms, now_ms)
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

    def _read(
        self, cluster: str, court: Court, rules: list[Rule], from_ms: int, now_ms: int
    ) -> None:
        """Read everything that the store has: also what is kept while that is read."""
        self._catch_up(cluster, court, rules, from_ms, now_ms)
        for _ in range(CATCH_UPS):
            newest_ms = court.judge.newest_ms
            self._catch_up(cluster, court, rules, newest_ms, now_ms)
            if court.judge.newest_ms - newest_ms <= MINUTE_MS:
                return

    def _catch_up(
        self, cluster: str, court: Court, rules: list[Rule], from_ms: int, now_ms: int
    ) -> None:
        self._go_on()
        span = self.store.span(cluster)
        if span is None or span[1] < from_ms:
            return
        if court.judged_ms is None:
            court.judged_ms = from_ms // court.every_ms * court.every_ms
        # Samples of a broken clock that lie in the future are no part of the past.
        end_ms = min(span[1], max(now_ms, from_ms) + FUTURE_MS)
        history = history_of(
            self.store, cluster, from_ms + 1, end_ms + 1, rules, metrics=stored_metrics()
        )
        self._go_on()
        replay(court, history, Watch(progress=lambda _: trim(), cancelled=self.stopping))
        self._go_on()

    def _go_on(self) -> None:
        """Between the long steps: nobody waits for a court that will not sit any more."""
        if self.stopping():
            raise Unavailable("The server is stopping; the rules' state is left as it was.")

    def state_path(self, cluster: str) -> Path | None:
        """The file beside the store that holds a cluster's sketches."""
        if self.beside is None:
            return None
        digest = hashlib.blake2b(cluster.encode(), digest_size=6).hexdigest()
        return self.beside.with_name(f"{self.beside.name}.rules-{digest}")

    def write(self, cluster: str, court: Court) -> None:
        """Keep the court's state: written beside, flushed, then put in place as one step."""
        path = self.state_path(cluster)
        if path is None:
            return
        beside = path.with_name(f"{path.name}.new")
        with beside.open("wb") as file:
            file.writelines(dump_court(court))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)


def missed_changes(
    before: dict[str, Episode], findings: Iterable[Finding], since_ms: int
) -> list[Change]:
    """Findings that opened or closed while nobody watched, so that people hear of them too.

    ``before`` holds the last episode of each finding as it was kept. What opened before
    ``since_ms`` and is over again is history, not news.
    """
    changes = []
    for finding in findings:
        if not finding.episodes:
            continue
        last, known = finding.episodes[-1], before.get(finding.id)
        was_open = known is not None and known.closed_ms is None
        is_new = known is None or last.opened_ms > (known.closed_ms or 0)
        if not was_open:
            if not is_new or not (finding.is_open or last.opened_ms > since_ms):
                continue
            kind = ChangeKind.OPENED if known is None else ChangeKind.REOPENED
            changes.append(Change(kind, finding, last.opened_ms))
        if last.closed_ms is not None:
            changes.append(Change(ChangeKind.CLOSED, finding, last.closed_ms))
    return changes


def _last_episode(finding: Finding) -> Episode:
    """A copy of a finding's last episode: the finding itself lives on."""
    last = finding.episodes[-1] if finding.episodes else Episode(0, 0)
    return Episode(last.opened_ms, last.closed_ms, last.because)


def _remember(court: Court, kept: Iterable[Finding]) -> None:
    """Let the court know of findings it has not found again, and what people said of the others."""
    for finding in kept:
        again = court.book.findings.setdefault((finding.rule, finding.workload), finding)
        again.acknowledged, again.comments = finding.acknowledged, finding.comments

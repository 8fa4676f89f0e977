"""A cluster's loop over restarts: kept in a file, brought up to now from the store, or rebuilt."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from marey.app.collect.memory import trim
from marey.app.rules.rule_history import list_stored_metrics, read_history
from marey.app.rules.rule_windows import fill_windows
from marey.live.moments import observation_of
from marey.model.errors import Unavailable
from marey.model.protocols import Store
from marey.model.system.atomic_file import replace_file
from marey.model.times import DAY_MS, HOUR_MS, MINUTE_MS
from marey.rules.backtest.backtest import BacktestMonitor, replay
from marey.rules.definition import Rule
from marey.rules.engine.evaluation_loop import PAST_EVERY_MS, SHOWN_MS, EvaluationLoop
from marey.rules.engine.evaluator import FUTURE_MS
from marey.rules.engine.findings import ChangeKind, Episode, Finding, FindingChange
from marey.rules.engine.observation_feed import ObservationFeed
from marey.rules.engine.state_codec import dump_loop, load_loop

log = logging.getLogger(__name__)

# How far back a rebuild reads: longer lives are judged from here on.
REBUILD_MS = 14 * DAY_MS
# The newest hours of a long past are judged first, so that there is something to show at once.
NEWEST_MS = 2 * HOUR_MS
# Of any past the last hour is judged minute by minute, what is older in longer steps.
FINE_MS = HOUR_MS
# Each of them reads a few minutes more; a simulated cluster may live faster than it is read.
CATCH_UPS = 20
# Memory is given back after each such share of what is read: every time would take as long as
# a twentieth of the reading.
TRIM_SHARE = 0.02


@dataclass(frozen=True)
class OpenedLoop:
    """A loop that is up to now, and what happened to findings while nobody watched."""

    feed: ObservationFeed
    missed: list[FindingChange]
    # Findings that are not as they were kept.
    changed: list[Finding]


@dataclass(frozen=True)
class EvaluationLoopFiles:
    """Opens and keeps loops; the files stand beside the store's."""

    store: Store
    beside: Path | None
    stopping: Callable[[], bool]
    # Told the share (0-1) of the past that has been read.
    report: Callable[[str, float], None] = lambda cluster, share: None
    fine_ms: int = FINE_MS
    shown_ms: int = SHOWN_MS

    def has_long_past(self, cluster: str) -> bool:
        """Return whether a loop must be made from more history than is read in a moment."""
        path = self.state_path(cluster)
        if (path is not None and path.exists()) or cluster not in self.store.clusters():
            return False
        span = self.store.span(cluster)
        return span is not None and span[1] - span[0] > 2 * NEWEST_MS

    def open(
        self,
        cluster: str,
        rules: list[Rule],
        kept: list[Finding],
        now_ms: int,
        *,
        newest_only: bool = False,
        announced: Iterable[Finding] = (),
    ) -> OpenedLoop:
        """Return the loop as it was left, or made from history.

        With ``newest_only`` from its last two hours, to have something to show at once. What was
        ``announced`` already is not news again.
        """
        before = copy_last_episodes((*kept, *announced))
        loop = self._restore_state(cluster, rules, kept, now_ms)
        # Of a past that is judged anew, only what lasts is news.
        since_ms = now_ms if loop is None else loop.judged_ms or now_ms
        if loop is None:
            loop = self._rebuild_state(cluster, rules, now_ms, newest_only)
        else:
            self._read(cluster, loop, rules, from_ms=loop.evaluator.newest_ms, now_ms=now_ms)
            sketches = loop.evaluator.sketches
            missing = set(sketches.rings) - set(sketches.since_ms)
            fill_windows(self.store, cluster, loop, missing)
        _remember(loop, kept)
        feed = ObservationFeed(loop)
        if cluster in self.store.clusters():
            # A long reading ends later than it was begun: the store knows by how much.
            moment_ms = max(now_ms, loop.evaluator.newest_ms)
            moment = observation_of(self.store.moment(cluster, moment_ms))
            feed.observe(replace(moment, samples=(), events=()))
        self._go_on()
        found = loop.book.findings.values()
        missed = find_missed_changes(before, found, since_ms)
        same = {id(finding) for finding in kept} - {id(change.finding) for change in missed}
        return OpenedLoop(feed, missed, [f for f in found if f.is_open or id(f) not in same])

    def _restore_state(
        self, cluster: str, rules: list[Rule], kept: list[Finding], now_ms: int
    ) -> EvaluationLoop | None:
        path = self.state_path(cluster)
        if path is None or not path.exists():
            return None
        try:
            loop = load_loop(path.read_bytes(), rules, kept, cluster)
        except (ValueError, OSError) as error:
            log.warning("the kept state of rules is not used: %s; it is made anew", error)
            return None
        # What was found after the file was written is found again, at the same moments.
        judged_ms = loop.judged_ms or now_ms
        later = [key for key, f in loop.book.findings.items() if f.opened_ms > judged_ms]
        for key in later:
            del loop.book.findings[key]
        return loop

    def catch_up(self, cluster: str, feed: ObservationFeed, rules: list[Rule]) -> None:
        """Read what was kept since the loop's newest sample."""
        newest_ms = feed.loop.evaluator.newest_ms
        span = self.store.span(cluster)
        now_ms = span[1] if span else newest_ms
        self._replay_missed_time(cluster, feed.loop, rules, from_ms=newest_ms, now_ms=now_ms)
        moment = observation_of(self.store.moment(cluster, max(now_ms, newest_ms)))
        feed.observe(replace(moment, samples=(), events=()))

    def _rebuild_state(
        self, cluster: str, rules: list[Rule], now_ms: int, newest_only: bool
    ) -> EvaluationLoop:
        loop = EvaluationLoop(rules, cluster=cluster)
        span = self.store.span(cluster) if cluster in self.store.clusters() else None
        if span is not None:
            end_ms = min(span[1], now_ms + FUTURE_MS)
            begun = self._find_oldest_start(cluster, end_ms)
            reach_ms = NEWEST_MS if newest_only else REBUILD_MS
            # Whoever ended before the oldest start is judged too, as far back as a day.
            since_ms = max(span[0], end_ms - reach_ms)
            from_ms = max(since_ms, min(begun, end_ms - DAY_MS)) - 1
            self._read(cluster, loop, rules, from_ms=from_ms, now_ms=now_ms)
        return loop

    def _find_oldest_start(self, cluster: str, now_ms: int) -> int:
        """Return when the longest-running workload of the moment began.

        No need to read further back.
        """
        moment = self.store.moment(cluster, now_ms)
        running = set(moment.allocations["workload"].to_pylist())
        starts = [
            row["start_ms"]
            for row in moment.workloads.select(["workload", "start_ms"]).to_pylist()
            if row["workload"] in running and row["start_ms"] is not None
        ]
        return min(starts, default=now_ms)

    def _read(
        self, cluster: str, loop: EvaluationLoop, rules: list[Rule], *, from_ms: int, now_ms: int
    ) -> None:
        """Read everything that the store has: also what is kept while that is read."""
        self._replay_missed_time(cluster, loop, rules, from_ms=from_ms, now_ms=now_ms)
        for _ in range(CATCH_UPS):
            newest_ms = loop.evaluator.newest_ms
            self._replay_missed_time(cluster, loop, rules, from_ms=newest_ms, now_ms=now_ms)
            if loop.evaluator.newest_ms - newest_ms <= MINUTE_MS:
                return

    def _replay_missed_time(
        self, cluster: str, loop: EvaluationLoop, rules: list[Rule], *, from_ms: int, now_ms: int
    ) -> None:
        self._go_on()
        span = self.store.span(cluster)
        if span is None or span[1] < from_ms:
            return
        if loop.judged_ms is None:
            loop.judged_ms = from_ms // loop.every_ms * loop.every_ms
        # Samples of a broken clock that lie in the future are no part of the past.
        end_ms = min(span[1], max(now_ms, from_ms) + FUTURE_MS)
        fine_from_ms = (end_ms - self.fine_ms) // PAST_EVERY_MS * PAST_EVERY_MS
        loop.shown_from_ms = end_ms - self.shown_ms
        history = read_history(
            self.store,
            cluster,
            from_ms + 1,
            end_ms + 1,
            rules=rules,
            metrics=list_stored_metrics(),
            fine_from_ms=fine_from_ms,
        )
        self._go_on()

        trimmed = [0.0]

        def report(share: float) -> None:
            if share - trimmed[0] >= TRIM_SHARE:
                trimmed[0] = share
                trim()
            self.report(cluster, share)

        replay(loop, history, BacktestMonitor(report, self.stopping, fine_from_ms))
        self._go_on()

    def _go_on(self) -> None:
        """Stop between two long steps when nobody waits for the loop any more."""
        if self.stopping():
            raise Unavailable("The server is stopping; the rules' state is left as it was.")

    def state_path(self, cluster: str) -> Path | None:
        """Return the file beside the store that holds a cluster's sketches."""
        if self.beside is None:
            return None
        digest = hashlib.blake2b(cluster.encode(), digest_size=6).hexdigest()
        return self.beside.with_name(f"{self.beside.name}.rules-{digest}")

    def forget(self, cluster: str) -> None:
        """Remove the kept state, so that the next loop is made from history."""
        path = self.state_path(cluster)
        if path is not None:
            path.unlink(missing_ok=True)

    def write(self, cluster: str, loop: EvaluationLoop) -> None:
        """Keep the loop's state: written beside, flushed, then put in place as one step."""
        path = self.state_path(cluster)
        if path is None:
            return
        with replace_file(path) as file:
            file.writelines(dump_loop(loop))


def find_missed_changes(
    before: dict[str, Episode], findings: Iterable[Finding], since_ms: int
) -> list[FindingChange]:
    """Return findings that opened or closed while nobody watched, so that people hear of them too.

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
            changes.append(FindingChange(kind, finding, last.opened_ms))
        if last.closed_ms is not None:
            changes.append(FindingChange(ChangeKind.CLOSED, finding, last.closed_ms))
    return changes


def copy_last_episodes(findings: Iterable[Finding]) -> dict[str, Episode]:
    """Return a copy of each finding's last episode: the findings themselves live on."""
    last = {f.id: f.episodes[-1] if f.episodes else Episode(0, 0) for f in findings}
    return {name: Episode(e.opened_ms, e.closed_ms, e.because) for name, e in last.items()}


def _remember(loop: EvaluationLoop, kept: Iterable[Finding]) -> None:
    """Let the loop know of findings it has not found again, and what people said of the others."""
    for finding in kept:
        again = loop.book.findings.setdefault((finding.rule, finding.workload), finding)
        again.acknowledged, again.comments = finding.acknowledged, finding.comments

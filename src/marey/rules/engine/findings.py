"""Findings: one per rule and workload, opened and closed over time, with evidence and cost.

A finding opens when its rule holds over the life and is not refuted now; it closes when the rule
has been refuted *now* for the rule's ``close_after`` without interruption, or the workload ends.
Violated again, the same finding opens again: its episodes are its history.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import numpy as np

from marey.model.names import DEFAULT_CLUSTER
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.rules.definition import Rule, Severity
from marey.rules.engine.allocations import Facts
from marey.rules.engine.evaluator import Evaluation, RuleVerdict
from marey.rules.engine.evidence import evidence_of, windows_named
from marey.rules.engine.three_valued import FALSE, TRUE

EPISODE_LIMIT = 200
GPUS_KEPT = 4096
# Evidence is taken anew this often, and whenever the number of GPUs changes.
LOOK_EVERY_MS = 10 * MINUTE_MS


class Episode(msgspec.Struct):
    """From when to when the rule was violated; ``because`` says why it ended."""

    opened_ms: int
    closed_ms: int | None = None
    because: str = ""


class ReadingDocument(msgspec.Struct, frozen=True):
    """One condition on one GPU: value against limit."""

    condition: str
    value: float | str | None
    limit: float | str | None


class Comment(msgspec.Struct, frozen=True):
    """What somebody said, and when."""

    time_ms: int
    by: str
    text: str


class Finding(msgspec.Struct, kw_only=True):
    """What is wrong with a workload by one rule, as it is kept and shown."""

    id: str
    rule: str
    workload: str
    cluster: str = DEFAULT_CLUSTER
    title: str = ""
    fault: str = ""
    severity: Annotated[
        str, msgspec.Meta(extra_json_schema={"enum": [word.value for word in Severity]})
    ] = "warning"
    waste: bool = True
    user: str = ""
    project: str = ""
    partition: str = ""
    gpus_held: int = 0
    episodes: list[Episode] = []
    gpu_count: int = 0
    gpus: list[str] = []
    evidence: dict[str, list[ReadingDocument]] = {}
    # GPU-hours by the hour in which they passed, so that any period can be summed.
    hours: dict[int, float] = {}
    updated_ms: int = 0
    acknowledged: Comment | None = None
    comments: list[Comment] = []

    @property
    def is_open(self) -> bool:
        """Return whether the rule is violated now."""
        return bool(self.episodes) and self.episodes[-1].closed_ms is None

    @property
    def opened_ms(self) -> int:
        """When it was first seen."""
        return self.episodes[0].opened_ms if self.episodes else 0

    @property
    def gpu_hours(self) -> float:
        """GPU-hours affected so far."""
        return sum(self.hours.values())


class ChangeKind(StrEnum):
    """What happened to a finding."""

    OPENED = "opened"
    REOPENED = "reopened"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding that opened or closed at one moment."""

    kind: ChangeKind
    finding: Finding
    time_ms: int


class _Watch(msgspec.Struct):
    """What the book remembers of a rule and workload between two evaluations."""

    violated_since: int | None = None
    quiet_since: int | None = None


Key = tuple[str, str]


def finding_id(cluster: str, rule: str, workload: str) -> str:
    """Make an id that is short, safe in a URL, and the same whenever the rule and workload are."""
    text = "\0".join((cluster, rule, workload)).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest()


class FindingTracker:
    """Every finding of a cluster, moved on by one evaluation after another."""

    def __init__(self, findings: Iterable[Finding] = (), cluster: str = DEFAULT_CLUSTER) -> None:
        self.cluster = cluster
        self.findings: dict[Key, Finding] = {(f.rule, f.workload): f for f in findings}
        self._watches: dict[Key, _Watch] = {}
        # When workloads ended whose findings opened at their last evaluation.
        self._ended: dict[Key, int] = {}
        self.last_ms: int | None = None

    def step(self, evaluation: Evaluation) -> list[FindingChange]:
        """Open, close and charge findings; returns those that opened or closed."""
        places = {name: place for place, name in enumerate(evaluation.workloads)}
        pending: dict[str, set[int]] = defaultdict(set)
        for rule, workload in (*self._watches, *self.open_keys()):
            if workload in places:
                pending[rule].add(places[workload])
        changes: list[FindingChange] = []
        for verdict in evaluation.verdicts:
            changes += self._step_rule(evaluation, verdict, pending.get(verdict.rule.id, set()))
        changes += self._close_orphans(evaluation, places.keys())
        self.last_ms = evaluation.time_ms
        return changes

    def memory(self) -> dict[str, Any]:
        """Return the state that a restart needs beside the findings themselves."""
        watches = [[*key, w.violated_since, w.quiet_since] for key, w in self._watches.items()]
        return {"last_ms": self.last_ms, "watches": watches}

    def remember(self, memory: dict[str, Any]) -> None:
        """Take back what ``memory`` gave."""
        self.last_ms = memory.get("last_ms")
        for rule, workload, violated, quiet in memory.get("watches", []):
            self._watches[rule, workload] = _Watch(violated, quiet)

    def open_keys(self) -> list[Key]:
        """Return the rule and workload of every open finding."""
        return [key for key, finding in self.findings.items() if finding.is_open]

    def _step_rule(
        self, evaluation: Evaluation, verdict: RuleVerdict, pending: set[int]
    ) -> list[FindingChange]:
        violated = (verdict.life == TRUE) & (verdict.now != FALSE)
        concerned = set(np.flatnonzero(violated).tolist()) | pending
        changes = (
            self._step_workload(evaluation, verdict, place, bool(violated[place]))
            for place in sorted(concerned)
        )
        return [change for change in changes if change]

    def _step_workload(
        self, evaluation: Evaluation, verdict: RuleVerdict, place: int, violated: bool
    ) -> FindingChange | None:
        facts = evaluation.layout.running[place].facts
        key = (verdict.rule.id, facts.workload)
        now_ms = evaluation.time_ms
        finding = self.findings.get(key)
        if finding and finding.is_open:
            return self._keep(evaluation, verdict, place, finding)
        watch = self._watches.setdefault(key, _Watch())
        if not violated:
            del self._watches[key]
            return None
        watch.violated_since = watch.violated_since or now_ms
        if now_ms - watch.violated_since < verdict.rule.open_after_ms:
            return None
        del self._watches[key]
        return self._open(evaluation, verdict, place)

    def _open(self, evaluation: Evaluation, verdict: RuleVerdict, place: int) -> FindingChange:
        rule, facts = verdict.rule, evaluation.layout.running[place].facts
        key = (rule.id, facts.workload)
        again = key in self.findings
        finding = self.findings.get(key) or self._create_finding(rule, facts)
        self.findings[key] = finding
        now_ms = evaluation.time_ms
        if facts.end_ms is not None and facts.end_ms <= now_ms:
            # It ended since the last look: nothing is held after that.
            now_ms = self._ended[key] = facts.end_ms
        previous = finding.episodes[-1].closed_ms if finding.episodes else None
        finding.episodes = [*finding.episodes[-EPISODE_LIMIT:], Episode(now_ms)]
        first, end = evaluation.layout.first[place : place + 2]
        finding.gpus_held = int(end - first)
        self._update_evidence(evaluation, verdict, place, finding)
        # The rule has held since before it was judged to: over its window, or the whole life.
        since = max(now_ms - _measure_span_ms(verdict, facts, now_ms), previous or 0)
        charge(finding, since, now_ms, finding.gpu_count)
        return FindingChange(ChangeKind.REOPENED if again else ChangeKind.OPENED, finding, now_ms)

    def _create_finding(self, rule: Rule, facts: Facts) -> Finding:
        return Finding(
            id=finding_id(self.cluster, rule.id, facts.workload),
            rule=rule.id,
            workload=facts.workload,
            cluster=self.cluster,
            title=rule.title,
            fault=rule.fault.value if rule.fault else "",
            severity=rule.severity.value,
            waste=rule.waste,
            user=facts.user,
            project=facts.project,
            partition=facts.partition,
        )

    def _keep(
        self, evaluation: Evaluation, verdict: RuleVerdict, place: int, finding: Finding
    ) -> FindingChange | None:
        now_ms = evaluation.time_ms
        end_ms = evaluation.layout.running[place].facts.end_ms
        key = (finding.rule, finding.workload)
        if verdict.now[place] != FALSE:
            if verdict.now[place] == TRUE:
                self._watches.pop(key, None)
                if now_ms - finding.updated_ms >= LOOK_EVERY_MS or self._has_moved(
                    evaluation, verdict, place, finding
                ):
                    self._update_evidence(evaluation, verdict, place, finding)
            until = now_ms if end_ms is None else min(now_ms, end_ms)
            charge(finding, max(self.last_ms or now_ms, 0), until, finding.gpu_count)
        else:
            watch = self._watches.setdefault(key, _Watch())
            watch.quiet_since = watch.quiet_since or now_ms
        if end_ms is not None and end_ms <= now_ms:
            return self._close(finding, end_ms, "the workload ended")
        quiet = self._watches.get(key)
        since = quiet.quiet_since if quiet else None
        if since is not None and now_ms - since >= verdict.rule.close_after_ms:
            return self._close(finding, now_ms, "no longer violated")
        return None

    @staticmethod
    def _has_moved(
        evaluation: Evaluation, verdict: RuleVerdict, place: int, finding: Finding
    ) -> bool:
        """Return whether another number of GPUs fulfils the rule than when the
        evidence was taken.
        """
        first, end = evaluation.layout.first[place : place + 2]
        gpus = verdict.gpus_now
        return gpus is not None and int((gpus[first:end] == TRUE).sum()) != finding.gpu_count

    def _update_evidence(
        self, evaluation: Evaluation, verdict: RuleVerdict, place: int, finding: Finding
    ) -> None:
        evidence = evidence_of(evaluation, verdict, place)
        finding.updated_ms = evaluation.time_ms
        if evidence.count:
            finding.gpu_count = evidence.count
            finding.gpus = list(evidence.gpus[:GPUS_KEPT])
            finding.evidence = {
                e.gpu: [ReadingDocument(r.condition, r.value, r.limit) for r in e.readings]
                for e in evidence.readings
            }

    def _close(self, finding: Finding, time_ms: int, because: str) -> FindingChange:
        episode = finding.episodes[-1]
        episode.closed_ms = max(time_ms, episode.opened_ms)
        episode.because = because
        self._watches.pop((finding.rule, finding.workload), None)
        return FindingChange(ChangeKind.CLOSED, finding, episode.closed_ms)

    def _close_orphans(self, evaluation: Evaluation, known: Collection[str]) -> list[FindingChange]:
        """Close what nobody judges any more: its rule was removed, or its workload is gone."""
        rules = {verdict.rule.id for verdict in evaluation.verdicts}
        changes = []
        for finding in self.findings.values():
            if not finding.is_open:
                continue
            if finding.rule not in rules:
                changes.append(self._close(finding, evaluation.time_ms, "the rule was removed"))
            elif finding.workload not in known:
                ended_ms = self._ended.pop((finding.rule, finding.workload), evaluation.time_ms)
                changes.append(self._close(finding, ended_ms, "the workload ended"))
        return changes


def _measure_span_ms(verdict: RuleVerdict, facts: Facts, now_ms: int) -> int:
    named = windows_named(verdict)
    if named:
        return min(named)
    return now_ms - facts.start_ms if facts.start_ms is not None else 0


def charge(finding: Finding, from_ms: int, to_ms: int, gpus: int) -> None:
    """Add GPU-hours for a span of time, each to the hour in which it passed."""
    at = from_ms
    while at < to_ms and gpus:
        hour = at // HOUR_MS
        end = min(to_ms, (hour + 1) * HOUR_MS)
        start = hour * HOUR_MS
        finding.hours[start] = finding.hours.get(start, 0.0) + gpus * (end - at) / HOUR_MS
        at = end

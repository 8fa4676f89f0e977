"""Questions about rules: which there are, what one means, whom it flags, now and in the past."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from marey.app.questions import query_of
from marey.app.rule_history import history_of
from marey.app.rule_windows import fill_windows
from marey.app.rules import RuleBook, missing_windows
from marey.app.workspace import Workspace
from marey.model.errors import Conflict, InvalidInput, NotFound, shown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.times import DAY_MS, parse_duration
from marey.rules.backtest import Backtest, Watch, backtest
from marey.rules.court import Court
from marey.rules.definition import NOW_WINDOW_MS, Rule, draft, parse_document, unique
from marey.rules.documents import clause_document
from marey.rules.evidence import evidence_of
from marey.rules.expressions import Clause
from marey.rules.judge import Judge
from marey.rules.parser import parse_rule
from marey.rules.printer import rule_text
from marey.rules.sanity import warnings
from marey.rules.truth import TRUE, WORDS

GPUS_LISTED = 10_000


def check_text(text: str) -> dict[str, Any]:
    """What a rule's text means: both forms, and what its author should know."""
    clause = parse_rule(text)
    return {
        "when": rule_text(clause),
        "clause": clause_document(clause),
        "warnings": warnings(clause),
    }


@dataclass(frozen=True)
class AskRules:
    """Every rule."""

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Shipped, from files and saved ones, with their warnings."""
        return {"rows": RuleBook.of_site(workspace.store).rows()}

    def path(self) -> str:
        """Where the API answers the same question."""
        return "/rules"

    def query(self) -> dict[str, str]:
        """The parameters of that request."""
        return {}


@dataclass(frozen=True)
class AskRule:
    """One rule with everything that is known of it."""

    id: str

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """The rule's document, both forms of its clause, and where it comes from."""
        return RuleBook.of_site(workspace.store).row(self.id)

    def path(self) -> str:
        """Where the API answers the same question."""
        return f"/rules/{self.id}"

    def query(self) -> dict[str, str]:
        """The parameters of that request."""
        return {}


@dataclass(frozen=True)
class AskRuleTest:
    """Whom a rule's text would flag at this moment (or one workload over its life)."""

    when: str
    workload: str = ""
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """A row per workload: over its life, now, and the evidence."""
        rule = draft(self.when)
        now_ms = workspace.now_ms()
        judge, at_ms = self._judge(workspace, rule, now_ms)
        judgement = judge.judge(at_ms)
        verdict = judgement.verdicts[0]
        rows = []
        for place, name in enumerate(judgement.workloads):
            evidence = evidence_of(judgement, verdict, place)
            first, end = judgement.layout.first[place : place + 2]
            rows.append(
                {
                    "workload": name,
                    "user": judgement.layout.tenants[place].facts.user,
                    "life": WORDS[int(verdict.life[place])],
                    "now": WORDS[int(verdict.now[place])],
                    "gpus": int(end - first),
                    "gpus_matching": evidence.count,
                    "evidence": msgspec.to_builtins(evidence.readings),
                }
            )
        order = {"yes": 0, "not judged": 1, "no": 2}
        rows.sort(key=lambda row: (order[str(row["life"])], str(row["workload"])))
        return {"rows": rows, "time_ms": at_ms, **check_text(self.when)}

    def _judge(self, workspace: Workspace, rule: Rule, now_ms: int) -> tuple[Judge, int]:
        store = workspace.store
        from_ms, to_ms = max(0, now_ms - 14 * DAY_MS), now_ms + 1
        if self.workload:
            known = store.workload(self.cluster, self.workload)
            if known["start_ms"] is None:
                raise InvalidInput(f"Workload '{shown(self.workload)}' has not started.")
            from_ms = known["start_ms"]
            to_ms = min(to_ms, (known["end_ms"] or now_ms) + 1)
        history = history_of(store, self.cluster, from_ms, to_ms, [rule], self.workload)
        judge = Judge([rule])
        for past in history.workloads:
            ended = past.facts.end_ms is not None and past.facts.end_ms <= now_ms
            if self.workload or not ended:
                judge.tenants.admit(replace(past.facts, end_ms=None), past.seats)
                if len(past.progress_ms):
                    tenant = judge.tenants.by_name[past.facts.workload]
                    tenant.progress_ms = int(past.progress_ms[-1])
        for event in history.events:
            judge.tenants.note(event.gpu, event.host, event.kind, event.time_ms, event.workload)
        for batch in history.batches:
            judge.take(batch)
        return judge, to_ms - 1

    def path(self) -> str:
        """Where the API answers the same question."""
        return "/rules-test"

    def query(self) -> dict[str, str]:
        """The parameters of that request."""
        return query_of(self)


@dataclass(frozen=True)
class AskBacktest:
    """What a rule (by id, a text, or whole documents) would have found in the past."""

    rule: str = ""
    when: str = ""
    since: str = "7d"
    cluster: str = DEFAULT_CLUSTER
    documents: tuple[Mapping[str, Any], ...] = ()

    def rules(self, workspace: Workspace) -> list[Rule]:
        """The rules that are meant; refused here, before anything long begins."""
        if bool(self.rule) + bool(self.when) + bool(self.documents) != 1:
            raise InvalidInput("Give either a rule's id, the text of a draft, or whole rules.")
        parse_duration(self.since)
        if self.documents:
            places = enumerate(self.documents, start=1)
            return unique((parse_document(d, f"rules[{i}]") for i, d in places), "The request")
        if self.when:
            return [draft(self.when)]
        return [RuleBook.of_site(workspace.store).get(self.rule)]

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Which workloads it would have flagged, when, and how many GPU-hours that is."""
        return run_backtest(workspace, self.rules(workspace), self.cluster, self.since)

    def path(self) -> str:
        """Where the API answers the same question."""
        return "/rules-backtest"

    def query(self) -> dict[str, str]:
        """The parameters of that request."""
        if self.documents:
            raise Conflict("A server has just taken the store; ask again.")
        return {"rule": self.rule, "when": self.when, "since": self.since, "cluster": self.cluster}

    def body(self) -> dict[str, Any]:
        """The same question to a server that does it as a job."""
        asked = {"rule": self.rule, "when": self.when, "since": self.since, "cluster": self.cluster}
        return asked | {"rules": [dict(document) for document in self.documents]}


def run_backtest(
    workspace: Workspace,
    rules: list[Rule],
    cluster: str,
    since: str,
    *,
    progress: Callable[[float], None] = lambda done: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Back-test rules over the store's last days."""
    span = workspace.store.span(workspace.check_cluster(cluster))
    if span is None:
        raise NotFound(f"The store holds no samples of the cluster '{shown(cluster)}'.")
    to_ms = span[1] + 1
    from_ms = max(span[0], to_ms - parse_duration(since))
    history = history_of(workspace.store, cluster, from_ms, to_ms, rules)
    watch = Watch(progress, cancelled)
    result = backtest(rules, history, progress=watch.progress, cancelled=watch.cancelled)
    return backtest_document(result, rules)


def backtest_document(result: Backtest, rules: list[Rule]) -> dict[str, Any]:
    """A back-test as the API and the command line show it."""
    rows = [
        {
            "rule": finding.rule,
            "workload": finding.workload,
            "user": finding.user,
            "project": finding.project,
            "opened_ms": finding.opened_ms,
            "closed_ms": finding.episodes[-1].closed_ms,
            "episodes": len(finding.episodes),
            "gpus": finding.gpu_count,
            "gpu_hours": round(finding.gpu_hours, 3),
        }
        for finding in sorted(result.findings, key=lambda f: f.opened_ms)
    ]
    summary = [
        {
            "rule": rule.id,
            "findings": sum(f.rule == rule.id for f in result.findings),
            "per_day": round(result.per_day(rule.id), 3),
            "gpu_hours": round(result.gpu_hours(rule.id), 3),
        }
        for rule in rules
    ]
    return {
        "rows": rows,
        "rules": summary,
        "from_ms": result.from_ms,
        "to_ms": result.to_ms,
        "workloads": result.workloads,
        "samples": result.samples,
        "cancelled": result.cancelled,
    }


def preview(
    workspace: Workspace, court: Court, cluster: str, clause: Clause, time_ms: int
) -> dict[str, Any]:
    """Who matches a clause right now, from the live sketches: for lenses and while typing."""
    court.flush()
    fresh = missing_windows(court, clause, NOW_WINDOW_MS)
    fill_windows(workspace.store, cluster, court, fresh)
    layout = court.judge.tenants.layout()
    document: dict[str, Any] = {"time_ms": time_ms, "workloads_judged": len(layout.tenants)}
    for name, window in (("life", None), ("now", NOW_WINDOW_MS)):
        per_workload, per_gpu = court.judge.test(clause, time_ms, window)
        hit = per_workload == TRUE
        rows = np.flatnonzero((per_gpu == TRUE) & hit[layout.workload])
        seats = court.judge.tenants.seats
        gpus = [s.gpu for row in rows[:GPUS_LISTED] if (s := seats[layout.rows[row]]) is not None]
        workloads = [layout.tenants[i].facts.workload for i in np.flatnonzero(hit).tolist()]
        document[name] = {
            "workload_count": len(workloads),
            "gpu_count": len(rows),
            "workloads": workloads[:GPUS_LISTED],
            "gpus": gpus,
        }
    return document

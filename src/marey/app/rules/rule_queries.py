"""Questions about rules: which there are, what one means, whom it flags, now and in the past."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marey.app.queries.table_queries import query_of
from marey.app.queries.workspace import Workspace
from marey.app.rules.rule_documents import (
    BacktestResult,
    BacktestRow,
    BacktestRule,
    CheckedRule,
    FactWords,
    MetricWords,
    PreviewHits,
    RuleDetail,
    RuleLanguage,
    RuleList,
    RulePreview,
    RuleTest,
    RuleTestRow,
)
from marey.app.rules.rule_history import read_history
from marey.app.rules.rule_store import RuleStore
from marey.app.rules.rule_watch import RuleWatch, find_missing_windows
from marey.app.rules.rule_windows import fill_windows
from marey.model.errors import Conflict, InvalidInput, NotFound, shown
from marey.model.faults import MEANING, FaultKind
from marey.model.metrics import Metric, catalogue
from marey.model.names import DEFAULT_CLUSTER
from marey.model.times import DAY_MS, parse_duration
from marey.rules.backtest.backtest import Backtest, BacktestMonitor, backtest
from marey.rules.definition import NOW_WINDOW_MS, Rule, Severity, draft, parse_document, unique
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.evaluator import Evaluator
from marey.rules.engine.evidence import evidence_of
from marey.rules.engine.three_valued import TRUE, WORDS
from marey.rules.language.expressions import Clause, Reach
from marey.rules.language.json_form import clause_document, clause_schema
from marey.rules.language.lint import warnings
from marey.rules.language.parser import parse_rule
from marey.rules.language.printer import rule_text
from marey.rules.language.vocabulary import FACTS, STATISTICS, UNITS

GPUS_LISTED = 10_000


def check_text(text: str) -> CheckedRule:
    """Return both forms of a rule's text, with warnings for its author."""
    clause = parse_rule(text)
    return CheckedRule(rule_text(clause), clause_document(clause), warnings(clause))


def _find_plotted(metric: Metric) -> str | None:
    """Return the metric that a plot of this one shows; counters have no plot of their own."""
    if metric.kind != "gauge":
        return None
    return metric.metric if metric.derived is None else metric.derived.base


def rule_words() -> RuleLanguage:
    """Return the words that an editor of rules offers and checks by."""
    return RuleLanguage(
        metrics={
            name: MetricWords(m.label, m.unit, m.minimum, m.maximum, _find_plotted(m))
            for name, m in catalogue().items()
        },
        statistics=STATISTICS,
        facts={name: FactWords(f.kind.value, f.description) for name, f in FACTS.items()},
        units=list(UNITS),
        reaches=[reach.value for reach in Reach],
        severities=[severity.value for severity in Severity],
        faults={kind.value: MEANING[kind] for kind in FaultKind},
        schema=clause_schema(),
    )


@dataclass(frozen=True)
class AskRules:
    """Every rule."""

    def ask(self, workspace: Workspace) -> RuleList:
        """Return shipped, from files and saved ones, with their warnings."""
        return RuleList(RuleStore.of_site(workspace.store).rows())

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/rules"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return {}


@dataclass(frozen=True)
class AskRule:
    """One rule with everything that is known of it."""

    id: str

    def ask(self, workspace: Workspace) -> RuleDetail:
        """Return the rule's document, both forms of its clause, and where it comes from."""
        return RuleStore.of_site(workspace.store).row(self.id)

    def path(self) -> str:
        """Return the API path that answers it."""
        return f"/rules/{self.id}"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return {}


@dataclass(frozen=True)
class AskRuleTest:
    """Whom a rule's text would flag at this moment (or one workload over its life)."""

    when: str
    workload: str = ""
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> RuleTest:
        """Return a row per workload: over its life, now, and the evidence."""
        rule = draft(self.when)
        now_ms = workspace.now_ms()
        evaluator, at_ms = self._evaluate(workspace, rule, now_ms)
        evaluation = evaluator.evaluate(at_ms)
        verdict = evaluation.verdicts[0]
        rows = []
        for place, name in enumerate(evaluation.workloads):
            evidence = evidence_of(evaluation, verdict, place)
            first, end = evaluation.layout.first[place : place + 2]
            rows.append(
                RuleTestRow(
                    workload=name,
                    user=evaluation.layout.running[place].facts.user,
                    life=WORDS[int(verdict.life[place])],
                    now=WORDS[int(verdict.now[place])],
                    gpus=int(end - first),
                    gpus_matching=evidence.count,
                    evidence=evidence.readings,
                )
            )
        order = {"yes": 0, "not judged": 1, "no": 2}
        rows.sort(key=lambda row: (order[row.life], row.workload))
        meaning = check_text(self.when)
        return RuleTest(rows, at_ms, meaning.when, meaning.clause, meaning.warnings)

    def _evaluate(self, workspace: Workspace, rule: Rule, now_ms: int) -> tuple[Evaluator, int]:
        store = workspace.store
        from_ms, to_ms = max(0, now_ms - 14 * DAY_MS), now_ms + 1
        if self.workload:
            known = store.workload(self.cluster, self.workload)
            if known["start_ms"] is None:
                raise InvalidInput(f"Workload '{shown(self.workload)}' has not started.")
            from_ms = known["start_ms"]
            to_ms = min(to_ms, (known["end_ms"] or now_ms) + 1)
        history = read_history(
            store, self.cluster, from_ms, to_ms=to_ms, rules=[rule], workload=self.workload
        )
        evaluator = Evaluator([rule])
        for past in history.workloads:
            ended = past.facts.end_ms is not None and past.facts.end_ms <= now_ms
            if self.workload or not ended:
                evaluator.allocations.admit(replace(past.facts, end_ms=None), past.held_gpus)
                if len(past.progress_ms):
                    running = evaluator.allocations.by_name[past.facts.workload]
                    running.progress_ms = int(past.progress_ms[-1])
        for event in history.events:
            evaluator.allocations.note(
                event.gpu,
                host=event.host,
                kind=event.kind,
                time_ms=event.time_ms,
                workload=event.workload,
            )
        for batch in history.batches:
            evaluator.take(batch)
        return evaluator, to_ms - 1

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/rules-test"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
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
        """Return the rules that are meant; refused here, before anything long begins."""
        if bool(self.rule) + bool(self.when) + bool(self.documents) != 1:
            raise InvalidInput("Give either a rule's id, the text of a draft, or whole rules.")
        parse_duration(self.since)
        if self.documents:
            places = enumerate(self.documents, start=1)
            return unique((parse_document(d, f"rules[{i}]") for i, d in places), "The request")
        if self.when:
            return [draft(self.when)]
        return [RuleStore.of_site(workspace.store).get(self.rule)]

    def ask(self, workspace: Workspace) -> BacktestResult:
        """Return which workloads it would have flagged, when, and how many GPU-hours that is."""
        return run_backtest(workspace, self.rules(workspace), self.cluster, self.since)

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/rules-backtest"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        if self.documents:
            raise Conflict("A server has just taken the store; ask again.")
        return {"rule": self.rule, "when": self.when, "since": self.since, "cluster": self.cluster}

    def body(self) -> dict[str, Any]:
        """Return the same question to a server that does it as a job."""
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
) -> BacktestResult:
    """Return back-test rules over the store's last days."""
    span = workspace.store.span(workspace.check_cluster(cluster))
    if span is None:
        raise NotFound(f"The store holds no samples of the cluster '{shown(cluster)}'.")
    to_ms = span[1] + 1
    from_ms = max(span[0], to_ms - parse_duration(since))
    history = read_history(workspace.store, cluster, from_ms, to_ms, rules=rules)
    watch = BacktestMonitor(progress, cancelled)
    result = backtest(rules, history, progress=watch.progress, cancelled=watch.cancelled)
    return make_backtest_document(result, rules)


def make_backtest_document(result: Backtest, rules: list[Rule]) -> BacktestResult:
    """Return a back-test as the API and the command line show it."""
    rows = [
        BacktestRow(
            rule=finding.rule,
            workload=finding.workload,
            user=finding.user,
            project=finding.project,
            opened_ms=finding.opened_ms,
            closed_ms=finding.episodes[-1].closed_ms,
            episodes=len(finding.episodes),
            gpus=finding.gpu_count,
            gpu_hours=round(finding.gpu_hours, 3),
        )
        for finding in sorted(result.findings, key=lambda f: f.opened_ms)
    ]
    summary = [
        BacktestRule(
            rule=rule.id,
            findings=sum(f.rule == rule.id for f in result.findings),
            per_day=round(result.per_day(rule.id), 3),
            gpu_hours=round(result.gpu_hours(rule.id), 3),
        )
        for rule in rules
    ]
    return BacktestResult(
        rows=rows,
        rules=summary,
        from_ms=result.from_ms,
        to_ms=result.to_ms,
        workloads=result.workloads,
        samples=result.samples,
        cancelled=result.cancelled,
    )


def preview(
    watch: RuleWatch, loop: EvaluationLoop, cluster: str, *, clause: Clause, time_ms: int
) -> RulePreview:
    """Return who matches a clause right now, from the live sketches.

    For lenses and while typing.
    """
    loop.flush()
    fresh = find_missing_windows(loop, clause, NOW_WINDOW_MS)
    fill_windows(watch.store, cluster, loop, fresh)
    layout = loop.evaluator.allocations.layout()
    names = watch.show_workloads(cluster, [one.facts.workload for one in layout.running])
    is_shown = np.array([name is not None for name in names], bool)
    hits: dict[str, PreviewHits] = {}
    for name, window in (("life", None), ("now", NOW_WINDOW_MS)):
        per_workload, per_gpu = loop.evaluator.test(clause, time_ms, window)
        hit = (per_workload == TRUE) & is_shown
        rows = np.flatnonzero((per_gpu == TRUE) & hit[layout.workload])
        held_gpus = loop.evaluator.allocations.held_gpus
        gpus = [
            s.gpu for row in rows[:GPUS_LISTED] if (s := held_gpus[layout.rows[row]]) is not None
        ]
        found = [names[i] for i in np.flatnonzero(hit).tolist()]
        workloads = [name for name in found if name is not None]
        hits[name] = PreviewHits(
            workload_count=len(workloads),
            gpu_count=len(rows),
            workloads=workloads[:GPUS_LISTED],
            gpus=gpus,
        )
    return RulePreview(
        when=rule_text(clause),
        time_ms=time_ms,
        workloads_judged=int(is_shown.sum()),
        life=hits["life"],
        now=hits["now"],
    )

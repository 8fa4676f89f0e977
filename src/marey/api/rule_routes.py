"""Violation rules: what they are, whom they flag, what they would have found, who was told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from marey.api.parameters import DEFAULT, Cluster, OneWorkload, TheService
from marey.api.problems import described
from marey.api.replies import json_content, json_response
from marey.app.background import Job
from marey.app.past_verdicts import verdicts_at
from marey.app.rule_questions import (
    AskBacktest,
    AskRuleTest,
    check_text,
    preview,
    run_backtest,
)
from marey.app.rules import rule_row
from marey.app.service import Service
from marey.model.errors import InvalidInput, NotFound, unknown
from marey.model.faults import MEANING, FaultKind
from marey.model.metrics import catalogue
from marey.model.names import NAME_LIMIT
from marey.model.times import parse_time
from marey.rules.definition import Severity
from marey.rules.documents import clause_schema, parse_clause
from marey.rules.expressions import Clause, Reach
from marey.rules.lexer import TEXT_LIMIT
from marey.rules.parser import parse_rule
from marey.rules.printer import rule_text
from marey.rules.truth import UNKNOWN
from marey.rules.vocabulary import (
    FACTS,
    STATISTIC_WORDS,
    STATISTICS,
    UNITS,
    statistic_named,
)

router = APIRouter(tags=["rules"])

_OBJECT: dict[str, Any] = {"type": "object"}
RuleId = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$", description="Id of the rule.")]
When = Annotated[
    str,
    Query(
        description="A rule's text.",
        max_length=TEXT_LIMIT,
        examples=["util p95 > 90% and power_share p50 < 70%"],
    ),
]


class Strict(BaseModel):
    """A body of which every key is known."""

    model_config = ConfigDict(extra="forbid")


class Draft(Strict):
    """A clause as text or as JSON."""

    when: str = Field(default="", max_length=TEXT_LIMIT)
    clause: dict[str, Any] | None = None

    def parsed(self) -> Clause:
        """The clause; refused unless exactly one form is given."""
        if bool(self.when) == (self.clause is not None):
            raise InvalidInput("Give either 'when' (text) or 'clause' (JSON).")
        return parse_rule(self.when) if self.clause is None else parse_clause(self.clause)


class BacktestBody(Strict):
    """A rule by id, a draft's text or whole rules with thresholds and overrides; how far back."""

    rule: str = Field(default="", max_length=64)
    when: str = Field(default="", max_length=TEXT_LIMIT)
    rules: list[dict[str, Any]] = Field(default=[], max_length=1_000)
    since: str = Field(default="7d", max_length=20)
    cluster: str = Field(default=DEFAULT, min_length=1, max_length=NAME_LIMIT)


@router.get(
    "/rules",
    operation_id="rules",
    summary="Every rule: shipped, from files, and saved here",
    responses=json_content(_OBJECT, "The rules."),
    response_class=Response,
)
def rules(service: TheService) -> Response:
    """In the order in which people should read them, with warnings."""
    return json_response({"rows": service.rule_book.rows()})


@router.get(
    "/rules-language",
    operation_id="ruleLanguage",
    summary="The words of the rule language, and the schema of its JSON form",
    responses=json_content(_OBJECT, "Metrics, statistics, facts, units, schema."),
    response_class=Response,
)
def rule_language() -> Response:
    """What an editor offers and checks by."""
    metrics = {
        name: {"label": m.label, "unit": m.unit, "min": m.minimum, "max": m.maximum}
        for name, m in catalogue().items()
    }
    facts = {n: {"kind": f.kind.value, "description": f.description} for n, f in FACTS.items()}
    return json_response(
        {
            "metrics": metrics,
            "statistics": STATISTICS,
            "facts": facts,
            "units": list(UNITS),
            "reaches": [reach.value for reach in Reach],
            "severities": [severity.value for severity in Severity],
            "faults": {kind.value: MEANING[kind] for kind in FaultKind},
            "schema": clause_schema(),
        }
    )


@router.get(
    "/rules-check",
    operation_id="checkRule",
    summary="Check a rule's text; the error names the exact place",
    responses=json_content(_OBJECT, "Both forms, and warnings.") | described(422),
    response_class=Response,
)
def check_rule(when: When) -> Response:
    """Nothing is kept."""
    return json_response(check_text(when))


@router.post(
    "/rules-preview",
    operation_id="previewRule",
    summary="Who matches a draft right now, from the live sketches",
    responses=json_content(_OBJECT, "Workloads and GPUs, over their life and now.")
    | described(400, 404, 409, 422),
    response_class=Response,
)
def preview_rule(
    service: TheService, draft: Annotated[Draft, Body()], cluster: Cluster = DEFAULT
) -> Response:
    """For lenses, and for the count while typing; opens no finding and tells nobody."""
    clause = draft.parsed()
    with service.rule_watch.court(service.workspace.check_cluster(cluster)) as court:
        time_ms = court.judge.newest_ms
        document = preview(service.workspace, court, cluster, clause, time_ms)
    return json_response({"when": rule_text(clause), **document})


@router.get(
    "/rules-test",
    operation_id="testRule",
    summary="Whom a text would flag, judged from stored history, with evidence",
    responses=json_content(_OBJECT, "A row per workload.") | described(404, 422),
    response_class=Response,
)
def rule_test(
    service: TheService, when: When, workload: OneWorkload = "", cluster: Cluster = DEFAULT
) -> Response:
    """The same document as `marey rules test --json`."""
    service.workspace.check_cluster(cluster)
    return json_response(AskRuleTest(when, workload, cluster).ask(service.workspace))


@router.get(
    "/rules-backtest",
    operation_id="backtestRule",
    summary="What a rule would have found in stored history (waits for the answer)",
    responses=json_content(_OBJECT, "The findings.") | described(404, 422),
    response_class=Response,
)
def backtest_rule(
    service: TheService,
    rule: Annotated[str, Query(max_length=64, description="Id of a rule.")] = "",
    when: When = "",
    since: Annotated[str, Query(max_length=20, description="How far back, such as 7d.")] = "7d",
    cluster: Cluster = DEFAULT,
) -> Response:
    """The same document as `marey rules backtest --json`."""
    return json_response(AskBacktest(rule, when, since, cluster).ask(service.workspace))


@router.post(
    "/backtests",
    operation_id="startBacktest",
    summary="Start a back-test in the background; progress and cancel under /tasks",
    responses=json_content(_OBJECT, "The job.") | described(400, 404, 413, 422),
    response_class=Response,
)
def start_backtest(service: TheService, body: Annotated[BacktestBody, Body()]) -> Response:
    """A rule deleted meanwhile is still tested as it was."""
    question = AskBacktest(body.rule, body.when, body.since, body.cluster, tuple(body.rules))
    chosen = question.rules(service.workspace)
    service.workspace.check_cluster(body.cluster)

    def work(job: Job) -> dict[str, Any]:
        return run_backtest(
            service.workspace, chosen, body.cluster, body.since, progress=job.progress
        )

    return json_response(service.background.start("back-test", work).document(), 202)


@router.get(
    "/rules/{rule}",
    operation_id="rule",
    summary="One rule",
    responses=json_content(_OBJECT, "The rule.") | described(404, 422),
    response_class=Response,
)
def one_rule(service: TheService, rule: RuleId) -> Response:
    """Its document, both forms of its clause, where it comes from."""
    return json_response(service.rule_book.row(rule))


@router.put(
    "/rules/{rule}",
    operation_id="saveRule",
    summary="Save a rule; one of the same id is replaced, an invalid one refused",
    responses=json_content(_OBJECT, "The rule as saved.") | described(400, 409, 422),
    response_class=Response,
)
def save_rule(
    service: TheService, rule: RuleId, document: Annotated[dict[str, Any], Body()]
) -> Response:
    """In force from the next verdict on."""
    saved = service.rule_book.save({**document, "id": rule})
    service.rule_watch.reload()
    return json_response(rule_row(saved, "server"))


@router.delete(
    "/rules/{rule}",
    operation_id="deleteRule",
    summary="Delete a rule that was saved here",
    status_code=204,
    responses=described(404, 409, 422),
    response_class=Response,
)
def delete_rule(service: TheService, rule: RuleId) -> Response:
    """Its open findings are closed; a shipped rule of the same id is in force again."""
    service.rule_book.delete(rule)
    service.rule_watch.reload()
    return Response(status_code=204)


@router.get(
    "/verdicts",
    operation_id="verdicts",
    summary="Which rules each running workload violates, over its life and now, or then",
    responses=json_content(_OBJECT, "Workload → rules.") | described(404, 422),
    response_class=Response,
)
def verdicts(
    service: TheService,
    cluster: Cluster = DEFAULT,
    at: Annotated[
        str | None,
        Query(max_length=40, description="A past moment: the findings that were open then."),
    ] = None,
) -> Response:
    """What the overview draws: per rule the workloads and GPUs, life and now."""
    service.workspace.check_cluster(cluster)
    if at is None:
        return json_response(verdict_document(service, cluster))
    return json_response(verdicts_at(service.rule_watch.findings.all(cluster), parse_time(at)))


def verdict_document(service: Service, cluster: str) -> dict[str, Any]:
    """The newest verdicts of a cluster; empty while they are being prepared."""
    court = service.rule_watch.courts.get(cluster)
    # A judgement never changes once it is made: it can be read without waiting for the next.
    latest = court.latest if court else None
    if latest is None:
        return {"time_ms": None, "rules": []}
    unjudged = {
        verdict.rule.id: [
            latest.workloads[i] for i in np.flatnonzero(verdict.life == UNKNOWN).tolist()
        ]
        for verdict in latest.verdicts
    }
    nobody: dict[str, Any] = {"workloads": [], "gpus": []}
    found = {row["rule"]: row for row in service.rule_watch.verdict_rows(latest)}
    return {
        "time_ms": latest.time_ms,
        "rules": [
            found.get(rule, {"rule": rule, "life": nobody, "now": nobody}) | {"not_judged": names}
            for rule, names in unjudged.items()
            if rule in found or names
        ],
    }


@router.get(
    "/life-statistics",
    operation_id="lifeStatistics",
    summary="A running workload's statistics over its whole life, from the live sketches",
    responses=json_content(_OBJECT, "GPU → metric → statistic.") | described(404, 409, 422),
    response_class=Response,
)
def life_statistics(
    service: TheService,
    workload: Annotated[
        str, Query(min_length=1, max_length=NAME_LIMIT, description="Id of the workload.")
    ],
    metrics: Annotated[
        str, Query(max_length=2000, description="Metric ids by commas.")
    ] = "util,power_share,mem_share",
    statistics: Annotated[
        str, Query(max_length=500, description="Statistics by commas.")
    ] = "min,mean,p5,median,p95,max",
    cluster: Cluster = DEFAULT,
) -> Response:
    """For information cards and diagnostics; percentiles are within 1 % of the metric's range."""
    wanted, words = metrics.split(","), statistics.split(",")
    check_statistics(wanted, words)
    with service.rule_watch.court(service.workspace.check_cluster(cluster)) as court:
        found = court.judge.statistics(workload, wanted, words)
    if not found:
        raise NotFound(f"No running workload '{workload[:64]}' is being watched.")
    return json_response(found)


def check_statistics(metrics: Sequence[str], words: Sequence[str]) -> None:
    """Refuse metrics and statistics that nobody knows, and name the nearest."""
    for metric in metrics:
        if metric not in catalogue():
            raise InvalidInput(unknown("metric", metric, catalogue()))
    for word in words:
        if statistic_named(word) is None:
            raise InvalidInput(unknown("statistic", word, STATISTIC_WORDS))

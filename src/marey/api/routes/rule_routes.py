"""Violation rules: what they are, whom they flag, what they would have found, who was notified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, OneWorkload, Project, Scope, TheService
from marey.api.problems import described
from marey.app.history.background_jobs import Job, JobDocument
from marey.app.rules.past_verdicts import find_verdicts_at
from marey.app.rules.rule_documents import (
    BacktestResult,
    CheckedRule,
    LifeStatistics,
    RuleDetail,
    RuleLanguage,
    RuleList,
    RulePreview,
    RuleRow,
    RuleTest,
    Verdicts,
)
from marey.app.rules.rule_queries import (
    AskBacktest,
    AskRuleTest,
    check_text,
    preview,
    rule_words,
    run_backtest,
)
from marey.model.access.identity import Permission
from marey.model.errors import InvalidInput, NotFound, unknown
from marey.model.metrics import catalogue
from marey.model.names import NAME_LIMIT
from marey.model.times import parse_time
from marey.rules.language.expressions import Clause
from marey.rules.language.json_form import parse_clause
from marey.rules.language.lexer import TEXT_LIMIT
from marey.rules.language.parser import parse_rule
from marey.rules.language.vocabulary import (
    STATISTIC_WORDS,
    statistic_named,
)

router = typed_router("rules", reads=Permission.READ)

RuleId = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$", description="Id of the rule.")]
When = Annotated[
    str,
    Query(
        description="A rule's text.",
        max_length=TEXT_LIMIT,
        examples=["util p95 > 90% and power_share p50 < 70%"],
    ),
]


class StrictBody(BaseModel):
    """A body of which every key is known."""

    model_config = ConfigDict(extra="forbid")


class RuleDraftBody(StrictBody):
    """A clause as text or as JSON."""

    when: str = Field(default="", max_length=TEXT_LIMIT)
    clause: dict[str, Any] | None = None

    def parsed(self) -> Clause:
        """The clause; refused unless exactly one form is given."""
        if bool(self.when) == (self.clause is not None):
            raise InvalidInput("Give either 'when' (text) or 'clause' (JSON).")
        return parse_rule(self.when) if self.clause is None else parse_clause(self.clause)


class BacktestBody(StrictBody):
    """A rule by id, a draft's text or whole rules with thresholds and overrides; how far back."""

    rule: str = Field(default="", max_length=64)
    when: str = Field(default="", max_length=TEXT_LIMIT)
    rules: list[dict[str, Any]] = Field(default=[], max_length=1_000)
    since: str = Field(default="7d", max_length=20)
    cluster: str = Field(default=DEFAULT, min_length=1, max_length=NAME_LIMIT)


@router.get(
    "/rules",
    operation_id="rules",
    summary="List all rules: shipped, from files, and saved here",
    response_description="The rules.",
)
def rules(service: TheService) -> Answer[RuleList]:
    """In the order in which people should read them, with warnings."""
    return Answer(RuleList(service.rule_store.rows()))


@router.get(
    "/rules-language",
    operation_id="ruleLanguage",
    summary="Get the vocabulary of the rule language and the schema of its JSON form",
    response_description="Metrics, statistics, facts, units, schema.",
)
def rule_language() -> Answer[RuleLanguage]:
    """What an editor offers and checks by."""
    return Answer(rule_words())


@router.get(
    "/rules-check",
    operation_id="checkRule",
    summary="Check a rule's text; an error names the exact place",
    response_description="Both forms, and warnings.",
    responses=described(422),
)
def check_rule(when: When) -> Answer[CheckedRule]:
    """Nothing is kept."""
    return Answer(check_text(when))


@router.post(
    "/rules-preview",
    openapi_extra=needs(Permission.READ),
    operation_id="previewRule",
    summary="Preview which workloads and GPUs match a draft rule right now",
    response_description="Workloads and GPUs, over their life and now.",
    responses=described(400, 404, 409, 422),
)
def preview_rule(
    service: TheService, draft: Annotated[RuleDraftBody, Body()], cluster: Cluster = DEFAULT
) -> Answer[RulePreview]:
    """For lenses, and for the count while typing; opens no finding and tells nobody."""
    clause = draft.parsed()
    with service.rule_watch.loop(service.workspace.check_cluster(cluster)) as loop:
        time_ms = loop.evaluator.newest_ms
        return Answer(preview(service.rule_watch, loop, cluster, clause=clause, time_ms=time_ms))


@router.get(
    "/rules-test",
    operation_id="testRule",
    summary="Test a rule's text against stored history, with evidence",
    response_description="A row per workload.",
    responses=described(404, 422),
)
def rule_test(
    service: TheService, when: When, workload: OneWorkload = "", cluster: Cluster = DEFAULT
) -> Answer[RuleTest]:
    """The same document as `marey rules test --json`."""
    service.workspace.check_cluster(cluster)
    return Answer(AskRuleTest(when, workload, cluster).ask(service.workspace))


@router.get(
    "/rules-backtest",
    operation_id="backtestRule",
    summary="Back-test a rule on stored history, and wait for the result",
    response_description="The findings.",
    responses=described(404, 422),
)
def backtest_rule(
    *,
    service: TheService,
    rule: Annotated[str, Query(max_length=64, description="Id of a rule.")] = "",
    when: When = "",
    since: Annotated[str, Query(max_length=20, description="How far back, such as 7d.")] = "7d",
    cluster: Cluster = DEFAULT,
) -> Answer[BacktestResult]:
    """The same document as `marey rules backtest --json`."""
    return Answer(AskBacktest(rule, when, since, cluster).ask(service.workspace))


@router.post(
    "/backtests",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="startBacktest",
    summary="Start a back-test in the background; watch or cancel it under /tasks",
    status_code=202,
    response_description="The job.",
    responses=described(400, 404, 413, 422),
)
def start_backtest(
    service: TheService, body: Annotated[BacktestBody, Body()]
) -> Answer[JobDocument]:
    """A rule deleted meanwhile is still tested as it was."""
    question = AskBacktest(body.rule, body.when, body.since, body.cluster, tuple(body.rules))
    chosen = question.rules(service.workspace)
    service.workspace.check_cluster(body.cluster)

    def work(job: Job) -> BacktestResult:
        return run_backtest(
            service.workspace, chosen, body.cluster, body.since, progress=job.progress
        )

    return Answer(service.background.start("back-test", work).document(), 202)


@router.get(
    "/rules/{rule}",
    operation_id="rule",
    summary="Get one rule",
    response_description="The rule.",
    responses=described(404, 422),
)
def one_rule(service: TheService, rule: RuleId) -> Answer[RuleDetail]:
    """Its document, both forms of its clause, where it comes from."""
    return Answer(service.rule_store.row(rule))


@router.put(
    "/rules/{rule}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="saveRule",
    summary="Save a rule of the site, a project or oneself; replaces one of the same id and scope",
    response_description="The rule as saved; the id of an owned one ends with its owner's mark.",
    responses=described(400, 403, 404, 409, 422),
)
def save_rule(
    *,
    service: TheService,
    rule: RuleId,
    document: Annotated[dict[str, Any], Body()],
    scope: Scope = "",
    project: Project = "",
) -> Answer[RuleRow]:
    """In force from the next verdict on; one of a person or project judges their work alone.

    Without a scope the site's for operators, one's own for everybody else.
    """
    saved = service.rule_store.save({**document, "id": rule}, scope=scope, project=project)
    service.rule_watch.reload()
    return Answer(saved)


@router.delete(
    "/rules/{rule}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="deleteRule",
    summary="Delete a rule that was saved here",
    status_code=204,
    responses=described(403, 404, 409, 422),
)
def delete_rule(service: TheService, rule: RuleId) -> Response:
    """Its open findings are closed; a shipped rule of the same id is in force again."""
    service.rule_store.delete(rule)
    service.rule_watch.reload()
    return Response(status_code=204)


@router.get(
    "/verdicts",
    operation_id="verdicts",
    summary="List which workloads violate each rule, now or at a past moment",
    response_description="Workload → rules.",
    responses=described(404, 422),
)
def verdicts(
    service: TheService,
    cluster: Cluster = DEFAULT,
    at: Annotated[
        str | None,
        Query(max_length=40, description="A past moment: the findings that were open then."),
    ] = None,
) -> Answer[Verdicts]:
    """What the overview draws: per rule the workloads and GPUs, life and now."""
    service.workspace.check_cluster(cluster)
    if at is None:
        return Answer(service.rule_watch.verdicts(cluster))
    # Asked first: what is found while we read may be missing below.
    share_read = service.rule_watch.share_read(cluster)
    found = service.rule_watch.findings.list_shown(cluster)
    return Answer(find_verdicts_at(found, parse_time(at), share_read=share_read))


@router.get(
    "/life-statistics",
    operation_id="lifeStatistics",
    summary="Get a running workload's statistics over its whole life",
    response_description="GPU → metric → statistic.",
    responses=described(404, 409, 422),
)
def life_statistics(
    *,
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
) -> Answer[LifeStatistics]:
    """For information cards and diagnostics; percentiles are within 1 % of the metric's range."""
    wanted, words = metrics.split(","), statistics.split(",")
    check_statistics(wanted, words)
    with service.rule_watch.loop(service.workspace.check_cluster(cluster)) as loop:
        real = service.rule_watch.find_workload(cluster, workload)
        found = loop.evaluator.statistics(real, wanted, words) if real else None
    if not found:
        raise NotFound(f"No running workload '{workload[:64]}' is being watched.")
    return Answer(found)


def check_statistics(metrics: Sequence[str], words: Sequence[str]) -> None:
    """Refuse metrics and statistics that nobody knows, and name the nearest."""
    for metric in metrics:
        if metric not in catalogue():
            raise InvalidInput(unknown("metric", metric, catalogue()))
    for word in words:
        if statistic_named(word) is None:
            raise InvalidInput(unknown("statistic", word, STATISTIC_WORDS))

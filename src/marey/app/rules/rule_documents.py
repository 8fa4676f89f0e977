"""What the API and the command line say of rules: lists, tests, back-tests, verdicts, words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from marey.model.documents import Document
from marey.rules.engine.evidence import GpuEvidence
from marey.rules.engine.three_valued import Truth

SeverityWord = Literal["info", "warning", "critical"]
Origin = Literal["pack", "file", "server"]
ScopeWord = Literal["personal", "project", "site"]

_REFERENCE = "#/components/schemas/"
# A tree without tags, which a type cannot say; ``CLAUSE_SCHEMAS`` describes it.
ClauseJson = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": f"{_REFERENCE}RuleClause"})]


class OverrideDocument(Document, kw_only=True):
    """Other thresholds, or silence, for one partition or project."""

    partition: str | UnsetType = UNSET
    project: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    thresholds: dict[str, str] | UnsetType = UNSET


class RuleRow(Document, kw_only=True):
    """A rule as lists show it."""

    id: str
    when: str
    title: str | UnsetType = UNSET
    explanation: str | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    next_step: str | UnsetType = UNSET
    false_positives: str | UnsetType = UNSET
    fault: str | UnsetType = UNSET
    severity: SeverityWord
    enabled: bool
    waste: bool
    now: str
    open_after: str
    close_after: str
    thresholds: dict[str, str] | UnsetType = UNSET
    override: list[OverrideDocument] | UnsetType = UNSET
    origin: Origin
    warnings: list[str]
    # Whose rule it is, and of which user or project; the site's judges everybody's work.
    scope: ScopeWord = "site"
    owner: str = ""
    # Whether whoever asks may change and delete it.
    may_change: bool = False


class RuleList(Document):
    """Every rule, in the order in which people should read them."""

    rows: list[RuleRow]


class InForceWhere(Document):
    """What an override makes of a rule; ``when`` is null where the rule is off."""

    partition: str | None
    project: str | None
    when: str | None


class RuleDetail(RuleRow, kw_only=True):
    """One rule with both forms of its clause, and what is in force where."""

    in_force: str
    clause: ClauseJson
    in_force_where: list[InForceWhere]


class CheckedRule(Document):
    """What a rule's text means: both forms, and what its author should know."""

    when: str
    clause: ClauseJson
    warnings: list[str]


class PreviewHits(Document):
    """Who matches a draft: all are counted, the first ten thousand are listed."""

    workload_count: int
    gpu_count: int
    workloads: list[str]
    gpus: list[str]


class RulePreview(Document):
    """Who matches a draft over the whole life, and now."""

    when: str
    time_ms: int
    workloads_judged: int
    life: PreviewHits
    now: PreviewHits


class RuleTestRow(Document):
    """Whether one workload violates a rule, and the evidence."""

    workload: str
    user: str
    life: Truth
    now: Truth
    gpus: int
    gpus_matching: int
    evidence: tuple[GpuEvidence, ...]


class RuleTest(Document):
    """Whom a rule's text would flag."""

    rows: list[RuleTestRow]
    time_ms: int
    when: str
    clause: ClauseJson
    warnings: list[str]


class BacktestRow(Document):
    """A finding that a rule would have made."""

    rule: str
    workload: str
    user: str
    project: str
    opened_ms: int
    closed_ms: int | None
    episodes: int
    gpus: int
    gpu_hours: float


class BacktestRule(Document):
    """How much one rule would have found."""

    rule: str
    findings: int
    per_day: float
    gpu_hours: float


class BacktestResult(Document):
    """What rules would have found in stored history."""

    rows: list[BacktestRow]
    rules: list[BacktestRule]
    from_ms: int
    to_ms: int
    workloads: int
    samples: int
    cancelled: bool


class VerdictHits(Document):
    """Who violates a rule."""

    workloads: list[str]
    gpus: list[str]


class VerdictRow(Document):
    """Who violates one rule over the whole life and now, and of whom it cannot be said."""

    rule: str
    life: VerdictHits
    now: VerdictHits
    not_judged: list[str]


class Verdicts(Document):
    """The verdicts of a cluster, newest or of a past moment.

    ``time_ms`` is null while rules are being prepared: nobody knows all of them yet. While rules
    still read the past, ``share_read`` says how much of it (0-1).
    """

    time_ms: int | None
    rules: list[VerdictRow]
    share_read: float | None = None


class MetricWords(Document):
    """A metric as an editor of rules offers it."""

    label: str
    unit: str
    min: float
    max: float
    # The metric that a plot of it shows: itself, or what it is derived from.
    plotted: str | None


class FactWords(Document):
    """A fact as an editor of rules offers it."""

    kind: Literal["duration", "number", "text"]
    description: str


class RuleLanguage(Document):
    """The words of the rule language, and the schema of its JSON form."""

    metrics: dict[str, MetricWords]
    statistics: dict[str, str]
    facts: dict[str, FactWords]
    units: list[str]
    reaches: list[str]
    severities: list[SeverityWord]
    faults: dict[str, str]
    schema: Annotated[dict[str, Any], Meta(description="A JSON Schema (2020-12).")]


# GPU → metric → statistic.
LifeStatistics = dict[str, dict[str, dict[str, float | None]]]


def _one_key(word: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {word: schema}, "required": [word]}


_TEXT = {"type": "string"}
_EXPRESSION = {"$ref": f"{_REFERENCE}RuleExpression"}
_EXPRESSIONS = {"type": "array", "items": _EXPRESSION}
CLAUSE_SCHEMAS: dict[str, dict[str, Any]] = {
    "RuleClause": {
        "type": "object",
        "title": "RuleClause",
        "description": "A rule's condition, and how many GPUs it must hold for.",
        "properties": {
            "gpus": {
                "type": "object",
                "properties": {"reach": _TEXT, "amount": {"type": "number"}},
                "required": ["reach"],
            },
            "when": _EXPRESSION,
        },
        "required": ["when"],
    },
    "RuleExpression": {
        "title": "RuleExpression",
        "anyOf": [
            {"$ref": f"{_REFERENCE}RuleCondition"},
            _one_key("and", _EXPRESSIONS),
            _one_key("or", _EXPRESSIONS),
            _one_key("not", _EXPRESSION),
        ],
    },
    "RuleCondition": {
        "type": "object",
        "title": "RuleCondition",
        "description": "One condition: of a metric's statistic, or of a fact.",
        "properties": {
            **dict.fromkeys(("metric", "fact", "statistic", "window", "over", "op"), _TEXT),
            "value": {"anyOf": [_TEXT, {"type": "number"}, {"type": "array", "items": _TEXT}]},
        },
        "required": ["op", "value"],
    },
}

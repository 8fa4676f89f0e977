from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.errors import InvalidInput
from marey.model.metrics import catalogue
from marey.rules.language.expressions import (
    GROUPS_OF_GPUS,
    ORDER_OPS,
    Aggregation,
    And,
    Clause,
    ComparisonGroup,
    Condition,
    Expression,
    Fact,
    NamedThreshold,
    Not,
    Or,
    Over,
    Peers,
    Quantifier,
    Quantity,
    Reach,
    Series,
    Statistic,
    TextValues,
)
from marey.rules.language.json_form import clause_document, clause_schema, parse_clause
from marey.rules.language.lexer import RuleError
from marey.rules.language.lint import warnings
from marey.rules.language.parser import parse_rule, parse_value
from marey.rules.language.printer import rule_text
from marey.rules.language.vocabulary import FACTS, FactKind

numbers = st.one_of(
    st.integers(0, 10**6).map(float), st.floats(0, 1e9, allow_nan=False, allow_infinity=False)
)
signed = st.one_of(numbers, numbers.map(lambda x: -x))
windows = st.sampled_from([None, 60_000, 300_000, 1_800_000, 86_400_000, 61_001])
overs = st.builds(Over, st.sampled_from(GROUPS_OF_GPUS), st.sampled_from(Aggregation))
references = st.one_of(overs, st.just(Over(ComparisonGroup.LIFE)))
statistics = st.one_of(
    st.sampled_from("min max mean std last range trend steadiness count".split()).map(Statistic),
    st.sampled_from([0.0, 5.0, 50.0, 95.0, 99.9, 100.0]).map(lambda q: Statistic("p", quantile=q)),
    st.builds(
        lambda op, limit: Statistic("share", op=op, limit=limit),
        st.sampled_from(ORDER_OPS),
        signed,
    ),
)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def series_conditions(draw: st.DrawFn) -> Condition:
    group = draw(st.one_of(st.none(), overs))
    left = Series(draw(st.sampled_from(list(catalogue()))), draw(statistics), draw(windows), group)
    values: list[st.SearchStrategy[object]] = [
        signed.map(Quantity),
        st.sampled_from(["low", "high_2"]).map(NamedThreshold),
    ]
    if group is None:
        values.append(st.builds(Peers, references, numbers, signed))
    return Condition(left, draw(st.sampled_from(ORDER_OPS)), draw(st.one_of(values)))


@st.composite
def fact_conditions(draw: st.DrawFn) -> Condition:
    spec = FACTS[draw(st.sampled_from(list(FACTS)))]
    left = Fact(spec.fact, draw(windows) if spec.windowed else None)
    if spec.kind is FactKind.TEXT:
        listed = draw(st.lists(words, min_size=1, max_size=3).map(tuple))
        op = "=" if len(listed) > 1 else draw(st.sampled_from(["=", "!="]))
        return Condition(left, op, TextValues(listed))
    value = draw(st.integers(0, 10**9).map(float))
    return Condition(left, draw(st.sampled_from([*ORDER_OPS, "=", "!="])), Quantity(value))


expressions: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(series_conditions(), fact_conditions()),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda p: And(tuple(p))),
        st.lists(inner, min_size=2, max_size=3).map(lambda p: Or(tuple(p))),
    ),
    max_leaves=8,
)
quantifiers = st.one_of(
    st.sampled_from([Reach.ANY, Reach.ALL, Reach.ALL_BUT_FIRST_RANK, Reach.ANY_NODE]).map(
        Quantifier
    ),
    st.integers(1, 1000).map(lambda n: Quantifier(Reach.AT_LEAST, float(n))),
    st.floats(0.5, 100).map(lambda n: Quantifier(Reach.AT_LEAST_SHARE, n)),
)
clauses = st.builds(Clause, expressions, quantifiers)


@settings(deadline=None)
@given(clauses)
def test_every_rule_is_printed_as_text_that_reads_back_as_itself(clause: Clause) -> None:
    assert parse_rule(rule_text(clause)) == clause


@settings(deadline=None)
@given(clauses)
def test_every_rule_goes_through_json_unchanged(clause: Clause) -> None:
    document = json.loads(json.dumps(clause_document(clause)))
    assert parse_clause(document) == clause


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=60))
def test_no_text_does_worse_than_a_rule_error_with_a_place_inside_it(text: str) -> None:
    try:
        parse_rule(text)
    except RuleError as error:
        wrong = error
    else:
        return
    assert 0 <= wrong.start <= len(text)
    assert wrong.mark_place()


@pytest.mark.parametrize(
    ("text", "start", "says"),
    [
        ("utl p95 > 90%", 0, "did you mean 'util'"),
        ("util p955 > 3", 5, "did you mean 'p95'"),
        ("util medain > 3", 5, "did you mean 'median'"),
        ("util p95 > 90 W", 14, "not a unit of util"),
        ("power < 300 MiB", 12, "allowed: W, mW, kW"),
        ("runtime > 10", 10, "is a duration"),
        ("runtime > 10 W", 13, "is a duration"),
        ("user > ada", 5, "allowed: = !="),
        ("user = 5", 7, "in quotes"),
        ("gpus > many", 7, "expected a number"),
        ("util p95 >", 10, "found the end"),
        ("(util > 3", 9, "expected ')'"),
        ("util > 3 util > 4", 9, "not a unit"),
        ("util > 3) or util > 4", 8, "expected 'and', 'or' or the end"),
        ("util mean[30] > 3", 10, "duration"),
        ("util mean[2d] > 3", 10, "between 1m and 1d"),
        ("util mean[5s] > 3", 10, "between 1m and 1d"),
        ("user[5m] = ada", 4, "no window"),
        ("mem_used trend > 3 MiB", 19, "MiB/h"),
        ("at least 0 gpus: util > 3", 9, "at least 1"),
        ("at least 120% of gpus: util > 3", 9, "at most 100%"),
        ("most: util > 3", 0, "before ':'"),
        ("util > 3 and", 12, "expected a metric"),
        ("util ~ 3", 5, "means nothing"),
        ('user = "ada', 7, "never closed"),
        ("util over rack > 3", 10, "'workload' or 'node'"),
        ("util mean = 3", 10, "cannot be used here"),
        ("", 0, "expected a metric"),
        ("not " * 40 + "util > 3", 132, "deeper than 32"),
        (" and ".join(["util > 3"] * 65), 832, "more than 64"),
    ],
)
def test_a_wrong_rule_is_refused_at_the_exact_place(text: str, start: int, says: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rule(text)
    assert caught.value.start == start
    assert says in str(caught.value)


def test_the_place_is_given_as_line_and_column_too() -> None:
    with pytest.raises(RuleError, match="line 2, column 5") as caught:
        parse_rule("util > 3 and\n    powr < 4")
    assert caught.value.mark_place() == "    powr < 4\n    ^^^^"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("power < 0.3 kW", "power mean < 300 W"),
        ("mem_used max > 2 GiB", "mem_used max > 2048 MiB"),
        ("mem_used trend[1h] > 1 GiB/min", "mem_used trend[1h] > 61440 MiB/h"),
        ("util avg ≥ 90 %", "util mean >= 90%"),
        ("util p50 < 75% of workload", "util median < 0.75 * workload"),
        ("util < 0.75 × workload median", "util mean < 0.75 * workload"),
        ("runtime > 90min", "runtime > 90m"),
        ("runtime > 1.5h", "runtime > 90m"),
        ("any: util > 3", "util mean > 3%"),
        ("NOT util > 3 AND user = 'a'", "not util mean > 3% and user = a"),
        ("nvlink_tx mean < 1.5 GB/s", "nvlink_tx mean < 1500 MB/s"),
        ("at least 25 %: util > 3", "at least 25% of gpus: util mean > 3%"),
    ],
)
def test_units_and_sugar_mean_what_they_say(text: str, same: str) -> None:
    assert rule_text(parse_rule(text)) == same


@pytest.mark.parametrize(
    "text",
    [
        "util p95 > 90% and util p95 < 80%",
        "util max < 10% and util p50 > 20%",
        "util min > 50% and not util p5 > 40%",
        "util mean > 100%",
        "runtime < 5m and runtime > 1h",
        "user = ada and user = bob",
        "user = ada and not user in (ada, bob)",
        "util mean > 50% and util max < 40%",
        "util range < 0%",
    ],
)
def test_a_rule_that_can_never_hold_is_warned_about(text: str) -> None:
    assert any("never hold" in warning for warning in warnings(parse_rule(text)))


@pytest.mark.parametrize(
    "text", ["util p95 >= 0%", "util max > 10% or util max <= 10%", "gpus >= 0", "util min <= 100%"]
)
def test_a_rule_that_always_holds_is_warned_about(text: str) -> None:
    assert any("always holds" in warning for warning in warnings(parse_rule(text)))


@pytest.mark.parametrize(
    "text",
    [
        "util p95 > 90% and power_share p50 < 70%",
        "util p95[30m] > 90% and util p95 < 80%",
        "util p95 > 70% and util p5 < 10%",
        "util mean < 0.75 * workload and util mean > 20%",
        "user = ada or user = bob",
        "util mean > 50% and util p50 < 10%",
    ],
)
def test_a_sound_rule_is_not_warned_about(text: str) -> None:
    assert warnings(parse_rule(text)) == []


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"when": {}},
        {"when": {"metric": "util"}},
        {"when": {"metric": "util", "op": ">", "value": True}},
        {"when": {"metric": "util", "op": "> 3 or util >", "value": 4}},
        {"when": {"metric": "util max > 3 and util", "op": ">", "value": 4}},
        {"when": {"metric": "util", "fact": "gpus", "op": ">", "value": 4}},
        {"when": {"and": [{"metric": "util", "op": ">", "value": 1}]}},
        {"when": {"fact": "user", "op": "=", "value": [1]}},
        {"when": {"metric": "utl", "op": ">", "value": 1}},
        {"when": {"metric": "util", "op": ">", "value": 1}, "gpus": {"reach": "some"}},
        {"when": {"metric": "util", "op": ">", "value": 1}, "gpus": {"reach": "at_least"}},
        {"when": {"metric": "util", "op": ">", "value": 1}, "extra": 1},
    ],
)
def test_a_wrong_json_rule_is_refused(document: object) -> None:
    with pytest.raises(InvalidInput):
        parse_clause(document)


def test_json_nested_without_end_is_refused_not_followed() -> None:
    node: dict[str, object] = {"metric": "util", "op": ">", "value": 1}
    for _ in range(500):
        node = {"not": node}
    with pytest.raises(InvalidInput, match="deeper"):
        parse_clause({"when": node})


def test_no_fact_has_the_name_of_a_metric() -> None:
    assert not set(FACTS) & set(catalogue())


def test_the_schema_names_every_metric_fact_and_operator() -> None:
    schema = clause_schema()
    condition = schema["$defs"]["expression"]["oneOf"][0]["properties"]
    assert set(condition["metric"]["enum"]) == set(catalogue())
    assert set(condition["fact"]["enum"]) == set(FACTS)


def test_a_threshold_is_checked_against_what_it_is_compared_with() -> None:
    left = Series("util", Statistic("mean"))
    assert parse_value("70%", left) == Quantity(70.0)
    assert parse_value("0.75 * workload", left) == Peers(Over(ComparisonGroup.WORKLOAD), 0.75)
    with pytest.raises(RuleError, match="not a unit"):
        parse_value("70 W", left)
    with pytest.raises(RuleError, match="another threshold"):
        parse_value("$x", left)


def test_hostile_text_in_a_rule_stays_one_text() -> None:
    nasty = "\"; DROP TABLE x; -- \\ ' <script>\n\t\u202e"
    clause = Clause(Condition(Fact("user"), "=", TextValues((nasty,))))
    assert parse_rule(rule_text(clause)) == clause

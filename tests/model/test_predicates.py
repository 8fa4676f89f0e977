"""The predicate form, on the golden cases that the TypeScript evaluator shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.model.errors import InvalidInput
from marey.model.predicates import matches, parse_predicate, select, to_json

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "predicates.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_case_is_judged_alike_on_a_row(case: dict[str, Any]) -> None:
    assert matches(parse_predicate(case["predicate"]), GOLDEN["row"]) is case["matches"]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_case_is_judged_alike_on_a_table(case: dict[str, Any]) -> None:
    row = {k: v for k, v in GOLDEN["row"].items() if k not in {"workload", "attributes"}}
    predicate = case["predicate"]
    if any(name in json.dumps(predicate) for name in ('"workload"', "attributes.")):
        return
    table = pa.Table.from_pylist([row, row])
    assert select(parse_predicate(predicate), table).tolist() == [case["matches"]] * 2


@pytest.mark.parametrize("document", GOLDEN["refused"], ids=json.dumps)
def test_wrong_document_is_refused_with_its_place(document: object) -> None:
    with pytest.raises(InvalidInput, match=r"filter|At \$"):
        parse_predicate(document)


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", 10**19, -(10**19), float("nan")])
def test_a_value_that_no_database_has_is_refused(value: object) -> None:
    for op, asked in (("eq", value), ("in", [value]), ("lt", value)):
        with pytest.raises(InvalidInput, match=r"\$\.value"):
            parse_predicate({"field": "user", "op": op, "value": asked})


def test_unknown_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'user'"):
        parse_predicate({"field": "usr", "op": "eq", "value": "a"}, fields=["user", "host"])


def test_deep_nesting_is_refused_not_crashed_on() -> None:
    document: object = {"and": []}
    for _ in range(5000):
        document = {"not": document}
    with pytest.raises(InvalidInput, match="nested deeper"):
        parse_predicate(document)
    with pytest.raises(InvalidInput, match="not JSON"):
        parse_predicate("[" * 100_000)


leaves = st.builds(
    lambda f, op, v: {"field": f, "op": op, "value": v},
    st.sampled_from(["a", "b"]),
    st.sampled_from(["eq", "ne", "lt", "ge"]),
    st.integers(0, 3),
)
documents = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda p: {"and": p}, st.lists(inner, max_size=3)),
        st.builds(lambda p: {"or": p}, st.lists(inner, max_size=3)),
        st.builds(lambda p: {"not": p}, inner),
    ),
    max_leaves=8,
)
rows = st.lists(
    st.fixed_dictionaries({"a": st.none() | st.integers(0, 3), "b": st.none() | st.integers(0, 3)}),
    min_size=1,
    max_size=6,
)


@given(documents, rows)
def test_table_and_rows_agree_and_json_round_trips(document: object, listed: list[Any]) -> None:
    predicate = parse_predicate(document)
    assert parse_predicate(to_json(predicate)) == predicate
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    table = pa.Table.from_pylist(listed, schema=schema)
    assert select(predicate, table).tolist() == [matches(predicate, row) for row in listed]

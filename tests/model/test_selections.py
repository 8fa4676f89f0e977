"""Selections: one text for addresses, the command line, the API and notebooks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from marey.model.errors import InvalidInput
from marey.model.predicates import EVERYTHING
from marey.model.training.selections import (
    find_values,
    parse_selection,
    select_documents,
    select_rows,
)

TABLE = pa.table(
    {
        "rank": [0, 1, 2, 3, 4],
        "module": ["blocks.0.a", "blocks.1", "head", "blocks.0", None],
        "time": [1.0, 12.5, 15.0, 20.0, 21.0],
        "kind": ["compute", "send", "compute", "collective", "send"],
    }
)


def chosen(where: str) -> list[int]:
    """Return the ranks of the rows that a selection means."""
    return select_rows(TABLE, where)["rank"].to_pylist()


@pytest.mark.parametrize(
    ("where", "ranks"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("rank=3", [3]),
        ("rank=0,3-4", [0, 3, 4]),
        ("rank!=0,3-4", [1, 2]),
        ("rank>=3", [3, 4]),
        ('module^="blocks.0"', [0, 3]),
        ("module~block and rank<3", [0, 1]),
        ("time=12.5..20", [1, 2, 3]),
        ("time=..12.5", [0, 1]),
        ("kind=send,collective && rank=1-3", [1, 3]),
        ("rank=1 and step=9", [1]),
        ('{"field": "kind", "op": "eq", "value": "send"}', [1, 4]),
    ],
)
def test_a_selection_means_these_rows(where: str, ranks: list[int]) -> None:
    assert chosen(where) == ranks


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("colour=red", "colour"),
        ("rank=", "cannot be read"),
        ("rank=3 or rank=4", "cannot be read"),
        ("rank=three", "whole number"),
        ("micro_batch=first", "whole number"),
        ("rank<1,2", "one value"),
        ('module="unclosed', "cannot be read"),
        ("x" * 30_000, "30000 characters"),
    ],
)
def test_a_wrong_selection_says_what_is_wrong(where: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse_selection(where)


def test_a_quoted_name_may_hold_anything() -> None:
    rows = [{"name": 'a "b", c and d'}, {"name": "x"}]
    assert select_documents(rows, 'name="a \\"b\\", c and d"') == rows[:1]


def test_values_of_a_field_are_found() -> None:
    assert find_values(parse_selection("rank=1-3,7 and step=2"), "rank") == {1, 2, 3, 7}
    assert find_values(parse_selection("kind=send"), "rank") is None
    assert parse_selection("  ") == EVERYTHING

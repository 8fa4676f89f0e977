"""Saved views: the API's types against the grammar that the web app checks, old documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from marey.app.people.saved_views import KINDS, SavedViews, ViewScope
from marey.app.people.view_documents import SavedView, check_view
from marey.model.access.identity import Identity, Role
from marey.model.errors import Conflict, InvalidInput
from marey.store.embedded.embedded_store import open_store

OWNER = Identity("olga", Role.OPERATOR)
GRAMMAR = Path(__file__).resolve().parents[2] / "web/src/charts/units/view.schema.json"
# Conditions are predicates, which have a grammar of their own; tables of jobs are no overview.
OTHERWISE = {"filter", "jobs"}


def describe(schema: dict[str, Any], found: dict[str, Any]) -> Any:
    """Return the keys, kinds and words of a schema, without its limits."""
    if "$ref" in schema:
        return describe(found[schema["$ref"].rpartition("/")[2]], found)
    if "properties" in schema:
        return {
            k: describe(v, found) for k, v in schema["properties"].items() if k not in OTHERWISE
        }
    if "const" in schema or "enum" in schema:
        return set(schema.get("enum", [schema.get("const")]))
    if "items" in schema:
        return [describe(schema["items"], found)]
    kinds = [one["type"] for one in schema.get("anyOf", [])] or schema["type"]
    return {kinds} if isinstance(kinds, str) else set(kinds)


def test_the_types_have_the_keys_kinds_and_words_of_the_grammar() -> None:
    grammar = json.loads(GRAMMAR.read_text("utf-8"))
    (typed,), components = msgspec.json.schema_components([SavedView], ref_template="#/c/{name}")
    assert describe(typed, components) == describe(grammar, grammar["$defs"])


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"layers": 5}, "$.layers"),
        ({"layers": [{"by": "host", "layout": "round"}]}, "$.layers[0].layout"),
        ({"colour": {"bins": 2.5}}, "$.colour.bins"),
        ({"jobs": 3}, "$.jobs"),
        ([], "Expected `object`"),
    ],
)
def test_what_is_no_view_is_refused_with_its_place(document: object, place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_view(document)
    assert place in str(refused.value)
    assert "view-grammar" in str(refused.value)


def test_keys_beyond_the_grammar_are_kept() -> None:
    document = {"version": 1, "layers": [{"by": "host", "mine": 1}], "notes": ["of a script"]}
    assert check_view(document) == document


def test_what_an_earlier_version_kept_and_is_no_view_is_listed_but_not_answered() -> None:
    store = open_store(None)
    views = SavedViews(store, lambda user: [])
    store.put_document(KINDS[ViewScope.SITE], "old", {"layers": "all"})
    views.save(OWNER, "new", {"version": 1, "layers": []}, scope="site")
    assert set(views.find_all(OWNER)) == {"new"}
    assert {row.name for row in views.list_rows(OWNER)} == {"old", "new"}
    with pytest.raises(Conflict, match="'old'"):
        views.get(OWNER, "old")
    views.delete(OWNER, "old")
    assert {row.name for row in views.list_rows(OWNER)} == {"new"}

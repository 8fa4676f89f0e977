"""Queries by path: what they select, what they refuse, and Hatchet's dialect of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.hatchet_queries import from_hatchet, to_hatchet
from marey.callgraph.queries.query import parse_query, query_document
from marey.callgraph.queries.selection import (
    compile_pattern,
    is_like,
    keep_selected,
    select_nodes,
)
from marey.model.errors import InvalidInput
from tests.callgraph.conftest import graphs_of

TREE = {
    ("main", "init", "MPI_Init"): 1.0,
    ("main", "solve", "step", "MPI_Send"): 2.0,
    ("main", "solve", "step", "compute", "kernel"): 30.0,
    ("main", "solve", "step", "compute"): 4.0,
    ("main", "write"): 5.0,
}


def paths(graphs: CallGraphs, query: object) -> set[str]:
    chosen = np.flatnonzero(select_nodes(graphs, query))
    return {"/".join(path) for path in graphs.paths(chosen)}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("main > write", {"main", "main/write"}),
        ("solve > * > kernel", {
            "main/solve", "main/solve/step", "main/solve/step/compute",
            "main/solve/step/compute/kernel"}),
        ("init > + > MPI_*", set()),
        ("main > . > MPI_*", {"main", "main/init", "main/init/MPI_Init"}),
        ("compute > *", {"main/solve/step/compute", "main/solve/step/compute/kernel"}),
        ("MPI_*", {"main/init/MPI_Init", "main/solve/step/MPI_Send"}),
        ("nothing", set()),
    ],
)  # fmt: skip
def test_short_queries_select_the_call_sites_of_matching_paths(
    graphs: Callable[..., CallGraphs], query: str, found: set[str]
) -> None:
    assert paths(graphs([TREE]), query) == found


def test_first_and_last_select_the_ends(graphs: Callable[..., CallGraphs]) -> None:
    path = [
        {"where": {"field": "name", "op": "eq", "value": "solve"}},
        {"repeat": "*"},
        {"where": {"field": "name", "op": "like", "value": "MPI_*"}},
    ]
    made = graphs([TREE])
    assert paths(made, {"path": path, "select": "last"}) == {"main/solve/step/MPI_Send"}
    assert paths(made, {"path": path, "select": "first"}) == {"main/solve"}


def test_numbers_shares_and_logic_join_with_paths(graphs: Callable[..., CallGraphs]) -> None:
    made = graphs([TREE])
    big = {"field": "exclusive", "op": "ge", "value": 4.0}
    assert paths(made, big) == {
        "main/solve/step/compute/kernel", "main/solve/step/compute", "main/write"
    }  # fmt: skip
    inside = {"path": [{"where": {"field": "name", "op": "eq", "value": "solve"}}, {"repeat": "*"}]}
    assert paths(made, {"and": [big, {"not": inside}]}) == {"main/write"}
    assert paths(made, {"field": "share", "op": "gt", "value": 0.9}) == {"main"}
    assert paths(made, {"field": "depth", "op": "eq", "value": 0}) == {"main"}
    assert paths(made, {"or": []}) == set()


def test_repeats_count_call_sites_exactly(graphs: Callable[..., CallGraphs]) -> None:
    made = graphs([{("r",) * 6: 1.0}])
    anything = {"field": "name", "op": "eq", "value": "r"}
    steps = [
        {"where": {"field": "depth", "op": "eq", "value": 0}},
        {"where": anything, "repeat": 3},
    ]
    assert len(paths(made, {"path": steps})) == 4


step = st.tuples(st.sampled_from("ab*"), st.sampled_from([1, 2, "*", "+"]))


@given(
    st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map(tuple), min_size=1),
    st.lists(step, min_size=1, max_size=4),
)
def test_the_automaton_finds_what_trying_every_path_finds(
    tree: list[tuple[str, ...]], steps: list[tuple[str, Any]]
) -> None:
    made = graphs_of([dict.fromkeys(tree, 1.0)])
    document = {
        "path": [
            {"repeat": repeat, **({} if name == "*" else {"where": _named(name)})}
            for name, repeat in steps
        ]
    }
    wanted = set()
    for node in range(len(made.tree)):
        whole = made.path(node)
        for start in range(len(whole)):
            if _matches(whole[start:], steps):
                wanted |= {"/".join(whole[: end + 1]) for end in range(start, len(whole))}
    assert paths(made, document) == wanted


def _named(name: str) -> dict[str, str]:
    return {"field": "name", "op": "eq", "value": name}


def _matches(names: Sequence[str], steps: Sequence[tuple[str, Any]]) -> bool:
    if not steps:
        return not names
    (wanted, repeat), rest = steps[0], steps[1:]
    low, high = {"*": (0, 9), "+": (1, 9)}.get(repeat, (repeat, repeat))
    return any(
        _matches(names[count:], rest)
        for count in range(low, min(high, len(names)) + 1)
        if all(wanted in ("*", name) for name in names[:count])
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ('{"field": "nme", "op": "eq", "value": "x"}', "did you mean 'name'"),
        ('{"path": []}', "at least one step"),
        ('{"path": [{"repeat": "?"}]}', "'\\*', '\\+' or a number"),
        ('{"path": [{"repeat": 65}]}', "up to 64"),
        ('{"path": [{"repeat": 40}, {"repeat": 40}]}', "80 steps"),
        ('{"path": [{"where": {"path": [{}]}}]}', "without a path"),
        ('{"path": [{}], "select": "none"}', "Unknown selection"),
        ('{"paths": [[]]}', "a list of names"),
        ('{"eval": "1"}', "allowed"),
        ('{"field": "depth", "op": "like", "value": "1*"}', "'like' with one of the fields"),
        ("{", "not JSON"),
        ("a >  > b", "empty step"),
    ],
)
def test_what_is_no_query_is_refused_with_its_place(query: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        parse_query(query)


def test_a_query_is_data_and_never_code() -> None:
    from marey.callgraph.queries import hatchet_queries, query, selection

    for module in (hatchet_queries, query, selection):
        text = Path(str(module.__file__)).read_text()
        assert "eval(" not in text.replace("_eval(", "").replace("retrieval(", "")
        assert "exec(" not in text


def test_a_query_survives_its_document() -> None:
    for text in ("main > * > MPI_*", '{"not": {"paths": [["a", "b"]]}}'):
        parsed = parse_query(text)
        assert parse_query(query_document(parsed)) == parsed


@pytest.mark.parametrize(
    "query",
    [
        ["*", {"name": "MPI_.*"}],
        [{"name": "main"}, (3, {"name": "f.g", "depth": "<= 4"}), "+", {"name": "(a|b)"}],
        [{"time (inc)": "> 5.0"}, ".", ("*", {"time": "< 0.25", "type": "region"})],
        [{"name": "(?i).*allreduce.*"}, 2],
    ],
)
def test_hatchet_queries_come_and_go(query: list[Any]) -> None:
    ours = from_hatchet(query)
    assert from_hatchet(to_hatchet(ours)) == ours


def test_hatchet_queries_select_what_they_say(graphs: Callable[..., CallGraphs]) -> None:
    made = graphs([TREE], unit="s")
    chosen = select_nodes(made, from_hatchet(["*", {"name": "MPI_.*", "time (inc)": "> 1.5"}]))
    assert {p[-1] for p in made.paths(np.flatnonzero(chosen))} == {
        "main", "solve", "step", "MPI_Send"
    }  # fmt: skip


@pytest.mark.parametrize("expression", ["(a+)+b", "[a-z]*", "a{3}", "\\w+", "a*"])
def test_expressions_that_no_wildcard_can_say_are_refused(expression: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be"):
        from_hatchet([{"name": expression}])


def test_what_hatchet_cannot_say_is_refused() -> None:
    for text in ('{"not": {"path": [{}]}}', '{"path": [{}], "select": "last"}'):
        with pytest.raises(InvalidInput):
            to_hatchet(parse_query(text))


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_wildcards_match_as_the_standard_library_says(pattern: str, text: str) -> None:
    from fnmatch import fnmatchcase

    wanted = fnmatchcase(text, pattern)
    assert is_like(text, pattern) == wanted
    assert compile_pattern(pattern)(text) == wanted


def test_wildcards_do_not_backtrack_without_end() -> None:
    assert not is_like("a" * 4000, "*a" * 300 + "b")


def test_what_is_kept_hangs_below_its_nearest_kept_caller(
    graphs: Callable[..., CallGraphs],
) -> None:
    made = graphs([TREE])
    kept = keep_selected(
        made, select_nodes(made, {"field": "name", "op": "in", "value": ["main", "kernel"]})
    )
    assert kept.paths(range(len(kept.tree))) == [["main"], ["main", "kernel"]]
    assert kept.inclusive.tolist() == [42.0, 30.0]
    assert kept.first.tolist() == [0, 2]

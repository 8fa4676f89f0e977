"""The tree of modules keeps the rules of docs/ARCHITECTURE.md; scripts/house.py measures it.

A limit above 0 is what is left from before the rule existed: it may only go down.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "house.py"

MOST_FUNCTIONS_WITH_MANY_PARAMETERS = 0
MOST_CALLS_WITH_MANY_ARGUMENTS = 0
MOST_PROBES = 0
MOST_DELEGATIONS = 0
MOST_DUPLICATE_CLASSES = 0
MOST_DUPLICATE_MODULES = 0
MOST_LARGE_FOLDERS = 0
LEAST_VERB_SHARE = 56
LEAST_DOCSTRING_VERB_SHARE = 94
MOST_PARTICIPLE_SHARE = 2.0


@pytest.fixture(scope="module")
def house() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("house", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tree(house: ModuleType) -> Any:
    """Parse the package once for every test."""
    return house.read_tree()


def show(places: Any) -> str:
    """Return the offenders as an assertion prints them."""
    return "\n" + "\n".join(map(str, places))


def test_no_folder_holds_more_modules_than_one_looks_through(house: Any, tree: Any) -> None:
    found = house.find_large_folders(tree)
    assert len(found) <= MOST_LARGE_FOLDERS, show(found)


def test_no_folder_of_the_web_app_holds_more_modules_either(house: Any) -> None:
    sources = SCRIPT.parents[1] / "web" / "src"
    modules = [
        path
        for path in sources.rglob("*.ts*")
        if path.suffix in {".ts", ".tsx"} and not path.stem.endswith((".test", ".d"))
    ]
    counts = Counter(str(path.parent.relative_to(sources)) for path in modules)
    assert sum(counts.values()) > 200
    assert {f: n for f, n in counts.items() if n > house.MOST_MODULES_IN_A_FOLDER} == {}


def test_every_package_says_in_one_sentence_what_belongs_there(house: Any) -> None:
    silent = [
        str(file.relative_to(house.ROOT))
        for file in sorted(house.ROOT.rglob("__init__.py"))
        if not (ast.get_docstring(ast.parse(file.read_text())) or "").strip()
    ]
    assert silent == []


def test_no_public_class_name_exists_twice_in_a_package(house: Any, tree: Any) -> None:
    found = house.find_duplicate_classes(tree)
    assert len(found) <= MOST_DUPLICATE_CLASSES, show(found)


def test_no_public_class_name_exists_twice_in_a_layer(house: Any, tree: Any) -> None:
    found = house.find_duplicate_classes_in_layers(tree, house.read_layers())
    assert len(found) <= MOST_DUPLICATE_CLASSES, show(found)


def test_no_module_name_exists_twice_in_a_package(house: Any, tree: Any) -> None:
    found = house.find_duplicate_modules(tree)
    assert len(found) <= MOST_DUPLICATE_MODULES, show(found)


def test_more_than_four_parameters_are_given_by_keyword(tree: Any) -> None:
    assert len(tree.parameters) <= MOST_FUNCTIONS_WITH_MANY_PARAMETERS, show(tree.parameters)


def test_no_call_passes_six_arguments_by_position(tree: Any) -> None:
    assert len(tree.positional) <= MOST_CALLS_WITH_MANY_ARGUMENTS, show(tree.positional)


def test_nothing_probes_an_object_for_what_its_type_does_not_promise(tree: Any) -> None:
    assert len(tree.probes) <= MOST_PROBES, show(tree.probes)


def test_nothing_delegates_by_getattr(tree: Any) -> None:
    assert len(tree.delegations) <= MOST_DELEGATIONS, show(tree.delegations)


def test_functions_begin_with_a_verb_and_not_with_a_participle(house: Any, tree: Any) -> None:
    assert house.compute_verb_share(tree) >= LEAST_VERB_SHARE
    assert house.compute_participle_share(tree) <= MOST_PARTICIPLE_SHARE


def test_docstrings_of_functions_begin_with_a_verb(house: Any) -> None:
    assert house.compute_docstring_verb_share() >= LEAST_DOCSTRING_VERB_SHARE


def test_every_answer_of_the_api_states_what_it_holds(house: Any) -> None:
    document = json.loads(house.OPENAPI.read_text("utf-8"))
    assert len(house.find_json_answers(document)) > 100
    assert house.find_untyped_answers(document) == []
    assert not house.is_typed({"type": "object", "additionalProperties": True}, {})
    assert not house.is_typed({"type": "array", "items": {"$ref": "#/x/Row"}}, {"Row": {}})


def test_words_of_other_programs_are_read_at_the_edges_only() -> None:
    """A decision on the text of an error stands in a module that turns it into a code."""
    decides = re.compile(
        r"\bin str\((?:error|failure|problem)\)"
        r"|str\((?:error|failure|problem)\)\.(?:starts|ends)with"
    )
    source = SCRIPT.parents[1] / "src" / "marey"
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if path.name != "failure_codes.py" and decides.search(path.read_text("utf-8"))
    }
    assert found == set()


def read_edges() -> dict[str, Any]:
    """Return the open edges with what makes them open, their modules and how many there may be."""
    return tomllib.loads((SCRIPT.parents[1] / "tests/house/open_edges.toml").read_text("utf-8"))


def test_untyped_dictionaries_stand_at_open_edges_only(house: Any) -> None:
    counts = house.count_untyped_dictionaries()
    edges = read_edges()
    listed = [module for edge in edges.values() for module in edge["modules"]]
    assert len(listed) == len(set(listed))
    # Give what is new a type (a TypedDict, a Struct, a dataclass), or say which edge it is.
    assert sorted(set(counts) - set(listed)) == []
    assert sorted(set(listed) - set(counts)) == [], "these are typed now: take them out"
    for name, edge in edges.items():
        found = sum(counts[module] for module in edge["modules"])
        assert found <= edge["most"], f"{name}: {found}"


def test_the_architecture_says_which_edges_are_open() -> None:
    text = (SCRIPT.parents[1] / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    plain = " ".join(text.split())
    assert [name for name, edge in read_edges().items() if edge["why"] not in plain] == []


def test_the_script_counts_what_it_says(house: Any, tmp_path: Path) -> None:
    package = tmp_path / "part"
    package.mkdir()
    (package / "one.py").write_text(
        "class Row: ...\n"
        "def read_rows(a, b, c, d, e): return getattr(a, 'path', None)\n"
        "def kept_rows(a, *, b, c, d, e):\n    '''Return.\n\n    More.\n    '''\n"
        "    return read_rows(1, 2, 3, 4, 5, 6)\n"
        "@njit(cache=True)\ndef add_all(a, b, c, d, e, f): return add_all(a, b, c, d, e, f)\n"
    )
    (package / "two.py").write_text(
        "class Row:\n"
        "    def __getattr__(self, name): ...\n"
        "    @property\n    def width(self): ...\n"
        "    def read(self, a, b, c, d): ...\n"
    )
    tree = house.read_tree(tmp_path)
    assert [p.name for p in tree.parameters] == ["read_rows"]
    assert [p.name for p in tree.positional] == ["read_rows"]
    assert len(tree.probes) == len(tree.delegations) == 1
    assert len(house.find_duplicate_classes(tree)) == 1
    for package in ("left", "right"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "same.py").write_text("class Shared: ...\n")
    wider = house.read_tree(tmp_path)
    assert len(house.find_duplicate_classes(wider)) == 1
    assert len(house.find_duplicate_classes_in_layers(wider, [["left", "right"], ["part"]])) == 2
    assert len(house.find_duplicate_classes_in_layers(wider, [["left"], ["right"]])) == 1
    assert house.compute_verb_share(tree) == 75
    assert house.compute_participle_share(tree) == 25
    assert sum(many for _, many in tree.docstrings) == 1


def test_the_table_is_markdown_with_one_column_per_package(house: Any) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(house.ROOT / "store"), "--packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    header, _, *rows = ran.stdout.splitlines()
    assert " journal " in header
    assert all(row.count("|") == header.count("|") for row in rows)


def test_no_test_starts_a_loop_in_its_own_thread() -> None:
    """Once a browser was started there, Playwright's runs in it, and a second one is refused."""
    tests = SCRIPT.parents[1] / "tests"
    starts = ("asyncio." + "run(", "anyio." + "run(", "run_until_" + "complete(")
    found = [
        str(path.relative_to(tests))
        for path in sorted(tests.rglob("test_*.py"))
        if any(start in path.read_text() for start in starts)
    ]
    assert not found, "call tests.waiting.run_in_loop instead"

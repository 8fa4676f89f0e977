"""The documents are held against the code: links, packages, commands, counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.__main__ import names as benches
from marey.cli import COMMANDS
from marey.rules.pack import load_shipped_rules

ROOT = Path(__file__).resolve().parents[2]
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
DOCUMENTS = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]


def links(document: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_inside_the_repository_leads_somewhere(document: Path) -> None:
    own = [link for link in links(document) if not re.match(r"\w+:", link)]
    dead = [link for link in own if not (document.parent / link.partition("#")[0]).exists()]
    assert dead == []


def headings(document: Path) -> set[str]:
    """Return the anchors of a document: its headings as repository pages write them."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_to_a_heading_meets_one(document: Path) -> None:
    own = [link for link in links(document) if "#" in link and not re.match(r"\w+:", link)]
    for link in own:
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if target.suffix == ".md":
            assert anchor in headings(target), link


def test_every_guide_is_in_the_index() -> None:
    listed = {link.partition("#")[0] for link in links(ROOT / "docs" / "README.md")}
    assert {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def test_the_architecture_names_every_package() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [p.parent.name for p in (ROOT / "src" / "marey").glob("*/__init__.py")]
    assert len(packages) > 10
    assert [name for name in packages if f"`{name}`" not in text] == []


# What decisions say was deleted.
DELETED = {"native/making.cpp"}


def find_paths(document: Path) -> list[str]:
    """Return the paths of this repository that a document names."""
    packages = {path.name for path in (ROOT / "src" / "marey").iterdir() if path.is_dir()}
    known = packages | {"src", "web", "tests", "bench", "docs", "scripts", "native", "deploy"}
    named = re.findall(r"`([\w.-]+/[\w./{},-]*)`", document.read_text(encoding="utf-8"))
    return [path for path in named if path.partition("/")[0] in known]


def exists(path: str) -> bool:
    """Say whether a path leads somewhere: ``NAME`` stands for any, braces for each."""
    found = re.search(r"\{([^}]*)\}", path)
    if found is not None:
        parts = found[1].split(",")
        return all(exists(path.replace(found[0], part.strip())) for part in parts)
    pattern = path.replace("NAME", "*").rstrip("/")
    return any(any(root.glob(pattern)) for root in (ROOT, ROOT / "src" / "marey"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_that_is_named_exists(document: Path) -> None:
    found = set(find_paths(document)) - DELETED
    assert sorted(path for path in found if not exists(path)) == []


def test_the_guides_for_newcomers_name_paths() -> None:
    assert len(find_paths(ROOT / "CONTRIBUTING.md")) > 30
    assert not exists("src/marey/nowhere.py")
    assert exists("src/marey/cli/{site,cluster}/NAME.py")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_benches_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    commands = set(re.findall(r"(?:`|bin/|^)marey ([a-z]+(?:-[a-z]+)*)", text, re.MULTILINE))
    assert commands <= set(COMMANDS)
    named = set(re.findall(r"(?:python -m bench|BENCH=) ?([a-z_]+)", text))
    assert named <= set(benches())


@pytest.mark.parametrize("name", benches())
def test_every_bench_can_be_run(name: str) -> None:
    text = (ROOT / "bench" / f"{name}.py").read_text(encoding="utf-8")
    assert re.search(r"^def main\(", text, re.MULTILINE)


def test_the_number_of_rules_is_told_truly() -> None:
    for name in ("README.md", "CHANGELOG.md"):
        told = re.findall(r"([0-9]+) rules", (ROOT / name).read_text(encoding="utf-8"))
        assert told == [str(len(load_shipped_rules()))], name


def test_every_journey_that_is_named_exists_and_every_line_names_one() -> None:
    text = (ROOT / "docs" / "journeys.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| ") and "shown by" not in row]
    numbers = {int(n) for n in re.findall(r"^\| \*\*(\d+)\.", text, re.MULTILINE)}
    assert numbers == set(range(1, 16))
    assert {story for story in "ABC" if f"| **{story}** " in text} == set("ABC")
    for row in rows:
        named = re.findall(r"`(test_\w+)\.(test_\w+)`", row)
        assert named, row
        for module, journey in named:
            source = (ROOT / "tests" / "browser" / f"{module}.py").read_text(encoding="utf-8")
            assert f"\ndef {journey}(" in source, f"{module}.{journey}"

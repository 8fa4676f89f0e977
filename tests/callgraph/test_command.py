"""The command: its documents, its texts, its refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marey.cli import main

Run = Callable[..., dict[str, Any]]
BOX = {"n", "mean", "sd", "min", "q1", "median", "q3", "max", "outliers", "imbalance", "max_at"}


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Two folders of three runs: after, one function is slower and one is new."""
    for side, slow, more in (("before", 100, ""), ("after", 150, "main;new 5\n")):
        folder = tmp_path / side
        folder.mkdir()
        for run in range(3):
            text = f"# unit: us\nmain {10 + run}\nmain;work {slow + run}\nmain;io 20\n{more}"
            (folder / f"run{run}.txt").write_text(text)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a question with --json and return its document."""

    def ask(*words: str | Path) -> dict[str, Any]:
        assert main(["callgraph", *map(str, words), "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return ask


def test_an_ensemble_has_the_promised_keys(run: Run, profiles: Path) -> None:
    document = run("ensemble", profiles / "before")
    assert document["unit"] == "ns"
    assert [p["run"] for p in document["profiles"]] == ["run0", "run1", "run2"]
    node = next(n for n in document["nodes"] if n["path"] == ["main", "work"])
    assert set(node["inclusive"]) == BOX == set(node["exclusive"])
    assert node["inclusive"]["mean"] == 101_000
    assert node["inclusive"]["n"] == 3


def test_a_difference_has_the_promised_keys(run: Run, profiles: Path) -> None:
    document = run("diff", profiles / "before", profiles / "after")
    assert [c["path"] for c in document["slower"]] == [["main", "work"]]
    assert {"path", "before", "after", "p", "q", "n"} <= set(document["slower"][0])
    assert document["slower"][0]["n"] == 3
    assert [c["path"] for c in document["appeared"]] == [["main", "new"]]
    assert document["faster"] == document["vanished"] == []


def test_a_query_and_the_tree_are_shown(run: Run, profiles: Path) -> None:
    document = run("query", "main > w*", profiles / "before")
    assert [n["path"] for n in document["nodes"]] == [["main"], ["main", "work"]]
    assert document["query"]["path"][0]["where"]["value"] == "main"
    shown = run("show", profiles / "before", "--limit", "2")
    assert [n["name"] for n in shown["nodes"]] == ["main", "work"]
    assert shown["left_out"] == 1


def test_an_export_is_read_again(run: Run, profiles: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.pb.gz"
    assert run("export", profiles / "before", "--format", "pprof", "--out", out)["profiles"] == 3
    assert len(run("show", out)["profiles"]) == 3


@pytest.mark.parametrize(
    "words",
    [("show",), ("ensemble",), ("ensemble", "--split", "run"), ("query", "main > *")],
)
def test_a_person_gets_text(
    capsys: pytest.CaptureFixture[str], profiles: Path, words: tuple[str, ...]
) -> None:
    assert main(["callgraph", *words, str(profiles / "before")]) == 0
    assert "call sites in 3 profiles" in capsys.readouterr().out


def test_a_person_reads_what_changed(capsys: pytest.CaptureFixture[str], profiles: Path) -> None:
    assert main(["callgraph", "diff", str(profiles / "before"), str(profiles / "after")]) == 0
    text = capsys.readouterr().out
    assert "slower: 1" in text
    assert "main > work" in text


def test_refusals_are_one_message(capsys: pytest.CaptureFixture[str], profiles: Path) -> None:
    for words in (
        ["show", str(profiles / "nothing")],
        ["query", "{", str(profiles)],
        ["show", str(profiles), "--split", "step"],
        ["export", str(profiles), "--format", "collapsed", "--out", str(profiles / "x")],
        ["show", str(profiles), "--alias", "x"],
    ):
        assert main(["callgraph", *words]) == 2
        assert capsys.readouterr().err.startswith("marey callgraph: ")

"""Runs that are not whole: names without end, ranks that are missing, two runs in one folder."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from marey.app.traces.conversion_process import ConversionTask, convert
from marey.app.traces.flow_query import ask_flow
from marey.app.traces.trace_queries import RUN_TABLES, ask_bands, ask_rows, ask_table
from marey.trace.results import VerdictKind
from marey.trace.synthetic import Layout, Scenario, make_run
from marey.trace.synthetic.kineto import write_kineto
from marey.trace.views.bands import BandWindow
from marey.trace.views.cells import CellWindow
from marey.trace.views.view_files import RunViews

LONG = "x" * 1_000_000
# What one answer of a small run may weigh, whatever its names are.
LARGEST_ANSWER = 2_000_000


def convert_files(folder: Path, into: Path) -> RunViews:
    convert(ConversionTask([str(folder)], str(into / "cache"), str(into / "views")), io.StringIO())
    return RunViews(into / "views")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A file of each of four ranks, one of which is slow."""
    layout = Layout(data=4, layers=2)
    made = make_run(Scenario(layout, VerdictKind.SLOW_WORKER, steps=3, seed=4))
    return write_kineto(made.run, tmp_path_factory.mktemp("files"))


def read(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    document: dict[str, Any] = json.loads(
        gzip.decompress(content) if path.suffix == ".gz" else content
    )
    return document


def test_names_of_a_million_characters_are_answered_and_stay_small(
    files: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for path in files:
        document = read(path)
        for number, event in enumerate(document["traceEvents"]):
            if event.get("cat") in ("kernel", "cpu_op") and number % 7 == 0:
                event["name"] = f"{event['name']}{LONG}"
        (folder / f"{path.name.split('.')[0]}.json").write_text(json.dumps(document))
    views = convert_files(folder, tmp_path)
    pictures = views.step(1)
    replies = [ask_table(views, name, where="", sort="", limit=100_000) for name in RUN_TABLES]
    window = BandWindow(0, 1 << 60)
    replies += [ask_rows(pictures, "stage"), ask_bands(pictures, window, ranks="", where="")]
    for reply in replies:
        assert len(json.dumps(reply.table.to_pylist())) < LARGEST_ANSWER
    flow = ask_flow(views, pictures, stage=None, where="")
    assert max(len(node.name) for node in flow.nodes) < 10_000


def test_a_rank_that_was_not_traced_is_an_empty_labelled_row(
    files: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for path in files:
        if "1" not in path.name.split(".")[0][-1]:
            (folder / path.name).write_bytes(path.read_bytes())
    views = convert_files(folder, tmp_path)
    rows = ask_rows(views.step(1), "stage").table.to_pylist()
    missing = [row for row in rows if row["missing"]]
    assert [row["rank"] for row in missing] == [1]
    assert missing[0]["position"] == len(rows) - 1
    assert not views.step(1).cells_of([1], window_of(views)).kinds.any()
    assert views.step(1).cells_of([0], window_of(views)).kinds.any()


def window_of(views: RunViews) -> CellWindow:
    return CellWindow(0, views.step(1).view.span, 50, 1)


def test_two_runs_mixed_in_one_folder_are_said(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for path in files:
        (folder / path.name).write_bytes(path.read_bytes())
    later = make_run(Scenario(Layout(data=4, layers=3), steps=2, seed=9))
    for path in write_kineto(later.run, tmp_path / "other"):
        (folder / f"other-{path.name}").write_bytes(path.read_bytes())
    views = convert_files(folder, tmp_path)
    assert len(views.index.ranks) == 4
    assert any("rank" in note for note in views.index.notes), views.index.notes


def test_a_file_that_ends_early_is_said_and_the_rest_is_shown(
    files: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for path in files:
        content = path.read_bytes()
        cut = content[: int(len(content) * 0.6)] if path == files[2] else content
        (folder / path.name).write_bytes(cut)
    views = convert_files(folder, tmp_path)
    assert [row["rank"] for row in views.index.ranks] == [0, 1, 2, 3]
    assert any(files[2].name in note for note in views.index.notes), views.index.notes

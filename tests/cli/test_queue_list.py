"""The waiting line on the command line, filtered as it is everywhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marey.cli import main
from marey.store.embedded.embedded_store import open_store
from tests.app.small_cluster import inventory


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the small cluster, in which two workloads wait."""
    path = tmp_path_factory.mktemp("queue") / "site.duckdb"
    with open_store(path) as opened:
        opened.apply(inventory())
    return path


def list_line(store: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Return the line as JSON."""
    assert main(["queue", "list", "--store", str(store), "--json", *options]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({"field": "user", "op": "eq", "value": "bob"}, ["2"]),
        ({"field": "gpus", "op": "ge", "value": 1}, ["3", "2"]),
        ({"field": "verdict", "op": "eq", "value": "starts"}, ["3"]),
        ({"field": "gpus", "op": "gt", "value": 1000}, []),
    ],
)
def test_a_filter_keeps_what_it_means_and_the_places_in_the_whole_line(
    store: Path, capsys: pytest.CaptureFixture[str], where: dict[str, object], kept: list[str]
) -> None:
    everybody = {row["workload"]: row["position"] for row in list_line(store, capsys)["rows"]}
    document = list_line(store, capsys, "--where", json.dumps(where))
    assert [row["workload"] for row in document["rows"]] == kept
    assert document["total"] == len(kept)
    assert all(row["position"] == everybody[row["workload"]] for row in document["rows"])


def test_the_printed_line_is_filtered_too(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = '{"field": "user", "op": "eq", "value": "bob"}'
    assert main(["queue", "list", "--store", str(store), "--where", where]) == 0
    printed = capsys.readouterr().out
    assert "bob" in printed
    assert len(printed.strip().splitlines()) == 2


@pytest.mark.parametrize(
    ("where", "error"), [("{", "JSON"), ('{"field": "mood", "op": "eq", "value": 1}', "mood")]
)
def test_a_filter_that_makes_no_sense_is_refused_with_what_is_wrong(
    store: Path, capsys: pytest.CaptureFixture[str], where: str, error: str
) -> None:
    assert main(["queue", "list", "--store", str(store), "--where", where]) != 0
    said = capsys.readouterr().err
    assert error in said
    assert "Traceback" not in said

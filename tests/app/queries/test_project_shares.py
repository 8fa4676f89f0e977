"""Shares of projects: kept with the store, told on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.app.queries.project_shares import keep_configured_shares, read_site_shares
from marey.cli import main
from marey.queue.waiting.fairness import SharesFrom
from marey.store.embedded.embedded_store import open_store


def test_shares_are_kept_until_the_configuration_names_none() -> None:
    store = open_store(None)
    assert read_site_shares(store).origin is SharesFrom.EQUAL
    keep_configured_shares(store, {"nlp": 3.0})
    assert read_site_shares(store).weights == {"nlp": 3.0}
    keep_configured_shares(store, {"nlp": 1.0, "text": 1.0})
    assert read_site_shares(store).weights == {"nlp": 1.0, "text": 1.0}
    keep_configured_shares(store, {})
    assert read_site_shares(store).origin is SharesFrom.EQUAL
    store.close()


def test_the_command_line_knows_the_shares_that_the_store_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "site.duckdb"
    store = open_store(path)
    keep_configured_shares(store, {"vision": 3.0, "text": 1.0})
    store.close()
    assert main(["queue", "fairness", "--store", str(path)]) == 0
    said = capsys.readouterr().out
    assert "Shares from [queue.shares] in marey.toml." in said
    assert "0.75" in next(line for line in said.splitlines() if line.startswith("vision"))

"""Shares of projects: kept with the store, told on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.app.queries.project_shares import (
    keep_configured_shares,
    read_site_shares,
    watch_reported_shares,
)
from marey.cli import main
from marey.model.observation import Observation
from marey.queue.waiting.fairness import SharesFrom
from marey.store.embedded.embedded_store import open_store


def test_shares_are_kept_until_the_configuration_names_none() -> None:
    store = open_store(None)
    assert read_site_shares(store, "c").origin is SharesFrom.EQUAL
    keep_configured_shares(store, {"nlp": 3.0})
    assert read_site_shares(store, "c").weights == {"nlp": 3.0}
    keep_configured_shares(store, {"nlp": 1.0, "text": 1.0})
    assert read_site_shares(store, "c").weights == {"nlp": 1.0, "text": 1.0}
    keep_configured_shares(store, {})
    assert read_site_shares(store, "c").origin is SharesFrom.EQUAL
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


def test_the_schedulers_own_shares_stand_where_none_are_configured() -> None:
    store = open_store(None)
    watch = watch_reported_shares(store)
    watch(Observation(0, "c", shares={"nlp": 0.6, "text": 0.4}))
    watch(Observation(1, "c"))
    assert read_site_shares(store, "c").weights == {"nlp": 0.6, "text": 0.4}
    assert read_site_shares(store, "c").origin is SharesFrom.SCHEDULER
    assert read_site_shares(store, "another").origin is SharesFrom.EQUAL
    watch(Observation(2, "c", shares={"nlp": 1.0}))
    assert read_site_shares(store, "c").weights == {"nlp": 1.0}
    keep_configured_shares(store, {"text": 1.0})
    assert read_site_shares(store, "c").origin is SharesFrom.CONFIGURATION
    store.close()

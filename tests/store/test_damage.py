"""Damage on disk: what can be used is used, what is dropped is said, and the file is kept aside."""

from __future__ import annotations

import logging
import os
import random
import shutil
import stat
from pathlib import Path

import duckdb
import pytest

from marey.model.errors import StoreError
from marey.model.protocols import Selection
from marey.store.embedded.embedded_store import open_store
from marey.store.journal.journal_file import get_journal_path
from marey.store.journal.journaled_store import JournaledStore
from tests.app.small_cluster import START_MS, TICK_MS, inventory, samples

TICKS = 30


def write_without_closing(tmp_path: Path, *, journal: bool) -> Path:
    """A store as a killed process leaves it: its log, or its journal, not sorted in."""
    path = tmp_path / "whole.duckdb"
    inner = open_store(path)
    store = JournaledStore(inner) if journal else inner
    store.apply(inventory())
    if not journal:
        inner._database.checkpoint()
    for number in range(TICKS):
        store.append([samples(START_MS + number * TICK_MS)])
    left = tmp_path / "left.duckdb"
    for ending in ("", ".wal", ".journal"):
        source = Path(f"{path}{ending}")
        if source.exists():
            shutil.copyfile(source, f"{left}{ending}")
    store.close()
    return left


def count_times(path: Path, *, journal: bool) -> int:
    opened = open_store(path)
    store = JournaledStore(opened) if journal else opened
    span = Selection(("util",), 0, START_MS + 1000 * TICK_MS)
    rows = store.statistics(span).table.to_pylist()
    store.close()
    return max((row["count"] for row in rows), default=0)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(bytes(content))


def test_a_damaged_log_is_kept_aside_and_used_up_to_the_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = write_without_closing(tmp_path, journal=False)
    log = Path(f"{store}.wal")
    flip(log, log.stat().st_size // 2)
    damaged = log.read_bytes()
    with pytest.raises(StoreError, match="damaged at byte"):
        open_store(store, read_only=True)
    assert log.read_bytes() == damaged
    with caplog.at_level(logging.WARNING):
        kept = count_times(store, journal=False)
    assert 0 < kept < TICKS
    assert "are dropped" in caplog.text
    aside = Path(f"{log}.damaged-1")
    assert aside.read_bytes() == damaged
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600


def test_a_log_that_does_not_begin_as_one_is_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = write_without_closing(tmp_path, journal=False)
    log = Path(f"{store}.wal")
    log.write_bytes(random.Random(7).randbytes(5000))
    with caplog.at_level(logging.WARNING):
        count_times(store, journal=False)
    assert "are dropped" in caplog.text
    assert Path(f"{log}.damaged-1").stat().st_size == 5000


@pytest.mark.parametrize("where", ["payload", "size"])
def test_a_damaged_journal_is_kept_aside_and_used_up_to_the_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    store = write_without_closing(tmp_path, journal=True)
    journal = get_journal_path(store)
    head = 24
    size = int.from_bytes(journal.read_bytes()[head : head + 4], "little")
    second = head + 8 + size
    # A byte of the second tick, or the highest of its length.
    flip(journal, second + 8 + 5 if where == "payload" else second + 3)
    damaged = journal.read_bytes()
    with caplog.at_level(logging.WARNING):
        kept = count_times(store, journal=True)
    assert 0 < kept < TICKS
    assert "1 whole ticks before that are kept" in caplog.text
    assert Path(f"{journal}.damaged-1").read_bytes() == damaged


def test_a_journal_that_a_kill_cut_short_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = write_without_closing(tmp_path, journal=True)
    journal = get_journal_path(store)
    journal.write_bytes(journal.read_bytes()[:-7])
    with caplog.at_level(logging.WARNING):
        assert count_times(store, journal=True) > 0
    assert caplog.text == ""
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_damaged_block_gives_advice_instead_of_the_database_s_words(tmp_path: Path) -> None:
    store = write_without_closing(tmp_path, journal=False)
    count_times(store, journal=False)
    content = bytearray(store.read_bytes())
    # Everything but the headers: whatever is read first is damaged.
    content[3 * 4096 + 8 :] = random.Random(7).randbytes(len(content) - 3 * 4096 - 8)
    store.write_bytes(bytes(content))
    with pytest.raises(StoreError) as failure:
        count_times(store, journal=False)
    text = str(failure.value)
    assert "backup" in text
    assert "checksum" not in text


def test_damage_found_by_a_later_question_gives_advice(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s.duckdb")
    words = "Corrupt database file: computed checksum 1 does not match stored checksum 2 in block"
    with (
        pytest.raises(StoreError, match="restore the file from a backup") as failure,
        store._database._translate_errors(),
    ):
        raise duckdb.IOException(f"IO Error: {words}")
    assert failure.value.code == "store_damaged"
    store.close()


def test_everything_a_store_makes_is_its_owner_s_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = JournaledStore(open_store(tmp_path / "s.duckdb"))
        store.apply(inventory())
        store.put_document("view", "a", {})
        store.append([samples(START_MS)])
        made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert {"s.duckdb", "s.duckdb.wal", "s.duckdb.journal"} <= set(made)
        assert set(made.values()) == {0o600}, made
        store.close()
    finally:
        os.umask(before)

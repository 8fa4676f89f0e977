"""A store's file: only one of ours is opened, and no other is touched."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import duckdb
import numpy as np
import pytest

from marey.model.errors import Conflict, InvalidInput, StoreError
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.store.database.database_file import Database
from marey.store.database.schema import SCHEMA_VERSION
from marey.store.embedded.embedded_store import Retention, open_store

T0 = 1_763_200_800_000


def batch(k: int = 0, gpus: int = 8) -> SampleBatch:
    return SampleBatch(
        np.full(gpus, T0 + k * 15_000, np.int64),
        np.arange(gpus, dtype=np.int32),
        tuple(f"n0:{i}" for i in range(gpus)),
        {"util": np.arange(gpus, dtype=np.float32)},
    )


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.iterdir() if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    """A store with something in it."""
    path = tmp_path / "store.marey"
    with open_store(path) as store:
        random = np.random.default_rng(1)
        for k in range(3):
            many = batch(k, 20_000)
            values = random.random(20_000).astype(np.float32) * 100
            store.append([SampleBatch(many.time_ms, many.entity, many.entities, {"power": values})])
    return path


def test_what_was_kept_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "store.marey"
    for k in range(3):
        with open_store(path) as store:
            store.append([batch(k)])
            store.put_document("view", str(k), k)
    with open_store(path) as store:
        assert sum(len(b) for b in store.scan(Selection((), 0, T0 * 2))) == 24
        assert store.documents("view") == {"0": 0, "1": 1, "2": 2}
        # What comes again after the restart replaces.
        store.append([batch(2)])
        assert sum(len(b) for b in store.scan(Selection((), 0, T0 * 2))) == 24
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store.marey"]


def _random_bytes(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(100_000))


def _text(path: Path) -> None:
    path.write_text("time,host,gpu\n")


def _empty(path: Path) -> None:
    path.touch()


def _folder(path: Path) -> None:
    path.mkdir()


def _sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE marey_store (schema_version INTEGER)")
    connection.close()


def _other_duckdb(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE things AS SELECT 1 AS x")


def _only_the_magic_word(path: Path) -> None:
    path.write_bytes(b"12345678DUCK" + bytes(200_000))


@pytest.mark.parametrize(
    "make", [_random_bytes, _text, _empty, _folder, _sqlite, _other_duckdb, _only_the_magic_word]
)
def test_a_file_that_is_not_ours_is_refused_and_untouched(tmp_path: Path, make: object) -> None:
    path = tmp_path / "thing"
    make(path)
    before = digests(tmp_path)
    with pytest.raises(StoreError, match="thing") as caught:
        open_store(path)
    assert any(word in str(caught.value) for word in ("another path", "move"))
    assert digests(tmp_path) == before


@pytest.mark.parametrize("share", [0.999, 0.9, 0.5, 0.2, 0.01, 0.0001])
def test_a_truncated_store_is_refused_and_untouched(store_file: Path, share: float) -> None:
    size = store_file.stat().st_size
    os.truncate(store_file, int(size * share))
    before = digests(store_file.parent)
    with pytest.raises(StoreError, match=r"cut short|damaged|not a Marey store") as caught:
        open_store(store_file)
    assert "store.marey" in str(caught.value)
    assert digests(store_file.parent) == before


def test_a_store_from_a_newer_version_is_refused_and_untouched(store_file: Path) -> None:
    with duckdb.connect(str(store_file)) as connection:
        connection.execute("UPDATE marey_store SET schema_version = ?", [SCHEMA_VERSION + 1])
    before = digests(store_file.parent)
    with pytest.raises(StoreError, match=f"version {SCHEMA_VERSION + 1}.*newer Marey"):
        open_store(store_file)
    assert digests(store_file.parent) == before


def test_a_newer_file_format_of_duckdb_is_refused_and_untouched(store_file: Path) -> None:
    with store_file.open("r+b") as file:
        file.seek(12)
        file.write((10_000).to_bytes(8, "little"))
    before = digests(store_file.parent)
    with pytest.raises(StoreError, match=r"store\.marey"):
        open_store(store_file)
    assert digests(store_file.parent) == before


def test_a_log_without_its_store_is_not_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "store.marey.wal").write_bytes(b"precious")
    with pytest.raises(StoreError, match=r"store\.marey\.wal"):
        open_store(tmp_path / "store.marey")
    assert (tmp_path / "store.marey.wal").read_bytes() == b"precious"


def test_a_missing_folder_and_a_missing_store_to_read_are_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="folder"):
        open_store(tmp_path / "no" / "store.marey")
    with pytest.raises(StoreError, match="no store"):
        open_store(tmp_path / "store.marey", read_only=True)


def test_a_store_opened_for_reading_refuses_writes(store_file: Path) -> None:
    with open_store(store_file, read_only=True) as store:
        assert store.span("default") == (T0, T0 + 30_000)
        with pytest.raises(StoreError, match="read"):
            store.append([batch()])


def test_the_same_process_cannot_open_a_store_twice(tmp_path: Path) -> None:
    path = tmp_path / "store.marey"
    with open_store(path), pytest.raises(Conflict, match="already open"):
        open_store(path)
    open_store(path).close()


def test_a_second_process_is_told_who_holds_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.marey"
    code = (
        "import sys; from marey.store.embedded.embedded_store import open_store\n"
        "from marey.model.errors import Conflict\n"
        "try: open_store(sys.argv[1])\n"
        "except Conflict as error: print(error)\n"
    )
    with open_store(path):
        ran = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
    assert "is held by" in ran.stdout
    assert str(os.getpid()) in ran.stdout


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.marey")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.clusters()
    with pytest.raises(StoreError, match="closed"):
        store.append([batch()])


def test_a_copy_of_the_file_and_its_log_is_a_store(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.marey", tmp_path / "copy.marey"
    with open_store(path) as store:
        store.append([batch()])
        shutil.copy(path, copy)
        shutil.copy(f"{path}.wal", f"{copy}.wal")
    with open_store(copy) as store:
        assert store.span("default") == (T0, T0)


@pytest.mark.parametrize("days", [0, -1, float("nan")])
def test_impossible_retention_is_refused(days: float) -> None:
    with pytest.raises(InvalidInput, match="raw_days"):
        Retention(raw_days=days)


@pytest.fixture
def alarm() -> Iterator[Callable[[], object]]:
    """Sets off a signal that raises ``KeyboardInterrupt`` a moment later."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield partial(signal.setitimer, signal.ITIMER_REAL, 0.02)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# Longer than the signal takes on any machine, and not too long to be waited for: DuckDB
# ends a part that another of its threads has begun before it tells of an interrupt.
LONG_QUESTION = "SELECT range % 7, count(*) FROM range(200000000) GROUP BY 1"


def test_a_signal_while_the_database_works_is_an_interrupt_and_undoes_the_write(
    alarm: Callable[[], object],
) -> None:
    database = Database(None, memory_limit_mb=200)

    def write() -> None:
        with database.write() as connection:
            connection.execute("CREATE TABLE half AS SELECT 1")
            alarm()
            connection.execute(LONG_QUESTION)

    with pytest.raises(KeyboardInterrupt):
        write()
    with pytest.raises(StoreError, match="half"), database.read() as connection:
        connection.execute("FROM half")
    database.close()


def test_a_signal_while_the_database_reads_a_table_of_ours_is_an_interrupt_too() -> None:
    class Interrupted:
        """A table during whose reading Ctrl-C is pressed."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise KeyboardInterrupt

    database = Database(None, memory_limit_mb=200)

    def write() -> None:
        with database.write() as connection:
            connection.execute("CREATE TABLE half AS SELECT 1")
            connection.register("incoming", Interrupted())
            try:
                connection.execute("INSERT INTO half SELECT * FROM incoming")
            finally:
                connection.execute("FROM half")

    with pytest.raises(KeyboardInterrupt):
        write()
    with pytest.raises(StoreError, match="half"), database.read() as connection:
        connection.execute("FROM half")
    database.close()


def test_a_signal_while_a_store_is_created_or_opened_is_an_interrupt_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], object]
) -> None:
    path = tmp_path / "store.duckdb"

    def slowly(connection: duckdb.DuckDBPyConnection) -> None:
        alarm()
        connection.execute(LONG_QUESTION)

    with monkeypatch.context() as patch:
        patch.setattr("marey.store.database.database_file.create_tables", slowly)
        with pytest.raises(KeyboardInterrupt):
            open_store(path)
    assert list(tmp_path.iterdir()) == []

    open_store(path).close()
    with monkeypatch.context() as patch:
        patch.setattr(
            "marey.store.database.database_file._check_version", lambda path, c: slowly(c)
        )
        with pytest.raises(KeyboardInterrupt):
            open_store(path)
    open_store(path).close()

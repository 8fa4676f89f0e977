"""Runs of traces on disk: sent file by file, kept for their time, and deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marey.app.access import upload_usage
from marey.app.settings.configuration import TracesSettings
from marey.app.traces.converter import Conversion
from marey.app.traces.received_files import FILES_LIMIT
from marey.app.traces.trace_library import TraceLibrary
from marey.model.errors import NotFound, TooLarge
from marey.model.times import DAY_MS, HOUR_MS

LARGEST_RUN = 16_384


def send(library: TraceLibrary, run: str, name: str, content: bytes = b"{}") -> None:
    with library.receive(run, name, 0, len(content)) as writer:
        writer.write(content)


def test_a_folder_is_not_counted_again_for_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    scandir = os.scandir

    def count(folder: Path) -> object:
        if Path(folder).name == "files":
            counted.append(folder)
        return scandir(folder)

    monkeypatch.setattr(upload_usage.os, "scandir", count)
    library = TraceLibrary(tmp_path / "traces")
    run = library.create("many ranks").id
    for rank in range(50):
        send(library, run, f"rank{rank}.json")
    assert len(counted) <= 2
    assert library.limits().used_bytes == sum(
        entry.stat().st_size for entry in scandir(tmp_path / "traces" / run / "files")
    )


def test_a_run_takes_a_file_of_each_of_16384_ranks_and_says_where_it_ends(
    tmp_path: Path,
) -> None:
    assert FILES_LIMIT >= LARGEST_RUN
    library = TraceLibrary(tmp_path / "traces")
    run = library.create("largest").id
    send(library, run, "rank0.json")
    folder = tmp_path / "traces" / run / "files"
    for rank in range(1, FILES_LIMIT):
        # As they lie there once sent; sending them all is bench trace_upload.
        (folder / f"rank{rank}.json.facts").write_bytes(b'{"name":"rank%d.json","bytes":2}' % rank)
        if rank == LARGEST_RUN:
            again = TraceLibrary(tmp_path / "traces")
            send(again, run, "one more.json")
    assert len(library.files(run)) == FILES_LIMIT + 1
    with pytest.raises(TooLarge, match="20000 files"):
        send(TraceLibrary(tmp_path / "traces"), run, "too many.json")


def test_what_is_removed_or_sent_again_is_not_counted_twice(tmp_path: Path) -> None:
    library = TraceLibrary(tmp_path / "traces")
    run = library.create("again").id
    send(library, run, "a.json", b"x" * 1000)
    send(library, run, "a.json", b"x" * 400)
    facts = len(b'{"name":"a.json","bytes":400}')
    assert library.limits().used_bytes == 400 + facts
    library.remove_file(run, "a.json")
    assert library.limits().used_bytes == 0


def test_uploaded_runs_go_after_their_retention(tmp_path: Path) -> None:
    now_ms = 100 * DAY_MS
    library = TraceLibrary(tmp_path / "traces", TracesSettings(retention_ms=7 * DAY_MS))
    library.now_ms = lambda: now_ms
    old, young = library.create("old").id, ""
    send(library, old, "rank0.json")
    now_ms += 6 * DAY_MS
    young = library.create("young").id
    now_ms += DAY_MS + HOUR_MS
    library.clean()
    with pytest.raises(NotFound):
        library.get(old)
    assert [run.id for run in library.list_runs()] == [young]
    assert sorted(entry.name for entry in os.scandir(tmp_path / "traces")) == [young]


def test_what_was_made_of_a_folder_stays_as_long_as_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "site" / "job7"
    folder.mkdir(parents=True)
    (folder / "rank0.json").write_text("{}")
    os.utime(folder, (1, 1))
    os.utime(folder / "rank0.json", (1, 1))
    settings = TracesSettings(folders=(str(tmp_path / "site"),), retention_ms=DAY_MS)
    library = TraceLibrary(tmp_path / "traces", settings)
    library.now_ms = lambda: 1000 * DAY_MS
    (found,) = library.list_runs()
    library._save(library.get(found.id))
    library._cleaned_ms = 0
    library.clean()
    assert (tmp_path / "traces" / found.id).is_dir()
    (folder / "rank0.json").unlink()
    folder.rmdir()
    library._cleaned_ms = 0
    library.clean()
    assert not (tmp_path / "traces" / found.id).exists()


def test_a_server_that_ended_while_it_deleted_shows_no_ghost(tmp_path: Path) -> None:
    library = TraceLibrary(tmp_path / "traces")
    run = library.create("gone").id
    left = tmp_path / "traces" / f".deleted-{run}-0a"
    (tmp_path / "traces" / run).rename(left)
    assert library.list_runs() == []
    assert not left.exists()


def test_a_record_read_before_its_conversion_ended_is_not_called_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = TraceLibrary(tmp_path / "traces")
    run = library.create("quick").id
    ended = Conversion(run, doing="writing", over=True)
    early = library.get(run)
    early.state = "converting"
    library._save(early)
    monkeypatch.setattr(library._converter, "find", lambda _: ended)
    assert library.summarise(early).state == "converting"
    ended.error = "no events"
    library._finish(ended)
    monkeypatch.setattr(library._converter, "find", lambda _: None)
    assert library.summarise(early).state == "failed"

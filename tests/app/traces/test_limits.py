"""Files that would take the server's memory, time or disk: refused, with the reason."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from marey.app.access import upload_room
from marey.app.history.uploads import Uploads
from marey.app.settings.configuration import TracesSettings
from marey.app.traces.children.limited_child import (
    describe_end,
    describe_failure,
    run_child_task,
    start_child,
)
from marey.app.traces.children.report_process import RunSide, make_difference, make_report
from marey.app.traces.conversion_process import ConversionTask
from marey.app.traces.converter import Conversion
from marey.app.traces.trace_library import TraceLibrary
from marey.model.access.current import acting_as
from marey.model.access.identity import Identity, Role
from marey.model.errors import InvalidInput, TooLarge
from marey.trace.readers import streams

ADA, BEN = Identity("ada", Role.RESEARCHER), Identity("ben", Role.RESEARCHER)
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Less than 400 kB that unpack to 320 MB of a well-formed trace."""
    folder = tmp_path_factory.mktemp("bomb")
    path = folder / "rank0.json.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(320):
            file.write(b" " * MEGABYTE)
        file.write(b"]}")
    assert path.stat().st_size < 400_000
    return path


def test_a_bomb_is_not_unpacked(bomb: Path) -> None:
    read = 0
    with streams.TraceBytes(bomb) as stream:
        while piece := stream.read(4 * MEGABYTE):
            read += len(piece)
        assert "times its size" in (stream.damage or "")
    assert read <= streams.GROWTH_FREE_BYTES + 4 * MEGABYTE


def test_a_report_on_a_bomb_is_refused_by_the_child(bomb: Path, tmp_path: Path) -> None:
    told: list[float] = []
    with pytest.raises(InvalidInput):
        make_report(bomb.parent, tmp_path / "cache", lambda done, total: told.append(done / total))


def test_a_comparison_with_a_bomb_is_refused_by_the_child(bomb: Path, tmp_path: Path) -> None:
    sides = [RunSide([str(bomb)], str(tmp_path / side)) for side in "ab"]
    with pytest.raises(InvalidInput):
        make_difference(*sides)


@pytest.mark.slow
def test_a_child_past_its_memory_says_so(tmp_path: Path) -> None:
    trace = tmp_path / "rank0.json"
    event = b'{"ph":"X","cat":"kernel","name":"k%d","pid":0,"tid":7,"ts":%d,"dur":3},'
    events = b"".join(event % (at, at * 5) for at in range(200_000))
    trace.write_bytes(b'{"traceEvents": [' + events.rstrip(b",") + b"]}")
    task = ConversionTask([str(trace)], str(tmp_path / "cache"), str(tmp_path / "views"))
    conversion = Conversion("x")
    conversion.work(msgspec.structs.replace(task, memory_bytes=40 * MEGABYTE))
    assert conversion.result is None
    assert "memory" in conversion.error, conversion.error


def test_an_end_by_the_system_is_explained() -> None:
    assert "memory" in describe_end(-6)
    assert "computing time" in describe_end(-24)
    assert "code 3" in describe_end(3)
    assert "memory" in describe_failure(MemoryError())


def test_a_child_that_ends_before_it_reads_is_no_error_of_ours() -> None:
    with start_child("this") as process:
        run_child_task(process, b"x" * MEGABYTE, lambda line: None)
    assert process.returncode == 0


def test_one_user_cannot_take_the_room_of_all(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "files", total_limit=20)
    with acting_as(ADA), uploads.receiving("import:a", "1") as receiver:
        receiver.write(b"x" * 10)
    with (
        acting_as(ADA),
        pytest.raises(TooLarge, match="one user"),
        uploads.receiving("import:a", "2") as receiver,
    ):
        receiver.write(b"x")
    with acting_as(BEN), uploads.receiving("import:b", "1") as receiver:
        receiver.write(b"x" * 10)
    assert [file.by for file in uploads.files("import:b")] == ["ben"]


def test_runs_have_a_share_per_user_too(tmp_path: Path) -> None:
    settings = TracesSettings(total_limit_mb=4, user_limit_mb=1)
    library = TraceLibrary(tmp_path / "traces", settings, is_workload=lambda *_: True)
    with acting_as(ADA):
        run = library.create("mine").id
        with library.receive(run, "a.json", 0, 1_000_000) as writer:
            writer.write(b"x" * 1_000_000)
        with pytest.raises(TooLarge, match="one user"), library.receive(run, "b.json", 0, 1):
            pass
    with acting_as(BEN), library.receive(library.create("his").id, "b.json", 0, 1) as writer:
        writer.write(b"x")
    library.close()


def test_the_disk_keeps_a_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = upload_room.DISK_RESERVE_BYTES + 5
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    uploads = Uploads(tmp_path / "files")
    with (
        pytest.raises(TooLarge, match="disk is nearly full"),
        uploads.receiving("import:a", "1") as receiver,
    ):
        receiver.write(b"x" * 6)
    assert uploads.files("import:a") == []

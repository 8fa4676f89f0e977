"""Which files are traces, which rank each is, and what is said about the rest."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zstandard

from marey.model.errors import InvalidInput, NotFound
from marey.trace.run.trace_run import TraceRun, open_run


def trace(rank: int | None, count: int = 3, name: str = "aten::mm") -> dict[str, Any]:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": n * 10, "dur": 5}
        for n in range(count)
    ]
    shared = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 4}}
    return {"schemaVersion": 1, **shared, "traceEvents": events}


def put(path: Path, content: dict[str, Any] | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def notes(run: TraceRun) -> dict[str, str]:
    said: dict[str, str] = {}
    for note in run.notes:
        said[note.file] = f"{said.get(note.file, '')} {note.text}"
    return said


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "traces").mkdir()
    return tmp_path / "traces"


def test_plain_gzip_and_zstd_read_the_same(folder: Path, cache: Path) -> None:
    text = json.dumps(trace(0)).encode()
    for name, content in (
        ("a.json", text),
        ("b.json.gz", gzip.compress(text)),
        ("c.json.gz", gzip.compress(text[:100]) + gzip.compress(text[100:])),
        ("d.json.zst", zstandard.compress(text)),
        ("e.json.zst", zstandard.compress(text[:100]) + zstandard.compress(text[100:])),
    ):
        run = open_run(put(folder / name, content), cache=cache)
        assert len(run.events(0)) == 3
        assert not run.notes


def test_ranks_come_from_the_trace_then_the_name_then_zero(folder: Path, cache: Path) -> None:
    put(folder / "first.json", trace(3))
    put(folder / "rank-12.Jul_15.pt.trace.json", trace(None))
    put(folder / "proc1" / "plugins" / "trace.json", trace(None))
    assert open_run(folder, cache=cache).ranks == [1, 3, 12]
    alone = put(folder / "other" / "alone.json", trace(None))
    assert open_run(alone, cache=cache).ranks == [0]


def test_files_without_any_rank_are_numbered_with_a_note(folder: Path, cache: Path) -> None:
    put(folder / "a2.json", trace(None, name="two"))
    put(folder / "a10.json", trace(None, name="ten"))
    run = open_run(folder, cache=cache)
    assert run.ranks == [0, 1]
    assert run.info(0).source == "a2.json"
    assert set(notes(run)) == {"a2.json", "a10.json"}
    assert run.events(1)["rank"].to_pylist() == [1, 1, 1]


def test_of_two_files_of_one_rank_the_better_is_kept_and_the_other_named(
    folder: Path, cache: Path
) -> None:
    put(folder / "a.json", trace(0, 2))
    put(folder / "b.json", trace(0, 9))
    put(
        folder / "et_rank0.json",
        {"schema": "1.1.0-chakra.0.0.4", "nodes": [{"id": 1, "name": "x"}]},
    )
    run = open_run(folder, cache=cache)
    assert run.info(0).source == "b.json"
    assert "rank 0 again; b.json is used" in notes(run)["a.json"]
    assert "et_rank0.json" in notes(run)


def test_what_is_not_a_trace_is_named_and_the_rest_is_used(folder: Path, cache: Path) -> None:
    put(folder / "rank0.json", trace(0))
    put(folder / "truth.json", {"slow_rank": 1})
    put(folder / "noise.json.gz", b"\x1f\x8bnot really")
    put(folder / "random.bin", bytes(range(256)))
    put(folder / "empty.json", b"")
    run = open_run(folder, cache=cache)
    assert run.ranks == [0]
    assert set(notes(run)) == {"truth.json", "noise.json.gz", "random.bin", "empty.json"}


@pytest.mark.parametrize("native", [True, False])
def test_a_truncated_trace_gives_its_whole_events_and_a_note(
    folder: Path, cache: Path, native: bool
) -> None:
    text = json.dumps(trace(0, 100)).encode()
    put(folder / "rank0.json", text[: len(text) // 2])
    run = open_run(folder, cache=cache, native=native)
    assert 40 <= len(run.events(0)) <= 50
    assert "cut short" in notes(run)["rank0.json"]


def test_a_truncated_gzip_file_gives_what_came_before(folder: Path, cache: Path) -> None:
    packed = gzip.compress(json.dumps(trace(0, 20000)).encode())
    put(folder / "rank0.json.gz", packed[: len(packed) // 2])
    run = open_run(folder, cache=cache)
    assert 0 < len(run.events(0)) < 20000
    assert "cut short" in notes(run)["rank0.json.gz"]


@pytest.mark.parametrize("native", [True, False])
def test_damage_inside_costs_only_the_damaged_events(
    folder: Path, cache: Path, native: bool
) -> None:
    text = json.dumps(trace(0, 100)).encode()
    middle = text.index(b'"ts": 500')
    put(folder / "rank0.json", text[:middle] + b'"ts": @@@@' + text[middle + 9 :])
    run = open_run(folder, cache=cache, native=native)
    assert len(run.events(0)) == 99
    assert "1 events could not be read" in " ".join(note.text for note in run.notes)


def test_concatenated_traces_are_both_read_with_a_note(folder: Path, cache: Path) -> None:
    first = trace(0, 3) | {"baseTimeNanoseconds": 1000}
    second = trace(0, 4) | {"baseTimeNanoseconds": 5000}
    put(folder / "rank0.json", json.dumps(first).encode() + b"\n" + json.dumps(second).encode())
    run = open_run(folder, cache=cache)
    starts = run.events(0)["start_ns"].to_pylist()
    assert sorted(starts) == sorted(
        [1000 + n * 10000 for n in range(3)] + [5000 + n * 10000 for n in range(4)]
    )
    assert "2 traces one after the other" in notes(run)["rank0.json"]


@pytest.mark.parametrize("native", [True, False])
def test_the_trailer_may_look_like_events(folder: Path, cache: Path, native: bool) -> None:
    content = trace(0, 5)
    content["deviceProperties"] = [{"id": 0}, {"id": 1, "name": "}, {"}, {"x": [{}, {}]}]
    run = open_run(put(folder / "rank0.json", content), cache=cache, native=native)
    assert len(run.events(0)) == 5
    assert not run.notes


def test_blocks_are_cut_between_events_whatever_the_names_say(folder: Path, cache: Path) -> None:
    from marey.trace.readers.json.json_blocks import read_events
    from marey.trace.readers.json.msgspec_parser import MsgspecParser
    from marey.trace.readers.json.native_parser import NativeParser
    from marey.trace.readers.json.raw_columns import BlockCollector
    from marey.trace.readers.streams import TraceBytes

    content = trace(0, 500, name='tricky }, { "ph": "X" ] } \\" \u00e9')
    for n, one in enumerate(content["traceEvents"]):
        one["args"] = {"nested": [{"a": n}, {"b": {}}], "correlation": n}
    path = put(folder / "rank0.json", content)
    for parser in (NativeParser(), MsgspecParser()):
        for block in (300, 1000, 4096):
            collector = BlockCollector()
            with TraceBytes(path) as stream:
                reading = read_events(stream, parser, collector, block_bytes=block)
            raw = collector.finish(parser)
            assert raw.spans.start_ns.tolist() == [n * 10_000 for n in range(500)]
            assert raw.spans.args["correlation"].values.tolist() == list(range(500))
            assert not reading.problems


def test_a_path_without_events_is_an_error_that_says_why(folder: Path, cache: Path) -> None:
    put(folder / "truth.json", {"slow_rank": 1})
    with pytest.raises(InvalidInput, match=r"truth\.json"):
        open_run(folder, cache=cache)
    with pytest.raises(NotFound, match="nowhere"):
        open_run(folder / "nowhere", cache=cache)
    with pytest.raises(InvalidInput, match="No trace was named"):
        open_run([], cache=cache)


def test_globs_and_lists_are_understood(folder: Path, cache: Path) -> None:
    for rank in range(3):
        put(folder / f"rank{rank}.json", trace(rank))
    assert open_run(str(folder / "rank[01].json"), cache=cache).ranks == [0, 1]
    assert open_run([folder / "rank2.json", folder / "rank0.json"], cache=cache).ranks == [0, 2]


def test_an_unknown_rank_is_an_error_that_names_the_known_ones(folder: Path, cache: Path) -> None:
    put(folder / "rank0.json", trace(0))
    run = open_run(folder, cache=cache)
    with pytest.raises(NotFound, match=r"Unknown rank 9; this trace has ranks 0\."):
        run.events(9)


def test_names_are_coded_once_for_the_whole_run(folder: Path, cache: Path) -> None:
    put(folder / "rank0.json", trace(0, name="only here"))
    put(folder / "rank1.json", trace(1, name="only there"))
    put(folder / "rank2.json", trace(2, name="only here"))
    run = open_run(folder, cache=cache)
    names = [run.events(rank)["name"].to_pylist()[0] for rank in run.ranks]
    assert names[0] == names[2] != names[1]
    assert run.symbols.text(names[1]) == "only there"
    assert run.symbols.code("only here") == names[0]
    assert run.symbols.codes_where(lambda text: "there" in text).tolist() == [names[1]]


def test_tables_are_made_once_and_again_when_the_file_changes(folder: Path, cache: Path) -> None:
    path = put(folder / "rank0.json", trace(0, 3))
    first = open_run(folder, cache=cache)
    entries = {p: p.stat().st_mtime_ns for p in cache.iterdir()}
    assert len(open_run(folder, cache=cache).events(0)) == 3
    assert {p: p.stat().st_mtime_ns for p in cache.iterdir()} == entries
    put(path, trace(0, 7))
    assert len(open_run(folder, cache=cache).events(0)) == 7
    assert len(first.events(0)) == 3
    assert sorted(p.name for p in folder.iterdir()) == ["rank0.json"]
    assert not list(cache.glob(".draft*"))


def test_a_damaged_cache_entry_is_made_again(folder: Path, cache: Path) -> None:
    put(folder / "rank0.json", trace(0, 3))
    open_run(folder, cache=cache)
    (entry,) = cache.iterdir()
    (entry / "index.json").write_text("{")
    assert len(open_run(folder, cache=cache).events(0)) == 3


def test_progress_ends_at_one_and_never_goes_back(folder: Path, cache: Path) -> None:
    for rank in range(3):
        put(folder / f"rank{rank}.json", trace(rank))
    told: list[float] = []
    open_run(folder, cache=cache, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_any_executor_converts_the_ranks(folder: Path, cache: Path) -> None:
    for rank in range(4):
        put(folder / f"rank{rank}.json", trace(rank, rank + 1))
    with ThreadPoolExecutor(2) as executor:
        run = open_run(folder, cache=cache, executor=executor)
    assert [len(run.events(rank)) for rank in run.ranks] == [1, 2, 3, 4]


def test_processes_convert_the_ranks(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marey.trace.run.opening.WORTH_PROCESSES_BYTES", 0)
    for rank in range(3):
        put(folder / f"rank{rank}.json", trace(rank, rank + 1))
    run = open_run(folder, cache=cache)
    assert [len(run.events(rank)) for rank in run.ranks] == [1, 2, 3]


@pytest.mark.real
def test_a_dask_cluster_converts_the_ranks(folder: Path, cache: Path, need_module: Any) -> None:
    distributed = need_module("distributed")
    for rank in range(4):
        put(folder / f"rank{rank}.json", trace(rank, rank + 1))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert len(client.scheduler_info()["workers"]) == 2
        run = open_run(folder, cache=cache, executor=client.get_executor())
    assert [len(run.events(rank)) for rank in run.ranks] == [1, 2, 3, 4]
    assert run.info(3).source == "rank3.json"


def test_the_cache_may_be_named_by_its_text(folder: Path, cache: Path) -> None:
    put(folder / "rank0.json", trace(0))
    assert open_run(folder, cache=str(cache)).ranks == [0]
    assert any(cache.iterdir())


def test_a_cache_that_cannot_be_made_is_named_as_such(folder: Path, tmp_path: Path) -> None:
    put(folder / "rank0.json", trace(0))
    put(tmp_path / "taken", b"")
    with pytest.raises(InvalidInput, match=r"cannot be kept in .*taken: File exists"):
        open_run(folder, cache=tmp_path / "taken")


def test_an_empty_path_is_not_the_folder_one_stands_in() -> None:
    with pytest.raises(InvalidInput, match="No trace was named"):
        open_run("")

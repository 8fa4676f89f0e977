"""Files that are cut short, badly written or packed: read as far as they go, never too surely."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marey.model.errors import InvalidInput
from marey.trace.readers.trace_info import RankInfo
from marey.trace.report.report_document import report_document
from marey.trace.run.missing_ranks import find_missing_peers
from tests.trace.readers.test_unseen_formats import KINETO, Event, busy, host, launch, report

DOUBTED = 0.55


def starved(count: int = 60) -> list[Event]:
    """A device whose host launches late: surely host-bound, if the whole file is there."""
    events: list[Event] = []
    for n in range(count):
        events.append(host(1000 * n, 900, "aten::mm", "cpu_op"))
        events.append(launch(1000 * n + 890, n))
        events.append(
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7}
            | {"ts": 1000 * n + 900, "dur": 90}
            | {"args": {"correlation": n, "device": 0, "stream": 7}}
        )
    return events


def say(folder: Path, data: bytes, name: str = "trace.json") -> dict[str, Any]:
    """What Marey says of a file of these bytes."""
    path = folder / name
    path.write_bytes(data)
    return report_document(path, cache=folder / "cache")


def text_of(events: list[Event]) -> bytes:
    return json.dumps({**KINETO, "traceEvents": events}).encode()


def test_the_whole_file_is_judged_surely(tmp_path: Path) -> None:
    (verdict,) = say(tmp_path, text_of(starved()))["verdicts"]
    assert verdict["kind"] == "host_bound"
    assert verdict["confidence"] > 0.9


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_is_left_of_a_file_is_never_judged_surely(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    data = pack(text_of(starved()))
    document = say(tmp_path, data[: len(data) * 2 // 3])
    assert document["verdicts"]
    for verdict in document["verdicts"]:
        assert verdict["confidence"] <= DOUBTED
        assert any("cut short" in line for line in verdict["evidence"])


@pytest.mark.parametrize(
    ("right", "written"),
    [
        (b"aten::mm", b"aten\x01::mm"),
        (b"aten::mm", b"C:\\Users\\mm"),
        (b"aten::mm", b"aten::\xff\xfemm"),
    ],
)
def test_names_that_json_forbids_lose_no_event(
    tmp_path: Path, right: bytes, written: bytes
) -> None:
    whole = say(tmp_path, text_of(starved()))
    document = say(tmp_path, text_of(starved()).replace(right, written), "bad.json")
    assert document["ranks"][0]["idle_host_ms"] == whole["ranks"][0]["idle_host_ms"]
    assert document["verdicts"][0]["confidence"] == whole["verdicts"][0]["confidence"]
    assert not any("could not be read" in note["text"] for note in document["notes"])


def test_events_that_are_lost_make_every_verdict_doubtful(tmp_path: Path) -> None:
    broken = text_of(starved()).replace(b'"name": "gemm"', b'"name": gemm', 5)
    document = say(tmp_path, broken)
    assert all(v["confidence"] <= DOUBTED for v in document["verdicts"])
    assert any("5 events" in note["text"] for note in document["notes"])


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    document = say(tmp_path, b"\xef\xbb\xbf" + text_of(starved()))
    assert document["verdicts"][0]["kind"] == "host_bound"


def _pack_tar(data: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("run/trace.json")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _pack_zip(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("trace.json", data)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "pack", "word"),
    [
        ("trace.tar.gz", _pack_tar, "tar xf"),
        ("trace.zip", _pack_zip, "unpack it"),
        ("trace.json.bz2", bz2.compress, "unpack it"),
        ("trace.json", lambda data: data.decode().encode("utf-16"), "iconv"),
    ],
)
def test_archives_and_other_encodings_are_refused_with_the_way_out(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], word: str
) -> None:
    with pytest.raises(InvalidInput, match=word):
        say(tmp_path, pack(text_of(busy())), name)


def test_begin_and_end_events_are_events_of_any_dialect(tmp_path: Path) -> None:
    whole = say(tmp_path, text_of(starved()))["ranks"][0]
    pairs: list[Event] = []
    for event in starved():
        end = event["ts"] + event.pop("dur")
        where = {key: event[key] for key in ("pid", "tid", "name", "cat")}
        pairs += [{**event, "ph": "B"}, {**where, "ph": "E", "ts": end}]
    assert say(tmp_path, text_of(pairs), "pairs.json")["ranks"][0] == whole


@pytest.mark.parametrize("native", [True, False])
def test_ids_of_64_bits_without_sign_link_kernels_to_their_launches(
    tmp_path: Path, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr("marey.trace.readers.json.chrome_json.native_module", lambda: None)
    events = starved()
    for event in events:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] += 2**63 + 5
            event["args"]["External id"] = 2**64 - 1
    (verdict,) = say(tmp_path, text_of(events))["verdicts"]
    assert verdict["kind"] == "host_bound"


def test_kernels_without_any_link_are_work_all_the_same(tmp_path: Path) -> None:
    events = busy()
    for event in events:
        event["args"].pop("correlation")
    (verdict,) = report(tmp_path, events, **KINETO)["verdicts"]
    assert (verdict["kind"], verdict["confidence"]) == ("none", 0.7)


def capture(begin: float, end: float) -> list[Event]:
    """The calls that begin and end the capture of a graph."""
    return [
        host(begin, 2, "cudaStreamBeginCapture", "cuda_runtime"),
        host(end, 2, "cudaStreamEndCapture", "cuda_runtime"),
    ]


def test_a_host_that_captures_graphs_between_warm_ups_is_not_host_bound(tmp_path: Path) -> None:
    later = busy(20, start=60_000)
    for event in later:
        event["args"]["correlation"] += 1_000
    events = busy(20) + later + [launch(21_000 + 100 * n, 10_000 + n) for n in range(300)]
    events += capture(20_500, 58_000)
    (verdict,) = report(tmp_path, events, **KINETO)["verdicts"]
    assert verdict["kind"] == "graph_capture"


def test_a_short_capture_in_a_long_run_only_makes_it_doubtful(tmp_path: Path) -> None:
    events = starved() + capture(10_100, 19_800)
    (verdict,) = report(tmp_path, events, **KINETO)["verdicts"]
    assert verdict["kind"] == "host_bound"
    assert verdict["confidence"] <= DOUBTED
    assert any("captured graphs" in line for line in verdict["evidence"])


def test_work_of_captured_graphs_is_no_missing_work(tmp_path: Path) -> None:
    """Many launches were recorded into a graph; its one launch brings all their kernels."""
    events = [launch(n * 10, n) for n in range(300)]
    graph = launch(4000, 9_999)
    graph["name"] = "cudaGraphLaunch"
    kernels = busy(60, start=4_010)[60:]
    for event in kernels:
        event["args"]["correlation"] = 9_999
    (verdict,) = report(tmp_path, [*events, graph, *kernels], **KINETO)["verdicts"]
    assert verdict["confidence"] > 0


def test_formats_that_nobody_tried_say_so_in_the_report(tmp_path: Path) -> None:
    texts = busy()
    for event in texts:
        event["ts"] = str(event["ts"])
    merged = [
        {**event, "pid": f"[TP{rank:02d}] {event['pid']}"} for rank in (0, 1) for event in busy()
    ]
    for number, events in enumerate((texts, merged)):
        folder = tmp_path / str(number)
        folder.mkdir()
        document = report(folder, events, **KINETO)
        assert any("never tried on a real recording" in n["text"] for n in document["notes"])
        assert all(v["confidence"] <= DOUBTED for v in document["verdicts"])


def test_displays_of_mindspore_are_devices_and_what_runs_beside_them(tmp_path: Path) -> None:
    rows = [
        {"name": f"Conv2D-op{n}", "ph": "X", "tid": "519", "ts": 1000.0 + 100 * n, "dur": 90.0}
        | {"pid": 1, "args": {"type": "Conv2D", "fullname": f"Default/net/Conv2D-op{n}"}}
        for n in range(20)
    ]
    beside = [{"name": "GetNext", "ph": "X", "tid": "0", "ts": 0.0, "dur": 500.0, "pid": 9000}]
    row = say(tmp_path, json.dumps(beside + rows).encode(), "ascend_timeline_display_3.json")
    assert row["run"]["has_device"]
    assert [r["rank"] for r in row["ranks"]] == [3]
    assert row["ranks"][0]["span_ms"] == pytest.approx(1.99)
    assert row["ranks"][0]["compute_ms"] == pytest.approx(1.8)
    operators = [{**r, "tid": "Ops", "pid": 0, "name": f"Default/{r['name']}"} for r in rows]
    kernels = [{**r, "tid": "17", "pid": 0, "name": "sgemm", "dur": 50.0} for r in rows]
    data = json.dumps(operators + kernels).encode()
    gpu = say(tmp_path, data, "gpu_timeline_display_0.json")
    assert gpu["ranks"][0]["compute_ms"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("infos", "missing"),
    [
        ([RankInfo(0, world_size=4), RankInfo(2, world_size=4)], (1, 3)),
        ([RankInfo(0, groups={"pp": (0, 3)}), RankInfo(3, groups={"pp": (0, 3)})], ()),
        ([RankInfo(0, groups={"pp": (0, 3)}, world_size=64)], (3,)),
        ([RankInfo(0), RankInfo(1)], ()),
        ([RankInfo(0, world_size=8, process=0, device=0)], ()),
    ],
)
def test_ranks_of_the_same_groups_that_were_not_recorded_are_known(
    infos: list[RankInfo], missing: tuple[int, ...]
) -> None:
    assert find_missing_peers({info.rank: info for info in infos}) == missing

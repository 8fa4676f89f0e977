"""Real recordings, rewritten or damaged on purpose: figures hold, no verdict grows too sure."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marey.trace.report.report_document import report_document

Document = dict[str, Any]
RECORDINGS = ("bert-h100", "bert-mi300", "sglang-decode", "triton", "vllm-decode")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
FIGURES = (
    *("span_ms", "busy_ms", "compute_ms", "idle_ms", "comm_ms", "exposed_comm_ms"),
    *("hidden_comm_ms", "memcpy_ms", "exposed_memcpy_ms"),
)


def load(data_dir: Path, name: str) -> Document:
    """The events of a recording, kept small."""
    (path,) = (data_dir / "recordings" / "public" / name).glob("*.json.gz")
    document: Document = json.loads(gzip.decompress(path.read_bytes()))
    return document


def say(document: Any, folder: Path) -> Document:
    """What Marey says of it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trace.json"
    path.write_text(json.dumps(document))
    return report_document(path, cache=folder / "cache")


def is_work(event: Document) -> bool:
    return event.get("cat") in DEVICE


@pytest.fixture(scope="module", params=RECORDINGS)
def recording(request: pytest.FixtureRequest, data_dir: Path) -> Document:
    """One real recording."""
    return load(data_dir, request.param)


@pytest.fixture(scope="module")
def said(recording: Document, tmp_path_factory: pytest.TempPathFactory) -> Document:
    """What Marey says of it as it is."""
    return say(recording, tmp_path_factory.mktemp("plain"))


def shuffle(events: list[Document]) -> None:
    random.Random(1).shuffle(events)


def write_ids_as_texts(events: list[Document]) -> None:
    for event in events:
        event.update({key: str(event[key]) for key in ("pid", "tid") if key in event})


def forget_shapes(events: list[Document]) -> None:
    for event in events:
        for key in ("Input Dims", "Input type", "Ev Idx", "Concrete Inputs"):
            event.get("args", {}).pop(key, None)


def scale(events: list[Document]) -> None:
    for event in events:
        event.update({key: 4 * event[key] for key in ("ts", "dur") if key in event})


def add_device(events: list[Document]) -> None:
    for event in [e for e in events if is_work(e)]:
        twin = copy.deepcopy(event)
        twin["pid"] = twin["args"]["device"] = 77
        events.append(twin)


@pytest.mark.parametrize(
    ("change", "factor"),
    [(shuffle, 1), (write_ids_as_texts, 1), (forget_shapes, 1), (scale, 4), (add_device, 1)],
)
def test_figures_do_not_depend_on_how_a_recording_is_written(
    recording: Document,
    said: Document,
    tmp_path: Path,
    change: Callable[[list[Document]], None],
    factor: int,
) -> None:
    changed = copy.deepcopy(recording)
    change(changed["traceEvents"])
    after = say(changed, tmp_path)
    row = said["ranks"][0]
    same = next(r for r in after["ranks"] if r.get("device") != 77)
    for name in FIGURES:
        assert same[name] == pytest.approx(factor * row[name], rel=1e-6, abs=2e-3), name
    assert after["verdicts"][0]["kind"] == said["verdicts"][0]["kind"]


def drop_host(events: list[Document]) -> None:
    events[:] = [e for e in events if e.get("ph") == "M" or is_work(e)]


def drop_work(events: list[Document]) -> None:
    events[:] = [e for e in events if not is_work(e)]


def drop_half_of_the_work(events: list[Document]) -> None:
    chance = random.Random(2)
    events[:] = [e for e in events if not is_work(e) or chance.random() < 0.5]


def drop_links(events: list[Document]) -> None:
    for event in events:
        for key in ("correlation", "External id"):
            event.get("args", {}).pop(key, None)


def drop_arguments(events: list[Document]) -> None:
    for event in events:
        if event.get("ph") != "M":
            event.pop("args", None)


def turn_durations(events: list[Document]) -> None:
    for event in events[::7]:
        if "dur" in event:
            event["dur"] = -event["dur"]


def leave_a_gap(events: list[Document]) -> None:
    times = sorted(float(e["ts"]) for e in events if e.get("ph") == "X")
    middle, long = times[len(times) // 2], 5 * (times[-1] - times[0])
    for event in events:
        if event.get("ph") != "M" and float(event.get("ts", 0)) >= middle:
            event["ts"] = float(event["ts"]) + long


BLIND = (drop_host, drop_links, drop_arguments)


@pytest.mark.parametrize(
    "change", [*BLIND, drop_work, drop_half_of_the_work, turn_durations, leave_a_gap]
)
def test_what_is_missing_makes_no_verdict_surer_than_the_table_allows(
    recording: Document, tmp_path: Path, change: Callable[[list[Document]], None]
) -> None:
    changed = copy.deepcopy(recording)
    change(changed["traceEvents"])
    after = say(changed, tmp_path)
    first = after["verdicts"][0]
    sure = first["confidence"] >= 0.6
    idle = max((r["idle_ms"] / r["span_ms"] for r in after["ranks"] if r["span_ms"] > 0), default=0)
    assert not (sure and first["kind"] == "none" and idle > 0.3)
    assert not (sure and first["kind"] in ("host_bound", "input_bound") and idle < 0.02)
    if change in BLIND:
        assert not (sure and first["kind"] == "host_bound")
    if change is drop_work:
        assert not sure


def judge_part(data_dir: Path, folder: str, ranks: tuple[int, ...], made: Path) -> list[Document]:
    """The verdicts on a part of a run's ranks."""
    for path in sorted((data_dir / folder).iterdir()):
        number = re.fullmatch(r"rank0*(\d+)\.json(?:\.gz)?", path.name)
        if number and int(number[1]) in ranks:
            shutil.copy(path, made / path.name)
    verdicts: list[Document] = report_document(made, cache=made / "cache")["verdicts"]
    return verdicts


def test_of_two_ranks_only_the_one_that_loads_slowly_is_blamed(
    data_dir: Path, tmp_path: Path
) -> None:
    first = judge_part(data_dir, "traces/torch-cpu/ddp-slow-data", (0, 1), tmp_path)[0]
    assert (first["kind"], first["ranks"]) == ("input_bound", [1])


def test_the_heaviest_of_the_recorded_stages_need_not_be_the_heaviest(
    data_dir: Path, tmp_path: Path
) -> None:
    folder = "recordings/what-if/pp-1f1b-m8-unbalanced"
    found = judge_part(data_dir, folder, (0, 1), tmp_path)
    assert all(v["confidence"] < 0.6 for v in found if v["kind"] == "stage_imbalance")


def rewrite_ranks(
    data_dir: Path, folder: str, made: Path, change: Callable[[int, list[Document]], None]
) -> Document:
    """The first verdict on a run whose events were changed rank by rank."""
    for rank in range(4):
        document = json.loads(
            gzip.decompress((data_dir / folder / f"rank{rank}.json.gz").read_bytes())
        )
        change(rank, document["traceEvents"])
        (made / f"rank{rank}.json").write_text(json.dumps(document))
    first: Document = report_document(made, cache=made / "cache")["verdicts"][0]
    return first


def cut_in_the_third_step(_: int, events: list[Document]) -> None:
    timed = [e for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
    start = min(float(e["ts"]) for e in timed)
    end = max(float(e["ts"]) + float(e["dur"]) for e in timed)
    limit = start + 0.6 * (end - start)
    events[:] = [
        e
        for e in events
        if e.get("ph") == "M" or float(e.get("ts", 0)) + float(e.get("dur", 0)) <= limit
    ]


def hurry_the_clock_of_the_last(rank: int, events: list[Document]) -> None:
    if rank == 3:
        scale(events)
        scale(events)


def test_two_noisy_steps_of_a_pipeline_accuse_no_stage(data_dir: Path, tmp_path: Path) -> None:
    first = rewrite_ranks(data_dir, "traces/torch-cpu/pp", tmp_path, cut_in_the_third_step)
    assert first["kind"] != "stage_imbalance" or first["confidence"] < 0.6


def test_clocks_that_count_differently_make_nothing_sure(data_dir: Path, tmp_path: Path) -> None:
    first = rewrite_ranks(data_dir, "traces/torch-cpu/pp", tmp_path, hurry_the_clock_of_the_last)
    assert first["confidence"] < 0.6
    assert "clocks of the ranks fit together to" in " ".join(first["evidence"])

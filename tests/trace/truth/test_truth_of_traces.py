"""Every real recording is tried: nothing confidently wrong, and evidence agrees with the table."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Every recording is reported on before the first of these.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    """The script that writes docs/truth.md."""
    spec = importlib.util.spec_from_file_location("truth", ROOT / "scripts" / "truth_traces.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tried(truth: ModuleType, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What Marey says of every recording of the data, listed or not."""
    return list(truth.try_recordings(data_dir, tmp_path_factory.mktemp("cache")))


def test_no_verdict_is_confidently_wrong(tried: list[Any]) -> None:
    assert {t.path: t.wrong for t in tried if t.outcome == "WRONG"} == {}


def test_at_most_a_tenth_cannot_be_told(tried: list[Any]) -> None:
    silent = [t.path for t in tried if t.outcome == "cannot tell"]
    assert len(silent) <= len(tried) / 10, silent


def test_evidence_agrees_with_the_table_beside_it(truth: ModuleType, tried: list[Any]) -> None:
    assert {t.path: found for t in tried if (found := _disagreements(truth, t))} == {}
    assert any("idle host" in line for t in tried for line in _evidence(t))
    assert any("idle unexplained" in line for t in tried for line in _evidence(t))


def _disagreements(truth: ModuleType, one: Any) -> list[str]:
    found: list[str] = truth.find_disagreements(one.document) if one.document else []
    return found


def _evidence(one: Any) -> list[str]:
    verdicts = one.document["verdicts"] if one.document else []
    return [line for verdict in verdicts for line in verdict["evidence"]]


def test_accounted_and_unexplained_idle_are_all_idle(tried: list[Any]) -> None:
    parts = ("input", "peers", "host", "start", "other", "unexplained")
    for one in tried:
        for row in [*one.document.get("ranks", ()), *one.document.get("steps", ())]:
            together = sum(row[f"idle_{part}_ms"] for part in parts)
            assert together == pytest.approx(row["idle_ms"], abs=2e-3), (one.path, row)


def test_nothing_is_wrong_only_where_time_is_accounted_for(tried: list[Any]) -> None:
    for one in tried:
        for verdict in one.document.get("verdicts", ()):
            if verdict["kind"] != "none" or verdict["confidence"] == 0:
                continue
            least = 0.1 if one.document["run"]["has_device"] else 0.3
            for row in one.document["ranks"]:
                assert row["idle_unexplained_ms"] <= least * row["span_ms"] + 1e-3, one.path


def test_a_recording_that_nobody_listed_is_tried(truth: ModuleType, tmp_path: Path) -> None:
    new = tmp_path / "traces" / "somebody" / "run"
    new.mkdir(parents=True)
    event = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    (new / "trace.json").write_text(json.dumps([event]))
    found = list(truth.try_recordings(tmp_path, tmp_path / "cache"))
    assert [one.path for one in found] == ["traces/somebody/run"]
    assert found[0].outcome in ("right", "unsure")


def test_exposed_communication_is_that_of_the_files_own_overlap_rows(
    tried: list[Any], data_dir: Path
) -> None:
    for device, own in ((0, "device_0"), (1, "device_1")):
        expected = {"Communication(Not Overlapped)": 0.0, "Computing": 0.0}
        for path in (data_dir / "recordings/ascend/msprof" / own).iterdir():
            events = json.loads(gzip.decompress(path.read_bytes()))
            for event in events:
                if event["ph"] == "X" and event["name"] in expected:
                    expected[event["name"]] += float(event["dur"]) / 1e3
        row = next(t for t in tried if t.path.endswith("msprof")).document["ranks"][device]
        assert row["exposed_comm_ms"] == pytest.approx(
            expected["Communication(Not Overlapped)"], abs=2e-3
        )
        assert row["compute_ms"] == pytest.approx(expected["Computing"], rel=1e-3)


def test_kernels_without_a_recorded_launch_are_stated_with_both_figures(tried: list[Any]) -> None:
    document = next(t for t in tried if t.path.endswith("qwen-h100")).document
    notes = " ".join(note["text"] for note in document["notes"])
    assert "509 of 1707 device events have no recorded launch" in notes
    assert "45.645 ms" in notes
    assert "31.90" in notes


@pytest.mark.parametrize("run", ["pp-gpipe-m8", "pp-1f1b-m8", "pp-1f1b-m4"])
def test_a_pipelines_bubble_is_what_theory_says_of_its_stages(tried: list[Any], run: str) -> None:
    (one,) = (t for t in tried if t.path.endswith(f"/{run}"))
    (said,) = (line for line in _evidence(one) if "equal stages" in line)
    batches, stages = int(run[-1]), 4
    theory = (stages - 1) / (batches + stages - 1)
    assert f"empty for {100 * theory:.0f} %" in said
    measured = int(said.rpartition("here it is ")[2].rstrip(" %")) / 100
    assert measured == pytest.approx(theory, abs=0.02)


def test_serving_steps_and_graph_launches_are_recognised(tried: list[Any]) -> None:
    document = next(t for t in tried if t.path.endswith("vllm-prefill-decode")).document
    notes = " ".join(note["text"] for note in document["notes"])
    assert "1 prefill and 1 decode steps, 25 launches of captured graphs" in notes


# What Kineto calls work of a device, and how libraries name the kernels that communicate.
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
COLLECTIVES = ("nccl", "rccl", "ep::internode")
Spans = list[tuple[Decimal, Decimal]]


def test_figures_are_those_of_a_union_computed_apart(tried: list[Any], data_dir: Path) -> None:
    """Plain Python over the file's own decimals: nothing of it is shared with the readers."""
    compared = 0
    for one in tried:
        ranks = one.document.get("ranks", ())
        apart = _compute_apart(data_dir / one.path) if len(ranks) == 1 else {}
        if len(apart) != 1:
            continue
        (figures,) = apart.values()
        said = {name: ranks[0][name] for name in figures}
        assert said == pytest.approx(figures, abs=0.002), one.path
        compared += 1
    assert compared >= 20


def _compute_apart(path: Path) -> dict[Any, dict[str, float]]:
    """The figures of each device of a Kineto file; nothing for files of other kinds."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    traces = [p for p in files if p.name.endswith((".json", ".json.gz"))]
    if len(traces) != 1:
        return {}
    data = traces[0].read_bytes()
    text = gzip.decompress(data) if traces[0].suffix == ".gz" else data
    document = json.loads(text, parse_float=Decimal)
    events = document.get("traceEvents", ()) if isinstance(document, dict) else ()
    devices: dict[Any, dict[str, Spans]] = {}
    for kind, device, span in _list_work(events):
        devices.setdefault(device, {}).setdefault(kind, []).append(span)
    return {device: _sum_up(spans) for device, spans in devices.items()}


def _list_work(events: Any) -> Iterator[tuple[str, Any, tuple[Decimal, Decimal]]]:
    for event in events:
        category = str(event.get("cat", "")).lower()
        if event.get("ph") != "X" or category not in DEVICE_CATEGORIES or "dur" not in event:
            continue
        start = Decimal(event["ts"])
        collective = any(word in event["name"].lower() for word in COLLECTIVES)
        kind = "copy" if category.endswith("memcpy") else "talk" if collective else "compute"
        device = event.get("args", {}).get("device", event["pid"])
        yield kind, device, (start, start + Decimal(event["dur"]))


def _sum_up(spans: dict[str, Spans]) -> dict[str, float]:
    everything = list(chain.from_iterable(spans.values()))
    compute, talk = spans.get("compute", []), spans.get("talk", [])
    span = max(end for _, end in everything) - min(start for start, _ in everything)
    busy = _cover(everything)
    return {
        "span_ms": float(span) / 1e3,
        "compute_ms": float(_cover(compute)) / 1e3,
        "exposed_comm_ms": float(_cover(compute + talk) - _cover(compute)) / 1e3,
        "idle_ms": float(span - busy) / 1e3,
    }


def _cover(spans: Spans) -> Decimal:
    covered, until = Decimal(0), None
    for start, end in sorted(spans):
        begin = start if until is None else max(start, until)
        covered += max(end - begin, Decimal(0))
        until = end if until is None else max(until, end)
    return covered

"""Breakdowns equal the published references of real traces."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from marey.model.training.traces import EventKind
from marey.stats.intervals import merge
from marey.trace.rank.breakdown import BREAKDOWN_COLUMNS, breakdown_of, device_time
from marey.trace.rank.kernel_tables import kernel_table, operator_table
from marey.trace.rank.launches import launch_statistics
from marey.trace.rank.recompute import launched, recomputed
from marey.trace.report.diff import compare
from marey.trace.report.run_profile import profile_run
from marey.trace.run.trace_run import TraceRun

pytestmark = pytest.mark.data
RealRun = Callable[[str], TraceRun]
TOLERANCE_MS = 0.01

REFERENCES = (
    "h100/Falconsai_nsfw_image_detection__1016002",
    "h100/facebook_timesformer-base-finetuned-k400__1016002",
    "mi300/Falconsai_nsfw_image_detection__1016002",
)
COLUMNS = {
    "computation_time": "compute_ms",
    "exposed_comm_time": "exposed_comm_ms",
    "exposed_memcpy_time": "exposed_memcpy_ms",
    "busy_time": "busy_ms",
    "idle_time": "idle_ms",
    "total_time": "span_ms",
    "total_comm_time": "comm_ms",
    "total_memcpy_time": "memcpy_ms",
}


def broken_down(run: TraceRun) -> dict[str, float]:
    (rank,) = run.ranks
    return breakdown_of(device_time(run.events(rank, BREAKDOWN_COLUMNS), run.symbols))


@pytest.mark.parametrize("trace", REFERENCES)
def test_every_figure_of_a_tracelens_timeline_is_met(
    trace: str, real_run: RealRun, data_dir: Path
) -> None:
    folder = data_dir / "traces" / "tracelens" / "traces" / f"{trace}_perf_report_csvs"
    reference = {r["type"]: float(r["time ms"]) for r in _csv(folder / "gpu_timeline.csv")}
    assert set(reference) == set(COLUMNS)
    row = broken_down(real_run(f"tracelens/traces/{trace}.json.gz"))
    for theirs, ours in COLUMNS.items():
        assert row[ours] == pytest.approx(reference[theirs], abs=TOLERANCE_MS), ours


@pytest.mark.parametrize("trace", REFERENCES)
def test_kernel_totals_and_counts_are_those_of_tracelens(
    trace: str, real_run: RealRun, data_dir: Path
) -> None:
    folder = data_dir / "traces" / "tracelens" / "traces" / f"{trace}_perf_report_csvs"
    reference: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in _csv(folder / "kernel_summary.csv"):
        entry = reference[row["Kernel name"]]
        entry[0] += float(row["Kernel duration (µs)_sum"]) / 1e3
        entry[1] += int(row["Kernel duration (µs)_count"])
    run = real_run(f"tracelens/traces/{trace}.json.gz")
    found = {r["name"]: r for r in kernel_table(run.events(0), run.symbols).to_pylist()}
    for name, (total_ms, count) in reference.items():
        assert found[name]["total_ms"] == pytest.approx(total_ms, abs=TOLERANCE_MS)
        assert found[name]["count"] == count


@pytest.mark.parametrize("trace", REFERENCES[:2])
def test_operators_own_the_kernels_that_tracelens_gives_them(
    trace: str, real_run: RealRun, data_dir: Path
) -> None:
    folder = data_dir / "traces" / "tracelens" / "traces" / f"{trace}_perf_report_csvs"
    reference: Counter[str] = Counter()
    for row in _csv(folder / "kernel_summary.csv"):
        reference[row["Parent cpu_op"]] += int(row["Kernel duration (µs)_count"])
    run = real_run(f"tracelens/traces/{trace}.json.gz")
    found: Counter[str] = Counter()
    for row in operator_table(run.events(0), run.symbols).to_pylist():
        found[row["name"]] += row["kernels"]
    agreeing = sum(min(found[name], count) for name, count in reference.items() if name)
    # It names the operator that a person would, which is not always the innermost.
    assert agreeing >= 0.9 * sum(reference.values())


def test_recomputed_activations_are_told_apart_as_tracelens_does(
    real_run: RealRun, data_dir: Path
) -> None:
    folder = data_dir / "traces" / "tracelens" / "traces" / "mi300"
    rows = _csv(folder / "resnet_act_checkpoint_recompute_perf_report_csvs" / "gpu_timeline.csv")
    run = real_run("tracelens/traces/mi300/resnet_act_checkpoint.json.gz")
    events = run.events(0)
    again = recomputed(events, run.symbols)
    # This reference leaves out memsets and what was under way when the recording began.
    counted = launched(events) & (events["kind"].to_numpy() != EventKind.MEMSET)
    for flag, chosen in (("False", counted & ~again), ("True", counted & again)):
        reference = {r["type"]: float(r["time ms"]) for r in rows if r["is_recompute"] == flag}
        row = breakdown_of(device_time(events, run.symbols, only=chosen))
        for theirs, ours in COLUMNS.items():
            assert row[ours] == pytest.approx(reference[theirs], abs=TOLERANCE_MS), (flag, ours)


def test_collective_times_are_those_of_tracelens(real_run: RealRun, data_dir: Path) -> None:
    folder = data_dir / "traces" / "tracelens" / "traces" / "mi300"
    rows = _csv(folder / "resnet_act_checkpoint_recompute_perf_report_csvs" / "coll_analysis.csv")
    run = real_run("tracelens/traces/mi300/resnet_act_checkpoint.json.gz")
    events = run.events(0)
    chosen = launched(events) & (events["kind"].to_numpy() == EventKind.COLLECTIVE)
    total_us = events["dur_ns"].to_numpy()[chosen].sum() / 1e3
    assert int(chosen.sum()) == sum(int(r["operation_count"]) for r in rows)
    assert total_us == pytest.approx(sum(float(r["dur_sum"]) for r in rows), abs=10)


@pytest.mark.parametrize(
    ("trace", "idle"),
    [
        ("resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz", 39),
        ("resnet50_num_workers_0/worker0.1623143566756.pt.trace.json.gz", 31),
        ("resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz", 23),
        ("resnet50_num_workers_4/worker0.1623213129365.pt.trace.json.gz", 16),
    ],
)
def test_the_idle_share_of_resnet50_is_the_known_one(
    trace: str, idle: int, real_run: RealRun
) -> None:
    row = broken_down(real_run(f"kineto-resnet50/{trace}"))
    assert round(100 * row["idle_ms"] / row["span_ms"]) == idle


def test_more_loader_workers_leave_less_time_waiting_for_input(real_run: RealRun) -> None:
    none = broken_down(
        real_run("kineto-resnet50/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz")
    )
    four = broken_down(
        real_run("kineto-resnet50/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz")
    )
    assert none["idle_input_ms"] > 0.5 * none["idle_ms"]
    assert four["idle_input_ms"] < 0.5 * none["idle_input_ms"]


@pytest.mark.slow
def test_what_hta_calls_added_and_deleted_is_what_appeared_and_vanished(
    real_run: RealRun, data_dir: Path
) -> None:
    control = _names(data_dir / "traces/hta/trace_diff/control/control.json.gz")
    test = _names(data_dir / "traces/hta/trace_diff/test/test.json.gz")
    found = compare(
        profile_run(real_run("hta/trace_diff/control")),
        profile_run(real_run("hta/trace_diff/test")),
    ).changes.to_pylist()
    for layer, categories in (("operator", {"cpu_op"}), ("kernel", {"kernel"})):
        a = {name for category in categories for name in control[category]}
        b = {name for category in categories for name in test[category]}
        names = {word: set() for word in ("appeared", "vanished")}
        for row in found:
            if row["layer"] == layer and row["change"] in names and row["name"] in a | b:
                names[row["change"]].add(row["name"])
        # Names outside every step are left out of a comparison per step.
        assert names["appeared"] <= b - a
        assert names["vanished"] <= a - b
        assert len(names["appeared"]) >= 0.9 * len(b - a)
        assert len(names["vanished"]) >= 0.9 * len(a - b)


# What TraceDiff.ops_diff of HolisticTraceAnalysis 0.5.0 counts in step 1009 of control and test;
# of the operators without the runtime calls and annotations that it lists among them.
HTA_DIFF = {
    "operator": {"added": 3, "deleted": 72, "increased": 17, "decreased": 49, "unchanged": 38},
    "kernel": {"added": 27, "deleted": 66, "increased": 15, "decreased": 9, "unchanged": 84},
}


def _how_calls_changed(a: float, b: float) -> str:
    if not a or not b:
        return "deleted" if a else "added"
    return "unchanged" if a == b else "increased" if b > a else "decreased"


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["operator", "kernel"])
def test_calls_of_one_step_changed_as_hta_says_and_as_a_plain_loop_counts(
    layer: str, real_run: RealRun, data_dir: Path
) -> None:
    sides = ("control", "test")
    profiles = [profile_run(real_run(f"hta/trace_diff/{side}"), steps=[1009]) for side in sides]
    found = {
        row["name"]: _how_calls_changed(row["a_calls"], row["b_calls"])
        for row in compare(*profiles).changes.to_pylist()
        if row["layer"] == layer
    }
    a, b = (_calls_in_step(data_dir / "traces/hta/trace_diff" / s, 1009, layer) for s in sides)
    expected = {name: _how_calls_changed(a[name], b[name]) for name in a.keys() | b.keys()}
    assert found == expected
    assert Counter(found.values()) == HTA_DIFF[layer]


def _calls_in_step(folder: Path, step: int, layer: str) -> Counter[str]:
    """How often each operator started, or each kernel or copy was launched, within a step."""
    (path,) = folder.glob("*.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    (mark,) = [e for e in events if e.get("name") == f"ProfilerStep#{step}"]
    window = range(mark["ts"], mark["ts"] + mark["dur"])
    if layer == "operator":
        return Counter(e["name"] for e in events if e.get("cat") == "cpu_op" and e["ts"] in window)
    launched = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") == "cuda_runtime"}
    device = ("kernel", "gpu_memcpy", "gpu_memset")
    return Counter(
        e["name"]
        for e in events
        if e.get("cat") in device and launched.get(e["args"]["correlation"]) in window
    )


def test_a_trace_compared_with_itself_shows_no_change(real_run: RealRun) -> None:
    profile = profile_run(real_run("hta/trace_diff/control"))
    found = compare(profile, profile)
    assert {row["change"] for row in found.changes.to_pylist()} == {"same"}
    assert not any(part["significant"] for part in found.parts)


def test_operator_calls_per_step_are_those_counted_by_hand(
    real_run: RealRun, data_dir: Path
) -> None:
    path = data_dir / "traces/hta/trace_diff/control/control.json.gz"
    events = [
        e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if "dur" in e
    ]
    marks = [
        e for e in events if e["name"] == "ProfilerStep#1010" and e["cat"] == "user_annotation"
    ]
    low, high = marks[0]["ts"], marks[0]["ts"] + marks[0]["dur"]
    expected = Counter(e["name"] for e in events if e["cat"] == "cpu_op" and low <= e["ts"] < high)
    profile = profile_run(real_run("hta/trace_diff/control"), steps=[1010])
    found = {n: c.step_calls[0] for n, c in profile.costs["operator"].items() if c.step_calls[0]}
    wrong = {n for n in expected.keys() | found.keys() if expected.get(n, 0) != found.get(n, 0)}
    assert len(wrong) <= 0.02 * len(expected), sorted(wrong)[:10]


def test_launch_statistics_of_a_real_trace_link_every_kernel(real_run: RealRun) -> None:
    run = real_run(f"tracelens/traces/{REFERENCES[0]}.json.gz")
    found = launch_statistics(run.events(0))
    assert found.linked == 156
    assert found.unlinked == 0
    assert found.delay_median_us > 0


def test_the_breakdown_of_a_large_trace_agrees_with_a_plain_loop(real_run: RealRun) -> None:
    run = real_run("deepseek/train.json")
    events = run.events(run.ranks[0], BREAKDOWN_COLUMNS)
    device = events["on_device"].to_numpy(zero_copy_only=False)
    start = events["start_ns"].to_numpy()[device]
    end = start + events["dur_ns"].to_numpy()[device]
    covered, reached = 0, int(start.min())
    for a, b in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        covered += max(0, b - max(a, reached))
        reached = max(reached, b)
    row = breakdown_of(device_time(events, run.symbols))
    assert row["busy_ms"] == pytest.approx(covered / 1e6)
    assert merge(start, end - start).total_ns == covered
    assert np.isclose(row["busy_ms"] + row["idle_ms"], row["span_ms"])


def _csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _names(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        if event.get("ph") == "X":
            found[event.get("cat", "")].add(event["name"])
    return found

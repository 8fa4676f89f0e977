"""Kernel, operator, launch, memory and bandwidth tables say what the events say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.training.symbols import Symbols
from marey.model.training.traces import MEMORY, EventKind
from marey.trace.rank.kernel_tables import kernel_table, operator_table
from marey.trace.rank.launches import launch_statistics, queue_depth
from marey.trace.rank.memory import memory_timeline
from marey.trace.rank.nesting import find_enclosing
from marey.trace.rank.steps import step_statistics, step_windows
from marey.trace.ranks.bandwidth import bandwidth_table, bus_factor
from marey.trace.results import ITEMS
from tests.trace.report.build import event, kernel, table

US, MS = 1_000, 1_000_000


def test_kernels_are_ordered_by_cost_and_their_shares_add_up() -> None:
    symbols = Symbols()
    events = table([kernel("a", 0, MS), kernel("b", MS, 3 * MS), kernel("a", 5 * MS, MS)], symbols)
    rows = kernel_table(events, symbols).to_pylist()
    assert [(r["name"], r["count"], r["total_ms"]) for r in rows] == [("b", 1, 3.0), ("a", 2, 2.0)]
    assert sum(r["share"] for r in rows) == pytest.approx(1)


def test_an_operator_owns_the_kernels_launched_inside_it() -> None:
    symbols = Symbols()
    events = table(
        [
            event("aten::linear", EventKind.CPU_OP, 0, 100 * US, stream=1),
            event("aten::addmm", EventKind.CPU_OP, 10 * US, 80 * US, stream=1),
            event("cudaLaunchKernel", EventKind.RUNTIME, 20 * US, 10 * US, stream=1),
            kernel("gemm", 200 * US, 50 * US, launch=2),
        ],
        symbols,
    )
    rows = {r["name"]: r for r in operator_table(events, symbols).to_pylist()}
    assert rows["aten::addmm"]["device_ms"] == pytest.approx(0.05)
    assert rows["aten::addmm"]["kernels"] == 1
    assert rows["aten::linear"]["device_ms"] == 0
    assert rows["aten::linear"]["host_self_ms"] == pytest.approx(0.02)


def test_work_linked_by_id_alone_is_owned_too() -> None:
    symbols = Symbols()
    events = table(
        [
            event("aten::mul", EventKind.CPU_OP, 0, 10 * US, external_id=42),
            kernel("mul_kernel", 20 * US, 5 * US, external_id=42),
        ],
        symbols,
    )
    assert operator_table(events, symbols).to_pylist()[0]["kernels"] == 1


@st.composite
def call_trees(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Properly nested calls as (parent, start, end)."""
    out: list[tuple[int, int, int]] = []

    def grow(parent: int, lo: int, hi: int, depth: int) -> None:
        at = lo
        for _ in range(draw(st.integers(0, 3))):
            if hi - at < 4:
                return
            start = draw(st.integers(at + 1, hi - 2))
            end = draw(st.integers(start + 1, hi - 1))
            out.append((parent, start, end))
            if depth:
                grow(len(out) - 1, start, end, depth - 1)
            at = end + 1

    grow(-1, 0, 1000, 4)
    return out


@settings(deadline=None)
@given(call_trees(), st.randoms())
def test_the_caller_of_each_call_is_found_whatever_the_order(tree: list, random: object) -> None:
    order = list(range(len(tree)))
    random.shuffle(order)
    place = {row: at for at, row in enumerate(order)}
    start = np.array([tree[r][1] for r in order], np.int64)
    dur = np.array([tree[r][2] - tree[r][1] for r in order], np.int64)
    expected = [-1 if tree[r][0] < 0 else place[tree[r][0]] for r in order]
    assert find_enclosing(np.zeros(len(order), np.int64), start, dur).tolist() == expected


def test_the_launch_delay_runs_from_the_end_of_the_call_to_the_start_of_the_work() -> None:
    symbols = Symbols()
    events = table(
        [
            event("cudaLaunchKernel", EventKind.RUNTIME, 0, 4 * US),
            event("cudaLaunchKernel", EventKind.RUNTIME, 5 * US, 4 * US),
            kernel("a", 10 * US, 2 * US, launch=0),
            kernel("b", 29 * US, 20 * US, launch=1),
        ],
        symbols,
    )
    found = launch_statistics(events)
    assert (found.linked, found.unlinked) == (2, 0)
    assert (found.delay_median_us, found.delay_max_us) == (13.0, 20.0)
    assert found.shorter_than_launch == 0.5
    assert found.queue_max == 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1, max_size=40))
def test_the_queue_is_never_negative_and_ends_empty(pairs: list) -> None:
    launched = np.array([a for a, _ in pairs], np.int64)
    depth = queue_depth(launched, launched + np.array([d for _, d in pairs], np.int64))
    assert depth.depth.min() >= 0
    assert depth.depth[-1] == 0
    assert depth.largest <= len(pairs)


def test_the_memory_timeline_keeps_the_peak() -> None:
    rows = [
        {"time_ns": t, "device": 0, "bytes": 0, "allocated_bytes": level, "reserved_bytes": 500}
        for t, level in [(0, 100), (10, 400), (11, 50), (1000, 60)]
    ]
    found = memory_timeline(pa.Table.from_pylist(rows, schema=MEMORY), points=10)
    assert found[0]["peak_bytes"] == 400 == max(found[0]["levels_bytes"])
    assert found[0]["levels_bytes"][5] == 50
    assert found[0]["reserved_peak_bytes"] == 500


def test_bus_bandwidth_multiplies_by_what_each_link_carries() -> None:
    assert bus_factor("all_reduce", 8) == pytest.approx(1.75)
    assert bus_factor("reduce_scatter", 8) == pytest.approx(0.875)
    # The message of an all-gather is what one rank puts in: a link carries that of all the others.
    assert bus_factor("all_gather", 8) == 7
    assert bus_factor("send_recv", 2) == 1
    rows = [
        {
            "name": "all_reduce",
            "group": "dp",
            "bytes": 1_000_000,
            "expected": 8,
            "transfer_us": 100.0,
        }
    ] * 3
    found = bandwidth_table(pa.Table.from_pylist(rows, schema=ITEMS)).to_pylist()[0]
    assert (found["count"], found["algorithm_gb_s"]) == (3, 10.0)
    assert found["bus_gb_s"] == pytest.approx(17.5)


def test_a_step_lasts_until_the_next_one_starts() -> None:
    symbols = Symbols()
    events = table(
        [
            event("ProfilerStep#3", EventKind.ANNOTATION, 0, 90, step=3),
            event("ProfilerStep#4", EventKind.ANNOTATION, 100, 95, step=4),
        ],
        symbols,
    )
    windows = step_windows(events, symbols).to_pylist()
    assert windows == [
        {"step": 3, "start_ns": 0, "end_ns": 100},
        {"step": 4, "start_ns": 100, "end_ns": 195},
    ]


def test_without_marks_a_step_spans_its_events() -> None:
    symbols = Symbols()
    events = table([kernel("a", 5, 5, step=1), kernel("b", 20, 10, step=1)], symbols)
    assert step_windows(events, symbols).to_pylist() == [{"step": 1, "start_ns": 5, "end_ns": 30}]


def test_statistics_of_no_steps_are_empty() -> None:
    assert step_statistics([]) == {}
    assert step_statistics([1.0, 3.0])["mean_ms"] == 2.0

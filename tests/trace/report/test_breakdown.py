"""A rank's device time is told apart as the definitions say, on tables made by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EventKind
from marey.stats.intervals import Intervals, complement, intersect, merge, unite
from marey.trace.rank.breakdown import breakdown_of, breakdown_within, device_time
from marey.trace.rank.host_work import is_input
from marey.trace.rank.idle import HostTime, divide_idle
from tests.trace.report.build import event, kernel, table

MS = 1_000_000


def broken_down(events: list, *, has_device: bool = True) -> dict[str, float]:
    symbols = Symbols()
    return breakdown_of(device_time(table(events, symbols), symbols, has_device=has_device))


def test_overlapped_communication_is_hidden_and_the_rest_exposed() -> None:
    row = broken_down(
        [
            kernel("gemm", 0, 10 * MS),
            event("nccl", EventKind.COLLECTIVE, 6 * MS, 10 * MS, on_device=True),
            event("Memcpy HtoD", EventKind.MEMCPY, 12 * MS, 8 * MS, on_device=True),
        ]
    )
    assert row["compute_ms"] == 10
    assert (row["comm_ms"], row["exposed_comm_ms"], row["hidden_comm_ms"]) == (10, 6, 4)
    assert (row["memcpy_ms"], row["exposed_memcpy_ms"]) == (8, 4)
    assert (row["busy_ms"], row["idle_ms"], row["span_ms"]) == (20, 0, 20)


def test_a_memset_counts_as_compute() -> None:
    row = broken_down([event("Memset", EventKind.MEMSET, 0, 3 * MS, on_device=True)])
    assert row["compute_ms"] == 3


def test_a_gap_is_the_hosts_if_the_next_kernel_was_launched_in_it() -> None:
    row = broken_down(
        [
            kernel("a", 0, 10 * MS),
            event("cudaLaunchKernel", EventKind.RUNTIME, 15 * MS, MS),
            kernel("b", 18 * MS, 2 * MS, launch=1),
        ]
    )
    # From the launch to the start takes microseconds; what lay in the queue for longer waited.
    assert (row["idle_host_ms"], row["idle_other_ms"], row["idle_unexplained_ms"]) == (6, 0, 2)


def test_a_gap_is_wholly_the_hosts_if_work_starts_as_soon_as_it_is_launched() -> None:
    row = broken_down(
        [
            kernel("a", 0, 10 * MS),
            event("cudaLaunchKernel", EventKind.RUNTIME, 17 * MS, MS - 8_000),
            kernel("b", 18 * MS, 2 * MS, launch=1),
        ]
    )
    assert (row["idle_host_ms"], row["idle_other_ms"], row["idle_unexplained_ms"]) == (8, 0, 0)


def test_a_gap_before_work_without_a_recorded_launch_is_unexplained() -> None:
    row = broken_down([kernel("a", 0, 10 * MS), kernel("b", 18 * MS, 2 * MS)])
    assert (row["idle_host_ms"], row["idle_other_ms"], row["idle_unexplained_ms"]) == (0, 0, 8)


def test_a_short_gap_before_queued_work_is_no_riddle() -> None:
    row = broken_down(
        [
            event("cudaLaunchKernel", EventKind.RUNTIME, 0, MS),
            kernel("a", 2 * MS, 8 * MS),
            kernel("b", 10 * MS + 10_000, 2 * MS, launch=0),
        ]
    )
    assert row["idle_other_ms"] == pytest.approx(0.01)
    assert row["idle_unexplained_ms"] == 0


def test_a_gap_before_work_that_was_launched_long_ago_is_not_the_hosts() -> None:
    row = broken_down(
        [
            event("cudaLaunchKernel", EventKind.RUNTIME, 0, MS),
            kernel("a", 2 * MS, 8 * MS),
            kernel("b", 18 * MS, 2 * MS, launch=0),
        ]
    )
    assert (row["idle_host_ms"], row["idle_other_ms"], row["idle_unexplained_ms"]) == (0, 0, 8)


def test_the_part_of_a_gap_spent_in_the_data_loader_is_input() -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    row = broken_down(
        [
            kernel("a", 0, 10 * MS),
            event(loader, EventKind.ANNOTATION, 11 * MS, 5 * MS),
            event("cudaLaunchKernel", EventKind.RUNTIME, 17 * MS, MS),
            kernel("b", 18 * MS, 2 * MS, launch=2),
        ]
    )
    assert (row["idle_input_ms"], row["idle_host_ms"]) == (5, 3)


def test_what_launches_the_run_is_no_input_whatever_it_is_called() -> None:
    row = broken_down(
        [
            event("train.py(1): train_with_dataloader", EventKind.PYTHON, 0, 20 * MS),
            event("cudaLaunchKernel", EventKind.RUNTIME, 0, MS),
            kernel("a", MS, 9 * MS, launch=1),
            event("cudaLaunchKernel", EventKind.RUNTIME, 17 * MS, MS),
            kernel("b", 18 * MS, 2 * MS, launch=3),
        ]
    )
    assert (row["idle_input_ms"], row["idle_host_ms"]) == (0, 8)


def test_work_shorter_than_the_clocks_tick_counts_for_the_span() -> None:
    row = broken_down([kernel("a", 0, 0), kernel("b", 8 * MS, 2 * MS), kernel("c", 15 * MS, 0)])
    assert (row["span_ms"], row["compute_ms"], row["idle_ms"]) == (15, 2, 13)


def test_a_gap_spent_in_a_collective_on_the_host_is_a_wait_for_peers() -> None:
    row = broken_down(
        [
            kernel("a", 0, 10 * MS),
            event("c10d::barrier", EventKind.CPU_OP, 11 * MS, 5 * MS),
            event("cudaLaunchKernel", EventKind.RUNTIME, 17 * MS, MS),
            kernel("b", 18 * MS, 2 * MS, launch=2),
        ]
    )
    assert (row["idle_peers_ms"], row["idle_host_ms"]) == (5, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", True),
        ("data_loading", True),
        ("torch/utils/data/dataloader.py(701): __next__", True),
        ("/home/ada/dataloader_tests/train.py(10): main", False),
        ("model.py(3): get_batch_size", False),
        ("aten::linear", False),
        ("Optimizer.step#SGD.step", False),
    ],
)
def test_the_names_of_input_are_known(name: str, expected: bool) -> None:
    assert is_input(name) is expected


KINDS = [EventKind.COMPUTE, EventKind.COLLECTIVE, EventKind.MEMCPY, EventKind.MEMSET]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(1, 40), st.sampled_from(KINDS)),
        min_size=1,
        max_size=30,
    )
)
def test_the_parts_always_add_up_to_the_whole(rows: list) -> None:
    symbols = Symbols()
    events = [event("x", k, s * MS, d * MS, on_device=True) for s, d, k in sorted(rows)]
    time = device_time(table(events, symbols), symbols)
    whole = breakdown_of(time)
    parts = whole["compute_ms"] + whole["exposed_comm_ms"] + whole["exposed_memcpy_ms"]
    assert parts == pytest.approx(whole["busy_ms"])
    assert whole["busy_ms"] + whole["idle_ms"] == pytest.approx(whole["span_ms"])
    reasons = ("input", "peers", "host", "start", "other", "unexplained")
    idle = sum(whole[f"idle_{why}_ms"] for why in reasons)
    assert idle == pytest.approx(whole["idle_ms"])
    lo, hi = time.span_ns
    edges = np.linspace(lo, hi, 4).astype(np.int64)
    thirds = breakdown_within(time, edges[:-1], edges[1:]).to_pylist()
    for name, value in whole.items():
        assert sum(third[name] for third in thirds) == pytest.approx(value), name


def test_a_rank_without_device_activity_has_an_empty_breakdown() -> None:
    row = broken_down([event("aten::add", EventKind.CPU_OP, 0, MS)])
    assert row["span_ms"] == 0
    assert row["idle_ms"] == 0


spans = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 90)), max_size=6)


def lay_out(drawn: list[tuple[int, int]]) -> Intervals:
    """Intervals in steps of 5 µs, around the latency of a launch."""
    pairs = np.array(drawn, np.int64).reshape(-1, 2) * 5_000
    return merge(pairs[:, 0], pairs[:, 1])


@settings(max_examples=150, deadline=None)
@given(
    work=st.lists(
        st.tuples(st.integers(0, 900), st.integers(1, 60), st.integers(-1, 900)),
        min_size=1,
        max_size=8,
    ),
    host=st.tuples(spans, spans, spans, spans),
    has_device=st.booleans(),
)
def test_the_parts_of_idle_time_are_disjoint_and_together_the_gaps(
    work: list[tuple[int, int, int]], host: tuple[list, list, list, list], has_device: bool
) -> None:
    calls = [called for _, _, called in work if called >= 0]
    rows = [(start, dur, True) for start, dur, _ in work] + [(at, 2, False) for at in calls]
    launched = iter(range(len(work), len(rows)))
    column = {
        "on_device": np.array([on for _, _, on in rows]),
        "start_ns": np.array([start for start, _, _ in rows], np.int64) * 5_000,
        "dur_ns": np.array([dur for _, dur, _ in rows], np.int64) * 5_000,
        "launch": np.array(
            [next(launched) if c >= 0 else -1 for _, _, c in work] + [-1] * len(calls), np.int64
        ),
    }
    device = column["on_device"]
    busy = merge(column["start_ns"][device], column["dur_ns"][device])
    gaps = complement(busy, 0, 6_000_000)
    found = divide_idle(column, gaps, HostTime(*map(lay_out, host)), has_device=has_device)
    parts = [getattr(found, field.name) for field in dataclasses.fields(found)]
    assert sum(part.total_ns for part in parts) == gaps.total_ns
    assert intersect(unite(*parts), gaps).total_ns == gaps.total_ns

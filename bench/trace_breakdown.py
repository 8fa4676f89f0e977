"""What a rank's breakdown costs per event: linear, and far from a loop over intervals."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from bench.report import Results
from marey.model.training.symbols import Symbols
from marey.model.training.traces import EVENTS, EventKind
from marey.trace.rank.breakdown import BREAKDOWN_COLUMNS, breakdown_of, device_time
from marey.trace.readers.trace_info import RankInfo
from marey.trace.report.rank_report import report_rank
from marey.trace.report.run_profile import profile_run
from marey.trace.run.trace_run import TraceRun

SIZES = (250_000, 1_000_000, 4_000_000)
NAMES = 2000
STEPS = 10
# What an event of the largest size may cost, as a multiple of one of the smallest.
LINEAR = 1.5
FASTER_THAN_A_LOOP = 10.0


def main() -> int:
    """Print the cost per event at three sizes, and against a loop in plain Python."""
    results = Results()
    _once(made(4000))
    costs = []
    for size in SIZES:
        run = made(size)
        cost_s = min(_once(run) for _ in range(2))
        costs.append(cost_s / size)
        if size == SIZES[0]:
            results.against(
                "a rank's breakdown, idle told apart",
                ratio=_loop(run) / min(_breakdown(run) for _ in range(3)),
                target=FASTER_THAN_A_LOOP,
                rival="faster than a plain loop, idle not told apart",
                size=f"{size:,} events",
                at_10x="the same: both are linear",
            )
    results.against(
        "everything a report says of a rank: cost per event at the largest size",
        ratio=costs[-1] / costs[0],
        target=LINEAR,
        rival="cost per event at the smallest",
        size=", ".join(f"{s:,}: {c * 1e6:.2f} µs" for s, c in zip(SIZES, costs, strict=True)),
        at_10x=f"about {costs[-1] * 10 * SIZES[-1]:.0f} s of CPU time",
        higher_is_better=False,
    )
    return results.missed


def _once(run: TraceRun) -> float:
    start = time.process_time()
    report_rank(run, 0)
    profile_run(run)
    return time.process_time() - start


def _breakdown(run: TraceRun) -> float:
    start = time.process_time()
    breakdown_of(device_time(run.events(0, BREAKDOWN_COLUMNS), run.symbols))
    return time.process_time() - start


def _loop(run: TraceRun) -> float:
    """Busy, compute and exposed communication as one writes them first."""
    start = time.process_time()
    events = run.events(0, ["start_ns", "dur_ns", "kind", "on_device"]).to_pylist()
    for kinds in ({EventKind.COMPUTE}, {EventKind.COLLECTIVE}, set(EventKind)):
        reached, covered = -1, 0
        for event in events:
            if event["on_device"] and event["kind"] in kinds:
                end = event["start_ns"] + event["dur_ns"]
                covered += max(0, end - max(event["start_ns"], reached))
                reached = max(reached, end)
    return time.process_time() - start


def made(events: int) -> TraceRun:
    """A rank of nested operators, each launching a kernel."""
    rng = np.random.default_rng(0)
    calls = events // 4
    at = np.sort(rng.integers(0, calls * 20_000, calls))
    start = np.concatenate([at, at + 200, at + 500, at + 5000])
    kinds = (EventKind.CPU_OP, EventKind.CPU_OP, EventKind.RUNTIME, EventKind.COMPUTE)
    kind = np.repeat([int(k) for k in kinds], calls)
    order = np.argsort(start, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    launch = np.full(len(order), -1)
    launch[3 * calls :] = place[2 * calls : 3 * calls]
    known = {
        "on_device": kind == EventKind.COMPUTE,
        "start_ns": start,
        "dur_ns": np.repeat([3000, 2500, 1000, 9000], calls),
        "kind": kind,
        "name": rng.integers(0, NAMES, len(order)),
        "launch": launch,
        "stream": np.where(kind == EventKind.COMPUTE, 7, 1),
        "step": start * STEPS // (int(start.max()) + 1),
    }
    nothing = np.full(len(order), -1)
    columns = [pa.array(known.get(f.name, nothing)[order]).cast(f.type) for f in EVENTS]
    symbols = Symbols([f"name {n}" for n in range(NAMES)])
    table = pa.table(columns, schema=EVENTS)
    return TraceRun.from_tables({0: table}, {0: RankInfo(0)}, symbols)

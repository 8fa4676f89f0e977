"""What the rules cost: one tick of 10,000 GPUs, against re-reading history, memory, back-test."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.report import Results
from marey.app.collect.loop import keep
from marey.app.rules.rule_history import read_history
from marey.model.metrics import EVERYDAY, Entity, catalogue
from marey.model.observation import Observation
from marey.model.protocols import Selection, Store
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.rules.backtest.backtest import PastWorkload, backtest
from marey.rules.engine.allocations import Facts, HeldGpu
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.pack import load_shipped_rules
from marey.sim.config import SimConfig
from marey.sim.simulation import Simulation
from marey.store.embedded.embedded_store import open_store

START = 1_794_182_400_000
TICK_MS = 15_000
GPUS, WORKLOADS, RULES = 10_000, 200, 20
BUDGET = 0.002
# What a back-test of one rule over a day may cost, in scans of the columns that it reads.
SCANS_OF_A_BACKTEST = 3.0
# The statistics that are asked of history and of VictoriaMetrics: one workload's worth of rules.
ASKED = ("util", "power", "tensor_active")
BACKTESTED = ("util", "power")
# A life of four hours.
HISTORY_TICKS = 960


def cluster(gpus: int = GPUS, workloads: int = WORKLOADS) -> tuple[list[PastWorkload], list[str]]:
    """Workloads of equal size that share all GPUs."""
    size = gpus // workloads
    names = [f"n{i // 8}:{i % 8}" for i in range(gpus)]
    past = []
    for w in range(workloads):
        held_gpus = [
            HeldGpu(
                names[i], names[i].split(":")[0], START, global_rank=i - w * size,
                local_rank=i % 8, model="A100", power_limit_w=400.0, memory_mib=81_920.0,
            )
            for i in range(w * size, (w + 1) * size)
        ]  # fmt: skip
        past.append(PastWorkload(Facts(f"w{w}", user=f"u{w % 20}", start_ms=START), held_gpus))
    return past, names


class Samples:
    """Ticks of believable values, made ahead so that making them is not measured."""

    def __init__(self, names: list[str]) -> None:
        self.names = tuple(names)
        rng = np.random.default_rng(7)
        self.columns = [
            {
                m: (rng.beta(4, 2, len(names)) * 0.6 * catalogue()[m].maximum).astype(np.float32)
                for m in EVERYDAY
            }
            for _ in range(8)
        ]
        self.codes = np.arange(len(names), dtype=np.int32)

    def tick(self, number: int) -> SampleBatch:
        """The batch of one tick."""
        times = np.full(len(self.names), START + (number + 1) * TICK_MS, np.int64)
        return SampleBatch(times, self.codes, self.names, self.columns[number % 8])


def one_tick(results: Results) -> float:
    """CPU of taking a tick and, once a minute, of all verdicts and findings."""
    past, names = cluster()
    loop = EvaluationLoop(list(load_shipped_rules())[:RULES])
    for workload in past:
        loop.admit(workload.facts, workload.held_gpus)
    samples = Samples(names)
    for number in range(80):
        loop.take(samples.tick(number))
    per_tick = float("inf")
    # Five minutes at a time, the best of six: the machine is noisy, and noise only ever adds.
    for first in range(80, 200, 20):
        began = time.process_time()
        for number in range(first, first + 20):
            loop.take(samples.tick(number))
        per_tick = min(per_tick, (time.process_time() - began) / 20)
    began = time.process_time()
    for _ in range(5):
        loop.evaluator.evaluate(loop.evaluator.newest_ms)
    judged = (time.process_time() - began) / 5
    size = (
        f"{GPUS:,} GPUs × {len(EVERYDAY)} metrics + 2 derived, {WORKLOADS} workloads, {RULES} rules"
    )
    results.against(
        "one tick, update + evaluate (verdicts once a minute), share of one core over 15 s",
        ratio=per_tick / 15.0 / BUDGET,
        target=1.0,
        rival=f"of the {BUDGET:.1%} allowed: {per_tick * 1e3:.1f} ms a tick",
        size=size,
        at_10x="ten times: rows are independent",
        higher_is_better=False,
    )
    results.line("all verdicts once", f"{judged * 1e3:.1f} ms CPU", size=size, at_10x="ten times")
    life, windows = (amount / 1e6 for amount in loop.evaluator.nbytes)
    metrics = len(loop.evaluator.sketches.metrics)
    results.against(
        "whole-life sketches",
        ratio=life * len(EVERYDAY) / metrics / 120,
        target=1.0,
        rival=f"of 120 MB for 12 metrics (all {metrics}: {life:.0f} MB; windows: {windows:.0f} MB)",
        size=size,
        at_10x="ten times",
        higher_is_better=False,
    )
    whole = EvaluationLoop(load_shipped_rules())
    for workload in past:
        whole.admit(workload.facts, workload.held_gpus)
    whole.take(samples.tick(0))
    whole.flush()
    results.line(
        f"windows of the whole pack ({len(load_shipped_rules())} rules)",
        f"{whole.evaluator.nbytes[1] / 1e6:.0f} MB for "
        f"{len(whole.evaluator.sketches.rings)} metrics, "
        "of which those that never come take no memory",
        size=size,
        at_10x="ten times",
    )
    return per_tick


def against_history(results: Results, per_tick: float) -> None:
    """The same three statistics of every GPU by reading the embedded store again."""
    _, names = cluster()
    samples = Samples(names)
    folder = Path(tempfile.mkdtemp())
    try:
        with open_store(folder / "bench.duckdb") as store:
            for number in range(HISTORY_TICKS):
                batch = samples.tick(number)
                only = {m: batch.columns[m] for m in ASKED}
                store.append([SampleBatch(batch.time_ms, batch.entity, batch.entities, only)])
            end = START + (HISTORY_TICKS + 1) * TICK_MS
            selection = Selection(ASKED, START, end)
            began = time.process_time()
            store.statistics(selection, (0.05, 0.5, 0.95))
            cost = time.process_time() - began
    finally:
        shutil.rmtree(folder)
    results.against(
        "cheaper than re-reading four hours from the embedded store (p5, p50, p95 of 3 metrics)",
        ratio=cost / per_tick,
        target=100.0,
        rival=f"store: {cost:.2f} s CPU",
        size=f"{GPUS:,} GPUs, {HISTORY_TICKS} ticks measured",
        at_10x="the gap grows with the life",
    )


def against_victoria(results: Results, per_tick: float) -> None:
    """The same by quantile_over_time from VictoriaMetrics: every GPU, an hour, nothing scaled."""
    program = shutil.which("victoria-metrics")
    if program is None:
        print("  victoria-metrics is not installed: not compared")
        return
    ticks = 240
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tempfile.mkdtemp()
    process = subprocess.Popen(
        [
            program, f"-storageDataPath={folder}", f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=100y", "-search.latencyOffset=0s",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    base = f"http://127.0.0.1:{port}"
    try:
        _wait(base)
        # Recent times: VictoriaMetrics refuses samples of the future.
        now_ms = int(time.time() * 1000) // 1000 * 1000
        _load(base, now_ms - np.arange(ticks, 0, -1) * TICK_MS)
        cpu = _cpu_s(process.pid)
        for metric in ASKED:
            for q in (0.05, 0.5, 0.95):
                query = urllib.parse.urlencode(
                    {
                        "query": f"quantile_over_time({q}, {metric}[1h])",
                        "time": now_ms // 1000,
                        "nocache": 1,
                    }
                )
                with urllib.request.urlopen(f"{base}/api/v1/query?{query}", timeout=120) as answer:
                    found = len(json.load(answer)["data"]["result"])
                    assert found == GPUS, found
        cost = _cpu_s(process.pid) - cpu
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)
    results.against(
        "cheaper than quantile_over_time from VictoriaMetrics over one hour (same statistics)",
        ratio=cost / per_tick,
        target=100.0,
        rival=f"VictoriaMetrics: {cost:.2f} s CPU",
        size=f"{GPUS:,} GPUs × {ticks} ticks × {len(ASKED)} metrics, loaded whole",
        at_10x=f"ten times the life: {10 * cost / per_tick:.0f}× if its cost grows with samples",
    )


def _load(base: str, times_ms: np.ndarray) -> None:
    """Every GPU's samples at these times, a line of JSON per series."""
    samples = Samples([f"n{i // 8}:{i % 8}" for i in range(GPUS)])
    times = times_ms.tolist()
    for metric in ASKED:
        table = np.stack([samples.columns[t % 8][metric] for t in range(len(times))], axis=1)
        for first in range(0, GPUS, 1000):
            lines = [
                json.dumps(
                    {
                        "metric": {"__name__": metric, "gpu": str(i)},
                        "values": table[i].round(2).tolist(),
                        "timestamps": times,
                    }
                )
                for i in range(first, min(first + 1000, GPUS))
            ]
            _post(f"{base}/api/v1/import", "\n".join(lines).encode())
    urllib.request.urlopen(f"{base}/internal/force_flush", timeout=60).close()


def _wait(base: str) -> None:
    for _ in range(200):
        try:
            urllib.request.urlopen(f"{base}/health", timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)


def _post(url: str, body: bytes) -> None:
    urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=120).close()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def back_test(results: Results) -> None:
    """A back-test of one rule over a simulated day against one scan of the columns it uses.

    ``MAREY_BENCH_STORE`` names a file in which the simulated past is kept for the next run.
    """
    gpus = int(os.environ.get("MAREY_BENCH_GPUS", str(GPUS)))
    # A shipped rule that needs exactly these two columns.
    rule = next(rule for rule in load_shipped_rules() if rule.id == "busy-low-power")
    with _past(gpus) as store:
        span = store.span("default")
        assert span is not None
        from_ms, to_ms = span[0], span[1] + 1
        # Compile, and let the file be read once.
        backtest([rule], read_history(store, "default", to_ms - HOUR_MS, to_ms, rules=[rule]))
        began = time.process_time()
        selection = Selection(BACKTESTED, from_ms, to_ms)
        rows = sum(len(batch) for batch in store.scan(selection))
        scan = time.process_time() - began
        began = time.process_time()
        found = backtest([rule], read_history(store, "default", from_ms, to_ms, rules=[rule]))
        whole = time.process_time() - began
    results.against(
        f"back-test of one rule ({rule.id}: {len(found.findings)} findings)",
        ratio=whole / scan,
        target=SCANS_OF_A_BACKTEST,
        rival=f"of one scan of its columns ({whole:.1f} s against {scan:.1f} s CPU, {rows:,} rows)",
        size=f"{gpus:,} GPUs × {(to_ms - from_ms) / HOUR_MS:.0f} h simulated, "
        f"{found.workloads:,} workloads, verdicts every minute, reading of workloads included",
        at_10x="ten times both: rows are independent",
        higher_is_better=False,
    )


@contextmanager
def _past(gpus: int) -> Iterator[Store]:
    """A store with a simulated past, made anew unless one was kept."""
    hours = float(os.environ.get("MAREY_BENCH_HOURS", "24"))
    kept = os.environ.get("MAREY_BENCH_STORE")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(kept or Path(folder) / "bench.duckdb")
        made = path.exists()
        with open_store(path) as store:
            if not made:
                _live_through(store, gpus, hours)
            yield store


def _live_through(store: Store, gpus: int, hours: float) -> None:
    """A simulated past with workloads that come and go; only the columns that are needed."""
    simulation = Simulation(SimConfig(gpus=gpus, seed=77))
    block: list[Observation] = []
    for observation in simulation.history(hours):
        block.append(replace(observation, samples=_narrowed(observation.samples)))
        if block[-1].samples:
            keep(store, block)
            block = []
    keep(store, block)
    store.maintain(simulation.now_ms)


def _narrowed(batches: Sequence[SampleBatch]) -> tuple[SampleBatch, ...]:
    return tuple(
        replace(batch, columns={name: batch.columns[name] for name in BACKTESTED})
        for batch in batches
        if batch.kind is Entity.GPU
    )


def main(argv: list[str] | None = None) -> int:
    """Print every figure; ``python -m bench.rules backtest`` only that one."""
    results = Results()
    if argv != ["backtest"]:
        per_tick = one_tick(results)
        against_history(results, per_tick)
        against_victoria(results, per_tick)
    if argv != ["live"]:
        back_test(results)
    return results.missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Questions of charts: the embedded store against Debian's VictoriaMetrics, same data, same run.

VictoriaMetrics answers over loopback HTTP with its cache off, and its answer is read but not
parsed; ours is an Arrow table in this process. Where it has several ways to answer, all are
measured and the fastest that gives the same answer counts.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.report import Results, timed
from bench.store import T0, TICK_MS, TICKS, Cluster
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.store.embedded.embedded_store import EmbeddedStore, open_store

GPUS = 512
HOURS = 24
METRICS = ("util", "tensor_active", "dram_active", "power", "temp", "mem_used")
POINTS = 1000
BINS = 32
QUANTILES = (0.05, 0.5, 0.95)
TARGET = 2.0
END = T0 + HOURS * HOUR_MS


@contextmanager
def victoria(folder: Path) -> Iterator[str]:
    """A VictoriaMetrics of its own; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = shutil.which("victoria-metrics")
    if program is None:
        raise SystemExit("victoria-metrics is not installed")
    process = subprocess.Popen(
        [
            program,
            f"-storageDataPath={folder / 'vm'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=100y",
            "-search.latencyOffset=0s",
            "-search.disableCache",
            # Many readers wait for their turn instead of being sent away.
            "-search.maxQueueDuration=60s",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                get(f"{url}/health")
                break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def get(url: str, **parameters: object) -> bytes:
    """The body of an answer."""
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{url}?{query}" if query else url, timeout=300) as answer:
        body: bytes = answer.read()
    return body


def fill(store: EmbeddedStore, url: str, cluster: Cluster, hours: int = HOURS) -> int:
    """The same hours into both; returns the number of samples."""
    for hour in range(hours):
        block = cluster.hour()
        batches = _batches(cluster, block, hour)
        for batch in batches:
            store.append([batch])
        store.maintain(T0 + (hour + 1) * HOUR_MS)
        times = (T0 + hour * HOUR_MS + np.arange(TICKS) * TICK_MS).tolist()
        for metric, values in block.items():
            rounded = np.round(values.astype(np.float64), 1)
            lines = [
                json.dumps(
                    {
                        "metric": {
                            "__name__": metric,
                            "gpu": name,
                            "workload": cluster.jobs[job] if job >= 0 else "none",
                        },
                        "values": rounded[:, i].tolist(),
                        "timestamps": times,
                    }
                )
                for i, (name, job) in enumerate(zip(cluster.names, cluster.job, strict=True))
            ]
            body = "\n".join(lines).encode()
            request = urllib.request.Request(f"{url}/api/v1/import", body, method="POST")
            urllib.request.urlopen(request, timeout=300).close()
    get(f"{url}/internal/force_flush")
    get(f"{url}/internal/force_merge")
    time.sleep(5)
    return hours * TICKS * len(cluster.names) * len(cluster.metrics)


def _batches(cluster: Cluster, block: dict[str, np.ndarray], hour: int) -> Iterator[SampleBatch]:
    gpus = len(cluster.names)
    for k in range(TICKS):
        yield SampleBatch(
            np.full(gpus, T0 + hour * HOUR_MS + k * TICK_MS, np.int64),
            np.arange(gpus, dtype=np.int32),
            cluster.names,
            {metric: values[k] for metric, values in block.items()},
            workload=cluster.job,
            workloads=cluster.jobs,
        )


def fastest(ways: dict[str, Callable[[], object]], repeat: int) -> tuple[str, float]:
    """The best way and its time; every way's time is printed."""
    times = {name: timed(way, repeat=repeat).wall_s for name, way in ways.items()}
    for name, seconds in times.items():
        print(f"      VictoriaMetrics, {name}: {1e3 * seconds:.1f} ms")
    return min(times.items(), key=lambda item: item[1])


def check_same(store: EmbeddedStore, url: str, job: str) -> None:
    """Both must hold the same data, or the ratios mean nothing."""
    ours = store.statistics(Selection(("util",), T0, END, workload=job)).table
    answer = json.loads(
        get(
            f"{url}/api/v1/query",
            query=f'sum(sum_over_time(util{{workload="{job}"}}[{HOURS}h]))',
            time=(END - 1) / 1000,
            nocache=1,
        )
    )
    theirs = float(answer["data"]["result"][0]["value"][1])
    own = float(np.dot(ours.column("mean").to_numpy(), ours.column("count").to_numpy()))
    if abs(own - theirs) > 1e-6 * abs(own):
        raise SystemExit(f"The stores differ: {own} and {theirs}")


def range_ways(url: str, job: str) -> dict[str, Callable[[], object]]:
    """Ways to ask for 1,000 points per series of one workload."""
    span = {"start": T0 / 1000, "end": END / 1000 - 1, "step": HOURS * 3600 / POINTS, "nocache": 1}
    names = "|".join(METRICS)

    def plain() -> None:
        query = f'{{__name__=~"{names}",workload="{job}"}}'
        get(f"{url}/api/v1/query_range", query=query, **span)

    def extremes() -> None:
        chosen = f'{{__name__=~"{names}",workload="{job}"}}[$__interval]'.replace(
            "$__interval", f"{int(4 * HOURS * 3600 / POINTS)}s"
        )
        wide = {**span, "step": 4 * HOURS * 3600 / POINTS}
        functions = ("first_over_time", "min_over_time", "max_over_time", "last_over_time")
        listed = ",".join(f'"{name}"' for name in functions)
        query = f"aggr_over_time(({listed}), {chosen}) keep_metric_names"
        get(f"{url}/api/v1/query_range", query=query, **wide)

    return {"a sample per step (extremes lost)": plain, "first, min, max, last": extremes}


def histogram_ways(url: str) -> dict[str, Callable[[], object]]:
    """Ways to ask for 32 equal bins of a day."""
    at = {"time": (END - 1) / 1000, "nocache": 1}
    edges = [100 * (i + 1) / BINS for i in range(BINS)]

    def counted() -> None:
        each = (
            f'label_set(count_le_over_time(util[{HOURS}h], {edge}), "le", "{edge}")'
            for edge in edges
        )
        get(f"{url}/api/v1/query", query=f"union({','.join(each)})", **at)

    def exported() -> None:
        body = get(
            f"{url}/api/v1/export", **{"match[]": "util", "start": T0 / 1000, "end": END / 1000}
        )
        for line in body.splitlines():
            np.histogram(json.loads(line)["values"], BINS, (0, 100))

    def logarithmic() -> None:
        get(f"{url}/api/v1/query", query=f"histogram_over_time(util[{HOURS}h])", **at)

    return {
        "count_le_over_time per edge": counted,
        "export, binned here": exported,
        "histogram_over_time (its own logarithmic bins)": logarithmic,
    }


def statistics_ways(url: str) -> dict[str, Callable[[], object]]:
    """Ways to ask for min, max, mean and three exact quantiles of a day."""
    at = {"time": (END - 1) / 1000, "nocache": 1}

    def aggregated() -> None:
        names = '"min_over_time","max_over_time","avg_over_time"'
        get(f"{url}/api/v1/query", query=f"aggr_over_time(({names}), util[{HOURS}h])", **at)
        wanted = ", ".join(str(q) for q in QUANTILES)
        get(
            f"{url}/api/v1/query", query=f'quantiles_over_time("q", {wanted}, util[{HOURS}h])', **at
        )

    def exported() -> None:
        body = get(
            f"{url}/api/v1/export", **{"match[]": "util", "start": T0 / 1000, "end": END / 1000}
        )
        for line in body.splitlines():
            values = np.array(json.loads(line)["values"])
            np.quantile(values, QUANTILES)

    return {"aggr_over_time and quantiles_over_time": aggregated, "export, computed here": exported}


def main() -> int:
    """Ask both; returns how many ratios were missed."""
    results = Results()
    cluster = Cluster(GPUS, METRICS, seed=4)
    # One workload of exactly 64 GPUs, whatever the dice say.
    cluster.job[:64] = len(cluster.jobs)
    cluster.jobs = (*cluster.jobs, "job-64")
    cluster.level = np.hstack([cluster.level, np.full((len(METRICS), 1), 0.8)])
    with tempfile.TemporaryDirectory() as folder, victoria(Path(folder)) as url:
        store = open_store(Path(folder) / "store.marey")
        samples = fill(store, url, cluster)
        print(f"      {samples / 1e6:.1f} M samples in both")
        check_same(store, url, "job-64")
        compare(results, store, url)
        store.close()
    return results.missed


def compare(results: Results, store: EmbeddedStore, url: str) -> None:
    """The three questions, side by side."""
    job = Selection(METRICS, T0, END, workload="job-64")
    everyone = Selection(("util",), T0, END)
    questions = (
        (
            f"series, 64 GPUs × {len(METRICS)} metrics × 24 h at {POINTS} points, extremes kept",
            lambda: store.series(job, POINTS),
            range_ways(url, "job-64"),
            "a sample per step (extremes lost)",
        ),
        (
            f"{BINS}-bin histograms, {GPUS} GPUs × 24 h",
            lambda: store.histograms(everyone, BINS),
            histogram_ways(url),
            "histogram_over_time (its own logarithmic bins)",
        ),
        (
            f"exact min, max, mean, p5, p50, p95, {GPUS} GPUs × 24 h",
            lambda: store.statistics(everyone, QUANTILES),
            statistics_ways(url),
            None,
        ),
    )
    for what, ask, ways, other_question in questions:
        ours = timed(ask, repeat=7).wall_s
        print(f"      ours: {1e3 * ours:.1f} ms")
        same = {name: way for name, way in ways.items() if name != other_question}
        way, theirs = fastest(same, repeat=5)
        if other_question is not None:
            fastest({other_question: ways[other_question]}, repeat=5)
        results.against(
            what,
            ratio=theirs / ours,
            target=TARGET,
            rival=f"VictoriaMetrics ({way}) in speed",
            size=f"{GPUS} GPUs × {len(METRICS)} metrics × {HOURS} h in both stores",
            at_10x="both linear in the samples asked for",
        )

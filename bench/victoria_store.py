"""VictoriaMetrics as the sample store: CPU on both sides, bytes on its disk, questions.

The rival in the same run is the embedded store with the same samples. ``MAREY_BENCH_TICKS`` (120)
and ``MAREY_BENCH_GPUS`` (10000) make it shorter. Needs ``victoria-metrics``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bench.report import Results, timed
from bench.store import T0, TICK_MS, TICKS, Cluster
from marey.model.metrics import EVERYDAY, Entity
from marey.model.protocols import SampleStore, Selection
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.store.embedded.embedded_store import open_store
from marey.store.victoria.http_server import Server, ServerAddress
from marey.store.victoria.victoria_store import VictoriaSettings, VictoriaStore, open_victoria
from tests.store.victoria.victoria_rig import VictoriaRig

CHART_GPUS = 64
# A delivery is looked for 20 s after it was sent: one or two wait at any time.
CONFIRM_TICKS = 2


def cpu_of(rig: VictoriaRig) -> float:
    """CPU seconds of the server so far."""
    assert rig.process is not None
    fields = Path(f"/proc/{rig.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(rig: VictoriaRig) -> float:
    """Resident MB of the server."""
    assert rig.process is not None
    text = Path(f"/proc/{rig.process.pid}/status").read_text()
    return (
        int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1e3
    )


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def server() -> Iterator[VictoriaRig]:
    """A real VictoriaMetrics in a folder that is removed again."""
    program = shutil.which("victoria-metrics")
    if program is None:
        raise SystemExit("victoria-metrics is not installed")
    with tempfile.TemporaryDirectory() as folder:
        rig = VictoriaRig(program, Path(folder) / "vm", "-memory.allowedBytes=4GB").start()
        try:
            yield rig
        finally:
            rig.stop()


def main() -> int:
    """Run every part; how many targets were missed."""
    results = Results()
    gpus = int(os.environ.get("MAREY_BENCH_GPUS", "10000"))
    ticks = int(os.environ.get("MAREY_BENCH_TICKS", "120"))
    print(f"VictoriaMetrics store: {gpus} GPUs × {len(EVERYDAY)} metrics, {ticks} ticks of 15 s")
    with server() as rig:
        formats(results, rig, Cluster(gpus))
    with server() as rig, tempfile.TemporaryDirectory() as folder:
        settings = VictoriaSettings(ServerAddress(rig.url, timeout_s=120), Path(folder) / "spill")
        store = open_victoria(settings, deliver=False)
        rival = open_store(Path(folder) / "rival.duckdb")
        write(results, rig, store, rival, gpus, ticks)
        questions(results, rig, store, rival, ticks)
        rival.maintain(T0 + (ticks + TICKS) * TICK_MS + HOUR_MS)
        store.close()
        rival.close()
        rig.stop()
        sizes(results, rig.folder, Path(folder) / "rival.duckdb", gpus * ticks * len(EVERYDAY))
    return results.missed


def sizes(results: Results, there: Path, here: Path, samples: int) -> None:
    """What lies on disk once both have stopped."""
    data, index = folder_bytes(there / "data"), folder_bytes(there / "indexdb")
    series = samples / len(EVERYDAY)
    results.line(
        "on disk after a clean stop",
        f"VictoriaMetrics {data / samples:.2f} bytes per sample and {index / 1e6:.1f} MB of index, "
        f"embedded {here.stat().st_size / samples:.2f} bytes per sample, rewritten",
        size=f"{samples / 1e6:.1f} M samples ({series / 1e6:.2f} M rows)",
        at_10x="10 times the samples; the index grows with GPUs and workloads, not with time",
    )


def formats(results: Results, rig: VictoriaRig, cluster: Cluster) -> None:
    """The three ways in: what a tick costs to say and to hear."""
    link = Server(ServerAddress(rig.url))
    costs = {}
    makers: dict[str, Callable[[SampleBatch, str], None]] = {
        "CSV": lambda batch, name: _as_csv(link, batch, name),
        "JSON lines": lambda batch, name: link.write_lines(_as_lines(batch, name)),
        "text": lambda batch, name: _as_text(rig, batch, name),
    }
    for name, send in makers.items():
        batches = [batch for _, batch in islice(cluster.ticks(1), 5)]
        send(batches[0], name)
        time.sleep(2)
        ours, theirs = time.process_time(), cpu_of(rig)
        for batch in batches[1:]:
            send(batch, name)
        time.sleep(1)
        costs[name] = ((time.process_time() - ours) / 4, (cpu_of(rig) - theirs) / 4)
    said = "; ".join(f"{n} {a * 1e3:.0f} + {b * 1e3:.0f} ms" for n, (a, b) in costs.items())
    results.line(
        "a tick in each import format (CPU here + there)",
        said,
        size=f"{len(cluster.names)} GPUs × {len(EVERYDAY)}",
        at_10x="10 times",
    )


def _as_csv(link: Server, batch: SampleBatch, name: str) -> None:
    from marey.store.victoria.import_requests import Writer

    Writer(link, f"format {name}").write(batch, 0)


def _as_lines(batch: SampleBatch, name: str) -> bytes:
    end = f'],"timestamps":[{int(batch.time_ms[0])}]}}\n'
    return "".join(
        f'{{"metric":{{"__name__":"f_{metric}","f":"{name}","gpu":"{gpu}"}},"values":[{value}{end}'
        for metric, values in batch.columns.items()
        for gpu, value in zip(batch.entities, values.tolist(), strict=True)
    ).encode()


def _as_text(rig: VictoriaRig, batch: SampleBatch, name: str) -> None:
    time_ms = int(batch.time_ms[0])
    body = "".join(
        f'f_{metric}{{f="{name}",gpu="{gpu}"}} {value} {time_ms}\n'
        for metric, values in batch.columns.items()
        for gpu, value in zip(batch.entities, values.tolist(), strict=True)
    ).encode()
    url = f"{rig.url}/api/v1/import/prometheus"
    urllib.request.urlopen(urllib.request.Request(url, body), timeout=60).close()


def write(
    results: Results,
    rig: VictoriaRig,
    store: VictoriaStore,
    rival: SampleStore,
    gpus: int,
    ticks: int,
) -> None:
    """Ticks into both: kept on disk, sent, and confirmed."""
    ours: dict[str, float] = {"keep": 0.0, "send": 0.0, "confirm": 0.0, "embedded": 0.0}
    cluster = Cluster(gpus)
    # Series are new only once; names are compiled and cached only once.
    batches = (batch for _, batch in islice(cluster.ticks(1 + ticks // TICKS), ticks))
    _tick(ours, store, rival, next(batches))
    store.deliver_all(120)
    ours = dict.fromkeys(ours, 0.0)
    sent = confirmed = 0.0
    began = time.perf_counter()
    for number, batch in enumerate(batches, 1):
        theirs = cpu_of(rig)
        _tick(ours, store, rival, batch)
        sent += cpu_of(rig) - theirs
        if number % CONFIRM_TICKS == 0 or number == ticks - 1:
            cpu, theirs = time.process_time(), cpu_of(rig)
            store.deliver_all(120)
            ours["confirm"] += time.process_time() - cpu
            confirmed += cpu_of(rig) - theirs
    many = ticks - 1
    wall = (time.perf_counter() - began) / many
    total = sum(ours[name] for name in ("keep", "send", "confirm")) / many
    parts = ", ".join(f"{n} {v / many * 1e3:.1f}" for n, v in ours.items() if n != "embedded")
    size = f"a tick of {gpus} GPUs × {len(EVERYDAY)} metrics"
    results.against(
        f"CPU of Marey per tick ({total * 1e3:.1f} ms: {parts})",
        ratio=total / (ours["embedded"] / many),
        target=10.0,
        rival=f"the embedded store's ({ours['embedded'] / many * 1e3:.1f} ms)",
        size=size,
        at_10x=f"{total * 10:.2f} s of each 15 s",
        higher_is_better=False,
    )
    results.line(
        "CPU of VictoriaMetrics per tick",
        f"{sent / many * 1e3:.0f} ms to take, {confirmed / many * 1e3:.0f} ms to confirm; "
        f"{memory_of(rig):.0f} MB resident; {wall * 1e3:.0f} ms of wall time per tick",
        size=size,
        at_10x=f"{(sent + confirmed) / many * 10:.1f} s of each 15 s (extrapolated)",
    )
    state = store.state()
    print(f"      sent again: {state['resent_samples']}, refused: {state['refused_samples']}")


def _tick(
    costs: dict[str, float], store: VictoriaStore, rival: SampleStore, batch: SampleBatch
) -> None:
    for name, work in (
        ("keep", lambda: store.append([batch])),
        ("send", store.delivery.step),
        ("embedded", lambda: rival.append([batch])),
    ):
        cpu = time.process_time()
        work()
        costs[name] += time.process_time() - cpu


def questions(
    results: Results, rig: VictoriaRig, store: VictoriaStore, rival: SampleStore, ticks: int
) -> None:
    """What charts, diagnosis and time travel ask."""
    end = T0 + ticks * TICK_MS
    names = tuple(f"node{i // 8:05}:{i % 8}" for i in range(CHART_GPUS))
    chart = Selection(EVERYDAY, 0, end + 1, entities=names)
    asked: dict[str, Callable[[Any], object]] = {
        f"series of {CHART_GPUS} GPUs × 12, 1000 points": lambda s: s.series(chart, 1000),
        f"histograms of {CHART_GPUS} GPUs × 12": lambda s: s.histograms(chart, 100),
        f"statistics of {CHART_GPUS} GPUs × 12": lambda s: s.statistics(chart, [0.05, 0.5, 0.95]),
        "one GPU, one metric": lambda s: s.series(
            Selection(("util",), 0, end + 1, entities=names[:1]), 1000
        ),
        "a moment of all (60 s, 12 metrics)": lambda s: [
            len(b) for b in s.scan(Selection(EVERYDAY, end - 60_000, end + 1))
        ],
        "a moment of all as the overview asks for it (60 s, 2 metrics)": lambda s: [
            len(b) for b in s.scan(Selection(EVERYDAY[:2], end - 60_000, end + 1))
        ],
        "util of all, all the time: statistics": lambda s: s.statistics(
            Selection(("util",), 0, end + 1)
        ),
        "latest values of all": lambda s: s.latest("default", Entity.GPU, end - 60_000),
    }
    for what, ask in asked.items():
        theirs = cpu_of(rig)
        there = timed(partial(ask, store), repeat=2, warm=True)
        server_s = (cpu_of(rig) - theirs) / 3
        here = timed(partial(ask, rival), repeat=2, warm=True)
        results.line(
            what,
            f"{there.wall_s * 1e3:.0f} ms ({there.cpu_s * 1e3:.0f} ms CPU here, "
            f"{server_s * 1e3:.0f} there), embedded {here.wall_s * 1e3:.0f} ms: "
            f"{there.wall_s / here.wall_s:.1f}×",
            size=f"{ticks} ticks",
            at_10x="grows with the samples it is about",
        )

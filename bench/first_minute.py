"""The first minute: a demo until its page and its findings are there, and a store judged anew.

Seconds are those of a quiet machine with two cores; the load beside it is printed, because another
process takes what it takes. ``MAREY_BENCH_DEMOS=0`` leaves the demos out.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench.report import Results, peak_rss_mb
from bench.web_pages import ask, started
from marey.app.assembly import open_service
from marey.app.rules.state_file import EvaluationLoopFiles
from marey.app.service import Service
from marey.app.settings.configuration import (
    CollectSettings,
    Configuration,
    ServerSettings,
    SimulatedSettings,
    StoreSettings,
)
from marey.model.times import parse_time

GPUS = int(os.environ.get("MAREY_BENCH_GPUS", "512"))
HOURS = float(os.environ.get("MAREY_BENCH_HOURS", "24"))
DEMOS = os.environ.get("MAREY_BENCH_DEMOS", "1") != "0"
NEVER_COARSE_MS = 1 << 50
CORES = 2


def main() -> int:
    """Print what a day costs, with and without its rules; 1 where the target is missed."""
    results = Results()
    if DEMOS:
        report_demo(results, DemoLimits(gpus=2_048, page_s=30.0, whole_s=30.0))
        report_demo(results, DemoLimits(gpus=10_000, page_s=60.0, whole_s=180.0, memory_mb=900))
    size = f"{GPUS} GPUs x {HOURS:g} h"
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        service = open_simulated_service(Path(folder) / "demo.duckdb")
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        judged = len(service.rule_watch.findings.all())
        results.line(
            "history made and judged",
            f"{wall:.1f} s wall, {cpu:.1f} s CPU, {judged} findings, peak {peak_rss_mb():.0f} MB",
            size=size,
            at_10x="ten times as long",
        )
        rebuild(service, None)
        old = rebuild(service, NEVER_COARSE_MS)
        new = rebuild(service, None)
        results.against(
            "a store without rule state is judged anew",
            ratio=old / new,
            target=5.0,
            rival=f"minute by minute ({old:.1f} s CPU against {new:.1f} s)",
            size=size,
            at_10x="the same",
        )
        service.rule_watch.stop()
        service.store.close()
    return results.missed


@dataclass(frozen=True)
class DemoLimits:
    """How long a demo may take until its page answers, and until its whole day is judged."""

    gpus: int
    page_s: float
    whole_s: float
    memory_mb: int = 0


def report_demo(results: Results, limits: DemoLimits) -> None:
    """Start `marey demo` as people do, and watch it until its day is judged."""
    begun = time.perf_counter()
    with started("demo", "--gpus", str(limits.gpus), "--port", "0", "--no-browser") as server:
        page_s, page_cpu_s = time.perf_counter() - begun, server.cpu_seconds_with_children()
        first = ask(server.url, "/api/v1/findings")
        wasted = sum(row["gpu_hours"] for row in ask(server.url, "/api/v1/waste")["rows"])
        last = first
        # A busy machine takes longer: it is watched for as long again as the page took.
        patience_s = 2 * page_s + 3 * limits.whole_s
        while last["preparing"] and time.perf_counter() - begun < patience_s:
            time.sleep(2.0)
            last = ask(server.url, "/api/v1/findings")
        whole_s, whole_cpu_s = time.perf_counter() - begun, server.cpu_seconds_with_children()
        peak_mb = read_peak_mb(server.pid)
    share = "all of the day" if not first["preparing"] else f"{first['share_read'] or 0:.0%} of it"
    size = f"{limits.gpus:,} GPUs x 24 h, load beside it {os.getloadavg()[0]:.1f}"
    results.against(
        "page of a new demo",
        ratio=page_s / limits.page_s,
        target=1.0,
        rival=f"its limit of {limits.page_s:g} s ({page_s:.1f} s, {first['total']} findings, "
        f"{wasted:,.0f} GPU-hours wasted, {share} judged)",
        size=size,
        at_10x="ten times as long",
        higher_is_better=False,
    )
    results.against(
        "whole day judged" if not last["preparing"] else "whole day NOT judged",
        ratio=whole_s / limits.whole_s,
        target=1.0,
        rival=f"its limit of {limits.whole_s:g} s ({whole_s:.0f} s, {last['total']} findings)",
        size=size,
        at_10x="ten times as long",
        higher_is_better=False,
    )
    for what, taken_s, limit_s in (
        ("CPU until the page", page_cpu_s, limits.page_s),
        ("CPU until the whole day is judged", whole_cpu_s, limits.whole_s),
    ):
        results.against(
            what,
            ratio=taken_s / (CORES * limit_s),
            target=1.0,
            rival=f"two cores for {limit_s:g} s ({taken_s:.1f} s of CPU; what a quiet machine "
            "could at best)",
            size=size,
            at_10x="ten times as long",
            higher_is_better=False,
        )
    if limits.memory_mb:
        results.against(
            "peak memory meanwhile",
            ratio=peak_mb / limits.memory_mb,
            target=1.0,
            rival=f"its limit of {limits.memory_mb} MB ({peak_mb} MB)",
            size=size,
            at_10x="linear in the GPUs",
            higher_is_better=False,
        )


def read_peak_mb(pid: int) -> int:
    """Return the largest resident set of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def open_simulated_service(path: Path) -> Service:
    """Return a service over a day that was just made."""
    source = SimulatedSettings(
        gpus=GPUS,
        seed=1,
        speed=15.0,
        history_hours=HOURS,
        until_ms=parse_time("2026-11-11T14:00Z"),
    )
    return open_service(
        Configuration(
            server=ServerSettings(port=0),
            store=StoreSettings(path=str(path)),
            collect=CollectSettings(),
            sources=(source,),
        )
    )


def rebuild(service: Service, fine_ms: int | None) -> float:
    """Return the CPU seconds of judging the whole store.

    If told so, all of it as a live server does: every minute, each verdict worked out whole.
    """
    keeper = EvaluationLoopFiles(service.store, None, lambda: False)
    if fine_ms is not None:
        keeper = replace(keeper, fine_ms=fine_ms, shown_ms=fine_ms)
    begun = time.process_time()
    keeper.open("default", service.rule_store.all(), [], service.workspace.now_ms())
    return time.process_time() - begun


if __name__ == "__main__":
    raise SystemExit(main())

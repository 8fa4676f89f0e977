"""Many ranks on a small machine: 512 traces of 20 MB, and how cost grows with events."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import Results
from marey.trace.results import VerdictKind
from marey.trace.synthetic import Layout, Scenario, make_run
from marey.trace.synthetic.kineto import write_kineto

RANKS = int(os.environ.get("MAREY_BENCH_RANKS", "512"))
MB_PER_RANK = 20
LIMIT_MB = 2048
# Growth is linear if four times the events cost at most this much more than four times as long.
LARGEST_GROWTH = 1.25
CHILD = """
import sys, time
from pathlib import Path
from marey.trace.run import open_run
from marey.trace.analysis import analyse
begun = time.perf_counter()
run = open_run(Path(sys.argv[1]), cache=Path(sys.argv[2]))
read = time.perf_counter() - begun
found = analyse(run)
whole = time.perf_counter() - begun
print(read, whole, found.verdicts[0].kind.value, *found.verdicts[0].ranks)
"""
LOOK_EVERY_S = 0.1
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


def _layout(ranks: int) -> Layout:
    return Layout(data=ranks // 16, tensor=4, pipeline=4, micro_batches=4, layers=2)


def _write(folder: Path, ranks: int) -> tuple[float, tuple[int, ...], str]:
    """Traces of a run with one slow worker; the size on disk in MB, and the truth."""
    layout = _layout(ranks)
    made = make_run(Scenario(layout, VerdictKind.SLOW_WORKER, steps=3, seed=77))
    sample = write_kineto(made.run, folder)
    own = sample[0].stat().st_size
    filler = max(MB_PER_RANK * 1_000_000 - own, 0)
    for path in sample:
        path.unlink()
    write_kineto(made.run, folder, filler_bytes=filler)
    size = sum(p.stat().st_size for p in folder.iterdir()) / 1e6
    return size, made.truth.ranks, made.truth.kind.value


def _analyse(folder: Path, cache: Path) -> tuple[float, float, float, str]:
    """Seconds to read, seconds in all, peak MB of the process and all its helpers, the verdict."""
    command = [sys.executable, "-c", CHILD, str(folder), str(cache)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    peak = 0.0
    while worker.poll() is None:
        peak = max(peak, _session_mb(worker.pid))
        time.sleep(LOOK_EVERY_S)
    said = worker.stdout.read().split() if worker.stdout else []
    if worker.returncode:
        raise RuntimeError(f"The analysis ended with status {worker.returncode}.")
    return float(said[0]), float(said[1]), peak, " ".join(said[2:])


def _session_mb(session: int) -> float:
    """Resident memory of every process of a session; shared pages count for each."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                total += int(fields[21]) * PAGE_MB
    return total


def main() -> int:
    """Analyse growing runs in a process of their own and look at its memory."""
    results = Results()
    costs = []
    for ranks in (RANKS // 16, RANKS // 4, RANKS):
        with tempfile.TemporaryDirectory() as room:
            folder, cache = Path(room) / "traces", Path(room) / "cache"
            size, truth, kind = _write(folder, ranks)
            read, whole, peak, verdict = _analyse(folder, cache)
        costs.append((size, whole))
        right = verdict == f"{kind} {' '.join(str(r) for r in truth)}"
        print(
            f"  {ranks} ranks, {size / 1e3:.1f} GB: read {read:.1f} s, in all {whole:.1f} s; "
            f"peak {peak:.0f} MB; verdict {'right' if right else verdict}",
            flush=True,
        )
        results.missed += not right
    results.against(
        f"peak memory of {RANKS} ranks × {MB_PER_RANK} MB, all processes together",
        ratio=peak / LIMIT_MB,
        target=1.0,
        rival=f"of {LIMIT_MB} MB",
        size=f"{costs[-1][0] / 1e3:.1f} GB of JSON",
        at_10x="grows with communications, not with events",
        higher_is_better=False,
    )
    growth = (costs[2][1] / costs[1][1]) / (costs[2][0] / costs[1][0])
    results.against(
        "growth of time over growth of events, from a quarter to the whole",
        ratio=growth,
        target=LARGEST_GROWTH,
        rival="linear",
        size=", ".join(f"{s / 1e3:.1f} GB: {t:.0f} s" for s, t in costs),
        at_10x="ten times as long",
        higher_is_better=False,
    )
    return results.missed

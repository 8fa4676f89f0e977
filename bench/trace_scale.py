"""Many ranks on a small machine: 512 traces of 20 MB, and how cost grows with events."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.report import Results
from marey.trace.results import VerdictKind
from marey.trace.synthetic import Layout, Scenario, make_run
from marey.trace.synthetic.kineto import write_kineto

RANKS = int(os.environ.get("MAREY_BENCH_RANKS", "512"))
MB_PER_RANK = int(os.environ.get("MAREY_BENCH_RANK_MB", "20"))
LIMIT_MB = 2048
# Growth is linear if an event of the largest run costs at most this much more than one of the
# smallest. CPU time of all processes: other work on the machine does not move it.
LARGEST_GROWTH = 1.25
CHILD = """
import resource, sys, time
from pathlib import Path
from marey.trace.run.trace_run import open_run
from marey.trace.analysis import analyse
def cpu():
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)
begun, busy = time.perf_counter(), cpu()
run = open_run(Path(sys.argv[1]), cache=Path(sys.argv[2]))
read = time.perf_counter() - begun
found = analyse(run)
whole, spent = time.perf_counter() - begun, cpu() - busy
events = sum(run.events(rank, ["kind"]).num_rows for rank in run.ranks)
print(read, whole, spent, events, found.verdicts[0].kind.value, *found.verdicts[0].ranks)
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


@dataclass(frozen=True)
class Cost:
    """What one analysis took: seconds, CPU seconds of all its processes, their peak together."""

    read_s: float
    whole_s: float
    cpu_s: float
    events: int
    peak_mb: float
    verdict: str

    @property
    def us_per_event(self) -> float:
        """CPU microseconds per event."""
        return self.cpu_s / self.events * 1e6


def _analyse(folder: Path, cache: Path) -> Cost:
    """Read and analyse in a process of its own, and look at its memory meanwhile."""
    command = [sys.executable, "-c", CHILD, str(folder), str(cache)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    peak = 0.0
    while worker.poll() is None:
        peak = max(peak, session_mb(worker.pid))
        time.sleep(LOOK_EVERY_S)
    said = worker.stdout.read().split() if worker.stdout else []
    if worker.returncode:
        raise RuntimeError(f"The analysis ended with status {worker.returncode}.")
    read, whole, cpu = (float(number) for number in said[:3])
    return Cost(read, whole, cpu, int(said[3]), peak, " ".join(said[4:]))


def session_mb(session: int) -> float:
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
    costs: list[Cost] = []
    for ranks in (RANKS // 16, RANKS // 4, RANKS):
        with tempfile.TemporaryDirectory() as room:
            folder, cache = Path(room) / "traces", Path(room) / "cache"
            size, truth, kind = _write(folder, ranks)
            cost = _analyse(folder, cache)
        costs.append(cost)
        right = cost.verdict == f"{kind} {' '.join(str(r) for r in truth)}"
        print(
            f"  {ranks} ranks, {size / 1e3:.1f} GB: read {cost.read_s:.1f} s, in all "
            f"{cost.whole_s:.1f} s, {cost.cpu_s:.1f} s CPU, {cost.us_per_event:.2f} µs CPU per "
            f"event; peak {cost.peak_mb:.0f} MB; verdict {'right' if right else cost.verdict}",
            flush=True,
        )
        results.missed += not right
    results.against(
        f"peak memory of {RANKS} ranks × {MB_PER_RANK} MB, all processes together",
        ratio=costs[-1].peak_mb / LIMIT_MB,
        target=1.0,
        rival=f"of {LIMIT_MB} MB",
        size=f"{size / 1e3:.1f} GB of JSON",
        at_10x="grows with communications, not with events",
        higher_is_better=False,
    )
    results.against(
        "CPU time per event, the largest run over the smallest",
        ratio=costs[-1].us_per_event / costs[0].us_per_event,
        target=LARGEST_GROWTH,
        rival="linear growth",
        size=", ".join(f"{c.events:,} events at {c.us_per_event:.2f} µs" for c in costs),
        at_10x="the same per event",
        higher_is_better=False,
    )
    return results.missed

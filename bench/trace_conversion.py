"""A run of 16,384 ranks converted whole, by the process that the server starts for it.

The files are small, so that what is measured is the cost of ranks, not of their events; how memory
grows with events is ``bench trace_scale``.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.report import Results
from bench.trace_scale import LIMIT_MB, LOOK_EVERY_S, session_mb
from bench.trace_upload import FEW, RANKS, SLOW, make_rank
from marey.app.traces.conversion_process import ConversionLine, ConversionResult, ConversionTask
from marey.trace.views.view_files import RunViews

# A rank of the large run may cost this much more than one of the small run.
LARGEST_GROWTH = 1.5


@dataclass(frozen=True)
class Cost:
    """What one conversion took: seconds, CPU seconds and peak memory of all its processes."""

    ranks: int
    whole_s: float
    cpu_s: float
    peak_mb: float
    result: ConversionResult
    # Ranks that can be looked at in the last step.
    shown: int

    @property
    def ms_per_rank(self) -> float:
        """CPU milliseconds per rank."""
        return self.cpu_s / self.ranks * 1e3

    @property
    def is_right(self) -> bool:
        """Whether every rank is there and the slow one is named."""
        named = self.result.verdicts[0]["ranks"] if self.result.verdicts else []
        return named == [SLOW] and self.result.ranks == self.shown == self.ranks


def convert_ranks(ranks: int) -> Cost:
    """Write a file of each rank and convert them all."""
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        (room / "files").mkdir()
        for rank in range(ranks):
            (room / "files" / f"rank{rank}.json").write_bytes(make_rank(rank, ranks))
        paths = [str(room / "files")]
        task = ConversionTask(paths, str(room / "cache"), str(room / "views"))
        begun, busy = time.perf_counter(), children_cpu_s()
        result, peak = run_child(task)
        whole, cpu = time.perf_counter() - begun, children_cpu_s() - busy
        views = RunViews(room / "views")
        last = views.step(views.index.steps[-1]["step"])
        return Cost(ranks, whole, cpu, peak, result, len(last.view.index.ranks))


def children_cpu_s() -> float:
    """Return the CPU seconds of all processes that ended before."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_child(task: ConversionTask) -> tuple[ConversionResult, float]:
    """Return what the process says at its end, and the most memory that was seen meanwhile."""
    command = [sys.executable, "-m", "marey.app.traces.conversion_process"]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=said, start_new_session=True
        )
        assert child.stdin is not None
        child.stdin.write(msgspec.json.encode(task))
        child.stdin.close()
        peak = 0.0
        while child.poll() is None:
            peak = max(peak, session_mb(child.pid))
            time.sleep(LOOK_EVERY_S)
        said.seek(0)
        last = msgspec.json.decode(said.read().splitlines()[-1], type=ConversionLine)
    if last.result is None:
        raise RuntimeError(f"The conversion ended with: {last.error}")
    return last.result, peak


def main() -> int:
    """Convert 1,024 and 16,384 ranks; compare what a rank costs and the memory of all."""
    results = Results()
    costs = [convert_ranks(ranks) for ranks in (FEW, RANKS)]
    for cost in costs:
        kind = cost.result.verdicts[0]["kind"] if cost.result.verdicts else "no verdict"
        results.line(
            "converted",
            f"{cost.whole_s:.0f} s, {cost.cpu_s:.0f} s CPU ({cost.ms_per_rank:.1f} ms a rank), "
            f"peak {cost.peak_mb:.0f} MB; {kind}, {'right' if cost.is_right else 'wrong'}",
            size=f"{cost.ranks:,} ranks",
            at_10x="linear in ranks",
        )
        results.missed += not cost.is_right
    few, many = costs
    results.against(
        "CPU time of a rank",
        ratio=many.ms_per_rank / few.ms_per_rank,
        target=LARGEST_GROWTH,
        rival=f"in a run of {FEW:,} ({many.ms_per_rank:.1f} ms, {few.ms_per_rank:.1f} ms)",
        size=f"{RANKS:,} ranks",
        at_10x="linear in ranks",
        higher_is_better=False,
    )
    each = (many.peak_mb - few.peak_mb) / (RANKS - FEW) * 1e3
    results.against(
        f"peak memory of all processes ({each:.0f} kB more for each further rank)",
        ratio=many.peak_mb / LIMIT_MB,
        target=1.0,
        rival=f"of {LIMIT_MB} MB",
        size=f"{RANKS:,} ranks",
        at_10x="grows with communications, not with events",
        higher_is_better=False,
    )
    return results.missed


if __name__ == "__main__":
    sys.exit(main())

"""How a bench times, compares and prints."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """The best wall time and the CPU time of that run."""

    wall_s: float
    cpu_s: float


def timed(work: Callable[[], object], *, repeat: int = 3, warm: bool = True) -> Timing:
    """Best of ``repeat`` runs: the machine is noisy, and noise only ever adds."""
    if warm:
        work()
    runs = []
    for _ in range(repeat):
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        runs.append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
    return min(runs, key=lambda run: run.wall_s)


def peak_rss_mb() -> float:
    """The largest resident set of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass
class Results:
    """The lines of one bench; ``main`` returns ``missed`` so that the runner can count it."""

    missed: int = 0

    def line(self, what: str, measured: str, *, size: str, at_10x: str) -> None:
        """A figure without a target."""
        print(f"  {what}: {measured}\n      size: {size}; at 10×: {at_10x}", flush=True)

    def against(
        self,
        what: str,
        *,
        ratio: float,
        target: float,
        rival: str,
        size: str,
        at_10x: str,
        higher_is_better: bool = True,
    ) -> None:
        """A ratio against a named rival or limit, and whether it meets its target."""
        met = ratio >= target if higher_is_better else ratio <= target
        self.missed += not met
        aim = f"target {'≥' if higher_is_better else '≤'} {target:g}"
        print(
            f"  {what}: {ratio:.3g}× {rival} ({aim}) {'ok' if met else 'MISSED'}\n"
            f"      size: {size}; at 10×: {at_10x}",
            flush=True,
        )

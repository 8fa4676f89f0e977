"""What a report on a trace of a few kilobytes costs, beside importing numpy and pyarrow alone."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Results
from marey.trace.synthetic import Layout, Scenario, make_run
from marey.trace.synthetic.kineto import write_kineto

REPEAT = 5
MOST_CPU_S = 0.7
# What an idle core of this kind takes for the imports: the limit above was set on such a one.
IMPORTS = "import numpy, pyarrow"


def cpu_of(command: list[str], repeat: int = REPEAT) -> float:
    """Return the least CPU seconds of a command, which has run once before."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    times = []
    for _ in range(repeat):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main() -> int:
    """Time the whole command, warm, and the imports that no report can do without."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces"
        write_kineto(make_run(Scenario(Layout(data=1, layers=1), steps=1)).run, path)
        size = sum(p.stat().st_size for p in path.iterdir())
        program = "from marey.cli import main; main()"
        report = cpu_of(
            [sys.executable, "-c", program, "trace", "report", str(path), "--cache", folder]
        )
        imports = cpu_of([sys.executable, "-c", IMPORTS])
    results.against(
        "CPU of a report on a small trace, warm",
        ratio=MOST_CPU_S / report,
        target=1.0,
        rival=f"{MOST_CPU_S} s ({report:.2f} s used)",
        size=f"one rank, {size / 1e3:.1f} kB",
        at_10x="0.1 s more",
    )
    results.line(
        "imports of numpy and pyarrow alone",
        f"{imports:.2f} s CPU; a report costs {report / imports:.1f} × that",
        size="in the same run",
        at_10x="the same",
    )
    return results.missed
